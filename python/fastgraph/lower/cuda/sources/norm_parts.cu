// The norm of rows that are the sums of SPLITS parts of K of a product, and the end of the product
// before it. Stands after matmul.cuh, rows.cuh and norm.cu; parts lie as matmul_combine has them.

// N: as of the other norms. BIAS, ACT, RESIDUAL: as of all products.
template <class T, class N, bool BIAS, int ACT, int RESIDUAL, int SPLITS, int THREADS, int G, int V,
          int PIECE, int EACH, i64 ROWS, i64 LENGTH>
__global__ __launch_bounds__(THREADS) void norm_parts_of_k(T *out, T *sums, const f32 *partial,
                                                           const T *added, const T *residual,
                                                           const T *weight, const T *bias, f32 eps,
                                                           i64 rows, i64 length) {
  constexpr int AT_ONCE = SPLITS * EACH * V <= 64 ? SPLITS : 1;
  __shared__ f32 shared[2][(THREADS + 31) / 32];
  fg_trigger_if_many();
  const Row<THREADS, G, V, EACH, ROWS, LENGTH> mine(rows, length);
  const i64 start = mine.row * mine.length, count = mine.rows * mine.length;
  Vec<T, V> scale[EACH], shift[EACH], more[EACH] = {}, other[EACH] = {};
  if (N::early) {
    if (N::weight) load_columns<T, V, PIECE>(scale, weight, mine);
    if (N::bias) load_columns<T, V, PIECE>(shift, bias, mine);
    if (BIAS) load_columns<T, V, PIECE>(more, added, mine);
  }
  fg_wait_and_trigger();
  f32 x[EACH][V] = {};
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (RESIDUAL && mine.has(i)) other[i] = load<V, PIECE>(residual + start + mine.column(i));
#pragma unroll AT_ONCE
  for (int s = 0; s < SPLITS; s++)
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (!mine.has(i)) continue;
      const Vec<f32, V> part = load<V>(partial + s * count + start + mine.column(i));
#pragma unroll
      for (int j = 0; j < V; j++) x[i][j] += part.v[j];
    }
  if (BIAS && !N::early) load_columns<T, V, PIECE>(more, added, mine);
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < V; j++)
      if (mine.has(i))
        x[i][j] = Epilogue<T, BIAS, ACT, RESIDUAL>::ended(x[i][j], more[i].v[j], other[i].v[j]);
  norm_held<N, G, PIECE>(out, sums, x, scale, shift, weight, bias, eps, mine, shared[0], shared[1]);
}
