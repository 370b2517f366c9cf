// What this process knows of its driver: whether it may be called, and which contexts are lost.
#ifndef FG_DRIVER_BASE_HPP
#define FG_DRIVER_BASE_HPP

#include <Python.h>
#include <cuda.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fastgraph {

// Results after which a context can do no more: those of which the driver API's documentation of
// CUresult says that the process has to end, or that the context cannot be used any more; and
// hardware faults (214, 220), after which the contents of memory are not to be trusted.
static inline bool is_sticky(int result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

constexpr int MAX_POISONED = 64;

inline bool g_started = false;
inline std::atomic<bool> g_lost{false};
// Every call looks at this one alone while all is well.
inline std::atomic<bool> g_trouble{false};
static inline const void *trouble() { return &g_trouble; }
inline std::atomic<uintptr_t> g_poisoned[MAX_POISONED];
inline int g_poison[MAX_POISONED];
inline std::mutex g_poisoning;

static inline int poison_of(uintptr_t context) {
  if (!g_trouble.load(std::memory_order_acquire) || !context) return 0;
  for (int i = 0; i < MAX_POISONED; ++i) {
    const uintptr_t found = g_poisoned[i].load(std::memory_order_acquire);
    if (found == context) return g_poison[i];
    if (!found) break;
  }
  return 0;
}

static inline void poison(uintptr_t context, int result) {
  std::lock_guard<std::mutex> lock(g_poisoning);
  if (!context || poison_of(context)) return;
  for (int i = 0; i < MAX_POISONED; ++i) {
    if (g_poisoned[i].load(std::memory_order_relaxed)) continue;
    g_poison[i] = result;
    g_poisoned[i].store(context, std::memory_order_release);
    break;
  }
  g_trouble.store(true, std::memory_order_release);
}

static inline void after_fork_in_child() {
  if (!g_started) return;
  g_lost.store(true);
  g_trouble.store(true);
}

static inline void watch_forks() { pthread_atfork(nullptr, nullptr, &after_fork_in_child); }

static inline void set_started() { g_started = true; }

static inline bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() || !Py_IsInitialized();
#else
  return _Py_IsFinalizing() || !Py_IsInitialized();
#endif
}

}  // namespace fastgraph

#endif
