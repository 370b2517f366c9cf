// What device graphs need of their own: set, copy, and the call of a user's native kernel.
#include <string.h>

#include "fg_kernel.h"

namespace FG_NS {
namespace {

// params: byte count, size of the pattern (1, 2, 4 or 8), pattern in the low bytes.
void set_bytes(const fg_call *call) {
  const int64_t nbytes = call->params[0];
  const int64_t width = call->params[1];
  char *out = static_cast<char *>(call->args[0]);
  if (width == 1) {
    memset(out, static_cast<int>(call->params[2] & 0xff), static_cast<size_t>(nbytes));
    return;
  }
  for (int64_t at = 0; at < nbytes; at += width) {
    memcpy(out + at, &call->params[2], static_cast<size_t>(width));
  }
}

// params: byte count. Source and destination may overlap if all is one part.
void copy_bytes(const fg_call *call) {
  const int64_t nbytes = call->params[0];
  const int64_t chunk = nbytes / call->nparts;
  const int64_t first = chunk * call->part;
  const int64_t count = call->part + 1 == call->nparts ? nbytes - first : chunk;
  memmove(static_cast<char *>(call->args[0]) + first,
          static_cast<const char *>(call->args[1]) + first, static_cast<size_t>(count));
}

void do_nothing(const fg_call *) {}

void call_native(const fg_call *call) {
  const int64_t *params = call->params;
  void *argv[FG_NATIVE_MAX];
  int64_t values[FG_NATIVE_MAX];  // a kernel may change its arguments: they are its own, as in C
  const int64_t count = params[FG_NATIVE_COUNT];
  void *const *operand = call->args;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = params[FG_NATIVE_ARGS + i];
    const void *from = &params[word < 0 ? 0 : word];
    if (word == FG_NATIVE_POINTER) from = operand++;
    if (word == FG_NATIVE_VALUE) from = *operand++;
    memcpy(&values[i], from, sizeof values[i]);
    argv[i] = &values[i];
  }
  int32_t dims[6];
  memcpy(dims, &params[FG_NATIVE_DIMS], sizeof dims);
  reinterpret_cast<fg_native>(params[FG_NATIVE_FN])(argv, dims);
}

typedef void (*c_function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double,
                           double, double, double, double, double, double);

// Where an argument of a C function comes from: the word itself, the address of the operand that
// the word counts, or the integer or floating value of so many bytes at that operand.
enum { C_WORD = 0, C_ADDRESS = 1, C_SIGNED = 16, C_UNSIGNED = 32 };
enum { C_FN = 0, C_INTS = 1, C_FLOATS = 2, C_ARGS = 3, C_MAX_INTS = 6, C_MAX_FLOATS = 8 };

int64_t c_argument(const fg_call *call, int64_t source, int64_t word) {
  if (source == C_WORD) return word;
  const void *operand = call->args[word];
  if (source == C_ADDRESS) return reinterpret_cast<int64_t>(operand);
  const int64_t size = source & 15;
  int64_t value = 0;
  memcpy(&value, operand, static_cast<size_t>(size));
  const int shift = static_cast<int>(64 - 8 * size);
  if (source & C_SIGNED)
    value = static_cast<int64_t>(static_cast<uint64_t>(value) << shift) >> shift;
  return value;
}

// params: address of the function, how many integer or pointer and how many floating arguments,
// then two words for each, integers first. Both ABIs that this is compiled for hand the first six
// of the one and the first eight of the other kind over in registers, whatever their order among
// each other, and a callee looks only at those that it declares.
void call_c(const fg_call *call) {
  const int64_t *params = call->params;
  int64_t ints[C_MAX_INTS] = {};
  double floats[C_MAX_FLOATS] = {};
  const int64_t *argument = params + C_ARGS;
  for (int64_t i = 0; i < params[C_INTS]; ++i, argument += 2) {
    ints[i] = c_argument(call, argument[0], argument[1]);
  }
  for (int64_t i = 0; i < params[C_FLOATS]; ++i, argument += 2) {
    // A float lies in the low half of its register.
    const int64_t bits = c_argument(call, argument[0], argument[1]);
    memcpy(&floats[i], &bits, sizeof bits);
  }
  reinterpret_cast<c_function>(params[C_FN])(ints[0], ints[1], ints[2], ints[3], ints[4], ints[5],
                                             floats[0], floats[1], floats[2], floats[3], floats[4],
                                             floats[5], floats[6], floats[7]);
}

}  // namespace

extern const fg_entry builtin_entries[] = {
    {"set_bytes", set_bytes},     {"copy_bytes", copy_bytes}, {"do_nothing", do_nothing},
    {"call_native", call_native}, {"call_c", call_c},         {nullptr, nullptr},
};

}  // namespace FG_NS
