// Tiles of matrices of 16-bit elements in shared memory, for the tensor cores.
//
// A row of a tile is CHUNKS pieces of 16 bytes. Which piece lies where changes from row to row, so
// that one piece of eight successive rows touches every bank once: that is what ldmatrix reads.
template <int CHUNKS>
FG_DEVICE int swizzled(int row, int chunk) {
  static_assert(CHUNKS >= 2 && (CHUNKS & (CHUNKS - 1)) == 0, "a power of two");
  // Rows shorter than all banks together share them: so many rows have the same order.
  constexpr int SHARING = CHUNKS >= 8 ? 1 : 8 / CHUNKS;
  constexpr int ORDERS = CHUNKS >= 8 ? 8 : CHUNKS;
  return (row * CHUNKS + (chunk ^ (row / SHARING % ORDERS))) * 16;
}

// Begins to copy ROWS x COLUMNS elements, BYTES at a time, whose rows are `step` elements apart.
// Beyond `rows` and `columns` there are zeros; `columns` is a multiple of what BYTES hold.
template <int THREADS, int ROWS, int COLUMNS, int BYTES, class T>
FG_DEVICE void copy_tile(unsigned char *to, const T *from, i64 step, int rows, int columns) {
  static_assert(sizeof(T) == 2, "elements of 16 bits");
  constexpr int EACH = BYTES / 2, ACROSS = COLUMNS / EACH, CHUNKS = COLUMNS / 8;
  // Copies that go through registers are few at a time.
  constexpr int PIECES = ROWS * ACROSS, AT_ONCE = BYTES >= 4 ? 16 : 8;
#pragma unroll AT_ONCE
  for (int i = 0; i < (PIECES + THREADS - 1) / THREADS; i++) {
    const int piece = i * THREADS + threadIdx.x;
    if (PIECES % THREADS != 0 && piece >= PIECES) break;
    const int row = piece / ACROSS, column = piece % ACROSS * EACH;
    const bool inside = row < rows && column < columns;
    const T *source = inside ? from + row * step + column : from;
    unsigned char *place = to + swizzled<CHUNKS>(row, column / 8) + column % 8 * 2;
    copy_piece<BYTES>(place, source, inside);
  }
}

// The rows of 8 x 8 matrices that a lane names to ldmatrix for the tile of x of an mma: 16 rows from
// `row` and 16 columns from `column`; where the tile lies transposed, `row` counts its columns.
template <int CHUNKS, bool TRANSPOSED>
FG_DEVICE void load_a(u32 (&a)[4], const unsigned char *tile, int row, int column) {
  const int lane = threadIdx.x % 32;
  if constexpr (TRANSPOSED)
    ldmatrix<4, true>(
        a, tile + swizzled<CHUNKS>(column + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2));
  else
    ldmatrix<4>(a, tile + swizzled<CHUNKS>(row + lane % 16, column / 8 + lane / 16));
}

// The same for w, of two products side by side: 16 rows (of K) from `row`, 16 columns from `column`.
// TRANSPOSED: the tile has a row for each column of w.
template <int CHUNKS, bool TRANSPOSED>
FG_DEVICE void load_b(u32 (&left)[2], u32 (&right)[2], const unsigned char *tile, int row,
                      int column) {
  const int lane = threadIdx.x % 32;
  u32 b[4];
  if constexpr (TRANSPOSED)
    ldmatrix<4>(b,
                tile + swizzled<CHUNKS>(column + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2));
  else
    ldmatrix<4, true>(b, tile + swizzled<CHUNKS>(row + lane % 16, column / 8 + lane / 16));
  left[0] = b[0], left[1] = b[1], right[0] = b[2], right[1] = b[3];
}
