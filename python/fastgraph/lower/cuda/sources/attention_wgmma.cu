// Attention of f16 and bf16 by the warp groups of sm_90a, for heads of 64 and of 128 elements.
//
// A block is GROUPS warp groups that multiply 64 rows each and, before them, one that brings queries,
// keys and values to shared memory. A group asks for the scores of a tile of KEYS keys and for the
// sums over the tile before it at once; while the sums go on, scores become weights. Blocks go on with
// the tile of rows that lies a grid further, whose operands come while results are written.
//
// Groups ask one after another, so that one multiplies while another computes weights. D: elements of a
// head. SLOTS: tiles of keys, and as many of values, that there is room for.

// The registers of a warp group's sums, in the order in which it has them.
template <int N>
FG_DEVICE f32 (&flat(f32 (&d)[N][4])) [N * 4] { return *(f32(*)[N * 4]) d; }

// Where the pieces of 16 bytes of a tile lie that a thread of 128 brings: all in one column, whole
// swizzles apart.
template <int ROWS, int D>
struct Pieces {
  static constexpr int ACROSS = D / 8, AT_ONCE = 128 / ACROSS, COUNT = ROWS / AT_ONCE;
  static_assert(AT_ONCE % 8 == 0 && ROWS % AT_ONCE == 0, "a thread's pieces all lie alike");
  int row, element, place;
  FG_DEVICE Pieces()
      : row(threadIdx.x / ACROSS),
        element(threadIdx.x % ACROSS * 8),
        place(element / 64 * ROWS * 128 + swizzled<8>(row, element % 64 / 8)) {}

  // Begins to copy `rows` rows that are `step` elements apart; zeros beyond them.
  template <class T>
  FG_DEVICE void copy(unsigned char *tile, const T *from, i64 step, int rows) const {
    const T *source = from + row * step + element;
    if (rows >= ROWS) {
#pragma unroll
      for (int i = 0; i < COUNT; i++, source += AT_ONCE * step) {
        keep_order(source);
        cp_async<16>(tile + place + i * AT_ONCE * 128, source);
      }
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i++, source += AT_ONCE * step) {
        keep_order(source);
        const bool inside = row + i * AT_ONCE < rows;
        cp_async<16>(tile + place + i * AT_ONCE * 128, inside ? source : from, inside ? 16 : 0);
      }
    }
  }
};

// The item-th tile of rows of all: those with most to do come first among heads that are worked on
// together, few enough to stay in the cache.
FG_DEVICE Place find_item(const Attention &a, int heads, int rows_of_tile, int item) {
  constexpr int TOGETHER = 16;
  const int tiles = (rows_of_group(a) + rows_of_tile - 1) / rows_of_tile;
  const int first = item / (tiles * TOGETHER) * TOGETHER, count = min(TOGETHER, heads - first);
  item -= first * tiles;
  const int head = first + item % count;
  return {head / a.key_heads, head % a.key_heads, (tiles - 1 - item / count) * rows_of_tile, 0};
}

template <class T, int D, int GROUPS, int KEYS, int SLOTS, int MASK, bool CAP>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1)
    attention_wgmma(T *o, const T *q, const T *k, const T *v, const void *mask, f32 *partial,
                    i32 batches, Attention a) {
  constexpr int ROWS = GROUPS * 64, TILE = KEYS * D * 2;
  // From 168 on there are enough for those that bring operands to have 40.
  typedef Registers<GROUPS, 1, 168> Budget;
  FG_DYNAMIC_SHARED(shared);
  unsigned char *tile_q = shared, *tiles_k = tile_q + ROWS * D * 2,
                *tiles_v = tiles_k + SLOTS * TILE;
  u64 *full_k = (u64 *)(tiles_v + SLOTS * TILE), *full_v = full_k + SLOTS;
  u64 *empty_k = full_v + SLOTS, *empty_v = empty_k + SLOTS, *empty_q = empty_v + SLOTS;
  u64 *turns = empty_q + 1;
  // A place in shared memory, by turns, and the parity of its turn.
  const auto slot_of = [](u32 turn) { return (int)(turn % SLOTS); };
  const auto parity_of = [](u32 turn) { return turn / SLOTS % 2; };
  (void)partial;

  const int rows = rows_of_group(a), heads = a.key_heads * batches;
  const int items = (rows + ROWS - 1) / ROWS * heads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SLOTS; i++) {
      barrier_init(full_k + i, 128);
      barrier_init(full_v + i, 128);
      barrier_init(empty_k + i, GROUPS * 4);
      barrier_init(empty_v + i, GROUPS * 4);
    }
    barrier_init(empty_q, GROUPS * 4);
    for (int i = 0; i < GROUPS; i++) barrier_init(turns + i, 4);
    barrier_init_done();
  }
  fg_trigger();
  __syncthreads();
  fg_wait();
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
  u32 turn = 0;

  if (group < 0) {
    set_registers<Budget::BRING, false>();
    const Pieces<ROWS, D> pieces_q;
    const Pieces<KEYS, D> pieces;
    u32 done = 0;
#pragma unroll 1
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
      const Place p = find_item(a, heads, ROWS, item);
      const Range range = seen_keys(a, p.row0, min(p.row0 + ROWS, rows), 0);
      const int begin = range.begin / KEYS * KEYS;
      if (begin >= range.end) continue;
      const T *own_q = q + a.q.offset;
      const T *own_k = k + a.k.offset + p.batch * a.k.batch + p.key_head * a.k.head;
      const T *own_v = v + a.v.offset + p.batch * a.v.batch + p.key_head * a.v.head;
      const auto copy_v = [&](int key, u32 at) {
        barrier_wait(empty_v + slot_of(at), parity_of(at) ^ 1);
        pieces.copy(tiles_v + slot_of(at) * TILE, own_v + key * a.v.position, a.v.position,
                    a.keys - key);
        cp_async_arrive(full_v + slot_of(at));
      };
      barrier_wait(empty_q, done++ % 2 ^ 1);
      if (a.heads == a.key_heads) {
        pieces_q.copy(tile_q, own_q + position_of(a, a.q, p, p.row0), a.q.position, rows - p.row0);
      } else {
#pragma unroll 1
        for (int i = 0; i < pieces_q.COUNT; i++) {
          const int row = p.row0 + pieces_q.row + i * pieces_q.AT_ONCE;
          const T *from = own_q + position_of(a, a.q, p, min(row, rows - 1)) + pieces_q.element;
          cp_async<16>(tile_q + pieces_q.place + i * pieces_q.AT_ONCE * 128, from,
                       row < rows ? 16 : 0);
        }
      }
      int key = begin;
#pragma unroll 1
      for (; key < range.end; key += KEYS, turn++) {
        barrier_wait(empty_k + slot_of(turn), parity_of(turn) ^ 1);
        pieces.copy(tiles_k + slot_of(turn) * TILE, own_k + key * a.k.position, a.k.position,
                    a.keys - key);
        cp_async_arrive(full_k + slot_of(turn));
        // Values are asked for one tile later than keys.
        if (key > begin) copy_v(key - KEYS, turn - 1);
      }
      copy_v(key - KEYS, turn - 1);
    }
    return;
  }

  set_registers<Budget::MULTIPLY, true>();
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const unsigned char *own_q = tile_q + group * 64 * 128;
  const auto done = [&](u64 *barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  u32 own_turn = group == 0;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const Place p = find_item(a, heads, ROWS, item);
    const Range range = seen_keys(a, p.row0, min(p.row0 + ROWS, rows), 0);
    const int begin = range.begin / KEYS * KEYS, row0 = p.row0 + group * 64 + warp * 16;
    // The group's own rows; where they see no more keys it takes its turns all the same.
    const Place own_place = {p.batch, p.key_head, min(p.row0 + group * 64, rows - 1), 0};
    const Range whole = whole_keys(a, own_place, 64);
    const int own_end = seen_keys(a, own_place.row0, min(own_place.row0 + 64, rows), 0).end;
    const u32 own_turns = turn + (max(own_end - begin, 1) + KEYS - 1) / KEYS;
    f32 s[KEYS / 8][4], rescale[2], sums[D / 8][4] = {};
    u32 weights[KEYS / 16][4];
    const auto begin_scores = [&](u32 at) {
      const unsigned char *tile = tiles_k + slot_of(at) * TILE;
#pragma unroll
      for (int d = 0; d < D; d += 16)
        wgmma_64<T, KEYS, false, false>(
            flat(s),
            describe_panel(own_q + d / 64 * ROWS * 128) + d % 64 / 16 * NEXT_PANEL_16<false>,
            describe_panel(tile + d / 64 * KEYS * 128) + d % 64 / 16 * NEXT_PANEL_16<false>, d > 0);
      wgmma_commit();
    };
    const auto ready = [&](u64 *full, u32 at) { barrier_wait(full + slot_of(at), parity_of(at)); };
    const auto start = [] {
      fence_async();
      wgmma_fence();
    };
    const auto begin_sums = [&](u32 at) {
      const u64 tile = describe_panel(tiles_v + slot_of(at) * TILE, KEYS * 128);
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++)
        wgmma_64_held<T, D, true>(flat(sums), weights[j], tile + j * NEXT_PANEL_16<true>, true);
      wgmma_commit();
    };
    const auto sum = [&](u32 at) {
      start();
      begin_sums(at);
      wgmma_wait<0>();
      hold(flat(sums));
    };
    const auto keep_weights = [&] {
#pragma unroll
      for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          weights[j / 2][j % 2 * 2 + h] = pack<T>(s[j][2 * h], s[j][2 * h + 1]);
    };
    Rows<T, KEYS, MASK, CAP> own;
    own.start(a, p, row0);
    const auto all_seen = [&](int key) {
      return own.PLAIN && key >= whole.begin && key + KEYS <= whole.end;
    };
    if (begin < range.end) {
      ready(full_k, turn);
      start();
      begin_scores(turn);
      wgmma_wait<0>();
      hold(flat(s));
      done(empty_k + slot_of(turn));
      if (all_seen(begin))
        own.template weigh<true>(a, mask, begin, s, rescale);
      else
        own.template weigh<false>(a, mask, begin, s, rescale);
      keep_weights();
      turn++;
#pragma unroll 1
      for (int key = begin + KEYS; key < range.end; key += KEYS, turn++) {
        barrier_wait(turns + group, own_turn++ & 1);
        ready(full_k, turn);
        ready(full_v, turn - 1);
        if (turn >= own_turns) {
          if (turn == own_turns) sum(turn - 1);
          done(turns + (group + 1) % GROUPS);
          done(empty_k + slot_of(turn));
          done(empty_v + slot_of(turn - 1));
          continue;
        }
        start();
        begin_scores(turn);
        begin_sums(turn - 1);
        done(turns + (group + 1) % GROUPS);
        wgmma_wait<1>();
        hold(flat(s));
        bool moved = false;
        if (all_seen(key)) {
          // Products are asked for by a group as a whole, so it goes on as a whole.
          if (!own.weigh_on(a, s, [&](bool so) { return group_all(so, 1 + group); })) {
            // Which is rare: the scores are computed anew.
            start();
            begin_scores(turn);
            wgmma_wait<0>();
            hold(flat(s));
            moved = own.template weigh<true>(a, mask, key, s, rescale);
          }
        } else {
          moved = own.template weigh<false>(a, mask, key, s, rescale);
        }
        done(empty_k + slot_of(turn));
        wgmma_wait<0>();
        hold(flat(sums));
        done(empty_v + slot_of(turn - 1));
        if (moved) {
#pragma unroll
          for (int j = 0; j < D / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[j][e] *= rescale[e / 2];
        }
        keep_weights();
      }
      done(empty_q);
      ready(full_v, turn - 1);
      if (turn <= own_turns) sum(turn - 1);
      done(empty_v + slot_of(turn - 1));
    }
    own.template store<D, true>(a, p, row0, o, sums);
  }
}
