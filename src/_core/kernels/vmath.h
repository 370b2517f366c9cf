// Vector functions on float lanes: exp, log, erf, tanh and the activations built on them.
//
// Every polynomial was fitted for this file: Lawson-weighted least squares in double precision on
// Chebyshev nodes, rational ones by repeated linearisation (tools/fit_vmath.py). The errors stated
// are the largest seen in a dense sweep of float32 against double precision.
#ifndef FG_VMATH_H
#define FG_VMATH_H

#include "vec.h"

namespace FG_NS {
namespace {

// Degree-ascending Horner evaluation; the compiler contracts each step where there is an FMA.
FG_INLINE vf vpoly(vf, float c) { return vset(c); }
template <typename... Rest>
FG_INLINE vf vpoly(vf x, float c, Rest... rest) {
  return vpoly(x, rest...) * x + c;
}

// Between -bound and bound; NaN stays, since min and max give their second operand for it.
FG_INLINE vf vclamp_nan(vf x, float bound) { return vmin(vset(bound), vmax(vset(-bound), x)); }

// 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits.
#define FG_ROUND 12582912.0f

// exp(r) for |r| <= ln2/2, and the integer n with x = n ln2 + r, kept in `shifted`.
FG_INLINE vf vexp_reduced(vf x, vf *shifted) {
  *shifted = x * 1.44269504f + FG_ROUND;
  vf n = *shifted - FG_ROUND;
  vf r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  vf p = vpoly(r, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a0ap-7f, 0x1.6a23f2p-10f);
  return p * (r * r) + r + 1.0f;
}

// exp, to 0.98 ulp. NaN stays; overflow gives inf; small results are denormal numbers.
FG_INLINE vf vexp(vf x) {
  vf shifted;
  x = vmin(vset(89.0f), vmax(vset(-104.0f), x));
  vf p = vexp_reduced(x, &shifted);
  // Two halves: 2^n itself may be out of range.
  vi e = (vi)((vu)vbits(shifted) - 0x4b400000u);
  vi half = e >> 1;
  vf lo = vfloat((vi)((vu)(half + 127) << 23)), hi = vfloat((vi)((vu)(e - half + 127) << 23));
  return p * lo * hi;
}

// exp of numbers that are not above 0, as softmax has them; 0 where it is below 2^-126.
FG_INLINE vf vexp_nonpositive(vf x) {
  vf shifted;
  // -88 gives n = -127, whose biased exponent is that of 0.
  vf p = vexp_reduced(vmax(vset(-88.0f), x), &shifted);
  return p * vfloat((vi)(((vu)vbits(shifted) - (0x4b400000u - 127u)) << 23));
}

// log, to 0.79 ulp: x = m * 2^e with m in [sqrt(1/2), sqrt(2)). log(0) is -inf, of a negative NaN.
FG_INLINE vf vlog(vf x) {
  vi tiny = x < 1.17549435e-38f;
  vf y = vselect(tiny, x * 8388608.0f, x);
  // Unsigned, so that the lanes of negative x may wrap.
  vi bits = (vi)((vu)vbits(y) - 0x3f3504f3u);
  vi e = bits >> 23;
  vf f = vfloat((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  vf n = __builtin_convertvector(viselect(tiny, e - 23, e), vf);
  vf p = vpoly(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4b6p-3f, -0x1.555c4ep-3f, 0x1.233768p-3f,
               -0x1.fc2208p-4f, 0x1.e6f06ap-4f, -0x1.de3c16p-4f, 0x1.1457a8p-4f);
  vf f2 = f * f;
  vf r = p * f * f2 + n * -2.12194440e-4f;
  r = r - 0.5f * f2;
  r = f + r;
  r = r + n * 0.693359375f;
  r = vselect(x == 0.0f, vset(-__builtin_inff()), r);
  // Negative numbers, NaN and +inf.
  r = vselect(x < 0.0f, vset(__builtin_nanf("")), r);
  return vselect((vi)(x == __builtin_inff()) | (vi)(x != x), x, r);
}

// erf, to 5.3 ulp (3.2e-7): x P(x^2) / Q(x^2) on |x| < 3.925, beyond which float32 erf is 1.
FG_INLINE vf verf(vf x) {
  x = vclamp_nan(x, 3.925f);
  vf t = x * x;
  vf p = vpoly(t, 0x1.20dd74p+0f, 0x1.8654e4p-3f, 0x1.b048a8p-5f, 0x1.ee76b6p-9f, 0x1.2aad98p-12f,
               0x1.129da2p-19f);
  vf q = vpoly(t, 1.0f, 0x1.01259ep-1f, 0x1.d3b056p-4f, 0x1.eaf6a6p-7f, 0x1.3117b4p-10f,
               0x1.3f2b30p-15f);
  return vclamp_nan(x * p / q, 1.0f);
}

// tanh, to 5.4 ulp (3.2e-7): x P(x^2) / Q(x^2) on |x| < 9.02, beyond which float32 tanh is 1.
FG_INLINE vf vtanh(vf x) {
  x = vclamp_nan(x, 9.02f);
  vf t = x * x;
  vf p = vpoly(t, 1.0f, 0x1.120456p-3f, 0x1.c9f8eep-9f, 0x1.595684p-16f, 0x1.c9a6b2p-27f);
  vf q = vpoly(t, 1.0f, 0x1.de5774p-2f, 0x1.a7df6ep-6f, 0x1.584298p-12f, 0x1.a0ba58p-21f);
  return vclamp_nan(x * p / q, 1.0f);
}

// rsqrt is 1 / sqrt with two roundings; sigmoid is good to 9e-8, silu, gelu and gelu_tanh to 1.3e-6
// for |x| < 20 (their relative error grows where they vanish).
FG_INLINE vf vrsqrt(vf x) { return 1.0f / vsqrt(x); }
FG_INLINE vf vsigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }
FG_INLINE vf vsilu(vf x) { return x / (1.0f + vexp(-x)); }
FG_INLINE vf vrelu(vf x) { return vmax(vset(0.0f), x); }  // NaN stays
FG_INLINE vf vgelu(vf x) { return 0.5f * x * (1.0f + verf(x * 0.70710678f)); }
FG_INLINE vf vgelu_tanh(vf x) {
  return 0.5f * x * (1.0f + vtanh(0.79788456f * (x + 0.044715f * (x * x * x))));
}

}  // namespace
}  // namespace FG_NS

#endif
