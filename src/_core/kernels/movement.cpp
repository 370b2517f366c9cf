// Moving elements without computing: copies between strided layouts, transposes, concat, take.
// By item size (1, 2, 4, 8), so every dtype is served.
#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

enum { MAX_RANK = 64 };

// Steps through the outer axes of two layouts at once.
struct Walk {
  const int64_t *shape, *in_stride, *out_stride;
  int64_t rank, in, out, index[MAX_RANK];

  void start(const int64_t *sizes, const int64_t *in_strides, const int64_t *out_strides,
             int64_t axes, int64_t at) {
    shape = sizes, in_stride = in_strides, out_stride = out_strides, rank = axes, in = out = 0;
    for (int64_t d = axes - 1; d >= 0; d--) {
      index[d] = at % shape[d];
      at /= shape[d];
      in += index[d] * in_stride[d];
      out += index[d] * out_stride[d];
    }
  }
  // Indices left along the last axis, and the step over `count` of them.
  int64_t left() const { return rank ? shape[rank - 1] - index[rank - 1] : 1; }
  void skip(int64_t count) {
    for (int64_t d = rank - 1; d >= 0; d--) {
      in += count * in_stride[d];
      out += count * out_stride[d];
      index[d] += count;
      if (index[d] < shape[d]) return;
      in -= shape[d] * in_stride[d];
      out -= shape[d] * out_stride[d];
      index[d] = 0;
      count = 1;
    }
  }
};

// Runs of a few vectors are the commonest in models, and memcpy's call costs as much as they do.
FG_INLINE void copy_run(char *out, const char *in, int64_t nbytes) {
  typedef char v16 __attribute__((vector_size(16), aligned(1), may_alias));
  typedef char v32 __attribute__((vector_size(32), aligned(1), may_alias));
  if (nbytes > 1024 || nbytes < 16) {
    memcpy(out, in, (size_t)nbytes);
    return;
  }
  int64_t i = 0;
  for (; i + 64 <= nbytes; i += 64) {
    const v32 a = *(const v32 *)(in + i), b = *(const v32 *)(in + i + 32);
    *(v32 *)(out + i) = a;
    *(v32 *)(out + i + 32) = b;
  }
  for (; i + 16 <= nbytes; i += 16) *(v16 *)(out + i) = *(const v16 *)(in + i);
  // The last vector overlaps what is written already.
  if (i < nbytes) *(v16 *)(out + nbytes - 16) = *(const v16 *)(in + nbytes - 16);
}

// Keeps the vectoriser from turning a strided loop into gathers, which are slower.
template <typename T>
FG_INLINE T one(T value) {
  asm("" : "+r"(value));
  return value;
}

// params: item size, number of outer axes, inner size, inner in-stride, element offset of the
// first element in the input, then outer shape, in-strides, out-strides (in elements). The
// innermost axis is dense in the output.
template <typename T>
FG_INLINE void copy_strided_as(const fg_call *call) {
  const int64_t *p = call->params, axes = p[1], inner = p[2], step = p[3];
  const int64_t *shape = p + 5;
  int64_t rows = 1;
  for (int64_t d = 0; d < axes; d++) rows *= shape[d];
  const Slice mine = fg_slice(rows, call->part, call->nparts);
  T *out = (T *)call->args[0];
  const T *in = (const T *)call->args[1] + p[4];
  Walk at;
  at.start(shape, shape + axes, shape + 2 * axes, axes, mine.begin);
  const int64_t in_step = axes ? shape[2 * axes - 1] : 0, out_step = axes ? shape[3 * axes - 1] : 0;
  for (int64_t row = mine.begin; row < mine.end;) {
    const int64_t left = at.left(), rest = mine.end - row, count = left < rest ? left : rest;
    T *o = out + at.out;
    const T *x = in + at.in;
    for (int64_t k = 0; k < count; k++, o += out_step, x += in_step) {
      if (step == 1) {
        if (inner < 4)
          for (int64_t i = 0; i < inner; i++) o[i] = one(x[i]);
        else
          copy_run((char *)o, (const char *)x, inner * (int64_t)sizeof(T));
      } else if (step == 0) {
        const T value = *x;
        for (int64_t i = 0; i < inner; i++) o[i] = value;
      } else if (step == -1) {
        for (int64_t i = 0; i < inner; i++) o[i] = x[-i];
      } else if (step == 2) {
        for (int64_t i = 0; i < inner; i++) o[i] = x[2 * i];
      } else {
        for (int64_t i = 0; i < inner; i++) o[i] = one(x[i * step]);
      }
    }
    row += count;
    at.skip(count);
  }
}

void copy_strided(const fg_call *call) {
  switch (call->params[0]) {
    case 1:
      return copy_strided_as<uint8_t>(call);
    case 2:
      return copy_strided_as<uint16_t>(call);
    case 4:
      return copy_strided_as<uint32_t>(call);
    default:
      return copy_strided_as<uint64_t>(call);
  }
}

// params: byte count.
void copy_dense(const fg_call *call) {
  const int64_t n = call->params[0];
  const Slice s = fg_slice((n + 4095) / 4096, call->part, call->nparts);
  const int64_t begin = s.begin * 4096, end = s.end * 4096 < n ? s.end * 4096 : n;
  char *out = (char *)call->args[0];
  const char *in = (const char *)call->args[1];
  if (begin < end && out != in) memcpy(out + begin, in + begin, (size_t)(end - begin));
}

// A transpose of two axes: out[q * out_step + p] = in[p * in_step + q], by tiles of TILE x TILE
// elements. A tile goes through a buffer with a row length of its own: its input lines are read
// once, its output lines written once, also where the steps are powers of two and all rows of a
// tile fall into the same few sets of a cache.
const int64_t TILE = 32;

// A block of 32-bit items through registers: 4 rows of the output, one vector of p each.
typedef int32_t v4i __attribute__((vector_size(16)));
typedef int32_t v4i_any __attribute__((vector_size(16), aligned(4), may_alias));
FG_INLINE v4i load4(const uint32_t *p) { return *(const v4i_any *)p; }
#if FG_ISA >= 3
// Rows 0..3 and 4..7 of the input share a vector, so that shuffles stay within 128 bits.
const int64_t BLOCK = 8;
typedef int32_t vblock __attribute__((vector_size(32)));
typedef int32_t vblock_any __attribute__((vector_size(32), aligned(4), may_alias));
FG_INLINE vblock load_rows(const uint32_t *in, int64_t is) {
  return __builtin_shufflevector(load4(in), load4(in + 4 * is), 0, 1, 2, 3, 4, 5, 6, 7);
}
#define FG_ZIP(a, b, w, x, y, z)                                                                   \
  __builtin_shufflevector(a, b, w, x, y, z, w + 4, x + 4, y + 4, z + 4)
#define FG_SECOND 8
#else
const int64_t BLOCK = 4;
typedef v4i vblock;
typedef v4i_any vblock_any;
FG_INLINE vblock load_rows(const uint32_t *in, int64_t) { return load4(in); }
#define FG_ZIP(a, b, w, x, y, z) __builtin_shufflevector(a, b, w, x, y, z)
#define FG_SECOND 4
#endif
FG_INLINE void transpose_block(uint32_t *out, int64_t os, const uint32_t *in, int64_t is) {
  const vblock a = load_rows(in, is), b = load_rows(in + is, is);
  const vblock c = load_rows(in + 2 * is, is), d = load_rows(in + 3 * is, is);
  const vblock ab_lo = FG_ZIP(a, b, 0, FG_SECOND, 1, FG_SECOND + 1);
  const vblock ab_hi = FG_ZIP(a, b, 2, FG_SECOND + 2, 3, FG_SECOND + 3);
  const vblock cd_lo = FG_ZIP(c, d, 0, FG_SECOND, 1, FG_SECOND + 1);
  const vblock cd_hi = FG_ZIP(c, d, 2, FG_SECOND + 2, 3, FG_SECOND + 3);
  *(vblock_any *)out = FG_ZIP(ab_lo, cd_lo, 0, 1, FG_SECOND, FG_SECOND + 1);
  *(vblock_any *)(out + os) = FG_ZIP(ab_lo, cd_lo, 2, 3, FG_SECOND + 2, FG_SECOND + 3);
  *(vblock_any *)(out + 2 * os) = FG_ZIP(ab_hi, cd_hi, 0, 1, FG_SECOND, FG_SECOND + 1);
  *(vblock_any *)(out + 3 * os) = FG_ZIP(ab_hi, cd_hi, 2, 3, FG_SECOND + 2, FG_SECOND + 3);
}

template <typename T>
FG_INLINE void transpose_tile(T *out, int64_t os, const T *in, int64_t is, int64_t nq, int64_t np) {
  for (int64_t q = 0; q < nq; q++)
    for (int64_t p = 0; p < np; p++) out[q * os + p] = one(in[p * is + q]);
}
// 64-bit items by two.
FG_INLINE void transpose_tile(uint64_t *out, int64_t os, const uint64_t *in, int64_t is, int64_t nq,
                              int64_t np) {
  typedef int64_t v2 __attribute__((vector_size(16)));
  typedef int64_t v2_any __attribute__((vector_size(16), aligned(8), may_alias));
  const int64_t whole_q = nq / 2 * 2, whole_p = np / 2 * 2;
  for (int64_t q = 0; q < whole_q; q += 2)
    for (int64_t p = 0; p < whole_p; p += 2) {
      const v2 a = *(const v2_any *)(in + p * is + q), b = *(const v2_any *)(in + (p + 1) * is + q);
      *(v2_any *)(out + q * os + p) = __builtin_shufflevector(a, b, 0, 2);
      *(v2_any *)(out + (q + 1) * os + p) = __builtin_shufflevector(a, b, 1, 3);
    }
  for (int64_t p = whole_p; p < np; p++)
    for (int64_t q = 0; q < whole_q; q++) out[q * os + p] = in[p * is + q];
  for (int64_t q = whole_q; q < nq; q++)
    for (int64_t p = 0; p < np; p++) out[q * os + p] = in[p * is + q];
}
FG_INLINE void transpose_tile(uint32_t *out, int64_t os, const uint32_t *in, int64_t is, int64_t nq,
                              int64_t np) {
  const int64_t whole_q = nq / 4 * 4, whole_p = np / BLOCK * BLOCK;
  for (int64_t q = 0; q < whole_q; q += 4)
    for (int64_t p = 0; p < whole_p; p += BLOCK)
      transpose_block(out + q * os + p, os, in + p * is + q, is);
  for (int64_t p = whole_p; p < np; p++)
    for (int64_t q = 0; q < whole_q; q++) out[q * os + p] = in[p * is + q];
  for (int64_t q = whole_q; q < nq; q++)
    for (int64_t p = 0; p < np; p++) out[q * os + p] = in[p * is + q];
}

// params: item size, number of outer axes, nq, np, out_step, in_step, then outer shape, in-strides,
// out-strides. Units are strips of TILE values of q.
template <typename T>
FG_INLINE void transpose_as(const fg_call *call) {
  const int64_t *a = call->params, axes = a[1], nq = a[2], np = a[3], os = a[4], is = a[5];
  const int64_t *shape = a + 6, strips = (nq + TILE - 1) / TILE;
  int64_t outer = 1;
  for (int64_t d = 0; d < axes; d++) outer *= shape[d];
  const Slice mine = fg_slice(outer * strips, call->part, call->nparts);
  T *out = (T *)call->args[0];
  const T *in = (const T *)call->args[1];
  int64_t strip = mine.begin % strips;
  Walk at;
  at.start(shape, shape + axes, shape + 2 * axes, axes, mine.begin / strips);
  // Half a cache line beyond a power of two.
  const int64_t step = TILE + 32 / (int64_t)sizeof(T);
  const bool buffered = is * (int64_t)sizeof(T) >= 512;
  alignas(64) T buffer[TILE * (TILE + 32 / sizeof(T))];
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t q = strip * TILE, rows = nq - q < TILE ? nq - q : TILE;
    T *o = out + at.out + q * os;
    const T *x = in + at.in + q;
    if (nq < 4 || np < 4) {
      // A few interleaved rows: by stretches that stay in the first cache while each is picked out.
      for (int64_t from = 0; from < np; from += 1024) {
        const int64_t to = np - from < 1024 ? np : from + 1024;
        for (int64_t k = 0; k < rows; k++)
          for (int64_t p = from; p < to; p++) o[k * os + p] = one(x[p * is + k]);
      }
    } else {
      for (int64_t p = 0; p < np; p += TILE) {
        const int64_t columns = np - p < TILE ? np - p : TILE;
        if (buffered) {
          for (int64_t k = 0; k < columns; k++)
            memcpy(buffer + k * step, x + (p + k) * is, (size_t)rows * sizeof(T));
          transpose_tile(o + p, os, buffer, step, rows, columns);
        } else {
          transpose_tile(o + p, os, x + p * is, is, rows, columns);
        }
      }
    }
    if (++strip == strips) {
      strip = 0;
      at.skip(1);
    }
  }
}

void transpose(const fg_call *call) {
  switch (call->params[0]) {
    case 1:
      return transpose_as<uint8_t>(call);
    case 2:
      return transpose_as<uint16_t>(call);
    case 4:
      return transpose_as<uint32_t>(call);
    default:
      return transpose_as<uint64_t>(call);
  }
}

// params: number of inputs, rows, bytes of an output row, then bytes of a row of each input.
// Parts are ranges of output bytes, cut at 4 KiB.
void concat(const fg_call *call) {
  const int64_t n = call->params[0], rows = call->params[1], width = call->params[2];
  const int64_t *widths = call->params + 3, total = rows * width;
  const Slice s = fg_slice((total + 4095) / 4096, call->part, call->nparts);
  int64_t at = s.begin * 4096;
  const int64_t end = s.end * 4096 < total ? s.end * 4096 : total;
  char *out = (char *)call->args[0];
  for (int64_t row = at / width; at < end; row++) {
    int64_t first = row * width;
    for (int64_t i = 0; i < n && at < end; i++) {
      const int64_t next = first + widths[i];
      if (at < next) {
        const int64_t stop = next < end ? next : end;
        const char *in = (const char *)call->args[1 + i] + row * widths[i] + (at - first);
        copy_run(out + at, in, stop - at);
        at = stop;
      }
      first = next;
    }
  }
}

// params: outer size, axis size, number of indices, bytes of one entry, index item size (negative
// for unsigned ones).
// Operands: out, x, indices. Negative indices count from the end; what is still out of range gives
// zeros and a fault.
FG_INLINE int64_t index_at(const void *indices, int64_t kind, int64_t i) {
  switch (kind) {
    case 1:
      return ((const int8_t *)indices)[i];
    case 2:
      return ((const int16_t *)indices)[i];
    case 4:
      return ((const int32_t *)indices)[i];
    case -1:
      return ((const uint8_t *)indices)[i];
    case -2:
      return ((const uint16_t *)indices)[i];
    case -4:
      return ((const uint32_t *)indices)[i];
    case -8: {  // beyond int64 it is beyond every axis as well
      const uint64_t k = ((const uint64_t *)indices)[i];
      return k > INT64_MAX ? INT64_MAX : (int64_t)k;
    }
    default:
      return ((const int64_t *)indices)[i];
  }
}

template <int64_t WIDTH>
FG_INLINE void take_as(const fg_call *call) {
  const int64_t outer = call->params[0], size = call->params[1], count = call->params[2];
  const int64_t width = WIDTH ? WIDTH : call->params[3];
  const int64_t kind = call->params[4];
  char *out = (char *)call->args[0];
  const char *x = (const char *)call->args[1];
  const Slice mine = fg_slice(outer * count, call->part, call->nparts);
  int64_t block = mine.begin / count, i = mine.begin % count;
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    int64_t k = index_at(call->args[2], kind, i);
    if (k < 0) k += size;
    char *to = out + unit * width;
    if (k >= 0 && k < size) {
      const char *from = x + (block * size + k) * width;
      if (WIDTH)
        memcpy(to, from, WIDTH);
      else
        copy_run(to, from, width);
    } else {
      memset(to, 0, (size_t)width);
      fg_fault(call);
    }
    if (++i == count) {
      i = 0;
      block++;
    }
  }
}

void take(const fg_call *call) {
  switch (call->params[3]) {
    case 1:
      return take_as<1>(call);
    case 2:
      return take_as<2>(call);
    case 4:
      return take_as<4>(call);
    case 8:
      return take_as<8>(call);
    default:
      return take_as<0>(call);
  }
}

}  // namespace

extern const fg_entry movement_entries[] = {
    {"copy_strided", copy_strided},
    {"copy_dense", copy_dense},
    {"transpose", transpose},
    {"concat", concat},
    {"take", take},
    {nullptr, nullptr},
};

}  // namespace FG_NS
