// Which parts of a cpu graph may run at once, and a run that lets them.
//
// A plan cuts the nodes of a graph into tasks: chains of nodes of which each waits for the one
// before alone. A run hands tasks that wait for nothing to the threads of the pool; Python is called
// by the thread that asked for the run. Results do not depend on it: the order among what no edge
// orders is all that differs.
#ifndef FG_BRANCHES_HPP
#define FG_BRANCHES_HPP

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "host_walk.hpp"
#include "pool.hpp"

namespace fastgraph {

// The tasks of a program, in an order that the edges allow.
class BranchPlan {
 public:
  struct Task {
    std::vector<uint32_t> ranges;  // of entries, as pairs
    std::vector<uint32_t> users;
    uint32_t missing;  // how many tasks it waits for
    uint32_t level;    // how many of them stand in a row
    bool python;
  };

  // Adds the entries [first, last), which wait for the units `before`; returns the unit's number.
  uint32_t add(uint32_t first, uint32_t last, bool python, const std::vector<uint32_t> &before) {
    units_.push_back({first, last, python, before, 0, 0});
    for (uint32_t unit : before) ++units_[unit].users;
    return uint32_t(units_.size() - 1);
  }

  // Makes tasks of the units added.
  void finish() {
    for (Unit &unit : units_) {
      const bool follows = unit.before.size() == 1 && units_[unit.before[0]].users == 1 &&
                           units_[unit.before[0]].python == unit.python;
      unit.task = follows ? units_[unit.before[0]].task : uint32_t(tasks_.size());
      if (!follows) tasks_.push_back({{}, {}, uint32_t(unit.before.size()), 0, unit.python});
      Task &task = tasks_[unit.task];
      if (unit.first < unit.last) {
        if (!task.ranges.empty() && task.ranges.back() == unit.first) {
          task.ranges.back() = unit.last;
        } else {
          task.ranges.push_back(unit.first);
          task.ranges.push_back(unit.last);
        }
      }
      if (follows) continue;
      for (uint32_t other : unit.before) {
        Task &earlier = tasks_[units_[other].task];
        earlier.users.push_back(unit.task);
        task.level = std::max(task.level, earlier.level + 1);
      }
    }
    std::vector<uint32_t> on_level;
    for (const Task &task : tasks_) {
      if (task.level >= on_level.size()) on_level.resize(task.level + 1);
      width_ = std::max(width_, ++on_level[task.level]);
    }
    units_.clear();
  }

  const std::vector<Task> &tasks() const { return tasks_; }
  // How many threads could have something to do.
  uint32_t width() const { return width_; }

 private:
  struct Unit {
    uint32_t first, last;
    bool python;
    std::vector<uint32_t> before;
    uint32_t users, task;
  };
  std::vector<Unit> units_;
  std::vector<Task> tasks_;
  uint32_t width_ = 0;
};

// The runs of one graph with branches. Nothing is known of what its kernels cost, so runs are timed:
// the tasks are run at once only where that was seen to pay.
class Branches {
 public:
  // A run shorter than this is never cut up, and one that is must get so much shorter.
  static constexpr int64_t kWorthNs = 20000;
  // What a task costs on its way through the queue.
  static constexpr int64_t kTaskNs = 500;
  // One run in so many is timed or looked at again.
  static constexpr int32_t kEvery = 64;

  void set(const BranchPlan *plan, uint32_t n_entries, uint32_t threads) {
    plan_ = plan;
    n_entries_ = n_entries;
    threads_ = std::min(threads, plan->width());
  }
  bool possible() const { return threads_ > 1; }
  bool parallel() const { return parallel_; }

  // One run. The GIL is not held.
  walk_end run(Walker &walker, const host_tables &tables, Pool *pool) {
    const uint32_t whole[2] = {0, n_entries_};
    if (parallel_) {
      if (!pool->acquire(threads_)) return walker.walk(tables, nullptr, whole, 2);
      const int64_t start = now_ns();
      const walk_end end = run_tasks(walker, tables, pool);
      pool->release();
      if (end == WALKED) judge(now_ns() - start);
      return end;
    }
    if (--left_ > 0) return walker.walk(tables, nullptr, whole, 2);
    left_ = kEvery;
    if (!long_enough_) {
      const int64_t start = now_ns();
      const walk_end end = walker.walk(tables, nullptr, whole, 2);
      long_enough_ = now_ns() - start > kWorthNs;
      if (long_enough_) left_ = 1;
      return end;
    }
    long_enough_ = false;
    times_.assign(n_entries_, 0);
    const walk_end end = walker.walk(tables, nullptr, whole, 2, times_.data());
    if (end == WALKED) decide();
    return end;
  }

 private:
  static constexpr uint32_t kOver = UINT32_MAX;
  typedef std::vector<uint32_t> Queue;

  // Would the tasks be done sooner side by side?
  void decide() {
    const auto &tasks = plan_->tasks();
    std::vector<int64_t> ready(tasks.size(), 0);
    int64_t total = 0, longest = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      int64_t cost = 0;
      for (size_t r = 0; r < tasks[i].ranges.size(); r += 2)
        for (uint32_t e = tasks[i].ranges[r]; e < tasks[i].ranges[r + 1]; ++e) cost += times_[e];
      total += cost;
      longest = std::max(longest, ready[i] + cost);
      for (uint32_t user : tasks[i].users) ready[user] = std::max(ready[user], ready[i] + cost);
    }
    const int64_t hoped = std::max(longest, total / threads_) + int64_t(tasks.size()) * kTaskNs;
    parallel_ = hoped + kWorthNs < total;
    in_a_row_ns_ = total;
    best_ns_ = INT64_MAX;
  }

  // Of so many runs side by side none was shorter than the one in a row: that was no gain.
  void judge(int64_t taken) {
    best_ns_ = std::min(best_ns_, taken);
    if (--left_ > 0) return;
    left_ = kEvery;
    parallel_ = best_ns_ < in_a_row_ns_;
    best_ns_ = INT64_MAX;
  }

  walk_end run_tasks(Walker &walker, const host_tables &tables, Pool *pool) {
    const auto &tasks = plan_->tasks();
    any_.clear();
    python_.clear();
    any_.reserve(tasks.size());
    python_.reserve(tasks.size());
    next_any_ = next_python_ = 0;
    missing_.resize(tasks.size());
    for (uint32_t i = 0; i < tasks.size(); ++i) {
      missing_[i] = tasks[i].missing;
      if (!missing_[i]) (tasks[i].python ? python_ : any_).push_back(i);
    }
    undone_ = uint32_t(tasks.size());
    tables_ = &tables;
    pool_ = pool;
    walker_ = &walker;
    caller_ = pthread_self();
    end_ = WALKED;
    lock_.store(false, std::memory_order_relaxed);
    sleepers_.store(0, std::memory_order_relaxed);
    stop_.store(false, std::memory_order_relaxed);
    fg_call call{};
    call.params = reinterpret_cast<const int64_t *>(this);
    pool->run(&Branches::part, call, threads_, never_pause, nullptr);
    return end_ == WALKED && pool->orphaned() ? CUT_OFF : end_;
  }

  static void part(const fg_call *call) {
    Branches *self = reinterpret_cast<Branches *>(const_cast<int64_t *>(call->params));
    if (self->pool_->orphaned()) return;
    if (pthread_equal(pthread_self(), self->caller_)) {
      self->work(*self->walker_, true);
    } else {
      Walker walker;
      walker.follow(&self->stop_);
      self->work(walker, false);
    }
  }

  void work(Walker &walker, bool caller) {
    const auto &tasks = plan_->tasks();
    for (;;) {
      const uint32_t number = take(walker, caller);
      if (number == kOver) return;
      const auto &ranges = tasks[number].ranges;
      const walk_end end = walker.walk(*tables_, nullptr, ranges.data(), ranges.size());
      if (caller && pool_->orphaned()) return;  // the lock may be a worker's that is no more
      if (end != WALKED) {
        if (caller) end_ = end;  // only a caller stops of itself
        finish_all();
        return;
      }
      done(tasks[number]);
    }
  }

  // The next task for this thread, or kOver. Waits for one, looking for signals if it is the
  // caller.
  uint32_t take(Walker &walker, bool caller) {
    for (int64_t since = 0;;) {
      if (stop_.load(std::memory_order_acquire)) return kOver;
      const uint32_t bell = bell_.load(std::memory_order_seq_cst);
      acquire();
      uint32_t number = kOver;
      if (caller && next_python_ < python_.size()) {
        number = python_[next_python_++];
      } else if (next_any_ < any_.size()) {
        number = any_[next_any_++];
      }
      release();
      if (number != kOver) return number;
      for (int i = 0; i < 64 && bell_.load(std::memory_order_relaxed) == bell; ++i) relax();
      if (!since) since = now_ns();
      if (now_ns() - since > pool_->spin_ns()) doze(bell);
      if (!caller) continue;
      if (walker.look(*tables_)) {
        end_ = STOPPED;
        if (!pool_->orphaned()) finish_all();
        return kOver;
      }
      if (pool_->orphaned()) return kOver;
    }
  }

  void done(const BranchPlan::Task &task) {
    acquire();
    for (uint32_t user : task.users)
      if (!--missing_[user]) (plan_->tasks()[user].python ? python_ : any_).push_back(user);
    const bool last = !--undone_;
    release();
    if (last) {
      finish_all();
    } else if (!task.users.empty()) {
      ring();
    }
  }

  void finish_all() {
    stop_.store(true, std::memory_order_release);
    ring();
  }

  void ring() {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst))
      syscall(SYS_futex, &bell_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  // Until the bell rings, or for a millisecond.
  void doze(uint32_t bell) {
    const timespec limit{0, 1000000};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &bell_, FUTEX_WAIT_PRIVATE, bell, &limit, nullptr, 0);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void acquire() {
    for (uint32_t spins = 0; lock_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins < 256) {
        relax();
      } else {
        sched_yield();  // whoever has it was put to sleep
      }
    }
  }
  void release() { lock_.store(false, std::memory_order_release); }

  const BranchPlan *plan_ = nullptr;
  uint32_t n_entries_ = 0;
  uint32_t threads_ = 1;
  bool parallel_ = false;
  bool long_enough_ = false;
  int32_t left_ = 1;
  int64_t in_a_row_ns_ = 0;
  int64_t best_ns_ = 0;
  std::vector<int64_t> times_;

  // The run under way.
  const host_tables *tables_ = nullptr;
  Pool *pool_ = nullptr;
  Walker *walker_ = nullptr;
  pthread_t caller_{};
  walk_end end_ = WALKED;
  Queue any_, python_;
  size_t next_any_ = 0, next_python_ = 0;
  std::vector<uint32_t> missing_;
  uint32_t undone_ = 0;
  std::atomic<bool> lock_{false};
  std::atomic<uint32_t> bell_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace fastgraph

#endif
