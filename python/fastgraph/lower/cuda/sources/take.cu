// Elements picked along an axis by indices.

// out[o, i, w] = source[o, indices[i], w]. Negative indices count from the end; one out of range
// gives 0 and a fault.
// N counts the elements of out.
template <class T, class I, class N, int V, int PIECE, int UNROLL, int THREADS, i64 OUTER, i64 AXIS,
          i64 COUNT, i64 WIDTH>
__global__ __launch_bounds__(THREADS) void take(T *out, const T *source, const I *indices,
                                                u64 *fault, u64 node, i64 given_outer,
                                                i64 given_axis, i64 given_count, i64 given_width) {
  const i64 axis = known<AXIS>(given_axis), width = known<WIDTH>(given_width);
  const N count = (N)known<COUNT>(given_count), wide = (N)(width / V);
  const N vectors = (N)known<OUTER>(given_outer) * count * wide;
  fg_trigger();
  const N first = (N)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  fg_wait();
  Vec<T, V> held[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const N v = first + u * THREADS;
    if (v < vectors) {
      const N w = v % wide, row = v / wide, o = row / count;
      const I index = indices[row % count];
      const i64 at = index < (I)0 ? (i64)index + axis : (i64)index;
      if (at >= 0 && at < axis) {
        held[u] = load<V, PIECE>(source + ((i64)o * axis + at) * width + (i64)w * V);
      } else {
        memset(&held[u], 0, sizeof(held[u]));
        if (w == 0) fg_fault(fault, node);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const N v = first + u * THREADS;
    if (v < vectors) store(out + (i64)v * V, held[u]);
  }
}
