// What is dense along one axis becomes dense along another, tile by tile through shared memory.

// An element is in[Outer::from(b) + a + l * IN_STEP] and becomes out[Outer::to(b) + a * OUT_STEP + l].
// A block does TA elements along a and TL along l, W at once in both directions.
template <class T, int W, int TA, int TL, i64 SIZE_A, i64 SIZE_L, i64 OUT_STEP, i64 IN_STEP,
          class Outer>
FG_DEVICE void transpose_tile(T *out, const T *in) {
  constexpr int THREADS = 256, COUNT = TA * TL / W, EACH = (COUNT + THREADS - 1) / THREADS;
  // A whole and odd number of banks, so that a column lies in different ones.
  constexpr int PAD = sizeof(T) >= 4 ? 1 : W > 1 ? 4 / (int)sizeof(T) : 1;
  __shared__ T tile[TL][TA + PAD];
  constexpr i64 TILES_L = (SIZE_L + TL - 1) / TL, TILES_A = (SIZE_A + TA - 1) / TA;
  const i64 block = blockIdx.x, batch = block / (TILES_L * TILES_A);
  const i64 first_l = block % TILES_L * TL, first_a = block / TILES_L % TILES_A * TA;
  const T *from = in + Outer::from(batch) + first_l * IN_STEP + first_a;
  T *to = out + Outer::to(batch) + first_a * OUT_STEP + first_l;
  Vec<T, W> held[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int at = i * THREADS + threadIdx.x, a = at % (TA / W) * W, l = at / (TA / W);
    if (at < COUNT && first_a + a < SIZE_A && first_l + l < SIZE_L)
      held[i] = load<W>(from + l * IN_STEP + a);
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
    if (at < COUNT && first_a + a < SIZE_A && first_l + l < SIZE_L) {
      Vec<T, W> x;
#pragma unroll
      for (int w = 0; w < W; w++) x.v[w] = tile[l + w][a];
      store(to + a * OUT_STEP + l, x);
    }
  }
}
