// Attention by tiles, with the softmax kept up to date from one tile of keys to the next: the scores
// of a whole row never exist.
//
// A unit is a tile of rows of one key head. Its rows are the queries of all heads that share the
// key head, so that a tile of keys is brought into panels once for all of them. Tiles of keys begin
// at multiples of their size, and a row is computed alike in every tile of rows, so the bits depend
// on neither the parts nor the other rows.
#include "fg_kernel.h"
#include "matmul_tile.h"
#include "vmath.h"

namespace FG_NS {
namespace {

const float LOWEST = -__builtin_inff();

// Where an operand lies: element offset, then elements between batches, heads and positions.
struct Operand {
  int64_t offset, batch, head, row;
};

enum MaskKind : int64_t { NO_MASK = 0, BOOL_MASK = 1, FLOAT_MASK = 2 };

// The words of `params`, in this order. lower and upper bound key - query, far out where there is
// no bound; row_tile, key_tile and value_width (value_length in whole panels) are chosen sizes.
struct Attention {
  int64_t batch, heads, key_heads, queries, keys, length, value_length;
  Operand q, k, v, out;
  int64_t mask_kind, mask_batch, mask_head, mask_row, mask_key;
  int64_t scale, softcap;  // bits of floats; no cap: 0
  int64_t lower, upper;
  int64_t row_tile, key_tile, value_width;
  int64_t direct;   // few rows: scores by dot products, without panels of keys
  int64_t scratch;  // floats a part
};

FG_INLINE float float_of(int64_t bits) {
  const uint32_t low = (uint32_t)bits;
  float x;
  memcpy(&x, &low, 4);
  return x;
}

// The scratch of a part.
struct Scratch {
  float *q, *keys, *scores, *sums, *values, *largest, *total;
};

FG_INLINE Scratch scratch_of(const Attention &a, float *at) {
  Scratch s;
  s.q = at, at += a.row_tile * a.length;
  s.keys = at, at += a.direct ? 0 : a.key_tile * a.length;
  s.scores = at, at += TILE_ROWS * a.key_tile;
  s.sums = at, at += a.row_tile * a.value_width;
  s.values = at, at += a.value_width == a.value_length ? 0 : a.key_tile * PANEL;
  s.largest = at, at += a.row_tile;
  s.total = at;
  return s;
}

typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i4 __attribute__((vector_size(16)));

// Four elements of four keys into four rows of a panel.
FG_INLINE void transpose4(float *to, const float *k, int64_t row) {
  const v4 a = *(const v4_any *)k, b = *(const v4_any *)(k + row);
  const v4 c = *(const v4_any *)(k + 2 * row), d = *(const v4_any *)(k + 3 * row);
  const v4 ab_lo = __builtin_shuffle(a, b, i4{0, 4, 1, 5});
  const v4 ab_hi = __builtin_shuffle(a, b, i4{2, 6, 3, 7});
  const v4 cd_lo = __builtin_shuffle(c, d, i4{0, 4, 1, 5});
  const v4 cd_hi = __builtin_shuffle(c, d, i4{2, 6, 3, 7});
  *(v4_any *)to = __builtin_shuffle(ab_lo, cd_lo, i4{0, 1, 4, 5});
  *(v4_any *)(to + PANEL) = __builtin_shuffle(ab_lo, cd_lo, i4{2, 3, 6, 7});
  *(v4_any *)(to + 2 * PANEL) = __builtin_shuffle(ab_hi, cd_hi, i4{0, 1, 4, 5});
  *(v4_any *)(to + 3 * PANEL) = __builtin_shuffle(ab_hi, cd_hi, i4{2, 3, 6, 7});
}

// Brings `n` keys into panels of 16: [panel][element][key]. What is missing in the last one is 0.
void pack_keys(float *to, const float *k, int64_t row, int64_t n, int64_t length) {
  for (int64_t first = 0; first < n; first += PANEL, to += length * PANEL) {
    const int64_t left = n - first, columns = left < (int64_t)PANEL ? left : (int64_t)PANEL;
    const float *from = k + first * row;
    if (columns < (int64_t)PANEL) memset(to, 0, (size_t)(length * PANEL) * sizeof(float));
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      int64_t d = 0;
      for (; d + 4 <= length; d += 4) transpose4(to + d * PANEL + c, from + c * row + d, row);
      for (; d < length; d++)
        for (int64_t i = 0; i < 4; i++) to[d * PANEL + c + i] = from[(c + i) * row + d];
    }
    for (; c < columns; c++)
      for (int64_t d = 0; d < length; d++) to[d * PANEL + c] = from[c * row + d];
  }
}

FG_INLINE float dot(const float *x, const float *y, int64_t n) {
  vf s0 = {}, s1 = {};
  int64_t i = 0;
  for (; i + 2 * FG_VW <= n; i += 2 * FG_VW) {
    s0 += vload(x + i) * vload(y + i);
    s1 += vload(x + i + FG_VW) * vload(y + i + FG_VW);
  }
  for (; i + FG_VW <= n; i += FG_VW) s0 += vload(x + i) * vload(y + i);
  if (i < n) s1 += vload_n(x + i, n - i) * vload_n(y + i, n - i);
  return vhsum(s0 + s1);
}

FG_INLINE vi bool_lanes(const uint8_t *p) {
  typedef uint8_t bytes __attribute__((vector_size(FG_VW)));
  bytes b;
  memcpy(&b, p, FG_VW);
  return __builtin_convertvector(b, vi) != 0;
}

// Applies cap, mask and band to the scores of one row and `n` keys, whose keys begin..end it sees;
// what it does not see becomes -inf, also up to the end of the last vector. Gives the largest.
float finish_scores(const Attention &a, float *s, int64_t n, int64_t begin, int64_t end,
                    const void *mask) {
  const float cap = float_of(a.softcap);
  if (cap != 0.0f) {
    const float inverse = 1.0f / cap;
    for (int64_t i = 0; i < n; i += FG_VW) vstore(s + i, vtanh(vload(s + i) * inverse) * cap);
  }
  if (a.mask_kind == FLOAT_MASK) {
    const float *m = (const float *)mask;
    int64_t i = 0;
    if (a.mask_key) {
      for (; i + FG_VW <= n; i += FG_VW) vstore(s + i, vload(s + i) + vload(m + i));
      for (; i < n; i++) s[i] += m[i];
    } else {
      for (; i < n; i += FG_VW) vstore(s + i, vload(s + i) + *m);
    }
  } else if (a.mask_kind == BOOL_MASK) {
    const uint8_t *m = (const uint8_t *)mask;
    int64_t i = 0;
    if (a.mask_key) {
      for (; i + FG_VW <= n; i += FG_VW)
        vstore(s + i, vselect(bool_lanes(m + i), vload(s + i), vset(LOWEST)));
      for (; i < n; i++) s[i] = m[i] ? s[i] : LOWEST;
    } else if (!*m) {
      end = begin;
    }
  }
  for (int64_t i = 0; i < begin; i++) s[i] = LOWEST;
  const int64_t whole = (n + FG_VW - 1) / FG_VW * FG_VW;
  for (int64_t i = end; i < whole; i++) s[i] = LOWEST;
  vf largest = vset(LOWEST);
  for (int64_t i = 0; i < whole; i += FG_VW) largest = vmax(vload(s + i), largest);
  return vhmax(largest);
}

// The scores become exp(s - shift); gives their sum. NaN stays.
FG_INLINE float exponentials(float *s, int64_t n, float shift) {
  vf s0 = {}, s1 = {};
  int64_t i = 0;
  for (; i + FG_VW < n; i += 2 * FG_VW) {
    const vf e0 = vexp_nonpositive(vload(s + i) - shift);
    const vf e1 = vexp_nonpositive(vload(s + i + FG_VW) - shift);
    vstore(s + i, e0);
    vstore(s + i + FG_VW, e1);
    s0 += e0;
    s1 += e1;
  }
  if (i < n) {
    const vf e = vexp_nonpositive(vload(s + i) - shift);
    vstore(s + i, e);
    s0 += e;
  }
  return vhsum(s0 + s1);
}

// rows x n scores times n rows of v, added to the sums, by panels of 16 columns.
FG_INLINE void add_values(const Attention &a, const Scratch &s, float *sums, int64_t rows,
                          const float *v, int64_t n) {
  Tile t = {};
  t.k = n;
  t.a = s.scores, t.a_row = a.key_tile, t.a_k = 1;
  t.init_row = t.out_row = a.value_width;
  for (int64_t c = 0; c < a.value_width; c += PANEL) {
    const bool whole = c + (int64_t)PANEL <= a.value_length;
    t.b = whole ? v + c : s.values;
    t.b_k = whole ? a.v.row : (int64_t)PANEL;
    t.init = t.out = sums + c;
    NARROW_TILES[rows](t);
  }
}

// A row of a unit, and the step to the next one.
struct Row {
  int64_t head, query;
  void advance(const Attention &a) {
    if (++query == a.queries) query = 0, head++;
  }
};

struct Unit {
  const float *q, *k, *v;  // of this batch, k and v of this key head
  const char *mask;        // of this batch
  float *out;
  Row first;
  int64_t rows;
};

FG_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
FG_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The keys that a query sees: [begin, end), empty where end <= begin.
FG_INLINE int64_t first_key(const Attention &a, int64_t query) { return most(0, query + a.lower); }
FG_INLINE int64_t end_key(const Attention &a, int64_t query) {
  return least(a.keys, query + a.upper + 1);
}

// The keys [from, to) of a tile without those that a row of a boolean mask leaves out at both ends.
FG_INLINE void narrow(const char *mask, int64_t &from, int64_t &to) {
  uint64_t eight = 0;
  for (; to - from >= 8; to -= 8) {
    memcpy(&eight, mask + to - 8, 8);
    if (eight) break;
  }
  while (to > from && !mask[to - 1]) to--;
  for (; to - from >= 8; from += 8) {
    memcpy(&eight, mask + from, 8);
    if (eight) break;
  }
  while (from < to && !mask[from]) from++;
}

void attend_tile(const Attention &a, const Scratch &s, const Unit &u, int64_t key, int64_t n) {
  static const float zeros[PANEL] = {};
  const float *k = u.k + key * a.k.row, *v = u.v + key * a.v.row;
  if (!a.direct) pack_keys(s.keys, k, a.k.row, n, a.length);
  if (a.value_width != a.value_length) {
    const int64_t c = a.value_width - (int64_t)PANEL, tail = a.value_length - c;
    for (int64_t j = 0; j < n; j++) {
      memset(s.values + j * PANEL, 0, sizeof(float) * PANEL);
      memcpy(s.values + j * PANEL, v + j * a.v.row + c, (size_t)tail * sizeof(float));
    }
  }
  const int64_t mask_item = a.mask_kind == BOOL_MASK ? 1 : 4;
  Row next = u.first;
  for (int64_t r = 0; r < u.rows; r += TILE_ROWS) {
    const int64_t rows = least(TILE_ROWS, u.rows - r);
    int64_t from[TILE_ROWS], to[TILE_ROWS], begin = n, end = 0;
    const Row first = next;
    for (int64_t i = 0; i < rows; i++, next.advance(a)) {
      from[i] = least(n, most(0, first_key(a, next.query) - key));
      to[i] = most(from[i], least(n, end_key(a, next.query) - key));
      if (a.mask_kind == BOOL_MASK && a.mask_key)
        narrow(u.mask + next.head * a.mask_head + next.query * a.mask_row + key, from[i], to[i]);
      begin = least(begin, from[i]);
      end = most(end, to[i]);
    }
    if (end <= begin) continue;  // These rows see none of the keys.
    const float *q = s.q + r * a.length;
    if (a.direct) {
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = begin; j < end; j++)
          s.scores[i * a.key_tile + j] = dot(q + i * a.length, k + j * a.k.row, a.length);
    } else {
      Tile t = {};
      t.k = a.length;
      t.a = q, t.a_row = a.length, t.a_k = 1;
      t.b_k = PANEL;
      t.init = zeros;
      t.out_row = a.key_tile;
      for (int64_t j = begin / PANEL * PANEL; j < end; j += PANEL) {
        t.b = s.keys + j * a.length;
        t.out = s.scores + j;
        NARROW_TILES[rows](t);
      }
    }
    Row row = first;
    for (int64_t i = 0; i < rows; i++, row.advance(a)) {
      float *scores = s.scores + i * a.key_tile, *sums = s.sums + (r + i) * a.value_width;
      const char *mask =
          u.mask + (row.head * a.mask_head + row.query * a.mask_row + key * a.mask_key) * mask_item;
      const float before = s.largest[r + i];
      const float largest = finish_scores(a, scores, end, from[i], to[i], mask);
      const float now = largest > before ? largest : before;
      const float added = exponentials(scores, end, now == LOWEST ? 0.0f : now);
      s.largest[r + i] = now;
      if (now == before || before == LOWEST) {  // Nothing to rescale: the sums fit, or are 0.
        s.total[r + i] += added;
        continue;
      }
      const float factor = vexp_nonpositive(vset(before - now))[0];
      s.total[r + i] = s.total[r + i] * factor + added;
      for (int64_t c = 0; c < a.value_width; c += FG_VW) vstore(sums + c, vload(sums + c) * factor);
    }
    // What is behind the last key that any of these rows sees is neither read nor added.
    add_values(a, s, s.sums + r * a.value_width, rows, v, end);
  }
}

void attend(const Attention &a, const Scratch &s, const Unit &u) {
  const float scale = float_of(a.scale);
  int64_t begin = a.keys, end = 0;
  Row row = u.first;
  for (int64_t r = 0; r < u.rows; r++, row.advance(a)) {
    const float *from = u.q + row.head * a.q.head + row.query * a.q.row;
    float *q = s.q + r * a.length;
    _Pragma("GCC ivdep") for (int64_t d = 0; d < a.length; d++) q[d] = from[d] * scale;
    s.largest[r] = LOWEST;
    s.total[r] = 0.0f;
    begin = least(begin, first_key(a, row.query));
    end = most(end, end_key(a, row.query));
  }
  memset(s.sums, 0, (size_t)(u.rows * a.value_width) * sizeof(float));
  for (int64_t key = begin / a.key_tile * a.key_tile; key < end; key += a.key_tile)
    attend_tile(a, s, u, key, least(a.key_tile, a.keys - key));
  row = u.first;
  for (int64_t r = 0; r < u.rows; r++, row.advance(a)) {
    float *out = u.out + row.head * a.out.head + row.query * a.out.row;
    const float *sums = s.sums + r * a.value_width, total = s.total[r];
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    _Pragma("GCC ivdep") for (int64_t c = 0; c < a.value_length; c++) out[c] = sums[c] * factor;
  }
}

// Operands: out, scratch; q, k, v, then a mask. q, k and v may be the same array.
void attention(const fg_call *call) {
  Attention a;
  memcpy(&a, call->params, sizeof a);
  const float *q = (const float *)call->args[2] + a.q.offset;
  const float *k = (const float *)call->args[3] + a.k.offset;
  const float *v = (const float *)call->args[4] + a.v.offset;
  const char *mask = a.mask_kind == NO_MASK ? nullptr : (const char *)call->args[5];
  const int64_t mask_item = a.mask_kind == BOOL_MASK ? 1 : 4;
  const Scratch scratch = scratch_of(a, (float *)call->args[1] + call->part * a.scratch);
  const int64_t group = a.heads / a.key_heads, rows = group * a.queries;
  const int64_t tiles = (rows + a.row_tile - 1) / a.row_tile;
  const Slice mine = fg_slice(a.batch * a.key_heads * tiles, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t tile = unit % tiles, head = unit / tiles % a.key_heads;
    const int64_t batch = unit / tiles / a.key_heads;
    Unit u;
    u.q = q + batch * a.q.batch;
    u.k = k + batch * a.k.batch + head * a.k.head;
    u.v = v + batch * a.v.batch + head * a.v.head;
    u.mask = mask + (mask ? batch * a.mask_batch * mask_item : 0);
    u.out = (float *)call->args[0] + batch * a.out.batch;
    const int64_t row = tile * a.row_tile;
    u.first = {head * group + row / a.queries, row % a.queries};
    u.rows = least(a.row_tile, rows - row);
    attend(a, scratch, u);
  }
}

// In double: row by row, with the scores of one row in scratch. Words and operands as above, with
// double bits of scale and cap.
void attention_double(const fg_call *call) {
  Attention a;
  memcpy(&a, call->params, sizeof a);
  double scale, cap;
  memcpy(&scale, &a.scale, 8);
  memcpy(&cap, &a.softcap, 8);
  double *const scores = (double *)call->args[1] + call->part * a.scratch;
  const void *mask = a.mask_kind == NO_MASK ? nullptr : call->args[5];
  const Slice mine = fg_slice(a.batch * a.heads * a.queries, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t query = unit % a.queries, head = unit / a.queries % a.heads;
    const int64_t batch = unit / a.queries / a.heads, key_head = head / (a.heads / a.key_heads);
    const double *q = (const double *)call->args[2] + a.q.offset + batch * a.q.batch +
                      head * a.q.head + query * a.q.row;
    const double *k =
        (const double *)call->args[3] + a.k.offset + batch * a.k.batch + key_head * a.k.head;
    const double *v =
        (const double *)call->args[4] + a.v.offset + batch * a.v.batch + key_head * a.v.head;
    double *out =
        (double *)call->args[0] + batch * a.out.batch + head * a.out.head + query * a.out.row;
    const int64_t first_mask = batch * a.mask_batch + head * a.mask_head + query * a.mask_row;
    const int64_t begin = first_key(a, query), end = end_key(a, query);
    double largest = -__builtin_inf(), total = 0.0;
    for (int64_t j = begin; j < end; j++) {
      const int64_t m = first_mask + j * a.mask_key;
      double s = 0.0;
      for (int64_t d = 0; d < a.length; d++) s += q[d] * k[j * a.k.row + d];
      s *= scale;
      if (cap != 0.0) s = __builtin_tanh(s / cap) * cap;
      if (a.mask_kind == FLOAT_MASK) s += ((const double *)mask)[m];
      if (a.mask_kind == BOOL_MASK && !((const uint8_t *)mask)[m]) s = -__builtin_inf();
      scores[j] = s;
      largest = s > largest ? s : largest;
    }
    const double shift = largest == -__builtin_inf() ? 0.0 : largest;
    memset(out, 0, (size_t)a.value_length * sizeof(double));
    for (int64_t j = begin; j < end; j++) {
      const double weight = __builtin_exp(scores[j] - shift);
      total += weight;
      const double *row = v + j * a.v.row;
      _Pragma("GCC ivdep") for (int64_t d = 0; d < a.value_length; d++) out[d] += weight * row[d];
    }
    if (total != 0.0)
      for (int64_t d = 0; d < a.value_length; d++) out[d] /= total;
  }
}

}  // namespace

extern const fg_entry attention_entries[] = {
    {"attention_f32", attention},
    {"attention_f64", attention_double},
    {nullptr, nullptr},
};

}  // namespace FG_NS
