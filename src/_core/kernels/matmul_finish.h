// The end of a matmul tile: y = act(sums) [+ residual], and the tiles that overhang N.
#ifndef FG_MATMUL_FINISH_H
#define FG_MATMUL_FINISH_H

#include "matmul_params.h"
#include "vmath.h"

namespace FG_NS {
namespace {

template <int ACTIVATION>
FG_INLINE vf activate(vf x) {
  if (ACTIVATION == ACT_RELU) return vrelu(x);
  if (ACTIVATION == ACT_GELU) return vgelu(x);
  if (ACTIVATION == ACT_GELU_TANH) return vgelu_tanh(x);
  if (ACTIVATION == ACT_SILU) return vsilu(x);
  if (ACTIVATION == ACT_SIGMOID) return vsigmoid(x);
  if (ACTIVATION == ACT_TANH) return vtanh(x);
  return x;
}

// `sums` is a tile of rows x columns; `residual` is laid out as y is, or is null.
struct Finish {
  const float *sums;
  int64_t sums_row;
  int64_t rows, columns;
  float *y;
  const float *residual;
  int64_t y_row;
};

template <int ACTIVATION, bool RESIDUAL>
void finish_tile(const Finish &f) {
  for (int64_t r = 0; r < f.rows; r++) {
    const float *const sums = f.sums + r * f.sums_row;
    float *const y = f.y + r * f.y_row;
    const float *const residual = RESIDUAL ? f.residual + r * f.y_row : nullptr;
    int64_t c = 0;
    for (; c + FG_VW <= f.columns; c += FG_VW) {
      vf v = activate<ACTIVATION>(vload(sums + c));
      if (RESIDUAL) v += vload(residual + c);
      vstore(y + c, v);
    }
    if (c < f.columns) {  // sums has whole vectors
      vf v = activate<ACTIVATION>(vload(sums + c));
      if (RESIDUAL) v += vload_n(residual + c, f.columns - c);
      vstore_n(y + c, v, f.columns - c);
    }
  }
}

typedef void (*FinishFn)(const Finish &);

// By activation, then by whether a residual comes after it.
constexpr FinishFn FINISH[][2] = {
    {finish_tile<ACT_NONE, false>, finish_tile<ACT_NONE, true>},
    {finish_tile<ACT_RELU, false>, finish_tile<ACT_RELU, true>},
    {finish_tile<ACT_GELU, false>, finish_tile<ACT_GELU, true>},
    {finish_tile<ACT_GELU_TANH, false>, finish_tile<ACT_GELU_TANH, true>},
    {finish_tile<ACT_SILU, false>, finish_tile<ACT_SILU, true>},
    {finish_tile<ACT_SIGMOID, false>, finish_tile<ACT_SIGMOID, true>},
    {finish_tile<ACT_TANH, false>, finish_tile<ACT_TANH, true>},
};

}  // namespace
}  // namespace FG_NS

#endif
