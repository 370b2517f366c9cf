// y = act(x @ w + bias [+ residual]) [+ residual], with w packed beforehand or a run-time operand.
//
// Blocks of y are independent of each other and every sum runs along K in one fixed order, so the
// result's bits depend on the shape alone, not on the parts. Between blocks of K the partial sums
// lie in y; activation and residual come in the last block, while the tile is in L1.
#include "fg_kernel.h"
#include "matmul_finish.h"
#include "matmul_gemv.h"
#include "matmul_pack.h"
#include "matmul_tile.h"

namespace FG_NS {
namespace {

struct Matmul {
  int64_t m, n, k;
  const float *x;
  int64_t x_row, x_k;
  const float *w;
  int64_t w_k, w_column;
  bool packed;
  float *y;
  const float *bias, *residual;
  int64_t residual_mode, activation, k_block;
};

struct Block {
  int64_t row, rows_end, column, columns_end;
};

constexpr int64_t M_BLOCK = 384;  // rows that panels pass by before the next panels come
constexpr int64_t GROUP = 6144;   // floats of panels that stay in L1 while the rows pass by
constexpr int64_t DOT_ROWS = 3;   // up to so many rows, transposing w costs more than it saves
constexpr int64_t ROWS_ROWS = 4;  // likewise for packing w
constexpr int64_t IN_PLACE_ROWS =
    2 * TILE_ROWS;  // and for more rows than these tiles read w itself
constexpr int64_t GEMV_COLUMNS = 1024;
static_assert(DOT_ROWS <= ROWS_ROWS, "run_gemv keeps the sums of ROWS_ROWS rows");

alignas(64) const float ZEROS[MAX_TILE_PANELS * PANEL] = {};

// The values that sums begin with, `columns` of row `row`, into `sums`.
void begin_row(const Matmul &mm, float *sums, int64_t row, int64_t column, int64_t columns) {
  const float *const bias = mm.bias ? mm.bias + column : nullptr;
  const float *const residual =
      mm.residual_mode == RESIDUAL_BEFORE ? mm.residual + row * mm.n + column : nullptr;
  int64_t c = 0;
  for (; c + FG_VW <= columns; c += FG_VW) {
    vf v = bias ? vload(bias + c) : vf{};
    if (residual) v += vload(residual + c);
    vstore(sums + c, v);
  }
  for (; c < columns; c++) sums[c] = (bias ? bias[c] : 0.0f) + (residual ? residual[c] : 0.0f);
}

// One block of K: sums come from bias and residual in the first one, from y in the others, and go
// to y, in the last one by way of activation and residual.
struct Pass {
  int64_t k;
  bool first, last;
};

// One tile of one pass; `t` holds all but where sums come from and go to. A whole tile goes straight
// from bias or y to y where it can; others go by way of `sums`.
FG_INLINE void run_tile(const Matmul &mm, const Pass &pass, TileFn tile, Tile &t, int64_t row,
                        int64_t rows, int64_t column, int64_t width) {
  alignas(64) float sums[TILE_ROWS * MAX_TILE_PANELS * PANEL];
  const int64_t columns = at_most(width, mm.n - column);
  const bool whole = columns == width;
  float *const y = mm.y + row * mm.n + column;
  t.init = sums;
  t.init_row = width;
  if (pass.first && mm.residual_mode == RESIDUAL_BEFORE) {
    for (int64_t r = 0; r < rows; r++) begin_row(mm, sums + r * width, row + r, column, columns);
  } else if (pass.first) {
    t.init_row = 0;
    if (!mm.bias)
      t.init = ZEROS;
    else if (whole)
      t.init = mm.bias + column;
    else
      begin_row(mm, sums, row, column, columns);
  } else if (whole) {
    t.init = y;
    t.init_row = mm.n;
  } else {
    for (int64_t r = 0; r < rows; r++)
      memcpy(sums + r * width, y + r * mm.n, columns * sizeof(float));
  }
  const bool after = pass.last && mm.residual_mode == RESIDUAL_AFTER;
  const int64_t activation = pass.last ? mm.activation : (int64_t)ACT_NONE;
  const bool straight = whole && !after && activation == ACT_NONE;
  t.out = straight ? y : sums;
  t.out_row = straight ? mm.n : width;
  tile(t);
  if (!straight)
    FINISH[activation][after](
        {sums, width, rows, columns, y, after ? mm.residual + row * mm.n + column : nullptr, mm.n});
}

// Rows [row, rows_end), dealt evenly to tiles, against the panels of columns [column, columns_end).
// `t` holds k, a_k, a_row and the panels.
void run_group(const Matmul &mm, const Pass &pass, Tile &t, int64_t row, int64_t rows_end,
               int64_t column, int64_t columns_end, int64_t wide) {
  const float *const panels = t.b;
  const int64_t all = rows_end - row, tiles = (all + TILE_ROWS - 1) / TILE_ROWS;
  const int64_t fewest = all / tiles, with_more = all % tiles;
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t rows = fewest + (i < with_more);
    const TileFn wide_tile = mm.m == 1 ? gemv_wide : wide > 1 ? WIDE_TILES[rows] : nullptr;
    const TileFn narrow_tile = mm.m == 1 ? gemv_narrow : NARROW_TILES[rows];
    t.a = mm.x + row * mm.x_row + pass.k * mm.x_k;
    t.b = panels;
    for (int64_t c = column; c < columns_end;) {
      const bool is_wide = wide > 1 && c + wide * PANEL <= columns_end;
      const int64_t step = is_wide ? wide : 1;
      run_tile(mm, pass, is_wide ? wide_tile : narrow_tile, t, row, rows, c, step * PANEL);
      c += step * PANEL;
      t.b += step * t.b_panel;
    }
    row += rows;
    t.ahead = 0;
  }
}

int64_t panels_at_once(const Matmul &mm, int64_t rows) {
  if (mm.m == 1) return GEMV_PANELS;
  const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  const int64_t largest = (rows + tiles - 1) / tiles;
  return largest <= WIDE_ROWS ? WIDE_PANELS[largest] : 1;
}

void run_tiles(const Matmul &mm, const Block &block) {
  // Panels of a run-time operand, made anew for each block of rows.
  alignas(64) float room[MAX_K_BLOCK * PANEL];
  const int64_t all = block.rows_end - block.row, blocks = (all + M_BLOCK - 1) / M_BLOCK;
  int64_t row = block.row;
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t rows = (block.rows_end - row) / (blocks - i), rows_end = row + rows;
    const int64_t wide = panels_at_once(mm, rows);
    // Where the last panel is not whole it is packed, like those of many rows.
    const bool in_place = !mm.packed && mm.w_column == 1 && mm.m <= IN_PLACE_ROWS;
    Pass pass = {0, true, false};
    do {
      Tile t = {};
      t.k = at_most(mm.k_block, mm.k - pass.k);
      t.a_row = mm.x_row;
      t.a_k = mm.x_k;
      pass.first = pass.k == 0;
      pass.last = pass.k + t.k >= mm.k;
      const int64_t fit = at_least(1, GROUP / (at_least(1, t.k) * PANEL));
      const int64_t group = mm.packed ? at_least(wide, fit / wide * wide) : fit;
      for (int64_t column = block.column; column < block.columns_end;) {
        int64_t end = at_most(block.columns_end, column + group * PANEL);
        t.b_k = PANEL;
        t.ahead = 0;
        if (mm.packed) {
          t.b = mm.w + column * mm.k + pass.k * PANEL;
          t.b_panel = mm.k * PANEL;
          // A packed weight streams from memory: while the first rows meet these panels, the next
          // ones are on their way.
          t.ahead = (end - column) / PANEL * t.b_panel;
        } else if (in_place && column + PANEL <= mm.n) {
          end = at_most(end, mm.n / PANEL * PANEL);
          t.b = mm.w + column + pass.k * mm.w_k;
          t.b_k = mm.w_k;
          t.b_panel = PANEL;
        } else {
          t.b = room;
          t.b_panel = t.k * PANEL;
          float *panel = room;
          for (int64_t c = column; c < end; c += PANEL, panel += t.b_panel)
            pack_panel(panel, mm.w + c * mm.w_column + pass.k * mm.w_k, mm.w_k, mm.w_column, t.k,
                       at_most(PANEL, mm.n - c));
        }
        run_group(mm, pass, t, row, rows_end, column, end, wide);
        column = end;
      }
      pass.k += t.k;
    } while (pass.k < mm.k);
    row = rows_end;
  }
}

// Few rows of x against a run-time operand: nothing is packed, and a stretch of w serves all rows
// while it is in a near cache.
void run_gemv(const Matmul &mm, const Block &block) {
  alignas(64) float sums[ROWS_ROWS * GEMV_COLUMNS];
  const bool after = mm.residual_mode == RESIDUAL_AFTER;
  const int64_t rows = block.rows_end - block.row;
  const float *const x = mm.x + block.row * mm.x_row;
  const int64_t stretch = mm.w_column == 1 || rows == 1 ? GEMV_COLUMNS : PANEL;
  for (int64_t c = block.column; c < block.columns_end; c += stretch) {
    const int64_t columns = at_most(stretch, block.columns_end - c);
    for (int64_t r = 0; r < rows; r++)
      begin_row(mm, sums + r * GEMV_COLUMNS, block.row + r, c, columns);
    if (mm.w_column == 1)
      gemv_rows({sums, GEMV_COLUMNS, x, mm.x_row, mm.x_k, mm.w + c, mm.w_k, rows, mm.k, columns});
    else
      for (int64_t r = 0; r < rows; r++)
        gemv_columns(sums + r * GEMV_COLUMNS, x + r * mm.x_row, mm.w + c * mm.w_column, mm.w_column,
                     mm.k, columns);
    const int64_t at = block.row * mm.n + c;
    FINISH[mm.activation][after](
        {sums, GEMV_COLUMNS, rows, columns, mm.y + at, after ? mm.residual + at : nullptr, mm.n});
  }
}

void run_block(const Matmul &mm, const Block &block) {
  const bool few = mm.w_column == 1 ? mm.m <= ROWS_ROWS : mm.x_k == 1 && mm.m <= DOT_ROWS;
  if (!mm.packed && few)
    run_gemv(mm, block);
  else
    run_tiles(mm, block);
}

Matmul from_call(const fg_call *call) {
  const int64_t *const p = call->params;
  Matmul mm = {};
  mm.m = p[P_M], mm.n = p[P_N], mm.k = p[P_K];
  mm.x_row = p[P_X_ROW], mm.x_k = p[P_X_K];
  mm.activation = p[P_ACTIVATION];
  mm.residual_mode = p[P_RESIDUAL];
  mm.k_block = p[P_K_BLOCK];
  mm.y = (float *)call->args[0];
  mm.x = (const float *)call->args[1];
  mm.w = (const float *)call->args[2];
  if (p[P_BIAS]) mm.bias = (const float *)call->args[3];
  if (p[P_RESIDUAL]) mm.residual = (const float *)call->args[3 + p[P_BIAS]];
  return mm;
}

// The units of work are blocks of P_M_STEP x P_N_STEP, columns fastest.
void run_units(const Matmul &mm, const int64_t *p, int64_t begin, int64_t end) {
  const int64_t across = (mm.n + p[P_N_STEP] - 1) / p[P_N_STEP];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit / across * p[P_M_STEP], column = unit % across * p[P_N_STEP];
    run_block(mm,
              {row, at_most(mm.m, row + p[P_M_STEP]), column, at_most(mm.n, column + p[P_N_STEP])});
  }
}

FG_INLINE int64_t units_of(const Matmul &mm, const int64_t *p) {
  return ((mm.m + p[P_M_STEP] - 1) / p[P_M_STEP]) * ((mm.n + p[P_N_STEP] - 1) / p[P_N_STEP]);
}

void matmul_packed(const fg_call *call) {
  Matmul mm = from_call(call);
  mm.packed = true;
  const Slice slice = fg_slice(units_of(mm, call->params), call->part, call->nparts);
  run_units(mm, call->params, slice.begin, slice.end);
}

void matmul(const fg_call *call) {
  const int64_t *const p = call->params, *const batch = p + P_BATCH_FIRST;
  const Matmul whole = from_call(call);
  const int64_t units = units_of(whole, p), dims = p[P_BATCH_DIMS];
  int64_t matrices = 1;
  for (int64_t d = 0; d < dims; d++) matrices *= batch[3 * d];
  const Slice slice = fg_slice(units * matrices, call->part, call->nparts);
  for (int64_t at = slice.begin; at < slice.end;) {
    const int64_t matrix = at / units, end = at_most(slice.end, (matrix + 1) * units);
    Matmul mm = whole;
    mm.w_k = p[P_W_K], mm.w_column = p[P_W_COLUMN];
    int64_t rest = matrix;
    for (int64_t d = dims - 1; d >= 0; d--) {
      const int64_t index = rest % batch[3 * d];
      rest /= batch[3 * d];
      mm.x += index * batch[3 * d + 1];
      mm.w += index * batch[3 * d + 2];
    }
    mm.y += matrix * mm.m * mm.n;
    if (mm.residual) mm.residual += matrix * mm.m * mm.n;
    run_units(mm, p, at - matrix * units, end - matrix * units);
    at = end;
  }
}

}  // namespace

extern const fg_entry matmul_entries[] = {
    {"matmul_packed", matmul_packed}, {"matmul", matmul}, {nullptr, nullptr}};

}  // namespace FG_NS
