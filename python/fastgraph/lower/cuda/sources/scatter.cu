// Rows put to, or joined with, rows whose numbers a run computes, in the order of the numbers.

struct Put {
  template <class C>
  FG_DEVICE C operator()(C, C y) const {
    return y;
  }
};
struct JoinAdd {
  template <class C>
  FG_DEVICE C operator()(C x, C y) const {
    return op_add(x, y);
  }
};
struct JoinMultiply {
  template <class C>
  FG_DEVICE C operator()(C x, C y) const {
    return op_multiply(x, y);
  }
};
struct JoinMaximum {
  template <class C>
  FG_DEVICE C operator()(C x, C y) const {
    return op_maximum(x, y);
  }
};
struct JoinMinimum {
  template <class C>
  FG_DEVICE C operator()(C x, C y) const {
    return op_minimum(x, y);
  }
};

// A block owns RANGE of ROWS rows and CHUNK of WIDTH columns: it holds them in shared memory, goes
// through all COUNT numbers in order, THREADS at once, and joins what is meant for it. So equal
// numbers act in their order, and nothing else depends on one. A number out of range is skipped.
// What is put to rows where x lies is written there at once: no other row is read or written.
template <class T, class Join, int THREADS, i64 ROWS, i64 WIDTH, i64 COUNT, int RANGE, int CHUNK>
FG_DEVICE void scatter_rows(T *out, const T *x, const i64 *indices, const T *updates, u64 *fault,
                            u64 node, i64 given_rows, i64 given_width, i64 given_count) {
  typedef compute_t<T> C;
  const i64 all_rows = known<ROWS>(given_rows), width = known<WIDTH>(given_width);
  const i64 count = known<COUNT>(given_count);
  const i64 across = width ? (width + CHUNK - 1) / CHUNK : 1;
  __shared__ C held[RANGE * CHUNK];
  __shared__ int rows[THREADS], warps[THREADS / 32];
  fg_trigger();
  const i64 first_row = (i64)blockIdx.x / across * RANGE, first = (i64)blockIdx.x % across * CHUNK;
  const int range = (int)min((i64)RANGE, all_rows - first_row),
            chunk = (int)min((i64)CHUNK, width - first);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool there = Same<Join, Put>::value && out == x;
  fg_wait();
  if (!there)
    for (int e = threadIdx.x; e < range * chunk; e += THREADS)
      held[e / chunk * CHUNK + e % chunk] =
          widen(x[(first_row + e / chunk) * width + first + e % chunk]);
  __syncthreads();
  for (i64 base = 0; base < count; base += THREADS) {
    const i64 i = base + threadIdx.x;
    i64 row = -1;
    if (i < count) {
      row = indices[i];
      if (row < 0) row += all_rows;
      if (row < 0 || row >= all_rows) {
        if (blockIdx.x == 0) fg_fault(fault, node);
        row = -1;
      }
      row -= first_row;
    }
    const bool mine = i < count && row >= 0 && row < range;
    // What is meant for the block comes together, in order.
    const u32 found = __ballot_sync(0xffffffffu, mine);
    if (lane == 0) warps[warp] = __popc(found);
    __syncthreads();
    int before = __popc(found & ((1u << lane) - 1)), total = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
      if (w < warp) before += warps[w];
      total += warps[w];
    }
    if (mine) rows[before] = (int)threadIdx.x << 20 | (int)row;
    __syncthreads();
    for (int n = 0; n < total; n++) {
      const i64 update = (base + (rows[n] >> 20)) * width + first;
      const int to = (rows[n] & 0xfffff) * CHUNK;
      // A column is always done by the same thread.
      if (there) {
        T *put = out + (first_row + (rows[n] & 0xfffff)) * width + first;
        for (int c = threadIdx.x; c < chunk; c += THREADS) put[c] = updates[update + c];
        continue;
      }
      for (int c = threadIdx.x; c < chunk; c += THREADS)
        held[to + c] = Join()(held[to + c], widen(updates[update + c]));
    }
    // The next turn writes both lists.
    __syncthreads();
  }
  if (there) return;
  for (int e = threadIdx.x; e < range * chunk; e += THREADS)
    out[(first_row + e / chunk) * width + first + e % chunk] =
        narrow<T>(held[e / chunk * CHUNK + e % chunk]);
}

template <class T, class Join, int THREADS, i64 ROWS, i64 WIDTH, i64 COUNT, int RANGE, int CHUNK>
__global__ __launch_bounds__(THREADS) void scatter(T *out, const T *x, const i64 *indices,
                                                   const T *updates, u64 *fault, u64 node,
                                                   i64 given_rows, i64 given_width,
                                                   i64 given_count) {
  scatter_rows<T, Join, THREADS, ROWS, WIDTH, COUNT, RANGE, CHUNK>(
      out, x, indices, updates, fault, node, given_rows, given_width, given_count);
}

// The same numbers for two arrays: a row of blocks each.
template <class T, class Join, int THREADS, i64 ROWS, i64 WIDTH, i64 COUNT, int RANGE, int CHUNK>
__global__ __launch_bounds__(THREADS) void scatter_pair(T *out, T *other_out, const T *x,
                                                        const i64 *indices, const T *updates,
                                                        const T *other_x, const T *other_updates,
                                                        u64 *fault, u64 node, i64 given_rows,
                                                        i64 given_width, i64 given_count) {
  const bool other = blockIdx.y == 1;
  scatter_rows<T, Join, THREADS, ROWS, WIDTH, COUNT, RANGE, CHUNK>(
      other ? other_out : out, other ? other_x : x, indices, other ? other_updates : updates, fault,
      node, given_rows, given_width, given_count);
}
