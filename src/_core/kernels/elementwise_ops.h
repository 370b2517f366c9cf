// The loops of elementwise instructions in float32, int32, int64 and bool, and those of any dtype.
#ifndef FG_ELEMENTWISE_OPS_H
#define FG_ELEMENTWISE_OPS_H

#include <math.h>

#include "elementwise_loops.h"
#include "vmath.h"

namespace FG_NS {
namespace {

// Vector functions: the tail goes through the same function in a padded vector.
#define FG_EWV(name, function)                                                                     \
  void name(void *out, const void *pa, const void *, const void *, int64_t n) {                    \
    float *o = (float *)out;                                                                       \
    const float *a = (const float *)pa;                                                            \
    int64_t i = 0;                                                                                 \
    for (; i + FG_VW <= n; i += FG_VW) vstore(o + i, function(vload(a + i)));                      \
    if (i < n) vstore_n(o + i, function(vload_n(a + i, n - i)), n - i);                            \
  }
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
FG_EW1(round_f32, f32, f32, __builtin_rintf(x))
FG_EW1(trunc_f32, f32, f32, __builtin_truncf(x))
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
FG_INLINE float plain_mod(float, float, float r) { return r; }
FG_EW_MOD(fmod_f32, plain_mod)
FG_EW_MOD(remainder_f32, floor_mod)
FG_EW_MOD(floor_divide_f32, floor_div)

// What models use in passing goes to the C library, an element at a time.
FG_EW1(exp2_f32, f32, f32, exp2f(x))
FG_EW1(expm1_f32, f32, f32, expm1f(x))
FG_EW1(log1p_f32, f32, f32, log1pf(x))
FG_EW1(log2_f32, f32, f32, log2f(x))
FG_EW1(sin_f32, f32, f32, sinf(x))
FG_EW1(cos_f32, f32, f32, cosf(x))
FG_EW1(tan_f32, f32, f32, tanf(x))
FG_EW1(arcsin_f32, f32, f32, asinf(x))
FG_EW1(arccos_f32, f32, f32, acosf(x))
FG_EW1(arctan_f32, f32, f32, atanf(x))
FG_EW1(sinh_f32, f32, f32, sinhf(x))
FG_EW1(cosh_f32, f32, f32, coshf(x))
FG_EW1(arcsinh_f32, f32, f32, asinhf(x))
FG_EW1(arccosh_f32, f32, f32, acoshf(x))
FG_EW1(arctanh_f32, f32, f32, atanhf(x))

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
FG_EW_WHERE(where_2, i16)
FG_EW_WHERE(where_4, i32)
FG_EW_WHERE(where_8, i64)
template <int SIZE>
void copy_bytes(void *out, const void *a, const void *, const void *, int64_t n) {
  if (out != a) memcpy(out, a, (size_t)n * SIZE);
}
constexpr ew_loop copy_1 = copy_bytes<1>, copy_2 = copy_bytes<2>, copy_4 = copy_bytes<4>,
                  copy_8 = copy_bytes<8>;

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
