// What the kernels of attention share: where operands lie, which keys a query sees, and the sum of
// the parts into which long rows of keys were cut.
//
// Heads of q that share a head of k and v are worked on together: row r of such a group is query
// r % queries of its head r / queries. No scores are ever written to memory.

struct Strides {
  i64 offset, batch, head, position;
};

// As lowered: sizes, strides in elements, and what becomes of a score.
struct Attention {
  i32 heads, key_heads, queries, keys, length, value_length;
  i32 lower, upper;  // query i sees keys from i + lower to i + upper
  i32 splits, split_keys;
  f64 scale, cap;  // cap 0: none
  Strides q, k, v, o;
  i64 mask[4];
};

// MASK_PLAIN: neither mask nor cap, and a scale above zero, so that the order of products is that of
// scores.
enum { MASK_NONE, MASK_BOOL, MASK_ADDED, MASK_PLAIN };

// Parts of the keys, at most; the lowering has the same number.
constexpr int MOST_SPLITS = 512;

// Which head of its group a row belongs to, and which query it is: most groups have one head, and
// need no division, which takes longer than all else that comes before the first load.
struct GroupRow {
  i32 head, query;
};
FG_DEVICE GroupRow group_row(const Attention &a, int row) {
  if (a.heads == a.key_heads) return {0, row};
  return {row / a.queries, row % a.queries};
}
FG_DEVICE int rows_of_group(const Attention &a) {
  return a.heads == a.key_heads ? a.queries : a.heads / a.key_heads * a.queries;
}

// Where a block is: batch and head of k, first row of its tile, and its part of the keys.
struct Place {
  i32 batch, key_head, row0, split;
};
FG_DEVICE Place find_place(const Attention &a, int rows_of_tile) {
  const int tiles = (rows_of_group(a) + rows_of_tile - 1) / rows_of_tile;
  u32 at = blockIdx.x;
  Place p;
  p.split = 0;
  if (a.splits > 1) {
    p.split = (i32)(at % a.splits);
    at /= a.splits;
  }
  // Of a causal head the last rows have most to do, so they begin.
  p.row0 = (tiles - 1 - (i32)(at % tiles)) * rows_of_tile;
  at /= tiles;
  p.key_head = (i32)(at % a.key_heads);
  p.batch = (i32)(at / a.key_heads);
  return p;
}

// Where rows of q and of the result begin.
FG_DEVICE i64 position_of(const Attention &a, const Strides &strides, const Place &p, int row) {
  const GroupRow at = group_row(a, row);
  const int first = a.heads == a.key_heads ? p.key_head : p.key_head * (a.heads / a.key_heads);
  return p.batch * strides.batch + (first + at.head) * strides.head + at.query * strides.position;
}

// The keys that rows from `row0` to `row1` see at all, cut to the part of the block.
struct Range {
  i32 begin, end;
};
FG_DEVICE Range seen_keys(const Attention &a, int row0, int row1, int split) {
  const GroupRow from = group_row(a, row0), to = group_row(a, row1 - 1);
  const int first = from.head == to.head ? from.query : 0;
  const int last = from.head == to.head ? to.query : a.queries - 1;
  Range range = {max(0, first + a.lower), min(a.keys, last + a.upper + 1)};
  range.begin = max(range.begin, split * a.split_keys);
  range.end = min(range.end, (split + 1) * a.split_keys);
  return range;
}

FG_DEVICE f32 exp2_of(f32 x) { return quick_exp2(x); }
FG_DEVICE f64 exp2_of(f64 x) { return exp2(x); }
// NaN loses: it comes back with the weights.
struct LargerOf {
  FG_DEVICE f32 operator()(f32 x, f32 y) const { return fmaxf(x, y); }
  FG_DEVICE f64 operator()(f64 x, f64 y) const { return fmax(x, y); }
};
template <class A>
struct Log2E {
  static constexpr A value = (A)1.44269504088896340736;
};

// A score as a power of two, before anything is subtracted; -inf where the key is not seen. `at` is
// the mask's element of query and head, without the key.
template <class T, int MASK, bool CAP, class A>
FG_DEVICE A scored(A product, const Attention &a, const void *mask, i64 at, int query, int key) {
  if (key >= a.keys || key < query + a.lower || key > query + a.upper) return -(A)FG_INFINITY;
  A score = product * (A)a.scale;
  if constexpr (CAP) score = (A)a.cap * op_tanh(score / (A)a.cap);
  if constexpr (MASK == MASK_BOOL)
    if (((const u8 *)mask)[at + key * a.mask[3]] == 0) return -(A)FG_INFINITY;
  if constexpr (MASK == MASK_ADDED) score += widen(((const T *)mask)[at + key * a.mask[3]]);
  return score * Log2E<A>::value;
}

// Sums of parts of the keys, in order: part s of row r has value_length sums at
// partial[(s * rows + r) * value_length], the exponent that they are relative to and their weight
// behind all of them.
template <class T>
__global__ void __launch_bounds__(128)
    attention_combine(T *o, const compute_t<T> *partial, i32 batches, Attention a) {
  typedef compute_t<T> A;
  __shared__ A factors[MOST_SPLITS], most_of[4], weight_of[4];
  fg_trigger();
  fg_wait();
  const i64 rows = (i64)batches * a.heads * a.queries;
  const u32 row = blockIdx.x, in_batch = (u32)(a.heads * a.queries);
  const A *exponents = partial + a.splits * rows * a.value_length;
  const A *weights = exponents + a.splits * rows;
  A most = -(A)FG_INFINITY;
#pragma unroll 1
  for (int s = threadIdx.x; s < a.splits; s += 128) most = fmax(most, exponents[s * rows + row]);
  most = block_reduce<128>(most, LargerOf(), most_of);
  if (most == -(A)FG_INFINITY) most = 0;
  A weight = 0;
#pragma unroll 1
  for (int s = threadIdx.x; s < a.splits; s += 128) {
    factors[s] = exp2_of(exponents[s * rows + row] - most);
    weight += weights[s * rows + row] * factors[s];
  }
  // Its barrier is that of the factors, too.
  weight = block_reduce<128>(weight, Add(), weight_of);
  const u32 query = row % (u32)a.queries, head = row % in_batch / (u32)a.queries;
  T *to = o + row / in_batch * a.o.batch + head * a.o.head + query * a.o.position;
  for (int i = threadIdx.x; i < a.value_length; i += 128) {
    A sum = 0;
#pragma unroll 4
    for (int s = 0; s < a.splits; s++)
      sum += partial[(s * rows + row) * a.value_length + i] * factors[s];
    to[i] = narrow<T>(weight == (A)0 ? (A)0 : sum / weight);
  }
}
