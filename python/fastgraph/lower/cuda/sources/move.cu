// Bytes from where a caller has them to where a run needs them, and back.

// Each thread of a row of blocks moves what is aligned best: 16, 4 or 1 bytes at once.
template <typename T>
FG_DEVICE u64 fg_move_as(char *to, const char *from, u64 n) {
  const u64 step = (u64)gridDim.x * blockDim.x, count = n / sizeof(T);
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    ((T *)to)[i] = ((const T *)from)[i];
  return count * sizeof(T);
}

FG_DEVICE void fg_move_bytes(char *to, const char *from, u64 n) {
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

