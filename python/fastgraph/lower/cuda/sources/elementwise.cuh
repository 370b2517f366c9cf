// What elementwise instructions compute, by compute type: f32, f64, integers, bool.
//
// Rules where NumPy's result is undefined, depends on the machine, or raises (the same on the cpu):
//   integer // 0 and % 0 give 0; the smallest integer // -1 wraps, % -1 gives 0
//   integer ** negative gives the whole part of the true result (0, or +-1 for a base of +-1)
//   float -> integer saturates, NaN gives 0; float -> bool is x != 0, so NaN gives true
//   integer arithmetic wraps; maximum and minimum give NaN if either operand is NaN
//   relu(NaN) is NaN; sign(NaN) is NaN, sign(-0.0) is +0.0
//   a shift by the width or more gives 0, or -1 for what was negative and moves right

// The type in which arithmetic on T wraps instead of being undefined.
template <class T>
struct Wrapping {
  typedef u32 type;
};
template <>
struct Wrapping<i64> {
  typedef u64 type;
};
template <>
struct Wrapping<u64> {
  typedef u64 type;
};
template <>
struct Wrapping<f32> {
  typedef f32 type;
};
template <>
struct Wrapping<f64> {
  typedef f64 type;
};
template <class T>
using wrapping_t = typename Wrapping<T>::type;
template <class T>
struct Integer {
  static constexpr bool value = true, is_signed = (T)-1 < (T)0;
  static constexpr int bits = sizeof(T) * 8;
  static constexpr T low = is_signed ? (T)((u64)1 << (bits - 1)) : (T)0;
  static constexpr T high = (T)(~(u64)0 >> (64 - bits + is_signed));
};
template <>
struct Integer<f32> {
  static constexpr bool value = false;
};
template <>
struct Integer<f64> {
  static constexpr bool value = false;
};
template <>
struct Integer<bool> {
  static constexpr bool value = false;
};

// Conversions --------------------------------------------------------------------------------------
template <class To, class From>
FG_DEVICE To convert(From x) {
  if constexpr (Same<To, bool>::value) {
    return x != (From)0;
  } else if constexpr (Integer<To>::value && !Integer<From>::value && !Same<From, bool>::value) {
    // 2 to the power of the bits of value, the first number that is too large.
    constexpr From over =
        (From)((u64)1 << (Integer<To>::bits - 1)) * (From)(Integer<To>::is_signed ? 1 : 2);
    return x != x                        ? (To)0
           : x >= over                   ? Integer<To>::high
           : x <= (From)Integer<To>::low ? Integer<To>::low
                                         : (To)x;
  } else {
    return (To)x;
  }
}
// Numbers that halves hold stay numbers of the type that they are computed in.
FG_DEVICE f32 round_f16(f32 x) { return f16_to_f32(f32_to_f16(x)); }
FG_DEVICE f32 round_f16(f64 x) { return f16_to_f32(f64_to_f16(x)); }
FG_DEVICE f32 round_bf16(f32 x) { return bf16_to_f32(f32_to_bf16(x)); }
FG_DEVICE f32 round_bf16(f64 x) { return bf16_to_f32(f64_to_bf16(x)); }

// Arithmetic ---------------------------------------------------------------------------------------
template <class T>
FG_DEVICE T op_add(T x, T y) {
  return (T)((wrapping_t<T>)x + (wrapping_t<T>)y);
}
template <class T>
FG_DEVICE T op_subtract(T x, T y) {
  return (T)((wrapping_t<T>)x - (wrapping_t<T>)y);
}
template <class T>
FG_DEVICE T op_multiply(T x, T y) {
  return (T)((wrapping_t<T>)x * (wrapping_t<T>)y);
}
template <class T>
FG_DEVICE T op_divide(T x, T y) {
  return x / y;
}
template <class T>
FG_DEVICE T op_negative(T x) {
  if constexpr (Integer<T>::value)
    return (T)((wrapping_t<T>)0 - (wrapping_t<T>)x);
  else
    return -x;
}
template <class T>
FG_DEVICE T op_abs(T x) {
  if constexpr (Integer<T>::value)
    return x < (T)0 ? op_negative(x) : x;
  else
    return fabs(x);
}
template <class T>
FG_DEVICE T op_square(T x) {
  return op_multiply(x, x);
}
template <class T>
FG_DEVICE T op_maximum(T x, T y) {
  return x > y || x != x ? x : y;
}
template <class T>
FG_DEVICE T op_minimum(T x, T y) {
  return x < y || x != x ? x : y;
}
template <class T>
FG_DEVICE T op_sign(T x) {
  if constexpr (Integer<T>::value)
    return (T)((x > (T)0) - (x < (T)0));
  else
    return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x == (T)0 ? (T)0 : x;
}
template <class T>
FG_DEVICE T op_relu(T x) {
  return x < (T)0 ? (T)0 : x;
}

FG_DEVICE f32 fmod_of(f32 x, f32 y) { return fmodf(x, y); }
FG_DEVICE f64 fmod_of(f64 x, f64 y) { return fmod(x, y); }
FG_DEVICE f32 floor_of(f32 x) { return floorf(x); }
FG_DEVICE f64 floor_of(f64 x) { return floor(x); }
FG_DEVICE f32 copysign_of(f32 x, f32 y) { return copysignf(x, y); }
FG_DEVICE f64 copysign_of(f64 x, f64 y) { return copysign(x, y); }

// The quotient is rounded down, the remainder has the divisor's sign.
template <class T>
FG_DEVICE T op_remainder(T x, T y) {
  if constexpr (Integer<T>::value) {
    if (y == (T)0) return 0;
    if constexpr (Integer<T>::is_signed)
      if (y == (T)-1) return 0;
    const T r = (T)(x % y);
    return r != (T)0 && (r < (T)0) != (y < (T)0) ? (T)(r + y) : r;
  } else {
    const T r = fmod_of(x, y);
    if (y == (T)0) return r;
    if (r == (T)0) return copysign_of((T)0, y);
    return (y < (T)0) != (r < (T)0) ? r + y : r;
  }
}
// The remainder has the dividend's sign.
template <class T>
FG_DEVICE T op_fmod(T x, T y) {
  if constexpr (Integer<T>::value) {
    if (y == (T)0) return 0;
    if constexpr (Integer<T>::is_signed)
      if (y == (T)-1) return 0;
    return (T)(x % y);
  } else {
    return fmod_of(x, y);
  }
}
template <class T>
FG_DEVICE T op_floor_divide(T x, T y) {
  if constexpr (Integer<T>::value) {
    if (y == (T)0) return 0;
    if constexpr (Integer<T>::is_signed)
      if (y == (T)-1) return op_negative(x);
    const T q = (T)(x / y);
    return (T)(q - (T)(x % y != 0 && (x < (T)0) != (y < (T)0)));
  } else {
    if (y == (T)0) return x / y;
    const T r = fmod_of(x, y);
    T q = (x - r) / y;
    if (r != (T)0 && (y < (T)0) != (r < (T)0)) q -= (T)1;
    if (q == (T)0) return copysign_of((T)0, x / y);
    const T whole = floor_of(q);
    return q - whole > (T)0.5 ? whole + (T)1 : whole;
  }
}
FG_DEVICE f32 op_power(f32 x, f32 y) { return powf(x, y); }
FG_DEVICE f64 op_power(f64 x, f64 y) { return pow(x, y); }
template <class T>
FG_DEVICE T op_power(T x, T y) {
  if constexpr (Integer<T>::is_signed)
    if (y < (T)0) return x == (T)1 ? (T)1 : x == (T)-1 ? ((y & 1) ? (T)-1 : (T)1) : (T)0;
  wrapping_t<T> power = 1, base = (wrapping_t<T>)x;
  for (wrapping_t<T> left = (wrapping_t<T>)y; left; left >>= 1, base *= base)
    if (left & 1) power *= base;
  return (T)power;
}

// Functions ----------------------------------------------------------------------------------------
// Both widths of what the language's library has under two names.
#define FG_FUNCTION(name, narrow_name, wide_name)                                                  \
  FG_DEVICE f32 op_##name(f32 x) { return narrow_name(x); }                                        \
  FG_DEVICE f64 op_##name(f64 x) { return wide_name(x); }
FG_FUNCTION(exp, expf, exp)
FG_FUNCTION(exp2, exp2f, exp2)
FG_FUNCTION(expm1, expm1f, expm1)
FG_FUNCTION(log, logf, log)
FG_FUNCTION(log1p, log1pf, log1p)
FG_FUNCTION(log2, log2f, log2)
FG_FUNCTION(sqrt, sqrtf, sqrt)
FG_FUNCTION(rsqrt, rsqrtf, rsqrt)
FG_FUNCTION(erf, erff, erf)
FG_FUNCTION(sin, sinf, sin)
FG_FUNCTION(cos, cosf, cos)
FG_FUNCTION(tan, tanf, tan)
FG_FUNCTION(arcsin, asinf, asin)
FG_FUNCTION(arccos, acosf, acos)
FG_FUNCTION(arctan, atanf, atan)
FG_FUNCTION(sinh, sinhf, sinh)
FG_FUNCTION(cosh, coshf, cosh)
FG_FUNCTION(tanh, tanhf, tanh)
FG_FUNCTION(arcsinh, asinhf, asinh)
FG_FUNCTION(arccosh, acoshf, acosh)
FG_FUNCTION(arctanh, atanhf, atanh)
FG_FUNCTION(floor, floorf, floor)
FG_FUNCTION(ceil, ceilf, ceil)
FG_FUNCTION(trunc, truncf, trunc)
// Halves go to the even neighbour.
FG_FUNCTION(round, rintf, rint)
#undef FG_FUNCTION
template <class T>
FG_DEVICE T op_reciprocal(T x) {
  return (T)1 / x;
}
template <class T>
FG_DEVICE T op_sigmoid(T x) {
  return (T)1 / ((T)1 + op_exp(-x));
}
template <class T>
FG_DEVICE T op_silu(T x) {
  return x / ((T)1 + op_exp(-x));
}
template <class T>
FG_DEVICE T op_gelu(T x) {
  return (T)0.5 * x * ((T)1 + op_erf(x * (T)0.70710678118654752));
}
// Torch's formula: half of one more than a tanh is a sigmoid of twice as much.
template <class T>
FG_DEVICE T op_gelu_tanh(T x) {
  return x / ((T)1 + op_exp((T)-1.5957691216057308 * (x + (T)0.044715 * x * x * x)));
}

// The same for results that are rounded to halves: without branches, and with errors far below
// theirs.
FG_DEVICE f32 quick_quotient(f32 x, f32 y) {
#ifdef FG_HOST
  return x / y;
#else
  return __fdividef(x, y);
#endif
}
FG_DEVICE f32 op_exp_half(f32 x) { return exp2f(x * 1.44269504f); }
FG_DEVICE f32 op_sigmoid_half(f32 x) { return quick_quotient(1.0f, 1.0f + op_exp_half(-x)); }
FG_DEVICE f32 op_silu_half(f32 x) { return quick_quotient(x, 1.0f + op_exp_half(-x)); }
FG_DEVICE f32 op_tanh_half(f32 x) {
  const f32 y = 1.0f - quick_quotient(2.0f, 1.0f + op_exp_half(2.0f * x));
  return fabsf(x) < 0.04f ? x - x * x * x * 0.33333333f : y;
}
FG_DEVICE f32 op_gelu_tanh_half(f32 x) {
  return quick_quotient(x, 1.0f + op_exp_half(-1.59576912f * (x + 0.044715f * x * x * x)));
}
// What is below the normal numbers is nothing here, and would cost three instructions more.
FG_DEVICE f32 quick_exp2(f32 x) {
#ifdef FG_HOST
  return exp2f(x);
#else
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
// The share of x that is lost, half of erfc(|x| / sqrt(2)), is a power of two whose exponent a
// polynomial gives, fitted for 0 to 6: relative to the result the error is below 4e-6.
FG_DEVICE f32 op_gelu_half(f32 x) {
  const f32 z = fabsf(x);
  const f32 exponent =
      -0.99999696f +
      z * (-1.1512085f +
           z * (-0.45863712f +
                z * (-0.053705342f +
                     z * (0.0083334064f +
                          z * (-0.00087034522f + z * (5.1461273e-05f + z * -1.1720650e-06f))))));
  const f32 lost = quick_exp2(exponent);
  return x * (x < 0.0f ? lost : 1.0f - lost);
}
template <class T>
FG_DEVICE bool op_isnan(T x) {
  return x != x;
}
template <class T>
FG_DEVICE bool op_isfinite(T x) {
  return x - x == (T)0;
}
template <class T>
FG_DEVICE bool op_isinf(T x) {
  return x == x && x - x != (T)0;
}

// Bits ---------------------------------------------------------------------------------------------
template <class T>
FG_DEVICE T op_left_shift(T x, T y) {
  return y < (T)0 || y >= (T)Integer<T>::bits ? (T)0 : (T)((wrapping_t<T>)x << y);
}
template <class T>
FG_DEVICE T op_right_shift(T x, T y) {
  return y < (T)0 || y >= (T)Integer<T>::bits ? (x < (T)0 ? (T)-1 : (T)0) : (T)(x >> y);
}
