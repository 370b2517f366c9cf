// Rows that are combined and changed: by part of a warp, a warp or a block each, whose threads hold
// the row in registers, so that memory is read and written once.

// The combination over the G threads that share a row; `shared` has a value for each warp.
template <int G, class T, class F>
FG_DEVICE T group_reduce(T x, F combine, T *shared) {
  if constexpr (G <= 32)
    return warp_reduce<G>(x, combine);
  else
    return block_reduce<G>(x, combine, shared);
}

// Which row of which part a thread does. Of a row's LENGTH elements a thread holds EACH vectors of
// V, G vectors apart.
template <int THREADS, int G, int V, int EACH, i64 ROWS, i64 LENGTH>
struct Row {
  static_assert(LENGTH == GIVEN || (LENGTH % V == 0 && (i64)G * V * EACH >= LENGTH),
                "a row fits its threads");
  i64 row, rows, length;
  int lane;
  FG_DEVICE Row(i64 all_rows, i64 row_length)
      : row((i64)blockIdx.x * (THREADS / G) + threadIdx.x / G),
        rows(known<ROWS>(all_rows)),
        length(known<LENGTH>(row_length)),
        lane(threadIdx.x % G) {}
  FG_DEVICE int column(int i) const { return (i * G + lane) * V; }
  // Whether vector i lies in the row; known where all of them do.
  FG_DEVICE bool has(int i) const {
    return ((ROWS != GIVEN && ROWS % (THREADS / G) == 0) || row < rows) &&
           ((i64)(i + 1) * G * V <= LENGTH || column(i) < length);
  }
};
