// What tests ask of the fake itself: `fake_…`, beside the driver's calls.
#include <cstring>

#include "fake.h"

// Holds all execution, or lets it go.
EXPORT void fake_hold(int on) {
  Lock lock(state().mutex);
  state().hold = on != 0;
  state().permits = 0;
  state().changed.notify_all();
}

// While held: lets this many jobs or nodes pass.
EXPORT void fake_step(long count) {
  Lock lock(state().mutex);
  state().permits += count;
  state().changed.notify_all();
}

// How many of those have not passed yet.
EXPORT long fake_steps_left() {
  Lock lock(state().mutex);
  return state().permits;
}

EXPORT void fake_seed(uint64_t seed) {
  Lock lock(state().mutex);
  state().seed = seed;
}

EXPORT void fake_memory_total(size_t bytes) {
  Lock lock(state().mutex);
  state().memory_total = bytes;
}

EXPORT void fake_driver(int version, int devices, int major, int minor) {
  Lock lock(state().mutex);
  state().version = version;
  state().devices = devices;
  state().major = major;
  state().minor = minor;
}

EXPORT void fake_poison_next_kernel() {
  Lock lock(state().mutex);
  state().poison_next = true;
}

// The count-th call of `name` from now on answers with the code and does nothing.
EXPORT void fake_fail(const char *name, long count, int code) {
  Lock lock(state().mutex);
  state().failures.erase(name);
  if (count > 0) state().failures[name] = {count, static_cast<CUresult>(code)};
}

EXPORT long fake_calls(const char *name) {
  Lock lock(state().mutex);
  auto found = state().calls.find(name);
  return found == state().calls.end() ? 0 : found->second;
}

EXPORT void fake_forget_calls() {
  Lock lock(state().mutex);
  state().calls.clear();
}

EXPORT long fake_kernels_run() {
  Lock lock(state().mutex);
  return state().kernels_run;
}

// How many there are alive; -1: there is no such kind.
EXPORT long fake_live(const char *kind) {
  Lock lock(state().mutex);
  State &s = state();
  long device = 0, pinned = 0, device_bytes = 0, pinned_bytes = 0, streams = 0;
  for (const auto &[begin, block] : s.blocks) {
    if (block.kind == Kind::device || block.kind == Kind::managed) {
      ++device;
      device_bytes += static_cast<long>(block.size);
    } else if (is_host_kind(block.kind)) {
      ++pinned;
      pinned_bytes += static_cast<long>(block.size);
    }
  }
  for (CUstream stream : s.streams) streams += !stream->implicit;
  const std::map<std::string, long> all = {
      {"allocations", device},
      {"bytes", device_bytes},
      {"pinned", pinned},
      {"pinned_bytes", pinned_bytes},
      {"streams", streams},
      {"events", s.events.size()},
      {"modules", s.modules.size()},
      {"libraries", s.libraries.size()},
      {"graphs", s.graphs.size()},
      {"nodes", s.nodes.size()},
      {"execs", s.execs.size()},
      {"reservations", s.reservations.size()},
      {"granules", s.granules.size()},
  };
  auto found = all.find(kind);
  return found == all.end() ? -1 : found->second;
}

EXPORT int fake_is_poisoned(int device) {
  Lock lock(state().mutex);
  return primary(device)->sticky;
}

// Back to the start: lets go, forgets injected faults and counts, heals the contexts. What is alive
// stays alive.
EXPORT void fake_reset() {
  Lock lock(state().mutex);
  State &s = state();
  s.hold = s.poison_next = false;
  s.permits = 0;
  s.seed = 1;
  s.version = 13000, s.devices = 2, s.major = 9, s.minor = 0;
  s.memory_total = size_t{1} << 30;
  s.failures.clear();
  s.calls.clear();
  s.kernels_run = 0;
  for (CUcontext context : s.contexts) context->sticky = CUDA_SUCCESS;
  s.changed.notify_all();
}
