// Tiles of f32 matrices in shared memory.

// Begins to copy ROWS x COLUMNS elements to rows of PITCH; zeros beyond `rows` and `columns`.
template <int THREADS, int ROWS, int COLUMNS, int PITCH, int BYTES>
FG_DEVICE void copy_rows(f32 *to, const f32 *from, i64 step, int rows, int columns) {
  constexpr int EACH = BYTES / 4, ACROSS = COLUMNS / EACH, PIECES = ROWS * ACROSS;
#pragma unroll
  for (int i = 0; i < (PIECES + THREADS - 1) / THREADS; i++) {
    const int piece = i * THREADS + threadIdx.x;
    if (PIECES % THREADS != 0 && piece >= PIECES) break;
    const int row = piece / ACROSS, column = piece % ACROSS * EACH;
    const bool inside = row < rows && column < columns;
    cp_async<BYTES>(to + row * PITCH + column, inside ? from + row * step + column : from,
                    inside ? BYTES : 0);
  }
}
