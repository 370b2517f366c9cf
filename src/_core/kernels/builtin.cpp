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

typedef void (*native_kernel)(void *const *args, const int32_t dims[6]);

// params: address of the kernel, argument count, three words with the six dims, then one word an
// argument: -1 for a pointer (the next of call->args), -2 for a value that lies at the next of
// call->args, else the index of the word that holds a scalar's bytes. The kernel sees, as on cuda,
// the address of each argument's value.
enum { NATIVE_POINTER = -1, NATIVE_VALUE = -2 };
enum { NATIVE_FN = 0, NATIVE_COUNT = 1, NATIVE_DIMS = 2, NATIVE_ARGS = 5, NATIVE_MAX = 64 };

void call_native(const fg_call *call) {
  const int64_t *params = call->params;
  void *argv[NATIVE_MAX];
  const int64_t count = params[NATIVE_COUNT];
  void *const *pointer = call->args;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = params[NATIVE_ARGS + i];
    if (word == NATIVE_VALUE) {
      argv[i] = *pointer++;
    } else if (word == NATIVE_POINTER) {
      argv[i] = const_cast<void **>(pointer++);
    } else {
      argv[i] = const_cast<void *>(static_cast<const void *>(&params[word]));
    }
  }
  int32_t dims[6];
  memcpy(dims, &params[NATIVE_DIMS], sizeof dims);
  reinterpret_cast<native_kernel>(params[NATIVE_FN])(argv, dims);
}

}  // namespace

extern const fg_entry builtin_entries[] = {
    {"set_bytes", set_bytes},     {"copy_bytes", copy_bytes}, {"do_nothing", do_nothing},
    {"call_native", call_native}, {nullptr, nullptr},
};

}  // namespace FG_NS
