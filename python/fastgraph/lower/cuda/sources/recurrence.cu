// A step of a recurrent layer: what the state before adds to the gates, and the gates' functions. A
// warp does one unit of the state for some rows of the batch. Stands after elementwise.cuh.
enum { LSTM, GRU, RNN };
enum { WHOLE, GATES, CANDIDATE };
enum { SIGMOID, TANH, RELU };

struct Layer {
  i32 steps, batch, hidden, ways, step, reverse;
  i32 functions[6];  // by direction, three each
  i32 input_forget;
  f64 clip;  // 0: none
};

template <class T>
FG_DEVICE T gate(const Layer &l, int way, int which, T x) {
  if (l.clip > 0) {
    const T bound = (T)l.clip;
    x = x > bound ? bound : x < -bound ? -bound : x;
  }
  const int function = l.functions[way * 3 + which];
  return function == SIGMOID ? op_sigmoid(x) : function == TANH ? op_tanh(x) : op_relu(x);
}

// FIRST to LAST are the gates of which products are formed: with the state before or, for a GRU's
// candidate, with that upon which its reset gate has acted.
template <class T, class I, int KIND, int PHASE, bool LINEAR, int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS)
    recurrence(T *y, T *y_h, T *y_c, T *other, const T *gates, const T *r, const T *initial_h,
               const T *initial_c, const T *peephole, const T *recurrent_bias, const I *lengths,
               u64 *fault, u64 node, Layer l) {
  constexpr int COUNT = KIND == LSTM ? 4 : KIND == GRU ? 3 : 1;
  constexpr int FIRST = PHASE == CANDIDATE ? 2 : 0, LAST = PHASE == GATES ? 2 : COUNT;
  const int lane = threadIdx.x % 32, task = blockIdx.x * WARPS + threadIdx.x / 32;
  const int hidden = l.hidden, way = task / hidden, unit = task % hidden;
  const int row0 = blockIdx.y * ROWS;
  fg_trigger();
  fg_wait();
  if (way >= l.ways) return;
  const i64 state = (i64)l.ways * l.batch * hidden;
  T *const update = other + state, *const reset = update + state;
  // The last step writes y_h, those before it by turns.
  const bool even = (l.steps - 1 - l.step) % 2 == 0;
  const T *before = l.step == 0 ? initial_h : even ? other : y_h;
  T *const after = even ? y_h : other;
  const T *const cells = l.step == 0 ? initial_c : y_c;

  T sums[ROWS][COUNT] = {};
  if (before) {
    const T *const from = PHASE == CANDIDATE ? reset : before;
    for (int k = lane; k < hidden; k += 32) {
      T h[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++)
        h[i] = row0 + i < l.batch ? from[((i64)way * l.batch + row0 + i) * hidden + k] : T(0);
#pragma unroll
      for (int g = FIRST; g < LAST; g++) {
        const T w = r[(((i64)way * COUNT + g) * hidden + unit) * hidden + k];
#pragma unroll
        for (int i = 0; i < ROWS; i++) sums[i][g] += w * h[i];
      }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int g = FIRST; g < LAST; g++) sums[i][g] = warp_reduce(sums[i][g], Add());
  }

#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int row = row0 + i;
    if (lane != i || row >= l.batch) continue;
    i64 length = lengths ? (i64)lengths[row] : l.steps;
    if (length < 0 || length > l.steps) {
      if (l.step == 0 && task == 0 && PHASE != CANDIDATE) fg_fault(fault, node);
      length = -1;
    }
    const bool ended = l.step >= length;
    const i64 at = ((i64)way * l.batch + row) * hidden + unit;
    const i64 time = ended ? l.step : (way == 1 || l.reverse) ? length - 1 - l.step : l.step;
    T *const to = y + ((time * l.ways + way) * l.batch + row) * hidden + unit;
    const T h = before ? before[at] : T(0);
    if (ended) {
      if (PHASE == GATES) continue;
      if (KIND == LSTM && l.step == 0) y_c[at] = cells ? cells[at] : T(0);
      after[at] = h;
      *to = T(0);
      continue;
    }
    const T *x = gates + (((time * l.batch + row) * l.ways + way) * COUNT) * hidden + unit;
    T next;
    if constexpr (KIND == LSTM) {
      const T *const peep = peephole ? peephole + way * 3 * (i64)hidden + unit : nullptr;
      const T cell = cells ? cells[at] : T(0);
      T in = x[0] + sums[i][0], out = x[hidden] + sums[i][1], forget = x[2 * hidden] + sums[i][2];
      if (peep) in += peep[0] * cell, forget += peep[2 * hidden] * cell;
      in = gate(l, way, 0, in);
      forget = l.input_forget ? T(1) - in : gate(l, way, 0, forget);
      const T now = forget * cell + in * gate(l, way, 1, x[3 * hidden] + sums[i][3]);
      if (peep) out += peep[hidden] * now;
      y_c[at] = now;
      next = gate(l, way, 0, out) * gate(l, way, 2, now);
    } else if constexpr (KIND == RNN) {
      next = gate(l, way, 0, x[0] + sums[i][0]);
    } else if constexpr (PHASE == GATES) {
      update[at] = gate(l, way, 0, x[0] + sums[i][0]);
      reset[at] = gate(l, way, 0, x[hidden] + sums[i][1]) * h;
      continue;
    } else {
      T z, inner = sums[i][2];
      if constexpr (LINEAR) {
        z = gate(l, way, 0, x[0] + sums[i][0]);
        if (recurrent_bias) inner += recurrent_bias[way * (i64)hidden + unit];
        inner *= gate(l, way, 0, x[hidden] + sums[i][1]);
      } else {
        z = update[at];
      }
      next = (T(1) - z) * gate(l, way, 1, x[2 * hidden] + inner) + z * h;
    }
    after[at] = next;
    *to = next;
  }
}
