// What attention on tensor cores has in common: scores become weights where they are, in registers.
// The sums of a query are rescaled when a much larger score is met.

template <class T>
FG_DEVICE u32 pack(f32 low, f32 high) {
  if constexpr (Same<T, f16>::value)
    return pack_f16(low, high);
  else
    return pack_bf16(low, high);
}

// A row in shared memory is 16 bytes longer than it has to be: pieces of eight successive rows lie in
// different banks.
template <int ELEMENTS>
struct Line {
  static constexpr int BYTES = ELEMENTS * 2 + 16;
};

// Two rows of a warp's 16, eight apart, as a lane has them; three lanes beside it have the others'
// keys of the same rows.
template <class T, int KEYS, int MASK, bool CAP>
struct Rows {
  // Of MASK_PLAIN a score is a product times a factor, which is left for the exponent.
  static constexpr bool PLAIN = MASK == MASK_PLAIN;
  f32 most[2], weight[2] = {};
  int query[2];
  i64 mask_at[2];

  FG_DEVICE void start(const Attention &a, const Place &p, int row0) {
    const int last = rows_of_group(a) - 1;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      // Rows past the end see what the last one sees.
      const GroupRow at = group_row(a, min(row0 + h * 8 + (int)threadIdx.x % 32 / 4, last));
      most[h] = -FG_INFINITY;
      query[h] = at.query;
      if constexpr (MASK == MASK_BOOL || MASK == MASK_ADDED) {
        const int head = p.key_head * (a.heads / a.key_heads) + at.head;
        mask_at[h] = p.batch * a.mask[0] + head * a.mask[1] + at.query * a.mask[2];
      }
    }
  }

  // Scores of keys from `key0` on become weights, and sums so far are to be multiplied by `rescale`:
  // false if that is one in all of the warp. WHOLE: all rows see all of these keys.
  template <bool WHOLE>
  FG_DEVICE bool weigh(const Attention &a, const void *mask, int key0, f32 (&s)[KEYS / 8][4],
                       f32 (&rescale)[2]) {
    const int key1 = key0 + (int)threadIdx.x % 4 * 2;
    // Of a small tile all of the mask is fetched before any of it is looked at.
    constexpr bool AT_ONCE = MASK == MASK_BOOL && KEYS <= 32;
    bool hidden[2][AT_ONCE ? KEYS / 4 : 1];
    if constexpr (AT_ONCE) {
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < KEYS / 4; j++) {
          const int key = min(key1 + j / 2 * 8 + j % 2, a.keys - 1);
          hidden[h][j] = ((const u8 *)mask)[mask_at[h] + key * a.mask[3]] == 0;
        }
    }
    const f32 factor = PLAIN ? (f32)a.scale * Log2E<f32>::value : 1.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      // The columns of this lane that the row sees.
      const int first = query[h] + a.lower - key1, end = min(a.keys, query[h] + a.upper + 1) - key1;
      f32 largest[2] = {-FG_INFINITY, -FG_INFINITY};
#pragma unroll
      for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int q = 0; q < 2; q++) {
          f32 &one = s[j][2 * h + q];
          const int at = j * 8 + q;
          if constexpr (AT_ONCE) {
            one = scored<T, MASK_NONE, CAP>(one, a, mask, 0, query[h], key1 + at);
            if (hidden[h][2 * j + q]) one = -FG_INFINITY;
          } else if constexpr (!PLAIN)
            one = scored<T, MASK, CAP>(one, a, mask, mask_at[h], query[h], key1 + at);
          else if constexpr (!WHOLE)
            if (at < first || at >= end) one = -FG_INFINITY;
          largest[q] = fmaxf(largest[q], one);
        }
      f32 now = fmaxf(most[h], warp_reduce<4>(fmaxf(largest[0], largest[1]), LargerOf()));
      // Weights of up to 256 do no harm, and most tiles leave the sums as they are.
      if ((now - most[h]) * factor <= 8.0f) now = most[h];
      // Nothing seen yet: any finite number does.
      const f32 base = now == -FG_INFINITY ? 0.0f : now * factor;
      rescale[h] = exp2_of(most[h] * factor - base);
      most[h] = now;
      f32 total[2] = {};
#pragma unroll
      for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int q = 0; q < 2; q++) {
          f32 &one = s[j][2 * h + q];
          one = exp2_of(one * factor - base);
          total[q] += one;
        }
      weight[h] = weight[h] * rescale[h] + (total[0] + total[1]);
    }
    return __any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f);
  }

  // The same for keys that all rows see, without looking for larger scores: weights stay relative to
  // what they have been, and nothing is to be rescaled. False, and scores are lost, where weights would
  // grow too large or no key has been seen before; `all` asks those that go on together.
  template <class F>
  FG_DEVICE bool weigh_on(const Attention &a, f32 (&s)[KEYS / 8][4], F all) {
    const f32 factor = (f32)a.scale * Log2E<f32>::value;
    const f32 base[2] = {most[0] * factor, most[1] * factor};
    f32 total[2][2] = {};
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[j][e] = exp2_of(s[j][e] * factor - base[e / 2]);
        total[e / 2][e % 2] += s[j][e];
      }
    const f32 first = total[0][0] + total[0][1], second = total[1][0] + total[1][1];
    // Far from what halves can hold.
    if (!all(first <= 8192.0f && second <= 8192.0f)) return false;
    weight[0] += first;
    weight[1] += second;
    return true;
  }

  // What scores are relative to as a power of two, and the weight of a row over its four lanes.
  FG_DEVICE f32 exponent(const Attention &a, int h) const {
    const f32 found = most[h];
    return PLAIN && found != -FG_INFINITY ? found * ((f32)a.scale * Log2E<f32>::value) : found;
  }
  FG_DEVICE f32 whole_weight(int h) const { return warp_reduce<4>(weight[h], Add()); }

  // Writes sums over weights to rows from `row0` on. EXACT: of V elements.
  template <int V, bool EXACT>
  FG_DEVICE void store(const Attention &a, const Place &p, int row0, T *o,
                       const f32 (&sums)[V / 8][4]) const {
    const int lane = threadIdx.x % 32, rows = rows_of_group(a);
    const int length = EXACT ? V : a.value_length;
    const bool pairs = length % 2 == 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = row0 + h * 8 + lane / 4;
      const f32 total = whole_weight(h), inverse = total == 0.0f ? 0.0f : 1.0f / total;
      if (row >= rows) continue;
      T *to = o + position_of(a, a.o, p, row);
#pragma unroll
      for (int j = 0; j < V / 8; j++) {
        const int element = j * 8 + lane % 4 * 2;
        const f32 low = sums[j][2 * h] * inverse, high = sums[j][2 * h + 1] * inverse;
        if (pairs && element < length) {
          *(u32 *)(to + element) = pack<T>(low, high);
        } else {
          if (element < length) to[element] = narrow<T>(low);
          if (element + 1 < length) to[element + 1] = narrow<T>(high);
        }
      }
    }
  }
};

// Between these keys every row of a block of `rows_of_tile` rows sees all.
FG_DEVICE Range whole_keys(const Attention &a, const Place &p, int rows_of_tile) {
  const GroupRow first = group_row(a, p.row0);
  const GroupRow last = group_row(a, min(p.row0 + rows_of_tile, rows_of_group(a)) - 1);
  const bool one_head = first.head == last.head;
  return {(one_head ? last.query : a.queries - 1) + a.lower,
          min(a.keys, (one_head ? first.query : 0) + a.upper + 1)};
}
