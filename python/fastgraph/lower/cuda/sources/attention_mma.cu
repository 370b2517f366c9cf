// Attention of f16 and bf16 by the tensor cores: scores, weights and sums stay in registers, where
// the sums of a query are rescaled when a much larger score is met.
//
// D, V: elements of a head of k and of v, rounded up to 16; beyond the true ones there are zeros.
// TILES: a warp has so many times 16 rows. KEYS: keys of a tile. BYTES: what is copied at once.

// Begins to copy `rows` rows, of ROWS, `step` elements apart; zeros beyond them and `elements`.
template <int THREADS, int ROWS, int ELEMENTS, int BYTES, class T>
FG_DEVICE void copy_positions(unsigned char *to, const T *from, i64 step, int rows, int elements,
                              int thread) {
  constexpr int EACH = BYTES / 2, ACROSS = ELEMENTS / EACH, PIECES = ROWS * ACROSS;
  if constexpr (BYTES == 16 && THREADS % ACROSS == 0 && PIECES % THREADS == 0) {
    if (rows >= ROWS && elements == ELEMENTS) {
      constexpr int APART = THREADS / ACROSS;
      const int row = thread / ACROSS, element = thread % ACROSS * EACH;
      const T *source = from + row * step + element;
      unsigned char *place = to + row * Line<ELEMENTS>::BYTES + element * 2;
#pragma unroll
      for (int i = 0; i < ROWS; i += APART, source += APART * step)
        cp_async<BYTES>(place + i * Line<ELEMENTS>::BYTES, source);
      return;
    }
  }
  constexpr int AT_ONCE = BYTES >= 4 ? 4 : 8;
#pragma unroll AT_ONCE
  for (int piece = thread; piece < PIECES; piece += THREADS) {
    const int row = piece / ACROSS, element = piece % ACROSS * EACH;
    const bool inside = row < rows && element < elements;
    const T *source = inside ? from + row * step + element : from;
    unsigned char *place = to + row * Line<ELEMENTS>::BYTES + element * 2;
    copy_piece<BYTES>(place, source, inside);
  }
}

// A warp's rows: 16 * TILES of them, each shared by four lanes.
template <class T, int D, int V, int TILES, int KEYS, int MASK, bool CAP>
struct Flash {
  typedef Rows<T, KEYS, MASK, CAP> Own;
  Own rows[TILES];
  f32 sums[TILES][V / 8][4] = {};

  FG_DEVICE Flash(const Attention &a, const Place &p, int row0) {
#pragma unroll
    for (int i = 0; i < TILES; i++) rows[i].start(a, p, row0 + i * 16);
  }

  // One tile of keys from `key0`; `tile_q` are this warp's rows. In between, `values` is called: it
  // returns the tile of v. WHOLE: all rows see all keys.
  template <bool WHOLE, class F>
  FG_DEVICE void attend(const Attention &a, const unsigned char *tile_q,
                        const unsigned char *tile_k, const void *mask, int key0, F values) {
    const int lane = threadIdx.x % 32;
    f32 s[TILES][KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      u32 left[TILES][4];
#pragma unroll
      for (int i = 0; i < TILES; i++)
        ldmatrix<4>(left[i],
                    tile_q + (i * 16 + lane % 16) * Line<D>::BYTES + d * 2 + lane / 16 * 16);
#pragma unroll
      for (int j = 0; j < KEYS; j += 16) {
        u32 right[4];
        ldmatrix<4>(right, tile_k + (j + lane % 8 + lane / 16 * 8) * Line<D>::BYTES + d * 2 +
                               lane / 8 % 2 * 16);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
          mma_16816<T>(s[i][j / 8], left[i], {right[0], right[1]});
          mma_16816<T>(s[i][j / 8 + 1], left[i], {right[2], right[3]});
        }
      }
    }
    f32 rescale[TILES][2];
    bool moved = false;
#pragma unroll
    for (int i = 0; i < TILES; i++)
      moved |= rows[i].template weigh<WHOLE>(a, mask, key0, s[i], rescale[i]);
    if (moved) {
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < V / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) sums[i][j][e] *= rescale[i][e / 2];
    }
    const unsigned char *tile_v = values();
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      u32 left[TILES][4];
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int q = 0; q < 4; q++)
          left[i][q] = pack<T>(s[i][j / 8 + q / 2][q % 2 * 2], s[i][j / 8 + q / 2][q % 2 * 2 + 1]);
#pragma unroll
      for (int d = 0; d < V; d += 16) {
        u32 right[4];
        ldmatrix<4, true>(right,
                          tile_v + (j + lane % 16) * Line<V>::BYTES + d * 2 + lane / 16 * 16);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
          mma_16816<T>(sums[i][d / 8], left[i], {right[0], right[1]});
          mma_16816<T>(sums[i][d / 8 + 1], left[i], {right[2], right[3]});
        }
      }
    }
  }
};

template <int THREADS, int ROWS, int D, int BYTES, class T>
FG_DEVICE void copy_queries(unsigned char *to, const T *q, const Attention &a, const Place &p,
                            int row0, int rows, int thread) {
  if (a.heads == a.key_heads) {
    copy_positions<THREADS, ROWS, D, BYTES>(to, q + position_of(a, a.q, p, row0), a.q.position,
                                            rows - row0, a.length, thread);
    return;
  }
  constexpr int EACH = BYTES / 2, ACROSS = D / EACH;
  for (int piece = thread; piece < ROWS * ACROSS; piece += THREADS) {
    const int row = row0 + piece / ACROSS, element = piece % ACROSS * EACH;
    const bool inside = row < rows && element < a.length;
    const T *source = inside ? q + position_of(a, a.q, p, row) + element : q;
    unsigned char *place = to + piece / ACROSS * Line<D>::BYTES + element * 2;
    copy_piece<BYTES>(place, source, inside);
  }
}

// SLOTS: tiles of keys and of values that there is room for; all keys lie in one of them, or there are
// two and one is brought while the other is worked on.
template <class T, int D, int V, int WARPS, int TILES, int KEYS, int SLOTS, int BYTES, int MASK,
          bool CAP>
__global__ void __launch_bounds__(WARPS * 32)
    attention_mma(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                  i32 batches, Attention a) {
  constexpr int THREADS = WARPS * 32, ROWS = WARPS * TILES * 16;
  constexpr int K_TILE = KEYS * Line<D>::BYTES, V_TILE = KEYS * Line<V>::BYTES;
  FG_DYNAMIC_SHARED(shared);
  unsigned char *tile_q = shared, *tiles_k = tile_q + ROWS * Line<D>::BYTES;
  unsigned char *tiles_v = tiles_k + SLOTS * K_TILE;
  (void)partial, (void)batches;

  fg_trigger_if_many();
  const int warp = threadIdx.x / 32;
  const int rows = rows_of_group(a);
  const Place p = find_place(a, ROWS);
  const Range range = seen_keys(a, p.row0, min(p.row0 + ROWS, rows), 0);
  const int begin = range.begin / KEYS * KEYS;
  q += a.q.offset;
  k += a.k.offset + p.batch * a.k.batch + p.key_head * a.k.head;
  v += a.v.offset + p.batch * a.v.batch + p.key_head * a.v.head;
  const auto copy_k = [&](int key) {
    if (key < range.end)
      copy_positions<THREADS, KEYS, D, BYTES>(tiles_k + key / KEYS % SLOTS * K_TILE,
                                              k + key * a.k.position, a.k.position, a.keys - key,
                                              a.length, threadIdx.x);
    cp_async_commit();
  };
  const auto copy_v = [&](int key) {
    if (key < range.end)
      copy_positions<THREADS, KEYS, V, BYTES>(tiles_v + key / KEYS % SLOTS * V_TILE,
                                              v + key * a.v.position, a.v.position, a.keys - key,
                                              a.value_length, threadIdx.x);
    cp_async_commit();
  };

  const Range whole = whole_keys(a, p, ROWS);
  Flash<T, D, V, TILES, KEYS, MASK, CAP> flash(a, p, p.row0 + warp * TILES * 16);
  fg_wait_and_trigger();
  copy_queries<THREADS, ROWS, D, BYTES>(tile_q, q, a, p, p.row0, rows, threadIdx.x);
  copy_k(begin);
  copy_v(begin);

  for (int key = begin; key < range.end; key += KEYS) {
    cp_async_wait<1>();
    __syncthreads();
    if constexpr (SLOTS > 1) copy_k(key + KEYS);
    const auto values = [&] {
      cp_async_wait<SLOTS - 1>();
      __syncthreads();
      if constexpr (SLOTS > 1) copy_v(key + KEYS);
      return (const unsigned char *)(tiles_v + key / KEYS % SLOTS * V_TILE);
    };
    const unsigned char *own_q = tile_q + warp * TILES * 16 * Line<D>::BYTES;
    const unsigned char *tile_k = tiles_k + key / KEYS % SLOTS * K_TILE;
    if (decltype(flash)::Own::PLAIN && key >= whole.begin && key + KEYS <= whole.end)
      flash.template attend<true>(a, own_q, tile_k, mask, key, values);
    else
      flash.template attend<false>(a, own_q, tile_k, mask, key, values);
  }
  cp_async_wait<0>();

#pragma unroll
  for (int i = 0; i < TILES; i++) {
    const int row0 = p.row0 + (warp * TILES + i) * 16;
    if (a.value_length == V)
      flash.rows[i].template store<V, true>(a, p, row0, o, flash.sums[i]);
    else
      flash.rows[i].template store<V, false>(a, p, row0, o, flash.sums[i]);
  }
}
