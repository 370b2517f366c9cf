// Products of f16 and bf16 by the warp groups of sm_90a, accumulated in f32.
//
// A block is GROUPS warp groups that multiply and, before them, one that brings tiles of 64 elements
// along K to shared memory, STAGES of them under way. It computes BM x BN of y at a time, a group
// BM / GROUPS rows of that, and goes on with the tile that lies a grid further: the next tile's
// operands come while the last one's sums are written. BLOCKS fit on a multiprocessor. XT: x lies as
// [K, M]. WT: w lies as [N, K]. Rows of both are at multiples of 16 bytes. PARTIAL: K is cut, and each
// part's sums go to `partial`, for matmul_combine. WIDE: rows of y and of all at the end are whole
// vectors.

// Begins to copy ROWS x COLUMNS elements, `step` elements from row to row, to a panel; zeros beyond
// `rows` and `columns`. By the 128 threads of a group.
template <int ROWS, int COLUMNS, class T>
FG_DEVICE void copy_panel(unsigned char *to, const T *from, i64 step, int rows, int columns) {
  const int thread = threadIdx.x % 128, row = thread / 8, column = thread % 8 * 8;
  static_assert(ROWS % 16 == 0, "whole turns");
  if (COLUMNS < 64 && column >= COLUMNS) return;
  const int left = column < columns ? rows - row : 0;
  // What copies nothing names a row that is there.
  const T *next = from + (left > 0 ? row * step + column : 0);
  to += swizzled<8>(row, column / 8);
#pragma unroll
  for (int i = 0; i < ROWS; i += 16) {
    cp_async<16>(to + i * 128, next, i < left ? 16 : 0);
    if (i + 16 < left) next += 16 * step;
    keep_order(next);
  }
}

// Bytes of an operand's tile: along K a row for each of COUNT, across it panels of 64.
template <int COUNT, bool TRANSPOSED>
constexpr int PANEL_BYTES = (TRANSPOSED ? (COUNT + 63) / 64 * 64 : COUNT) * 128;

// Begins to copy the tile of an operand that begins at `from`: COUNT rows of x or columns of w, of
// which there are `left`, and 64 elements along K, of which there are `depth`.
template <int COUNT, bool TRANSPOSED, class T>
FG_DEVICE void copy_operand(unsigned char *to, const T *from, i64 step, int left, int depth) {
  if constexpr (!TRANSPOSED) {
    copy_panel<COUNT, 64>(to, from, step, left, depth);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT / 64; i++)
      copy_panel<64, 64>(to + i * 8192, left > i * 64 ? from + i * 64 : from, step, depth,
                         left - i * 64);
    if constexpr (COUNT % 64 != 0) {
      constexpr int LAST = COUNT / 64;
      copy_panel<64, COUNT % 64>(to + LAST * 8192, left > LAST * 64 ? from + LAST * 64 : from, step,
                                 depth, left - LAST * 64);
    }
  }
}

// Which part of which tile of which matrix a block does next.
struct Work {
  int matrix, m0, n0, part, k0, depth;
};
template <int BM, int BN>
FG_DEVICE Work find_work(int item, int m, int n, int k, int k_part, int splits) {
  const int down = (m + BM - 1) / BM, across = (n + BN - 1) / BN;
  Work work;
  work.part = item % splits;
  item /= splits;
  work.matrix = item / (down * across);
  // Tiles of eight rows of tiles are next to each other in time, so that w is found in the cache.
  const int tile = item % (down * across);
  const int first = tile / (8 * across) * 8, rows = min(8, down - first);
  work.m0 = (first + tile % (8 * across) % rows) * BM;
  work.n0 = tile % (8 * across) / rows * BN;
  work.k0 = work.part * k_part;
  work.depth = min(k - work.k0, k_part);
  return work;
}

// Which of the STAGES is next, and the parity of its turn.
template <int STAGES>
struct Turn {
  int stage;
  u32 parity;
  FG_DEVICE void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Between lanes 4 i to 4 i + 3: word j of lane i becomes word i of lane j.
FG_DEVICE void turn_quad(u32 (&words)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool high = lane & bit;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      // Of words whose numbers differ in that bit one stays and one goes.
      const int low = bit == 1 ? 2 * i : i;
      const u32 got = __shfl_xor_sync(0xffffffffu, high ? words[low] : words[low + bit], bit);
      if (high)
        words[low] = got;
      else
        words[low + bit] = got;
    }
  }
}

// Eight elements of which `count` are there; at once where rows are whole vectors (WIDE).
template <bool WIDE, class T>
FG_DEVICE void load_some(u32 (&words)[4], const T *from, int count) {
  Vec<T, 8> eight = {};
  if constexpr (WIDE) {
    if (count > 0) eight = load<8>(from);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < count) eight.v[i] = from[i];
  }
  memcpy(words, &eight, 16);
}
template <bool WIDE, class T>
FG_DEVICE void store_some(T *to, const u32 (&words)[4], int count) {
  Vec<T, 8> eight;
  memcpy(&eight, words, 16);
  if constexpr (WIDE) {
    if (count > 0) store(to, eight);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < count) to[i] = eight.v[i];
  }
}

// Writes the sums that a group's threads hold, of HIGH x 64 rows from `row` on, which is the thread's
// first, and of BN columns from `n0` on. The first operands of the end are on their way while
// `finish` sees to the sums.
template <bool WIDE, int BN, int HIGH, class T, bool BIAS, int ACT, int RESIDUAL, class F>
FG_DEVICE void put_sums(const Epilogue<T, BIAS, ACT, RESIDUAL> &epilogue,
                        const f32 (&sums)[HIGH][BN / 2], int row, int n0, int m, int n, i64 first,
                        F finish) {
  // In turns of up to 128 columns of each eighth row of a warp's 16, whose residual comes one turn
  // ahead. A lane moves eight columns of each 32; they are exchanged with its neighbours.
  constexpr int ALL = (BN + 31) / 32, EACH = ALL % 4 == 0 ? 4 : ALL < 4 ? ALL : 3;
  constexpr int HALVES = 2 * HIGH, TURNS = (ALL + EACH - 1) / EACH * HALVES;
  const int end = min(n, n0 + BN), pair = threadIdx.x % 4 * 2;
  const auto place = [&](int turn, int j, i64 &at) {
    const int at_row = row + turn % HALVES / 2 * 64 + turn % 2 * 8;
    const int column = n0 + pair * 4 + (turn / HALVES * EACH + j) * 32;
    at = first + (i64)at_row * n + column;
    return at_row < m ? end - column : 0;
  };
  u32 words[2][EACH][4] = {};
  const auto fetch = [&](int turn) {
    if constexpr (RESIDUAL != RESIDUAL_NONE) {
#pragma unroll
      for (int j = 0; j < EACH; j++) {
        i64 at;
        const int count = place(turn, j, at);
        load_some<WIDE>(words[turn % 2][j], epilogue.residual + at, count);
      }
    }
  };
  Vec<T, 2> bias[EACH * 4] = {};
  const auto fetch_bias = [&](int turn) {
    if constexpr (BIAS) {
#pragma unroll
      for (int j = 0; j < EACH * 4; j++) {
        const int column = n0 + (turn / HALVES * EACH * 4 + j) * 8 + pair;
        if (column >= end) continue;
        if constexpr (WIDE)
          bias[j] = load<2>(epilogue.bias + column);
        else
          for (int e = 0; e < 2; e++) bias[j].v[e] = epilogue.bias[min(column + e, n - 1)];
      }
    }
  };
  fetch_bias(0);
  fetch(0);
  finish();
#pragma unroll
  for (int turn = 0; turn < TURNS; turn++) {
    if (turn + 1 < TURNS) fetch(turn + 1);
    if (turn > 0 && turn % HALVES == 0) fetch_bias(turn);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      u32(&four)[4] = words[turn % 2][j];
      if constexpr (RESIDUAL != RESIDUAL_NONE) turn_quad(four);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int eight = (turn / HALVES * EACH + j) * 4 + i;
        if (eight >= BN / 8) break;
        const f32 *two = sums[turn % HALVES / 2] + eight * 4 + turn % 2 * 2;
        Vec<T, 2> ends;
        memcpy(&ends, &four[i], 4);
#pragma unroll
        for (int e = 0; e < 2; e++)
          ends.v[e] = epilogue.end(two[e], bias[j * 4 + i].v[e], ends.v[e]);
        memcpy(&four[i], &ends, 4);
      }
      turn_quad(four);
      i64 at;
      const int count = place(turn, j, at);
      store_some<WIDE>(epilogue.y + at, four, count);
    }
  }
}

// The same for a part of K: the sums as they are.
template <bool WIDE, int BN, int HIGH>
FG_DEVICE void put_partial(f32 *partial, const f32 (&sums)[HIGH][BN / 2], int row, int n0, int m,
                           int n, i64 first) {
#pragma unroll
  for (int half = 0; half < 2 * HIGH; half++) {
    const int at_row = row + half / 2 * 64 + half % 2 * 8;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
      const int column = n0 + j * 8 + threadIdx.x % 4 * 2;
      const f32 *two = sums[half / 2] + j * 4 + half % 2 * 2;
      f32 *to = partial + first + (i64)at_row * n + column;
      if (at_row >= m || column >= n) continue;
      if constexpr (WIDE) {
        store(to, Vec<f32, 2>{{two[0], two[1]}});
      } else {
        to[0] = two[0];
        if (column + 1 < n) to[1] = two[1];
      }
    }
  }
}

template <class T, int BM, int BN, int GROUPS, int STAGES, int BLOCKS, bool WIDE, bool XT, bool WT,
          bool PARTIAL, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__((GROUPS + 1) * 128, BLOCKS)
    matmul_wgmma(T *y, const T *x, const T *w, const T *bias, const T *residual, f32 *partial,
                 i32 m, i32 n, i32 k, i32 k_part, i64 matrices, i32 w_constant, i32 wide,
                 const __grid_constant__ Batch batch) {
  constexpr int HIGH = BM / GROUPS / 64;
  constexpr int X_TILE = PANEL_BYTES<BM, XT>, STAGE = X_TILE + PANEL_BYTES<BN, !WT>;
  static_assert(BM == GROUPS * HIGH * 64 && BN % 16 == 0, "whole products");
  // Those that multiply need more than others leave only where they hold very many sums.
  typedef Registers<GROUPS, BLOCKS, 128, (HIGH * BN >= (BLOCKS > 1 ? 256 : 289) ? 40 : 56)> Budget;
  FG_DYNAMIC_SHARED(shared);
  u64 *full = (u64 *)(shared + STAGES * STAGE), *empty = full + STAGES;

  const int splits = k_part < k ? (k + k_part - 1) / k_part : 1;
  const int items = (int)matrices * ((m + BM - 1) / BM) * ((n + BN - 1) / BN) * splits;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(full + i, 128);
      barrier_init(empty + i, GROUPS * 4);
    }
    barrier_init_done();
  }
  fg_trigger_if_many();
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
  Turn<STAGES> turn = {0, 0};

  if (group == 0) {
    set_registers<Budget::BRING, false>();
    bool waited = false;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
      const Work work = find_work<BM, BN>(item, m, n, k, k_part, splits);
      i64 x_begin, w_begin;
      find_matrices(batch, work.matrix, x_begin, w_begin);
      const T *x_from =
          x + x_begin + (XT ? (i64)work.k0 * m + work.m0 : (i64)work.m0 * k + work.k0);
      const T *w_from =
          w + w_begin + (WT ? (i64)work.n0 * k + work.k0 : (i64)work.k0 * n + work.n0);
      const int steps = (work.depth + 63) / 64;
      const auto copy_x = [&](int stage, int step) {
        copy_operand<BM, XT>(shared + stage * STAGE, x_from + (i64)step * 64 * (XT ? m : 1),
                             XT ? m : k, m - work.m0, work.depth - step * 64);
      };
      const auto copy_w = [&](int stage, int step) {
        copy_operand<BN, !WT>(shared + stage * STAGE + X_TILE,
                              w_from + (i64)step * 64 * (WT ? 1 : n), WT ? k : n, n - work.n0,
                              work.depth - step * 64);
      };
      int ahead = 0;
      if (!waited) {
        // What nobody writes during a run need not wait for those before.
        if (w_constant)
          for (; ahead < STAGES && ahead < steps; ahead++) copy_w(ahead, ahead);
        fg_wait_and_trigger();
        waited = true;
      }
      for (int step = 0; step < steps; step++) {
        barrier_wait(empty + turn.stage, turn.parity ^ 1);
        if (step >= ahead) copy_w(turn.stage, step);
        copy_x(turn.stage, step);
        cp_async_arrive(full + turn.stage);
        turn.next();
      }
    }
    if (!waited) fg_wait();
    return;
  }

  set_registers<Budget::MULTIPLY, true>();
  // Where the first tile is takes divisions, which are done by the time that its operands come.
  Work work = find_work<BM, BN>((int)blockIdx.x, m, n, k, k_part, splits);
  needed(work.m0);
  needed(work.n0);
  needed(work.depth);
  fg_wait_and_trigger();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int part = group - 1;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    if (item != (int)blockIdx.x) work = find_work<BM, BN>(item, m, n, k, k_part, splits);
    const int steps = (work.depth + 63) / 64;
    f32 sums[HIGH][BN / 2] = {};
    int before = 0;
    const auto multiply = [&] {
#pragma unroll 1
      for (int step = 0; step < steps; step++) {
        barrier_wait(full + turn.stage, turn.parity);
        fence_async();
        const u64 a = describe_panel(shared + turn.stage * STAGE + part * HIGH * 8192);
        const u64 b = describe_panel(shared + turn.stage * STAGE + X_TILE);
        wgmma_fence();
#pragma unroll
        for (int at = 0; at < 4; at++)
#pragma unroll
          for (int i = 0; i < HIGH; i++)
            wgmma_64<T, BN, XT, !WT>(sums[i], a + i * (8192 >> 4) + at * NEXT_PANEL_16<XT>,
                                     b + at * NEXT_PANEL_16<!WT>, true);
        wgmma_commit();
        // The products before these are done: their operands' place is free.
        wgmma_wait<1>();
        if (step > 0 && lane == 0) barrier_arrive(empty + before);
        before = turn.stage;
        turn.next();
      }
    };
    const auto finish = [&] {
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < HIGH; i++) hold(sums[i]);
      if (lane == 0) barrier_arrive(empty + before);
    };
    const int row = work.m0 + part * HIGH * 64 + warp * 16 + lane / 4;
    const i64 first = (i64)work.matrix * m * n;
    // Where registers are many the operands of the end come while there are products to do.
    constexpr bool EARLY = !PARTIAL && HIGH * BN <= 64;
    if constexpr (!EARLY) multiply();
    if constexpr (PARTIAL) {
      finish();
      put_partial<WIDE, BN, HIGH>(partial + (i64)work.part * matrices * m * n, sums, row, work.n0,
                                  m, n, first);
    } else {
      put_sums<WIDE, BN, HIGH>(Epilogue<T, BIAS, ACT, RESIDUAL>{y, bias, residual}, sums, row,
                               work.n0, m, n, first, [&] {
                                 if constexpr (EARLY) multiply();
                                 finish();
                               });
    }
  }
}
