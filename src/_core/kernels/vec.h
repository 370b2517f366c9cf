// SIMD of FG_VW float lanes in GCC's vector extensions: the one vocabulary of the host kernels.
//
// Loads and stores take element-aligned addresses. Everything has internal linkage: the same source
// is compiled once per instruction set and nothing may be merged across them.
#ifndef FG_VEC_H
#define FG_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if FG_ISA == 4
#define FG_VW 16
#elif FG_ISA == 3
#define FG_VW 8
#else
#define FG_VW 4
#endif

#define FG_INLINE static inline __attribute__((always_inline, unused))

namespace FG_NS {
namespace {

typedef float vf __attribute__((vector_size(FG_VW * 4)));
typedef int32_t vi __attribute__((vector_size(FG_VW * 4)));
typedef uint32_t vu __attribute__((vector_size(FG_VW * 4)));
// The same lanes at any float-aligned address, as any type.
typedef float vf_any __attribute__((vector_size(FG_VW * 4), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(FG_VW * 4), aligned(4), may_alias));

FG_INLINE vf vload(const float *p) { return *(const vf_any *)p; }
FG_INLINE void vstore(float *p, vf v) { *(vf_any *)p = v; }
FG_INLINE vi viload(const int32_t *p) { return *(const vi_any *)p; }
FG_INLINE void vistore(int32_t *p, vi v) { *(vi_any *)p = v; }

FG_INLINE vi viota() {
#if FG_VW == 16
  return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif FG_VW == 8
  return vi{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return vi{0, 1, 2, 3};
#endif
}

// The first n < FG_VW lanes; the others read as 0 and are not written.
FG_INLINE vf vload_n(const float *p, int64_t n) {
#if FG_ISA == 4
  typedef float v16 __attribute__((vector_size(64)));
  return __builtin_ia32_loadups512_mask(p, v16{}, (unsigned short)((1u << n) - 1));
#elif FG_ISA == 3
  typedef float v8 __attribute__((vector_size(32)));
  return __builtin_ia32_maskloadps256((const v8 *)p, viota() < (int32_t)n);
#else
  vf v = {};
  for (int i = 0; i < FG_VW - 1; i++)
    if (i < n) v[i] = p[i];
  return v;
#endif
}
FG_INLINE void vstore_n(float *p, vf v, int64_t n) {
#if FG_ISA == 4
  typedef float v16 __attribute__((vector_size(64)));
  __builtin_ia32_storeups512_mask(p, (v16)v, (unsigned short)((1u << n) - 1));
#else
  // By powers of two: a masked store is slow on some machines.
  float lanes[FG_VW];
  *(vf_any *)lanes = v;
  int64_t i = 0;
#if FG_VW == 8
  if (n & 4) memcpy(p, lanes, 16), i = 4;
#endif
  if (n & 2) memcpy(p + i, lanes + i, 8), i += 2;
  if (n & 1) p[i] = lanes[i];
#endif
}

FG_INLINE vf vset(float x) { return x - vf{}; }
FG_INLINE vi viset(int32_t x) { return x + vi{}; }
FG_INLINE vi vbits(vf v) { return (vi)v; }
FG_INLINE vf vfloat(vi v) { return (vf)v; }

// m has all bits of a lane set, or none, as comparisons give it.
FG_INLINE vf vselect(vi m, vf a, vf b) { return m ? a : b; }
FG_INLINE vi viselect(vi m, vi a, vi b) { return m ? a : b; }

// One instruction on x86: where the comparison is unordered, the second operand.
FG_INLINE vf vmin(vf a, vf b) { return a < b ? a : b; }
FG_INLINE vf vmax(vf a, vf b) { return a > b ? a : b; }
// NumPy's maximum and minimum: NaN if either is.
FG_INLINE vf vmin_nan(vf a, vf b) { return (vi)(a < b) | (vi)(a != a) ? a : b; }
FG_INLINE vf vmax_nan(vf a, vf b) { return (vi)(a > b) | (vi)(a != a) ? a : b; }
FG_INLINE vf vabs(vf a) { return vfloat(vbits(a) & 0x7fffffff); }

FG_INLINE vf vsqrt(vf a) {
#if FG_ISA == 4
  typedef float v16 __attribute__((vector_size(64)));
  return __builtin_ia32_sqrtps512_mask((v16)a, (v16)a, (unsigned short)0xffff, 4);
#elif FG_ISA == 3
  return __builtin_ia32_sqrtps256(a);
#elif FG_ISA == 2
  return __builtin_ia32_sqrtps(a);
#else
  vf r;
  for (int i = 0; i < FG_VW; i++) r[i] = __builtin_sqrtf(a[i]);
  return r;
#endif
}

// Horizontal reductions halve the vector until one lane is left: the order depends on FG_VW alone.
// vcross<W> brings lane i ^ W to lane i.
template <int W>
FG_INLINE vf vcross(vf v) {
  return W < FG_VW ? __builtin_shuffle(v, viota() ^ (W % FG_VW)) : v;
}
FG_INLINE float vhsum(vf v) {
  if (FG_VW > 8) v += vcross<8>(v);
  if (FG_VW > 4) v += vcross<4>(v);
  v += vcross<2>(v);
  return (v + vcross<1>(v))[0];
}
FG_INLINE float vhmax(vf v) {
  if (FG_VW > 8) v = vmax(v, vcross<8>(v));
  if (FG_VW > 4) v = vmax(v, vcross<4>(v));
  v = vmax(v, vcross<2>(v));
  return vmax(v, vcross<1>(v))[0];
}
FG_INLINE bool vany(vi m) {
  int32_t r = 0;
  for (int i = 0; i < FG_VW; i++) r |= m[i];
  return r != 0;
}

// What slice `part` of `nparts` does of `n` pieces: [begin, end), contiguous, in order.
struct Slice {
  int64_t begin, end;
};
FG_INLINE Slice fg_slice(int64_t n, int32_t part, int32_t nparts) {
  int64_t each = n / nparts, rest = n % nparts;
  int64_t begin = part * each + (part < rest ? part : rest);
  return {begin, begin + each + (part < rest)};
}

}  // namespace
}  // namespace FG_NS

#endif
