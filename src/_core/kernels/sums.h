// Sums of float rows. Blocks of 1024 elements are summed in four vectors of float lanes, blocks in
// double: the error stays near one rounding of the result, and the order depends on n alone.
#ifndef FG_SUMS_H
#define FG_SUMS_H

#include "vec.h"

namespace FG_NS {
namespace {

enum { SUM_BLOCK = 1024 };

// The sum of x[i], or with SQUARE of x[i] * x[i].
template <bool SQUARE>
FG_INLINE double sum_of(const float *x, int64_t n) {
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
    const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
    vf a0 = {}, a1 = {}, a2 = {}, a3 = {};
    int64_t i = begin;
    for (; i + 4 * FG_VW <= end; i += 4 * FG_VW) {
      const vf x0 = vload(x + i), x1 = vload(x + i + FG_VW);
      const vf x2 = vload(x + i + 2 * FG_VW), x3 = vload(x + i + 3 * FG_VW);
      a0 += SQUARE ? x0 * x0 : x0;
      a1 += SQUARE ? x1 * x1 : x1;
      a2 += SQUARE ? x2 * x2 : x2;
      a3 += SQUARE ? x3 * x3 : x3;
    }
    for (; i + FG_VW <= end; i += FG_VW) {
      const vf x0 = vload(x + i);
      a0 += SQUARE ? x0 * x0 : x0;
    }
    float sum = vhsum((a0 + a1) + (a2 + a3));
    for (; i < end; i++) sum += SQUARE ? x[i] * x[i] : x[i];
    total += sum;
  }
  return total;
}

// The sums of d = x[i] - c and of d * d.
FG_INLINE void sum_deviations(const float *x, int64_t n, float c, double *sum, double *squares) {
  *sum = *squares = 0.0;
  for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
    const int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;
    vf a0 = {}, a1 = {}, b0 = {}, b1 = {};
    int64_t i = begin;
    for (; i + 2 * FG_VW <= end; i += 2 * FG_VW) {
      const vf d0 = vload(x + i) - c, d1 = vload(x + i + FG_VW) - c;
      a0 += d0;
      a1 += d1;
      b0 += d0 * d0;
      b1 += d1 * d1;
    }
    float a = vhsum(a0 + a1), b = vhsum(b0 + b1);
    for (; i < end; i++) {
      const float d = x[i] - c;
      a += d;
      b += d * d;
    }
    *sum += a;
    *squares += b;
  }
}

}  // namespace
}  // namespace FG_NS

#endif
