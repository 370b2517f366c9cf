// Layer norm and root mean square norm, with the residual that is added before.

// What is read of a row and written to it. EARLY: weight and bias never change during a run.
template <bool RMS, bool RESIDUAL, bool WEIGHT, bool BIAS, bool SUM, bool EARLY>
struct Norm {
  static constexpr bool rms = RMS, residual = RESIDUAL, weight = WEIGHT, bias = BIAS, sum = SUM;
  static constexpr bool early = EARLY;
};
template <class C>
FG_DEVICE C reciprocal_root(C x) {
  if constexpr (sizeof(C) == 4)
    return rsqrtf(x);
  else
    return 1.0 / sqrt(x);
}

// Vectors of the weight, or of the bias, for the columns that a thread holds.
template <class T, int V, int PIECE, int EACH, class R>
FG_DEVICE void load_columns(Vec<T, V> (&held)[EACH], const T *p, const R &mine) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (mine.has(i)) held[i] = load<V, PIECE>(p + mine.column(i));
}

// Norms a row whose elements x its threads hold, and writes it.
template <class N, int G, int PIECE, class T, class C, int V, int EACH, class R>
FG_DEVICE void norm_held(T *out, T *sums, C (&x)[EACH][V], Vec<T, V> (&scale)[EACH],
                         Vec<T, V> (&shift)[EACH], const T *weight, const T *bias, C eps,
                         const R &mine, C *shared0, C *shared1) {
  const i64 start = mine.row * mine.length;
  Vec<T, V> held;
  C mean = 0, power = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++) mean += x[i][j];
  if (N::sum) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (!mine.has(i)) continue;
#pragma unroll
      for (int j = 0; j < V; j++) held.v[j] = narrow<T>(x[i][j]);
      store(sums + start + mine.column(i), held);
    }
  }
  if (!N::rms)
    mean = group_reduce<G>(mean, Add(), shared0) / (C)mine.length;
  else
    mean = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      x[i][j] -= mean;
      if (mine.has(i)) power += x[i][j] * x[i][j];
    }
  power = group_reduce<G>(power, Add(), shared1) / (C)mine.length;
  const C factor = reciprocal_root(power + eps);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    if (!mine.has(i)) continue;
    if (N::weight && !N::early) scale[i] = load<V, PIECE>(weight + mine.column(i));
    if (N::bias && !N::early) shift[i] = load<V, PIECE>(bias + mine.column(i));
#pragma unroll
    for (int j = 0; j < V; j++) {
      C y = x[i][j] * factor;
      if (N::weight) y *= widen(scale[i].v[j]);
      if (N::bias) y += widen(shift[i].v[j]);
      held.v[j] = narrow<T>(y);
    }
    store(out + start + mine.column(i), held);
  }
}

template <class T, class N, int THREADS, int G, int V, int PIECE, int EACH, i64 ROWS, i64 LENGTH>
__global__ __launch_bounds__(THREADS) void norm_rows(T *out, T *sums, const T *in,
                                                     const T *residual, const T *weight,
                                                     const T *bias, compute_t<T> eps, i64 rows,
                                                     i64 length) {
  typedef compute_t<T> C;
  __shared__ C shared[2][(THREADS + 31) / 32];
  fg_trigger_if_many();
  const Row<THREADS, G, V, EACH, ROWS, LENGTH> mine(rows, length);
  const i64 start = mine.row * mine.length;
  Vec<T, V> held[EACH], other[EACH], scale[EACH], shift[EACH];
  // Before the wait where that cannot be wrong; else where they are used, and no registers wait.
  if (N::early) {
    if (N::weight) load_columns<T, V, PIECE>(scale, weight, mine);
    if (N::bias) load_columns<T, V, PIECE>(shift, bias, mine);
  }
  fg_wait_and_trigger();
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    if (!mine.has(i)) continue;
    held[i] = load<V, PIECE>(in + start + mine.column(i));
    if (N::residual) other[i] = load<V, PIECE>(residual + start + mine.column(i));
  }
  C x[EACH][V];
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      x[i][j] = 0;
      if (!mine.has(i)) continue;
      x[i][j] = widen(held[i].v[j]);
      if (N::residual) x[i][j] += widen(other[i].v[j]);
    }
  norm_held<N, G, PIECE>(out, sums, x, scale, shift, weight, bias, eps, mine, shared[0], shared[1]);
}

// Rows that do not fit: PARTS blocks take the moments of parts of a row, in a first launch; each joins
// them and does its part, in a second.

// How many elements, their mean, and the sum of squares of how far they are from it.
template <class C>
struct Moments {
  C count, mean, power;
};
struct Joined {
  template <class C>
  FG_DEVICE Moments<C> operator()(Moments<C> x, Moments<C> y) const {
    const C count = x.count + y.count;
    if (count == (C)0) return x;
    const C apart = y.mean - x.mean, share = y.count / count;
    return {count, x.mean + apart * share, x.power + y.power + apart * apart * x.count * share};
  }
};
template <class N, int V, int PIECE, class T>
FG_DEVICE void load_sum(compute_t<T> (&x)[V], const T *in, const T *residual, i64 at) {
  const Vec<T, V> held = load<V, PIECE>(in + at);
#pragma unroll
  for (int j = 0; j < V; j++) x[j] = widen(held.v[j]);
  if (N::residual) {
    const Vec<T, V> other = load<V, PIECE>(residual + at);
#pragma unroll
    for (int j = 0; j < V; j++) x[j] += widen(other.v[j]);
  }
}

template <class T, class N, int THREADS, int V, int PIECE, i64 LENGTH, i64 PARTS>
__global__ __launch_bounds__(THREADS) void norm_moments(Moments<compute_t<T>> *out, const T *in,
                                                        const T *residual, i64 given_length) {
  typedef compute_t<T> C;
  const i64 length = known<LENGTH>(given_length);
  const i64 wide = length / V, each = (wide + PARTS - 1) / PARTS;
  __shared__ Moments<C> shared[THREADS / 32];
  fg_trigger();
  const i64 part = blockIdx.x % PARTS, start = (i64)blockIdx.x / PARTS * length;
  const i64 end = (part + 1) * each < wide ? (part + 1) * each : wide;
  Moments<C> all = {0, 0, 0};
  fg_wait();
  for (i64 q = part * each + threadIdx.x; q < end; q += THREADS) {
    C x[V];
    load_sum<N, V, PIECE>(x, in, residual, start + q * V);
    Moments<C> few = {(C)V, 0, 0};
#pragma unroll
    for (int j = 0; j < V; j++) few.mean += x[j];
    few.mean = N::rms ? (C)0 : few.mean / (C)V;
#pragma unroll
    for (int j = 0; j < V; j++) few.power += (x[j] - few.mean) * (x[j] - few.mean);
    all = Joined()(all, few);
  }
  all = block_reduce<THREADS>(all, Joined(), shared);
  if (threadIdx.x == 0) out[blockIdx.x] = all;
}

template <class T, class N, int THREADS, int V, int PIECE, i64 LENGTH, i64 PARTS>
__global__ __launch_bounds__(THREADS) void norm_parts(T *out, T *sums, const T *in,
                                                      const T *residual, const T *weight,
                                                      const T *bias,
                                                      const Moments<compute_t<T>> *moments,
                                                      compute_t<T> eps, i64 given_length) {
  typedef compute_t<T> C;
  const i64 length = known<LENGTH>(given_length);
  const i64 wide = length / V, each = (wide + PARTS - 1) / PARTS;
  fg_trigger();
  const i64 part = blockIdx.x % PARTS, row = (i64)blockIdx.x / PARTS, start = row * length;
  const i64 end = (part + 1) * each < wide ? (part + 1) * each : wide;
  fg_wait();
  Moments<C> all = {0, 0, 0};
  for (int i = threadIdx.x % 32; i < PARTS; i += 32) all = Joined()(all, moments[row * PARTS + i]);
  all = warp_reduce(all, Joined());
  const C mean = all.mean, factor = reciprocal_root(all.power / (C)length + eps);
  for (i64 q = part * each + threadIdx.x; q < end; q += THREADS) {
    C x[V];
    load_sum<N, V, PIECE>(x, in, residual, start + q * V);
    Vec<T, V> y, scale, shift;
    if (N::sum) {
#pragma unroll
      for (int j = 0; j < V; j++) y.v[j] = narrow<T>(x[j]);
      store(sums + start + q * V, y);
    }
    if (N::weight) scale = load<V, PIECE>(weight + q * V);
    if (N::bias) shift = load<V, PIECE>(bias + q * V);
#pragma unroll
    for (int j = 0; j < V; j++) {
      C z = (x[j] - mean) * factor;
      if (N::weight) z *= widen(scale.v[j]);
      if (N::bias) z += widen(shift.v[j]);
      y.v[j] = narrow<T>(z);
    }
    store(out + start + q * V, y);
  }
}
