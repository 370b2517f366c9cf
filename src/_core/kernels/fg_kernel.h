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

typedef struct fg_entry {
  const char *name;
  fg_kernel run;
} fg_entry;
}

// The first fault of a run stays; kernels skip the element and go on.
static inline void fg_fault(const fg_call *call) {
  uint64_t none = 0;
  __atomic_compare_exchange_n(call->fault, &none, call->node + 1, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}

#endif
