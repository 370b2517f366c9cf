// Bytes from where a caller has them to where a run needs them, and back.

// Each thread of a row of blocks moves what is aligned best: 16, 4 or 1 bytes at once.
template <typename T>
FG_DEVICE u64 fg_move_as(char *to, const char *from, u64 n) {
  const u64 step = (u64)gridDim.x * blockDim.x, count = n / sizeof(T);
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  // Several under way at once, where there is so much.
  for (; i + 3 * step < count; i += 4 * step) {
    const T a = ((const T *)from)[i], b = ((const T *)from)[i + step];
    const T c = ((const T *)from)[i + 2 * step], d = ((const T *)from)[i + 3 * step];
    ((T *)to)[i] = a;
    ((T *)to)[i + step] = b;
    ((T *)to)[i + 2 * step] = c;
    ((T *)to)[i + 3 * step] = d;
  }
  for (; i < count; i += step) ((T *)to)[i] = ((const T *)from)[i];
  return count * sizeof(T);
}

FG_DEVICE void fg_move_bytes(char *to, const char *from, u64 n) {
  if (to == from) return;  // What is computed in a handle is there already.
  const u64 at = (u64)to | (u64)from;
  const u64 done = at % 16 == 0  ? fg_move_as<uint4>(to, from, n)
                   : at % 4 == 0 ? fg_move_as<u32>(to, from, n)
                                 : 0;
  fg_move_as<u8>(to + done, from + done, n - done);
}

// One thread for each scalar; the values came with the launch.
FG_DEVICE void fg_move_words(u64 *words, u64 first, const u64 *given, u64 n) {
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < n)
    words[first + threadIdx.x] = given[threadIdx.x];
}


// Whether the run has met bad data; it is in memory of the host, so one thread looks.
FG_DEVICE bool fg_has_failed(const u64 *fault) {
  __shared__ u64 found;
  if (threadIdx.x == 0) found = *(const volatile u64 *)fault;
  __syncthreads();
  return found != 0;
}

// The row that an integer of `width` bytes tells, less than 0 where it has no sign. One that is
// negative or more than `most` is bad.
FG_DEVICE u64 fg_position(const char *at, i64 width, u64 most, bool &bad) {
  i64 s = 0;
  u64 u = 0;
  switch (width) {
    case 1: s = *(const i8 *)at; break;
    case 2: s = *(const i16 *)at; break;
    case 4: s = *(const i32 *)at; break;
    case 8: s = *(const i64 *)at; break;
    case -1: u = *(const u8 *)at; break;
    case -2: u = *(const u16 *)at; break;
    case -4: u = *(const u32 *)at; break;
    default: u = *(const u64 *)at; break;
  }
  if (width > 0) u = (u64)s;
  bad |= s < 0 || u > most;
  return u;
}

// `n` bytes of rows go to those of `rows` from `first` on, and round.
FG_DEVICE void fg_fill_rows(char *to, const char *from, u64 n, u64 row, u64 rows, u64 first) {
  const u64 start = first % rows * row, room = rows * row - start;
  const u64 before = n < room ? n : room;
  fg_move_bytes(to + start, from, before);
  fg_move_bytes(to, from + before, n - before);
}
