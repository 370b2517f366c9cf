// A thread that runs host graphs one after another, while whoever handed them in does something
// else. It needs neither Python nor the GIL, and it leaves signals to the threads that have them.
#ifndef FG_HOST_WORKER_HPP
#define FG_HOST_WORKER_HPP

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "branches.hpp"
#include "host_walk.hpp"
#include "pool.hpp"

namespace fastgraph {

// One run of a graph; what is named here stays as it is until the run is done.
struct host_job {
  const host_tables *tables;
  Branches *branches;  // null: there are none that could run at once
  Pool *pool;
  uint32_t entries;
  uint32_t threads;  // how many may share the work of a node; 1: only this one
  bool kept;
};

// One thread at a time hands jobs in. Each is claimed by the thread that runs it: the worker, or one
// that waits for a run and helps meanwhile. Numbers of jobs may wrap round: there are never more
// than half of kJobs that are not done.
class HostWorker {
 public:
  static constexpr uint32_t kJobs = 128;

  HostWorker() = default;
  HostWorker(const HostWorker &) = delete;
  HostWorker &operator=(const HostWorker &) = delete;

  // Starts the thread; false where there is none to be had.
  bool start() {
    if (thread_.joinable()) return true;
    sigset_t all, before;  // a signal must reach a thread that looks for it
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread(&HostWorker::work, this);
    } catch (const std::system_error &) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread_.joinable();
  }

  // Hands in a job and returns its number.
  uint32_t post(const host_job &job) {
    const uint32_t number = posted_.load(std::memory_order_relaxed);
    jobs_[number % kJobs] = job;
    posted_.store(number + 1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) futex(&posted_, FUTEX_WAKE_PRIVATE, 1, nullptr);
    return number;
  }

  // What is in a job's place later was handed in when that job was done.
  bool done(uint32_t number) const {
    const uint32_t last = done_[number % kJobs].load(std::memory_order_acquire);
    return int32_t(last - (number + 1)) >= 0;
  }

  // Runs the next job that nobody has begun; false where there is none.
  bool help() {
    uint32_t next = claimed_.load(std::memory_order_acquire);
    if (next == posted_.load(std::memory_order_acquire)) return false;
    if (!claimed_.compare_exchange_strong(next, next + 1, std::memory_order_acq_rel)) return false;
    Walker walker;
    run(next, walker);
    return true;
  }

  // Waits for a job until it is done or so much time has gone by; returns whether it is done.
  bool wait(uint32_t number, int64_t ns) {
    const int64_t until = now_ns() + ns;
    for (int i = 0; i < 64; ++i) {
      if (done(number)) return true;
      relax();
    }
    for (;;) {
      const int64_t left = until - now_ns();
      const uint32_t seen = ended_.load(std::memory_order_seq_cst);
      if (done(number)) return true;
      if (left <= 0) return false;
      const timespec limit{time_t(left / 1000000000), long(left % 1000000000)};
      waiters_.fetch_add(1, std::memory_order_seq_cst);
      futex(&ended_, FUTEX_WAIT_PRIVATE, seen, &limit);
      waiters_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  // Ends the thread once all jobs are done.
  void stop() {
    if (!thread_.joinable()) return;
    stopping_.store(true, std::memory_order_seq_cst);
    // Between its last look and its sleep the thread would miss one call.
    while (!stopped_.load(std::memory_order_acquire)) {
      futex(&posted_, FUTEX_WAKE_PRIVATE, 1, nullptr);
      sched_yield();
    }
    thread_.join();
  }

 private:
  static void futex(std::atomic<uint32_t> *word, int what, uint32_t value, const timespec *limit) {
    syscall(SYS_futex, word, what, value, limit, nullptr, 0);
  }

  void work() {
    Walker walker;
    uint32_t next;
    while (claim(&next)) run(next, walker);
    stopped_.store(true, std::memory_order_release);
  }

  // Claims the next job, which is waited for: for a moment awake, for it often follows at once.
  bool claim(uint32_t *job) {
    int64_t since = 0;
    for (;;) {
      uint32_t next = claimed_.load(std::memory_order_acquire);
      for (int i = 0; i < 64; ++i) {
        if (posted_.load(std::memory_order_acquire) == next) {
          relax();
        } else if (claimed_.compare_exchange_strong(next, next + 1, std::memory_order_acq_rel)) {
          *job = next;
          return true;
        }
      }
      if (stopping_.load(std::memory_order_seq_cst)) return false;
      const int64_t now = now_ns();
      if (!since) since = now;
      if (now - since <= kSpinNs) continue;
      asleep_.store(true, std::memory_order_seq_cst);
      futex(&posted_, FUTEX_WAIT_PRIVATE, claimed_.load(std::memory_order_seq_cst), nullptr);
      asleep_.store(false, std::memory_order_seq_cst);
    }
  }

  void run(uint32_t number, Walker &walker) {
    const host_job job = jobs_[number % kJobs];
    const uint32_t whole[2] = {0, job.entries};
    walker.follow(&never_);
    *job.tables->fault = 0;
    if (job.branches) {
      walker.start(job.entries);
      job.branches->run(walker, *job.tables, job.pool);
    } else {
      Pool *pool = job.threads > 1 && job.pool->acquire(job.threads) ? job.pool : nullptr;
      if (job.kept) {
        walk_kept(*job.tables, job.entries, pool);
      } else {
        walker.start(job.entries);
        walker.walk(*job.tables, pool, whole, 2);
      }
      if (pool) pool->release();
    }
    done_[number % kJobs].store(number + 1, std::memory_order_seq_cst);
    ended_.fetch_add(1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst))
      futex(&ended_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }

  static constexpr int64_t kSpinNs = 50000;

  alignas(64) std::atomic<uint32_t> posted_{0};
  std::atomic<bool> asleep_{false};
  alignas(64) std::atomic<uint32_t> claimed_{0};
  alignas(64) std::atomic<uint32_t> ended_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stopped_{false};
  const std::atomic<bool> never_{false};
  std::atomic<uint32_t> done_[kJobs] = {};
  host_job jobs_[kJobs];
  std::thread thread_;
};

}  // namespace fastgraph

#endif
