// Products of f32 in f32, without tensor cores: a thread computes TM x TN sums of a block's BM x BN.
//
// Of an operand that lies along K a thread reads four elements of each of its rows at a time, of one
// that lies across K four rows of one k; either way eight lanes read different banks. Rows along K
// are PAD longer for that. XT: x lies as [K, M]. WT: w lies as [N, K]. X_BYTES, W_BYTES (16 or 4) are
// copied at once. PARTIAL as in matmul_mma.

// Of EXTENT rows or columns, over THREADS threads: which is number i of thread t.
template <bool ALONG_K, int EXTENT, int THREADS>
FG_DEVICE int place_of(int t, int i) {
  if constexpr (ALONG_K) return t + i * THREADS;
  return i / 4 * (THREADS * 4) + t * 4 + i % 4;
}

template <int BM, int BN, int BK, int TM, int TN, int STAGES, int BLOCKS, bool XT, bool WT,
          int X_BYTES, int W_BYTES, bool PARTIAL, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(BM / TM * (BN / TN), BLOCKS)
    matmul_simt(f32 *y, const f32 *x, const f32 *w, const f32 *bias, const f32 *residual,
                f32 *partial, i32 m, i32 n, i32 k, i32 k_part, i64 matrices, i32 w_constant,
                i32 wide, Batch batch) {
  constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN, THREADS = THREADS_M * THREADS_N;
  constexpr int PAD = 4, X_PITCH = XT ? BM : BK + PAD, W_PITCH = WT ? BK + PAD : BN;
  constexpr int X_TILE = (XT ? BK : BM) * X_PITCH, W_TILE = (WT ? BN : BK) * W_PITCH;
  constexpr int STAGE = X_TILE + W_TILE;
  static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0 && THREADS_M % 4 == 0, "groups of four");
  static_assert(THREADS_N % 8 == 0 && THREADS % 32 == 0, "warps of 4 by 8");
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

  // A warp is 4 threads along M by 8 along N.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tm = warp % (THREADS_M / 4) * 4 + lane / 8;
  const int tn = warp / (THREADS_M / 4) * 8 + lane % 8;
  f32 sums[TM][TN] = {};
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < steps) {
      copy_x(step + STAGES - 1);
      copy_w(step + STAGES - 1);
    }
    cp_async_commit();
    const f32 *x_tile = shared + step % STAGES * STAGE, *w_tile = x_tile + X_TILE;
#pragma unroll
    for (int at = 0; at < BK; at += 4) {
      f32 a[TM][4], b[TN][4];  // by k within the four
      if constexpr (!XT) {
#pragma unroll
        for (int i = 0; i < TM; i++) {
          const auto four = load<4>(x_tile + place_of<true, BM, THREADS_M>(tm, i) * X_PITCH + at);
#pragma unroll
          for (int q = 0; q < 4; q++) a[i][q] = four.v[q];
        }
      }
      if constexpr (WT) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
          const auto four = load<4>(w_tile + place_of<true, BN, THREADS_N>(tn, j) * W_PITCH + at);
#pragma unroll
          for (int q = 0; q < 4; q++) b[j][q] = four.v[q];
        }
      }
#pragma unroll
      for (int q = 0; q < 4; q++) {
        if constexpr (XT) {
#pragma unroll
          for (int i = 0; i < TM; i += 4) {
            const auto four =
                load<4>(x_tile + (at + q) * X_PITCH + place_of<false, BM, THREADS_M>(tm, i));
#pragma unroll
            for (int r = 0; r < 4; r++) a[i + r][q] = four.v[r];
          }
        }
        if constexpr (!WT) {
#pragma unroll
          for (int j = 0; j < TN; j += 4) {
            const auto four =
                load<4>(w_tile + (at + q) * W_PITCH + place_of<false, BN, THREADS_N>(tn, j));
#pragma unroll
            for (int r = 0; r < 4; r++) b[j + r][q] = four.v[r];
          }
        }
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) sums[i][j] += a[i][q] * b[j][q];
      }
    }
  }
  cp_async_wait<0>();
  __syncthreads();

  // Through shared memory, so that rows are written in runs.
  constexpr int PITCH = BN + 4;
#pragma unroll
  for (int i = 0; i < TM; i++) {
    f32 *row = shared + place_of<!XT, BM, THREADS_M>(tm, i) * PITCH;
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      if constexpr (!WT) {
        store(row + place_of<false, BN, THREADS_N>(tn, j),
              Vec<f32, 4>{{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]}});
      } else {
#pragma unroll
        for (int q = 0; q < 4; q++) row[place_of<true, BN, THREADS_N>(tn, j + q)] = sums[i][j + q];
      }
    }
  }
  __syncthreads();
  put_tile<THREADS, BM, BN, PITCH, PARTIAL>(Epilogue<f32, BIAS, ACT, RESIDUAL>{y, bias, residual},
                                            partial + (i64)blockIdx.y * matrices * m * n, shared,
                                            m0, n0, m, n, matrix * m * n, wide);
}
