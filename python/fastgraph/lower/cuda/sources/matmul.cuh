// What the kernels of matrix products share: where the matrices of a batch lie, how a product ends,
// and the sum of the parts into which a long K was cut. Stands after elementwise.cuh.
//
// y = act(x w + bias [+ residual]) [+ residual], all of it in the accumulator's type; the one
// rounding is at the store.

constexpr int MAX_BATCH_DIMS = 8;

// The axes before the last two, merged where both operands allow it: sizes and steps in elements.
struct Batch {
  i32 rank;
  i32 size[MAX_BATCH_DIMS];
  i64 x[MAX_BATCH_DIMS], w[MAX_BATCH_DIMS];
};

// Where the matrices of one product of the batch begin.
FG_DEVICE void find_matrices(const Batch &batch, i64 matrix, i64 &x, i64 &w) {
  x = w = 0;
  for (int i = batch.rank - 1; i >= 0; i--) {
    const i64 at = matrix % batch.size[i];
    matrix /= batch.size[i];
    x += at * batch.x[i];
    w += at * batch.w[i];
  }
}

// What products are accumulated in: integers wrap, so their sign does not matter.
template <class T>
struct Accumulator {
  typedef compute_t<T> type;
  FG_DEVICE static type widen_one(T x) { return widen(x); }
  FG_DEVICE static T narrow_one(type x) { return narrow<T>(x); }
};
template <class T, class A>
struct WrappingAccumulator {
  typedef A type;
  FG_DEVICE static A widen_one(T x) { return (A)x; }
  FG_DEVICE static T narrow_one(A x) { return (T)x; }
};
template <>
struct Accumulator<i8> : WrappingAccumulator<i8, u32> {};
template <>
struct Accumulator<u8> : WrappingAccumulator<u8, u32> {};
template <>
struct Accumulator<i16> : WrappingAccumulator<i16, u32> {};
template <>
struct Accumulator<u16> : WrappingAccumulator<u16, u32> {};
template <>
struct Accumulator<i32> : WrappingAccumulator<i32, u32> {};
template <>
struct Accumulator<u32> : WrappingAccumulator<u32, u32> {};
template <>
struct Accumulator<i64> : WrappingAccumulator<i64, u64> {};
template <>
struct Accumulator<u64> : WrappingAccumulator<u64, u64> {};
template <class T>
using accumulator_t = typename Accumulator<T>::type;

// What a product ends with; the lowering has the same numbers.
enum { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_SIGMOID, ACT_TANH };
enum { RESIDUAL_NONE, RESIDUAL_BEFORE, RESIDUAL_AFTER };

template <int ACT>
FG_DEVICE f32 activate_half(f32 x) {
  if constexpr (ACT == ACT_GELU)
    return op_gelu_half(x);
  else if constexpr (ACT == ACT_GELU_TANH)
    return op_gelu_tanh_half(x);
  else if constexpr (ACT == ACT_SILU)
    return op_silu_half(x);
  else if constexpr (ACT == ACT_SIGMOID)
    return op_sigmoid_half(x);
  else if constexpr (ACT == ACT_TANH)
    return op_tanh_half(x);
  else
    return x;
}
template <int ACT, class T, class A>
FG_DEVICE A activate(A x) {
  // Of an integer only as it is stored: it has wrapped, and it has a sign.
  if constexpr (ACT == ACT_RELU)
    return (A)op_relu((typename Choose<Integer<A>::value, T, A>::type)x);
  else if constexpr (sizeof(T) == 2 && Same<A, f32>::value)
    return activate_half<ACT>(x);
  else if constexpr (ACT == ACT_GELU)
    return op_gelu(x);
  else if constexpr (ACT == ACT_GELU_TANH)
    return op_gelu_tanh(x);
  else if constexpr (ACT == ACT_SILU)
    return op_silu(x);
  else if constexpr (ACT == ACT_SIGMOID)
    return op_sigmoid(x);
  else if constexpr (ACT == ACT_TANH)
    return op_tanh(x);
  else
    return x;
}

// How a product ends: at compile time what is done, and the operands of it.
template <class T, bool BIAS, int ACT, int RESIDUAL>
struct Epilogue {
  typedef accumulator_t<T> A;
  T *y;
  const T *bias, *residual;

  FG_DEVICE static A ended(A sum, T bias_one, T residual_one) {
    if constexpr (BIAS) sum += Accumulator<T>::widen_one(bias_one);
    if constexpr (RESIDUAL == RESIDUAL_BEFORE) sum += Accumulator<T>::widen_one(residual_one);
    if constexpr (ACT != ACT_NONE) sum = activate<ACT, T>(sum);
    if constexpr (RESIDUAL == RESIDUAL_AFTER) sum += Accumulator<T>::widen_one(residual_one);
    return sum;
  }
  FG_DEVICE T end(A sum, T bias_one, T residual_one) const {
    return Accumulator<T>::narrow_one(ended(sum, bias_one, residual_one));
  }
  // COUNT sums side by side, of element `at` of y and of column `column` of w on.
  template <int COUNT>
  FG_DEVICE void put(i64 at, int column, const A (&sums)[COUNT]) const {
    Vec<T, COUNT> b = {}, r = {}, result;
    if constexpr (BIAS) b = load<COUNT>(bias + column);
    if constexpr (RESIDUAL != RESIDUAL_NONE) r = load<COUNT>(residual + at);
#pragma unroll
    for (int i = 0; i < COUNT; i++) result.v[i] = end(sums[i], b.v[i], r.v[i]);
    store(y + at, result);
  }
  FG_DEVICE void put_one(i64 at, int column, A sum) const {
    T b = {}, r = {};
    if constexpr (BIAS) b = bias[column];
    if constexpr (RESIDUAL != RESIDUAL_NONE) r = residual[at];
    y[at] = end(sum, b, r);
  }
};

// Writes a block's BM x BN sums, which lie in shared memory in rows of PITCH, to rows from `m0` and
// columns from `n0` of the matrix that begins at element `first`; the barrier before is the caller's.
template <int THREADS, int BM, int BN, int PITCH, bool PARTIAL, class T, bool BIAS, int ACT,
          int RESIDUAL>
FG_DEVICE void put_tile(const Epilogue<T, BIAS, ACT, RESIDUAL> &epilogue, accumulator_t<T> *partial,
                        const accumulator_t<T> *sums, int m0, int n0, int m, int n, i64 first,
                        bool wide) {
  typedef accumulator_t<T> A;
  if (!wide) {
#pragma unroll 1
    for (int i = threadIdx.x; i < BM * BN; i += THREADS) {
      const int row = m0 + i / BN, column = n0 + i % BN;
      if (row >= m || column >= n) continue;
      const i64 at = first + (i64)row * n + column;
      const A sum = sums[i / BN * PITCH + i % BN];
      if constexpr (PARTIAL)
        partial[at] = sum;
      else
        epilogue.put_one(at, column, sum);
    }
    return;
  }
  // Many at a time, so that many loads are under way; few where that would be much code.
  constexpr int ACROSS = BN / 4, AT_ONCE = ACT <= ACT_RELU ? 16 : 2;
#pragma unroll AT_ONCE
  for (int i = threadIdx.x; i < BM * ACROSS; i += THREADS) {
    const int row = m0 + i / ACROSS, column = n0 + i % ACROSS * 4;
    if (row >= m || column >= n) continue;
    const i64 at = first + (i64)row * n + column;
    const Vec<A, 4> four = load<4>(sums + i / ACROSS * PITCH + i % ACROSS * 4);
    if constexpr (PARTIAL)
      store(partial + at, four);
    else
      epilogue.put(at, column, four.v);
  }
}

// The sums of `splits` parts of K, in order, and the end of the product. Part s of element i lies at
// partial[s * count + i]. WIDE: four elements at once.
template <class T, bool BIAS, int ACT, int RESIDUAL, bool WIDE>
__global__ void __launch_bounds__(256)
    matmul_combine(T *y, const accumulator_t<T> *partial, const T *bias, const T *residual,
                   i64 count, i32 n, i32 splits) {
  typedef accumulator_t<T> A;
  constexpr int COUNT = WIDE ? 4 : 1;
  fg_trigger_if_many();
  fg_wait_and_trigger();
  const Epilogue<T, BIAS, ACT, RESIDUAL> epilogue = {y, bias, residual};
  const i64 at = ((i64)blockIdx.x * 256 + threadIdx.x) * COUNT;
  if (at >= count) return;
  const int column = (int)(at % n);
  Vec<A, COUNT> sums = load<COUNT>(partial + at);
  for (int s = 1; s < splits; s++) {
    const Vec<A, COUNT> part = load<COUNT>(partial + s * count + at);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sums.v[i] += part.v[i];
  }
  if constexpr (WIDE)
    epilogue.put(at, column, sums.v);
  else
    epilogue.put_one(at, column, sums.v[0]);
}
