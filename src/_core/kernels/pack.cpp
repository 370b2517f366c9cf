// Operands of matmul kernels brought into the order in which those read them.
#include "fg_kernel.h"
#include "matmul_pack.h"

namespace FG_NS {
namespace {

// Run once, in the set program, for every weight that a matmul streams.
void pack_weight(const fg_call *call) {
  const int64_t *const p = call->params;
  float *const y = (float *)call->args[0];
  const float *const w = (const float *)call->args[1];
  const int64_t k = p[PACK_K], n = p[PACK_N];
  const Slice panels = fg_slice((n + PANEL - 1) / PANEL, call->part, call->nparts);
  for (int64_t panel = panels.begin; panel < panels.end; panel++) {
    const int64_t column = panel * PANEL;
    pack_panel(y + column * k, w + column * p[PACK_COLUMN], p[PACK_W_K], p[PACK_COLUMN], k,
               at_most(PANEL, n - column));
  }
}

// [matrices][K][M] -> [matrices][M][K] for a large x given transposed, whose columns would be read
// with a stride over and over.
void transpose_x(const fg_call *call) {
  const int64_t *const p = call->params;
  const int64_t m = p[TRANSPOSE_M], k = p[TRANSPOSE_K];
  const int64_t strips = (m + PANEL - 1) / PANEL;
  const Slice slice = fg_slice(p[TRANSPOSE_MATRICES] * strips, call->part, call->nparts);
  for (int64_t at = slice.begin; at < slice.end; at++) {
    const int64_t matrix = at / strips, row = at % strips * PANEL;
    const int64_t rows = at_most(PANEL, m - row);
    float *const y = (float *)call->args[0] + matrix * m * k + row * k;
    const float *const x = (const float *)call->args[1] + matrix * m * k + row;
    const int64_t quad_rows = rows / 4 * 4, quad_k = k / 4 * 4;
    for (int64_t j = 0; j < quad_k; j += 4)
      for (int64_t i = 0; i < quad_rows; i += 4) transpose_quad(y + i * k + j, k, x + j * m + i, m);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = i < quad_rows ? quad_k : 0; j < k; j++) y[i * k + j] = x[j * m + i];
  }
}

}  // namespace

extern const fg_entry pack_entries[] = {
    {"pack_weight", pack_weight}, {"transpose_x", transpose_x}, {nullptr, nullptr}};

}  // namespace FG_NS
