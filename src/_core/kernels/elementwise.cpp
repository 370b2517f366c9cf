// Elementwise regions: many instructions over one iteration space, a block at a time.
//
// Rules where NumPy's result is undefined, depends on the machine, or raises (the same on every
// instruction set):
//   integer // 0 and % 0 give 0; the smallest integer // -1 wraps, % -1 gives 0
//   integer ** negative gives the whole part of the true result (0, or +-1 for a base of +-1)
//   float -> integer saturates, NaN gives 0; float -> bool is x != 0, so NaN gives true
//   a shift by too many bits, or a negative number of them, gives 0, or -1 to the right of a sign
//   integer arithmetic wraps; maximum and minimum give NaN if either operand is NaN
//   relu(NaN) is NaN; sign(NaN) is NaN, sign(-0.0) is +0.0
#include "elementwise_ops.h"

#include "fg_kernel.h"

namespace FG_NS {

extern const ew_loop integer_loops[], double_loops[], cast_loops[];

namespace {

// Name, then the item sizes of the result and of the operands. The position is the opcode, which
// the lowering knows from its own list in the same order (OPCODES in lower/cpu/instructions.py).
// clang-format off
#define FG_EW_OPS(X)                                                                               \
  X(add_f32, 4, 4, 4, 0) X(subtract_f32, 4, 4, 4, 0) X(multiply_f32, 4, 4, 4, 0)                  \
  X(divide_f32, 4, 4, 4, 0) X(maximum_f32, 4, 4, 4, 0) X(minimum_f32, 4, 4, 4, 0)                 \
  X(remainder_f32, 4, 4, 4, 0) X(floor_divide_f32, 4, 4, 4, 0) X(power_f32, 4, 4, 4, 0)           \
  X(equal_f32, 1, 4, 4, 0) X(not_equal_f32, 1, 4, 4, 0) X(less_f32, 1, 4, 4, 0)                   \
  X(less_equal_f32, 1, 4, 4, 0) X(negative_f32, 4, 4, 0, 0) X(abs_f32, 4, 4, 0, 0)                \
  X(sqrt_f32, 4, 4, 0, 0) X(rsqrt_f32, 4, 4, 0, 0) X(reciprocal_f32, 4, 4, 0, 0)                  \
  X(square_f32, 4, 4, 0, 0) X(relu_f32, 4, 4, 0, 0) X(sign_f32, 4, 4, 0, 0)                       \
  X(floor_f32, 4, 4, 0, 0) X(ceil_f32, 4, 4, 0, 0) X(exp_f32, 4, 4, 0, 0) X(log_f32, 4, 4, 0, 0)  \
  X(erf_f32, 4, 4, 0, 0) X(tanh_f32, 4, 4, 0, 0) X(sigmoid_f32, 4, 4, 0, 0)                       \
  X(silu_f32, 4, 4, 0, 0) X(gelu_f32, 4, 4, 0, 0) X(gelu_tanh_f32, 4, 4, 0, 0)                    \
  X(add_i32, 4, 4, 4, 0) X(subtract_i32, 4, 4, 4, 0) X(multiply_i32, 4, 4, 4, 0)                  \
  X(maximum_i32, 4, 4, 4, 0) X(minimum_i32, 4, 4, 4, 0) X(remainder_i32, 4, 4, 4, 0)              \
  X(floor_divide_i32, 4, 4, 4, 0) X(power_i32, 4, 4, 4, 0) X(equal_i32, 1, 4, 4, 0)               \
  X(not_equal_i32, 1, 4, 4, 0) X(less_i32, 1, 4, 4, 0) X(less_equal_i32, 1, 4, 4, 0)              \
  X(negative_i32, 4, 4, 0, 0) X(abs_i32, 4, 4, 0, 0) X(square_i32, 4, 4, 0, 0)                    \
  X(sign_i32, 4, 4, 0, 0)                                                                          \
  X(add_i64, 8, 8, 8, 0) X(subtract_i64, 8, 8, 8, 0) X(multiply_i64, 8, 8, 8, 0)                  \
  X(maximum_i64, 8, 8, 8, 0) X(minimum_i64, 8, 8, 8, 0) X(remainder_i64, 8, 8, 8, 0)              \
  X(floor_divide_i64, 8, 8, 8, 0) X(power_i64, 8, 8, 8, 0) X(equal_i64, 1, 8, 8, 0)               \
  X(not_equal_i64, 1, 8, 8, 0) X(less_i64, 1, 8, 8, 0) X(less_equal_i64, 1, 8, 8, 0)              \
  X(negative_i64, 8, 8, 0, 0) X(abs_i64, 8, 8, 0, 0) X(square_i64, 8, 8, 0, 0)                    \
  X(sign_i64, 8, 8, 0, 0)                                                                          \
  X(equal_b8, 1, 1, 1, 0) X(not_equal_b8, 1, 1, 1, 0) X(less_b8, 1, 1, 1, 0)                      \
  X(less_equal_b8, 1, 1, 1, 0) X(logical_and_b8, 1, 1, 1, 0) X(logical_or_b8, 1, 1, 1, 0)         \
  X(logical_not_b8, 1, 1, 0, 0)                                                                    \
  X(where_1, 1, 1, 1, 1) X(where_4, 4, 1, 4, 4) X(where_8, 8, 1, 8, 8)                            \
  X(copy_1, 1, 1, 0, 0) X(copy_4, 4, 4, 0, 0) X(copy_8, 8, 8, 0, 0)                               \
  X(f32_to_i32, 4, 4, 0, 0) X(f32_to_i64, 8, 4, 0, 0) X(f32_to_b8, 1, 4, 0, 0)                    \
  X(i32_to_f32, 4, 4, 0, 0) X(i32_to_i64, 8, 4, 0, 0) X(i32_to_b8, 1, 4, 0, 0)                    \
  X(i64_to_f32, 4, 8, 0, 0) X(i64_to_i32, 4, 8, 0, 0) X(i64_to_b8, 1, 8, 0, 0)                    \
  X(b8_to_f32, 4, 1, 0, 0) X(b8_to_i32, 4, 1, 0, 0) X(b8_to_i64, 8, 1, 0, 0)
// clang-format on

#define FG_EW_LOOP(name, so, sa, sb, sc) name,
const ew_loop loops[] = {
    FG_EW_OPS(FG_EW_LOOP)
    // From here on without a kernel of their own.
    round_f32,
    trunc_f32,
    fmod_f32,
    exp2_f32,
    expm1_f32,
    log1p_f32,
    log2_f32,
    sin_f32,
    cos_f32,
    tan_f32,
    arcsin_f32,
    arccos_f32,
    arctan_f32,
    sinh_f32,
    cosh_f32,
    arcsinh_f32,
    arccosh_f32,
    arctanh_f32,
    fmod_i32,
    bitwise_and_i32,
    bitwise_or_i32,
    bitwise_xor_i32,
    invert_i32,
    left_shift_i32,
    right_shift_i32,
    fmod_i64,
    bitwise_and_i64,
    bitwise_or_i64,
    bitwise_xor_i64,
    invert_i64,
    left_shift_i64,
    right_shift_i64,
    where_2,
    copy_2,
};
// An opcode is the number of a table, then the position in it.
const ew_loop *const tables[] = {loops, integer_loops, double_loops, cast_loops};

// One instruction on dense operands of one size: no bytecode, for calls of a few elements as well.
// params: element count. Parts are cut at cache lines of the narrowest item.
template <ew_loop LOOP, int SO, int SA, int SB, int SC>
void dense(const fg_call *call) {
  int64_t n = call->params[0];
  void *const *args = call->args;
  char *o = (char *)args[0], *a = (char *)args[1];
  char *b = SB ? (char *)args[2] : nullptr, *c = SC ? (char *)args[3] : nullptr;
  if (__builtin_expect(call->nparts > 1, 0)) {
    Slice s = fg_slice((n + 63) / 64, call->part, call->nparts);
    int64_t begin = s.begin * 64, end = s.end * 64 < n ? s.end * 64 : n;
    if (begin >= end) return;
    n = end - begin;
    o += begin * SO, a += begin * SA, b += begin * SB, c += begin * SC;
  }
  LOOP(o, a, b, c, n);
}

// The layout of a region's params: HEAD words, shape[rank], then
//   n_out    x item size
//   n_in     x kind, item size, offset of its register, stride[rank] in elements
//   n_const  x bits, item size, offset of its register
//   n_reg    x offset of the register
//   n_instr  x opcode, slots of: result, a, b, c
// Slots count outputs, inputs, constants and registers in this order. Registers hold `block`
// elements each, at byte offsets into one array on the stack.
enum { MODE, BLOCK, RANK, N_OUT, N_IN, N_CONST, N_REG, N_INSTR, HEAD };
// MODE: blocks are pieces of the innermost axis, or run over the flattened space (where that axis
// is too short for a block, inputs that are not dense are written out into registers first).
enum { ROWS, FLAT };
// Kinds of inputs: every element at its own place, or broadcast.
enum { DENSE, BROADCAST };
enum { MAX_RANK = 64, MAX_IN = 48, MAX_SLOTS = 160, STACK = 40960 };

void splat(char *out, const char *value, int64_t size, int64_t n) {
  if (size == 4) {
    int32_t v;
    memcpy(&v, value, 4);
    int32_t *o = (int32_t *)out;
    for (int64_t i = 0; i < n; i++) o[i] = v;
  } else if (size == 8) {
    int64_t v;
    memcpy(&v, value, 8);
    int64_t *o = (int64_t *)out;
    for (int64_t i = 0; i < n; i++) o[i] = v;
  } else if (size == 2) {
    int16_t v;
    memcpy(&v, value, 2);
    int16_t *o = (int16_t *)out;
    for (int64_t i = 0; i < n; i++) o[i] = v;
  } else {
    memset(out, *value, (size_t)n);
  }
}

struct Input {
  const int64_t *stride;
  const char *base, *splatted;  // `splatted`: the element that the register holds copies of
  char *reg;
  int64_t size, offset;  // offset in elements of the current row
  bool dense;
};

// Elements [start, start + n) of the flattened space, read from a broadcast input.
void gather(const Input &in, const int64_t *shape, int64_t rank, int64_t start, int64_t n) {
  int64_t index[MAX_RANK], offset = 0;
  for (int64_t d = rank - 1; d >= 0; d--) {
    index[d] = start % shape[d];
    start /= shape[d];
    offset += index[d] * in.stride[d];
  }
  const int64_t inner = shape[rank - 1], step = in.stride[rank - 1], size = in.size;
  char *out = in.reg;
  while (n > 0) {
    int64_t run = inner - index[rank - 1];
    if (run > n) run = n;
    const char *from = in.base + offset * size;
    if (step == 0) {
      splat(out, from, size, run);
    } else if (size == 4) {
      const int32_t *f = (const int32_t *)from;
      for (int64_t i = 0; i < run; i++) ((int32_t *)out)[i] = f[i];
    } else {
      memcpy(out, from, (size_t)(run * size));
    }
    out += run * size;
    n -= run;
    offset -= index[rank - 1] * step;
    index[rank - 1] = 0;
    for (int64_t d = rank - 2; d >= 0; d--) {
      offset += in.stride[d];
      if (++index[d] < shape[d]) break;
      offset -= shape[d] * in.stride[d];
      index[d] = 0;
    }
  }
}

void region(const fg_call *call) {
  const int64_t *p = call->params;
  const int64_t mode = p[MODE], block = p[BLOCK], rank = p[RANK], n_out = p[N_OUT], n_in = p[N_IN];
  const int64_t n_const = p[N_CONST], n_reg = p[N_REG], n_instr = p[N_INSTR];
  const int64_t *shape = p + HEAD, *out_size = shape + rank, *word = out_size + n_out;
  alignas(64) char stack[STACK];
  char *slot[MAX_SLOTS];
  Input input[MAX_IN];

  int64_t rows = 1;
  for (int64_t d = 0; d < rank - 1; d++) rows *= shape[d];
  const int64_t inner = shape[rank - 1];
  // The units that parts share out: blocks of a row, or blocks of everything.
  const int64_t total = rows * inner;
  const int64_t chunks = mode == ROWS ? (inner + block - 1) / block : 1;
  const int64_t units = mode == ROWS ? rows * chunks : (total + block - 1) / block;
  const Slice mine = fg_slice(units, call->part, call->nparts);
  if (mine.begin >= mine.end) return;

  int64_t index[MAX_RANK], row = mine.begin / chunks, chunk = mine.begin % chunks;
  for (int64_t d = rank - 2, rest = row; d >= 0; d--) {
    index[d] = rest % shape[d];
    rest /= shape[d];
  }
  const int64_t largest = total < block ? total : block;
  for (int64_t i = 0; i < n_in; i++, word += 3 + rank) {
    Input &in = input[i];
    in.dense = word[0] == DENSE;
    in.size = word[1];
    in.reg = stack + word[2];
    in.stride = word + 3;
    in.base = (const char *)call->args[n_out + i];
    in.splatted = nullptr;
    in.offset = 0;
    for (int64_t d = 0; d < rank - 1; d++) in.offset += index[d] * in.stride[d];
    slot[n_out + i] = in.reg;
  }
  for (int64_t i = 0; i < n_const; i++, word += 3) {
    slot[n_out + n_in + i] = stack + word[2];
    splat(stack + word[2], (const char *)&word[0], word[1], largest);
  }
  for (int64_t i = 0; i < n_reg; i++) slot[n_out + n_in + n_const + i] = stack + *word++;

  for (int64_t unit = mine.begin; unit < mine.end; unit++) {
    int64_t start, n;  // in elements of the flattened space
    if (mode == ROWS) {
      const int64_t column = chunk * block;
      start = row * inner + column;
      n = inner - column < block ? inner - column : block;
      for (int64_t i = 0; i < n_in; i++) {
        Input &in = input[i];
        if (in.stride[rank - 1]) {
          slot[n_out + i] = (char *)in.base + (in.offset + column) * in.size;
        } else {
          const char *from = in.base + in.offset * in.size;
          if (from != in.splatted) splat(in.reg, from, in.size, inner < block ? inner : block);
          in.splatted = from;
        }
      }
      if (++chunk == chunks) {
        chunk = 0;
        row++;
        for (int64_t d = rank - 2; d >= 0; d--) {
          const bool wraps = ++index[d] == shape[d];
          for (int64_t i = 0; i < n_in; i++) {
            const int64_t step = input[i].stride[d];
            input[i].offset += wraps ? step - shape[d] * step : step;
          }
          if (!wraps) break;
          index[d] = 0;
        }
      }
    } else {
      start = unit * block;
      n = total - start < block ? total - start : block;
      for (int64_t i = 0; i < n_in; i++) {
        const Input &in = input[i];
        if (in.dense)
          slot[n_out + i] = (char *)in.base + start * in.size;
        else
          gather(in, shape, rank, start, n);
      }
    }
    for (int64_t i = 0; i < n_out; i++) slot[i] = (char *)call->args[i] + start * out_size[i];
    const int64_t *code = word;
    for (int64_t i = 0; i < n_instr; i++, code += 5)
      tables[code[0] >> 8][code[0] & 255](slot[code[1]], slot[code[2]], slot[code[3]],
                                          slot[code[4]], n);
  }
}

}  // namespace

#define FG_EW_ENTRY(name, so, sa, sb, sc) {"ew_" #name, dense<name, so, sa, sb, sc>},
extern const fg_entry elementwise_entries[] = {FG_EW_OPS(FG_EW_ENTRY){"region", region},
                                               {nullptr, nullptr}};

}  // namespace FG_NS
