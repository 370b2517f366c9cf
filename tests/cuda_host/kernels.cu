// What the harness itself is tested with: each of the words that kernels use, and each mistake.

__global__ void convert_f16(const f16 *x, float *wide, f16 *back, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    wide[i] = widen(x[i]);
    back[i] = narrow<f16>(wide[i]);
  }
}
template <class T>
__global__ void round_to(const float *x, T *y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = narrow<T>(x[i]);
}
__global__ void double_to_half(const double *x, f16 *y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = f64_to_f16(x[i]);
}

template <class T>
__global__ void sums(const T *x, T *y, int n) {
  __shared__ compute_t<T> shared[8];
  fg_wait();
  compute_t<T> total = 0;
  for (int i = threadIdx.x; i < n; i += 256) total += widen(x[i]);
  total = block_reduce<256>(total, Add(), shared);
  if (threadIdx.x == 0) y[blockIdx.x] = narrow<T>(total);
}

// a of 16x16 and b of 16x8 by way of shared memory.
template <class T>
__global__ void product(const T *a, const T *b, float *d) {
  __shared__ __align__(16) T left[16][24], right[16][8];
  const int lane = threadIdx.x;
  for (int i = lane; i < 32; i += 32) cp_async<16>(&left[i / 2][i % 2 * 8], a + i * 8);
  if (lane < 16) cp_async<16>(right[lane], b + lane * 8);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  u32 ra[4], rb[2];
  ldmatrix<4>(ra, &left[lane % 16][lane / 16 * 8]);
  ldmatrix<2, true>(rb, right[lane % 16]);
  float sum[4] = {1, 1, 1, 1};
  mma_16816<T>(sum, ra, rb);
  for (int i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}
__global__ void product_tf32(const float *a, const float *b, float *d) {
  const int g = threadIdx.x / 4, p = threadIdx.x % 4;
  const u32 ra[4] = {f32_to_tf32(a[g * 8 + p]), f32_to_tf32(a[g * 8 + 64 + p]),
                     f32_to_tf32(a[g * 8 + p + 4]), f32_to_tf32(a[g * 8 + 64 + p + 4])};
  const u32 rb[2] = {f32_to_tf32(b[p * 8 + g]), f32_to_tf32(b[p * 8 + 32 + g])};
  float sum[4] = {0, 0, 0, 0};
  mma_tf32(sum, ra, rb);
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + p * 2 + i % 2] = sum[i];
}

// Each block gives its number to the next one of its cluster. BEGUN: it waits until that has begun.
template <bool BEGUN>
__global__ void pass_on(float *y, int pieces) {
  FG_DYNAMIC_SHARED(bytes);
  float *pieces_here = (float *)bytes;
  u64 *barrier = (u64 *)(bytes + 512);
  const u32 rank = blockIdx.x % 4, lane = threadIdx.x;
  if (lane == 0) await_pieces(barrier, (u32)pieces);
  cluster_arrive();
  if (BEGUN) cluster_wait();
  const float piece[4] = {(float)blockIdx.x, (float)lane, 0, 0};
  send_piece(piece, pieces_here + 4 * lane, barrier, (rank + 1) % 4);
  wait_for_pieces(barrier);
  for (int i = 0; i < 2; i++) y[(blockIdx.x * 32 + lane) * 2 + i] = pieces_here[4 * lane + i];
}

__global__ void reverse(const int *x, int *y) {
  FG_DYNAMIC_SHARED(bytes);
  int *shared = (int *)bytes;
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
__global__ void reverse_without_barrier(const int *x, int *y) {
  __shared__ int shared[256];
  shared[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
__global__ void lanes(int *y) {
  const int lane = threadIdx.x;
  y[lane] = __shfl_down_sync(0xffffffffu, lane, 1);
  y[32 + lane] = __shfl_up_sync(0xffffffffu, lane, 2);
  y[64 + lane] = __shfl_xor_sync(0xffffffffu, lane, 5);
  y[96 + lane] = __shfl_sync(0xffffffffu, lane, 3, 8);
  y[128 + lane] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
  if (lane < 16) y[160 + lane] = warp_reduce<16>(lane, Maximum(), 0xffffu);
}

__global__ void some_at_a_barrier(int *y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1;
  if (threadIdx.x >= 32) named_barrier(1, 64);
}
__global__ void different_meetings() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __ballot_sync(0xffffffffu, 1);
}
__global__ void ended_lane() {
  if (threadIdx.x == 7) return;
  __syncwarp();
}
__global__ void waits_sometimes() {
  if (threadIdx.x != 5) fg_wait();
}
__global__ void misaligned(const float *x, float *y) { store(y, load<4>(x + 1)); }
__global__ void copies_unwaited(const int *x, int *y) {
  __shared__ __align__(16) int shared[4];
  cp_async<16>(shared, x);
  cp_async_commit();
  y[0] = shared[0];
  cp_async_wait<0>();
}
__global__ void writes_at(float *y, int i) { y[i] = 3; }
__global__ void faults(u64 *fault, u64 node) {
  if (threadIdx.x % 2) fg_fault(fault, node + threadIdx.x);
}
__global__ void reads_before(const int *x, int *y) {
  int mine = x[threadIdx.x];
  fg_wait();
  y[threadIdx.x] = mine;
}
