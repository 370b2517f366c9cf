// What is dense along one axis becomes dense along another, tile by tile through shared memory.

// An element is in[from_of(b) + a + l * in_step] and becomes out[to_of(b) + a * out_step + l]. A
// block does TA elements along a and TL along l, W at once in both directions.
template <class T, int W, int TA, int TL, class From, class To>
FG_DEVICE void transpose_tile(T *out, const T *in, i64 size_a, i64 size_l, i64 out_step,
                              i64 in_step, const From &from_of, const To &to_of) {
  constexpr int THREADS = 256, COUNT = TA * TL / W, EACH = (COUNT + THREADS - 1) / THREADS;
  // A whole and odd number of banks, so that a column lies in different ones.
  constexpr int PAD = sizeof(T) >= 4 ? 1 : W > 1 ? 4 / (int)sizeof(T) : 1;
  __shared__ T tile[TL][TA + PAD];
  const i64 tiles_l = (size_l + TL - 1) / TL, tiles_a = (size_a + TA - 1) / TA;
  const i64 block = blockIdx.x, batch = block / (tiles_l * tiles_a);
  const i64 first_l = block % tiles_l * TL, first_a = block / tiles_l % tiles_a * TA;
  const T *from = in + from_of(batch) + first_l * in_step + first_a;
  T *to = out + to_of(batch) + first_a * out_step + first_l;
  Vec<T, W> held[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int at = i * THREADS + threadIdx.x, a = at % (TA / W) * W, l = at / (TA / W);
    if (at < COUNT && first_a + a < size_a && first_l + l < size_l)
      held[i] = load<W>(from + l * in_step + a);
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int at = i * THREADS + threadIdx.x, a = at % (TA / W) * W, l = at / (TA / W);
    if (at < COUNT) {
#pragma unroll
      for (int w = 0; w < W; w++) tile[l][a + w] = held[i].v[w];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int at = i * THREADS + threadIdx.x, l = at % (TL / W) * W, a = at / (TL / W);
    if (at < COUNT && first_a + a < size_a && first_l + l < size_l) {
      Vec<T, W> x;
#pragma unroll
      for (int w = 0; w < W; w++) x.v[w] = tile[l + w][a];
      store(to + a * out_step + l, x);
    }
  }
}
