// Products whose rows choose their matrix. Rows are brought into the order of their matrices once;
// then each part computes some columns of all of them, so that parts are alike whatever is chosen.
#include "fg_kernel.h"
#include "matmul_tile.h"

namespace FG_NS {
namespace {

// params: rows, experts, item size of ids. Operands: groups, ids, a tap. groups holds where each
// expert's rows begin, experts + 1 numbers, then the rows in that order; last those without an
// expert. The tap, while its first word is not 0, counts from its third on for each expert the calls
// that gave it rows, and then for each its rows.
void group_rows(const fg_call *call) {
  const int64_t rows = call->params[0], experts = call->params[1];
  const bool wide = call->params[2] == 8;
  int64_t *starts = (int64_t *)call->args[0], *order = starts + experts + 1;
  const int64_t *ids64 = (const int64_t *)call->args[1];
  const int32_t *ids32 = (const int32_t *)call->args[1];
  memset(starts, 0, (size_t)(experts + 1) * sizeof(int64_t));
  for (int64_t i = 0; i < rows; i++) {
    const int64_t id = wide ? ids64[i] : ids32[i];
    if (id >= 0 && id < experts) starts[id + 1]++;
  }
  for (int64_t e = 0; e < experts; e++) starts[e + 1] += starts[e];
  int64_t lost = starts[experts];
  for (int64_t i = 0; i < rows; i++) {
    const int64_t id = wide ? ids64[i] : ids32[i];
    if (id >= 0 && id < experts) {
      order[starts[id]++] = i;
    } else {
      order[lost++] = i;
      fg_fault(call);
    }
  }
  // Each start has moved to the next one's place.
  for (int64_t e = experts; e > 0; e--) starts[e] = starts[e - 1];
  starts[0] = 0;
  uint64_t *tap = (uint64_t *)call->args[2], *calls = tap + 2, *counts = calls + experts;
  if (tap[0] == 0) return;
  for (int64_t e = 0; e < experts; e++) {
    const int64_t count = starts[e + 1] - starts[e];
    if (count == 0) continue;
    __atomic_fetch_add(calls + e, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(counts + e, (uint64_t)count, __ATOMIC_RELAXED);
  }
}

// params: rows, bytes of a row, experts. Operands: the rows in order, x, groups.
void gather_rows(const fg_call *call) {
  const int64_t rows = call->params[0], width = call->params[1];
  const int64_t *order = (const int64_t *)call->args[2] + call->params[2] + 1;
  const Slice mine = fg_slice(rows, call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++)
    memcpy((char *)call->args[0] + i * width, (const char *)call->args[1] + order[i] * width,
           (size_t)width);
}

// Fewer rows than this take a matrix as it lies; more have its panels brought together.
enum { FEW_ROWS = 4 };

// params: rows, k, n, experts, scratch floats a part. Operands: y, scratch, the rows in order, w,
// groups. Units are panels of 16 columns.
void grouped_matmul(const fg_call *call) {
  static const float zeros[MAX_TILE_PANELS * PANEL] = {};
  const int64_t rows = call->params[0], k = call->params[1], n = call->params[2];
  const int64_t experts = call->params[3];
  float *y = (float *)call->args[0];
  float *panel = (float *)call->args[1] + call->part * call->params[4];
  float *result = panel + k * PANEL;  // a tile, at most TILE_ROWS by MAX_TILE_PANELS panels
  const float *x = (const float *)call->args[2], *w = (const float *)call->args[3];
  const int64_t *starts = (const int64_t *)call->args[4], *order = starts + experts + 1;
  const Slice mine = fg_slice((n + PANEL - 1) / PANEL, call->part, call->nparts);
  const int64_t first = mine.begin * PANEL, end = at_most(n, mine.end * PANEL);
  for (int64_t e = 0; e < experts; e++) {
    const int64_t begin = starts[e], count = starts[e + 1] - begin;
    if (count == 0) continue;
    const float *matrix = w + e * k * n;
    for (int64_t column = first, step; column < end; column += step) {
      const bool few = count < FEW_ROWS && count <= WIDE_ROWS;
      int64_t panels = few ? WIDE_PANELS[count] : 1;
      if (column + panels * PANEL > n) panels = 1;
      step = panels * PANEL;
      const int64_t columns = at_most(step, n - column);
      Tile t = {};
      t.k = k;
      t.a_row = k, t.a_k = 1;
      t.b = matrix + column;
      t.b_k = n, t.b_panel = PANEL;
      t.init = zeros;
      t.out = result;
      t.out_row = step;
      if (columns < PANEL || count >= FEW_ROWS) {
        for (int64_t i = 0; i < k; i++) {
          if (columns < PANEL) memset(panel + i * PANEL, 0, PANEL * sizeof(float));
          memcpy(panel + i * PANEL, matrix + i * n + column, (size_t)columns * sizeof(float));
        }
        t.b = panel, t.b_k = PANEL;
      }
      for (int64_t r = 0; r < count; r += TILE_ROWS) {
        const int64_t some = at_most(TILE_ROWS, count - r);
        t.a = x + (begin + r) * k;
        (panels > 1 ? WIDE_TILES : NARROW_TILES)[some](t);
        for (int64_t i = 0; i < some; i++)
          memcpy(y + order[begin + r + i] * n + column, result + i * step,
                 (size_t)columns * sizeof(float));
      }
    }
  }
  for (int64_t i = starts[experts]; i < rows; i++)
    memset(y + order[i] * n + first, 0, (size_t)at_least(0, end - first) * sizeof(float));
}

// In double, as it comes: a part does a range of columns of every row.
void grouped_matmul_double(const fg_call *call) {
  const int64_t rows = call->params[0], k = call->params[1], n = call->params[2];
  const int64_t experts = call->params[3];
  double *y = (double *)call->args[0];
  const double *x = (const double *)call->args[2], *w = (const double *)call->args[3];
  const int64_t *starts = (const int64_t *)call->args[4], *order = starts + experts + 1;
  const Slice mine = fg_slice((n + PANEL - 1) / PANEL, call->part, call->nparts);
  const int64_t first = mine.begin * PANEL, end = at_most(n, mine.end * PANEL);
  for (int64_t i = 0; i < rows; i++)
    memset(y + i * n + first, 0, (size_t)at_least(0, end - first) * sizeof(double));
  for (int64_t e = 0; e < experts; e++)
    for (int64_t r = starts[e]; r < starts[e + 1]; r++) {
      double *to = y + order[r] * n;
      for (int64_t d = 0; d < k; d++) {
        const double factor = x[r * k + d], *row = w + (e * k + d) * n;
        _Pragma("GCC ivdep") for (int64_t c = first; c < end; c++) to[c] += factor * row[c];
      }
    }
}

}  // namespace

extern const fg_entry grouped_entries[] = {
    {"group_rows", group_rows},
    {"gather_rows", gather_rows},
    {"grouped_matmul_f32", grouped_matmul},
    {"grouped_matmul_f64", grouped_matmul_double},
    {nullptr, nullptr},
};

}  // namespace FG_NS
