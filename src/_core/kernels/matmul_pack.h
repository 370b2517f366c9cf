// Panels of the second operand: [K][16], columns beyond N are zeros.
#ifndef FG_MATMUL_PACK_H
#define FG_MATMUL_PACK_H

#include "matmul_params.h"
#include "vec.h"

namespace FG_NS {
namespace {

typedef float Quad __attribute__((vector_size(16)));
typedef int32_t QuadIndex __attribute__((vector_size(16)));

FG_INLINE Quad quad_load(const float *p) {
  Quad v;
  memcpy(&v, p, sizeof v);
  return v;
}

// A block of 4 x 4, `to[j][i] = from[i][j]`.
FG_INLINE void transpose_quad(float *to, int64_t to_row, const float *from, int64_t from_row) {
  const Quad a = quad_load(from), b = quad_load(from + from_row);
  const Quad c = quad_load(from + 2 * from_row), d = quad_load(from + 3 * from_row);
  const QuadIndex low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
  const QuadIndex first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
  const Quad ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
  const Quad ef = __builtin_shuffle(a, b, high), gh = __builtin_shuffle(c, d, high);
  const Quad rows[] = {__builtin_shuffle(ab, cd, first), __builtin_shuffle(ab, cd, second),
                       __builtin_shuffle(ef, gh, first), __builtin_shuffle(ef, gh, second)};
  memcpy(to, &rows[0], 16);
  memcpy(to + to_row, &rows[1], 16);
  memcpy(to + 2 * to_row, &rows[2], 16);
  memcpy(to + 3 * to_row, &rows[3], 16);
}

// `columns` <= 16 columns of `k` rows; w is the first of them.
void pack_panel(float *panel, const float *w, int64_t w_k, int64_t w_column, int64_t k,
                int64_t columns) {
  if (columns == PANEL && w_column == 1) {
    for (int64_t i = 0; i < k; i++) memcpy(panel + i * PANEL, w + i * w_k, PANEL * sizeof(float));
    return;
  }
  if (columns == PANEL && w_k == 1) {
    int64_t i = 0;
    for (; i + 4 <= k; i += 4)
      for (int64_t c = 0; c < PANEL; c += 4)
        transpose_quad(panel + i * PANEL + c, PANEL, w + i + c * w_column, w_column);
    for (; i < k; i++)
      for (int64_t c = 0; c < PANEL; c++) panel[i * PANEL + c] = w[i + c * w_column];
    return;
  }
  for (int64_t i = 0; i < k; i++) {
    for (int64_t c = 0; c < columns; c++) panel[i * PANEL + c] = w[i * w_k + c * w_column];
    for (int64_t c = columns; c < PANEL; c++) panel[i * PANEL + c] = 0.0f;
  }
}

}  // namespace
}  // namespace FG_NS

#endif
