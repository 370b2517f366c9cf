// Products of every other dtype: f64 and integers. A block computes B x B, a thread 4 x 4 of it.
template <class T, int B, int BK, bool XT, bool WT, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(B *B / 16)
    matmul_plain(T *y, const T *x, const T *w, const T *bias, const T *residual, i32 m, i32 n,
                 i32 k, Batch batch) {
  typedef accumulator_t<T> A;
  constexpr int SIDE = B / 4, THREADS = SIDE * SIDE, EACH = B * BK / THREADS;
  static_assert(B * BK % THREADS == 0, "all threads copy as much");
  __shared__ A x_tile[BK][B + 1], w_tile[BK][B + 1];

  const int down = (m + B - 1) / B, across = (n + B - 1) / B;
  const i64 matrix = blockIdx.x / ((i64)down * across);
  const int tile = (int)(blockIdx.x % ((i64)down * across));
  const int m0 = tile / across * B, n0 = tile % across * B;
  i64 x_begin, w_begin;
  find_matrices(batch, matrix, x_begin, w_begin);
  x += x_begin, w += w_begin;
  fg_trigger();
  fg_wait();

  const int tm = threadIdx.x / SIDE, tn = threadIdx.x % SIDE;
  A sums[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += BK) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      // Neighbouring threads read neighbouring elements, however the operand lies.
      const int piece = i * THREADS + threadIdx.x;
      const int x_k = XT ? piece / B : piece % BK, x_m = XT ? piece % B : piece / BK;
      const int w_k = WT ? piece % BK : piece / B, w_n = WT ? piece / BK : piece % B;
      const i64 x_at = XT ? (i64)(k0 + x_k) * m + m0 + x_m : (i64)(m0 + x_m) * k + k0 + x_k;
      const i64 w_at = WT ? (i64)(n0 + w_n) * k + k0 + w_k : (i64)(k0 + w_k) * n + n0 + w_n;
      x_tile[x_k][x_m] = k0 + x_k < k && m0 + x_m < m ? Accumulator<T>::widen_one(x[x_at]) : A{};
      w_tile[w_k][w_n] = k0 + w_k < k && n0 + w_n < n ? Accumulator<T>::widen_one(w[w_at]) : A{};
    }
    __syncthreads();
#pragma unroll
    for (int at = 0; at < BK; at++) {
      A a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        a[i] = x_tile[at][tm + i * SIDE], b[i] = w_tile[at][tn + i * SIDE];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += a[i] * b[j];
    }
  }

  const Epilogue<T, BIAS, ACT, RESIDUAL> epilogue = {y, bias, residual};
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = m0 + tm + i * SIDE, column = n0 + tn + j * SIDE;
      if (row < m && column < n)
        epilogue.put_one((matrix * m + row) * n + column, column, sums[i][j]);
    }
}
