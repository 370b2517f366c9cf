/* The kernels of device_kernels.cu for the driver of the tests, which runs them on the host: for
   `--smoke`. Sizes of the parameters stand beside each, -1 ends them; dims are grid and block. */
#include <stdint.h>
#include <time.h>

#define PARAMS(NAME, ...) const int32_t NAME##_params[] = {__VA_ARGS__, -1}
#define ARG(I, TYPE) (*(TYPE *)args[I])
#define THREADS(I) for (int I = 0; I < dims[3]; ++I)
#define KERNEL(NAME) void NAME(void *const *args, const int32_t dims[6])

PARAMS(inc, 8);
KERNEL(inc) { THREADS(i) ARG(0, int *)[i] += 1; }
PARAMS(inc_early, 8);
KERNEL(inc_early) { THREADS(i) ARG(0, int *)[i] += 1; }
PARAMS(add_value, 8, 4);
KERNEL(add_value) { THREADS(i) ARG(0, int *)[i] += ARG(1, int); }
PARAMS(add_memory, 8, 8);
KERNEL(add_memory) { THREADS(i) ARG(0, int *)[i] += *ARG(1, const int *); }

PARAMS(add, 8, 8, 8, 4);
KERNEL(add) {
  (void)dims;
  for (int i = 0; i < ARG(3, int); ++i)
    ARG(0, float *)[i] = ARG(1, const float *)[i] + ARG(2, const float *)[i];
}

PARAMS(sum8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4);
KERNEL(sum8) {
  (void)dims;
  for (int i = 0; i < ARG(9, int); ++i) {
    float sum = 0;
    for (int k = 1; k < 9; ++k) sum += ARG(k, const float *)[i];
    ARG(0, float *)[i] = sum;
  }
}

PARAMS(linger, 8);
KERNEL(linger) {
  (void)dims;
  struct timespec length = {0, (long)(ARG(0, uint64_t) % 1000000000u)};
  nanosleep(&length, 0);
}
