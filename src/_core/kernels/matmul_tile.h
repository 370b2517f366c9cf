// Register tiles: out[rows][columns] = init + x @ w over one block of K.
//
// Accumulators are named variables made by macros, never arrays: an array of them is kept in memory
// by the compiler and costs a factor of three. Every tile adds along K in the same order, so a result
// does not depend on which tile computed it.
#ifndef FG_MATMUL_TILE_H
#define FG_MATMUL_TILE_H

#include "matmul_params.h"
#include "vec.h"

namespace FG_NS {
namespace {

constexpr int PANEL_VECS = int(PANEL) / FG_VW;  // vectors of one panel's row

struct Tile {
  int64_t k;  // length of this block of K
  const float *a;
  int64_t a_row, a_k;
  const float *b;
  int64_t b_k, b_panel;  // elements between rows, and between panels, of the second operand
  int64_t ahead;         // elements from b to what the next tiles want: it is fetched meanwhile
  const float *init;
  int64_t init_row;  // 0: every row begins with the same values
  float *out;
  int64_t out_row;
};

typedef void (*TileFn)(const Tile &);

#define FG_ROWS_1(F, C) F(0, C)
#define FG_ROWS_2(F, C) FG_ROWS_1(F, C) F(1, C)
#define FG_ROWS_3(F, C) FG_ROWS_2(F, C) F(2, C)
#define FG_ROWS_4(F, C) FG_ROWS_3(F, C) F(3, C)
#define FG_ROWS_5(F, C) FG_ROWS_4(F, C) F(4, C)
#define FG_ROWS_6(F, C) FG_ROWS_5(F, C) F(5, C)
#define FG_ROWS_7(F, C) FG_ROWS_6(F, C) F(6, C)
#define FG_ROWS_8(F, C) FG_ROWS_7(F, C) F(7, C)
#define FG_ROWS_9(F, C) FG_ROWS_8(F, C) F(8, C)
#define FG_ROWS_10(F, C) FG_ROWS_9(F, C) F(9, C)
#define FG_ROWS_11(F, C) FG_ROWS_10(F, C) F(10, C)
#define FG_ROWS_12(F, C) FG_ROWS_11(F, C) F(11, C)

#define FG_VECS_1(F, r) F(r, 0)
#define FG_VECS_2(F, r) FG_VECS_1(F, r) F(r, 1)
#define FG_VECS_4(F, r) FG_VECS_2(F, r) F(r, 2) F(r, 3)
#define FG_VECS_8(F, r) FG_VECS_4(F, r) F(r, 4) F(r, 5) F(r, 6) F(r, 7)
#define FG_VECS_16(F, r)                                                                           \
  FG_VECS_8(F, r)                                                                                  \
  F(r, 8) F(r, 9) F(r, 10) F(r, 11) F(r, 12) F(r, 13) F(r, 14) F(r, 15)

#define FG_B(v) (b + ((v) / PANEL_VECS) * b_panel + ((v) % PANEL_VECS) * FG_VW)
#define FG_INIT(r, v) vf c##r##_##v = vload(t.init + r * t.init_row + v * FG_VW);
#define FG_LOAD_B(r, v) const vf b##v = vload(FG_B(v));
#define FG_MULTIPLY(r, v) c##r##_##v += a * b##v;
#define FG_STORE(r, v) vstore(t.out + r * t.out_row + v * FG_VW, c##r##_##v);

#define FG_ROW_BEGIN(r, VECS)                                                                      \
  const float *const a##r = t.a + r * t.a_row;                                                     \
  VECS(FG_INIT, r)
#define FG_ROW_STEP(r, VECS)                                                                       \
  {                                                                                                \
    const vf a = vset(a##r[a_at]);                                                                 \
    VECS(FG_MULTIPLY, r)                                                                           \
  }
#define FG_ROW_END(r, VECS) VECS(FG_STORE, r)

#define FG_TILE(NAME, ROWS, VECS)                                                                  \
  void NAME(const Tile &t) {                                                                       \
    ROWS(FG_ROW_BEGIN, VECS)                                                                       \
    const float *b = t.b;                                                                          \
    const int64_t a_k = t.a_k, b_k = t.b_k;                                                        \
    [[maybe_unused]] const int64_t b_panel = t.b_panel;                                            \
    const int64_t ahead = t.ahead;                                                                 \
    int64_t a_at = 0;                                                                              \
    for (int64_t k = t.k; k > 0; --k) {                                                            \
      VECS(FG_LOAD_B, _)                                                                           \
      __builtin_prefetch(b + ahead, 0, 2);                                                         \
      ROWS(FG_ROW_STEP, VECS)                                                                      \
      a_at += a_k;                                                                                 \
      b += b_k;                                                                                    \
    }                                                                                              \
    ROWS(FG_ROW_END, VECS)                                                                         \
  }

// TILE_ROWS rows fill the registers. `narrow` are tiles of one panel; `wide`
// have WIDE_PANELS[rows] panels, so that few rows also keep enough sums in flight.
// FG_NARROW_LADDER(F) and FG_WIDE_LADDER(F) name them all: rows, and vectors of a row.
#if FG_ISA == 4
constexpr int TILE_ROWS = 12;
constexpr int WIDE_ROWS = 12;
constexpr int WIDE_PANELS[] = {0, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2};
#define FG_NARROW_LADDER(F)                                                                        \
  F(1, 1) F(2, 1) F(3, 1) F(4, 1) F(5, 1) F(6, 1) F(7, 1) F(8, 1) F(9, 1) F(10, 1) F(11, 1) F(12, 1)
#define FG_WIDE_LADDER(F)                                                                          \
  F(1, 4) F(2, 4) F(3, 4) F(4, 2) F(5, 2) F(6, 2) F(7, 2) F(8, 2) F(9, 2) F(10, 2) F(11, 2) F(12, 2)
#elif FG_ISA == 3
constexpr int TILE_ROWS = 6;
constexpr int WIDE_ROWS = 3;
constexpr int WIDE_PANELS[] = {0, 4, 2, 2};
#define FG_NARROW_LADDER(F) F(1, 2) F(2, 2) F(3, 2) F(4, 2) F(5, 2) F(6, 2)
#define FG_WIDE_LADDER(F) F(1, 8) F(2, 4) F(3, 4)
#elif FG_ISA == 2  // sixteen registers of four lanes
constexpr int TILE_ROWS = 3;
constexpr int WIDE_ROWS = 1;
constexpr int WIDE_PANELS[] = {0, 2};
#define FG_NARROW_LADDER(F) F(1, 4) F(2, 4) F(3, 4)
#define FG_WIDE_LADDER(F) F(1, 8)
#else  // thirty-two registers of four lanes
constexpr int TILE_ROWS = 6;
constexpr int WIDE_ROWS = 3;
constexpr int WIDE_PANELS[] = {0, 4, 2, 2};
#define FG_NARROW_LADDER(F) F(1, 4) F(2, 4) F(3, 4) F(4, 4) F(5, 4) F(6, 4)
#define FG_WIDE_LADDER(F) F(1, 16) F(2, 8) F(3, 8)
#endif

#define FG_NARROW_TILE(R, V) FG_TILE(tile_##R, FG_ROWS_##R, FG_VECS_##V)
#define FG_WIDE_TILE(R, V) FG_TILE(wide_##R, FG_ROWS_##R, FG_VECS_##V)
#define FG_NARROW_NAME(R, V) tile_##R,
#define FG_WIDE_NAME(R, V) wide_##R,
FG_NARROW_LADDER(FG_NARROW_TILE)
FG_WIDE_LADDER(FG_WIDE_TILE)
constexpr TileFn NARROW_TILES[] = {nullptr, FG_NARROW_LADDER(FG_NARROW_NAME)};
constexpr TileFn WIDE_TILES[] = {nullptr, FG_WIDE_LADDER(FG_WIDE_NAME)};

constexpr int MAX_TILE_PANELS = 4;

}  // namespace
}  // namespace FG_NS

#endif
