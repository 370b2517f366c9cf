// Steps of recurrent layers: the part that each step adds to what a product gave for all of them,
// and the gates. Sixteen units of the hidden state are worked out at a time: weights are streamed
// from panels, and the gate functions follow while the sums are in L1.
//
// A call does the steps [first, last) in the order of the direction. Of a single step the parts are
// panels of units; of several they are rows of the batch, which do not know of each other. A sum does
// not depend on the parts, nor on the other rows.
#include <math.h>

#include "fg_kernel.h"
#include "matmul_gemv.h"
#include "matmul_tile.h"
#include "vmath.h"

namespace FG_NS {
namespace {

enum Kind { LSTM, GRU, RNN };
enum Function { SIGMOID, TANH, RELU };
enum Phase { WHOLE, GATES, CANDIDATE };
constexpr int64_t MOST_GATES = 4;

// The words of `params`, in the order of python/fastgraph/lower/cpu/recurrence.py.
struct Layer {
  int64_t kind, steps, batch, hidden, ways;
  int64_t first, last;   // steps of this call
  int64_t phase;         // of a GRU whose reset comes before its product
  int64_t reverse;       // of the only direction
  int64_t functions[6];  // by direction, three each
  double clip;           // 0: none
  int64_t input_forget, linear_before_reset;
  int64_t initial_h, initial_c, peephole, recurrent_bias, lengths;  // which operands there are
  int64_t index;                                                    // bytes of a length
  int64_t by_units;                                                 // what the parts are
  int64_t row_step;                                                 // rows of such a part
};

// Operands: y, y_h, y_c of an LSTM, scratch; gates, weights, then those that there are.
template <typename T>
struct Operands {
  T *y, *y_h, *y_c;
  T *other, *update, *reset;  // of the size of y_h: its twin, and a GRU's gates
  const T *gates, *r, *initial_h, *initial_c, *peephole, *recurrent_bias;
  const void *lengths;
};

FG_INLINE Layer layer_of(const fg_call *call) {
  Layer l;
  memcpy(&l, call->params, sizeof l);
  return l;
}

template <typename T>
Operands<T> operands_of(const Layer &l, const fg_call *call) {
  Operands<T> o = {};
  void *const *arg = call->args;
  o.y = (T *)*arg++;
  o.y_h = (T *)*arg++;
  if (l.kind == LSTM) o.y_c = (T *)*arg++;
  const int64_t state = l.ways * l.batch * l.hidden;
  o.other = (T *)*arg++;
  o.update = o.other + state, o.reset = o.update + state;
  o.gates = (const T *)*arg++;
  o.r = (const T *)*arg++;
  if (l.initial_h) o.initial_h = (const T *)*arg++;
  if (l.initial_c) o.initial_c = (const T *)*arg++;
  if (l.peephole) o.peephole = (const T *)*arg++;
  if (l.recurrent_bias) o.recurrent_bias = (const T *)*arg++;
  if (l.lengths) o.lengths = *arg++;
  return o;
}

FG_INLINE int64_t gates_of(const Layer &l) { return l.kind == LSTM ? 4 : l.kind == GRU ? 3 : 1; }

// Lanes: vectors of float, single doubles.
FG_INLINE vf lanes(const float *p, int64_t n) { return n >= FG_VW ? vload(p) : vload_n(p, n); }
FG_INLINE double lanes(const double *p, int64_t) { return *p; }
FG_INLINE void put(float *p, vf v, int64_t n) {
  if (n >= FG_VW)
    vstore(p, v);
  else
    vstore_n(p, v, n);
}
FG_INLINE void put(double *p, double v, int64_t) { *p = v; }
FG_INLINE vf bounded(vf x, double bound) { return vclamp_nan(x, (float)bound); }
FG_INLINE double bounded(double x, double bound) {
  return x > bound ? bound : x < -bound ? -bound : x;
}
FG_INLINE vf apply(int64_t function, vf x) {
  return function == SIGMOID ? vsigmoid(x) : function == TANH ? vtanh(x) : vrelu(x);
}
FG_INLINE double apply(int64_t function, double x) {
  if (function == SIGMOID) return 1.0 / (1.0 + exp(-x));
  return function == TANH ? tanh(x) : x < 0.0 ? 0.0 : x;
}

template <typename T>
struct Width;
template <>
struct Width<float> {
  typedef vf V;
  enum { LANES = FG_VW };
};
template <>
struct Width<double> {
  typedef double V;
  enum { LANES = 1 };
};

// One panel of units of up to TILE_ROWS rows at one step.
template <typename T>
struct Block {
  const Layer &l;
  const Operands<T> &o;
  int64_t way, step, unit;  // the first of the units
  int64_t row, rows;        // rows of the batch
  const int64_t *time;      // by row: which step of the sequence this is, -1 behind its end
  const T *before;          // the state before, null where that is 0
  T *after;                 // the state that is worked out
  T sums[TILE_ROWS * MOST_GATES * PANEL];

  Block(const Layer &layer, const Operands<T> &operands) : l(layer), o(operands) {}

  int64_t columns() const { return at_most(PANEL, l.hidden - unit); }
  int64_t state(int64_t r) const { return (way * l.batch + row + r) * l.hidden + unit; }

  // sums[row][gate] = what the product of all steps has for gates [from, to).
  void begin(int64_t from, int64_t to) {
    const int64_t gates = gates_of(l);
    for (int64_t r = 0; r < rows; r++) {
      const int64_t at = time[r] < 0 ? 0 : time[r];
      const T *x = o.gates + (((at * l.batch + row + r) * l.ways + way) * gates) * l.hidden + unit;
      for (int64_t g = from; g < to; g++) {
        T *to_sums = sums + (r * MOST_GATES + g) * PANEL;
        for (int64_t c = 0; c < columns(); c++) to_sums[c] = x[g * l.hidden + c];
        for (int64_t c = columns(); c < PANEL; c++) to_sums[c] = 0;
      }
    }
  }

  void clear(int64_t g) {
    for (int64_t r = 0; r < rows; r++)
      memset(sums + (r * MOST_GATES + g) * PANEL, 0, PANEL * sizeof(T));
  }

  // sums += state @ weights for gates [from, to); `x` is the first row of the state.
  void multiply(const T *x, int64_t from, int64_t to);

  typename Width<T>::V gate(int64_t r, int64_t g, int64_t c) const {
    return lanes(sums + (r * MOST_GATES + g) * PANEL + c, Width<T>::LANES);
  }

  typename Width<T>::V activate(int64_t which, typename Width<T>::V x) const {
    if (l.clip > 0.0) x = bounded(x, l.clip);
    return apply(l.functions[way * 3 + which], x);
  }

  void run(int64_t phase);
  void lstm();
  void gru(bool gates_alone);
  void rnn();

  // Where row r's vector of state is stored, beside its step of y.
  void keep(int64_t r, int64_t c, typename Width<T>::V h, int64_t n) const {
    put(after + state(r) + c, h, n);
    put(o.y + ((time[r] * l.ways + way) * l.batch + row + r) * l.hidden + unit + c, h, n);
  }

  // Rows that have ended keep their state.
  void hold(int64_t r) const {
    for (int64_t c = 0; c < columns(); c++) {
      after[state(r) + c] = before ? before[state(r) + c] : (T)0;
      o.y[((step * l.ways + way) * l.batch + row + r) * l.hidden + unit + c] = 0;
      if (l.kind == LSTM && step == 0)
        o.y_c[state(r) + c] = o.initial_c ? o.initial_c[state(r) + c] : (T)0;
    }
  }
};

template <>
void Block<float>::multiply(const float *x, int64_t from, int64_t to) {
  const int64_t panels = (l.hidden + PANEL - 1) / PANEL, panel = l.hidden * PANEL;
  const float *w = o.r + (way * gates_of(l) * panels + unit / PANEL) * panel;
  const bool alone = l.batch == 1;
  const int64_t wide = alone ? GEMV_PANELS : rows <= WIDE_ROWS ? WIDE_PANELS[rows] : 1;
  Tile t = {};
  t.k = l.hidden;
  t.a = x, t.a_row = l.hidden, t.a_k = 1;
  t.b_k = PANEL, t.b_panel = panels * panel;
  t.init_row = t.out_row = MOST_GATES * PANEL;
  for (int64_t g = from; g < to;) {
    const bool is_wide = wide > 1 && g + wide <= to;
    t.b = w + g * t.b_panel;
    t.init = t.out = sums + g * PANEL;
    if (alone)
      (is_wide ? gemv_wide : gemv_narrow)(t);
    else
      (is_wide ? WIDE_TILES[rows] : NARROW_TILES[rows])(t);
    g += is_wide ? wide : 1;
  }
}

// In double the weights lie as they were given: [direction][gate][unit][hidden].
template <>
void Block<double>::multiply(const double *x, int64_t from, int64_t to) {
  for (int64_t g = from; g < to; g++)
    for (int64_t c = 0; c < columns(); c++) {
      const double *w = o.r + ((way * gates_of(l) + g) * l.hidden + unit + c) * l.hidden;
      for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t k = 0; k < l.hidden; k++) sum += w[k] * x[r * l.hidden + k];
        sums[(r * MOST_GATES + g) * PANEL + c] += sum;
      }
    }
}

template <typename T>
void Block<T>::lstm() {
  typedef typename Width<T>::V V;
  const T *peep = o.peephole ? o.peephole + way * 3 * l.hidden + unit : nullptr;
  const T *cells = step == 0 ? o.initial_c : o.y_c;
  for (int64_t r = 0; r < rows; r++) {
    if (time[r] < 0) {
      hold(r);
      continue;
    }
    for (int64_t c = 0; c < columns(); c += Width<T>::LANES) {
      const int64_t n = columns() - c;
      const V cell = cells ? lanes(cells + state(r) + c, n) : V{};
      V i = gate(r, 0, c), out = gate(r, 1, c), forget = gate(r, 2, c);
      if (peep) {
        i += lanes(peep + c, n) * cell;
        forget += lanes(peep + 2 * l.hidden + c, n) * cell;
      }
      i = activate(0, i);
      forget = l.input_forget ? (T)1 - i : activate(0, forget);
      const V now = forget * cell + i * activate(1, gate(r, 3, c));
      if (peep) out += lanes(peep + l.hidden + c, n) * now;
      put(o.y_c + state(r) + c, now, n);
      keep(r, c, activate(0, out) * activate(2, now), n);
    }
  }
}

template <typename T>
void Block<T>::gru(bool gates_alone) {
  typedef typename Width<T>::V V;
  const T *bias = o.recurrent_bias ? o.recurrent_bias + way * l.hidden + unit : nullptr;
  for (int64_t r = 0; r < rows; r++) {
    if (time[r] < 0) {
      if (!gates_alone) hold(r);
      continue;
    }
    const int64_t at = state(r);
    // What the product of all steps has for the hidden gate: the sums hold the state's part alone.
    const T *x =
        o.gates + (((time[r] * l.batch + row + r) * l.ways + way) * 3 + 2) * l.hidden + unit;
    for (int64_t c = 0; c < columns(); c += Width<T>::LANES) {
      const int64_t n = columns() - c;
      const V h = before ? lanes(before + at + c, n) : V{};
      if (gates_alone) {
        put(o.update + at + c, activate(0, gate(r, 0, c)), n);
        put(o.reset + at + c, activate(0, gate(r, 1, c)) * h, n);
        continue;
      }
      V z, inner = gate(r, 2, c);
      if (l.linear_before_reset) {
        z = activate(0, gate(r, 0, c));
        if (bias) inner += lanes(bias + c, n);
        inner = lanes(x + c, n) + activate(0, gate(r, 1, c)) * inner;
      } else {
        z = lanes(o.update + at + c, n);
      }
      keep(r, c, ((T)1 - z) * activate(1, inner) + z * h, n);
    }
  }
}

template <typename T>
void Block<T>::rnn() {
  for (int64_t r = 0; r < rows; r++) {
    if (time[r] < 0) {
      hold(r);
      continue;
    }
    for (int64_t c = 0; c < columns(); c += Width<T>::LANES)
      keep(r, c, activate(0, gate(r, 0, c)), columns() - c);
  }
}

template <typename T>
void Block<T>::run(int64_t phase) {
  const T *const x = before ? before + (way * l.batch + row) * l.hidden : nullptr;
  const int64_t gates = gates_of(l);
  if (l.kind == GRU && l.linear_before_reset) {
    begin(0, 2);
    clear(2);
    if (x) multiply(x, 0, 3);
    gru(false);
  } else if (l.kind == GRU && phase == CANDIDATE) {
    begin(2, 3);
    if (x) multiply(o.reset + (way * l.batch + row) * l.hidden, 2, 3);
    gru(false);
  } else if (l.kind == GRU) {
    begin(0, 2);
    if (x) multiply(x, 0, 2);
    gru(true);
  } else {
    begin(0, gates);
    if (x) multiply(x, 0, gates);
    if (l.kind == LSTM)
      lstm();
    else
      rnn();
  }
}

FG_INLINE int64_t length_of(const Layer &l, const void *lengths, int64_t row) {
  if (!lengths) return l.steps;
  const int64_t n =
      l.index == 8 ? ((const int64_t *)lengths)[row] : ((const int32_t *)lengths)[row];
  return n < 0 || n > l.steps ? -1 : n;
}

// One step of one direction for rows [row, end) and some panels of units. A panel's weights stay in
// a near cache while the rows pass by.
template <typename T>
void run_step(const Layer &l, const Operands<T> &o, int64_t way, int64_t step, Slice rows,
              Slice panels, int64_t phase) {
  const bool back = way == 1 || l.reverse;
  // The last step writes y_h, those before it by turns.
  const bool even = (l.steps - 1 - step) % 2 == 0;
  Block<T> b(l, o);
  int64_t time[TILE_ROWS];
  b.way = way, b.step = step, b.time = time;
  b.before = step == 0 ? o.initial_h : even ? o.other : o.y_h;
  b.after = even ? o.y_h : o.other;
  for (int64_t panel = panels.begin; panel < panels.end; panel++) {
    b.unit = panel * PANEL;
    for (b.row = rows.begin; b.row < rows.end; b.row += b.rows) {
      b.rows = at_most(TILE_ROWS, rows.end - b.row);
      for (int64_t r = 0; r < b.rows; r++) {
        const int64_t length = length_of(l, o.lengths, b.row + r);
        time[r] = step >= length ? -1 : back ? length - 1 - step : step;
      }
      b.run(phase);
    }
  }
}

template <typename T>
void recurrence(const fg_call *call) {
  const Layer l = layer_of(call);
  const Operands<T> o = operands_of<T>(l, call);
  const int64_t panels = (l.hidden + PANEL - 1) / PANEL;
  if (call->part == 0 && l.first == 0 && l.phase != CANDIDATE)
    for (int64_t row = 0; row < l.batch; row++)
      if (length_of(l, o.lengths, row) < 0) fg_fault(call);
  if (l.by_units) {
    const Slice mine = fg_slice(l.ways * panels, call->part, call->nparts);
    for (int64_t at = mine.begin; at < mine.end;) {
      const int64_t way = at / panels, end = at_most(mine.end, (way + 1) * panels);
      const Slice some = {at - way * panels, end - way * panels};
      run_step(l, o, way, l.first, {0, l.batch}, some, l.phase);
      at = end;
    }
    return;
  }
  const bool twice = l.kind == GRU && !l.linear_before_reset;
  const int64_t blocks = (l.batch + l.row_step - 1) / l.row_step;
  const Slice mine = fg_slice(l.ways * blocks, call->part, call->nparts);
  for (int64_t at = mine.begin; at < mine.end; at++) {
    const int64_t begin = at % blocks * l.row_step;
    const Slice rows = {begin, at_most(l.batch, begin + l.row_step)};
    for (int64_t step = l.first; step < l.last; step++)
      for (int64_t phase = twice ? GATES : WHOLE; phase <= (twice ? CANDIDATE : WHOLE); phase++)
        run_step(l, o, at / blocks, step, rows, {0, panels}, phase);
  }
}

// Words: matrices, their size. y is [matrices][panels][size][16] of the matrices transposed, each of
// whole panels, so that a panel of each gate has the same units.
void pack_recurrent(const fg_call *call) {
  const int64_t size = call->params[1], panels = (size + PANEL - 1) / PANEL;
  const Slice mine = fg_slice(call->params[0] * panels, call->part, call->nparts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const int64_t column = i % panels * PANEL;
    const float *w = (const float *)call->args[1] + (i / panels * size + column) * size;
    pack_panel((float *)call->args[0] + i * size * PANEL, w, 1, size, size,
               at_most(PANEL, size - column));
  }
}

}  // namespace

extern const fg_entry recurrence_entries[] = {
    {"pack_recurrent", pack_recurrent},
    {"recurrence_f32", recurrence<float>},
    {"recurrence_f64", recurrence<double>},
    {nullptr, nullptr},
};

}  // namespace FG_NS
