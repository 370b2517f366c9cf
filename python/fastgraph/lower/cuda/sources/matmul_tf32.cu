// Products of f32 by the tensor cores, which see ten bits of each fraction; accumulated in f32.
//
// Arguments as of matmul_mma. Rows along K are four elements longer in shared memory, rows across it
// eight: then the lanes of a warp read different banks.
template <int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, bool XT, bool WT,
          int X_BYTES, int W_BYTES, bool PARTIAL, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(WARPS_M * WARPS_N * 32)
    matmul_tf32(f32 *y, const f32 *x, const f32 *w, const f32 *bias, const f32 *residual,
                f32 *partial, i32 m, i32 n, i32 k, i32 k_part, i64 matrices, i32 w_constant,
                i32 wide, Batch batch) {
  constexpr int THREADS = WARPS_M * WARPS_N * 32, WM = BM / WARPS_M, WN = BN / WARPS_N;
  constexpr int X_PITCH = XT ? BM + 8 : BK + 4, W_PITCH = WT ? BK + 4 : BN + 8;
  constexpr int X_TILE = (XT ? BK : BM) * X_PITCH, W_TILE = (WT ? BN : BK) * W_PITCH;
  constexpr int STAGE = X_TILE + W_TILE;
  static_assert(WM % 16 == 0 && WN % 8 == 0 && BK % 8 == 0, "whole products");
  FG_DYNAMIC_SHARED(bytes);
  f32 *shared = (f32 *)bytes;

  const int down = (m + BM - 1) / BM, across = (n + BN - 1) / BN;
  const i64 matrix = blockIdx.x / ((i64)down * across);
  const int tile = (int)(blockIdx.x % ((i64)down * across));
  const int first = tile / (8 * across) * 8, rows = min(8, down - first);
  const int m0 = (first + tile % (8 * across) % rows) * BM, n0 = tile % (8 * across) / rows * BN;
  const int k0 = blockIdx.y * k_part, depth = min(k - k0, k_part), steps = (depth + BK - 1) / BK;
  i64 x_begin, w_begin;
  find_matrices(batch, matrix, x_begin, w_begin);
  x += x_begin, w += w_begin;

  const auto copy_x = [&](int step) {
    f32 *to = shared + step % STAGES * STAGE;
    const int at = k0 + step * BK, left = k0 + depth - at;
    if constexpr (XT)
      copy_rows<THREADS, BK, BM, X_PITCH, X_BYTES>(to, x + (i64)at * m + m0, m, left, m - m0);
    else
      copy_rows<THREADS, BM, BK, X_PITCH, X_BYTES>(to, x + (i64)m0 * k + at, k, m - m0, left);
  };
  const auto copy_w = [&](int step) {
    f32 *to = shared + step % STAGES * STAGE + X_TILE;
    const int at = k0 + step * BK, left = k0 + depth - at;
    if constexpr (WT)
      copy_rows<THREADS, BN, BK, W_PITCH, W_BYTES>(to, w + (i64)n0 * k + at, k, n - n0, left);
    else
      copy_rows<THREADS, BK, BN, W_PITCH, W_BYTES>(to, w + (i64)at * n + n0, n, left, n - n0);
  };

  fg_trigger();
  if (w_constant)
    for (int s = 0; s < STAGES - 1; s++)
      if (s < steps) copy_w(s);
  fg_wait();
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) {
      if (!w_constant) copy_w(s);
      copy_x(s);
    }
    cp_async_commit();
  }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, in = lane % 4;
  const int wm = warp % WARPS_M * WM, wn = warp / WARPS_M * WN;
  f32 sums[WM / 16][WN / 8][4] = {};
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) {
      copy_x(step + STAGES - 1);
      copy_w(step + STAGES - 1);
    }
    cp_async_commit();
    const f32 *x_tile = shared + step % STAGES * STAGE, *w_tile = x_tile + X_TILE;
    const auto x_at = [&](int row, int at) {
      return f32_to_tf32(x_tile[XT ? at * X_PITCH + row : row * X_PITCH + at]);
    };
    const auto w_at = [&](int at, int column) {
      return f32_to_tf32(w_tile[WT ? column * W_PITCH + at : at * W_PITCH + column]);
    };
#pragma unroll
    for (int at = 0; at < BK; at += 8) {
      u32 a[WM / 16][4], b[WN / 8][2];
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int q = 0; q < 4; q++)
          a[i][q] = x_at(wm + i * 16 + group + q % 2 * 8, at + in + q / 2 * 4);
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int q = 0; q < 2; q++) b[j][q] = w_at(at + in + q * 4, wn + j * 8 + group);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++) mma_tf32(sums[i][j], a[i], b[j]);
    }
  }
  cp_async_wait<0>();
  __syncthreads();

  constexpr int PITCH = BN + 8;
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++) {
      f32 *place = shared + (wm + i * 16 + group) * PITCH + wn + j * 8 + in * 2;
      store(place, Vec<f32, 2>{{sums[i][j][0], sums[i][j][1]}});
      store(place + 8 * PITCH, Vec<f32, 2>{{sums[i][j][2], sums[i][j][3]}});
    }
  __syncthreads();
  put_tile<THREADS, BM, BN, PITCH, PARTIAL>(Epilogue<f32, BIAS, ACT, RESIDUAL>{y, bias, residual},
                                            partial + (i64)blockIdx.y * matrices * m * n, shared,
                                            m0, n0, m, n, matrix * m * n, wide);
}
