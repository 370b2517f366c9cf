// Kernels that stand for what a driver's graph has no node for.

// Declared by hand: the runtime's own declaration needs headers that may not be there.
typedef unsigned long long cudaGraphConditionalHandle;
extern "C" __device__ void cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                                                   unsigned value);

// One thread: what the conditional node behind it reads.
extern "C" __global__ void fg_set_condition(cudaGraphConditionalHandle handle,
                                            const unsigned *value) {
  cudaGraphSetConditional(handle, *value);
}

// Any grid: `count` elements of 8 bytes, for patterns that a memset node cannot write.
extern "C" __global__ void fg_fill8(unsigned long long *dst, unsigned long long value,
                                    unsigned long long count) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += step) {
    dst[i] = value;
  }
}
