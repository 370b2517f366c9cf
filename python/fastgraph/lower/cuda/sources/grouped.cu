// Products whose rows choose their matrix: rows are brought into the order of their matrices, and
// tiles of rows with one matrix are multiplied by it.

// `groups` gets where each of EXPERTS experts' rows begin, EXPERTS + 1 numbers, and then the ROWS rows
// in that order; last those without an expert, which are a fault. A warp does an expert. `tap`, if
// there is one, counts from its third word on for each expert the calls that gave it rows, and then
// for each its rows.
template <class I, int THREADS, i64 ROWS, i64 EXPERTS>
__global__ __launch_bounds__(THREADS) void group_rows(i32 *groups, const I *ids, u64 *tap,
                                                      u64 *fault, u64 node, i64 given_rows) {
  const i64 rows = known<ROWS>(given_rows);
  fg_trigger();
  const i64 expert = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  fg_wait();
  if (expert > EXPERTS) return;
  i32 start = 0;
  for (i64 base = 0; base < rows; base += 32) {
    const i64 i = base + lane, id = i < rows ? (i64)ids[i] : -1;
    start += __popc(__ballot_sync(0xffffffffu, id >= 0 && id < EXPERTS && id < expert));
  }
  if (lane == 0) groups[expert] = start;
  const i32 first = start;
  for (i64 base = 0; base < rows; base += 32) {
    const i64 i = base + lane, id = i < rows ? (i64)ids[i] : 0;
    const bool lost = id < 0 || id >= EXPERTS;
    const bool mine = i < rows && (expert == EXPERTS ? lost : id == expert);
    const u32 found = __ballot_sync(0xffffffffu, mine);
    if (mine) {
      groups[EXPERTS + 1 + start + __popc(found & ((1u << lane) - 1))] = (i32)i;
      if (lost) fg_fault(fault, node);
    }
    start += __popc(found);
  }
  if (tap != nullptr && lane == 0 && expert < EXPERTS && start > first) {
    atomicAdd(tap + 2 + expert, (u64)1);
    atomicAdd(tap + 2 + EXPERTS + expert, (u64)(start - first));
  }
}

// The expert of tile number `tile` and its rows, -1 beyond them, in `rows`; false where there is no
// such tile. Of BM rows each, all tiles of an expert follow each other.
template <int BM, i64 EXPERTS>
FG_DEVICE bool find_tile(i32 (&rows)[BM], i64 &expert, const i32 *groups, i64 tile) {
  __shared__ i64 found[2];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    i64 before = 0;
    if (lane == 0) found[0] = -1;
    __syncwarp();
    for (i64 base = 0; base < EXPERTS && before <= tile; base += 32) {
      const i64 e = base + lane;
      const i64 count = e < EXPERTS ? groups[e + 1] - groups[e] : 0;
      i64 tiles = (count + BM - 1) / BM, sum = tiles;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const i64 other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
      }
      const i64 first = before + sum - tiles;
      if (tile >= first && tile < first + tiles) {
        found[0] = e;
        found[1] = groups[e] + (tile - first) * BM;
      }
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  __syncthreads();
  expert = found[0];
  if (expert < 0) return false;
  const i64 end = groups[expert + 1];
  for (int i = threadIdx.x; i < BM; i += blockDim.x)
    rows[i] = found[1] + i < end ? groups[EXPERTS + 1 + found[1] + i] : -1;
  __syncthreads();
  return true;
}

// Zeros in columns `first` to `first` + BN of the rows that have no expert.
template <int BN, i64 EXPERTS, i64 N, class T>
FG_DEVICE void clear_lost(T *y, const i32 *groups, i64 first, i64 all_rows) {
  T zero;
  memset(&zero, 0, sizeof(T));
  for (i64 i = groups[EXPERTS]; i < all_rows; i++)
    for (i64 c = first + threadIdx.x; c < first + BN && c < N; c += blockDim.x)
      y[groups[EXPERTS + 1 + i] * N + c] = zero;
}

// The matrix of an expert: where the table says, if there is one.
template <class T>
FG_DEVICE const T *matrix_of(const T *w, const u64 *table, i64 expert, i64 size) {
  return table != nullptr ? (const T *)table[expert] : w + expert * size;
}

// Any float: 256 threads compute BM x 64 sums.
template <class T, int BM, i64 ROWS, i64 K, i64 N, i64 EXPERTS>
__global__ __launch_bounds__(256) void grouped_plain(T *y, const T *x, const T *w,
                                                     const i32 *groups, const u64 *table,
                                                     i64 given_rows) {
  typedef compute_t<T> C;
  constexpr int BN = 64, BK = 32, TM = BM / 16, THREADS = 256;
  __shared__ C x_tile[BK][BM + 1], w_tile[BK][BN];
  __shared__ i32 rows[BM];
  fg_trigger();
  fg_wait();
  const i64 n0 = (i64)blockIdx.y * BN;
  if (blockIdx.x == 0) clear_lost<BN, EXPERTS, N>(y, groups, n0, known<ROWS>(given_rows));
  i64 expert;
  if (!find_tile<BM, EXPERTS>(rows, expert, groups, blockIdx.x)) return;
  const T *matrix = matrix_of(w, table, expert, K * N);
  const int tm = threadIdx.x / 16, tn = threadIdx.x % 16;
  C sums[TM][4] = {};
  for (i64 k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
      const int k = i % BK, row = i / BK;
      x_tile[k][row] = rows[row] >= 0 && k0 + k < K ? widen(x[rows[row] * K + k0 + k]) : (C)0;
    }
    for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
      const int n = i % BN, k = i / BN;
      w_tile[k][n] = n0 + n < N && k0 + k < K ? widen(matrix[(k0 + k) * N + n0 + n]) : (C)0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; k++) {
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += x_tile[k][tm + i * 16] * w_tile[k][tn + j * 16];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 row = rows[tm + i * 16], column = n0 + tn + j * 16;
      if (row >= 0 && column < N) y[row * N + column] = narrow<T>(sums[i][j]);
    }
}

// f16 and bf16 by the tensor cores: four warps compute BM x 64 sums. Rows are multiples of 16 bytes.
template <class T, int BM, i64 ROWS, i64 K, i64 N, i64 EXPERTS>
__global__ __launch_bounds__(128) void grouped_mma(T *y, const T *x, const T *w, const i32 *groups,
                                                   const u64 *table, i64 given_rows) {
  constexpr int BN = 64, BK = 32, THREADS = 128, STAGES = 3, WARPS_M = BM / 32 < 1 ? 1 : BM / 32;
  constexpr int WM = BM / WARPS_M, WN = BN / (4 / WARPS_M), STEPS = (int)((K + BK - 1) / BK);
  constexpr int X_TILE = BM * BK * 2, STAGE = X_TILE + BK * BN * 2;
  static_assert(WM % 16 == 0 && WN % 16 == 0, "whole products");
  __shared__ __align__(128) unsigned char tiles[STAGES * STAGE];
  __shared__ i32 rows[BM];
  fg_trigger();
  fg_wait();
  const i64 n0 = (i64)blockIdx.y * BN;
  if (blockIdx.x == 0) clear_lost<BN, EXPERTS, N>(y, groups, n0, known<ROWS>(given_rows));
  i64 expert;
  if (!find_tile<BM, EXPERTS>(rows, expert, groups, blockIdx.x)) return;
  const T *matrix = matrix_of(w, table, expert, K * N) + n0;
  const auto copy = [&](int step) {
    unsigned char *to = tiles + step % STAGES * STAGE;
    const int at = step * BK, left = (int)K - at;
    for (int piece = threadIdx.x; piece < BM * (BK / 8); piece += THREADS) {
      const int row = piece / (BK / 8), chunk = piece % (BK / 8);
      const bool inside = rows[row] >= 0 && chunk * 8 < left;
      cp_async<16>(to + swizzled<BK / 8>(row, chunk),
                   inside ? x + rows[row] * K + at + chunk * 8 : x, inside ? 16 : 0);
    }
    copy_tile<THREADS, BK, BN, 16>(to + X_TILE, matrix + at * N, N, left, (int)(N - n0));
  };
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < STEPS) copy(s);
    cp_async_commit();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wm = warp % WARPS_M * WM, wn = warp / WARPS_M * WN;
  f32 sums[WM / 16][WN / 8][4] = {};
  for (int step = 0; step < STEPS; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < STEPS) copy(step + STAGES - 1);
    cp_async_commit();
    const unsigned char *x_tile = tiles + step % STAGES * STAGE, *w_tile = x_tile + X_TILE;
#pragma unroll
    for (int at = 0; at < BK; at += 16) {
      u32 a[WM / 16][4], b[WN / 8][2];
#pragma unroll
      for (int i = 0; i < WM / 16; i++) load_a<BK / 8, false>(a[i], x_tile, wm + i * 16, at);
#pragma unroll
      for (int j = 0; j < WN / 16; j++)
        load_b<BN / 8, false>(b[2 * j], b[2 * j + 1], w_tile, at, wn + j * 16);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++) mma_16816<T>(sums[i][j], a[i], b[j]);
    }
  }
  cp_async_wait<0>();
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const i64 row = rows[wm + i * 16 + lane / 4 + half * 8];
        const i64 column = n0 + wn + j * 8 + lane % 4 * 2;
        if (row < 0 || column >= N) continue;
        const Vec<T, 2> two = {
            {narrow<T>(sums[i][j][half * 2]), narrow<T>(sums[i][j][half * 2 + 1])}};
        store(y + row * N + column, two);
      }
}
