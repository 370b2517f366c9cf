// Elements picked along an axis by indices.

// out[o, i, w] = source[o, indices[i], w]. Negative indices count from the end; one out of range
// gives 0 and a fault.
template <class T, class I, int V, int PIECE, int UNROLL, int THREADS, i64 OUTER, i64 AXIS,
          i64 COUNT, i64 WIDTH>
__global__ __launch_bounds__(THREADS) void take(T *out, const T *source, const I *indices,
                                                u64 *fault, u64 node) {
  constexpr i64 VECTORS = OUTER * COUNT * WIDTH / V;
  typedef typename Choose<(OUTER * COUNT * WIDTH < ((i64)1 << 31)), u32, u64>::type N;
  fg_trigger();
  const N first = (N)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  fg_wait();
  Vec<T, V> held[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const N v = first + u * THREADS;
    if (v < (N)VECTORS) {
      constexpr N WIDE = WIDTH / V;
      const N w = v % WIDE, row = v / WIDE, o = row / (N)COUNT;
      const I index = indices[row % (N)COUNT];
      const i64 at = index < (I)0 ? (i64)index + AXIS : (i64)index;
      if (at >= 0 && at < AXIS) {
        held[u] = load<V, PIECE>(source + ((i64)o * AXIS + at) * WIDTH + (i64)w * V);
      } else {
        memset(&held[u], 0, sizeof(held[u]));
        if (w == 0) fg_fault(fault, node);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const N v = first + u * THREADS;
    if (v < (N)VECTORS) store(out + (i64)v * V, held[u]);
  }
}
