// Products of a single row: w, which lies as [N, K], is read once, at the speed of memory. Stands
// after matmul.cuh.
//
// The lanes of a warp share rows of w, 16 bytes each, so that what a warp reads lies side by side;
// the warps of a block take turns along K. Each thread has 16 loads under way, of a w that no run
// writes before fg_wait(). The norm of x before the product is a factor after it: each block adds up
// the squares of what it reads anyway. A gate is a second matrix, whose rows are read with those of
// the first.

// 16 bytes at an address that is a multiple of BYTES; zeros where that is not inside.
template <int BYTES>
FG_DEVICE uint4 load_piece(const void *p, bool inside) {
  typedef typename Raw<BYTES>::type R;
  uint4 x = {0, 0, 0, 0};
  if (!inside) return x;
  check_aligned(p, BYTES);
  R parts[16 / BYTES];
#pragma unroll
  for (int i = 0; i < 16 / BYTES; i++) parts[i] = ((const R *)p)[i];
  memcpy(&x, parts, 16);
  return x;
}
// The same, read once only, so that no first-level cache keeps them.
template <int BYTES>
FG_DEVICE uint4 load_once(const void *p, bool inside) {
#ifndef FG_HOST
  if constexpr (BYTES == 16) {
    uint4 x = {0, 0, 0, 0};
    if (inside)
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                   : "l"(p)
                   : "memory");
    return x;
  }
#endif
  return load_piece<BYTES>(p, inside);
}

template <class T>
struct Piece {
  static constexpr int COUNT = 16 / sizeof(T);
  T v[COUNT];
};
template <class T>
FG_DEVICE Piece<T> piece_of(const uint4 &raw) {
  Piece<T> x;
  memcpy(&x, &raw, 16);
  return x;
}

// The end of a row's product: lane j has column j. What is added is on its way while sums are made.
template <class T, int OUT, bool GATED, bool BIAS, int ACT, int RESIDUAL>
struct Finish {
  Epilogue<T, BIAS, ACT, RESIDUAL> epilogue;
  T bias_one, residual_one;
  int column;
  bool has;
  FG_DEVICE Finish(T *y, const T *bias, const T *residual, int n0, int n, bool ends)
      : epilogue{y, bias, residual},
        bias_one{},
        residual_one{},
        column(n0 + (int)threadIdx.x % 32) {
    has = ends && threadIdx.x % 32 < OUT && column < n;
    if (BIAS && has) bias_one = bias[column];
    if (RESIDUAL != RESIDUAL_NONE && has) residual_one = residual[column];
  }
  // The last of the sums are the squares of x.
  template <int GATE, bool NORM, int COUNT>
  FG_DEVICE void end(const f32 (&sums)[COUNT], f32 eps, int k) const {
    f32 sum = 0.0f, by = 0.0f;
#pragma unroll
    for (int j = 0; j < OUT; j++) {
      if ((int)threadIdx.x % 32 != j) continue;
      sum = sums[j];
      if (GATED) by = sums[OUT + j];
    }
    if (!has) return;
    const f32 factor = NORM ? rsqrtf(sums[COUNT - 1] / (f32)k + eps) : 1.0f;
    sum *= factor;
    if constexpr (GATED) sum *= activate<GATE, T>(by * factor);
    epilogue.y[column] = epilogue.end(sum, bias_one, residual_one);
  }
};

// Each warp has COLUMNS rows of w, and SLOTS pieces of each under way; ALONG warps take turns along K,
// and their sums are added in order. LATE: the kernels after this one start when nothing is left to
// be fetched, not at once. NORM: x is divided by its root mean square; SCALE: and multiplied by
// `scale`. GATE: what is applied to a product by `gate`, which then multiplies that by w; half of the
// rows are of either. The addresses of x and `scale` are multiples of X_BYTES, those of w and `gate`
// of W_BYTES.
template <class T, int COLUMNS, int SLOTS, int WARPS, int ALONG, bool LATE, int X_BYTES,
          int W_BYTES, bool NORM, bool SCALE, int GATE, bool BIAS, int ACT, int RESIDUAL>
__global__ void __launch_bounds__(WARPS * 32, 16 / WARPS)
    matmul_row(T *y, const T *x, const T *w, const T *gate, const T *scale, f32 eps, const T *bias,
               const T *residual, i32 n, i32 k, i32 constant) {
  constexpr bool GATED = GATE != ACT_NONE;
  constexpr int OUT = GATED ? COLUMNS / 2 : COLUMNS, EACH = Piece<T>::COUNT, STEP = 32 * EACH;
  static_assert(OUT <= 32 && WARPS % ALONG == 0, "one lane an output, whole groups of warps");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, turn = warp % ALONG;
  const int n0 = (blockIdx.x * (WARPS / ALONG) + warp / ALONG) * OUT;
  uint4 rows[SLOTS][COLUMNS], right[SLOTS], scales[SLOTS];
  // The last are the squares.
  f32 sums[COLUMNS + 1] = {};

  const auto row_of = [&](int j) {
    const bool second = GATED && j >= OUT;
    return (second ? gate : w) + (i64)(n0 + (second ? j - OUT : j)) * k;
  };
  const auto is_row = [&](int j) { return n0 + (GATED && j >= OUT ? j - OUT : j) < n; };
  const auto fetch_w = [&](int slot, int step) {
    const int at = step * STEP + lane * EACH;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      rows[slot][j] = load_once<W_BYTES>(row_of(j) + at, is_row(j) && at < k);
    if (SCALE) scales[slot] = load_piece<X_BYTES>(scale + at, at < k);
  };
  const auto fetch_x = [&](int slot, int step) {
    const int at = step * STEP + lane * EACH;
    right[slot] = load_piece<X_BYTES>(x + at, at < k);
  };

  if (!LATE) fg_trigger();
  if (constant) {
#pragma unroll
    for (int i = 0; i < SLOTS; i++) fetch_w(i, turn + i * ALONG);
  }
  fg_wait();
  const Finish<T, OUT, GATED, BIAS, ACT, RESIDUAL> finish(y, bias, residual, n0, n, turn == 0);
#pragma unroll
  for (int i = 0; i < SLOTS; i++) {
    if (!constant) fetch_w(i, turn + i * ALONG);
    fetch_x(i, turn + i * ALONG);
  }
  const int steps = (k + STEP - 1) / STEP;
  if (LATE && turn >= steps) fg_trigger();
  for (int first = turn; first < steps; first += SLOTS * ALONG) {
    if (LATE && first + SLOTS * ALONG >= steps) fg_trigger();
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
      const Piece<T> one = piece_of<T>(right[i]);
      f32 numbers[EACH];
#pragma unroll
      for (int q = 0; q < EACH; q++) {
        numbers[q] = widen(one.v[q]);
        if (NORM) sums[COLUMNS] += numbers[q] * numbers[q];
      }
      if (SCALE) {
        const Piece<T> by = piece_of<T>(scales[i]);
#pragma unroll
        for (int q = 0; q < EACH; q++) numbers[q] *= widen(by.v[q]);
      }
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const Piece<T> other = piece_of<T>(rows[i][j]);
#pragma unroll
        for (int q = 0; q < EACH; q++) sums[j] += numbers[q] * widen(other.v[q]);
      }
      const int next = first + (i + SLOTS) * ALONG;
      fetch_w(i, next);
      fetch_x(i, next);
    }
  }

#pragma unroll
  for (int j = 0; j < COLUMNS + NORM; j++) sums[j] = warp_reduce(sums[j], Add());
  if constexpr (ALONG > 1) {
    __shared__ f32 shared[WARPS][COLUMNS + 1];
    if (lane == 0) {
#pragma unroll
      for (int j = 0; j < COLUMNS + NORM; j++) shared[warp][j] = sums[j];
    }
    __syncthreads();
    if (turn) return;
#pragma unroll
    for (int other = 1; other < ALONG; other++)
#pragma unroll
      for (int j = 0; j < COLUMNS + NORM; j++) sums[j] += shared[warp + other][j];
  }
  finish.template end<GATE, NORM>(sums, eps, k);
}
