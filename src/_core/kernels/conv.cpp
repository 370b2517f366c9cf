// y = act(conv(x, w) + bias [+ residual]) [+ residual], straight from the image: nothing is laid out
// that lies in order already.
//
// Rows of a register tile are channels of y, its columns are positions side by side. Positions are
// counted along the rows of a plane of x, so the elements that one tap of a window brings to
// neighbouring positions are neighbours in x, in any number of axes; what is computed beyond the end
// of a row of y is dropped. Windows that step over elements read planes that were laid out for them.
// Every sum runs in one fixed order, so the result's bits do not depend on the parts.
#include "fg_kernel.h"
#include "matmul_finish.h"
#include "matmul_tile.h"

namespace FG_NS {
namespace {

// The words of `params`, in the order of python/fastgraph/lower/cpu/convolution.py; taps follow.
struct Conv {
  int64_t images, groups;
  int64_t outs, ins;                   // channels of y and x of a group
  int64_t taps;                        // elements of a window in one channel
  int64_t count[3];                    // windows along each axis
  int64_t extent[2];                   // elements along the last two axes of a plane of x
  int64_t image, channel;              // elements between images and between channels of x
  int64_t span;                        // positions, those that are dropped included
  int64_t readable;                    // positions of which all elements may be read
  int64_t activation, bias, residual;  // as in enum MatmulParam
  int64_t m_step, p_step;              // a unit is so many channels and positions
  int64_t staged;                      // positions that are brought together at a time, or 0
  int64_t reach;                       // elements beyond its own that a position reads

  int64_t windows() const { return count[0] * count[1] * count[2]; }
};

constexpr int64_t CONV_WORDS = sizeof(Conv) / sizeof(int64_t);

struct ConvTile {
  int64_t ins, taps, channel;
  const int64_t *tap;  // by element of a window: where its first position is in a plane
  const float *x;
  const float *a;
  int64_t a_row;
  const float *bias;
  float *out;
  int64_t out_row;
};

typedef void (*ConvFn)(const ConvTile &);

#define FG_CONV_INIT(r, v) vf c##r##_##v = first##r;
#define FG_CONV_BEGIN(r, VECS)                                                                     \
  const float *const a##r = t.a + r * t.a_row;                                                     \
  const vf first##r = vset(t.bias[r]);                                                             \
  VECS(FG_CONV_INIT, r)

#define FG_CONV(NAME, ROWS, VECS)                                                                  \
  void NAME(const ConvTile &t) {                                                                   \
    ROWS(FG_CONV_BEGIN, VECS)                                                                      \
    constexpr int64_t b_panel = PANEL;                                                             \
    const int64_t *const tap = t.tap, taps = t.taps;                                               \
    const float *x = t.x;                                                                          \
    int64_t a_at = 0;                                                                              \
    for (int64_t i = t.ins; i > 0; --i) {                                                          \
      for (int64_t k = 0; k < taps; ++k) {                                                         \
        const float *const b = x + tap[k];                                                         \
        VECS(FG_LOAD_B, _)                                                                         \
        ROWS(FG_ROW_STEP, VECS)                                                                    \
        ++a_at;                                                                                    \
      }                                                                                            \
      x += t.channel;                                                                              \
    }                                                                                              \
    ROWS(FG_ROW_END, VECS)                                                                         \
  }

#define FG_CONV_NARROW(R, V) FG_CONV(conv_##R, FG_ROWS_##R, FG_VECS_##V)
#define FG_CONV_WIDE(R, V) FG_CONV(conv_wide_##R, FG_ROWS_##R, FG_VECS_##V)
#define FG_CONV_NARROW_NAME(R, V) conv_##R,
#define FG_CONV_WIDE_NAME(R, V) conv_wide_##R,
FG_NARROW_LADDER(FG_CONV_NARROW)
FG_WIDE_LADDER(FG_CONV_WIDE)
constexpr ConvFn CONV_NARROW[] = {nullptr, FG_NARROW_LADDER(FG_CONV_NARROW_NAME)};
constexpr ConvFn CONV_WIDE[] = {nullptr, FG_WIDE_LADDER(FG_CONV_WIDE_NAME)};

alignas(64) const float NO_BIAS[TILE_ROWS] = {};

// Calls f(first position, first window, windows) for each run of positions in [p, end) that is kept.
template <typename F>
FG_INLINE void each_run(const Conv &c, int64_t p, int64_t end, F f) {
  const int64_t row = c.extent[1], rows = c.extent[0];
  const bool whole = (row == c.count[2] || c.count[0] * c.count[1] == 1) &&
                     (rows == c.count[1] || c.count[0] == 1);
  if (whole) {
    f(p, p, end - p);
    return;
  }
  int64_t o2 = p % row, o1 = p / row % rows, o0 = p / row / rows;
  while (p < end) {
    if (o2 < c.count[2] && o1 < c.count[1]) {
      const int64_t run = at_most(c.count[2] - o2, end - p);
      f(p, (o0 * c.count[1] + o1) * c.count[2] + o2, run);
    }
    p += row - o2;
    o2 = 0;
    if (++o1 == rows) o1 = 0, o0++;
  }
}

// Positions [p, end) of some channels, which `sums` begins with position `first`: to their places.
struct Stored {
  float *sums;
  int64_t width, rows, first, p, end;
  float *y;
  const float *residual;
};

// Runs between the ends of rows are short: a call of memcpy would cost as much as they do.
FG_INLINE void copy_run(float *to, const float *from, int64_t n) {
  int64_t i = 0;
  for (; i + FG_VW <= n; i += FG_VW) vstore(to + i, vload(from + i));
  if (i == n) return;
  if (n >= FG_VW)  // once more what is there already
    vstore(to + n - FG_VW, vload(from + n - FG_VW));
  else
    for (; i < n; i++) to[i] = from[i];
}

void store(const Conv &c, const Stored &s) {
  const int64_t windows = c.windows();
  if (!s.residual) {
    // The whole tile at once, what is dropped included.
    if (c.activation != ACT_NONE)
      FINISH[c.activation][0]({s.sums, s.width, s.rows, s.width, s.sums, nullptr, s.width});
    each_run(c, s.p, s.end, [&](int64_t p, int64_t window, int64_t run) {
      for (int64_t r = 0; r < s.rows; r++)
        copy_run(s.y + r * windows + window, s.sums + r * s.width + (p - s.first), run);
    });
    return;
  }
  const bool after = c.residual == RESIDUAL_AFTER;
  each_run(c, s.p, s.end, [&](int64_t p, int64_t window, int64_t run) {
    float *const sums = s.sums + (p - s.first);
    const float *const residual = s.residual + window;
    if (!after)
      for (int64_t r = 0; r < s.rows; r++)
        for (int64_t i = 0; i < run; i++) sums[r * s.width + i] += residual[r * windows + i];
    FINISH[c.activation][after](
        {sums, s.width, s.rows, run, s.y + window, after ? residual : nullptr, windows});
  });
}

// One group of one image: channels [m, m_end) at positions [p, p_end).
struct ConvUnit {
  const float *x, *w, *bias, *residual;
  float *y;
  int64_t m, m_end, p, p_end;
  int64_t channel, x_first, readable;  // of x: between channels, the position at x, as in Conv
};

void run_unit(const Conv &c, const int64_t *tap, const ConvUnit &u) {
  // Whole vectors are read at the end of a run.
  alignas(64) float sums[TILE_ROWS * MAX_TILE_PANELS * PANEL + FG_VW];
  const int64_t all = u.m_end - u.m, tiles = (all + TILE_ROWS - 1) / TILE_ROWS;
  int64_t m = u.m;
  for (int64_t i = 0; i < tiles; i++) {
    const int64_t rows = (u.m_end - m) / (tiles - i);
    const int64_t panels = rows <= WIDE_ROWS ? WIDE_PANELS[rows] : 1;
    ConvTile t = {};
    t.ins = c.ins, t.taps = c.taps, t.channel = u.channel, t.tap = tap;
    t.a = u.w + m * c.ins * c.taps, t.a_row = c.ins * c.taps;
    t.bias = u.bias ? u.bias + m : NO_BIAS;
    t.out = sums;
    for (int64_t p = u.p; p < u.p_end;) {
      const bool wide = panels > 1 && p + panels * PANEL <= u.readable;
      const int64_t width = wide ? panels * PANEL : PANEL;
      // Where less is left than a tile reads, it begins earlier.
      const int64_t first = at_most(p, u.readable - width), end = at_most(u.p_end, first + width);
      t.x = u.x + (first - u.x_first);
      t.out_row = width;
      (wide ? CONV_WIDE[rows] : CONV_NARROW[rows])(t);
      store(c, {sums, width, rows, first, p, end, u.y + m * c.windows(),
                u.residual ? u.residual + m * c.windows() : nullptr});
      p = end;
    }
    m += rows;
  }
}

// The same by way of `room`, where what some positions read of all channels lies close together:
// far planes would each want an entry of the table of pages, over and over.
void run_staged(const Conv &c, const int64_t *tap, const ConvUnit &u, float *room) {
  ConvUnit part = u;
  part.channel = c.staged + c.reach;
  part.x = room;
  for (int64_t p = u.p; p < u.p_end; p += c.staged) {
    const int64_t some = at_most(part.channel, c.readable + c.reach - p);
    for (int64_t i = 0; i < c.ins; i++) {
      float *const to = room + i * part.channel;
      memcpy(to, u.x + i * u.channel + p, (size_t)some * sizeof(float));
      memset(to + some, 0, (size_t)(part.channel - some) * sizeof(float));
    }
    part.p = part.x_first = p;
    part.p_end = at_most(u.p_end, p + c.staged);
    part.readable = p + c.staged;
    run_unit(c, tap, part);
  }
}

FG_INLINE Conv conv_of(const fg_call *call) {
  Conv c;
  memcpy(&c, call->params, sizeof c);
  return c;
}

// Calls f(image, group, first channel, first position) for this part's units, channels fastest.
template <typename F>
FG_INLINE void each_unit(const Conv &c, const fg_call *call, F f) {
  const int64_t down = (c.outs + c.m_step - 1) / c.m_step;
  const int64_t across = (c.span + c.p_step - 1) / c.p_step;
  const Slice mine = fg_slice(c.images * c.groups * down * across, call->part, call->nparts);
  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    const int64_t rest = unit / down / across;
    f(rest / c.groups, rest % c.groups, unit % down * c.m_step, unit / down % across * c.p_step);
  }
}

// Operands: y, room of each part where there is any, x or its planes, w, bias, residual.
void conv(const fg_call *call) {
  const Conv c = conv_of(call);
  const int64_t windows = c.windows();
  void *const *const arg = call->args + (c.staged ? 2 : 1);
  float *const room = (float *)call->args[1] + call->part * c.ins * (c.staged + c.reach);
  each_unit(c, call, [&](int64_t image, int64_t group, int64_t m, int64_t p) {
    const int64_t at = (image * c.groups + group) * c.outs * windows;
    ConvUnit u = {};
    u.x = (const float *)arg[0] + image * c.image + group * c.ins * c.channel;
    u.w = (const float *)arg[1] + group * c.outs * c.ins * c.taps;
    if (c.bias) u.bias = (const float *)arg[2] + group * c.outs;
    if (c.residual) u.residual = (const float *)arg[2 + c.bias] + at;
    u.y = (float *)call->args[0] + at;
    u.m = m, u.m_end = at_most(c.outs, m + c.m_step);
    u.p = p, u.p_end = at_most(c.span, p + c.p_step);
    u.channel = c.channel, u.readable = c.readable;
    if (c.staged)
      run_staged(c, call->params + CONV_WORDS, u, room);
    else
      run_unit(c, call->params + CONV_WORDS, u);
  });
}

constexpr int64_t PLAIN_POSITIONS = 256;

// The same in double, a channel at a time, without an epilogue.
void conv_double(const fg_call *call) {
  const Conv c = conv_of(call);
  const int64_t *tap = call->params + CONV_WORDS, windows = c.windows();
  each_unit(c, call, [&](int64_t image, int64_t group, int64_t first, int64_t begin) {
    const int64_t end = at_most(c.span, begin + c.p_step), taps = c.ins * c.taps;
    for (int64_t m = first; m < at_most(c.outs, first + c.m_step); m++) {
      const int64_t row = group * c.outs + m;
      const double *x = (const double *)call->args[1] + image * c.image + group * c.ins * c.channel;
      const double *w = (const double *)call->args[2] + row * taps;
      double *y = (double *)call->args[0] + (image * c.groups * c.outs + row) * windows;
      const double bias = c.bias ? ((const double *)call->args[3])[row] : 0.0;
      for (int64_t p = begin; p < end; p += PLAIN_POSITIONS) {
        double sums[PLAIN_POSITIONS];
        const int64_t some = at_most(PLAIN_POSITIONS, end - p);
        for (int64_t j = 0; j < some; j++) sums[j] = bias;
        for (int64_t i = 0; i < c.ins; i++)
          for (int64_t k = 0; k < c.taps; k++) {
            const double factor = w[i * c.taps + k], *from = x + i * c.channel + tap[k] + p;
            _Pragma("GCC ivdep") for (int64_t j = 0; j < some; j++) sums[j] += factor * from[j];
          }
        each_run(c, p, p + some, [&](int64_t at, int64_t window, int64_t run) {
          memcpy(y + window, sums + (at - p), (size_t)run * sizeof(double));
        });
      }
    }
  });
}

}  // namespace

extern const fg_entry conv_entries[] = {
    {"conv_f32", conv},
    {"conv_f64", conv_double},
    {nullptr, nullptr},
};

}  // namespace FG_NS
