// What the common replay of a GPU's graph looks at, gathered in one place: it is called when nothing
// of it is in the caches, and each object that it went to for a word would be another miss.
#ifndef FG_LINE_HPP
#define FG_LINE_HPP

#include <Python.h>

#include <atomic>
#include <cstdint>

namespace fastgraph {

typedef int (*graph_launcher)(void *exec, void *stream);

struct alignas(64) launch_line {
  graph_launcher launch = nullptr;  // the driver's own; null: never at once
  void *exec = nullptr;
  void *stream = nullptr;
  void *home = nullptr;             // the object that stands for `stream`
  void *const *last_use = nullptr;  // the one whose turn was last
  const int *busy = nullptr;        // of the lock
  const unsigned long *reserved = nullptr;
  uint64_t *marks = nullptr;  // of `home`
  Py_ssize_t *unobserved = nullptr;
  Py_ssize_t most_unobserved = 0;
  const Py_ssize_t *host_functions = nullptr;
  const void *trouble = nullptr;  // std::atomic<bool>: the process or a context is lost
  bool care = true;               // there is more to do than to launch
};

// With the GIL kept from here to the end of the launch, a lock that nobody holds need not be taken.
// What the stream has to wait for, and calls that may block, are left to who takes it.
static inline bool is_free(const launch_line *line) {
  return !((*line->last_use != line->home) | (*line->busy != 0) | (*line->reserved != 0) |
           (*line->unobserved >= line->most_unobserved) | (*line->host_functions != 0) |
           static_cast<const std::atomic<bool> *>(line->trouble)->load(std::memory_order_relaxed));
}

// Whether a launch is all that there is to do.
static inline bool is_clear(const launch_line *line) { return !line->care && is_free(line); }

// What the driver says; 0 is success.
static inline int launch_at_once(const launch_line *line) {
  const int result = line->launch(line->exec, line->stream);
  if (!result) {
    ++*line->marks;
    ++*line->unobserved;
  }
  return result;
}

}  // namespace fastgraph

#endif
