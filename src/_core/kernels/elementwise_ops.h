// The loops of elementwise instructions: out[i] = f(a[i], b[i], c[i]) over n dense elements.
//
// Every loop reads element i of its operands before it writes element i, so `out` may be one of
// them (of the same item size), and never touches memory past n. A region runs exactly these loops
// one after another, so fusing instructions never changes a bit.
#ifndef FG_ELEMENTWISE_OPS_H
#define FG_ELEMENTWISE_OPS_H

#include "vmath.h"

namespace FG_NS {
namespace {

typedef void (*ew_loop)(void *, const void *, const void *, const void *, int64_t);
typedef float f32;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t b8;  // bool: written as 0 or 1; of what is read, any byte but 0 is true

// ivdep: operands are the same memory as `out` or do not overlap it.
#define FG_EW1(name, R, T, expr)                                                                   \
  void name(void *out, const void *pa, const void *, const void *, int64_t n) {                    \
    R *o = (R *)out;                                                                               \
    const T *a = (const T *)pa;                                                                    \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                         \
      T x = a[i];                                                                                  \
      o[i] = (R)(expr);                                                                            \
    }                                                                                              \
  }
#define FG_EW2(name, R, T, expr)                                                                   \
  void name(void *out, const void *pa, const void *pb, const void *, int64_t n) {                  \
    R *o = (R *)out;                                                                               \
    const T *a = (const T *)pa, *b = (const T *)pb;                                                \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                         \
      T x = a[i], y = b[i];                                                                        \
      o[i] = (R)(expr);                                                                            \
    }                                                                                              \
  }
// Vector functions: the tail goes through the same function in a padded vector.
#define FG_EWV(name, function)                                                                     \
  void name(void *out, const void *pa, const void *, const void *, int64_t n) {                    \
    float *o = (float *)out;                                                                       \
    const float *a = (const float *)pa;                                                            \
    int64_t i = 0;                                                                                 \
    for (; i + FG_VW <= n; i += FG_VW) vstore(o + i, function(vload(a + i)));                      \
    if (i < n) vstore_n(o + i, function(vload_n(a + i, n - i)), n - i);                            \
  }
#define FG_EW_COMPARE(T)                                                                           \
  FG_EW2(equal_##T, b8, T, x == y)                                                                 \
  FG_EW2(not_equal_##T, b8, T, x != y)                                                             \
  FG_EW2(less_##T, b8, T, x < y)                                                                   \
  FG_EW2(less_equal_##T, b8, T, x <= y)

// float32 ------------------------------------------------------------------------------------
FG_EW2(add_f32, f32, f32, x + y)
FG_EW2(subtract_f32, f32, f32, x - y)
FG_EW2(multiply_f32, f32, f32, x *y)
FG_EW2(divide_f32, f32, f32, x / y)
FG_EW2(maximum_f32, f32, f32, ((x > y) | (x != x)) ? x : y)
FG_EW2(minimum_f32, f32, f32, ((x < y) | (x != x)) ? x : y)
FG_EW_COMPARE(f32)
FG_EW1(negative_f32, f32, f32, -x)
FG_EW1(abs_f32, f32, f32, __builtin_fabsf(x))
FG_EW1(sqrt_f32, f32, f32, __builtin_sqrtf(x))
FG_EW1(rsqrt_f32, f32, f32, 1.0f / __builtin_sqrtf(x))
FG_EW1(reciprocal_f32, f32, f32, 1.0f / x)
FG_EW1(square_f32, f32, f32, x *x)
FG_EW1(relu_f32, f32, f32, x < 0.0f ? 0.0f : x)
FG_EW1(sign_f32, f32, f32, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x)
FG_EW1(floor_f32, f32, f32, __builtin_floorf(x))
FG_EW1(ceil_f32, f32, f32, __builtin_ceilf(x))
FG_EWV(exp_f32, vexp)
FG_EWV(log_f32, vlog)
FG_EWV(erf_f32, verf)
FG_EWV(tanh_f32, vtanh)
FG_EWV(sigmoid_f32, vsigmoid)
FG_EWV(silu_f32, vsilu)
FG_EWV(gelu_f32, vgelu)
FG_EWV(gelu_tanh_f32, vgelu_tanh)

// NumPy's remainder and floor_divide: the quotient is rounded down, the sign is the divisor's.
// `r` is the exact fmod(x, y).
FG_INLINE float floor_mod(float x, float y, float r) {
  (void)x;
  float moved = (y < 0.0f) != (r < 0.0f) ? r + y : r;
  moved = r == 0.0f ? __builtin_copysignf(0.0f, y) : moved;
  return y == 0.0f ? r : moved;
}
FG_INLINE float floor_div(float x, float y, float r) {
  float q = (x - r) / y;
  q = (r != 0.0f) & ((y < 0.0f) != (r < 0.0f)) ? q - 1.0f : q;
  float whole = __builtin_floorf(q);
  whole = q - whole > 0.5f ? whole + 1.0f : whole;
  whole = q == 0.0f ? __builtin_copysignf(0.0f, x / y) : whole;
  return y == 0.0f ? x / y : whole;
}
// Quotients below 2^28 have an exact remainder in double arithmetic, which vectorises.
FG_INLINE bool small_quotient(float x, float y) {
  return (__builtin_fabs((double)x / y) < 0x1p28) & (__builtin_fabsf(y) < __builtin_inff());
}
FG_INLINE float small_fmod(float xf, float yf) {
  double x = __builtin_fabs((double)xf), y = __builtin_fabs((double)yf);
  double r = x - __builtin_trunc(x / y) * y;
  r = r < 0.0 ? r + y : r >= y ? r - y : r;  // the division may have rounded up to an integer
  return __builtin_copysignf((float)r, xf);
}
#define FG_EW_MOD(name, finish)                                                                    \
  void name(void *out, const void *pa, const void *pb, const void *, int64_t n) {                  \
    float *o = (float *)out;                                                                       \
    const float *a = (const float *)pa, *b = (const float *)pb;                                    \
    for (int64_t begin = 0; begin < n; begin += 64) {                                              \
      const int64_t end = n - begin < 64 ? n : begin + 64;                                         \
      int32_t small = 1;                                                                           \
      for (int64_t i = begin; i < end; i++) small &= small_quotient(a[i], b[i]);                   \
      if (small) {                                                                                 \
        _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) o[i] =                          \
            finish(a[i], b[i], small_fmod(a[i], b[i]));                                            \
      } else {                                                                                     \
        for (int64_t i = begin; i < end; i++)                                                      \
          o[i] = finish(a[i], b[i], __builtin_fmodf(a[i], b[i]));                                  \
      }                                                                                            \
    }                                                                                              \
  }
FG_EW_MOD(remainder_f32, floor_mod)
FG_EW_MOD(floor_divide_f32, floor_div)

// x^y = 2^(y log2 |x|) in double precision, so that the float32 result is right to 0.51 ulp.
// Branch-free for the vectoriser; log2 by atanh's series on (m-1)/(m+1), exp2 by Taylor's.
FG_INLINE double pow_bits(int64_t b) {
  double d;
  memcpy(&d, &b, 8);
  return d;
}
FG_INLINE float pow_one(float xf, float yf) {
  double x = xf, y = yf, ax = __builtin_fabs(x), inf = __builtin_inf();
  int64_t bits;
  memcpy(&bits, &ax, 8);
  bits -= 0x3fe6a09e667f3bcdll;
  double e = pow_bits((int64_t)((uint64_t)bits >> 52) + 0x4338000000000000ll) - 6755399441055744.0;
  e = e >= 2048.0 ? e - 4096.0 : e;
  double m = pow_bits((bits & 0x000fffffffffffffll) + 0x3fe6a09e667f3bcdll);
  double s = (m - 1.0) / (m + 1.0), t = s * s;
  double series =
      1.0 +
      t * (1.0 / 3 +
           t * (1.0 / 5 +
                t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11 + t * (1.0 / 13 + t * (1.0 / 15)))))));
  double log2x = e + 2.8853900817779268 * s * series;
  log2x = ax == 0.0 ? -inf : ax == inf ? inf : log2x;
  double p = y * log2x;
  p = p < -200.0 ? -200.0 : p > 200.0 ? 200.0 : p;
  double shifted = p + 6755399441055744.0, n = shifted - 6755399441055744.0;
  double r = (p - n) * 0.69314718055994531;
  double q =
      1.0 +
      r * (1.0 +
           r * (1.0 / 2 +
                r * (1.0 / 6 +
                     r * (1.0 / 24 +
                          r * (1.0 / 120 +
                               r * (1.0 / 720 +
                                    r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880)))))))));
  int64_t k;
  memcpy(&k, &shifted, 8);
  double z = q * pow_bits((int64_t)((uint64_t)(k + 1023) << 52));
  double half = 0.5 * y;
  bool whole = __builtin_floor(y) == y, odd = whole & (__builtin_floor(half) != half);
  z = ax == 1.0 ? 1.0 : z;
  z = (x != x) | (y != y) ? x + y : z;
  z = (x < 0.0) & !whole & (ax != inf) ? __builtin_nan("") : z;
  z = odd ? __builtin_copysign(z, x) : z;
  z = (x == 1.0) | (y == 0.0) ? 1.0 : z;
  return (float)z;
}
FG_EW2(power_f32, f32, f32, pow_one(x, y))

// Integers: arithmetic wraps, as NumPy's does. ---------------------------------------------------
template <typename T, typename U>
FG_INLINE T int_floor_div(T x, T y) {
  if (y == 0) return 0;
  if (y == -1) return (T)(0 - (U)x);
  T q = x / y;
  return q - (x % y != 0 && (x < 0) != (y < 0));
}
template <typename T>
FG_INLINE T int_floor_mod(T x, T y) {
  if (y == 0 || y == -1) return 0;
  T r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
// A negative exponent gives the whole part of the true result: 0, or +-1 for a base of +-1.
template <typename T, typename U>
FG_INLINE T int_pow(T x, T y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
  U r = 1, b = (U)x;
  for (U k = (U)y; k; k >>= 1, b *= b)
    if (k & 1) r *= b;
  return (T)r;
}
#define FG_EW_INTEGER(T, U)                                                                        \
  FG_EW2(add_##T, T, T, (U)x + (U)y)                                                               \
  FG_EW2(subtract_##T, T, T, (U)x - (U)y)                                                          \
  FG_EW2(multiply_##T, T, T, (U)x *(U)y)                                                           \
  FG_EW2(maximum_##T, T, T, x > y ? x : y)                                                         \
  FG_EW2(minimum_##T, T, T, x < y ? x : y)                                                         \
  FG_EW_COMPARE(T)                                                                                 \
  FG_EW1(negative_##T, T, T, 0 - (U)x)                                                             \
  FG_EW1(abs_##T, T, T, x < 0 ? 0 - (U)x : (U)x)                                                   \
  FG_EW1(square_##T, T, T, (U)x *(U)x)                                                             \
  FG_EW1(sign_##T, T, T, (x > 0) - (x < 0))                                                        \
  FG_EW2(remainder_##T, T, T, int_floor_mod<T>(x, y))                                              \
  FG_EW2(floor_divide_##T, T, T, (int_floor_div<T, U>(x, y)))                                      \
  FG_EW2(power_##T, T, T, (int_pow<T, U>(x, y)))
FG_EW_INTEGER(i32, uint32_t)
FG_EW_INTEGER(i64, uint64_t)

// bool -------------------------------------------------------------------------------------------
FG_EW2(logical_and_b8, b8, b8, (x != 0) & (y != 0))
FG_EW2(logical_or_b8, b8, b8, (x | y) != 0)
FG_EW1(logical_not_b8, b8, b8, x == 0)
FG_EW2(equal_b8, b8, b8, (x != 0) == (y != 0))
FG_EW2(not_equal_b8, b8, b8, (x != 0) != (y != 0))
FG_EW2(less_b8, b8, b8, (x == 0) & (y != 0))
FG_EW2(less_equal_b8, b8, b8, (x == 0) | (y != 0))

// Any dtype, by item size ------------------------------------------------------------------------
#define FG_EW_WHERE(name, T)                                                                       \
  void name(void *out, const void *pc, const void *pa, const void *pb, int64_t n) {                \
    T *o = (T *)out;                                                                               \
    const b8 *c = (const b8 *)pc;                                                                  \
    const T *a = (const T *)pa, *b = (const T *)pb;                                                \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                         \
      T x = a[i], y = b[i];                                                                        \
      o[i] = c[i] ? x : y;                                                                         \
    }                                                                                              \
  }
FG_EW_WHERE(where_1, b8)
FG_EW_WHERE(where_4, i32)
FG_EW_WHERE(where_8, i64)
template <int SIZE>
void copy_bytes(void *out, const void *a, const void *, const void *, int64_t n) {
  if (out != a) memcpy(out, a, (size_t)n * SIZE);
}
constexpr ew_loop copy_1 = copy_bytes<1>, copy_4 = copy_bytes<4>, copy_8 = copy_bytes<8>;

// Casts. A float outside an integer's range gives the nearest end of it, and NaN gives 0.
FG_EW1(f32_to_i32, i32, f32,
       x != x         ? 0
       : x >= 0x1p31f ? INT32_MAX
       : x < -0x1p31f ? INT32_MIN
                      : (i32)x)
FG_EW1(f32_to_i64, i64, f32,
       x != x         ? 0
       : x >= 0x1p63f ? INT64_MAX
       : x < -0x1p63f ? INT64_MIN
                      : (i64)x)
FG_EW1(f32_to_b8, b8, f32, x != 0.0f)
FG_EW1(i32_to_f32, f32, i32, x)
FG_EW1(i32_to_i64, i64, i32, x)
FG_EW1(i32_to_b8, b8, i32, x != 0)
FG_EW1(i64_to_f32, f32, i64, x)
FG_EW1(i64_to_i32, i32, i64, x)
FG_EW1(i64_to_b8, b8, i64, x != 0)
FG_EW1(b8_to_f32, f32, b8, x != 0)
FG_EW1(b8_to_i32, i32, b8, x != 0)
FG_EW1(b8_to_i64, i64, b8, x != 0)

}  // namespace
}  // namespace FG_NS

#endif
