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
#if FG_ISA == 4
constexpr int TILE_ROWS = 12;
constexpr int WIDE_ROWS = 12;
constexpr int WIDE_PANELS[] = {0, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2};
FG_TILE(tile_1, FG_ROWS_1, FG_VECS_1)
FG_TILE(tile_2, FG_ROWS_2, FG_VECS_1)
FG_TILE(tile_3, FG_ROWS_3, FG_VECS_1)
FG_TILE(tile_4, FG_ROWS_4, FG_VECS_1)
FG_TILE(tile_5, FG_ROWS_5, FG_VECS_1)
FG_TILE(tile_6, FG_ROWS_6, FG_VECS_1)
FG_TILE(tile_7, FG_ROWS_7, FG_VECS_1)
FG_TILE(tile_8, FG_ROWS_8, FG_VECS_1)
FG_TILE(tile_9, FG_ROWS_9, FG_VECS_1)
FG_TILE(tile_10, FG_ROWS_10, FG_VECS_1)
FG_TILE(tile_11, FG_ROWS_11, FG_VECS_1)
FG_TILE(tile_12, FG_ROWS_12, FG_VECS_1)
FG_TILE(wide_1, FG_ROWS_1, FG_VECS_4)
FG_TILE(wide_2, FG_ROWS_2, FG_VECS_4)
FG_TILE(wide_3, FG_ROWS_3, FG_VECS_4)
FG_TILE(wide_4, FG_ROWS_4, FG_VECS_2)
FG_TILE(wide_5, FG_ROWS_5, FG_VECS_2)
FG_TILE(wide_6, FG_ROWS_6, FG_VECS_2)
FG_TILE(wide_7, FG_ROWS_7, FG_VECS_2)
FG_TILE(wide_8, FG_ROWS_8, FG_VECS_2)
FG_TILE(wide_9, FG_ROWS_9, FG_VECS_2)
FG_TILE(wide_10, FG_ROWS_10, FG_VECS_2)
FG_TILE(wide_11, FG_ROWS_11, FG_VECS_2)
FG_TILE(wide_12, FG_ROWS_12, FG_VECS_2)
constexpr TileFn NARROW_TILES[] = {nullptr, tile_1, tile_2, tile_3,  tile_4,  tile_5, tile_6,
                                   tile_7,  tile_8, tile_9, tile_10, tile_11, tile_12};
constexpr TileFn WIDE_TILES[] = {nullptr, wide_1, wide_2, wide_3,  wide_4,  wide_5, wide_6,
                                 wide_7,  wide_8, wide_9, wide_10, wide_11, wide_12};
#elif FG_ISA == 3
constexpr int TILE_ROWS = 6;
constexpr int WIDE_ROWS = 3;
constexpr int WIDE_PANELS[] = {0, 4, 2, 2};
FG_TILE(tile_1, FG_ROWS_1, FG_VECS_2)
FG_TILE(tile_2, FG_ROWS_2, FG_VECS_2)
FG_TILE(tile_3, FG_ROWS_3, FG_VECS_2)
FG_TILE(tile_4, FG_ROWS_4, FG_VECS_2)
FG_TILE(tile_5, FG_ROWS_5, FG_VECS_2)
FG_TILE(tile_6, FG_ROWS_6, FG_VECS_2)
FG_TILE(wide_1, FG_ROWS_1, FG_VECS_8)
FG_TILE(wide_2, FG_ROWS_2, FG_VECS_4)
FG_TILE(wide_3, FG_ROWS_3, FG_VECS_4)
constexpr TileFn NARROW_TILES[] = {nullptr, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};
constexpr TileFn WIDE_TILES[] = {nullptr, wide_1, wide_2, wide_3};
#elif FG_ISA == 2  // sixteen registers of four lanes
constexpr int TILE_ROWS = 3;
constexpr int WIDE_ROWS = 1;
constexpr int WIDE_PANELS[] = {0, 2};
FG_TILE(tile_1, FG_ROWS_1, FG_VECS_4)
FG_TILE(tile_2, FG_ROWS_2, FG_VECS_4)
FG_TILE(tile_3, FG_ROWS_3, FG_VECS_4)
FG_TILE(wide_1, FG_ROWS_1, FG_VECS_8)
constexpr TileFn NARROW_TILES[] = {nullptr, tile_1, tile_2, tile_3};
constexpr TileFn WIDE_TILES[] = {nullptr, wide_1};
#else              // thirty-two registers of four lanes
constexpr int TILE_ROWS = 6;
constexpr int WIDE_ROWS = 3;
constexpr int WIDE_PANELS[] = {0, 4, 2, 2};
FG_TILE(tile_1, FG_ROWS_1, FG_VECS_4)
FG_TILE(tile_2, FG_ROWS_2, FG_VECS_4)
FG_TILE(tile_3, FG_ROWS_3, FG_VECS_4)
FG_TILE(tile_4, FG_ROWS_4, FG_VECS_4)
FG_TILE(tile_5, FG_ROWS_5, FG_VECS_4)
FG_TILE(tile_6, FG_ROWS_6, FG_VECS_4)
FG_TILE(wide_1, FG_ROWS_1, FG_VECS_16)
FG_TILE(wide_2, FG_ROWS_2, FG_VECS_8)
FG_TILE(wide_3, FG_ROWS_3, FG_VECS_8)
constexpr TileFn NARROW_TILES[] = {nullptr, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};
constexpr TileFn WIDE_TILES[] = {nullptr, wide_1, wide_2, wide_3};
#endif

constexpr int MAX_TILE_PANELS = 4;

}  // namespace
}  // namespace FG_NS

#endif
