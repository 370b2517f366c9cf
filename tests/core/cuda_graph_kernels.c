// Kernels for tests of driver graphs, as the fake driver takes them: see tests/fake_cuda.
#include <stdint.h>

#define KERNEL(name, ...)                                                                          \
  __attribute__((visibility("default"))) const int32_t name##_params[] = {__VA_ARGS__ - 1};        \
  __attribute__((visibility("default"))) void name(void *const *args, const int32_t dims[6])

// Every element of a float buffer plus a number.
KERNEL(add, 8, 4, 4, ) {
  float *buffer = *(float **)args[0];
  (void)dims;
  for (int32_t i = 0; i < *(int32_t *)args[2]; ++i) buffer[i] += *(float *)args[1];
}

// Every element times a number.
KERNEL(scale, 8, 4, 4, ) {
  float *buffer = *(float **)args[0];
  (void)dims;
  for (int32_t i = 0; i < *(int32_t *)args[2]; ++i) buffer[i] *= *(float *)args[1];
}

KERNEL(count_down, 8, ) {
  (void)dims;
  --**(uint32_t **)args[0];
}

// The place of a launch among others, in the order of their running: log[++log[0]] = number.
KERNEL(note, 8, 4, ) {
  int32_t *log = *(int32_t **)args[0];
  (void)dims;
  log[++log[0]] = *(int32_t *)args[1];
}

KERNEL(nothing, ) {
  (void)args;
  (void)dims;
}
