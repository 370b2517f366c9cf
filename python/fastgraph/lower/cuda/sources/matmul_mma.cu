// Products of f16 and bf16 by the tensor cores, accumulated in f32.
//
// A block computes BM x BN of y, a warp BM / WARPS_M x BN / WARPS_N of that, with STAGES - 1 tiles of
// BK along K under way. XT: x lies as [K, M]. WT: w lies as [N, K]. X_BYTES, W_BYTES: how much of each
// is copied at once, as far as its rows are aligned. PARTIAL: the block has a part of K, and writes
// its sums to `partial`, for matmul_combine.
template <class T, int BM, int BN, int BK, int WARPS_M, int WARPS_N, int STAGES, bool XT, bool WT,
          int X_BYTES, int W_BYTES, bool PARTIAL, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(WARPS_M * WARPS_N * 32)
    matmul_mma(T *y, const T *x, const T *w, const T *bias, const T *residual, f32 *partial, i32 m,
               i32 n, i32 k, i32 k_part, i64 matrices, i32 w_constant, i32 wide, Batch batch) {
  constexpr int THREADS = WARPS_M * WARPS_N * 32, WM = BM / WARPS_M, WN = BN / WARPS_N;
  constexpr int X_CHUNKS = (XT ? BM : BK) / 8, W_CHUNKS = (WT ? BK : BN) / 8;
  constexpr int X_TILE = BM * BK * 2, W_TILE = BK * BN * 2, STAGE = X_TILE + W_TILE;
  static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0, "whole products");
  FG_DYNAMIC_SHARED(shared);

  // Tiles of eight rows of tiles are next to each other in time, so that w is found in the cache.
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
    unsigned char *to = shared + step % STAGES * STAGE;
    const int at = k0 + step * BK, left = k0 + depth - at;
    if constexpr (XT)
      copy_tile<THREADS, BK, BM, X_BYTES>(to, x + (i64)at * m + m0, m, left, m - m0);
    else
      copy_tile<THREADS, BM, BK, X_BYTES>(to, x + (i64)m0 * k + at, k, m - m0, left);
  };
  const auto copy_w = [&](int step) {
    unsigned char *to = shared + step % STAGES * STAGE + X_TILE;
    const int at = k0 + step * BK, left = k0 + depth - at;
    if constexpr (WT)
      copy_tile<THREADS, BN, BK, W_BYTES>(to, w + (i64)n0 * k + at, k, n - n0, left);
    else
      copy_tile<THREADS, BK, BN, W_BYTES>(to, w + (i64)at * n + n0, n, left, n - n0);
  };

  fg_trigger();
  // What nobody writes during a run need not wait for those before; it counts as of the first group.
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

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wm = warp % WARPS_M * WM, wn = warp / WARPS_M * WN;
  f32 sums[WM / 16][WN / 8][4] = {};
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    // All are done with the tile before: its place is free.
    if (step + STAGES - 1 < steps) {
      copy_x(step + STAGES - 1);
      copy_w(step + STAGES - 1);
    }
    cp_async_commit();
    const unsigned char *x_tile = shared + step % STAGES * STAGE, *w_tile = x_tile + X_TILE;
    u32 a[2][WM / 16][4], b[2][WN / 8][2];
    const auto fetch = [&](int at) {
      const int to = at / 16 % 2;
#pragma unroll
      for (int i = 0; i < WM / 16; i++) load_a<X_CHUNKS, XT>(a[to][i], x_tile, wm + i * 16, at);
#pragma unroll
      for (int j = 0; j < WN / 16; j++)
        load_b<W_CHUNKS, WT>(b[to][2 * j], b[to][2 * j + 1], w_tile, at, wn + j * 16);
    };
    fetch(0);
#pragma unroll
    for (int at = 0; at < BK; at += 16) {
      // The next operands are on their way while these are multiplied.
      if (at + 16 < BK) fetch(at + 16);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++)
          mma_16816<T>(sums[i][j], a[at / 16 % 2][i], b[at / 16 % 2][j]);
    }
  }
  cp_async_wait<0>();
  __syncthreads();

  // Through shared memory, so that rows are written in runs.
  constexpr int PITCH = BN + 8;
  f32 *staged = (f32 *)shared;
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++) {
      f32 *place = staged + (wm + i * 16 + lane / 4) * PITCH + wn + j * 8 + lane % 4 * 2;
      store(place, Vec<f32, 2>{{sums[i][j][0], sums[i][j][1]}});
      store(place + 8 * PITCH, Vec<f32, 2>{{sums[i][j][2], sums[i][j][3]}});
    }
  __syncthreads();
  put_tile<THREADS, BM, BN, PITCH, PARTIAL>(Epilogue<T, BIAS, ACT, RESIDUAL>{y, bias, residual},
                                            partial + (i64)blockIdx.y * matrices * m * n, staged,
                                            m0, n0, m, n, matrix * m * n, wide);
}
