// The state, and what happens at the door of every call: counting, injected failures, forks,
// poisoned contexts.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cstring>

#include "fake.h"

thread_local bool in_callback = false;

namespace {
void mark_child() { state().forked = true; }

// "cuMemAlloc_v2" is counted as "cuMemAlloc".
std::string plain_name(const char *function) {
  std::string name = function;
  const size_t at = name.rfind("_v");
  if (at != std::string::npos && at + 3 == name.size()) name.resize(at);
  return name;
}
}  // namespace

State &state() {
  // Never destroyed: workers may outlive the end of main.
  static State *all = [] {
    pthread_atfork(nullptr, nullptr, mark_child);
    return new State;
  }();
  return *all;
}

unsigned long long next_id() {
  static unsigned long long last = 0;
  return ++last;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

void poison(CUcontext context, CUresult code) {
  Lock lock(state().mutex);
  if (context && !context->sticky) context->sticky = code;
  state().changed.notify_all();
}

Entry::Entry(const char *function, unsigned flags) {
  State &s = state();
  if (s.forked) {
    // The parent's driver is not there. Its lock may be held by a thread that is not there either.
    if (!strncmp(function, "cuGraphLaunch", 13)) {
      signal(SIGSEGV, SIG_DFL);
      raise(SIGSEGV);
    }
    code = (flags & (CHILD | EARLY)) && strcmp(function, "cuInit") ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  lock = Lock(s.mutex);
  const std::string name = plain_name(function);
  ++s.calls[name];
  context = current();
  if (in_callback && !(flags & (CALLBACK | EARLY))) {
    code = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  auto failure = s.failures.find(name);
  if (failure != s.failures.end() && --failure->second.countdown == 0) {
    code = failure->second.code;
    s.failures.erase(failure);
    return;
  }
  if (!s.initialised && !(flags & EARLY)) {
    code = CUDA_ERROR_NOT_INITIALIZED;
  } else if ((flags & CONTEXT) && !context) {
    code = CUDA_ERROR_INVALID_CONTEXT;
  } else if ((flags & HEALTHY) && context && context->sticky) {
    code = context->sticky;
  } else if (flags & UNSAFE) {
    code = unsafe_call();
  }
}

Entry::~Entry() = default;
