// Rows put to, or joined with, rows whose numbers a run computes.
#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

// As lower/cpu/scatter.py numbers them.
enum Join { ADD = 0, MULTIPLY = 1, MAXIMUM = 2, MINIMUM = 3 };

// Integers wrap: they are added and multiplied as unsigned ones.
template <typename T>
struct Wide {
  typedef T type;
};
template <>
struct Wide<int8_t> {
  typedef uint32_t type;
};
template <>
struct Wide<int16_t> {
  typedef uint32_t type;
};
template <>
struct Wide<int32_t> {
  typedef uint32_t type;
};
template <>
struct Wide<int64_t> {
  typedef uint64_t type;
};
template <>
struct Wide<uint8_t> {
  typedef uint32_t type;
};
template <>
struct Wide<uint16_t> {
  typedef uint32_t type;
};

// NaN, if either is, as in NumPy.
template <typename T>
FG_INLINE T largest(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
FG_INLINE T smallest(T a, T b) {
  return a < b || a != a ? a : b;
}

template <typename T>
FG_INLINE void join(T *to, const T *from, int64_t n, int64_t how) {
  typedef typename Wide<T>::type W;
  if (how == ADD)
    for (int64_t i = 0; i < n; i++) to[i] = (T)((W)to[i] + (W)from[i]);
  else if (how == MULTIPLY)
    for (int64_t i = 0; i < n; i++) to[i] = (T)((W)to[i] * (W)from[i]);
  else if (how == MAXIMUM)
    for (int64_t i = 0; i < n; i++) to[i] = largest(to[i], from[i]);
  else
    for (int64_t i = 0; i < n; i++) to[i] = smallest(to[i], from[i]);
}

// params: rows, bytes of a row, number of indices, how to join (none here). Operands: out, x,
// indices, updates; out may be x. A part does a range of rows, and looks at all indices for them, so
// that updates of one row happen in order.
template <typename PUT>
FG_INLINE void scatter_rows(const fg_call *call, PUT put) {
  const int64_t rows = call->params[0], width = call->params[1], count = call->params[2];
  char *out = (char *)call->args[0];
  const char *x = (const char *)call->args[1], *updates = (const char *)call->args[3];
  const int64_t *indices = (const int64_t *)call->args[2];
  const Slice mine = fg_slice(rows, call->part, call->nparts);
  if (out != x && mine.begin < mine.end)
    memcpy(out + mine.begin * width, x + mine.begin * width,
           (size_t)((mine.end - mine.begin) * width));
  for (int64_t i = 0; i < count; i++) {
    int64_t row = indices[i];
    if (row < 0) row += rows;
    if (row < 0 || row >= rows)
      fg_fault(call);
    else if (row >= mine.begin && row < mine.end)
      put(out + row * width, updates + i * width, width);
  }
}

void scatter(const fg_call *call) {
  if (call->params[1] == 4)
    return scatter_rows(call, [](char *to, const char *from, int64_t) { memcpy(to, from, 4); });
  if (call->params[1] == 8)
    return scatter_rows(call, [](char *to, const char *from, int64_t) { memcpy(to, from, 8); });
  scatter_rows(call, [](char *to, const char *from, int64_t n) { memcpy(to, from, (size_t)n); });
}

template <typename T>
void scatter_join(const fg_call *call) {
  const int64_t how = call->params[3];
  scatter_rows(call, [how](char *to, const char *from, int64_t n) {
    join((T *)to, (const T *)from, n / (int64_t)sizeof(T), how);
  });
}

}  // namespace

extern const fg_entry scatter_entries[] = {
    {"scatter", scatter},
    {"scatter_f32", scatter_join<float>},
    {"scatter_f64", scatter_join<double>},
    {"scatter_i8", scatter_join<int8_t>},
    {"scatter_i16", scatter_join<int16_t>},
    {"scatter_i32", scatter_join<int32_t>},
    {"scatter_i64", scatter_join<int64_t>},
    {"scatter_u8", scatter_join<uint8_t>},
    {"scatter_u16", scatter_join<uint16_t>},
    {"scatter_u32", scatter_join<uint32_t>},
    {"scatter_u64", scatter_join<uint64_t>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
