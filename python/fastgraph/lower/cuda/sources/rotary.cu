// Pairs of elements rotated by the angles of their position.

// x is BATCHES by A by B heads of LENGTH elements, of which HALF pairs are rotated: neighbours, or
// with the partner HALF elements away. The position is the place along A, with ROWS_FIRST, or B; it
// chooses one of ANGLES rows of cos and sin by itself, ANGLE_STEP rows on for each batch, or through
// `positions`, POSITION_STEP on for each batch. A position out of range gives zeros and a fault.
template <class T, class I, bool POSITIONS, bool INTERLEAVED, bool ROWS_FIRST, int THREADS, int V,
          int PIECE, int PIECE_COS, i64 LENGTH, i64 HALF, i64 BATCHES, i64 A, i64 B, i64 ANGLES,
          i64 ANGLE_STEP, i64 POSITION_STEP>
__global__ __launch_bounds__(THREADS) void rotary(T *out, const T *x, const T *cosines,
                                                  const T *sines, const I *positions, u64 *fault,
                                                  u64 node, i64 given_batches, i64 given_a,
                                                  i64 given_b, i64 given_angles,
                                                  i64 given_angle_step, i64 given_position_step) {
  typedef compute_t<T> C;
  constexpr i64 PAIRS = HALF / V, REST = (LENGTH - 2 * HALF) / V, EACH = PAIRS + REST;
  const i64 a = known<A>(given_a), b = known<B>(given_b), angles = known<ANGLES>(given_angles);
  const i64 angle_step = known<ANGLE_STEP>(given_angle_step);
  const i64 position_step = known<POSITION_STEP>(given_position_step);
  fg_trigger();
  const i64 unit = (i64)blockIdx.x * THREADS + threadIdx.x;
  fg_wait();
  if (unit >= known<BATCHES>(given_batches) * a * b * EACH) return;
  const i64 row = unit / EACH, part = unit % EACH;
  const i64 batch = row / (a * b), position = ROWS_FIRST ? row / b % a : row % b;
  i64 at = position;
  if constexpr (POSITIONS) at = positions[batch * position_step + position];
  const T *from = x + row * LENGTH;
  T *to = out + row * LENGTH;
  const bool bad = at < 0 || at >= angles;
  if (part >= PAIRS) {
    const i64 e = 2 * HALF + (part - PAIRS) * V;
    Vec<T, V> held = load<V, PIECE>(from + e);
    if (bad) memset(&held, 0, sizeof(held));
    store(to + e, held);
    return;
  }
  if (bad && part == 0) fg_fault(fault, node);
  const i64 first = INTERLEAVED ? 2 * part * V : part * V;
  const i64 second = INTERLEAVED ? first + V : first + HALF;
  // Of neighbours the two vectors are the pairs' elements by turns.
  Vec<T, V> low = load<V, PIECE>(from + first), high = load<V, PIECE>(from + second);
  if (bad) {
    memset(&low, 0, sizeof(low));
    memset(&high, 0, sizeof(high));
  } else {
    const i64 angle = (batch * angle_step + at) * HALF + part * V;
    const Vec<T, V> cosine = load<V, PIECE_COS>(cosines + angle);
    const Vec<T, V> sine = load<V, PIECE_COS>(sines + angle);
    T both[2 * V];
    memcpy(both, &low, sizeof(low));
    memcpy(both + V, &high, sizeof(high));
#pragma unroll
    for (int j = 0; j < V; j++) {
      const int one = INTERLEAVED ? 2 * j : j, two = INTERLEAVED ? 2 * j + 1 : V + j;
      const C u = widen(both[one]), v = widen(both[two]);
      const C c = widen(cosine.v[j]), s = widen(sine.v[j]);
      both[one] = narrow<T>(u * c - v * s);
      both[two] = narrow<T>(u * s + v * c);
    }
    memcpy(&low, both, sizeof(low));
    memcpy(&high, both + V, sizeof(high));
  }
  store(to + first, low);
  store(to + second, high);
}
