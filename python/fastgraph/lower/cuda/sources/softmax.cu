// Softmax: along rows that fit registers, along columns, along rows in parts.

template <class T>
FG_DEVICE f32 power_of_e(f32 x) {
  // Halves do not show the last bits.
  if constexpr (sizeof(T) == 2)
    return exp2f(x * 1.44269504f);
  else
    return expf(x);
}
template <class T>
FG_DEVICE f64 power_of_e(f64 x) {
  return exp(x);
}
// A NaN is lost here and found again in the sum.
struct Larger {
  FG_DEVICE f32 operator()(f32 x, f32 y) const { return fmaxf(x, y); }
  FG_DEVICE f64 operator()(f64 x, f64 y) const { return fmax(x, y); }
};

template <class T, int THREADS, int G, int V, int PIECE, int EACH, i64 ROWS, i64 LENGTH>
__global__ __launch_bounds__(THREADS) void softmax_rows(T *out, const T *in, i64 rows, i64 length) {
  typedef compute_t<T> C;
  __shared__ C shared[2][(THREADS + 31) / 32];
  fg_trigger();
  const Row<THREADS, G, V, EACH, ROWS, LENGTH> mine(rows, length);
  const i64 start = mine.row * mine.length;
  fg_wait();
  Vec<T, V> held[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (mine.has(i)) held[i] = load<V, PIECE>(in + start + mine.column(i));
  C x[EACH][V], most = -(C)FG_INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      x[i][j] = mine.has(i) ? widen(held[i].v[j]) : -(C)FG_INFINITY;
      most = Larger()(most, x[i][j]);
    }
  most = group_reduce<G>(most, Larger(), shared[0]);
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++) {
      const C e = mine.has(i) ? power_of_e<T>(x[i][j] - most) : (C)0;
      x[i][j] = e;
      sum += e;
    }
  sum = group_reduce<G>(sum, Add(), shared[1]);
  const C factor = (C)1 / sum;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    if (!mine.has(i)) continue;
#pragma unroll
    for (int j = 0; j < V; j++) held[i].v[j] = narrow<T>(x[i][j] * factor);
    store(out + start + mine.column(i), held[i]);
  }
}

// The largest of some elements, and the sum of e to the power of what each is below it.
template <class C>
struct Share {
  C most, sum;
};
template <class T, class C>
FG_DEVICE C relative(C x, C most) {
  // Of nothing but -inf there is no sum yet; the results, of -inf less -inf, are NaN.
  return x == -(C)FG_INFINITY ? (C)0 : power_of_e<T>(x - most);
}
template <class T>
struct Joined {
  template <class C>
  FG_DEVICE Share<C> operator()(Share<C> x, Share<C> y) const {
    const C most = Larger()(x.most, y.most);
    return {most, x.sum * relative<T>(x.most, most) + y.sum * relative<T>(y.most, most)};
  }
};
template <class T, int V, class C>
FG_DEVICE void take_share(Share<C> &share, const Vec<T, V> &x) {
  C most = share.most;
#pragma unroll
  for (int j = 0; j < V; j++) most = Larger()(most, widen(x.v[j]));
  C sum = share.sum * relative<T>(share.most, most);
#pragma unroll
  for (int j = 0; j < V; j++) sum += relative<T>((C)widen(x.v[j]), most);
  share.most = most;
  share.sum = sum;
}
template <class T, int V, class C>
FG_DEVICE Vec<T, V> shared_out(const Share<C> &share, const Vec<T, V> &x) {
  const C factor = (C)1 / share.sum;
  Vec<T, V> y;
#pragma unroll
  for (int j = 0; j < V; j++) {
    const C value = widen(x.v[j]);
    y.v[j] = narrow<T>(power_of_e<T>(value - share.most) * factor);
  }
  return y;
}

// Along an axis of SIZE elements, COLUMNS of them beside each other: X threads do V columns each,
// Y as many elements of them at once.
template <class T, int X, int Y, int V, int PIECE, i64 SIZE, i64 COLUMNS>
__global__ __launch_bounds__(X *Y) void softmax_columns(T *out, const T *in, i64 given_size,
                                                        i64 given_columns) {
  typedef compute_t<T> C;
  const i64 size = known<SIZE>(given_size), columns = known<COLUMNS>(given_columns);
  const i64 across = (columns / V + X - 1) / X;
  __shared__ Share<C> shared[Y / 2 + 1][X][V];
  fg_trigger();
  const int x = threadIdx.x % X, y = threadIdx.x / X;
  const i64 column = ((i64)blockIdx.x % across * X + x) * V;
  const i64 start = (i64)blockIdx.x / across * size * columns + column;
  const i64 end = column < columns ? size : 0;
  Share<C> shares[V];
#pragma unroll
  for (int j = 0; j < V; j++) shares[j] = {-(C)FG_INFINITY, (C)0};
  fg_wait();
  for (i64 i = y; i < end; i += Y) {
    const Vec<T, V> held = load<V, PIECE>(in + start + i * columns);
#pragma unroll
    for (int j = 0; j < V; j++) take_share(shares[j], Vec<T, 1>{{held.v[j]}});
  }
#pragma unroll
  for (int half = Y / 2; half > 0; half /= 2) {
    if (y >= half && y < 2 * half) {
#pragma unroll
      for (int j = 0; j < V; j++) shared[y - half][x][j] = shares[j];
    }
    __syncthreads();
    if (y < half) {
#pragma unroll
      for (int j = 0; j < V; j++) shares[j] = Joined<T>()(shares[j], shared[y][x][j]);
    }
    __syncthreads();
  }
  if (y == 0) {
#pragma unroll
    for (int j = 0; j < V; j++) shared[0][x][j] = shares[j];
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; j++) shares[j] = shared[0][x][j];
  for (i64 i = y; i < end; i += Y) {
    Vec<T, V> held = load<V, PIECE>(in + start + i * columns);
#pragma unroll
    for (int j = 0; j < V; j++) held.v[j] = shared_out(shares[j], Vec<T, 1>{{held.v[j]}}).v[0];
    store(out + start + i * columns, held);
  }
}

// Rows that do not fit: PARTS blocks take the shares of parts of a row, in a first launch; each joins
// them and does its part, in a second.
template <class T, int THREADS, int V, int PIECE, i64 LENGTH, i64 PARTS>
__global__ __launch_bounds__(THREADS) void softmax_shares(Share<compute_t<T>> *out, const T *in,
                                                          i64 given_length) {
  typedef compute_t<T> C;
  const i64 length = known<LENGTH>(given_length);
  const i64 wide = length / V, each = (wide + PARTS - 1) / PARTS;
  __shared__ Share<C> shared[THREADS / 32];
  fg_trigger();
  const i64 part = blockIdx.x % PARTS, start = (i64)blockIdx.x / PARTS * length;
  const i64 end = (part + 1) * each < wide ? (part + 1) * each : wide;
  Share<C> share = {-(C)FG_INFINITY, (C)0};
  fg_wait();
  for (i64 q = part * each + threadIdx.x; q < end; q += THREADS)
    take_share(share, load<V, PIECE>(in + start + q * V));
  share = block_reduce<THREADS>(share, Joined<T>(), shared);
  if (threadIdx.x == 0) out[blockIdx.x] = share;
}
template <class T, int THREADS, int V, int PIECE, i64 LENGTH, i64 PARTS>
__global__ __launch_bounds__(THREADS) void softmax_parts(T *out, const T *in,
                                                         const Share<compute_t<T>> *shares,
                                                         i64 given_length) {
  typedef compute_t<T> C;
  const i64 length = known<LENGTH>(given_length);
  const i64 wide = length / V, each = (wide + PARTS - 1) / PARTS;
  fg_trigger();
  const i64 part = blockIdx.x % PARTS, row = (i64)blockIdx.x / PARTS, start = row * length;
  const i64 end = (part + 1) * each < wide ? (part + 1) * each : wide;
  fg_wait();
  Share<C> share = {-(C)FG_INFINITY, (C)0};
  for (int i = threadIdx.x % 32; i < PARTS; i += 32)
    share = Joined<T>()(share, shares[row * PARTS + i]);
  share = warp_reduce(share, Joined<T>());
  for (i64 q = part * each + threadIdx.x; q < end; q += THREADS)
    store(out + start + q * V, shared_out(share, load<V, PIECE>(in + start + q * V)));
}
