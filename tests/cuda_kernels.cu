// The kernels of native_kernels.c for a GPU: one element a thread.
extern "C" {

__global__ void add(float *out, const float *a, const float *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

__global__ void scaled(float *out, const float *a, const float *b, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (a[i] + b[i]) * s;
}

__global__ void fill(float *out, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

__global__ void inc(float *buf, float delta, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) buf[i] += delta;
}

__global__ void dims(int *out) {
  if (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z) return;
  out[0] = gridDim.x;
  out[1] = gridDim.y;
  out[2] = gridDim.z;
  out[3] = blockDim.x;
  out[4] = blockDim.y;
  out[5] = blockDim.z;
}

__global__ void square(float *x, unsigned *turns) {
  *x *= *x;
  --*turns;
}

__global__ void total(int *out, int value, const int *more) { *out = value + *more; }

}  // extern "C"
