// Twins of what fastgraph does, without fastgraph, and the arithmetic peak of one core.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Not inlined, and called through a pointer that the compiler cannot see through: a call per turn.
__attribute__((noinline)) void add16(float *y, const float *x) {
  for (int i = 0; i < 16; i++) y[i] = x[i] + x[i];
}

// Nanoseconds of one add of 16 floats.
double time_add(float *y, const float *x, int64_t n) {
  void (*volatile f)(float *, const float *) = add16;
  double start = now();
  for (int64_t i = 0; i < n; i++) f(y, x);
  return (now() - start) / (double)n;
}

// A native kernel that does nothing.
void nothing(void *const *args, const int32_t dims[6]) {
  (void)args;
  (void)dims;
}

// A native kernel that counts its calls, so that a replay can be checked.
void count(void *const *args, const int32_t dims[6]) {
  (void)dims;
  __atomic_add_fetch(*(int32_t *const *)args[0], 1, __ATOMIC_RELAXED);
}

// A native kernel that leaves the value that it was given.
void keep(void *const *args, const int32_t dims[6]) {
  (void)dims;
  **(int32_t *const *)args[0] = *(const int32_t *)args[1];
}

// Nanoseconds of `nodes` calls of `nothing`, one after another.
double time_calls(int32_t nodes, int64_t n) {
  void (*volatile f)(void *const *, const int32_t *) = nothing;
  int32_t dims[6] = {1, 1, 1, 1, 1, 1};
  double start = now();
  for (int64_t i = 0; i < n; i++)
    for (int32_t node = 0; node < nodes; node++) f(0, dims);
  return (now() - start) / (double)n;
}

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif
typedef float vec __attribute__((vector_size(WIDTH * 4)));

// Floating-point operations a nanosecond of independent multiply-adds on twelve registers, enough
// to hide the latency of two units. `sink` keeps the compiler from leaving them out.
double fma_peak(float *sink, int64_t n) {
  vec a = {0}, b = {0};
  for (int i = 0; i < WIDTH; i++) a[i] = 0.999f, b[i] = 0.001f * sink[0];
  vec c0 = b, c1 = b + 1, c2 = b + 2, c3 = b + 3, c4 = b + 4, c5 = b + 5;
  vec c6 = b + 6, c7 = b + 7, c8 = b + 8, c9 = b + 9, c10 = b + 10, c11 = b + 11;
  double start = now();
  for (int64_t i = 0; i < n; i++) {
    c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b;
    c4 = c4 * a + b, c5 = c5 * a + b, c6 = c6 * a + b, c7 = c7 * a + b;
    c8 = c8 * a + b, c9 = c9 * a + b, c10 = c10 * a + b, c11 = c11 * a + b;
  }
  double taken = now() - start;
  vec sum = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  sink[0] = sum[0];
  return (double)n * 12 * WIDTH * 2 / taken;
}
