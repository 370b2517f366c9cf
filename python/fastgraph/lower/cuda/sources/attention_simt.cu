// Attention without tensor cores: f32, f64, and heads of halves that are too long for these.
//
// 16 x 16 threads share ROWS rows and KEYS keys at a time; weights go from one product to the other
// through shared memory. D, V: elements of a head of k and of v, rounded up to 16. BYTES: what is
// copied at once; of halves, which are widened on their way, it has no meaning.

// Begins to copy `rows` rows of ROWS, `step` elements apart, to rows of PITCH; zeros beyond.
template <int ROWS, int ELEMENTS, int PITCH, int BYTES, class T, class F>
FG_DEVICE void copy_wide(compute_t<T> *to, F row_of, int elements) {
  typedef compute_t<T> A;
  constexpr bool AS_IT_IS = sizeof(T) == sizeof(A);
  constexpr int EACH = AS_IT_IS ? BYTES / (int)sizeof(T) : 1, ACROSS = ELEMENTS / EACH;
#pragma unroll 4
  for (int piece = threadIdx.x; piece < ROWS * ACROSS; piece += 256) {
    const int row = piece / ACROSS, element = piece % ACROSS * EACH;
    const T *from = row_of(row);  // null: there is no such row
    const bool inside = from && element < elements;
    A *place = to + row * PITCH + element;
    if constexpr (AS_IT_IS) {
      const T *source = inside ? from + element : row_of(0);
      if (source)
        cp_async<BYTES>(place, source, inside ? BYTES : 0);
      else
        *place = 0;
    } else {
      *place = inside ? widen(from[element]) : (A)0;
    }
  }
}

template <class T, int D, int V, int ROWS, int KEYS, int BYTES, int MASK, bool CAP>
__global__ void __launch_bounds__(256)
    attention_simt(T *o, const T *q, const T *k, const T *v, const void *mask,
                   compute_t<T> *partial, i32 batches, Attention a) {
  typedef compute_t<T> A;
  constexpr int PAD = 16 / sizeof(A), PITCH = D + PAD, P_PITCH = KEYS + PAD;
  constexpr int OWN_ROWS = ROWS / 16, OWN_KEYS = KEYS / 16;
  // Columns of v side by side, and how many times.
  constexpr int SIDE = V % 64 == 0 ? 4 : V % 32 == 0 ? 2 : 1, TIMES = V / 16 / SIDE;
  constexpr int PIECE = 16 / sizeof(A) < 4 ? 16 / sizeof(A) : 4;
  constexpr int SIDE_PIECE = SIDE < PIECE ? SIDE : PIECE;
  FG_DYNAMIC_SHARED(shared);
  A *tile_q = (A *)shared, *tile_k = tile_q + ROWS * PITCH, *tile_v = tile_k + KEYS * PITCH;
  A *tile_p = tile_v + KEYS * V;

  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int group = a.heads / a.key_heads, rows = group * a.queries;
  const Place p = find_place(a, ROWS);
  const Range range = seen_keys(a, p.row0, min(p.row0 + ROWS, rows), p.split);
  const int begin = range.begin / KEYS * KEYS;
  q += a.q.offset;
  k += a.k.offset + p.batch * a.k.batch + p.key_head * a.k.head;
  v += a.v.offset + p.batch * a.v.batch + p.key_head * a.v.head;
  const auto copy_k = [&](int key) {
    if (key < range.end)
      copy_wide<KEYS, D, PITCH, BYTES, T>(
          tile_k,
          [&](int i) { return key + i < range.end ? k + (key + i) * a.k.position : nullptr; },
          a.length);
    cp_async_commit();
  };
  const auto copy_v = [&](int key) {
    if (key < range.end)
      copy_wide<KEYS, V, V, BYTES, T>(
          tile_v,
          [&](int i) { return key + i < range.end ? v + (key + i) * a.v.position : nullptr; },
          a.value_length);
    cp_async_commit();
  };

  fg_trigger();
  fg_wait();
  copy_wide<ROWS, D, PITCH, BYTES, T>(
      tile_q,
      [&](int i) { return p.row0 + i < rows ? q + position_of(a, a.q, p, p.row0 + i) : nullptr; },
      a.length);
  copy_k(begin);
  copy_v(begin);

  Attention cut = a;
  cut.keys = range.end;
  A sums[OWN_ROWS][TIMES][SIDE] = {}, most[OWN_ROWS], weight[OWN_ROWS] = {};
  int query[OWN_ROWS];
  i64 mask_at[OWN_ROWS];
#pragma unroll
  for (int i = 0; i < OWN_ROWS; i++) {
    const int row = min(p.row0 + ty + i * 16, rows - 1);
    most[i] = -(A)FG_INFINITY;
    query[i] = row % a.queries;
    mask_at[i] = p.batch * a.mask[0] + (p.key_head * group + row / a.queries) * a.mask[1] +
                 query[i] * a.mask[2];
  }
  for (int key = begin; key < range.end; key += KEYS) {
    cp_async_wait<1>();
    __syncthreads();
    A s[OWN_ROWS][OWN_KEYS] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      Vec<A, 4> left[OWN_ROWS], right[OWN_KEYS];
#pragma unroll
      for (int i = 0; i < OWN_ROWS; i++)
        left[i] = load<4, PIECE>(tile_q + (ty + i * 16) * PITCH + d);
#pragma unroll
      for (int j = 0; j < OWN_KEYS; j++)
        right[j] = load<4, PIECE>(tile_k + (tx + j * 16) * PITCH + d);
#pragma unroll
      for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
        for (int j = 0; j < OWN_KEYS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[i][j] += left[i].v[e] * right[j].v[e];
    }
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
      A largest = -(A)FG_INFINITY, total = 0;
#pragma unroll
      for (int j = 0; j < OWN_KEYS; j++) {
        s[i][j] = scored<T, MASK, CAP>(s[i][j], cut, mask, mask_at[i], query[i], key + tx + j * 16);
        largest = fmax(largest, s[i][j]);
      }
      const A old = most[i], now = fmax(old, warp_reduce<16>(largest, LargerOf()));
      const A base = now == -(A)FG_INFINITY ? (A)0 : now, rescale = exp2_of(old - base);
      most[i] = now;
#pragma unroll
      for (int j = 0; j < OWN_KEYS; j++) {
        const A one = exp2_of(s[i][j] - base);
        total += one;
        tile_p[(ty + i * 16) * P_PITCH + tx + j * 16] = one;
      }
      weight[i] = weight[i] * rescale + warp_reduce<16>(total, Add());
#pragma unroll
      for (int c = 0; c < TIMES; c++)
#pragma unroll
        for (int e = 0; e < SIDE; e++) sums[i][c][e] *= rescale;
    }
    cp_async_wait<0>();
    __syncthreads();
    copy_k(key + KEYS);
#pragma unroll 2
    for (int j = 0; j < KEYS; j += 4) {
      Vec<A, 4> left[OWN_ROWS];
#pragma unroll
      for (int i = 0; i < OWN_ROWS; i++)
        left[i] = load<4, PIECE>(tile_p + (ty + i * 16) * P_PITCH + j);
#pragma unroll
      for (int e = 0; e < 4; e++)
#pragma unroll
        for (int c = 0; c < TIMES; c++) {
          const auto right = load<SIDE, SIDE_PIECE>(tile_v + (j + e) * V + (c * 16 + tx) * SIDE);
#pragma unroll
          for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int f = 0; f < SIDE; f++) sums[i][c][f] += left[i].v[e] * right.v[f];
        }
    }
    __syncthreads();
    copy_v(key + KEYS);
  }
  cp_async_wait<0>();

  const i64 all_rows = (i64)batches * a.heads * a.queries;
#pragma unroll
  for (int i = 0; i < OWN_ROWS; i++) {
    const int row = p.row0 + ty + i * 16;
    if (row >= rows) continue;
    const i64 at = ((i64)p.batch * a.key_heads + p.key_head) * rows + row;
    if (a.splits > 1 && tx == 0) {
      A *ends = partial + a.splits * all_rows * a.value_length;
      ends[p.split * all_rows + at] = most[i];
      ends[(a.splits + p.split) * all_rows + at] = weight[i];
    }
    T *to = o + position_of(a, a.o, p, row);
#pragma unroll
    for (int c = 0; c < TIMES; c++)
#pragma unroll
      for (int e = 0; e < SIDE; e++) {
        const int element = (c * 16 + tx) * SIDE + e;
        if (element >= a.value_length) continue;
        if (a.splits > 1)
          partial[(p.split * all_rows + at) * a.value_length + element] = sums[i][c][e];
        else
          to[element] = narrow<T>(weight[i] == (A)0 ? (A)0 : sums[i][c][e] / weight[i]);
      }
  }
}
