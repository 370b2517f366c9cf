/* For the host: the kernels of bench/gpu/kernels.cu that its probes of rules launch, and ours. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#define KERNEL(name, ...)                                                                          \
  const int32_t name##_params[] = {__VA_ARGS__, -1};                                               \
  void name(void *const *args, const int32_t dims[6])

static float *pointer(void *const *args, int i) { return *(float **)args[i]; }
static float number(void *const *args, int i) { return *(float *)args[i]; }

/* Blocks of a grid meet on the same words: done one after the other. */
#define EACH_THREAD                                                                                \
  for (int32_t block = 0; block < dims[0]; ++block)                                                \
    for (int32_t thread = 0; thread < dims[3]; ++thread)

KERNEL(inc, 8) { EACH_THREAD pointer(args, 0)[thread] += 1.0f; }
KERNEL(inc_early, 8) { EACH_THREAD pointer(args, 0)[thread] += 1.0f; }
KERNEL(add_value, 8, 4) { EACH_THREAD pointer(args, 0)[thread] += number(args, 1); }
KERNEL(scale_value, 8, 4) { EACH_THREAD pointer(args, 0)[thread] *= number(args, 1); }
KERNEL(add_memory, 8, 8) { EACH_THREAD pointer(args, 0)[thread] += *pointer(args, 1); }

KERNEL(linger, 8) {
  uint64_t ns;
  (void)dims;
  memcpy(&ns, args[0], sizeof ns);
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  nanosleep(&t, 0);
}

/* Waits until so many are there, or for its time; the slot tells how many there were. */
KERNEL(gather_up, 8, 8, 4, 8) {
  uint32_t *counter = *(uint32_t **)args[0], *slot = *(uint32_t **)args[1], need, there;
  uint64_t ns, waited = 0;
  const struct timespec nap = {0, 100000};
  (void)dims;
  memcpy(&need, args[2], sizeof need);
  memcpy(&ns, args[3], sizeof ns);
  __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
  while ((there = __atomic_load_n(counter, __ATOMIC_SEQ_CST)) < need && waited < ns) {
    nanosleep(&nap, 0);
    waited += 100000;
  }
  *slot = there;
}

KERNEL(wild, 8) {
  (void)dims;
  pointer(args, 0)[1ull << 44] = 1.0f;
}

struct piece {
  char *to;
  const char *from;
  uint64_t n16;
};
KERNEL(gather, 8 * sizeof(struct piece)) {
  const struct piece *pieces = args[0];
  for (int32_t i = 0; i < dims[1]; ++i) memcpy(pieces[i].to, pieces[i].from, pieces[i].n16 * 16);
}

/* Takes the next number of a counter: tells in which order kernels ran. */
KERNEL(take_number, 8, 8) {
  uint32_t *counter = *(uint32_t **)args[0], *slot = *(uint32_t **)args[1];
  (void)dims;
  *slot = (*counter)++;
}

KERNEL(decrement, 8) {
  (void)dims;
  --**(uint32_t **)args[0];
}

/* 4, 2 and 8 bytes: offsets 0, 4 and 8. */
KERNEL(mixed, 4, 2, 8) { (void)args, (void)dims; }

const int32_t none_params[] = {-1};
void none(void *const *args, const int32_t dims[6]) { (void)args, (void)dims; }

/* A variable of the module. */
int32_t table[4] = {1, 2, 3, 4};
KERNEL(add_table, 8) { EACH_THREAD pointer(args, 0)[thread] += (float)table[thread % 4]; }
