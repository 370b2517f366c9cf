// Softmax and the norms in float64; operands and params as in normalize.cpp.
#include <math.h>

#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

// One line of n elements, `step` apart. NaN, +inf or only -inf in it make all of it NaN.
FG_INLINE void softmax_line(double *out, const double *x, int64_t n, int64_t step) {
  double largest = -__builtin_inf(), total = 0.0;
  for (int64_t i = 0; i < n; i++) {
    const double v = x[i * step];
    largest = v > largest ? v : largest;
  }
  for (int64_t i = 0; i < n; i++) {
    const double e = exp(x[i * step] - largest);
    out[i * step] = e;
    total += e;
  }
  for (int64_t i = 0; i < n; i++) out[i * step] /= total;
}

void softmax(const fg_call *call) {
  const int64_t outer = call->params[0], n = call->params[1], inner = call->params[2];
  const int64_t chunk = call->params[3], chunks = (inner + chunk - 1) / chunk;
  double *out = (double *)call->args[0];
  const double *x = (const double *)call->args[1];
  const Slice mine = fg_slice(outer * chunks, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t first = unit % chunks * chunk, block = unit / chunks * n * inner;
    const int64_t end = first + chunk < inner ? first + chunk : inner;
    for (int64_t i = first; i < end; i++) softmax_line(out + block + i, x + block + i, n, inner);
  }
}

enum { WITH_RESIDUAL = 1, WITH_WEIGHT = 2, WITH_BIAS = 4, WITH_SUM = 8 };

template <bool CENTER>
void norm(const fg_call *call) {
  const int64_t rows = call->params[0], n = call->params[1], flags = call->params[3];
  double eps;
  memcpy(&eps, &call->params[2], 8);
  void *const *arg = call->args;
  double *y = (double *)*arg++;
  double *sums = flags & WITH_SUM ? (double *)*arg++ : y;
  const double *x = (const double *)*arg++;
  const double *residual = flags & WITH_RESIDUAL ? (const double *)*arg++ : nullptr;
  const double *weight = flags & WITH_WEIGHT ? (const double *)*arg++ : nullptr;
  const double *bias = flags & WITH_BIAS ? (const double *)*arg++ : nullptr;
  const Slice mine = fg_slice(rows, call->part, call->nparts);
  for (int64_t row = mine.begin; row < mine.end; row++) {
    const int64_t at = row * n;
    const double *from = x + at;
    double *to = y + at;
    if (residual) {
      double *sum = sums + at;
      for (int64_t i = 0; i < n; i++) sum[i] = from[i] + residual[at + i];
      from = sum;
    }
    double center = 0.0, power = 0.0;
    if (CENTER) {
      for (int64_t i = 0; i < n; i++) center += from[i];
      center /= (double)n;
    }
    for (int64_t i = 0; i < n; i++) power += (from[i] - center) * (from[i] - center);
    const double scale = 1.0 / __builtin_sqrt(power / (double)n + eps);
    for (int64_t i = 0; i < n; i++) {
      double v = (from[i] - center) * scale;
      v = weight ? v * weight[i] : v;
      to[i] = bias ? v + bias[i] : v;
    }
  }
}

}  // namespace

extern const fg_entry normalize_double_entries[] = {
    {"softmax_f64", softmax},
    {"layer_norm_f64", norm<true>},
    {"rms_norm_f64", norm<false>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
