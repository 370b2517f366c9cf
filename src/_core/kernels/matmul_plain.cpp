// Matrix products in float64, and in integers, which wrap: their sign does not matter.
//
// The sums of a tile of y stay in registers while a block of K passes by; between blocks they lie
// in y. The order of a sum is that of K, so the result's bits depend on the shape alone.
#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

// The words of params, then size, step of x and step of w for each axis of the batch.
enum {
  M_STEP,
  N_STEP,
  P_M,
  P_N,
  P_K,
  P_X_ROW,
  P_X_K,
  P_W_K,
  P_W_COLUMN,
  P_BATCH_DIMS,
  P_BATCH_FIRST
};

constexpr int64_t K_BLOCK = 128;

template <typename T>
struct Product {
  typedef T V __attribute__((vector_size(FG_VW * 4)));
  static constexpr int64_t LANES = FG_VW * 4 / sizeof(T), PANEL = 2 * LANES;

  int64_t m, n, k, x_row, x_k, w_k, w_column;
  const T *x, *w;
  T *y;

  FG_INLINE V load(const T *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
  }
  FG_INLINE void store(T *p, V v) { memcpy(p, &v, sizeof v); }

  // ROWS rows of a panel's columns; `sums` has a row length of `step`.
  template <int ROWS>
  FG_INLINE void tile(T *sums, int64_t step, const T *a, int64_t a_row, int64_t a_k, const T *b,
                      int64_t b_k, int64_t k) {
    T *const s0 = sums, *const s1 = sums + (ROWS > 1 ? step : 0);
    T *const s2 = sums + (ROWS > 2 ? 2 * step : 0), *const s3 = sums + (ROWS > 3 ? 3 * step : 0);
    V c00 = load(s0), c01 = load(s0 + LANES), c10 = load(s1), c11 = load(s1 + LANES);
    V c20 = load(s2), c21 = load(s2 + LANES), c30 = load(s3), c31 = load(s3 + LANES);
    for (; k > 0; k--, a += a_k, b += b_k) {
      const V b0 = load(b), b1 = load(b + LANES);
      const T a0 = a[0];
      c00 += b0 * a0, c01 += b1 * a0;
      if (ROWS > 1) {
        const T a1 = a[a_row];
        c10 += b0 * a1, c11 += b1 * a1;
      }
      if (ROWS > 2) {
        const T a2 = a[2 * a_row];
        c20 += b0 * a2, c21 += b1 * a2;
      }
      if (ROWS > 3) {
        const T a3 = a[3 * a_row];
        c30 += b0 * a3, c31 += b1 * a3;
      }
    }
    store(s0, c00), store(s0 + LANES, c01);
    if (ROWS > 1) store(s1, c10), store(s1 + LANES, c11);
    if (ROWS > 2) store(s2, c20), store(s2 + LANES, c21);
    if (ROWS > 3) store(s3, c30), store(s3 + LANES, c31);
  }

  // One block of K of up to four rows of a panel, whose last columns may be beyond y.
  void rows(int64_t row, int64_t count, int64_t column, int64_t columns, int64_t from,
            int64_t depth, const T *b, int64_t b_k) const {
    T sums[4 * PANEL] = {};
    T *const at = y + row * n + column;
    if (from > 0)
      for (int64_t r = 0; r < count; r++)
        memcpy(sums + r * PANEL, at + r * n, (size_t)columns * sizeof(T));
    const T *const a = x + row * x_row + from * x_k;
    if (count == 4)
      tile<4>(sums, PANEL, a, x_row, x_k, b, b_k, depth);
    else if (count == 3)
      tile<3>(sums, PANEL, a, x_row, x_k, b, b_k, depth);
    else if (count == 2)
      tile<2>(sums, PANEL, a, x_row, x_k, b, b_k, depth);
    else
      tile<1>(sums, PANEL, a, x_row, x_k, b, b_k, depth);
    for (int64_t r = 0; r < count; r++)
      memcpy(at + r * n, sums + r * PANEL, (size_t)columns * sizeof(T));
  }

  void block(int64_t row, int64_t rows_end, int64_t column, int64_t columns_end) const {
    T packed[K_BLOCK * PANEL];
    int64_t from = 0;
    do {
      const int64_t depth = k - from < K_BLOCK ? k - from : K_BLOCK;
      for (int64_t c = column; c < columns_end; c += PANEL) {
        const int64_t columns = columns_end - c < PANEL ? columns_end - c : PANEL;
        const T *b = w + from * w_k + c * w_column;
        int64_t b_k = w_k;
        if (w_column != 1 || columns < PANEL) {
          for (int64_t i = 0; i < depth; i++)
            for (int64_t j = 0; j < PANEL; j++)
              packed[i * PANEL + j] = j < columns ? b[i * w_k + j * w_column] : (T)0;
          b = packed, b_k = PANEL;
        }
        for (int64_t r = row; r < rows_end; r += 4)
          rows(r, rows_end - r < 4 ? rows_end - r : 4, c, columns, from, depth, b, b_k);
      }
      from += depth;
    } while (from < k);
  }
};

template <typename T>
void matmul(const fg_call *call) {
  const int64_t *const p = call->params, *const batch = p + P_BATCH_FIRST;
  const int64_t dims = p[P_BATCH_DIMS], m = p[P_M], n = p[P_N];
  const int64_t across = (n + p[N_STEP] - 1) / p[N_STEP];
  const int64_t units = (m + p[M_STEP] - 1) / p[M_STEP] * across;
  int64_t matrices = 1;
  for (int64_t d = 0; d < dims; d++) matrices *= batch[3 * d];
  const Slice mine = fg_slice(units * matrices, call->part, call->nparts);
  for (int64_t at = mine.begin; at < mine.end; at++) {
    const int64_t matrix = at / units, unit = at % units;
    Product<T> product = {m,       n,       p[P_K], p[P_X_ROW], p[P_X_K], p[P_W_K], p[P_W_COLUMN],
                          nullptr, nullptr, nullptr};
    product.x = (const T *)call->args[1];
    product.w = (const T *)call->args[2];
    product.y = (T *)call->args[0] + matrix * m * n;
    int64_t rest = matrix;
    for (int64_t d = dims - 1; d >= 0; d--) {
      const int64_t index = rest % batch[3 * d];
      rest /= batch[3 * d];
      product.x += index * batch[3 * d + 1];
      product.w += index * batch[3 * d + 2];
    }
    const int64_t row = unit / across * p[M_STEP], column = unit % across * p[N_STEP];
    const int64_t rows_end = row + p[M_STEP] < m ? row + p[M_STEP] : m;
    product.block(row, rows_end, column, column + p[N_STEP] < n ? column + p[N_STEP] : n);
  }
}

}  // namespace

extern const fg_entry matmul_plain_entries[] = {
    {"matmul_f64", matmul<double>},   {"matmul_i8", matmul<uint8_t>},
    {"matmul_i16", matmul<uint16_t>}, {"matmul_i32", matmul<uint32_t>},
    {"matmul_i64", matmul<uint64_t>}, {nullptr, nullptr}};

}  // namespace FG_NS
