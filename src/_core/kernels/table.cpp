// The table of this instruction set: name -> kernel, looked up once, when a graph is made.
#include <string.h>

#include "fg_kernel.h"

namespace FG_NS {

extern const fg_entry attention_entries[];
extern const fg_entry builtin_entries[];
extern const fg_entry conv_entries[];
extern const fg_entry elementwise_entries[];
extern const fg_entry grouped_entries[];
extern const fg_entry matmul_entries[];
extern const fg_entry matmul_plain_entries[];
extern const fg_entry movement_entries[];
extern const fg_entry normalize_entries[];
extern const fg_entry normalize_double_entries[];
extern const fg_entry ordering_entries[];
extern const fg_entry pack_entries[];
extern const fg_entry recurrence_entries[];
extern const fg_entry reduce_entries[];
extern const fg_entry rotary_entries[];
extern const fg_entry scatter_entries[];
extern const fg_entry windows_entries[];

fg_kernel lookup(const char *name) {
  const fg_entry *const families[] = {attention_entries,        builtin_entries,  conv_entries,
                                      elementwise_entries,      grouped_entries,  matmul_entries,
                                      matmul_plain_entries,     movement_entries, normalize_entries,
                                      normalize_double_entries, ordering_entries, pack_entries,
                                      recurrence_entries,       reduce_entries,   rotary_entries,
                                      scatter_entries,          windows_entries};
  for (const fg_entry *family : families) {
    for (const fg_entry *entry = family; entry->name; ++entry) {
      if (strcmp(entry->name, name) == 0) return entry->run;
    }
  }
  return nullptr;
}

}  // namespace FG_NS
