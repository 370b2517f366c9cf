// Running sums along rows and along columns.

// Element i of a line in the order in which it is summed lies at `at(i)` of n.
struct Sums {
  template <class T>
  FG_DEVICE T operator()(T x, T y) const {
    return op_add(x, y);
  }
};

template <bool REVERSE>
FG_DEVICE i64 turned(i64 i, i64 n) {
  return REVERSE ? n - 1 - i : i;
}

// The sum over the lanes before this one among LANES, and in `total` that over all of them.
template <int LANES, class T>
FG_DEVICE T lanes_before(T x, T &total) {
  const int lane = threadIdx.x % LANES;
  T sum = x;
#pragma unroll
  for (int step = 1; step < LANES; step *= 2) {
    const T other = __shfl_up_sync(0xffffffffu, sum, step, LANES);
    if (lane >= step) sum = op_add(sum, other);
  }
  total = __shfl_sync(0xffffffffu, sum, LANES - 1, LANES);
  const T before = __shfl_up_sync(0xffffffffu, sum, 1, LANES);
  return lane ? before : (T)0;
}

// G threads, a warp or a block, sum a row of LENGTH; with PARTS above 1 as many blocks do a part of
// it each, in front of which lie the sums `parts` of those before it.
template <class T, bool EXCLUSIVE, bool REVERSE, int THREADS, int G, int V, int PIECE, i64 ROWS,
          i64 LENGTH, int PARTS>
__global__ __launch_bounds__(THREADS) void scan_rows(T *out, const T *in, const compute_t<T> *parts,
                                                     i64 given_rows, i64 given_length) {
  typedef compute_t<T> C;
  const i64 length = known<LENGTH>(given_length);
  const i64 wide = length / V, each = (wide + PARTS - 1) / PARTS;
  static_assert((LENGTH == GIVEN || LENGTH % V == 0) && (G == 32 || G == THREADS),
                "whole vectors; a warp or a block");
  __shared__ C shared[2][THREADS / 32];
  fg_trigger();
  const i64 unit = (i64)blockIdx.x * (THREADS / G) + threadIdx.x / G;
  const i64 row = unit / PARTS, part = unit % PARTS;
  // All threads of a warp take every turn: they exchange sums.
  const bool some = row < known<ROWS>(given_rows);
  const i64 first = part * each, end = first + each < wide ? first + each : wide;
  C carry = 0;
  fg_wait();
  if (PARTS > 1 && some) {
    // Parts are cut from the front of memory, so that those of sums from the end come behind.
    for (i64 i = threadIdx.x % 32; i < PARTS; i += 32)
      if (REVERSE ? i > part : i < part) carry = op_add(carry, parts[row * PARTS + i]);
    carry = warp_reduce(carry, Sums());
  }
  int turn = 0;
  for (i64 base = first; base < end; base += G, turn ^= 1) {
    const i64 q = base + threadIdx.x % G;
    // Of a part that is summed from its end the vectors are counted from there.
    const i64 v = REVERSE ? end - 1 - (q - first) : q;
    const bool here = some && q < end;
    Vec<T, V> held;
    C x[V], sum = 0;
    if (here) held = load<V, PIECE>(in + row * length + v * V);
#pragma unroll
    for (int j = 0; j < V; j++) {
      x[j] = here ? widen(held.v[turned<REVERSE>(j, V)]) : (C)0;
      sum = op_add(sum, x[j]);
    }
    C total, before = lanes_before<32>(sum, total);
    if constexpr (G > 32) {
      if (threadIdx.x % 32 == 0) shared[turn][threadIdx.x / 32] = total;
      __syncthreads();
      total = 0;
#pragma unroll
      for (int i = 0; i < THREADS / 32; i++) {
        if (i < (int)threadIdx.x / 32) before = op_add(before, shared[turn][i]);
        total = op_add(total, shared[turn][i]);
      }
    }
    C running = op_add(carry, before);
#pragma unroll
    for (int j = 0; j < V; j++) {
      const C next = op_add(running, x[j]);
      held.v[turned<REVERSE>(j, V)] = narrow<T>(EXCLUSIVE ? running : next);
      running = next;
    }
    if (here) store(out + row * length + v * V, held);
    carry = op_add(carry, total);
  }
}

// Along an axis of SIZE elements, COLUMNS of them beside each other: X threads do a column each, Y
// of them a part of it, which they sum up first.
template <class T, bool EXCLUSIVE, bool REVERSE, int X, int Y, i64 SIZE, i64 COLUMNS>
__global__ __launch_bounds__(X *Y) void scan_columns(T *out, const T *in, i64 given_size,
                                                     i64 given_columns) {
  typedef compute_t<T> C;
  const i64 size = known<SIZE>(given_size), columns = known<COLUMNS>(given_columns);
  const i64 across = (columns + X - 1) / X, each = (size + Y - 1) / Y;
  __shared__ C shared[Y][X];
  fg_trigger();
  const int x = threadIdx.x % X, y = threadIdx.x / X;
  const i64 column = (i64)blockIdx.x % across * X + x;
  const i64 start = (i64)blockIdx.x / across * size * columns + column;
  const i64 first = y * each, last = first + each < size ? first + each : size;
  const i64 end = column < columns ? last : first;
  C sum = 0;
  fg_wait();
  if (Y > 1) {
    for (i64 i = first; i < end; i++)
      sum = op_add(sum, widen(in[start + turned<REVERSE>(i, size) * columns]));
    shared[y][x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < y; i++) sum = op_add(sum, shared[i][x]);
  }
  for (i64 i = first; i < end; i++) {
    const i64 at = start + turned<REVERSE>(i, size) * columns;
    const C next = op_add(sum, widen(in[at]));
    out[at] = narrow<T>(EXCLUSIVE ? sum : next);
    sum = next;
  }
}
