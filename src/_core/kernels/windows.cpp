// What windows on images need beside arithmetic: patches, planes, folds and pools.
#include "fg_kernel.h"
#include "vec.h"
#include "windows.h"

namespace FG_NS {
namespace {

FG_INLINE Windows windows_of(const fg_call *call) {
  Windows w;
  memcpy(&w, call->params, sizeof w);
  return w;
}

// Words: Windows, bytes of an element. y is a row for each window: [taps][channels]; x has its
// channels last, so the elements of a window that are neighbours along the last axis are one run.
void patches(const fg_call *call) {
  const Windows w = windows_of(call);
  const int64_t each = w.channels * call->params[WINDOW_WORDS];
  const int64_t run = w.kernel[2] * each, row = w.taps() * each;
  char *y = (char *)call->args[0];
  const char *x = (const char *)call->args[1];
  const Slice mine = fg_slice(w.images * w.windows(), call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    int64_t at[3], rest = i;
    for (int a = 2; a >= 0; a--) {
      at[a] = rest % w.count[a] * w.stride[a] - w.before[a];
      rest /= w.count[a];
    }
    const Range across = inside(at[2], w.dilation[2], w.size[2], w.kernel[2]);
    char *to = y + i * row;
    for (int64_t k0 = 0; k0 < w.kernel[0]; k0++)
      for (int64_t k1 = 0; k1 < w.kernel[1]; k1++, to += run) {
        const int64_t p0 = at[0] + k0 * w.dilation[0], p1 = at[1] + k1 * w.dilation[1];
        if (p0 < 0 || p0 >= w.size[0] || p1 < 0 || p1 >= w.size[1]) {
          memset(to, 0, (size_t)run);
          continue;
        }
        const char *from =
            x + (((rest * w.size[0] + p0) * w.size[1] + p1) * w.size[2] + at[2]) * each;
        if (across.begin) memset(to, 0, (size_t)(across.begin * each));
        if (w.dilation[2] == 1)
          memcpy(to + across.begin * each, from + across.begin * each,
                 (size_t)((across.end - across.begin) * each));
        else
          for (int64_t k = across.begin; k < across.end; k++)
            memcpy(to + k * each, from + k * w.dilation[2] * each, (size_t)each);
        if (across.end < w.kernel[2])
          memset(to + across.end * each, 0, (size_t)((w.kernel[2] - across.end) * each));
      }
  }
}

// Words: Windows, phases[3], extents[3]. y is [images][channels][phases][extents]: element e of phase
// p of an axis is element e * stride + p - before of the image, or 0. Windows that step over elements
// thus find theirs side by side.
template <typename T>
void planes(const fg_call *call) {
  const Windows w = windows_of(call);
  const int64_t *phases = call->params + WINDOW_WORDS, *extent = phases + 3;
  const int64_t plane = extent[0] * extent[1] * extent[2];
  const int64_t all = phases[0] * phases[1] * phases[2] * plane;
  const Slice mine = fg_slice(w.images * w.channels, call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const T *x = (const T *)call->args[1] + i * w.elements();
    T *y = (T *)call->args[0] + i * all;
    for (int64_t p0 = 0; p0 < phases[0]; p0++)
      for (int64_t p1 = 0; p1 < phases[1]; p1++)
        for (int64_t p2 = 0; p2 < phases[2]; p2++) {
          const int64_t start = p2 - w.before[2], step = w.stride[2];
          const Range across = inside(start, step, w.size[2], extent[2]);
          for (int64_t e0 = 0; e0 < extent[0]; e0++)
            for (int64_t e1 = 0; e1 < extent[1]; e1++, y += extent[2]) {
              const int64_t r0 = e0 * w.stride[0] + p0 - w.before[0];
              const int64_t r1 = e1 * w.stride[1] + p1 - w.before[1];
              if (r0 < 0 || r0 >= w.size[0] || r1 < 0 || r1 >= w.size[1]) {
                memset(y, 0, (size_t)extent[2] * sizeof(T));
                continue;
              }
              const T *from = x + (r0 * w.size[1] + r1) * w.size[2] + start;
              for (int64_t e = 0; e < across.begin; e++) y[e] = 0;
              if (step == 1)  // Rows are short: a call of memcpy would cost as much as they do.
                _Pragma("GCC ivdep") for (int64_t e = across.begin; e < across.end; e++) y[e] =
                    from[e];
              else
                for (int64_t e = across.begin; e < across.end; e++) y[e] = from[e * step];
              for (int64_t e = across.end; e < extent[2]; e++) y[e] = 0;
            }
        }
  }
}

// Words: Windows, whether there is a bias. x is [images][channels][taps][windows]; y is the image on
// which what lies on one element is added up, in the order of the taps.
template <typename T>
void fold(const fg_call *call) {
  const Windows w = windows_of(call);
  const T *bias = call->params[WINDOW_WORDS] ? (const T *)call->args[2] : nullptr;
  const int64_t windows = w.windows();
  const Slice mine = fg_slice(w.images * w.channels, call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    T *y = (T *)call->args[0] + i * w.elements();
    const T *x = (const T *)call->args[1] + i * w.taps() * windows;
    const T first = bias ? bias[i % w.channels] : (T)0;
    for (int64_t e = 0; e < w.elements(); e++) y[e] = first;
    for (int64_t k0 = 0; k0 < w.kernel[0]; k0++)
      for (int64_t k1 = 0; k1 < w.kernel[1]; k1++)
        for (int64_t k2 = 0; k2 < w.kernel[2]; k2++, x += windows) {
          const int64_t start = k2 * w.dilation[2] - w.before[2], step = w.stride[2];
          const Range across = inside(start, step, w.size[2], w.count[2]);
          const int64_t s0 = k0 * w.dilation[0] - w.before[0];
          const int64_t s1 = k1 * w.dilation[1] - w.before[1];
          const Range deep = inside(s0, w.stride[0], w.size[0], w.count[0]);
          const Range down = inside(s1, w.stride[1], w.size[1], w.count[1]);
          for (int64_t o0 = deep.begin; o0 < deep.end; o0++)
            for (int64_t o1 = down.begin; o1 < down.end; o1++) {
              const int64_t r0 = o0 * w.stride[0] + s0, r1 = o1 * w.stride[1] + s1;
              T *to = y + (r0 * w.size[1] + r1) * w.size[2] + start;
              const T *from = x + (o0 * w.count[1] + o1) * w.count[2];
              if (step == 1)
                for (int64_t o = across.begin; o < across.end; o++) to[o] += from[o];
              else
                for (int64_t o = across.begin; o < across.end; o++) to[o * step] += from[o];
            }
        }
  }
}

template <typename T>
constexpr bool FLOATS = (T)0.5 != 0;

// NumPy's maximum: NaN if either is.
template <typename T>
FG_INLINE T larger(T a, T b) {
  if constexpr (FLOATS<T>) return a > b || a != a ? a : b;
  return a > b ? a : b;
}

template <typename T>
FG_INLINE T lowest() {
  if constexpr (FLOATS<T>) return (T)-__builtin_inf();
  return (T)-1 > 0 ? (T)0 : (T)((uint64_t)1 << (8 * sizeof(T) - 1));
}

// A row of windows along the last axis: y[o] = combined with x[o * step], for a range of o.
template <typename T, bool MAXIMUM>
FG_INLINE void pool_row(T *y, const T *x, Range range, int64_t step) {
  if (step == 1) {
    _Pragma("GCC ivdep") for (int64_t o = range.begin; o < range.end; o++) y[o] =
        MAXIMUM ? larger<T>(y[o], x[o]) : (T)(y[o] + x[o]);
  } else {
    _Pragma("GCC ivdep") for (int64_t o = range.begin; o < range.end; o++) y[o] =
        MAXIMUM ? larger<T>(y[o], x[o * step]) : (T)(y[o] + x[o * step]);
  }
}

// How many elements of window `o` lie on the image, or on the padding around it, unless `after` < 0.
FG_INLINE int64_t counted(const Windows &w, int axis, int64_t o, int64_t after) {
  const int64_t low = after < 0 ? 0 : -w.before[axis];
  const int64_t high = w.size[axis] + (after < 0 ? 0 : after);
  const int64_t start = o * w.stride[axis] - w.before[axis];
  const Range found = inside(start - low, w.dilation[axis], high - low, w.kernel[axis]);
  return found.end - found.begin;
}

// Words: Windows, whether padding counts, after[3]. Units are rows of windows.
template <typename T, bool MAXIMUM>
void pool(const fg_call *call) {
  const Windows w = windows_of(call);
  const int64_t with_pads = call->params[WINDOW_WORDS];
  const int64_t *after = call->params + WINDOW_WORDS + 1;
  const int64_t rows = w.count[0] * w.count[1], width = w.count[2], step = w.stride[2];
  const Slice mine = fg_slice(w.images * w.channels * rows, call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const int64_t o0 = i % rows / w.count[1], o1 = i % w.count[1];
    const int64_t s0 = o0 * w.stride[0] - w.before[0], s1 = o1 * w.stride[1] - w.before[1];
    const T *x = (const T *)call->args[1] + i / rows * w.elements();
    T *y = (T *)call->args[0] + i * width;
    for (int64_t o = 0; o < width; o++) y[o] = MAXIMUM ? lowest<T>() : (T)0;
    const Range deep = inside(s0, w.dilation[0], w.size[0], w.kernel[0]);
    const Range down = inside(s1, w.dilation[1], w.size[1], w.kernel[1]);
    for (int64_t k0 = deep.begin; k0 < deep.end; k0++)
      for (int64_t k1 = down.begin; k1 < down.end; k1++) {
        const int64_t r0 = s0 + k0 * w.dilation[0], r1 = s1 + k1 * w.dilation[1];
        const T *row = x + (r0 * w.size[1] + r1) * w.size[2];
        for (int64_t k2 = 0; k2 < w.kernel[2]; k2++) {
          const int64_t start = k2 * w.dilation[2] - w.before[2];
          pool_row<T, MAXIMUM>(y, row + start, inside(start, step, w.size[2], width), step);
        }
      }
    if (!MAXIMUM) {
      int64_t number = 1;
      for (int a = 0; a < 2; a++) number *= counted(w, a, a ? o1 : o0, with_pads ? after[a] : -1);
      for (int64_t o = 0; o < width; o++)
        y[o] /= (T)(number * counted(w, 2, o, with_pads ? after[2] : -1));
    }
  }
}

}  // namespace

extern const fg_entry windows_entries[] = {
    {"patches", patches},
    {"planes_4", planes<uint32_t>},
    {"planes_8", planes<uint64_t>},
    {"fold_f32", fold<float>},
    {"fold_f64", fold<double>},
    {"average_pool_f32", pool<float, false>},
    {"average_pool_f64", pool<double, false>},
    {"max_pool_f32", pool<float, true>},
    {"max_pool_f64", pool<double, true>},
    {"max_pool_i8", pool<int8_t, true>},
    {"max_pool_i16", pool<int16_t, true>},
    {"max_pool_i32", pool<int32_t, true>},
    {"max_pool_i64", pool<int64_t, true>},
    {"max_pool_u8", pool<uint8_t, true>},
    {"max_pool_u16", pool<uint16_t, true>},
    {"max_pool_u32", pool<uint32_t, true>},
    {"max_pool_u64", pool<uint64_t, true>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
