// Reductions: what is combined, and how rows and columns are walked.

// What each reduction keeps (`acc`), starts from, adds an element to, joins, and gives, where a
// result is of `count` elements.
template <class In, class Out>
struct Sum {
  typedef compute_t<In> acc;
  static FG_DEVICE acc neutral() { return 0; }
  static FG_DEVICE acc join(acc x, acc y) { return op_add(x, y); }
  static FG_DEVICE void take(acc &sum, acc x, i64) { sum = join(sum, x); }
  static FG_DEVICE Out finish(acc x, i64) { return narrow<Out>(x); }
};
template <class In, class Out>
struct Mean : Sum<In, Out> {
  typedef compute_t<In> acc;
  static FG_DEVICE Out finish(acc x, i64 count) { return narrow<Out>(x / (acc)count); }
};
template <class In, class Out>
struct Prod {
  typedef compute_t<In> acc;
  static FG_DEVICE acc neutral() { return 1; }
  static FG_DEVICE acc join(acc x, acc y) { return op_multiply(x, y); }
  static FG_DEVICE void take(acc &product, acc x, i64) { product = join(product, x); }
  static FG_DEVICE Out finish(acc x, i64) { return narrow<Out>(x); }
};

template <class T>
FG_DEVICE T lowest() {
  if constexpr (Integer<T>::value)
    return Integer<T>::low;
  else if constexpr (Same<T, bool>::value)
    return false;
  else
    return -(T)FG_INFINITY;
}
template <class T>
FG_DEVICE T highest() {
  if constexpr (Integer<T>::value)
    return Integer<T>::high;
  else if constexpr (Same<T, bool>::value)
    return true;
  else
    return (T)FG_INFINITY;
}
template <class In, class Out>
struct Max {
  typedef compute_t<In> acc;
  static FG_DEVICE acc neutral() { return lowest<acc>(); }
  static FG_DEVICE acc join(acc x, acc y) { return op_maximum(x, y); }
  static FG_DEVICE void take(acc &best, acc x, i64) { best = join(best, x); }
  static FG_DEVICE Out finish(acc x, i64) { return narrow<Out>(x); }
};
template <class In, class Out>
struct Min {
  typedef compute_t<In> acc;
  static FG_DEVICE acc neutral() { return highest<acc>(); }
  static FG_DEVICE acc join(acc x, acc y) { return op_minimum(x, y); }
  static FG_DEVICE void take(acc &best, acc x, i64) { best = join(best, x); }
  static FG_DEVICE Out finish(acc x, i64) { return narrow<Out>(x); }
};

// The place of the largest: NaN is larger than all else, and the first of equal ones counts.
template <class T>
struct Candidate {
  T value;
  i64 index;
};
template <class In, bool LARGEST>
struct Place {
  typedef compute_t<In> T;
  typedef Candidate<T> acc;
  static FG_DEVICE acc neutral() {
    return {LARGEST ? lowest<T>() : highest<T>(), Integer<i64>::high};
  }
  static FG_DEVICE bool before(acc x, acc y) {
    const bool x_nan = x.value != x.value, y_nan = y.value != y.value;
    if (x_nan != y_nan) return x_nan;
    if (x_nan || x.value == y.value) return x.index < y.index;
    return LARGEST ? x.value > y.value : x.value < y.value;
  }
  static FG_DEVICE acc join(acc x, acc y) { return before(y, x) ? y : x; }
  static FG_DEVICE void take(acc &best, T x, i64 index) { best = join(best, acc{x, index}); }
  static FG_DEVICE i64 finish(acc x, i64) { return x.index; }
};
template <class In, class Out>
struct Argmax : Place<In, true> {};
template <class In, class Out>
struct Argmin : Place<In, false> {};

// An element as the operation takes it, or what an earlier launch kept.
template <class Op, bool FIRST, class In>
FG_DEVICE void add_element(typename Op::acc &sum, const In &x, i64 index) {
  if constexpr (FIRST)
    Op::take(sum, widen(x), index);
  else
    sum = Op::join(sum, x);
}
template <class Op, bool LAST, class Out>
FG_DEVICE Out result(const typename Op::acc &sum, i64 count) {
  if constexpr (LAST)
    return Op::finish(sum, count);
  else
    return sum;
}

// Each row's elements are `runs` runs of `length` side by side; where they begin says place(row,
// run). G threads do a row, a power of two up to a warp, or a block; with SPLIT above 1 as many
// blocks do a part of a row each, and keep what they have. Rows begin at whole vectors, so that only
// one row of one run may end with less.
template <class Op, bool FIRST, bool LAST, class In, class Out, int THREADS, int G, int V,
          int PIECE, int SPLIT, class Where>
FG_DEVICE void reduce_rows(Out *out, const In *in, i64 rows, i64 runs, i64 length, i64 count,
                           const Where &place) {
  typedef typename Op::acc A;
  constexpr int LANES = V < 4 ? V : 4, UNROLL = 4;
  const i64 wide = length < V ? 1 : length / V, tail = length % V, all = runs * (length / V);
  const i64 each = (all + SPLIT - 1) / SPLIT;
  static_assert(G <= 32 || G == THREADS, "a part of a warp or a block");
  __shared__ A shared[THREADS / 32];
  fg_trigger();
  const i64 unit = (i64)blockIdx.x * (THREADS / G) + threadIdx.x / G;
  const i64 row = unit / SPLIT, part = unit % SPLIT;
  const bool some = row < rows;
  const i64 end = !some ? 0 : (part + 1) * each < all ? (part + 1) * each : all;
  A sums[LANES];
#pragma unroll
  for (int i = 0; i < LANES; i++) sums[i] = Op::neutral();
  fg_wait();
  i64 q = part * each + threadIdx.x % G;
  for (; q + (UNROLL - 1) * G < end; q += UNROLL * G) {
    Vec<In, V> x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const i64 v = q + u * G;
      x[u] = load<V, PIECE>(in + place(row, v / wide) + v % wide * V);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int j = 0; j < V; j++)
        add_element<Op, FIRST>(sums[j % LANES], x[u].v[j], (q + u * G) * V + j);
  }
  for (; q < end; q += G) {
    const Vec<In, V> x = load<V, PIECE>(in + place(row, q / wide) + q % wide * V);
#pragma unroll
    for (int j = 0; j < V; j++) add_element<Op, FIRST>(sums[j % LANES], x.v[j], q * V + j);
  }
  if (tail && unit == SPLIT - 1) {
    for (i64 e = length - tail + threadIdx.x % G; e < length; e += G)
      add_element<Op, FIRST>(sums[0], in[place(0, 0) + e], e);
  }
  A sum = sums[0];
#pragma unroll
  for (int i = 1; i < LANES; i++) sum = Op::join(sum, sums[i]);
#pragma unroll
  for (int step = (G < 32 ? G : 32) / 2; step > 0; step /= 2)
    sum = Op::join(sum, lane_xor(sum, step));
  if constexpr (G > 32) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = shared[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++) sum = Op::join(sum, shared[i]);
  }
  if (some && threadIdx.x % G == 0) out[unit] = result<Op, LAST, Out>(sum, count);
}

// `batches` times `columns` results side by side: each of `runs` elements a multiple of `columns`
// apart, in places that begin at place(batch, run). X threads do V columns each, Y as many runs at once;
// with SPLIT above 1 as many blocks do a part of the runs each, and keep what they have.
template <class Op, bool FIRST, bool LAST, class In, class Out, int X, int Y, int V, int PIECE,
          int SPLIT, class Where>
FG_DEVICE void reduce_columns(Out *out, const In *in, i64 batches, i64 runs, i64 columns, i64 count,
                              const Where &place) {
  typedef typename Op::acc A;
  constexpr int UNROLL = 4;
  const i64 wide = columns / V, across = (wide + X - 1) / X, each = (runs + SPLIT - 1) / SPLIT;
  __shared__ A shared[Y / 2 + 1][X][V];
  fg_trigger();
  const int x = threadIdx.x % X, y = threadIdx.x / X;
  const i64 block = blockIdx.x, column = (block % across * X + x) * V;
  const i64 part = block / across % SPLIT, batch = block / across / SPLIT;
  const bool some = column < columns;
  const i64 end = !some ? 0 : (part + 1) * each < runs ? (part + 1) * each : runs;
  A sums[V];
#pragma unroll
  for (int j = 0; j < V; j++) sums[j] = Op::neutral();
  fg_wait();
  i64 run = part * each + y;
  for (; run + (UNROLL - 1) * Y < end; run += UNROLL * Y) {
    Vec<In, V> held[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      held[u] = load<V, PIECE>(in + place(batch, run + u * Y) + column);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
      for (int j = 0; j < V; j++) add_element<Op, FIRST>(sums[j], held[u].v[j], run + u * Y);
  }
  for (; run < end; run += Y) {
    const Vec<In, V> held = load<V, PIECE>(in + place(batch, run) + column);
#pragma unroll
    for (int j = 0; j < V; j++) add_element<Op, FIRST>(sums[j], held.v[j], run);
  }
#pragma unroll
  for (int half = Y / 2; half > 0; half /= 2) {
    if (y >= half && y < 2 * half) {
#pragma unroll
      for (int j = 0; j < V; j++) shared[y - half][x][j] = sums[j];
    }
    __syncthreads();
    if (y < half) {
#pragma unroll
      for (int j = 0; j < V; j++) sums[j] = Op::join(sums[j], shared[y][x][j]);
    }
    __syncthreads();
  }
  if (some && y == 0) {
    Vec<Out, V> found;
#pragma unroll
    for (int j = 0; j < V; j++) found.v[j] = result<Op, LAST, Out>(sums[j], count);
    constexpr int FIT = 16 / (int)sizeof(Out), AT_ONCE = FIT < 1 ? 1 : FIT < V ? FIT : V;
    Out *to = out + (part * batches + batch) * columns + column;
    if constexpr (sizeof(Out) <= 8) {
      store<AT_ONCE>(to, found);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) to[j] = found.v[j];
    }
  }
}
