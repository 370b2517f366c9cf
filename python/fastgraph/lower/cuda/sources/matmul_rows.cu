// Products with at most 16 rows of x: w is read once, at the speed of memory, and nothing else counts.
//
// The warps of a block take turns along K. Each holds the next SLOTS pieces of w in registers, so that
// many bytes are always under way; what a run does not write is on its way before fg_wait(). At the
// end the warps' sums are added in order. A reader knows how w lies: what a lane loads, and how that
// meets x. M: rows of x, rounded up. Rows of x and w are multiples of 16 bytes.

// WORDS of four bytes, 2 or 4, once only, so that no first-level cache keeps them.
template <int WORDS, class T>
FG_DEVICE Vec<u32, WORDS> load_streamed(const T *p, bool inside) {
  Vec<u32, WORDS> x = {};
  if (!inside) return x;
  check_aligned(p, 4 * WORDS);
#ifdef FG_HOST
  memcpy(&x, p, sizeof(x));
#else
  if constexpr (WORDS == 4)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.v[0]), "=r"(x.v[1]), "=r"(x.v[2]), "=r"(x.v[3])
                 : "l"(p)
                 : "memory");
  else
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(x.v[0]), "=r"(x.v[1])
                 : "l"(p)
                 : "memory");
#endif
  return x;
}

// The operands of one product, up to the end of this block's part of K.
template <class T, int M>
struct Rows {
  const T *x, *w;
  int m, n, k_end, k, n0;
};

// f16 and bf16, w as [N, K]: 16 rows of w are the left operand of the tensor cores, x the right one.
// Both are read in the same order, so it does not matter which of a step's k comes first: a lane's
// eight, side by side in memory, are pairs of two products.
template <class T, int M>
struct HalfAlong {
  static constexpr int COLUMNS = 16, STEP = 32, SLOTS = 8, GROUPS = M / 8;
  Vec<u32, 4> top[SLOTS], bottom[SLOTS];
  uint4 right[SLOTS][GROUPS];
  f32 sums[GROUPS][4] = {};

  FG_DEVICE void fetch_w(int slot, int at, const Rows<T, M> &all) {
    const int lane = threadIdx.x % 32, row = all.n0 + lane / 4, k = at + lane % 4 * 8;
    const T *from = all.w + (i64)row * all.k + k;
    top[slot] = load_streamed<4>(from, row < all.n && k < all.k_end);
    bottom[slot] = load_streamed<4>(from + (i64)8 * all.k, row + 8 < all.n && k < all.k_end);
  }
  FG_DEVICE void fetch_x(int slot, int at, const Rows<T, M> &all) {
    const int lane = threadIdx.x % 32, k = at + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
      const int row = lane / 4 + i * 8;
      right[slot][i] = uint4{0, 0, 0, 0};
      if (row < all.m && k < all.k_end) right[slot][i] = *(const uint4 *)(all.x + row * all.k + k);
    }
  }
  FG_DEVICE void multiply(int slot, int, const Rows<T, M> &) {
    const Vec<u32, 4> a = top[slot], b = bottom[slot];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
      const uint4 r = right[slot][i];
      mma_16816<T>(sums[i], {a.v[0], b.v[0], a.v[1], b.v[1]}, {r.x, r.y});
      mma_16816<T>(sums[i], {a.v[2], b.v[2], a.v[3], b.v[3]}, {r.z, r.w});
    }
  }
  // Rows of COLUMNS sums.
  FG_DEVICE void put(f32 *to) const {
    const int lane = threadIdx.x % 32, column = lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        to[(i * 8 + row + j % 2) * COLUMNS + column + j / 2 * 8] = sums[i][j];
  }
};

// f16 and bf16, w as [K, N]: a lane has EACH columns of four rows. Two rows of K make the pairs that
// the tensor cores want, two columns the upper and the lower half of a left operand.
template <class T, int M, int EACH>
struct HalfColumns {
  static constexpr int COLUMNS = 8 * EACH, STEP = 16, SLOTS = 32 / EACH, GROUPS = M / 8;
  static constexpr int WORDS = EACH / 2;
  Vec<u32, WORDS> rows[SLOTS][4];
  uint2 right[SLOTS][GROUPS];
  f32 sums[GROUPS][WORDS][4] = {};

  FG_DEVICE void fetch_w(int slot, int at, const Rows<T, M> &all) {
    const int lane = threadIdx.x % 32, k = at + lane % 4 * 4, column = all.n0 + lane / 4 * EACH;
    const T *from = all.w + (i64)k * all.n + column;
#pragma unroll
    for (int i = 0; i < 4; i++)
      rows[slot][i] =
          load_streamed<WORDS>(from + (i64)i * all.n, k + i < all.k_end && column < all.n);
  }
  FG_DEVICE void fetch_x(int slot, int at, const Rows<T, M> &all) {
    const int lane = threadIdx.x % 32, k = at + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
      const int row = lane / 4 + i * 8;
      right[slot][i] = uint2{0, 0};
      if (row < all.m && k < all.k_end) right[slot][i] = *(const uint2 *)(all.x + row * all.k + k);
    }
  }
  FG_DEVICE static u32 low_halves(u32 a, u32 b) { return (a & 0xffff) | b << 16; }
  FG_DEVICE static u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
  FG_DEVICE void multiply(int slot, int, const Rows<T, M> &) {
    const Vec<u32, WORDS>(&r)[4] = rows[slot];
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
      const u32 a[4] = {low_halves(r[0].v[j], r[1].v[j]), high_halves(r[0].v[j], r[1].v[j]),
                        low_halves(r[2].v[j], r[3].v[j]), high_halves(r[2].v[j], r[3].v[j])};
#pragma unroll
      for (int i = 0; i < GROUPS; i++)
        mma_16816<T>(sums[i][j], a, {right[slot][i].x, right[slot][i].y});
    }
  }
  FG_DEVICE void put(f32 *to) const {
    const int lane = threadIdx.x % 32, column = lane / 4 * EACH, row = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
      for (int j = 0; j < WORDS; j++)
#pragma unroll
        for (int q = 0; q < 4; q++)
          to[(i * 8 + row + q % 2) * COLUMNS + column + j * 2 + q / 2] = sums[i][j][q];
  }
};
template <class T, int M>
struct HalfAcross : HalfColumns<T, M, 8> {};
template <class T, int M>
struct HalfNarrow : HalfColumns<T, M, 4> {};

FG_DEVICE Vec<f32, 4> floats_of(const Vec<u32, 4> &x) {
  return {{__uint_as_float(x.v[0]), __uint_as_float(x.v[1]), __uint_as_float(x.v[2]),
           __uint_as_float(x.v[3])}};
}

// f32, w as [N, K]: the lanes share the rows of w, four k each, and add up at the end.
template <class T, int M>
struct FloatAlong {
  static constexpr int COLUMNS = M > 4 ? 4 : 8, STEP = 128, SLOTS = 16 / COLUMNS;
  Vec<u32, 4> rows[SLOTS][COLUMNS];
  f32 sums[M][COLUMNS] = {};

  FG_DEVICE void fetch_w(int slot, int at, const Rows<T, M> &all) {
    const int k = at + threadIdx.x % 32 * 4;
    const T *from = all.w + (i64)all.n0 * all.k + k;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      rows[slot][j] = load_streamed<4>(from + (i64)j * all.k, all.n0 + j < all.n && k < all.k_end);
  }
  FG_DEVICE void fetch_x(int, int, const Rows<T, M> &) {}
  FG_DEVICE void multiply(int slot, int at, const Rows<T, M> &all) {
    const int k = at + threadIdx.x % 32 * 4;
    if (k >= all.k_end) return;
#pragma unroll
    for (int i = 0; i < M; i++) {
      if (i >= all.m) break;
      const Vec<f32, 4> one = load<4>(all.x + i * all.k + k);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const Vec<f32, 4> other = floats_of(rows[slot][j]);
#pragma unroll
        for (int q = 0; q < 4; q++) sums[i][j] += one.v[q] * other.v[q];
      }
    }
  }
  FG_DEVICE void put(f32 *to) const {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const f32 sum = warp_reduce(sums[i][j], Add());
        if (threadIdx.x % 32 == 0) to[i * COLUMNS + j] = sum;
      }
  }
};

// f32, w as [K, N]: a lane has four columns, and all lanes the same k.
template <class T, int M>
struct FloatAcross {
  static constexpr int COLUMNS = 128, STEP = 4, SLOTS = 4;
  Vec<u32, 4> rows[SLOTS][4];
  f32 sums[M][4] = {};

  FG_DEVICE void fetch_w(int slot, int at, const Rows<T, M> &all) {
    const int column = all.n0 + threadIdx.x % 32 * 4;
    const T *from = all.w + (i64)at * all.n + column;
#pragma unroll
    for (int i = 0; i < 4; i++)
      rows[slot][i] = load_streamed<4>(from + (i64)i * all.n, at + i < all.k_end && column < all.n);
  }
  FG_DEVICE void fetch_x(int, int, const Rows<T, M> &) {}
  FG_DEVICE void multiply(int slot, int at, const Rows<T, M> &all) {
    if (at >= all.k_end) return;
#pragma unroll
    for (int i = 0; i < M; i++) {
      if (i >= all.m) break;
      const Vec<f32, 4> one = load<4>(all.x + i * all.k + at);
#pragma unroll
      for (int q = 0; q < 4; q++) {
        const Vec<f32, 4> other = floats_of(rows[slot][q]);
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += one.v[q] * other.v[j];
      }
    }
  }
  FG_DEVICE void put(f32 *to) const {
#pragma unroll
    for (int i = 0; i < M; i++)
      store(to + i * COLUMNS + threadIdx.x % 32 * 4,
            Vec<f32, 4>{{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}});
  }
};

template <class T, template <class, int> class Reader, int M, int WARPS, bool PARTIAL, bool BIAS,
          int ACT, int RESIDUAL>
__global__ void __launch_bounds__(WARPS * 32, M > 8 || WARPS > 16 ? 1 : 16 / WARPS)
    matmul_rows(T *y, const T *x, const T *w, const T *bias, const T *residual, f32 *partial, i32 m,
                i32 n, i32 k, i32 k_part, i64 matrices, i32 w_constant, i32 wide, Batch batch) {
  typedef Reader<T, M> R;
  constexpr int THREADS = WARPS * 32, COLUMNS = R::COLUMNS, SLOTS = R::SLOTS, STEP = R::STEP;
  FG_DYNAMIC_SHARED(bytes);
  f32 *shared = (f32 *)bytes;
  (void)wide;

  const int across = (n + COLUMNS - 1) / COLUMNS, warp = threadIdx.x / 32;
  const i64 matrix = blockIdx.x / across;
  const int n0 = (int)(blockIdx.x % across) * COLUMNS, k0 = blockIdx.y * k_part;
  i64 x_begin, w_begin;
  find_matrices(batch, matrix, x_begin, w_begin);
  const Rows<T, M> all = {x + x_begin, w + w_begin, m, n, min(k, k0 + k_part), k, n0};
  R reader;

  fg_trigger();
  if (w_constant)
#pragma unroll
    for (int i = 0; i < SLOTS; i++) reader.fetch_w(i, k0 + (warp + i * WARPS) * STEP, all);
  fg_wait();
#pragma unroll
  for (int i = 0; i < SLOTS; i++) {
    const int at = k0 + (warp + i * WARPS) * STEP;
    if (!w_constant) reader.fetch_w(i, at, all);
    reader.fetch_x(i, at, all);
  }
  for (int first = k0 + warp * STEP; first < all.k_end; first += SLOTS * WARPS * STEP) {
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
      const int at = first + i * WARPS * STEP, next = at + SLOTS * WARPS * STEP;
      reader.multiply(i, at, all);
      reader.fetch_w(i, next, all);
      reader.fetch_x(i, next, all);
    }
  }

  reader.put(shared + warp * M * COLUMNS);
  __syncthreads();
  const Epilogue<T, BIAS, ACT, RESIDUAL> epilogue = {y, bias, residual};
  for (int i = threadIdx.x; i < m * COLUMNS; i += THREADS) {
    const int row = i / COLUMNS, column = n0 + i % COLUMNS;
    if (column >= n) continue;
    f32 sum = shared[i];
#pragma unroll
    for (int other = 1; other < WARPS; other++) sum += shared[other * M * COLUMNS + i];
    const i64 at = (matrix * m + row) * n + column;
    if constexpr (PARTIAL)
      partial[blockIdx.y * matrices * m * n + at] = sum;
    else
      epilogue.put_one(at, column, sum);
  }
}
