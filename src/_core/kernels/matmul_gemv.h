// One row of x, or a few: the second operand is read once, so these run at the speed of memory.
#ifndef FG_MATMUL_GEMV_H
#define FG_MATMUL_GEMV_H

#include "matmul_pack.h"
#include "matmul_tile.h"

namespace FG_NS {
namespace {

// Packed panels, by the interface of a tile of one row. K is dealt to several streams of sums where
// one panel alone would not keep the multipliers busy. The panels are read in order, which hardware
// prefetches; asking for more in software was measured to be slower, hot and cold.

#define FG_STREAMS_1(F, C) F(0, C)
#define FG_STREAMS_2(F, C) FG_STREAMS_1(F, C) F(1, C)
#define FG_STREAMS_4(F, C) FG_STREAMS_2(F, C) F(2, C) F(3, C)
#define FG_OTHERS_1(F, C)
#define FG_OTHERS_2(F, C) F(1, C)
#define FG_OTHERS_4(F, C) FG_OTHERS_2(F, C) F(2, C) F(3, C)

#define FG_GEMV_ZERO(s, v) vf c##s##_##v = {};
#define FG_GEMV_MULTIPLY(s, v) c##s##_##v += a * vload(FG_B(v) + s * PANEL);
#define FG_GEMV_FOLD(s, v) c0_##v += c##s##_##v;
#define FG_GEMV_OTHER(s, VECS) VECS(FG_GEMV_ZERO, s)
#define FG_GEMV_STEP(s, VECS)                                                                      \
  {                                                                                                \
    const vf a = vset(x[s * a_k]);                                                                 \
    VECS(FG_GEMV_MULTIPLY, s)                                                                      \
  }
#define FG_GEMV_FOLDS(s, VECS) VECS(FG_GEMV_FOLD, s)

#define FG_GEMV(NAME, STREAMS, VECS)                                                               \
  void NAME(const Tile &t) {                                                                       \
    VECS(FG_INIT, 0)                                                                               \
    FG_OTHERS_##STREAMS(FG_GEMV_OTHER, VECS) const float *b = t.b, *x = t.a;                       \
    const int64_t a_k = t.a_k;                                                                     \
    [[maybe_unused]] const int64_t b_panel = t.b_panel;                                            \
    int64_t k = t.k;                                                                               \
    for (; k >= STREAMS; k -= STREAMS) {                                                           \
      FG_STREAMS_##STREAMS(FG_GEMV_STEP, VECS) x += STREAMS * a_k;                                 \
      b += STREAMS * PANEL;                                                                        \
    }                                                                                              \
    for (; k > 0; k--) {                                                                           \
      FG_GEMV_STEP(0, VECS) x += a_k;                                                              \
      b += PANEL;                                                                                  \
    }                                                                                              \
    FG_OTHERS_##STREAMS(FG_GEMV_FOLDS, VECS) VECS(FG_STORE, 0)                                     \
  }

#if FG_ISA == 4
constexpr int GEMV_PANELS = 4;
FG_GEMV(gemv_wide, 2, FG_VECS_4)
FG_GEMV(gemv_narrow, 4, FG_VECS_1)
#elif FG_ISA == 3
constexpr int GEMV_PANELS = 4;
FG_GEMV(gemv_wide, 1, FG_VECS_8)
FG_GEMV(gemv_narrow, 4, FG_VECS_2)
#elif FG_ISA == 2
constexpr int GEMV_PANELS = 2;
FG_GEMV(gemv_wide, 1, FG_VECS_8)
FG_GEMV(gemv_narrow, 2, FG_VECS_4)
#else
constexpr int GEMV_PANELS = 4;
FG_GEMV(gemv_wide, 1, FG_VECS_16)
FG_GEMV(gemv_narrow, 4, FG_VECS_4)
#endif

struct GemvRows {
  float *sums;
  int64_t sums_row;
  const float *x;
  int64_t x_row, x_k;
  const float *w;
  int64_t w_k;
  int64_t rows, k, columns;
};

// One row of x: sums[0, columns) += x[0..8) @ eight rows of w.
FG_INLINE void gemv_eight_rows(float *sums, const float *x, int64_t x_k, const float *w,
                               int64_t w_k, int64_t columns) {
  const float *const w4 = w + 4 * w_k;
  const float s0 = x[0], s1 = x[x_k], s2 = x[2 * x_k], s3 = x[3 * x_k];
  const float s4 = x[4 * x_k], s5 = x[5 * x_k], s6 = x[6 * x_k], s7 = x[7 * x_k];
  const vf x0 = vset(s0), x1 = vset(s1), x2 = vset(s2), x3 = vset(s3);
  const vf x4 = vset(s4), x5 = vset(s5), x6 = vset(s6), x7 = vset(s7);
  int64_t c = 0;
  for (; c + FG_VW <= columns; c += FG_VW) {
    vf even = vload(sums + c) + x0 * vload(w + c), odd = x1 * vload(w + w_k + c);
    even += x2 * vload(w + 2 * w_k + c), odd += x3 * vload(w + 3 * w_k + c);
    even += x4 * vload(w4 + c), odd += x5 * vload(w4 + w_k + c);
    even += x6 * vload(w4 + 2 * w_k + c), odd += x7 * vload(w4 + 3 * w_k + c);
    vstore(sums + c, even + odd);
  }
  for (; c < columns; c++) {
    float even = sums[c] + s0 * w[c], odd = s1 * w[w_k + c];
    even += s2 * w[2 * w_k + c], odd += s3 * w[3 * w_k + c];
    even += s4 * w4[c], odd += s5 * w4[w_k + c];
    even += s6 * w4[2 * w_k + c], odd += s7 * w4[3 * w_k + c];
    sums[c] = even + odd;
  }
}

// sums += x @ w with the rows of w contiguous: eight of them are streamed at a time.
void gemv_rows(const GemvRows &g) {
  const float *x = g.x, *w = g.w;
  int64_t k = g.k;
  for (; k >= 8; k -= 8, x += 8 * g.x_k, w += 8 * g.w_k)
    for (int64_t r = 0; r < g.rows; r++)
      gemv_eight_rows(g.sums + r * g.sums_row, x + r * g.x_row, g.x_k, w, g.w_k, g.columns);
  for (; k > 0; k--, x += g.x_k, w += g.w_k) {
    for (int64_t r = 0; r < g.rows; r++) {
      float *const sums = g.sums + r * g.sums_row;
      const float s = x[r * g.x_row];
      for (int64_t c = 0; c < g.columns; c++) sums[c] += s * w[c];
    }
  }
}

FG_INLINE Quad fold_quad(vf v) {
#if FG_VW == 16
  typedef float Oct __attribute__((vector_size(32)));
  const Oct o = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(o, o, 0, 1, 2, 3) + __builtin_shufflevector(o, o, 4, 5, 6, 7);
#elif FG_VW == 8
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  return v;
#endif
}

// sums[0..4) += dot products of x with four columns of w, both contiguous along K.
FG_INLINE void dot_four(float *sums, const float *x, const float *w, int64_t w_column, int64_t k) {
  const float *const w1 = w + w_column, *const w2 = w1 + w_column, *const w3 = w2 + w_column;
  vf a0 = {}, a1 = {}, a2 = {}, a3 = {}, b0 = {}, b1 = {}, b2 = {}, b3 = {};
  int64_t i = 0;
  for (; i + 2 * FG_VW <= k; i += 2 * FG_VW) {
    const vf xa = vload(x + i), xb = vload(x + i + FG_VW);
    a0 += xa * vload(w + i), b0 += xb * vload(w + i + FG_VW);
    a1 += xa * vload(w1 + i), b1 += xb * vload(w1 + i + FG_VW);
    a2 += xa * vload(w2 + i), b2 += xb * vload(w2 + i + FG_VW);
    a3 += xa * vload(w3 + i), b3 += xb * vload(w3 + i + FG_VW);
  }
  if (i + FG_VW <= k) {
    const vf xa = vload(x + i);
    a0 += xa * vload(w + i), a1 += xa * vload(w1 + i);
    a2 += xa * vload(w2 + i), a3 += xa * vload(w3 + i);
    i += FG_VW;
  }
  const Quad q0 = fold_quad(a0 + b0), q1 = fold_quad(a1 + b1);
  const Quad q2 = fold_quad(a2 + b2), q3 = fold_quad(a3 + b3);
  const Quad even =
      __builtin_shufflevector(q0, q1, 0, 4, 2, 6) + __builtin_shufflevector(q0, q1, 1, 5, 3, 7);
  const Quad odd =
      __builtin_shufflevector(q2, q3, 0, 4, 2, 6) + __builtin_shufflevector(q2, q3, 1, 5, 3, 7);
  Quad sum = __builtin_shufflevector(even, odd, 0, 1, 4, 5) +
             __builtin_shufflevector(even, odd, 2, 3, 6, 7);
  for (; i < k; i++) sum += x[i] * (Quad){w[i], w1[i], w2[i], w3[i]};
  sum += quad_load(sums);
  memcpy(sums, &sum, sizeof sum);
}

// sums[0, columns) += x @ w with the columns of w contiguous. Whole quads of columns: the caller's
// blocks begin at multiples of four, so a column's sum does not depend on the block.
void gemv_columns(float *sums, const float *x, const float *w, int64_t w_column, int64_t k,
                  int64_t columns) {
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4) dot_four(sums + c, x, w + c * w_column, w_column, k);
  // Four times the same column: what is left of N takes the same way through the arithmetic.
  for (; c < columns; c++) {
    float same[4] = {sums[c], sums[c], sums[c], sums[c]};
    dot_four(same, x, w + c * w_column, 0, k);
    sums[c] = same[0];
  }
}

}  // namespace
}  // namespace FG_NS

#endif
