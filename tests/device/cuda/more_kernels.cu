// For a GPU: those of tests/fake_cuda/kernels.c that the tests of the cuda device launch.
extern "C" {

__constant__ int table[4] = {1, 2, 3, 4};

__global__ void add_table(float *x) { x[threadIdx.x] += table[threadIdx.x % 4]; }

__global__ void linger(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < ns);
}

__global__ void take_number(unsigned *counter, unsigned *slot) { *slot = (*counter)++; }

// Waits until so many are there, or for its time; the slot tells how many there were.
__global__ void gather_up(unsigned *counter, unsigned *slot, unsigned need, unsigned long long ns) {
  unsigned long long start, now;
  unsigned there;
  atomicAdd(counter, 1u);
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    there = atomicAdd(counter, 0u);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (there < need && now - start < ns);
  *slot = there;
}

__global__ void wild(float *x) { x[1ull << 44] = 1.0f; }

}  // extern "C"
