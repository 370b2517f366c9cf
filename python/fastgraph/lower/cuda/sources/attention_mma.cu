// Attention of f16 and bf16 by the tensor cores: scores, weights and sums stay in registers, where
// the sums of a query are rescaled when a much larger score is met.
//
// D, V: elements of a head of k and of v, rounded up to 16; beyond the true ones there are zeros.
// TILES: a warp has so many times 16 rows. KEYS: keys of a tile. BYTES: what is copied at once.

// Rows in shared memory are one piece of 16 bytes longer than they have to be: an odd number, so that
// a piece of eight successive rows lies in different banks.
template <int ELEMENTS>
struct Row {
  static constexpr int BYTES = ELEMENTS * 2 + 16;
};

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
      unsigned char *place = to + row * Row<ELEMENTS>::BYTES + element * 2;
#pragma unroll
      for (int i = 0; i < ROWS; i += APART, source += APART * step)
        cp_async<BYTES>(place + i * Row<ELEMENTS>::BYTES, source);
      return;
    }
  }
  constexpr int AT_ONCE = BYTES >= 4 ? 4 : 8;
#pragma unroll AT_ONCE
  for (int piece = thread; piece < PIECES; piece += THREADS) {
    const int row = piece / ACROSS, element = piece % ACROSS * EACH;
    const bool inside = row < rows && element < elements;
    const T *source = inside ? from + row * step + element : from;
    unsigned char *place = to + row * Row<ELEMENTS>::BYTES + element * 2;
    if constexpr (BYTES >= 4)
      cp_async<BYTES>(place, source, inside ? BYTES : 0);
    else
      *(T *)place = inside ? *source : T{0};
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
                    tile_q + (i * 16 + lane % 16) * Row<D>::BYTES + d * 2 + lane / 16 * 16);
#pragma unroll
      for (int j = 0; j < KEYS; j += 16) {
        u32 right[4];
        ldmatrix<4>(right, tile_k + (j + lane % 8 + lane / 16 * 8) * Row<D>::BYTES + d * 2 +
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
        ldmatrix<4, true>(right, tile_v + (j + lane % 16) * Row<V>::BYTES + d * 2 + lane / 16 * 16);
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
    unsigned char *place = to + piece / ACROSS * Row<D>::BYTES + element * 2;
    if constexpr (BYTES >= 4)
      cp_async<BYTES>(place, source, inside ? BYTES : 0);
    else
      *(T *)place = inside ? *source : T{0};
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
  constexpr int K_TILE = KEYS * Row<D>::BYTES, V_TILE = KEYS * Row<V>::BYTES;
  FG_DYNAMIC_SHARED(shared);
  unsigned char *tile_q = shared, *tiles_k = tile_q + ROWS * Row<D>::BYTES;
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
    const unsigned char *own_q = tile_q + warp * TILES * 16 * Row<D>::BYTES;
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

// Where rows are few a block has 16 of them, and each warp takes keys of its own, every WARPS-th tile
// of the block's part; the warps' sums are added in order. With several parts these go to `partial`.
template <class T, int D, int V, int WARPS, int KEYS, int BYTES, int MASK, bool CAP>
__global__ void __launch_bounds__(WARPS * 32)
    attention_few(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                  i32 batches, Attention a) {
  constexpr int K_TILE = KEYS * Row<D>::BYTES, V_TILE = KEYS * Row<V>::BYTES;
  constexpr int ROWS = 16, OWN = 2 * (K_TILE + V_TILE);
  FG_DYNAMIC_SHARED(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char *tile_q = shared, *tiles_k = tile_q + ROWS * Row<D>::BYTES + warp * OWN;
  unsigned char *tiles_v = tiles_k + 2 * K_TILE;

  const int rows = a.heads / a.key_heads * a.queries;
  const Place p = find_place(a, ROWS);
  const Range range = seen_keys(a, p.row0, min(p.row0 + ROWS, rows), p.split);
  const int begin = range.begin / KEYS * KEYS + warp * KEYS;
  q += a.q.offset;
  k += a.k.offset + p.batch * a.k.batch + p.key_head * a.k.head;
  v += a.v.offset + p.batch * a.v.batch + p.key_head * a.v.head;
  const auto copy = [&](int key, int slot) {
    if (key < range.end) {
      copy_positions<32, KEYS, D, BYTES>(tiles_k + slot * K_TILE, k + key * a.k.position,
                                         a.k.position, range.end - key, a.length, lane);
      copy_positions<32, KEYS, V, BYTES>(tiles_v + slot * V_TILE, v + key * a.v.position,
                                         a.v.position, range.end - key, a.value_length, lane);
    }
    cp_async_commit();
  };

  fg_trigger();
  // Most of the keys and values were there before this run.
  const int near_end = min(range.end, range.begin + 2 * WARPS * KEYS);
  for (int key = range.begin + (int)threadIdx.x; key < near_end; key += WARPS * 32) {
#pragma unroll
    for (int e = 0; e < D; e += 64) bring_near(k + key * a.k.position + e, e < a.length);
#pragma unroll
    for (int e = 0; e < V; e += 64) bring_near(v + key * a.v.position + e, e < a.value_length);
  }
  fg_wait();
  copy_queries<WARPS * 32, ROWS, D, BYTES>(tile_q, q, a, p, p.row0, rows, threadIdx.x);
  copy(begin, 0);
  copy(begin + WARPS * KEYS, 1);
  cp_async_wait<1>();
  __syncthreads();  // Queries are everybody's; keys and values are the warp's own.
  Flash<T, D, V, 1, KEYS, MASK, CAP> flash(a, p, p.row0);
  Attention cut = a;
  cut.keys = range.end;
  int slot = 0;
  for (int key = begin; key < range.end; key += WARPS * KEYS, slot ^= 1) {
    cp_async_wait<1>();
    __syncwarp();
    flash.template attend<false>(cut, tile_q, tiles_k + slot * K_TILE, mask, key,
                                 [&] { return (const unsigned char *)(tiles_v + slot * V_TILE); });
    __syncwarp();
    copy(key + 2 * WARPS * KEYS, slot);
  }
  cp_async_wait<0>();
  __syncthreads();

  // Sums, exponents and weights of all warps.
  f32 *all = (f32 *)shared, *exponents = all + WARPS * ROWS * V,
      *weights = exponents + WARPS * ROWS;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = h * 8 + lane / 4;
    const f32 total = flash.rows[0].whole_weight(h);
    exponents[warp * ROWS + row] = flash.rows[0].exponent(a, h);
    weights[warp * ROWS + row] = total;
#pragma unroll
    for (int j = 0; j < V / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        all[(warp * ROWS + row) * V + j * 8 + lane % 4 * 2 + e] = flash.sums[0][j][2 * h + e];
  }
  __syncthreads();
  const i64 all_rows = (i64)batches * a.heads * a.queries;
  for (int i = threadIdx.x; i < ROWS * V; i += WARPS * 32) {
    const int r = i / V, element = i % V, row = p.row0 + r;
    if (row >= rows || element >= a.value_length) continue;
    f32 largest = -FG_INFINITY, weight = 0.0f, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) largest = fmaxf(largest, exponents[w * ROWS + r]);
    const f32 base = largest == -FG_INFINITY ? 0.0f : largest;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const f32 rescale = exp2_of(exponents[w * ROWS + r] - base);
      weight += weights[w * ROWS + r] * rescale;
      sum += all[(w * ROWS + r) * V + element] * rescale;
    }
    if (a.splits == 1) {
      o[position_of(a, a.o, p, row) + element] = narrow<T>(weight == 0.0f ? 0.0f : sum / weight);
      continue;
    }
    // Rows of all heads in order: group by group is head by head.
    const i64 at = ((i64)p.batch * a.key_heads + p.key_head) * rows + row;
    partial[(p.split * all_rows + at) * a.value_length + element] = sum;
    if (element == 0) {
      f32 *ends = partial + a.splits * all_rows * a.value_length;
      ends[p.split * all_rows + at] = largest;
      ends[(a.splits + p.split) * all_rows + at] = weight;
    }
  }
}
