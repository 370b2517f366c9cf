// Softmax over any axis, layer_norm and rms_norm over trailing axes.
#include "fg_kernel.h"
#include "sums.h"
#include "vmath.h"

namespace FG_NS {
namespace {

// One row: maximum, exponentials and their sum, scale. A row that holds NaN or +inf, or only -inf,
// comes out as NaN throughout, because its sum is NaN.
FG_INLINE void softmax_row(float *out, const float *x, int64_t n) {
  const float lowest = -__builtin_inff();
  vf m0 = vset(lowest), m1 = m0;
  int64_t i = 0;
  for (; i + 2 * FG_VW <= n; i += 2 * FG_VW) {
    m0 = vmax(vload(x + i), m0);
    m1 = vmax(vload(x + i + FG_VW), m1);
  }
  for (; i + FG_VW <= n; i += FG_VW) m0 = vmax(vload(x + i), m0);
  float largest = vhmax(vmax(m0, m1));
  for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;

  // In blocks, as sums.h does it, so that long rows do not lose.
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
    const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
    vf s0 = {}, s1 = {};
    for (i = begin; i + 2 * FG_VW <= end; i += 2 * FG_VW) {
      vf e0 = vexp_nonpositive(vload(x + i) - largest),
         e1 = vexp_nonpositive(vload(x + i + FG_VW) - largest);
      vstore(out + i, e0);
      vstore(out + i + FG_VW, e1);
      s0 += e0;
      s1 += e1;
    }
    for (; i + FG_VW <= end; i += FG_VW) {
      vf e = vexp_nonpositive(vload(x + i) - largest);
      vstore(out + i, e);
      s0 += e;
    }
    float sum = vhsum(s0 + s1);
    if (i < end) {
      vf e = vexp_nonpositive(vload_n(x + i, end - i) - largest);
      vstore_n(out + i, e, end - i);
      for (int64_t j = 0; j < end - i; j++) sum += e[j];
    }
    total += sum;
  }
  const float scale = (float)(1.0 / total);
  for (i = 0; i + FG_VW <= n; i += FG_VW) vstore(out + i, vload(out + i) * scale);
  for (; i < n; i++) out[i] *= scale;
}

enum { MAX_CHUNK = 256, ROW_BLOCK = 128 };

// params: outer size, axis size, inner size, columns a unit (at most MAX_CHUNK).
void softmax(const fg_call *call) {
  const int64_t outer = call->params[0], n = call->params[1], inner = call->params[2];
  const int64_t chunk = call->params[3], chunks = (inner + chunk - 1) / chunk;
  float *out = (float *)call->args[0];
  const float *x = (const float *)call->args[1];
  const Slice mine = fg_slice(outer * chunks, call->part, call->nparts);
  if (inner == 1) {
    for (int64_t row = mine.begin; row < mine.end; row++)
      softmax_row(out + row * n, x + row * n, n);
    return;
  }
  float largest[MAX_CHUNK + FG_VW], sum[MAX_CHUNK + FG_VW];
  double total[MAX_CHUNK];
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t column = unit % chunks * chunk;
    const int64_t width = inner - column < chunk ? inner - column : chunk;
    const int64_t whole = width / FG_VW * FG_VW;
    const int64_t first = unit / chunks * n * inner + column;
    for (int64_t i = 0; i < width; i++)
      largest[i] = -__builtin_inff(), sum[i] = 0.0f, total[i] = 0.0;
    for (int64_t r = 0; r < n; r++) {
      const float *row = x + first + r * inner;
      for (int64_t i = 0; i < width; i++) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
    }
    for (int64_t r = 0; r < n; r++) {
      const float *row = x + first + r * inner;
      float *to = out + first + r * inner;
      for (int64_t i = 0; i < whole; i += FG_VW) {
        vf e = vexp_nonpositive(vload(row + i) - vload(largest + i));
        vstore(to + i, e);
        vstore(sum + i, vload(sum + i) + e);
      }
      if (whole < width) {
        const int64_t rest = width - whole;
        vf e = vexp_nonpositive(vload_n(row + whole, rest) - vload_n(largest + whole, rest));
        vstore_n(to + whole, e, rest);
        for (int64_t i = 0; i < rest; i++) sum[whole + i] += e[i];
      }
      if (r % ROW_BLOCK == ROW_BLOCK - 1 || r == n - 1)
        for (int64_t i = 0; i < width; i++) total[i] += sum[i], sum[i] = 0.0f;
    }
    for (int64_t i = 0; i < width; i++) sum[i] = (float)(1.0 / total[i]);
    for (int64_t r = 0; r < n; r++) {
      float *to = out + first + r * inner;
      for (int64_t i = 0; i < width; i++) to[i] *= sum[i];
    }
  }
}

// params: rows, row length, bits of eps (double), flags. Operands: y, then x + residual where
// WITH_SUM; x, then residual, weight, bias where their flags are set. y and the sum may be x or
// the residual: the sum is written element by element before y is.
enum { WITH_RESIDUAL = 1, WITH_WEIGHT = 2, WITH_BIAS = 4, WITH_SUM = 8 };

template <bool CENTER>
void norm(const fg_call *call) {
  const int64_t rows = call->params[0], n = call->params[1], flags = call->params[3];
  double eps;
  memcpy(&eps, &call->params[2], 8);
  void *const *arg = call->args;
  float *y = (float *)*arg++;
  float *sums = flags & WITH_SUM ? (float *)*arg++ : y;
  const float *x = (const float *)*arg++;
  const float *residual = flags & WITH_RESIDUAL ? (const float *)*arg++ : nullptr;
  const float *weight = flags & WITH_WEIGHT ? (const float *)*arg++ : nullptr;
  const float *bias = flags & WITH_BIAS ? (const float *)*arg++ : nullptr;
  const Slice mine = fg_slice(rows, call->part, call->nparts);
  for (int64_t row = mine.begin; row < mine.end; row++) {
    const int64_t at = row * n;
    const float *from = x + at;
    float *to = y + at;
    if (residual) {
      float *sum = sums + at;
      const float *r = residual + at;
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) sum[i] = from[i] + r[i];
      from = sum;
    }
    // A mean in float is not exact where it is large against the spread; deviations from it are,
    // nearly, so their own mean corrects it.
    float center = 0.0f;
    double shift = 0.0, power;
    if (CENTER) {
      center = (float)(sum_of<false>(from, n) / (double)n);
      double sum, squares;
      sum_deviations(from, n, center, &sum, &squares);
      shift = sum / (double)n;
      power = squares / (double)n - shift * shift;
      power = power < 0.0 ? 0.0 : power;
    } else {
      power = sum_of<true>(from, n) / (double)n;
    }
    const double inverse = 1.0 / __builtin_sqrt(power + eps);
    const float scale = (float)inverse, offset = (float)(-shift * inverse);
    int64_t i = 0;
#define FG_NORM(expr, tail)                                                                        \
  for (; i + FG_VW <= n; i += FG_VW) {                                                             \
    vf v = (vload(from + i) - center) * scale + offset;                                            \
    vstore(to + i, expr);                                                                          \
  }                                                                                                \
  for (; i < n; i++) {                                                                             \
    float v = (from[i] - center) * scale + offset;                                                 \
    to[i] = tail;                                                                                  \
  }
    if (weight && bias) {
      FG_NORM(v * vload(weight + i) + vload(bias + i), v * weight[i] + bias[i])
    } else if (weight) {
      FG_NORM(v * vload(weight + i), v * weight[i])
    } else if (bias) {
      FG_NORM(v + vload(bias + i), v + bias[i])
    } else {
      FG_NORM(v, v)
    }
#undef FG_NORM
  }
}

}  // namespace

extern const fg_entry normalize_entries[] = {
    {"softmax", softmax},
    {"layer_norm", norm<true>},
    {"rms_norm", norm<false>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
