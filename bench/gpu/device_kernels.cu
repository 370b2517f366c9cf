// Kernels of the probes of the device, compiled by the package. Counters are integers, so that
// sums are exact however many launches there were.
extern "C" __global__ void inc(int *p) { p[threadIdx.x] += 1; }

extern "C" __global__ void inc_early(int *p) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  p[threadIdx.x] += 1;
}

extern "C" __global__ void add_value(int *p, int v) { p[threadIdx.x] += v; }
extern "C" __global__ void add_memory(int *p, const int *v) { p[threadIdx.x] += *v; }

extern "C" __global__ void add(float *out, const float *a, const float *b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

extern "C" __global__ void sum8(float *out, const float *a, const float *b, const float *c,
                                const float *d, const float *e, const float *f, const float *g,
                                const float *h, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i];
}

// Keeps a stream busy for a known time; bounded, so that nothing can hang on it.
extern "C" __global__ void linger(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < ns && now - start < 1000000000ull);
}
