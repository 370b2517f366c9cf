// Conversions between dtypes. Half types are converted from and to float32 alone; all other ways to
// them go through it.
#include "elementwise_loops.h"

namespace FG_NS {
namespace {

FG_EW1(i8_to_i16, i16, i8, x)
FG_EW1(i8_to_i32, i32, i8, x)
FG_EW1(i8_to_i64, i64, i8, x)
FG_EW1(u8_to_i16, i16, u8, x)
FG_EW1(u8_to_i32, i32, u8, x)
FG_EW1(u8_to_i64, i64, u8, x)
FG_EW1(i16_to_i8, i8, i16, x)
FG_EW1(i16_to_i32, i32, i16, x)
FG_EW1(i16_to_i64, i64, i16, x)
FG_EW1(u16_to_i32, i32, u16, x)
FG_EW1(u16_to_i64, i64, u16, x)
FG_EW1(i32_to_i8, i8, i32, x)
FG_EW1(i32_to_i16, i16, i32, x)
FG_EW1(u32_to_i64, i64, u32, x)
FG_EW1(i64_to_i8, i8, i64, x)
FG_EW1(i64_to_i16, i16, i64, x)

FG_EW1(i8_to_f32, f32, i8, x)
FG_EW1(i8_to_f64, f64, i8, x)
FG_EW1(i16_to_f32, f32, i16, x)
FG_EW1(i16_to_f64, f64, i16, x)
FG_EW1(i32_to_f64, f64, i32, x)
FG_EW1(i64_to_f64, f64, i64, x)
FG_EW1(u8_to_f32, f32, u8, x)
FG_EW1(u8_to_f64, f64, u8, x)
FG_EW1(u16_to_f32, f32, u16, x)
FG_EW1(u16_to_f64, f64, u16, x)
FG_EW1(u32_to_f32, f32, u32, x)
FG_EW1(u32_to_f64, f64, u32, x)
FG_EW1(u64_to_f32, f32, u64, x)
FG_EW1(u64_to_f64, f64, u64, x)

// Bools are told from integers by size alone.
FG_EW1(i8_to_b8, b8, i8, x != 0)
FG_EW1(b8_to_i8, i8, b8, x != 0)
FG_EW1(i16_to_b8, b8, i16, x != 0)
FG_EW1(b8_to_i16, i16, b8, x != 0)
FG_EW1(f64_to_b8, b8, f64, x != 0.0)
FG_EW1(b8_to_f64, f64, b8, x != 0)
FG_EW1(f32_to_f64, f64, f32, x)
FG_EW1(f64_to_f32, f32, f64, x)

// A float outside an integer's range gives the nearest end of it, and NaN gives 0.
template <int LOW, int HIGH, typename F>
FG_INLINE int32_t small(F x) {
  x = x != x ? (F)0 : x;
  x = x < (F)LOW ? (F)LOW : x;
  return (int32_t)(x > (F)HIGH ? (F)HIGH : x);
}
FG_EW1(f32_to_i8, i8, f32, (small<-128, 127>(x)))
FG_EW1(f32_to_i16, i16, f32, (small<-32768, 32767>(x)))
FG_EW1(f32_to_u8, u8, f32, (small<0, 255>(x)))
FG_EW1(f32_to_u16, u16, f32, (small<0, 65535>(x)))
FG_EW1(f32_to_u32, u32, f32, x != x ? 0 : x >= 0x1p32f ? UINT32_MAX : x <= 0.0f ? 0 : (u32)x)
FG_EW1(f32_to_u64, u64, f32, x != x ? 0 : x >= 0x1p64f ? UINT64_MAX : x <= 0.0f ? 0 : (u64)x)
FG_EW1(f64_to_i32, i32, f64,
       x != x        ? 0
       : x >= 0x1p31 ? INT32_MAX
       : x < -0x1p31 ? INT32_MIN
                     : (i32)x)
FG_EW1(f64_to_i64, i64, f64,
       x != x        ? 0
       : x >= 0x1p63 ? INT64_MAX
       : x < -0x1p63 ? INT64_MIN
                     : (i64)x)
FG_EW1(f64_to_u32, u32, f64, x != x ? 0 : x >= 0x1p32 ? UINT32_MAX : x <= 0.0 ? 0 : (u32)x)
FG_EW1(f64_to_u64, u64, f64, x != x ? 0 : x >= 0x1p64 ? UINT64_MAX : x <= 0.0 ? 0 : (u64)x)
FG_EW1(f64_to_i8, i8, f64, (small<-128, 127>(x)))
FG_EW1(f64_to_i16, i16, f64, (small<-32768, 32767>(x)))
FG_EW1(f64_to_u8, u8, f64, (small<0, 255>(x)))
FG_EW1(f64_to_u16, u16, f64, (small<0, 65535>(x)))

FG_INLINE uint32_t bits_of(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
FG_INLINE float float_of(uint32_t b) {
  float x;
  memcpy(&x, &b, 4);
  return x;
}

// float64 on its way to a half type: cut to a float32 whose last bit is 1 where something was cut
// off, so that rounding that once more is rounding the float64 once.
FG_INLINE float odd(double x) {
  const float f = (float)x;
  const double back = f;
  const uint32_t b = bits_of(f);
  const bool cut = (back != x) & (x == x) & !(b & 1);
  const bool away = __builtin_fabs(back) > __builtin_fabs(x);
  return float_of(b + (uint32_t)(cut ? (away ? -1 : 1) : 0));
}
FG_EW1(f64_to_odd, f32, f64, odd(x))

FG_INLINE float from_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }
FG_INLINE uint16_t to_bf16(float x) {
  const uint32_t b = bits_of(x), even = b + 0x7fff + ((b >> 16) & 1);
  return (uint16_t)((x != x ? b | 0x400000 : even) >> 16);
}
FG_EW1(bf16_to_f32, f32, u16, from_bf16(x))
FG_EW1(f32_to_bf16, u16, f32, to_bf16(x))

// float16: what is too small for its exponents comes out right by multiplying, respectively adding.
FG_INLINE float from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
  const uint32_t plain = bits_of(float_of(rest) * 0x1p112f);
  return float_of(sign | ((h & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : plain));
}
FG_INLINE uint16_t to_f16(float x) {
  const uint32_t b = bits_of(x), sign = (b >> 16) & 0x8000, a = b & 0x7fffffff;
  const uint32_t tiny = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
  const uint32_t plain = (a + 0xc8000fff + ((a >> 13) & 1)) >> 13;
  const uint32_t high = a > 0x7f800000 ? 0x7e00 : 0x7c00;
  return (uint16_t)(sign | (a >= 0x47800000 ? high : a < 0x38800000 ? tiny : plain));
}
#if FG_ISA >= 3
// Eight at a time by the machine's own conversions.
typedef int16_t v8h __attribute__((vector_size(16)));
typedef int16_t v8h_any __attribute__((vector_size(16), aligned(2), may_alias));
typedef float v8f __attribute__((vector_size(32)));
typedef float v8f_any __attribute__((vector_size(32), aligned(4), may_alias));
FG_INLINE void eight_from_f16(float *out, const uint16_t *in) {
  *(v8f_any *)out = __builtin_ia32_vcvtph2ps256(*(const v8h_any *)in);
}
FG_INLINE void eight_to_f16(uint16_t *out, const float *in) {
  *(v8h_any *)out = __builtin_ia32_vcvtps2ph256(*(const v8f_any *)in, 0);
}
#else
FG_INLINE void eight_from_f16(float *out, const uint16_t *in) {
  _Pragma("GCC ivdep") for (int i = 0; i < 8; i++) out[i] = from_f16(in[i]);
}
FG_INLINE void eight_to_f16(uint16_t *out, const float *in) {
  _Pragma("GCC ivdep") for (int i = 0; i < 8; i++) out[i] = to_f16(in[i]);
}
#endif
void f16_to_f32(void *out, const void *pa, const void *, const void *, int64_t n) {
  float *o = (float *)out;
  const uint16_t *a = (const uint16_t *)pa;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) eight_from_f16(o + i, a + i);
  for (; i < n; i++) o[i] = from_f16(a[i]);
}
void f32_to_f16(void *out, const void *pa, const void *, const void *, int64_t n) {
  uint16_t *o = (uint16_t *)out;
  const float *a = (const float *)pa;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) eight_to_f16(o + i, a + i);
  for (; i < n; i++) o[i] = to_f16(a[i]);
}

}  // namespace

// The order is that of the list in lower/cpu/instructions.py.
extern const ew_loop cast_loops[] = {
    i8_to_i16,   i8_to_i32,  i8_to_i64,  u8_to_i16,  u8_to_i32,  u8_to_i64,  i16_to_i8,
    i16_to_i32,  i16_to_i64, u16_to_i32, u16_to_i64, i32_to_i8,  i32_to_i16, u32_to_i64,
    i64_to_i8,   i64_to_i16, i8_to_f32,  i8_to_f64,  i16_to_f32, i16_to_f64, i32_to_f64,
    i64_to_f64,  u8_to_f32,  u8_to_f64,  u16_to_f32, u16_to_f64, u32_to_f32, u32_to_f64,
    u64_to_f32,  u64_to_f64, i8_to_b8,   b8_to_i8,   i16_to_b8,  b8_to_i16,  f64_to_b8,
    b8_to_f64,   f32_to_f64, f64_to_f32, f32_to_i8,  f32_to_i16, f32_to_u8,  f32_to_u16,
    f32_to_u32,  f32_to_u64, f64_to_i32, f64_to_i64, f64_to_u32, f64_to_u64, f64_to_i8,
    f64_to_i16,  f64_to_u8,  f64_to_u16, f64_to_odd, f16_to_f32, f32_to_f16, bf16_to_f32,
    f32_to_bf16,
};

}  // namespace FG_NS
