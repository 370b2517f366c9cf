// Going through a host program: the loops that a run of a cpu graph spends its time in. Nothing here
// knows Python: entries that call it, and the look for signals, are functions that are handed in.
#ifndef FG_HOST_WALK_HPP
#define FG_HOST_WALK_HPP

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include "kernels/fg_kernel.h"
#include "pool.hpp"

namespace fastgraph {

// What an entry of a host program does: call its kernel, go to `target` (if the uint32 that is its
// operand is 0; always; at the entry that `params` names for it), or call Python.
enum host_control { CALL, BRANCH_ZERO, JUMP, SWITCH, PYTHON };

// One entry: its operands are `args[first]` and those that follow.
struct host_node {
  fg_kernel run;
  const int64_t *params;
  uint32_t first;
  uint32_t parts;
  host_control control;
  int32_t target;
  uint32_t natives;  // how many entries from here on are in the stream of native calls
  uint32_t at;       // where this one lies in it
  bool slow;         // a part is long enough to look for signals after it
};

// Where an operand lies: `bases[memory] + offset`.
struct host_operand {
  uint32_t memory;
  uint64_t offset;
};

// An operand's address is a word of the stream.
struct host_patch {
  uint32_t word;
  uint32_t operand;
};

enum walk_end { WALKED = 0, STOPPED = 1, CUT_OFF = 2 };

// What walkers of one graph share: its program and the addresses that it is bound to.
struct host_tables {
  const host_node *nodes;
  void *const *args;
  const int64_t *stream;  // a native call: its function, argument count, dims, one word an argument
  uint64_t *fault;
  void *graph;
  int (*python)(void *graph, size_t entry);  // not 0: an exception is set
  int (*signals)();                          // not 0: a handler raised, the exception is set
};

// Good for milliseconds, and several times cheaper than the exact clock.
static inline int64_t coarse_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// One thread's way through a program.
class Walker {
 public:
  // Beside a busy Python thread each look takes the GIL for up to a switch interval (5 ms).
  static constexpr int64_t kSignalIntervalNs = 20000000;
  // Parts shorter than this need no clock after each; at most so many may follow one another.
  static constexpr int64_t kShortNs = 1000000;
  static constexpr int32_t kMaxStride = 16;

  Walker() {
    for (int i = 0; i < FG_NATIVE_MAX; ++i) argv_[i] = &words_[i];
  }
  Walker(const Walker &) = delete;
  Walker &operator=(const Walker &) = delete;

  // Before a run of about `parts` parts. Those of the last run tell how long these will be.
  void start(size_t parts) {
    looked_ns_ = last_ns_ = parts > size_t(stride_) ? coarse_ns() : 0;
    left_ = parts > 1 ? stride_ : 2;  // no look after the only one
  }

  // In a thread of the pool: it leaves the signals to the caller and stops when `stop` is set.
  void follow(const std::atomic<bool> *stop) { stop_ = stop; }

  // Does the entries of all ranges [first, last), given as pairs, in this order.
  walk_end walk(const host_tables &t, Pool *pool, const uint32_t *ranges, size_t n,
                int64_t *times = nullptr) {
    for (size_t i = 0; i < n; i += 2) {
      const walk_end end = walk_range(t, pool, ranges[i], ranges[i + 1], times);
      if (end != WALKED) return end;
    }
    return WALKED;
  }

  walk_end walk_range(const host_tables &t, Pool *pool, size_t index, size_t end, int64_t *times) {
    fg_call call;
    call.fault = t.fault;
    while (index < end) {
      const host_node &node = t.nodes[index];
      if (node.natives && !times) {
        const size_t left = size_t(std::max(left_, 1));
        const size_t n = std::min(std::min(size_t(node.natives), end - index), left);
        call_natives(t.stream + node.at, n);
        index += n;
        left_ -= int32_t(n);
        if (left_ <= 0 && look(t)) return STOPPED;
        continue;
      }
      const int64_t start = times ? now_ns() : 0;
      size_t next = index + 1;
      if (node.control == CALL) {
        call.args = t.args + node.first;
        call.params = node.params;
        call.node = index;
        call.nparts = int32_t(node.parts);
        if (node.slow) left_ = 1;
        if (node.parts > 1 && pool) {
          State state{this, &t};
          const bool done = pool->run(node.run, call, node.parts, &Walker::pause, &state);
          if (pool->orphaned()) return CUT_OFF;
          if (!done) return STOPPED;
        } else {
          for (call.part = 0; call.part < call.nparts; ++call.part) {
            node.run(&call);
            if (--left_ <= 0 && look(t)) return STOPPED;
          }
        }
      } else if (node.control == PYTHON) {
        if (t.python(t.graph, index)) return STOPPED;
      } else {
        if (--left_ <= 0 && look(t)) return STOPPED;
        next = next_entry(node, index, t.args + node.first);
      }
      if (times) times[index] += now_ns() - start;
      index = next;
    }
    return WALKED;
  }

  // True when this run is to stop here; for the caller of the run the exception is then set.
  //
  // While parts are short only some are followed by a look at the clock; one that is known to be
  // long has a look of its own.
  bool look(const host_tables &t) {
    left_ = kMaxStride;
    if (stop_) return stop_->load(std::memory_order_relaxed);
    const int64_t now = coarse_ns();
    if (!last_ns_) {
      looked_ns_ = now;
      stride_ = 1;
    } else {
      stride_ = now - last_ns_ < kShortNs ? std::min(stride_ * 2, kMaxStride) : 1;
    }
    left_ = stride_;
    last_ns_ = now;
    if (now - looked_ns_ < kSignalIntervalNs) return false;
    looked_ns_ = now;
    return t.signals() != 0;
  }

 private:
  struct State {
    Walker *walker;
    const host_tables *tables;
  };

  static int pause(void *state) {
    State *s = static_cast<State *>(state);
    return --s->walker->left_ <= 0 && s->walker->look(*s->tables);
  }

  // A kernel may change its arguments, which are its own, as in C: each call gets fresh ones.
  void call_natives(const int64_t *at, size_t n) {
    for (; n; --n) {
      const size_t count = size_t(at[FG_NATIVE_COUNT]);
      const int64_t *word = at + FG_NATIVE_ARGS;
      for (size_t i = 0; i < count; ++i) words_[i] = word[i];
      const fg_native kernel = reinterpret_cast<fg_native>(at[FG_NATIVE_FN]);
      kernel(argv_, reinterpret_cast<const int32_t *>(at + FG_NATIVE_DIMS));
      at = word + count;
    }
  }

  // Where the run goes on after a control entry.
  static size_t next_entry(const host_node &node, size_t index, void *const *args) {
    uint32_t condition = 0;
    if (node.control != JUMP) memcpy(&condition, args[0], sizeof condition);
    if (node.control == BRANCH_ZERO && condition) return index + 1;
    if (node.control == SWITCH && int64_t(condition) < node.params[0])
      return size_t(node.params[1 + int64_t(condition)]);
    return size_t(node.target);
  }

  int64_t looked_ns_ = 0;  // when signals were last looked for
  int64_t last_ns_ = 0;    // when the clock was last read
  int32_t stride_ = 1;
  int32_t left_ = 1;  // parts until the next reading
  const std::atomic<bool> *stop_ = nullptr;
  int64_t words_[FG_NATIVE_MAX];
  void *argv_[FG_NATIVE_MAX];
};

static int never_pause(void *) { return 0; }

// A program of plain calls from end to end, without a look at anything else.
static inline void walk_kept(const host_tables &t, size_t n, Pool *pool) {
  fg_call call;
  call.fault = t.fault;
  for (size_t i = 0; i < n; ++i) {
    const host_node &node = t.nodes[i];
    call.args = t.args + node.first;
    call.params = node.params;
    call.node = i;
    call.nparts = int32_t(node.parts);
    if (node.parts > 1 && pool) {
      pool->run(node.run, call, node.parts, never_pause, nullptr);
      continue;
    }
    for (call.part = 0; call.part < call.nparts; ++call.part) node.run(&call);
  }
}

}  // namespace fastgraph

#endif
