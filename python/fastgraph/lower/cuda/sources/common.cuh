// What all kernels of compiled graphs share. It stands before the text of a family of kernels.
//
// Nothing is included, so compiling needs no headers: half floats are types of our own, which hold
// bits and compute in float. FG_HOST is defined where the tests compile kernels for the host.
//
// Every kernel that is launched programmatically calls fg_wait() on every path before it touches
// memory that another node of a run writes or reads. Reads of such memory are never declared
// constant (no __ldg, no const __restrict__): the compiler could move them before the wait.
#ifndef FG_COMMON_CUH
#define FG_COMMON_CUH

#define FG_DEVICE __device__ __forceinline__

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
// Of a bool that is read any byte but 0 is true; 0 and 1 are written.
struct b8 {
  u8 bits;
};

#ifdef FG_HOST
#define FG_INFINITY __builtin_inff()
#define FG_NAN __builtin_nanf("")
#else
#define FG_INFINITY __int_as_float(0x7f800000)
#define FG_NAN __int_as_float(0x7fc00000)
#endif

// Launches ---------------------------------------------------------------------------------------

// Waits for the kernels before this one; what they wrote is seen from here on.
FG_DEVICE void fg_wait() {
#ifdef FG_HOST
  cuda_host::cuda_host_waited();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernels after this one start: they wait for the end of this one by themselves.
FG_DEVICE void fg_trigger() {
#ifdef FG_HOST
  cuda_host::cuda_host_triggered();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The same for kernels that may have few blocks. Those let others start once they work themselves: any
// earlier one kernel after the other would wait on multiprocessors that those between them could have.
// Of an encoder of 128 tokens, whose kernels have 48 to 96 blocks, a run took 120 us instead of 135.
constexpr u32 FEW_BLOCKS = 96;
FG_DEVICE void fg_trigger_if_many() {
  if (gridDim.x * gridDim.y > FEW_BLOCKS) fg_trigger();
}
FG_DEVICE void fg_wait_and_trigger() {
  fg_wait();
  fg_trigger();
}

// Writes the run's error word, which lies in host memory. The first fault of a run stays. The host
// looks only after the run, so the device's own order is enough.
FG_DEVICE void fg_fault(u64 *fault, u64 node) { atomicCAS(fault, (u64)0, node); }

// The block's dynamic shared memory, by a name of its own.
#ifdef FG_HOST
#define FG_DYNAMIC_SHARED(name) unsigned char *name = cuda_host::cuda_host_now->dynamic_shared
#else
#define FG_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

// Sizes --------------------------------------------------------------------------------------------

// Stands for a size that is not known when a kernel is compiled: each launch tells it.
constexpr i64 GIVEN = -1;
template <i64 SIZE>
FG_DEVICE i64 known(i64 given) {
  return SIZE == GIVEN ? given : SIZE;
}

// Conversions ------------------------------------------------------------------------------------

FG_DEVICE f32 f16_to_f32(f16 x) {
#ifdef FG_HOST
  const u32 sign = (u32)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return __uint_as_float(sign | ((rest << 13) + 0x38000000));
  return __uint_as_float(sign | __float_as_uint((f32)rest * 0x1p-24f));
#else
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#endif
}
FG_DEVICE f16 f64_to_f16(f64 x) {
  f16 y;
#ifdef FG_HOST
  const u16 sign = (u16)(__double_as_longlong(x) >> 48 & 0x8000);
  const f64 size = fabs(x);
  if (size != size) {
    y.bits = 0x7fff;
  } else if (size >= 65520.0) {
    y.bits = sign | 0x7c00;
  } else {
    // The sum's last bit is worth the half's: adding rounds to nearest, ties to even.
    i32 exponent = 0;
    frexp(size, &exponent);
    if (size == 0.0 || exponent < -13) exponent = -13;
    const f64 unit = ldexp(1.0, exponent - 11), magic = unit * 0x1.8p52;
    const f64 whole = ((size + magic) - magic) / unit;
    y.bits = sign | (u16)((exponent + 13) * 1024 + (i32)whole);
  }
#else
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
#endif
  return y;
}
FG_DEVICE f16 f32_to_f16(f32 x) {
#ifdef FG_HOST
  return f64_to_f16((f64)x);
#else
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#endif
}
FG_DEVICE f32 bf16_to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
FG_DEVICE bf16 f32_to_bf16(f32 x) {
  bf16 y;
#ifdef FG_HOST
  const u32 bits = __float_as_uint(x);
  y.bits = x != x ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
  return y;
}
// Rounded once: by way of a float that is odd where it is not exact, no tie is made up.
FG_DEVICE bf16 f64_to_bf16(f64 x) {
#ifdef FG_HOST
  f32 y = (f32)x;
  if (fabs((f64)y) > fabs(x)) y = nextafterf(y, 0.0f);
#else
  f32 y = __double2float_rz(x);
#endif
  if (x == x && (f64)y != x) y = __uint_as_float(__float_as_uint(y) | 1);
  return f32_to_bf16(y);
}
// Two numbers in one register, the first in its low half.
FG_DEVICE u32 pack_f16(f32 low, f32 high) {
#ifdef FG_HOST
  return f32_to_f16(low).bits | (u32)f32_to_f16(high).bits << 16;
#else
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#endif
}
FG_DEVICE u32 pack_bf16(f32 low, f32 high) {
#ifdef FG_HOST
  return f32_to_bf16(low).bits | (u32)f32_to_bf16(high).bits << 16;
#else
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#endif
}

template <class A, class B>
struct Same {
  static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
  static constexpr bool value = true;
};

template <bool, class A, class B>
struct Choose {
  typedef A type;
};
template <class A, class B>
struct Choose<false, A, B> {
  typedef B type;
};

// What a dtype is stored as, and computed in.
template <class T>
struct Dtype {
  typedef T compute;
  static FG_DEVICE T widen(T x) { return x; }
  static FG_DEVICE T narrow(T x) { return x; }
};
template <>
struct Dtype<f16> {
  typedef f32 compute;
  static FG_DEVICE f32 widen(f16 x) { return f16_to_f32(x); }
  static FG_DEVICE f16 narrow(f32 x) { return f32_to_f16(x); }
};
template <>
struct Dtype<bf16> {
  typedef f32 compute;
  static FG_DEVICE f32 widen(bf16 x) { return bf16_to_f32(x); }
  static FG_DEVICE bf16 narrow(f32 x) { return f32_to_bf16(x); }
};
template <>
struct Dtype<b8> {
  typedef bool compute;
  static FG_DEVICE bool widen(b8 x) { return x.bits != 0; }
  static FG_DEVICE b8 narrow(bool x) {
    b8 y = {(u8)x};
    return y;
  }
};
template <class T>
using compute_t = typename Dtype<T>::compute;
template <class T>
FG_DEVICE compute_t<T> widen(T x) {
  return Dtype<T>::widen(x);
}
template <class T>
FG_DEVICE T narrow(compute_t<T> x) {
  return Dtype<T>::narrow(x);
}

// Loads and stores -------------------------------------------------------------------------------

// N elements side by side, moved in one instruction of up to 16 bytes.
template <class T, int N>
struct __align__(sizeof(T) * N) Vec {
  T v[N];
};
template <int BYTES>
struct Raw;
template <>
struct Raw<1> {
  typedef u8 type;
};
template <>
struct Raw<2> {
  typedef u16 type;
};
template <>
struct Raw<4> {
  typedef u32 type;
};
template <>
struct Raw<8> {
  typedef uint2 type;
};
template <>
struct Raw<16> {
  typedef uint4 type;
};

FG_DEVICE void check_aligned(const void *p, int bytes) {
#ifdef FG_HOST
  if ((uintptr_t)p % (uintptr_t)bytes) cuda_host::cuda_host_fail("a misaligned load or store");
#endif
}
// N elements in pieces of C, whose bytes the address is a multiple of.
template <int N, int C = N, class T>
FG_DEVICE Vec<T, N> load(const T *p) {
  typedef typename Raw<sizeof(T) * C>::type R;
  static_assert(N % C == 0, "whole pieces");
  check_aligned(p, sizeof(R));
  Vec<T, N> x;
#pragma unroll
  for (int i = 0; i < N; i += C) {
    const R raw = *(const R *)(p + i);
    memcpy(x.v + i, &raw, sizeof(R));
  }
  return x;
}
template <int C, class T, int N>
FG_DEVICE void store(T *p, const Vec<T, N> &x) {
  typedef typename Raw<sizeof(T) * C>::type R;
  static_assert(N % C == 0, "whole pieces");
  check_aligned(p, sizeof(R));
#pragma unroll
  for (int i = 0; i < N; i += C) {
    R raw;
    memcpy(&raw, x.v + i, sizeof(R));
    *(R *)(p + i) = raw;
  }
}
template <class T, int N>
FG_DEVICE void store(T *p, const Vec<T, N> &x) {
  store<N>(p, x);
}

// Lets the second-level cache bring in the line at `p`: a hint, which may come before fg_wait().
FG_DEVICE void bring_near(const void *p, bool inside) {
#ifndef FG_HOST
  if (inside) asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// Combining values -------------------------------------------------------------------------------

struct Add {
  template <class T>
  FG_DEVICE T operator()(T x, T y) const {
    return x + y;
  }
};
struct Multiply {
  template <class T>
  FG_DEVICE T operator()(T x, T y) const {
    return x * y;
  }
};
// NaN if either is.
struct Maximum {
  template <class T>
  FG_DEVICE T operator()(T x, T y) const {
    return x > y || x != x ? x : y;
  }
};
struct Minimum {
  template <class T>
  FG_DEVICE T operator()(T x, T y) const {
    return x < y || x != x ? x : y;
  }
};

// The x of the lane whose number differs in these bits; x is of any type without pointers into it.
template <class T>
FG_DEVICE T lane_xor(T x, int bits, u32 mask = 0xffffffffu) {
  u32 words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &x, sizeof(T));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(words) / 4); i++)
    words[i] = __shfl_xor_sync(mask, words[i], bits);
  memcpy(&x, words, sizeof(T));
  return x;
}

// The combination over LANES neighbouring lanes, the same bits in all of them; the lanes of `mask`
// take part.
template <int LANES = 32, class T, class F>
FG_DEVICE T warp_reduce(T x, F combine, u32 mask = 0xffffffffu) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x = combine(x, lane_xor(x, step, mask));
  return x;
}

// The combination over a block of THREADS, in all of its threads; `shared` holds one value a warp.
// It may be used again after the next barrier.
template <int THREADS, class T, class F>
FG_DEVICE T block_reduce(T x, F combine, T *shared) {
  constexpr int WARPS = THREADS / 32;
  x = warp_reduce(x, combine);
  if (WARPS == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int i = 1; i < WARPS; i++) x = combine(x, shared[i]);
  return x;
}

// Barriers of a part of the block: `count` threads, whole warps, meet at barrier `id` of 1 to 15.
FG_DEVICE void named_barrier(u32 id, u32 count) {
#ifdef FG_HOST
  cuda_host::cuda_host_barrier(id, count);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
#endif
}

// Copies into shared memory that go on while the thread does ---------------------------------------

#ifndef FG_HOST
FG_DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
#endif
// BYTES of 4, 8 or 16; the last of them are zeros beyond `valid`.
template <int BYTES>
FG_DEVICE void cp_async(void *shared, const void *global, int valid = BYTES) {
#ifdef FG_HOST
  cuda_host::cuda_host_copy_begin(shared, global, (unsigned)valid, (unsigned)(BYTES - valid));
#else
  // Past the first cache wherever that is allowed.
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(valid)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(BYTES), "r"(valid)
                 : "memory");
#endif
}
// A piece of BYTES, or zeros. No asynchronous copy is smaller than 4; the barrier that others need
// orders those, too.
template <int BYTES, class T>
FG_DEVICE void copy_piece(unsigned char *to, const T *from, bool inside) {
  if constexpr (BYTES >= 4)
    cp_async<BYTES>(to, from, inside ? BYTES : 0);
  else
    *(T *)to = inside ? *from : T{0};
}
FG_DEVICE void cp_async_commit() {
#ifdef FG_HOST
  cuda_host::cuda_host_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most PENDING of this thread's groups are under way; the block still needs a barrier.
template <int PENDING>
FG_DEVICE void cp_async_wait() {
#ifdef FG_HOST
  cuda_host::cuda_host_copy_wait(PENDING);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Matrices in registers of a warp ------------------------------------------------------------------
// Lane l holds of an 8x8 matrix of 16-bit elements row l / 4, columns l % 4 * 2 and the next, packed
// in one register.

// COUNT (1, 2, 4) such matrices; lanes 8i to 8i+7 give the addresses of the rows of matrix i.
template <int COUNT, bool TRANSPOSED = false>
FG_DEVICE void ldmatrix(u32 (&d)[COUNT], const void *row) {
  static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "1, 2 or 4 matrices");
#ifdef FG_HOST
  struct Lane {
    const void *row;
    u32 d[4];
  } mine = {row, {0, 0, 0, 0}};
  cuda_host::cuda_host_meet(
      0xffffffffu, "ldmatrix",
      [](void *const *brought, uint32_t) {
        for (int i = 0; i < COUNT; i++) {
          u16 all[8][8];
          for (int r = 0; r < 8; r++) {
            const void *from = ((Lane *)brought[8 * i + r])->row;
            check_aligned(from, 16);
            memcpy(all[r], from, 16);
          }
          for (int l = 0; l < 32; l++) {
            const int r = l / 4, c = l % 4 * 2;
            const u16 low = TRANSPOSED ? all[c][r] : all[r][c];
            const u16 high = TRANSPOSED ? all[c + 1][r] : all[r][c + 1];
            ((Lane *)brought[l])->d[i] = low | (u32)high << 16;
          }
        }
      },
      &mine);
  for (int i = 0; i < COUNT; i++) d[i] = mine.d[i];
#else
  const u32 from = shared_address(row);
  if constexpr (COUNT == 1 && !TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(from)
                 : "memory");
  else if constexpr (COUNT == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(from)
                 : "memory");
  else if constexpr (COUNT == 2 && !TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(from)
                 : "memory");
  else if constexpr (COUNT == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(from)
                 : "memory");
  else if constexpr (!TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(from)
                 : "memory");
#endif
}

#ifdef FG_HOST
// d[16][8] += a[16][K] b[K][8] over the registers of a warp; `element` reads one of a or of b.
struct MmaLane {
  f32 *d;
  const u32 *a, *b;
};
template <class T>
FG_DEVICE f32 mma_half(u32 word, int high) {
  T x;
  x.bits = (u16)(high ? word >> 16 : word);
  return widen(x);
}
template <class T>
FG_DEVICE void mma_host_16816(void *const *brought, uint32_t) {
  f32 a[16][16], b[16][8];
  for (int l = 0; l < 32; l++) {
    const MmaLane &lane = *(MmaLane *)brought[l];
    const int group = l / 4, pair = l % 4 * 2;
    for (int i = 0; i < 4; i++)
      for (int h = 0; h < 2; h++)
        a[group + i % 2 * 8][pair + i / 2 * 8 + h] = mma_half<T>(lane.a[i], h);
    for (int i = 0; i < 2; i++)
      for (int h = 0; h < 2; h++) b[pair + i * 8 + h][group] = mma_half<T>(lane.b[i], h);
  }
  for (int l = 0; l < 32; l++) {
    const MmaLane &lane = *(MmaLane *)brought[l];
    for (int i = 0; i < 4; i++) {
      const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      f32 sum = lane.d[i];
      for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
      lane.d[i] = sum;
    }
  }
}
FG_DEVICE void mma_host_tf32(void *const *brought, uint32_t) {
  f32 a[16][8], b[8][8];
  for (int l = 0; l < 32; l++) {
    const MmaLane &lane = *(MmaLane *)brought[l];
    const int group = l / 4, in = l % 4;
    // The unit does not see the last 13 bits.
    for (int i = 0; i < 4; i++)
      a[group + i % 2 * 8][in + i / 2 * 4] = __uint_as_float(lane.a[i] & 0xffffe000u);
    for (int i = 0; i < 2; i++) b[in + i * 4][group] = __uint_as_float(lane.b[i] & 0xffffe000u);
  }
  for (int l = 0; l < 32; l++) {
    const MmaLane &lane = *(MmaLane *)brought[l];
    for (int i = 0; i < 4; i++) {
      const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
      f32 sum = lane.d[i];
      for (int k = 0; k < 8; k++) sum += a[row][k] * b[k][column];
      lane.d[i] = sum;
    }
  }
}
#endif

// d += a b with a of 16x16, b of 16x8 elements T (f16 or bf16) and d of 16x8 f32.
// With g = lane / 4 and p = lane % 4 * 2: a holds (g, p), (g + 8, p), (g, p + 8), (g + 8, p + 8), each
// with its neighbour in the row; b (p, g), (p + 8, g), each with its neighbour in the column; d
// (g, p), (g, p + 1), (g + 8, p), (g + 8, p + 1).
template <class T>
FG_DEVICE void mma_16816(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#ifdef FG_HOST
  MmaLane lane = {d, a, b};
  cuda_host::cuda_host_meet(0xffffffffu, "mma_16816", mma_host_16816<T>, &lane);
#else
  if constexpr (Same<T, f16>::value)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// The bits of x, rounded to the ten bits of a fraction that tf32 has.
FG_DEVICE u32 f32_to_tf32(f32 x) {
#ifdef FG_HOST
  const u32 bits = __float_as_uint(x);
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000u;
#else
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
#endif
}
// d += a b with a of 16x8, b of 8x8 tf32. With g = lane / 4 and i = lane % 4: a holds (g, i),
// (g + 8, i), (g, i + 4), (g + 8, i + 4); b (i, g), (i + 4, g); d as above.
FG_DEVICE void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#ifdef FG_HOST
  MmaLane lane = {d, a, b};
  cuda_host::cuda_host_meet(0xffffffffu, "mma tf32", mma_host_tf32, &lane);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#endif
