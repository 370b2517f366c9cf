// The process's worker threads. One run at a time owns them; a run that finds them taken does all
// of its parts itself, so that no result ever depends on who else is computing.
//
// A node's parts are claimed one by one from `ticket` (epoch : 32 | parts : 16 | next : 16), which a
// worker may read late or not at all: what it misses, the caller does. `job` changes only when every
// claimed part of the last epoch is done.
#ifndef FG_POOL_HPP
#define FG_POOL_HPP

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "kernels/fg_kernel.h"

namespace fastgraph {

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

static inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

class Pool {
 public:
  static constexpr uint32_t kMaxParts = 0xffff;

  // Takes the workers for one run of `threads` threads; false when another run has them.
  bool acquire(uint32_t threads) {
    bool free = false;
    if (!taken_.compare_exchange_strong(free, true, std::memory_order_acquire)) return false;
    active_.store(threads - 1, std::memory_order_relaxed);
    if (started_ < threads - 1) start_workers(threads - 1);
    wake();
    return true;
  }

  void release() { taken_.store(false, std::memory_order_release); }

  // Runs all parts of one call; the caller has acquired the pool. Returns true when all are done,
  // false, with the parts under way finished, when `pause` (asked between parts) said to stop.
  // Also false in the child of a fork that `pause` made: a part that a worker had may be half done.
  bool run(fg_kernel kernel, const fg_call &call, uint32_t parts, int (*pause)(void *),
           void *state) {
    job_kernel_ = kernel;
    job_ = call;
    job_.nparts = int32_t(parts);
    done_.store(0, std::memory_order_relaxed);
    ++epoch_;
    ticket_.store(uint64_t(epoch_) << 32 | uint64_t(parts) << 16, std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst)) wake();
    uint32_t part, mine = 0;
    bool stopped = false;
    while (claim(&part)) {
      fg_call slice = job_;
      slice.part = int32_t(part);
      kernel(&slice);
      ++mine;
      if (pause(state)) {
        mine += drain();
        stopped = true;
      }
    }
    for (uint32_t spins = 0; done_.load(std::memory_order_acquire) + mine < parts; ++spins) {
      if (orphaned()) return false;
      if (spins < 4096) {
        relax();
      } else {
        sched_yield();
      }
    }
    return !stopped;
  }

  // In a forked child the workers are gone for good.
  void orphan() { orphaned_.store(true, std::memory_order_relaxed); }
  bool orphaned() const { return orphaned_.load(std::memory_order_relaxed); }

  void set_spin_ns(int64_t spin) { spin_ns_.store(spin, std::memory_order_relaxed); }
  int64_t spin_ns() const { return spin_ns_.load(std::memory_order_relaxed); }
  uint32_t started() const { return started_; }

 private:
  struct Seat {
    Pool *pool;
    uint32_t index;
  };

  void start_workers(uint32_t count) {
    sigset_t all, before;  // a signal must reach a thread that looks for it
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (started_ < count) {
      pthread_t thread;
      Seat *seat = new Seat{this, started_};
      if (pthread_create(&thread, &attributes, &Pool::enter, seat)) {
        delete seat;  // no more threads to be had: the caller does those parts itself
        break;
      }
      ++started_;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static void *enter(void *argument) {
    Seat seat = *static_cast<Seat *>(argument);
    delete static_cast<Seat *>(argument);
    seat.pool->work(seat.index);
    return nullptr;
  }

  bool claim(uint32_t *part) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
      const uint32_t parts = uint32_t(ticket >> 16) & 0xffff, next = uint32_t(ticket) & 0xffff;
      if (next >= parts) return false;
      if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
        *part = next;
        return true;
      }
    }
  }

  // No part of the current call is left to claim.
  bool idle() const {
    const uint64_t ticket = ticket_.load(std::memory_order_seq_cst);
    return (uint32_t(ticket) & 0xffff) >= (uint32_t(ticket >> 16) & 0xffff);
  }

  // Claims what is left without doing it; counts it as done.
  uint32_t drain() {
    uint32_t part, count = 0;
    while (claim(&part)) ++count;
    return count;
  }

  void work(uint32_t index) {
    int64_t idle_since = now_ns();
    for (;;) {
      uint32_t part;
      if (index < active_.load(std::memory_order_relaxed) && claim(&part)) {
        const fg_kernel kernel = job_kernel_;
        fg_call slice = job_;
        slice.part = int32_t(part);
        kernel(&slice);
        done_.fetch_add(1, std::memory_order_release);
        idle_since = 0;
        continue;
      }
      for (int i = 0; i < 16 && idle(); ++i) relax();
      if (idle_since == 0) idle_since = now_ns();
      if (now_ns() - idle_since > spin_ns()) {
        park(index);
        idle_since = now_ns();
      }
    }
  }

  void park(uint32_t index) {
    const uint32_t seen = door_.load(std::memory_order_seq_cst);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    if (idle() || index >= active_.load(std::memory_order_relaxed)) {
      syscall(SYS_futex, &door_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    parked_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void wake() {
    if (!parked_.load(std::memory_order_seq_cst)) return;
    door_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &door_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> door_{0};
  std::atomic<uint32_t> parked_{0};
  std::atomic<uint32_t> active_{0};
  std::atomic<bool> orphaned_{false};
  std::atomic<int64_t> spin_ns_{50000};
  alignas(64) fg_kernel job_kernel_ = nullptr;
  fg_call job_{};
  alignas(64) std::atomic<bool> taken_{false};
  uint32_t epoch_ = 0;
  uint32_t started_ = 0;
};

// A forked child has none of its parent's threads: it gets a pool of its own, and the parent's is
// left where it lies. Runs that the fork cut off are told from live ones by this count.
inline Pool *g_pool = nullptr;
inline uint32_t g_forks = 0;

// A copy in pieces, for any of the workers.
static inline void copy_piece(const fg_call *call) {
  const size_t nbytes = size_t(call->params[0]), piece = size_t(call->params[1]);
  const size_t start = piece * size_t(call->part);
  memcpy(static_cast<char *>(call->args[0]) + start, static_cast<char *>(call->args[1]) + start,
         nbytes - start < piece ? nbytes - start : piece);
}

static inline int never(void *) { return 0; }

// Longer copies are done by several threads: one alone fills but a part of a socket's bandwidth, and
// less where the pages it writes are new.
constexpr size_t kLongCopy = 256 << 10, kCopyPiece = 32 << 10;
constexpr uint32_t kCopyThreads = 8;

static inline void copy_long(void *to, const void *from, size_t nbytes, uint32_t threads) {
  Pool *pool = g_pool;
  if (threads > kCopyThreads) threads = kCopyThreads;
  const size_t pieces = nbytes / kCopyPiece < Pool::kMaxParts ? (nbytes - 1) / kCopyPiece + 1
                                                              : size_t(Pool::kMaxParts);
  if (threads < 2 || nbytes < kLongCopy || !pool->acquire(threads)) {
    memcpy(to, from, nbytes);
    return;
  }
  void *const args[] = {to, const_cast<void *>(from)};
  // Of whole pages, so that no two threads touch the same new one.
  const size_t piece = ((nbytes - 1) / pieces / 4096 + 1) * 4096;
  const int64_t params[] = {int64_t(nbytes), int64_t(piece)};
  const fg_call call = {args, params, 0, 0, nullptr, 0};
  pool->run(&copy_piece, call, uint32_t((nbytes - 1) / piece + 1), &never, nullptr);
  pool->release();
}

static inline void after_fork_in_child() {
  const int64_t spin = g_pool->spin_ns();
  g_pool->orphan();
  g_pool = new Pool;
  g_pool->set_spin_ns(spin);
  ++g_forks;
}

static inline void start_pool() {
  if (g_pool) return;
  g_pool = new Pool;
  pthread_atfork(nullptr, nullptr, &after_fork_in_child);
}

}  // namespace fastgraph

#endif
