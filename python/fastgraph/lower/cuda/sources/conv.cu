// Convolutions, as products whose second operand is gathered from the image. A block computes B
// channels by B positions of all images, a thread 4 x 4 of them. Stands after matmul.cuh, windows.cuh.
template <class T, int B, int BK, int K0, int K1, int K2, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(B *B / 16)
    conv(T *y, const T *x, const T *w, const T *bias, const T *residual, i32 images, i32 groups,
         i32 outs, i32 ins, Windows windows) {
  typedef compute_t<T> A;
  constexpr int SIDE = B / 4, THREADS = SIDE * SIDE, EACH = B * BK / THREADS, TAPS = K0 * K1 * K2;
  static_assert(THREADS % B == 0 && B * BK % THREADS == 0, "all threads copy as much");
  __shared__ A x_tile[BK][B + 1], w_tile[BK][B + 1];

  const int group = blockIdx.z, m0 = blockIdx.y * B, k = ins * TAPS;
  const i64 count = count_of(windows), elements = elements_of(windows);
  const i64 n0 = (i64)blockIdx.x * B, n = images * count;
  // Of x a thread gathers elements of one position.
  const int mine = threadIdx.x % B;
  const bool some = n0 + mine < n;
  const i64 position = some ? n0 + mine : 0;
  const Start start = start_of(windows, position % count);
  const T *image = x + (position / count * groups + group) * ins * elements;
  w += (i64)group * outs * k;
  fg_trigger();
  fg_wait();

  const int tm = threadIdx.x / SIDE, tn = threadIdx.x % SIDE;
  A sums[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += BK) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int piece = i * THREADS + threadIdx.x;
      const int w_k = piece % BK, w_m = piece / BK, x_k = piece / B, at = k0 + x_k;
      A one = {}, other = {};
      if (k0 + w_k < k && m0 + w_m < outs) other = widen(w[(i64)(m0 + w_m) * k + k0 + w_k]);
      if (some && at < k) {
        const int tap = at % TAPS;
        const i64 e = element_of(windows, start, tap / (K1 * K2), tap / K2 % K1, tap % K2);
        if (e >= 0) one = widen(image[at / TAPS * elements + e]);
      }
      x_tile[x_k][mine] = one;
      w_tile[w_k][w_m] = other;
    }
    __syncthreads();
#pragma unroll
    for (int at = 0; at < BK; at++) {
      A a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = w_tile[at][tm + i * SIDE], b[i] = x_tile[at][tn + i * SIDE];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += a[i] * b[j];
    }
  }

  const Epilogue<T, BIAS, ACT, RESIDUAL> epilogue = {y, bias, residual};
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const i64 column = n0 + tn + j * SIDE;
    if (column >= n) continue;
    const i64 first = (column / count * groups + group) * outs, o = column % count;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = m0 + tm + i * SIDE;
      if (row < outs) epilogue.put_one((first + row) * count + o, group * outs + row, sums[i][j]);
    }
  }
}
