// Reductions over any axes: sum, prod, max, min; argmax and argmin over one axis.
//
// The lowering merges axes and sorts them: kept and reduced outer axes with strides, and one
// innermost axis of stride 1 that is either reduced (runs) or kept (columns).
#include "sums.h"

#include "fg_kernel.h"

namespace FG_NS {
namespace {

// params: INNER_REDUCED, LENGTH of the innermost axis, CHUNK of columns a unit, COUNT (the mean's
// divisor, -1 for none), TOTAL (runs end there: the last may be shorter), number of kept and of
// reduced outer axes; then kept shape, kept strides, reduced shape, reduced strides.
enum { INNER_REDUCED, LENGTH, CHUNK, COUNT, TOTAL, N_KEPT, N_REDUCED, HEAD };
enum { MAX_RANK = 64, MAX_CHUNK = 512, ROW_BLOCK = 128 };

// An index over some axes, and the offset that it stands for.
struct Odometer {
  const int64_t *shape, *stride;
  int64_t rank, offset, index[MAX_RANK];

  void start(const int64_t *words, int64_t axes, int64_t at) {
    shape = words, stride = words + axes, rank = axes, offset = 0;
    for (int64_t d = axes - 1; d >= 0; d--) {
      index[d] = at % shape[d];
      at /= shape[d];
      offset += index[d] * stride[d];
    }
  }
  // False after the last index.
  bool next() {
    for (int64_t d = rank - 1; d >= 0; d--) {
      offset += stride[d];
      if (++index[d] < shape[d]) return true;
      offset -= shape[d] * stride[d];
      index[d] = 0;
    }
    return false;
  }
};

struct AutoVectorised {
  static constexpr bool vectors = false;
};
// An operation: T elements, A accumulator, R what a block of rows is gathered in (columns).
struct SumFloat : AutoVectorised {
  typedef float T;
  typedef double A;
  typedef float R;
  static constexpr A init = 0.0;
  static constexpr R row_init = 0.0f;
  FG_INLINE A run(A a, const T *x, int64_t n) { return a + sum_of<false>(x, n); }
  FG_INLINE R row(R a, T x) { return a + x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a + ((w + x) + (y + z)); }
  FG_INLINE A join(A a, R r) { return a + r; }
  FG_INLINE T finish(A a, int64_t count) { return (T)(count < 0 ? a : a / (double)count); }
};
// In double: no overflow on the way to a result that is in range.
struct ProdFloat : AutoVectorised {
  typedef float T;
  typedef double A;
  typedef double R;
  static constexpr A init = 1.0;
  static constexpr R row_init = 1.0;
  FG_INLINE A run(A a, const T *x, int64_t n) {
    double b = 1.0, c = 1.0, d = 1.0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) a *= x[i], b *= x[i + 1], c *= x[i + 2], d *= x[i + 3];
    for (; i < n; i++) a *= x[i];
    return (a * b) * (c * d);
  }
  FG_INLINE R row(R a, T x) { return a * x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a * w * x * y * z; }
  FG_INLINE A join(A a, R r) { return a * r; }
  FG_INLINE T finish(A a, int64_t) { return (T)a; }
};
struct SumDouble : AutoVectorised {
  typedef double T;
  typedef double A;
  typedef double R;
  static constexpr A init = 0.0;
  static constexpr R row_init = 0.0;
  // Blocks as in sums.h, each by eight sums side by side.
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
      const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
      double s[8] = {};
      int64_t i = begin;
      for (; i + 8 <= end; i += 8)
        for (int j = 0; j < 8; j++) s[j] += x[i + j];
      for (int j = 0; i < end; i++, j++) s[j] += x[i];
      a += ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
    return a;
  }
  FG_INLINE R row(R a, T x) { return a + x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a + ((w + x) + (y + z)); }
  FG_INLINE A join(A a, R r) { return a + r; }
  FG_INLINE T finish(A a, int64_t count) { return count < 0 ? a : a / (double)count; }
};
struct ProdDouble : AutoVectorised {
  typedef double T;
  typedef double A;
  typedef double R;
  static constexpr A init = 1.0;
  static constexpr R row_init = 1.0;
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) a *= x[i];
    return a;
  }
  FG_INLINE R row(R a, T x) { return a * x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a * w * x * y * z; }
  FG_INLINE A join(A a, R r) { return a * r; }
  FG_INLINE T finish(A a, int64_t) { return a; }
};
struct SumLong : AutoVectorised {
  typedef int64_t T;
  typedef uint64_t A;  // wraps
  typedef uint64_t R;
  static constexpr A init = 0;
  static constexpr R row_init = 0;
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) a += (A)x[i];
    return a;
  }
  FG_INLINE R row(R a, T x) { return a + (A)x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a + (R)w + (R)x + (R)y + (R)z; }
  FG_INLINE A join(A a, R r) { return a + r; }
  FG_INLINE T finish(A a, int64_t) { return (T)a; }
};
struct ProdLong : AutoVectorised {
  typedef int64_t T;
  typedef uint64_t A;
  typedef uint64_t R;
  static constexpr A init = 1;
  static constexpr R row_init = 1;
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) a *= (A)x[i];
    return a;
  }
  FG_INLINE R row(R a, T x) { return a * (A)x; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return a * (R)w * (R)x * (R)y * (R)z; }
  FG_INLINE A join(A a, R r) { return a * r; }
  FG_INLINE T finish(A a, int64_t) { return (T)a; }
};

// The larger (SIGN 1) or smaller (SIGN -1) of two; a NaN wins.
template <int SIGN>
FG_INLINE float choose(float a, float x) {
  return ((SIGN > 0 ? x > a : x < a) | (x != x)) ? x : a;
}
template <int SIGN>
FG_INLINE vf choose(vf a, vf x) {
  return (vi)(SIGN > 0 ? x > a : x < a) | (vi)(x != x) ? x : a;
}
template <int SIGN>
FG_INLINE float choose_run(float a, const float *x, int64_t n) {
  if (n < FG_VW) {
    for (int64_t i = 0; i < n; i++) a = choose<SIGN>(a, x[i]);
    return a;
  }
  vf a0 = vset(a), a1 = a0, a2 = a0, a3 = a0;
  int64_t i = 0;
  for (; i + 4 * FG_VW <= n; i += 4 * FG_VW) {
    a0 = choose<SIGN>(a0, vload(x + i));
    a1 = choose<SIGN>(a1, vload(x + i + FG_VW));
    a2 = choose<SIGN>(a2, vload(x + i + 2 * FG_VW));
    a3 = choose<SIGN>(a3, vload(x + i + 3 * FG_VW));
  }
  for (; i + FG_VW <= n; i += FG_VW) a0 = choose<SIGN>(a0, vload(x + i));
  a0 = choose<SIGN>(choose<SIGN>(a0, a1), choose<SIGN>(a2, a3));
  if (FG_VW > 8) a0 = choose<SIGN>(a0, vcross<8>(a0));
  if (FG_VW > 4) a0 = choose<SIGN>(a0, vcross<4>(a0));
  a0 = choose<SIGN>(a0, vcross<2>(a0));
  a = choose<SIGN>(a0, vcross<1>(a0))[0];
  for (; i < n; i++) a = choose<SIGN>(a, x[i]);
  return a;
}
template <int SIGN>
struct ChooseFloat {
  static constexpr bool vectors = true;  // the compiler leaves this chain of choices scalar
  FG_INLINE void rows_of_vectors(float *a, const float *w, const float *x, const float *y,
                                 const float *z) {
    vf v = choose<SIGN>(choose<SIGN>(vload(a), vload(w)), vload(x));
    vstore(a, choose<SIGN>(choose<SIGN>(v, vload(y)), vload(z)));
  }
  typedef float T;
  typedef float A;
  typedef float R;
  static constexpr A init = SIGN > 0 ? -__builtin_inff() : __builtin_inff();
  static constexpr R row_init = init;
  FG_INLINE A run(A a, const T *x, int64_t n) { return choose_run<SIGN>(a, x, n); }
  FG_INLINE R row(R a, T x) { return choose<SIGN>(a, x); }
  FG_INLINE R rows(R a, T w, T x, T y, T z) {
    return choose<SIGN>(choose<SIGN>(choose<SIGN>(choose<SIGN>(a, w), x), y), z);
  }
  FG_INLINE A join(A a, R r) { return choose<SIGN>(a, r); }
  FG_INLINE T finish(A a, int64_t) { return a; }
};
template <int SIGN>
struct ChooseDouble : AutoVectorised {
  typedef double T;
  typedef double A;
  typedef double R;
  static constexpr A init = SIGN > 0 ? -__builtin_inf() : __builtin_inf();
  static constexpr R row_init = init;
  FG_INLINE R row(R a, T x) { return ((SIGN > 0 ? x > a : x < a) | (x != x)) ? x : a; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return row(row(row(row(a, w), x), y), z); }
  FG_INLINE A join(A a, R r) { return row(a, r); }
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) a = row(a, x[i]);
    return a;
  }
  FG_INLINE T finish(A a, int64_t) { return a; }
};
template <typename TYPE, TYPE WORST, int SIGN>
struct ChooseInt : AutoVectorised {
  typedef TYPE T;
  typedef TYPE A;
  typedef TYPE R;
  static constexpr A init = WORST;
  static constexpr R row_init = WORST;
  FG_INLINE R row(R a, T x) { return (SIGN > 0 ? x > a : x < a) ? x : a; }
  FG_INLINE R rows(R a, T w, T x, T y, T z) { return row(a, row(row(w, x), row(y, z))); }
  FG_INLINE A join(A a, R r) { return row(a, r); }
  FG_INLINE A run(A a, const T *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) a = row(a, x[i]);
    return a;
  }
  FG_INLINE T finish(A a, int64_t) { return a; }
};

// Combine rows into what is gathered, element by element.
template <typename OP>
FG_INLINE void fold_row(typename OP::R *a, const typename OP::T *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] = OP::row(a[i], x[i]);
}
template <typename OP>
FG_INLINE void fold_rows(typename OP::R *a, const typename OP::T *w, const typename OP::T *x,
                         const typename OP::T *y, const typename OP::T *z, int64_t n) {
  int64_t i = 0;
  if constexpr (OP::vectors) {
    for (; i + FG_VW <= n; i += FG_VW) OP::rows_of_vectors(a + i, w + i, x + i, y + i, z + i);
  }
  for (; i < n; i++) a[i] = OP::rows(a[i], w[i], x[i], y[i], z[i]);
}

// Whether an axis that is reduced has no elements now: then there is nothing to walk over.
FG_INLINE bool is_empty(const int64_t *shape, int64_t rank) {
  for (int64_t d = 0; d < rank; d++)
    if (shape[d] == 0) return true;
  return false;
}

// Units are results: each reduces runs of LENGTH elements.
template <typename OP>
void reduce_runs(const fg_call *call, int64_t results) {
  typedef typename OP::T T;
  const int64_t *p = call->params, *kept = p + HEAD, *reduced = kept + 2 * p[N_KEPT];
  const Slice mine = fg_slice(results, call->part, call->nparts);
  T *out = (T *)call->args[0];
  const T *x = (const T *)call->args[1];
  Odometer at, over;
  at.start(kept, p[N_KEPT], mine.begin);
  for (int64_t i = mine.begin; i < mine.end; i++, at.next()) {
    typename OP::A a = OP::init;
    int64_t length = p[LENGTH];
    if (at.offset + length > p[TOTAL]) length = p[TOTAL] - at.offset;
    if (p[N_REDUCED] == 0) {
      a = OP::run(a, x + at.offset, length);
    } else if (!is_empty(reduced, p[N_REDUCED])) {
      over.start(reduced, p[N_REDUCED], 0);
      do a = OP::run(a, x + at.offset + over.offset, length);
      while (over.next());
    }
    out[i] = OP::finish(a, p[COUNT]);
  }
}

// Units are chunks of columns: rows are combined element by element, ROW_BLOCK of them at a time.
template <typename OP>
void reduce_columns(const fg_call *call, int64_t rows_out) {
  typedef typename OP::T T;
  const int64_t *p = call->params, *kept = p + HEAD, *reduced = kept + 2 * p[N_KEPT];
  const int64_t width = p[LENGTH], chunk = p[CHUNK], chunks = (width + chunk - 1) / chunk;
  const Slice mine = fg_slice(rows_out * chunks, call->part, call->nparts);
  typename OP::A total[MAX_CHUNK];
  typename OP::R gathered[MAX_CHUNK];
  Odometer at, over;
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t column = unit % chunks * chunk;
    const int64_t n = width - column < chunk ? width - column : chunk;
    at.start(kept, p[N_KEPT], unit / chunks);
    const bool some = !is_empty(reduced, p[N_REDUCED]);
    if (some) over.start(reduced, p[N_REDUCED], 0);
    const T *x = (const T *)call->args[1] + at.offset + column;
    T *out = (T *)call->args[0] + unit / chunks * width + column;
    for (int64_t i = 0; i < n; i++) total[i] = OP::init;
    for (bool more = some; more;) {
      for (int64_t i = 0; i < n; i++) gathered[i] = OP::row_init;
      // Four rows at a time: what is gathered is then loaded and stored a quarter as often.
      for (int64_t r = 0; r < ROW_BLOCK && more; r += 4) {
        const T *row[4];
        int rows = 0;
        while (more && rows < 4) {
          row[rows++] = x + over.offset;
          more = over.next();
        }
        if (rows == 4)
          fold_rows<OP>(gathered, row[0], row[1], row[2], row[3], n);
        else
          for (int k = 0; k < rows; k++) fold_row<OP>(gathered, row[k], n);
      }
      for (int64_t i = 0; i < n; i++) total[i] = OP::join(total[i], gathered[i]);
    }
    for (int64_t i = 0; i < n; i++) out[i] = OP::finish(total[i], p[COUNT]);
  }
}

template <typename OP>
void reduce(const fg_call *call) {
  const int64_t *p = call->params;
  int64_t results = 1;
  for (int64_t d = 0; d < p[N_KEPT]; d++) results *= p[HEAD + d];
  if (p[INNER_REDUCED])
    reduce_runs<OP>(call, results);
  else
    reduce_columns<OP>(call, results);
}

// argmax and argmin: the first of the largest (SIGN 1) or smallest (SIGN -1); the first NaN where
// there is one.

// A bool of NumPy's: any byte but 0 is true.
struct Truth {
  uint8_t byte;
};
FG_INLINE bool operator>(Truth a, Truth b) { return a.byte && !b.byte; }
FG_INLINE bool operator<(Truth a, Truth b) { return !a.byte && b.byte; }
FG_INLINE bool operator!=(Truth a, Truth b) { return !a.byte != !b.byte; }
FG_INLINE bool operator==(Truth a, Truth b) { return !a.byte == !b.byte; }

template <int SIGN, typename T>
FG_INLINE bool beats(T x, T best) {
  return (SIGN > 0 ? x > best : x < best) || (x != x && best == best);
}
template <int SIGN>
FG_INLINE int64_t best_of_run(const float *x, int64_t n) {
  const float best = choose_run<SIGN>(SIGN > 0 ? -__builtin_inff() : __builtin_inff(), x, n);
  // By blocks without an exit, which vectorise, to the first that holds it.
  int64_t i = 0;
  for (int32_t hit = 0; i + 64 <= n; i += 64) {
    for (int64_t j = i; j < i + 64; j++) hit |= (x[j] == best) | ((best != best) & (x[j] != x[j]));
    if (hit) break;
  }
  for (; i < n; i++)
    if (x[i] == best || (best != best && x[i] != x[i])) return i;
  return 0;
}
template <int SIGN, typename T>
FG_INLINE int64_t best_of_run(const T *x, int64_t n) {
  int64_t at = 0;
  for (int64_t i = 1; i < n; i++)
    if (beats<SIGN>(x[i], x[at])) at = i;
  return at;
}

// params: outer size, searched size, inner size, columns a unit. Result int64.
template <typename T, int SIGN = 1>
void argmax(const fg_call *call) {
  const int64_t outer = call->params[0], n = call->params[1], inner = call->params[2];
  const int64_t chunk = call->params[3], chunks = (inner + chunk - 1) / chunk;
  int64_t *out = (int64_t *)call->args[0];
  const T *x = (const T *)call->args[1];
  const Slice mine = fg_slice(outer * chunks, call->part, call->nparts);
  T best[MAX_CHUNK];
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    if (inner == 1) {
      out[unit] = best_of_run<SIGN>(x + unit * n, n);
      continue;
    }
    const int64_t column = unit % chunks * chunk;
    const int64_t width = inner - column < chunk ? inner - column : chunk;
    const T *row = x + unit / chunks * n * inner + column;
    int64_t *index = out + unit / chunks * inner + column;
    for (int64_t i = 0; i < width; i++) best[i] = row[i], index[i] = 0;
    for (int64_t r = 1; r < n; r++) {
      row += inner;
      for (int64_t i = 0; i < width; i++)
        if (beats<SIGN>(row[i], best[i])) best[i] = row[i], index[i] = r;
    }
  }
}

}  // namespace

extern const fg_entry reduce_entries[] = {
    {"sum_f32", reduce<SumFloat>},
    {"sum_i64", reduce<SumLong>},
    {"prod_f32", reduce<ProdFloat>},
    {"prod_i64", reduce<ProdLong>},
    {"max_f32", reduce<ChooseFloat<1>>},
    {"min_f32", reduce<ChooseFloat<-1>>},
    {"max_i32", reduce<ChooseInt<int32_t, INT32_MIN, 1>>},
    {"min_i32", reduce<ChooseInt<int32_t, INT32_MAX, -1>>},
    {"max_i64", reduce<ChooseInt<int64_t, INT64_MIN, 1>>},
    {"min_i64", reduce<ChooseInt<int64_t, INT64_MAX, -1>>},
    {"max_b8", reduce<ChooseInt<uint8_t, 0, 1>>},
    {"min_b8", reduce<ChooseInt<uint8_t, 1, -1>>},
    {"sum_f64", reduce<SumDouble>},
    {"prod_f64", reduce<ProdDouble>},
    {"max_f64", reduce<ChooseDouble<1>>},
    {"min_f64", reduce<ChooseDouble<-1>>},
    {"max_i8", reduce<ChooseInt<int8_t, INT8_MIN, 1>>},
    {"min_i8", reduce<ChooseInt<int8_t, INT8_MAX, -1>>},
    {"max_i16", reduce<ChooseInt<int16_t, INT16_MIN, 1>>},
    {"min_i16", reduce<ChooseInt<int16_t, INT16_MAX, -1>>},
    {"max_u8", reduce<ChooseInt<uint8_t, 0, 1>>},
    {"min_u8", reduce<ChooseInt<uint8_t, UINT8_MAX, -1>>},
    {"max_u16", reduce<ChooseInt<uint16_t, 0, 1>>},
    {"min_u16", reduce<ChooseInt<uint16_t, UINT16_MAX, -1>>},
    {"max_u32", reduce<ChooseInt<uint32_t, 0, 1>>},
    {"min_u32", reduce<ChooseInt<uint32_t, UINT32_MAX, -1>>},
    {"max_u64", reduce<ChooseInt<uint64_t, 0, 1>>},
    {"min_u64", reduce<ChooseInt<uint64_t, UINT64_MAX, -1>>},
    {"argmax_f64", argmax<double>},
    {"argmax_i8", argmax<int8_t>},
    {"argmax_i16", argmax<int16_t>},
    {"argmax_u8", argmax<uint8_t>},
    {"argmax_u16", argmax<uint16_t>},
    {"argmax_u32", argmax<uint32_t>},
    {"argmax_u64", argmax<uint64_t>},
    {"argmin_f32", argmax<float, -1>},
    {"argmin_f64", argmax<double, -1>},
    {"argmin_i8", argmax<int8_t, -1>},
    {"argmin_i16", argmax<int16_t, -1>},
    {"argmin_i32", argmax<int32_t, -1>},
    {"argmin_i64", argmax<int64_t, -1>},
    {"argmin_u8", argmax<uint8_t, -1>},
    {"argmin_u16", argmax<uint16_t, -1>},
    {"argmin_u32", argmax<uint32_t, -1>},
    {"argmin_u64", argmax<uint64_t, -1>},
    {"argmin_b8", argmax<Truth, -1>},
    {"argmax_f32", argmax<float>},
    {"argmax_i32", argmax<int32_t>},
    {"argmax_i64", argmax<int64_t>},
    {"argmax_b8", argmax<Truth>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
