// The one calling convention of host kernels. Outputs come first in `args`, then inputs.
#ifndef FG_KERNEL_H
#define FG_KERNEL_H

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct fg_call {
  void *const *args;      // resolved operand addresses, element-aligned, outputs first
  const int64_t *params;  // constants of the node, fixed when the graph was compiled
  int32_t part, nparts;   // this call does slice `part` of `nparts`
  uint64_t *fault;        // the run's error word: 0, or 1 + the node that met bad data
  uint64_t node;          // what to write there, less 1
} fg_call;

typedef void (*fg_kernel)(const fg_call *call);

// A user's native kernel: args[i] is the address of argument i's value, dims the sizes of grid and
// block, x first.
typedef void (*fg_native)(void *const *args, const int32_t dims[6]);

typedef struct fg_entry {
  const char *name;
  fg_kernel run;
} fg_entry;
}

// The params of kernel `call_native`: address of the user's kernel, argument count, three words with
// the six dims, then one word an argument: FG_NATIVE_POINTER (the address is the next of
// call->args), FG_NATIVE_VALUE (the value lies at the next of call->args), else the index of the
// word that holds the value's bytes.
enum { FG_NATIVE_POINTER = -1, FG_NATIVE_VALUE = -2 };
enum {
  FG_NATIVE_FN = 0,
  FG_NATIVE_COUNT = 1,
  FG_NATIVE_DIMS = 2,
  FG_NATIVE_ARGS = 5,
  FG_NATIVE_MAX = 64
};

// The first fault of a run stays; kernels skip the element and go on.
static inline void fg_fault(const fg_call *call) {
  uint64_t none = 0;
  __atomic_compare_exchange_n(call->fault, &none, call->node + 1, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}

#endif
