// Elementwise loops of float64. Functions are the C library's, so their accuracy is its own.
#include <math.h>

#include "elementwise_loops.h"

namespace FG_NS {
namespace {

FG_EW2(add_f64, f64, f64, x + y)
FG_EW2(subtract_f64, f64, f64, x - y)
FG_EW2(multiply_f64, f64, f64, x *y)
FG_EW2(divide_f64, f64, f64, x / y)
FG_EW2(maximum_f64, f64, f64, ((x > y) | (x != x)) ? x : y)
FG_EW2(minimum_f64, f64, f64, ((x < y) | (x != x)) ? x : y)
FG_EW_COMPARE(f64)
FG_EW1(negative_f64, f64, f64, -x)
FG_EW1(abs_f64, f64, f64, __builtin_fabs(x))
FG_EW1(sqrt_f64, f64, f64, __builtin_sqrt(x))
FG_EW1(rsqrt_f64, f64, f64, 1.0 / __builtin_sqrt(x))
FG_EW1(reciprocal_f64, f64, f64, 1.0 / x)
FG_EW1(square_f64, f64, f64, x *x)
FG_EW1(relu_f64, f64, f64, x < 0.0 ? 0.0 : x)
FG_EW1(sign_f64, f64, f64, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == 0.0 ? 0.0 : x)
FG_EW1(floor_f64, f64, f64, __builtin_floor(x))
FG_EW1(ceil_f64, f64, f64, __builtin_ceil(x))
FG_EW1(round_f64, f64, f64, __builtin_rint(x))
FG_EW1(trunc_f64, f64, f64, __builtin_trunc(x))
FG_EW1(exp_f64, f64, f64, exp(x))
FG_EW1(exp2_f64, f64, f64, exp2(x))
FG_EW1(expm1_f64, f64, f64, expm1(x))
FG_EW1(log_f64, f64, f64, log(x))
FG_EW1(log1p_f64, f64, f64, log1p(x))
FG_EW1(log2_f64, f64, f64, log2(x))
FG_EW1(erf_f64, f64, f64, erf(x))
FG_EW1(tanh_f64, f64, f64, tanh(x))
FG_EW1(sin_f64, f64, f64, sin(x))
FG_EW1(cos_f64, f64, f64, cos(x))
FG_EW1(tan_f64, f64, f64, tan(x))
FG_EW1(arcsin_f64, f64, f64, asin(x))
FG_EW1(arccos_f64, f64, f64, acos(x))
FG_EW1(arctan_f64, f64, f64, atan(x))
FG_EW1(sinh_f64, f64, f64, sinh(x))
FG_EW1(cosh_f64, f64, f64, cosh(x))
FG_EW1(arcsinh_f64, f64, f64, asinh(x))
FG_EW1(arccosh_f64, f64, f64, acosh(x))
FG_EW1(arctanh_f64, f64, f64, atanh(x))
FG_EW1(sigmoid_f64, f64, f64, 1.0 / (1.0 + exp(-x)))
FG_EW1(silu_f64, f64, f64, x / (1.0 + exp(-x)))
FG_EW1(gelu_f64, f64, f64, 0.5 * x * (1.0 + erf(x * 0.70710678118654752440)))
FG_EW1(gelu_tanh_f64, f64, f64,
       0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x)))))
FG_EW2(power_f64, f64, f64, pow(x, y))
FG_EW2(fmod_f64, f64, f64, fmod(x, y))

// NumPy's: the quotient is rounded down, the sign is the divisor's.
FG_INLINE double floor_mod(double x, double y) {
  const double r = fmod(x, y);
  double moved = (y < 0.0) != (r < 0.0) ? r + y : r;
  moved = r == 0.0 ? __builtin_copysign(0.0, y) : moved;
  return y == 0.0 ? r : moved;
}
FG_INLINE double floor_div(double x, double y) {
  const double r = fmod(x, y);
  double q = (x - r) / y;
  q = (r != 0.0) & ((y < 0.0) != (r < 0.0)) ? q - 1.0 : q;
  double whole = __builtin_floor(q);
  whole = q - whole > 0.5 ? whole + 1.0 : whole;
  whole = q == 0.0 ? __builtin_copysign(0.0, x / y) : whole;
  return y == 0.0 ? x / y : whole;
}
FG_EW2(remainder_f64, f64, f64, floor_mod(x, y))
FG_EW2(floor_divide_f64, f64, f64, floor_div(x, y))

}  // namespace

// The order is that of the lists in lower/cpu/instructions.py.
extern const ew_loop double_loops[] = {
    add_f64,        subtract_f64,     multiply_f64, divide_f64,  maximum_f64,   minimum_f64,
    remainder_f64,  floor_divide_f64, power_f64,    equal_f64,   not_equal_f64, less_f64,
    less_equal_f64, negative_f64,     abs_f64,      sqrt_f64,    rsqrt_f64,     reciprocal_f64,
    square_f64,     relu_f64,         sign_f64,     floor_f64,   ceil_f64,      exp_f64,
    log_f64,        erf_f64,          tanh_f64,     sigmoid_f64, silu_f64,      gelu_f64,
    gelu_tanh_f64,  round_f64,        trunc_f64,    fmod_f64,    exp2_f64,      expm1_f64,
    log1p_f64,      log2_f64,         sin_f64,      cos_f64,     tan_f64,       arcsin_f64,
    arccos_f64,     arctan_f64,       sinh_f64,     cosh_f64,    arcsinh_f64,   arccosh_f64,
    arctanh_f64,
};

}  // namespace FG_NS
