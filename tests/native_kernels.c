// Kernels in the ABI of native host kernels: args[i] is the address of argument i's value, so for a
// pointer the address of a variable that holds it; dims is grid x, y, z, block x, y, z. A node is
// one call, which does the work of all its threads.
#define _POSIX_C_SOURCE 199309L
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

static int32_t count(const int32_t dims[6], int32_t n) {
  int64_t threads = (int64_t)dims[0] * dims[1] * dims[2] * dims[3] * dims[4] * dims[5];
  return threads < n ? (int32_t)threads : n;
}

void add(void *const *args, const int32_t dims[6]) {
  float *out = *(float *const *)args[0];
  const float *a = *(const float *const *)args[1], *b = *(const float *const *)args[2];
  int32_t n = count(dims, *(const int32_t *)args[3]);
  for (int32_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

void scaled(void *const *args, const int32_t dims[6]) {
  float *out = *(float *const *)args[0];
  const float *a = *(const float *const *)args[1], *b = *(const float *const *)args[2];
  float s = *(const float *)args[3];
  int32_t n = count(dims, *(const int32_t *)args[4]);
  for (int32_t i = 0; i < n; i++) out[i] = (a[i] + b[i]) * s;
}

void fill(void *const *args, const int32_t dims[6]) {
  float *out = *(float *const *)args[0];
  float v = *(const float *)args[1];
  int32_t n = count(dims, *(const int32_t *)args[2]);
  for (int32_t i = 0; i < n; i++) out[i] = v;
}

void inc(void *const *args, const int32_t dims[6]) {
  float *buf = *(float *const *)args[0];
  float d = *(const float *)args[1];
  int32_t n = count(dims, *(const int32_t *)args[2]);
  for (int32_t i = 0; i < n; i++) buf[i] += d;
}

// Writes the six dimensions that it was called with.
void dims(void *const *args, const int32_t dims[6]) {
  memcpy(*(int32_t *const *)args[0], dims, 6 * sizeof(int32_t));
}

// Stores its value, and then spoils its arguments, which are its own.
void spoil(void *const *args, const int32_t dims[6]) {
  float **out = (float **)args[0], *value = (float *)args[1];
  (void)dims;
  **out = *value;
  *out += 1;
  *value += 1;
}

static void rest(int64_t us) {
  struct timespec t;
  t.tv_sec = us / 1000000;
  t.tv_nsec = us % 1000000 * 1000;
  nanosleep(&t, 0);
}

// A clock that it pushes on itself tells when it began and when it ended.
void span(void *const *args, const int32_t dims[6]) {
  int64_t *clock = *(int64_t *const *)args[0], *readings = *(int64_t *const *)args[1];
  (void)dims;
  readings[0] = __atomic_add_fetch(clock, 1, __ATOMIC_SEQ_CST);
  rest(*(const int32_t *)args[2]);
  readings[1] = __atomic_add_fetch(clock, 1, __ATOMIC_SEQ_CST);
}

// Waits for the other a while, and is then here no more: *met tells whether they met.
void meet(void *const *args, const int32_t dims[6]) {
  int32_t *here = *(int32_t *const *)args[0], *met = *(int32_t *const *)args[2];
  const int32_t *there = *(const int32_t *const *)args[1];
  (void)dims;
  __atomic_store_n(here, 1, __ATOMIC_SEQ_CST);
  *met = 0;
  for (int32_t i = *(const int32_t *)args[3] * 10; i > 0 && !*met; i--) {
    *met = __atomic_load_n(there, __ATOMIC_SEQ_CST);
    if (!*met) rest(100);
  }
  if (!*met) __atomic_store_n(here, 0, __ATOMIC_SEQ_CST);
}

// One turn of a loop: x becomes its square, and there is one turn less to go.
void square(void *const *args, const int32_t dims[6]) {
  (void)dims;
  float *x = *(float *const *)args[0];
  uint32_t *turns = *(uint32_t *const *)args[1];
  *x *= *x;
  --*turns;
}

// A value and one from memory.
void total(void *const *args, const int32_t dims[6]) {
  (void)dims;
  **(int32_t *const *)args[0] = *(const int32_t *)args[1] + **(const int32_t *const *)args[2];
}

// How many bytes each parameter takes: a GPU's driver reads that from the code.
const int32_t add_params[] = {8, 8, 8, 4, -1};
const int32_t scaled_params[] = {8, 8, 8, 4, 4, -1};
const int32_t fill_params[] = {8, 4, 4, -1};
const int32_t inc_params[] = {8, 4, 4, -1};
const int32_t dims_params[] = {8, -1};
const int32_t square_params[] = {8, 8, -1};
const int32_t total_params[] = {8, 4, 8, -1};

// A plain C function: its arguments are its arguments.
void plain(double *out, float a, int8_t b, const float *x, double c, uint8_t d, int64_t e, float f,
           bool g, double h, float i, float j, double k) {
  const double values[13] = {0, a, b, x[0], c, d, (double)e, f, g, h, i, j, k};
  memcpy(out, values, sizeof values);
}

#ifdef __cplusplus
}
#endif
