// Pairs of elements rotated by the angles of their position.
#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

// The words of `params`, in this order. `index` is the item size of positions, 0 without any.
struct Rotary {
  int64_t batch, middle[2], length;  // x is batch, two axes, elements
  int64_t half;                      // pairs
  int64_t interleaved, rows_first;
  int64_t angle_batch;            // elements of cos and sin between batches, or 0
  int64_t index, position_batch;  // positions between batches, or 0
  int64_t angles;                 // rows of cos and sin
};

template <typename T>
FG_INLINE void rotate(T *out, const T *x, const T *cos, const T *sin, const Rotary &r) {
  const int64_t half = r.half;
  if (r.interleaved) {
    for (int64_t i = 0; i < half; i++) {
      const T a = x[2 * i], b = x[2 * i + 1];
      out[2 * i] = a * cos[i] - b * sin[i];
      out[2 * i + 1] = a * sin[i] + b * cos[i];
    }
  } else {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < half; i++) {
      const T a = x[i], b = x[half + i];
      out[i] = a * cos[i] - b * sin[i];
      out[half + i] = a * sin[i] + b * cos[i];
    }
  }
  if (out != x)
    for (int64_t i = 2 * half; i < r.length; i++) out[i] = x[i];
}

// Operands: out, x, cos, sin, then positions; out may be x. A position out of range gives zeros and
// a fault.
template <typename T>
void rotary_embedding(const fg_call *call) {
  Rotary r;
  memcpy(&r, call->params, sizeof r);
  T *out = (T *)call->args[0];
  const T *x = (const T *)call->args[1];
  const T *cos = (const T *)call->args[2], *sin = (const T *)call->args[3];
  const void *positions = r.index ? call->args[4] : nullptr;
  const Slice mine = fg_slice(r.batch * r.middle[0] * r.middle[1], call->part, call->nparts);
  int64_t inner = mine.begin % r.middle[1], outer = mine.begin / r.middle[1] % r.middle[0];
  int64_t batch = mine.begin / r.middle[1] / r.middle[0];
  for (int64_t row = mine.begin; row < mine.end; row++) {
    const int64_t position = r.rows_first ? outer : inner;
    int64_t at = position;
    if (positions) {
      const int64_t i = batch * r.position_batch + position;
      at = r.index == 8 ? ((const int64_t *)positions)[i] : ((const int32_t *)positions)[i];
    }
    if (at < 0 || at >= r.angles) {
      memset(out + row * r.length, 0, (size_t)r.length * sizeof(T));
      fg_fault(call);
    } else {
      const int64_t angle = batch * r.angle_batch + at * r.half;
      rotate(out + row * r.length, x + row * r.length, cos + angle, sin + angle, r);
    }
    if (++inner == r.middle[1]) {
      inner = 0;
      if (++outer == r.middle[0]) outer = 0, batch++;
    }
  }
}

}  // namespace

extern const fg_entry rotary_entries[] = {
    {"rotary_embedding_f32", rotary_embedding<float>},
    {"rotary_embedding_f64", rotary_embedding<double>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
