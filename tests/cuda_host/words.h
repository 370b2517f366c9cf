// The words of CUDA C++ for a compiler of host code, put before a kernel's source.
#ifndef CUDA_HOST_WORDS_H
#define CUDA_HOST_WORDS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "fibers.h"

#define FG_HOST 1

#define __global__ static
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
// Blocks run one after another, so one copy for the process is one for each block.
#define __shared__ static

#define threadIdx (::cuda_host::cuda_host_now->thread)
#define blockIdx (::cuda_host::cuda_host_now->block)
#define blockDim (::cuda_host::cuda_host_now->block_dim)
#define gridDim (::cuda_host::cuda_host_now->grid_dim)
#define warpSize 32

// Vectors ----------------------------------------------------------------------------------------
#define CUDA_HOST_VECTOR(name, type, size)                                                         \
  struct alignas(2 * size) name##2 { type x, y; };                                                 \
  struct alignas(size < 4 ? 4 * size : 16) name##4 { type x, y, z, w; };                           \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                          \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
CUDA_HOST_VECTOR(int, int, 4)
CUDA_HOST_VECTOR(uint, unsigned, 4)
CUDA_HOST_VECTOR(float, float, 4)
CUDA_HOST_VECTOR(short, short, 2)
CUDA_HOST_VECTOR(ushort, unsigned short, 2)
CUDA_HOST_VECTOR(char, signed char, 1)
CUDA_HOST_VECTOR(uchar, unsigned char, 1)
#undef CUDA_HOST_VECTOR
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
static inline double2 make_double2(double x, double y) { return {x, y}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
  return {x, y};
}

// Bits and numbers -------------------------------------------------------------------------------
template <class To, class From>
static inline To cuda_host_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline int __float_as_int(float x) { return cuda_host_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return cuda_host_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return cuda_host_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return cuda_host_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return cuda_host_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __umulhi(unsigned x, unsigned y) {
  return (unsigned)((unsigned long long)x * y >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __dadd_rn(double x, double y) { return x + y; }
template <class T>
static inline T __ldg(const T *pointer) {
  return *pointer;
}
template <class A, class B>
static inline typename std::common_type<A, B>::type min(A a, B b) {
  typedef typename std::common_type<A, B>::type T;
  return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B>
static inline typename std::common_type<A, B>::type max(A a, B b) {
  typedef typename std::common_type<A, B>::type T;
  return (T)a < (T)b ? (T)b : (T)a;
}

// Threads together -------------------------------------------------------------------------------
static inline void __syncthreads() { ::cuda_host::cuda_host_barrier(0, 0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}

static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  ::cuda_host::cuda_host_meet(mask, "__syncwarp", [](void *const *, uint32_t) {}, nullptr);
}

struct cuda_host_vote {
  int yes;
  unsigned result;
};
static inline unsigned __ballot_sync(unsigned mask, int yes) {
  cuda_host_vote mine = {yes, 0};
  ::cuda_host::cuda_host_meet(
      mask, "__ballot_sync",
      [](void *const *brought, uint32_t lanes) {
        unsigned found = 0;
        for (int i = 0; i < 32; i++)
          if (lanes >> i & 1) found |= (unsigned)(((cuda_host_vote *)brought[i])->yes != 0) << i;
        for (int i = 0; i < 32; i++)
          if (lanes >> i & 1) ((cuda_host_vote *)brought[i])->result = found;
      },
      &mine);
  return mine.result;
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) == mask; }

// A lane that asks one outside of `mask` gets garbage, as on a device.
template <class T>
struct cuda_host_shuffle {
  T value, result;
  int from;
};
template <class T>
static inline T cuda_host_exchange(unsigned mask, T value, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  cuda_host_shuffle<T> mine = {value, value, from};
  ::cuda_host::cuda_host_meet(
      mask, "a shuffle",
      [](void *const *brought, uint32_t lanes) {
        for (int i = 0; i < 32; i++) {
          if (!(lanes >> i & 1)) continue;
          cuda_host_shuffle<T> *own = (cuda_host_shuffle<T> *)brought[i];
          if (lanes >> own->from & 1)
            own->result = ((cuda_host_shuffle<T> *)brought[own->from])->value;
          else
            memset((void *)&own->result, 0xff, sizeof(T));
        }
      },
      &mine);
  return mine.result;
}
static inline int cuda_host_lane() {
  const unsigned index = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return (int)(index % 32);
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = cuda_host_lane();
  return cuda_host_exchange(mask, value, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = cuda_host_lane(), from = lane ^ bits;
  return cuda_host_exchange(mask, value, from / width > lane / width ? lane : from);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = cuda_host_lane(), from = lane + (int)by;
  return cuda_host_exchange(mask, value, from / width != lane / width ? lane : from);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = cuda_host_lane(), from = lane - (int)by;
  return cuda_host_exchange(mask, value, from < (lane & ~(width - 1)) ? lane : from);
}

// Atomics: fibers change only where they wait ----------------------------------------------------
template <class T, class V>
static inline T atomicAdd(T *at, V value) {
  T old = *at;
  *at = (T)(old + (T)value);
  return old;
}
template <class T, class V>
static inline T atomicMax(T *at, V value) {
  T old = *at;
  if (old < (T)value) *at = (T)value;
  return old;
}
template <class T, class V>
static inline T atomicMin(T *at, V value) {
  T old = *at;
  if ((T)value < old) *at = (T)value;
  return old;
}
template <class T, class V>
static inline T atomicOr(T *at, V value) {
  T old = *at;
  *at = (T)(old | (T)value);
  return old;
}
template <class T, class V>
static inline T atomicAnd(T *at, V value) {
  T old = *at;
  *at = (T)(old & (T)value);
  return old;
}
template <class T, class V>
static inline T atomicExch(T *at, V value) {
  T old = *at;
  *at = (T)value;
  return old;
}
template <class T, class C, class V>
static inline T atomicCAS(T *at, C compare, V value) {
  T old = *at;
  if (old == (T)compare) *at = (T)value;
  return old;
}
static inline unsigned atomicInc(unsigned *at, unsigned limit) {
  unsigned old = *at;
  *at = old >= limit ? 0 : old + 1;
  return old;
}

// Kernels with their arguments, as a driver gets them: pointers to the values --------------------
template <class... A>
struct cuda_host_kernel {
  template <void (*kernel)(A...), size_t... I>
  static void call(void *const *arguments, std::integer_sequence<size_t, I...>) {
    kernel(*(std::remove_cv_t<A> *)arguments[I]...);
  }
};
template <auto kernel>
struct cuda_host_bound;
template <class... A, void (*kernel)(A...)>
struct cuda_host_bound<kernel> {
  static void run(void *const *arguments) {
    (void)arguments;
    cuda_host_kernel<A...>::template call<kernel>(arguments, std::index_sequence_for<A...>());
  }
  static const int *sizes() {
    static const int all[] = {(int)sizeof(A)..., -1};
    return all;
  }
};

#define CUDA_HOST_ENTRY(number, ...)                                                               \
  extern "C" __attribute__((visibility("default"))) void cuda_host_entry_##number(                 \
      void *const *arguments) {                                                                    \
    cuda_host_bound<&__VA_ARGS__>::run(arguments);                                                 \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) const int *cuda_host_sizes_##number() {        \
    return cuda_host_bound<&__VA_ARGS__>::sizes();                                                 \
  }

#endif
