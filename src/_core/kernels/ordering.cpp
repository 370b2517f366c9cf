// Running sums, and the largest elements of rows in order.
#include "fg_kernel.h"
#include "vec.h"

namespace FG_NS {
namespace {

constexpr int64_t COLUMNS = 64;

// params: outer size, axis size, inner size, whether exclusive, whether from the end. Sums are kept
// in SUM, which is wider for floats; integers wrap, so theirs are unsigned. Units are up to 64
// neighbouring columns.
template <typename T, typename SUM>
void cumulative_sum(const fg_call *call) {
  const int64_t outer = call->params[0], n = call->params[1], inner = call->params[2];
  const bool exclusive = call->params[3], reverse = call->params[4];
  const int64_t chunks = (inner + COLUMNS - 1) / COLUMNS, step = reverse ? -inner : inner;
  T *out = (T *)call->args[0];
  const T *x = (const T *)call->args[1];
  const Slice mine = fg_slice(outer * chunks, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t column = unit % chunks * COLUMNS;
    const int64_t width = inner - column < COLUMNS ? inner - column : COLUMNS;
    int64_t at = unit / chunks * n * inner + column + (reverse ? (n - 1) * inner : 0);
    SUM sum[COLUMNS] = {};
    for (int64_t i = 0; i < n; i++, at += step) {
      for (int64_t c = 0; c < width; c++) {
        const SUM before = sum[c];
        sum[c] = before + (SUM)x[at + c];
        out[at + c] = (T)(exclusive ? before : sum[c]);
      }
    }
  }
}

// NaN is larger than all else, and equal to itself.
template <typename T>
FG_INLINE bool larger(T a, T b) {
  return a > b || (a != a && b == b);
}

// One row: which of its elements come first, by index.
template <typename T>
struct Row {
  const T *x;
  int64_t step;
  bool largest;

  bool before(int64_t i, int64_t j) const {
    const T a = x[i * step], b = x[j * step];
    if (largest ? larger(a, b) : larger(b, a)) return true;
    if (largest ? larger(b, a) : larger(a, b)) return false;
    return i < j;
  }
};

// A heap in places `step` apart, whose root comes last of all: lets `index` sink from the root.
template <typename T>
FG_INLINE void sink(const Row<T> &row, int64_t *heap, int64_t step, int64_t size, int64_t index) {
  int64_t at = 0;
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && row.before(heap[child * step], heap[(child + 1) * step])) child++;
    if (!row.before(index, heap[child * step])) break;
    heap[at * step] = heap[child * step];
    at = child;
  }
  heap[at * step] = index;
}
template <typename T>
FG_INLINE void rise(const Row<T> &row, int64_t *heap, int64_t step, int64_t at, int64_t index) {
  while (at > 0) {
    const int64_t parent = (at - 1) / 2;
    if (!row.before(heap[parent * step], index)) break;
    heap[at * step] = heap[parent * step];
    at = parent;
  }
  heap[at * step] = index;
}

// params: outer size, axis size, inner size, k, whether the largest. Operands: values, indices, x, a
// tap. That gets, while its first word is not 0, the indices in 32 bits behind its second word, which
// counts how often.
// The heap of the k first lies where their indices are written; sorting it in place puts what comes
// last to the end.
template <typename T>
void top_k(const fg_call *call) {
  const int64_t outer = call->params[0], n = call->params[1], inner = call->params[2];
  const int64_t k = call->params[3];
  T *values = (T *)call->args[0];
  int64_t *indices = (int64_t *)call->args[1];
  const T *x = (const T *)call->args[2];
  uint64_t *tap = (uint64_t *)call->args[3];
  const Slice mine = fg_slice(outer * inner, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t block = unit / inner, column = unit % inner;
    const Row<T> row = {x + block * n * inner + column, inner, call->params[4] != 0};
    int64_t *heap = indices + block * k * inner + column;
    for (int64_t i = 0; i < k; i++) rise(row, heap, inner, i, i);
    for (int64_t i = k; i < n; i++)
      if (row.before(i, heap[0])) sink(row, heap, inner, k, i);
    for (int64_t size = k - 1; size > 0; size--) {
      const int64_t last = heap[0], moved = heap[size * inner];
      sink(row, heap, inner, size, moved);
      heap[size * inner] = last;
    }
    T *to = values + block * k * inner + column;
    for (int64_t i = 0; i < k; i++) to[i * inner] = row.x[heap[i * inner] * inner];
    if (tap[0] == 0) continue;
    uint32_t *noted = (uint32_t *)(tap + 2) + block * k * inner + column;
    for (int64_t i = 0; i < k; i++) noted[i * inner] = (uint32_t)heap[i * inner];
  }
  if (tap[0] != 0 && call->part == 0) __atomic_fetch_add(tap + 1, 1, __ATOMIC_RELAXED);
}

}  // namespace

extern const fg_entry ordering_entries[] = {
    {"cumulative_sum_f32", cumulative_sum<float, double>},
    {"cumulative_sum_f64", cumulative_sum<double, double>},
    {"cumulative_sum_i64", cumulative_sum<int64_t, uint64_t>},
    {"cumulative_sum_u64", cumulative_sum<uint64_t, uint64_t>},
    {"top_k_f32", top_k<float>},
    {"top_k_f64", top_k<double>},
    {"top_k_i8", top_k<int8_t>},
    {"top_k_i16", top_k<int16_t>},
    {"top_k_i32", top_k<int32_t>},
    {"top_k_i64", top_k<int64_t>},
    {"top_k_u8", top_k<uint8_t>},
    {"top_k_u16", top_k<uint16_t>},
    {"top_k_u32", top_k<uint32_t>},
    {"top_k_u64", top_k<uint64_t>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
