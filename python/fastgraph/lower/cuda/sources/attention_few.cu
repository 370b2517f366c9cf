// Attention of few rows, as in a step of decoding: what there is to do is to read keys and values.
// The code is short, for each of its lines is fetched anew behind all the weights of a layer.
//
// A block has up to 16 rows, which are queries of the heads that share a head of k, and a part of
// the keys. Each of its warps takes keys of its own, every WARPS-th tile of the part. Sums go up by
// warps, then by the blocks of a cluster, always in order; with SPLITS clusters for the same rows
// they go to `partial`.

// Sums of a warp's rows: their exponents, their weights, and V sums of each.
template <int ROWS, int V>
struct Sums {
  f32 exponents[ROWS], weights[ROWS], sums[ROWS * V];
};

// One sum of a row over some of the keys; as it is sent it is a piece of 16 bytes.
struct __align__(16) Joined {
  f32 exponent, weight, sum, nothing;
};
// The same over PARTS of them, in order.
template <int PARTS, class F>
FG_DEVICE Joined join(F part_of) {
  Joined parts[PARTS], all = {-FG_INFINITY, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < PARTS; i++) parts[i] = part_of(i);
#pragma unroll
  for (int i = 0; i < PARTS; i++) all.exponent = fmaxf(all.exponent, parts[i].exponent);
  const f32 base = all.exponent == -FG_INFINITY ? 0.0f : all.exponent;
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
    const f32 rescale = exp2_of(parts[i].exponent - base);
    all.weight += parts[i].weight * rescale;
    all.sum += parts[i].sum * rescale;
  }
  return all;
}

// A warp begins to copy `rows` rows, of ROWS, `step` elements apart; zeros beyond them and `elements`.
template <int ROWS, int ELEMENTS, int BYTES, class T>
FG_DEVICE void copy_rows(unsigned char *to, const T *from, i64 step, int rows, int elements) {
  constexpr int EACH = BYTES / 2, ACROSS = ELEMENTS / EACH, PIECES = ROWS * ACROSS;
  if constexpr (BYTES == 16 && 32 % ACROSS == 0 && PIECES % 32 == 0) {
    constexpr int APART = 32 / ACROSS;
    const int lane = threadIdx.x % 32, row = lane / ACROSS, element = lane % ACROSS * EACH;
    const bool inside = element < elements;
    const T *source = inside ? from + row * step + element : from;
    unsigned char *place = to + row * Line<ELEMENTS>::BYTES + element * 2;
#pragma unroll
    for (int i = 0; i < ROWS; i += APART, source += APART * step)
      cp_async<16>(place + i * Line<ELEMENTS>::BYTES, source, inside && row + i < rows ? 16 : 0);
    return;
  }
#pragma unroll 1
  for (int piece = threadIdx.x % 32; piece < PIECES; piece += 32) {
    const int row = piece / ACROSS, element = piece % ACROSS * EACH;
    const bool inside = row < rows && element < elements;
    const T *source = inside ? from + row * step + element : from;
    unsigned char *place = to + row * Line<ELEMENTS>::BYTES + element * 2;
    copy_piece<BYTES>(place, source, inside);
  }
}

// Two neighbours of a row in one register; zeros beyond `elements`. ALIGNED: they are loaded at once.
template <bool ALIGNED, class T>
FG_DEVICE u32 load_pair(const T *row, int element, int elements, bool inside) {
  if constexpr (ALIGNED) return inside && element < elements ? *(const u32 *)(row + element) : 0;
  const u32 low = inside && element < elements ? row[element].bits : 0;
  return low | (inside && element + 1 < elements ? (u32)row[element + 1].bits << 16 : 0);
}

// Nothing but attention.
struct NoStep {
  static constexpr bool IS = false;
};
// One new position: q and `key` are turned by the angles of its `position`, and the turned key and
// `value` are put to row `index` of the caches that k and v are before; `keys` and `values` are those
// after, maybe in the same place.
template <class T, class I>
struct NewStep {
  static constexpr bool IS = true;
  T *keys, *values;
  const T *cosines, *sines;
  const I *position;
  const i64 *index;
  const T *key, *value;
  i32 angles;
};
// Two numbers turned by an angle.
template <class T>
FG_DEVICE void turn(T &one, T &two, T cosine, T sine) {
  const f32 u = widen(one), v = widen(two), c = widen(cosine), s = widen(sine);
  one = narrow<T>(u * c - v * s);
  two = narrow<T>(u * s + v * c);
}
template <class T>
FG_DEVICE void turn_pairs(u32 &ones, u32 &twos, u32 cosines, u32 sines) {
  T one[2], two[2], cosine[2], sine[2];
  memcpy(one, &ones, 4), memcpy(two, &twos, 4);
  memcpy(cosine, &cosines, 4), memcpy(sine, &sines, 4);
#pragma unroll
  for (int i = 0; i < 2; i++) turn(one[i], two[i], cosine[i], sine[i]);
  memcpy(&ones, one, 4), memcpy(&twos, two, 4);
}

// What a lane fetches of a new position, all at once: the angles of the elements that it has of q, and
// of the warp that has the position's row its part of that. Without an angle there are zeros.
template <class T, int D, bool ALIGNED>
struct Fresh {
  static constexpr int PAIRS = (D / 2 + 31) / 32;
  u32 cosines[D / 32][2], sines[D / 32][2];
  T key[PAIRS][2], value[PAIRS][2], cosine[PAIRS], sine[PAIRS];

  template <class S>
  FG_DEVICE void fetch(const S &step, u32 head, i64 angle, bool has_row) {
    const T *of_cosines = step.cosines + angle * (D / 2), *of_sines = step.sines + angle * (D / 2);
#pragma unroll
    for (int i = 0; i < D / 32; i++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int at = i * 16 + e * 8 + threadIdx.x % 4 * 2;
        cosines[i][e] = load_pair<ALIGNED>(of_cosines, at, D / 2, angle >= 0);
        sines[i][e] = load_pair<ALIGNED>(of_sines, at, D / 2, angle >= 0);
      }
    if (!has_row) return;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const int at = i * 32 + threadIdx.x % 32;
      if (at >= D / 2) break;
      cosine[i] = angle < 0 ? T{} : of_cosines[at];
      sine[i] = angle < 0 ? T{} : of_sines[at];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        key[i][h] = step.key[head * D + h * (D / 2) + at];
        value[i][h] = step.value[head * D + h * (D / 2) + at];
      }
    }
  }
  // The queries of a warp, as operands of a matrix unit.
  FG_DEVICE void turn_queries(u32 (&left)[D / 16][4]) const {
#pragma unroll
    for (int i = 0; i < D / 32; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        turn_pairs<T>(left[i][e], left[i + D / 32][e], cosines[i][e / 2], sines[i][e / 2]);
  }
  // One warp puts the row to the tile and to the caches.
  FG_DEVICE void put_row(T *tile_k, T *tile_v, T *keys, T *values) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const int at = i * 32 + threadIdx.x % 32;
      if (at >= D / 2) break;
      turn(key[i][0], key[i][1], cosine[i], sine[i]);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        tile_k[h * (D / 2) + at] = keys[h * (D / 2) + at] = key[i][h];
        tile_v[h * (D / 2) + at] = values[h * (D / 2) + at] = value[i][h];
      }
    }
    __syncwarp();
  }
};

// D, V: elements of a head of k and of v, rounded up to 16; beyond the true ones there are zeros.
// QUERIES of GROUP heads share one of KEY_HEADS heads of k. KEYS: of a tile. BYTES: what is copied at
// once.
template <class T, int D, int V, i64 QUERIES, i64 GROUP, i64 KEY_HEADS, int WARPS, int KEYS,
          int CLUSTER, int SPLITS, int BYTES, int MASK, bool CAP, class S>
FG_DEVICE void attend_few(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                          i32 batches, const Attention &a, const S &step, u64 *fault, u64 node) {
  constexpr int K_TILE = KEYS * Line<D>::BYTES, V_TILE = KEYS * Line<V>::BYTES;
  constexpr int THREADS = WARPS * 32;
  // Of up to 8 rows the other half of a matrix is not there.
  constexpr bool HALF = QUERIES != GIVEN && GROUP != GIVEN && QUERIES * GROUP <= 8;
  constexpr int HALVES = HALF ? 1 : 2, ROWS = 8 * HALVES;
  // Each warp's worth of sums has a block of the cluster that joins them.
  constexpr int ALL = HALF ? (int)(QUERIES * GROUP) * V : 16 * V;
  constexpr int SHARE = (ALL + 32 * CLUSTER - 1) / (32 * CLUSTER) * 32;
  typedef Sums<ROWS, V> Part;
  constexpr int TILES = 2 * (K_TILE + V_TILE);
  constexpr int OWN = TILES > (int)sizeof(Part) ? TILES : ((int)sizeof(Part) + 15) / 16 * 16;
  FG_DYNAMIC_SHARED(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char *tiles_k = shared + warp * OWN, *tiles_v = tiles_k + 2 * K_TILE;
  Joined *joined = (Joined *)(shared + WARPS * OWN);
  u64 *barrier = (u64 *)(joined + CLUSTER * SHARE);

  const u32 queries = (u32)known<QUERIES>(a.queries),
            key_heads = (u32)known<KEY_HEADS>(a.key_heads);
  const u32 group = (u32)known<GROUP>(a.heads / a.key_heads);
  const int rows = (int)(group * queries), tiles = HALF ? 1 : (rows + 15) / 16;
  const u32 rank = blockIdx.x % CLUSTER, place = blockIdx.x / CLUSTER / SPLITS;
  const u32 split = blockIdx.x / CLUSTER % SPLITS, head = place / tiles % key_heads;
  const i64 batch = place / tiles / key_heads;
  const int row0 = place % tiles * 16;

  // The keys of this block, of those that any of its rows sees.
  int first = 0, last = (int)queries - 1;
  if (!HALF && row0 / queries == (min(row0 + 16, rows) - 1) / queries) {
    first = row0 % queries;
    last = (min(row0 + 16, rows) - 1) % (int)queries;
  }
  const int part = (int)(split * CLUSTER + rank);
  const int begin = max(max(0, first + a.lower), part * a.split_keys) / KEYS * KEYS;
  const int end = min(min(a.keys, last + a.upper + 1), (part + 1) * a.split_keys);
  const T *k_all = k;
  k += a.k.offset + batch * a.k.batch + head * a.k.head;
  v += a.v.offset + batch * a.v.batch + head * a.v.head;
  const auto copy = [&](int key, int slot) {
    if (key < end) {
      copy_rows<KEYS, D, BYTES>(tiles_k + slot * K_TILE, k + key * a.k.position, a.k.position,
                                end - key, a.length);
      copy_rows<KEYS, V, BYTES>(tiles_v + slot * V_TILE, v + key * a.v.position, a.v.position,
                                end - key, a.value_length);
    }
    cp_async_commit();
  };

  // This lane's rows, and where each is in q and in the mask.
  int query[HALVES];
  const T *of_q[HALVES];
  i64 of_mask[HALVES];
  bool is_row[HALVES];
#pragma unroll
  for (int h = 0; h < HALVES; h++) {
    is_row[h] = row0 + h * 8 + lane / 4 < rows;
    // Rows past the end see what the last one sees.
    const u32 row = (u32)min(row0 + h * 8 + lane / 4, rows - 1), own = head * group + row / queries;
    query[h] = (int)(row % queries);
    of_q[h] = q + (a.q.offset + batch * a.q.batch + own * a.q.head + query[h] * a.q.position);
    of_mask[h] = batch * a.mask[0] + own * a.mask[1] + query[h] * a.mask[2];
  }
  const f32 scale = (f32)a.scale, cap = (f32)a.cap;

  // What the blocks will send to this one.
  u32 pieces = 0;
  if (CLUSTER > 1) {
#pragma unroll 1
    for (int i = (int)rank * 32; i < ALL; i += CLUSTER * 32) pieces += CLUSTER * min(32, ALL - i);
    if (pieces && threadIdx.x == 0) await_pieces(barrier, pieces);
    cluster_arrive();
  }
  // The kernels after this one start when a warp has all of its keys: what they fetch would keep it
  // waiting.
  if (begin + warp * KEYS >= end) fg_trigger();
  // Most of the keys and values were there before this run.
  const int near_end = min(end, begin + 2 * WARPS * KEYS);
#pragma unroll 1
  for (int key = begin + (int)threadIdx.x; key < near_end; key += THREADS) {
#pragma unroll
    for (int e = 0; e < D; e += 64) bring_near(k + key * a.k.position + e, e < a.length);
#pragma unroll
    for (int e = 0; e < V; e += 64) bring_near(v + key * a.v.position + e, e < a.value_length);
  }
  if (CLUSTER > 1) cluster_wait();
  fg_wait();
  // Where the new position is turned to, and its row; -1 is none.
  i64 angle = -1, put = -1;
  if constexpr (S::IS) {
    angle = *step.position;
    put = *step.index;
    if (put < 0) put += a.keys;
    if (put < 0 || put >= a.keys) put = -1;
    if (angle < 0 || angle >= step.angles) angle = -1;
    if (blockIdx.x == 0 && threadIdx.x == 0 && (put < 0 || angle < 0)) fg_fault(fault, node);
  }
  u32 left[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      left[i][e] = e % 2 < HALVES ? load_pair<(BYTES >= 4)>(of_q[e % HALVES],
                                                            i * 16 + e / 2 * 8 + lane % 4 * 2,
                                                            a.length, is_row[e % HALVES])
                                  : 0;

  Fresh<T, S::IS ? D : 32, (BYTES >= 4)> fresh;
  f32 most[HALVES], weight[HALVES] = {}, sums[V / 8][4] = {};
#pragma unroll
  for (int h = 0; h < HALVES; h++) most[h] = -FG_INFINITY;
  // One tile is on its way while the one before it is worked on.
#pragma unroll 1
  for (int key0 = begin + (warp - WARPS) * KEYS, slot = 1; key0 < end;
       key0 += WARPS * KEYS, slot ^= 1) {
    copy(key0 + WARPS * KEYS, slot ^ 1);
    if (key0 < begin) {
      if constexpr (S::IS)
        fresh.fetch(step, head, angle,
                    put >= begin && put < end && (put - begin) / KEYS % WARPS == warp);
      continue;
    }
    const int key1 = key0 + lane % 4 * 2;
    // What is added to scores is fetched before the keys are there; a bit says that one is hidden.
    u32 hidden = 0;
    f32 added[HALVES][KEYS / 4];
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
      for (int j = 0; j < KEYS / 4; j++) {
        const int key = key1 + j / 2 * 8 + j % 2;
        bool hides = key >= end || key < query[h] + a.lower || key > query[h] + a.upper;
        const i64 at = of_mask[h] + min(key, end - 1) * a.mask[3];
        if constexpr (MASK == MASK_BOOL) hides |= ((const u8 *)mask)[at] == 0;
        if constexpr (MASK == MASK_ADDED) added[h][j] = widen(((const T *)mask)[at]);
        hidden |= (u32)hides << (h * (KEYS / 4) + j);
      }
    if constexpr (S::IS)
      if (key0 < begin + WARPS * KEYS) fresh.turn_queries(left);
    cp_async_wait<1>();
    __syncwarp();
    if (key0 + WARPS * KEYS >= end) fg_trigger();
    unsigned char *tile_k = tiles_k + slot * K_TILE, *tile_v = tiles_v + slot * V_TILE;
    if constexpr (S::IS) {
      const int row = (int)put - key0, width = (int)key_heads * D;
      if (row >= 0 && row < KEYS) {
        const i64 to = put * width + head * D;
        fresh.put_row((T *)(tile_k + row * Line<D>::BYTES), (T *)(tile_v + row * Line<V>::BYTES),
                      step.keys + to, step.values + to);
      }
      if (step.keys != k_all) {
        // The caches after are elsewhere: all of this tile goes there.
#pragma unroll 1
        for (int i = lane; i < KEYS * D; i += 32) {
          const i64 key = key0 + i / D, to = key * width + head * D + i % D;
          if (key >= end) break;
          step.keys[to] = ((const T *)(tile_k + i / D * Line<D>::BYTES))[i % D];
          step.values[to] = ((const T *)(tile_v + i / D * Line<V>::BYTES))[i % D];
        }
      }
    }
    f32 s[KEYS / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D; d += 16)
#pragma unroll
      for (int j = 0; j < KEYS; j += 16) {
        u32 right[4];
        ldmatrix<4>(right, tile_k + (j + lane % 8 + lane / 16 * 8) * Line<D>::BYTES + d * 2 +
                               lane / 8 % 2 * 16);
        mma_16816<T>(s[j / 8], left[d / 16], {right[0], right[1]});
        mma_16816<T>(s[j / 8 + 1], left[d / 16], {right[2], right[3]});
      }
    f32 rescale[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
      f32 now = most[h];
#pragma unroll
      for (int j = 0; j < KEYS / 4; j++) {
        f32 &one = s[j / 2][2 * h + j % 2];
        one *= scale;
        if constexpr (CAP) one = cap * op_tanh(one / cap);
        if constexpr (MASK == MASK_ADDED) one += added[h][j];
        one = hidden >> (h * (KEYS / 4) + j) & 1 ? -FG_INFINITY : one * Log2E<f32>::value;
        now = fmaxf(now, one);
      }
      now = warp_reduce<4>(now, LargerOf());
      // Nothing seen yet: any finite number does.
      const f32 base = now == -FG_INFINITY ? 0.0f : now;
      rescale[h] = exp2_of(most[h] - base);
      most[h] = now;
      f32 total = 0.0f;
#pragma unroll
      for (int j = 0; j < KEYS / 4; j++) {
        f32 &one = s[j / 2][2 * h + j % 2];
        one = exp2_of(one - base);
        total += one;
      }
      weight[h] = weight[h] * rescale[h] + total;
    }
#pragma unroll
    for (int j = 0; j < V / 8; j++)
#pragma unroll
      for (int e = 0; e < 2 * HALVES; e++) sums[j][e] *= rescale[e / 2];
#pragma unroll
    for (int j = 0; j < KEYS; j += 16) {
      u32 weights[4];
#pragma unroll
      for (int e = 0; e < 4; e++)
        weights[e] = e % 2 < HALVES
                         ? pack<T>(s[j / 8 + e / 2][e % 2 * 2], s[j / 8 + e / 2][e % 2 * 2 + 1])
                         : 0;
#pragma unroll
      for (int d = 0; d < V; d += 16) {
        u32 right[4];
        ldmatrix<4, true>(right,
                          tile_v + (j + lane % 16) * Line<V>::BYTES + d * 2 + lane / 16 * 16);
        mma_16816<T>(sums[d / 8], weights, {right[0], right[1]});
        mma_16816<T>(sums[d / 8 + 1], weights, {right[2], right[3]});
      }
    }
    __syncwarp();
  }
  cp_async_wait<0>();
  __syncwarp();

  // The warp's sums lie where its tiles were.
  Part &own = *(Part *)tiles_k;
#pragma unroll
  for (int h = 0; h < HALVES; h++) {
    const int row = h * 8 + lane / 4;
    own.exponents[row] = most[h];
    own.weights[row] = warp_reduce<4>(weight[h], Add());
#pragma unroll
    for (int j = 0; j < V / 8; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) own.sums[row * V + j * 8 + lane % 4 * 2 + e] = sums[j][2 * h + e];
  }
  __syncthreads();
  const auto write = [&](const Joined &all, int r, int element) {
    const int row = row0 + r;
    if (row >= rows || element >= a.value_length) return;
    const u32 own_head = head * group + (u32)row / queries, own_query = (u32)row % queries;
    if (SPLITS == 1) {
      const i64 at = batch * a.o.batch + own_head * a.o.head + own_query * a.o.position;
      o[at + element] = narrow<T>(all.weight == 0.0f ? 0.0f : all.sum / all.weight);
      return;
    }
    const i64 all_rows = (i64)batches * a.heads * queries;
    const i64 at = split * all_rows + (batch * a.heads + own_head) * queries + own_query;
    partial[at * a.value_length + element] = all.sum;
    if (element == 0) {
      f32 *ends = partial + SPLITS * all_rows * a.value_length;
      ends[at] = all.exponent;
      ends[SPLITS * all_rows + at] = all.weight;
    }
  };
#pragma unroll 1
  for (int i = threadIdx.x; i < ALL; i += THREADS) {
    const int row = i / V;
    const Joined all = join<WARPS>([&](int w) -> Joined {
      const Part &part = *(const Part *)(shared + w * OWN);
      return {part.exponents[row], part.weights[row], part.sums[i], 0.0f};
    });
    if (CLUSTER == 1) {
      write(all, row, i % V);
    } else {
      const f32 piece[4] = {all.exponent, all.weight, all.sum, 0.0f};
      send_piece(piece, &joined[rank * SHARE + i / 32 / CLUSTER * 32 + lane].exponent, barrier,
                 i / 32 % CLUSTER);
    }
  }
  if (CLUSTER == 1 || !pieces) return;
  wait_for_pieces(barrier);
#pragma unroll 1
  for (int at = threadIdx.x; at < SHARE; at += THREADS) {
    const int i = (at / 32 * CLUSTER + (int)rank) * 32 + lane;
    if (i >= ALL) break;
    write(join<CLUSTER>([&](int b) -> Joined { return joined[b * SHARE + at]; }), i / V, i % V);
  }
}

template <class T, int D, int V, i64 QUERIES, i64 GROUP, i64 KEY_HEADS, int WARPS, int KEYS,
          int CLUSTER, int SPLITS, int BYTES, int MASK, bool CAP>
__global__ void __launch_bounds__(WARPS * 32)
    attention_few(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                  i32 batches, Attention a) {
  attend_few<T, D, V, QUERIES, GROUP, KEY_HEADS, WARPS, KEYS, CLUSTER, SPLITS, BYTES, MASK, CAP>(
      o, q, k, v, mask, partial, batches, a, NoStep(), nullptr, 0);
}

template <class I, class T, int D, int V, i64 QUERIES, i64 GROUP, i64 KEY_HEADS, int WARPS,
          int KEYS, int CLUSTER, int SPLITS, int BYTES, int MASK, bool CAP>
__global__ void __launch_bounds__(WARPS * 32)
    attention_step(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                   i32 batches, Attention a, T *keys, T *values, const T *cosines, const T *sines,
                   const I *position, const i64 *index, const T *key, const T *value, i32 angles,
                   i64 new_key, u64 *fault, u64 node) {
  const NewStep<T, I> step = {keys,  values,        cosines, sines, position,
                              index, key + new_key, value,   angles};
  attend_few<T, D, V, QUERIES, GROUP, KEY_HEADS, WARPS, KEYS, CLUSTER, SPLITS, BYTES, MASK, CAP>(
      o, q, k, v, mask, partial, batches, a, step, fault, node);
}
