// A thread's current context, changed for the time of one call of the driver.
#ifndef FG_DRIVER_SCOPE_HPP
#define FG_DRIVER_SCOPE_HPP

#include <cstdint>

namespace fastgraph {

// Filled by `enter`; gives the thread's own context back at the end of the block, also when a call
// in between has raised.
struct Scope {
  uintptr_t before = 0;
  void (*restore)(uintptr_t context) = nullptr;

  ~Scope() {
    if (restore) restore(before);
  }
};

}  // namespace fastgraph

#endif
