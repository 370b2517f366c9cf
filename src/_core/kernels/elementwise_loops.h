// How elementwise loops are written, and the loops of integers: out[i] = f(a[i], b[i], c[i]) over n
// dense elements.
//
// Every loop reads element i of its operands before it writes element i, so `out` may be one of
// them (of the same item size), and never touches memory past n. A region runs exactly these loops
// one after another, so fusing instructions never changes a bit of what they give.
#ifndef FG_ELEMENTWISE_LOOPS_H
#define FG_ELEMENTWISE_LOOPS_H

#include "vec.h"

namespace FG_NS {
namespace {

typedef void (*ew_loop)(void *, const void *, const void *, const void *, int64_t);
typedef float f32;
typedef double f64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
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
#define FG_EW_COMPARE(T)                                                                           \
  FG_EW2(equal_##T, b8, T, x == y)                                                                 \
  FG_EW2(not_equal_##T, b8, T, x != y)                                                             \
  FG_EW2(less_##T, b8, T, x < y)                                                                   \
  FG_EW2(less_equal_##T, b8, T, x <= y)

// Integers: arithmetic wraps, as NumPy's does. U is an unsigned type, wide enough for no promotion to
// a signed one.
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
template <typename T>
FG_INLINE T int_fmod(T x, T y) {
  return y == 0 || y == -1 ? 0 : x % y;
}
template <typename T, typename U>
FG_INLINE T unsigned_pow(T x, T y) {
  U r = 1, b = x;
  for (T k = y; k; k >>= 1, b *= b)
    if (k & 1) r *= b;
  return (T)r;
}
// A negative exponent gives the whole part of the true result: 0, or +-1 for a base of +-1.
template <typename T, typename U>
FG_INLINE T int_pow(T x, T y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
  return (T)unsigned_pow<U, U>((U)x, (U)y);
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
  FG_EW2(power_##T, T, T, (int_pow<T, U>(x, y)))                                                   \
  FG_EW2(fmod_##T, T, T, int_fmod<T>(x, y))                                                        \
  FG_EW2(bitwise_and_##T, T, T, x &y)                                                              \
  FG_EW2(bitwise_or_##T, T, T, x | y)                                                              \
  FG_EW2(bitwise_xor_##T, T, T, x ^ y)                                                             \
  FG_EW1(invert_##T, T, T, ~x)                                                                     \
  FG_EW2(left_shift_##T, T, T, (U)y < 8 * sizeof(T) ? (U)x << y : 0)                               \
  FG_EW2(right_shift_##T, T, T, x >> ((U)y < 8 * sizeof(T) ? y : (T)(8 * sizeof(T) - 1)))
// What differs where there is no sign; all else is the work of the signed loops.
#define FG_EW_UNSIGNED(T, U)                                                                       \
  FG_EW2(maximum_##T, T, T, x > y ? x : y)                                                         \
  FG_EW2(minimum_##T, T, T, x < y ? x : y)                                                         \
  FG_EW2(less_##T, b8, T, x < y)                                                                   \
  FG_EW2(less_equal_##T, b8, T, x <= y)                                                            \
  FG_EW1(sign_##T, T, T, x != 0)                                                                   \
  FG_EW2(remainder_##T, T, T, y == 0 ? 0 : x % y)                                                  \
  FG_EW2(floor_divide_##T, T, T, y == 0 ? 0 : x / y)                                               \
  FG_EW2(power_##T, T, T, (unsigned_pow<T, U>(x, y)))                                              \
  FG_EW2(right_shift_##T, T, T, y < 8 * sizeof(T) ? x >> y : 0)
}  // namespace
}  // namespace FG_NS

#endif
