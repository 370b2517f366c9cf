// Warp-group products of sm_90a, whose operands of 16 bits lie in shared memory, and what feeds them:
// barriers that count copies, fences, registers that warps hand to one another.
//
// Operands lie in panels of rows of 128 bytes, whose pieces of 16 bytes change places as in
// swizzled<8>; a panel begins at a multiple of 1024 bytes. Along K: a row for each row of x or column
// of w, with 64 elements along K. Across K (TRANSPOSED): a row for each element along K, with 64
// elements of x's rows or w's columns; panels of 64 such rows are next to each other.

// Barriers in shared memory -------------------------------------------------------------------------
// A barrier's phases are over when `count` arrivals have come; waiters name the parity of a phase, 0
// for the first.

FG_DEVICE void barrier_init(u64 *barrier, u32 count) {
#ifdef FG_HOST
  cuda_host::cuda_host_mbarrier_init(barrier, count);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
#endif
}
// What was done to barriers so far is seen by all; the block's barrier is the caller's.
FG_DEVICE void barrier_init_done() {
#ifndef FG_HOST
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
FG_DEVICE void barrier_arrive(u64 *barrier) {
#ifdef FG_HOST
  cuda_host::cuda_host_mbarrier_arrive(barrier);
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
// An arrival once all copies have landed that the thread has begun.
FG_DEVICE void cp_async_arrive(u64 *barrier) {
#ifdef FG_HOST
  cuda_host::cuda_host_copy_arrive(barrier);
#else
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
FG_DEVICE void barrier_wait(u64 *barrier, u32 parity) {
#ifdef FG_HOST
  cuda_host::cuda_host_mbarrier_wait(barrier, parity);
#else
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; "
      "bra again; done: }" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

// What threads wrote to shared memory, as far as this thread knows of it, is seen by products.
FG_DEVICE void fence_async() {
#ifndef FG_HOST
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// All warps of a warp group have COUNT registers a thread from here on.
template <int COUNT, bool MORE>
FG_DEVICE void set_registers() {
#ifndef FG_HOST
  if constexpr (MORE)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

// Registers of a thread that brings operands, and of one that multiplies: all that a block has. The
// former get MOST where there are at least ENOUGH for each.
template <int GROUPS, int BLOCKS, int ENOUGH = 128, int MOST = 40>
struct Registers {
  static constexpr int ALL = 65536 / BLOCKS / 128, AT_START = ALL / (GROUPS + 1) / 8 * 8;
  static constexpr int BRING = AT_START >= ENOUGH ? MOST : 32;
  static constexpr int LEFT = (AT_START * (GROUPS + 1) - BRING) / GROUPS / 8 * 8;
  static constexpr int MULTIPLY = LEFT < 240 ? LEFT : 240;
};

// Whether it is so in all threads of a warp group, which meet at a barrier that is theirs alone.
FG_DEVICE bool group_all(bool so, int barrier) {
#ifdef FG_HOST
  static bool not_so[16];
  const auto meet = [&] { cuda_host::cuda_host_barrier((unsigned)barrier, 128); };
  if (!so) not_so[barrier] = true;
  meet();
  const bool all = !not_so[barrier];
  meet();
  not_so[barrier] = false;
  meet();
  return all;
#else
  u32 all = so;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %0, 0; barrier.cta.red.and.pred q, %1, 128, p; "
      "selp.u32 %0, 1, 0, q; }"
      : "+r"(all)
      : "r"(barrier)
      : "memory");
  return all;
#endif
}

// Has the compiler work out `x` by here, and not later.
FG_DEVICE void needed(int x) {
#ifndef FG_HOST
  asm volatile("" ::"r"(x) : "memory");
#else
  (void)x;
#endif
}

// Keeps the compiler from working out many addresses at once, for which there are no registers.
template <class T>
FG_DEVICE void keep_order(const T *&pointer) {
#ifndef FG_HOST
  asm volatile("" : "+l"(pointer));
#endif
}

// Products -------------------------------------------------------------------------------------------

// Describes the panel at `tile` to a product: rows of eight next to each other, the panel of the next
// 64 rows or columns `apart` bytes away, where K goes across.
FG_DEVICE u64 describe_panel(const void *tile, int apart = 8192) {
#ifdef FG_HOST
  const u64 at = (u64)((const unsigned char *)tile - cuda_host::cuda_host_now->dynamic_shared);
#else
  const u64 at = shared_address(tile);
#endif
  return (at & 0x3ffff) >> 4 | (u64)(apart >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// What a description gains for the next 16 elements along K.
template <bool TRANSPOSED>
constexpr u64 NEXT_PANEL_16 = (TRANSPOSED ? 16 * 128 : 32) >> 4;

#ifdef FG_HOST
// One thread's part of a product that is done when it is waited for.
struct WgmmaLater {
  f32 *d;
  u64 a, b;
  int accumulate, n, a_transposed, b_transposed, warp, lane;
  const unsigned char *shared;
  f32 (*widen)(const unsigned char *);
  // Of a product whose a is in registers: these, what was in them, and both rows of a.
  const u32 *held;
  u32 was[4], rows[2][8];
};
template <class T>
f32 wgmma_widen(const unsigned char *p) {
  T x;
  memcpy(&x, p, 2);
  return widen(x);
}
// An element of an operand; `at` counts rows of x or columns of w.
static inline f32 wgmma_element(const WgmmaLater &one, u64 panel, bool transposed, int at, int k) {
  if (panel >> 62 != 1) cuda_host::cuda_host_fail("wgmma: a layout that is not emulated");
  const u32 start = (u32)(panel & 0x3fff) << 4;
  const u32 leading = (u32)(panel >> 16 & 0x3fff) << 4, stride = (u32)(panel >> 32 & 0x3fff) << 4;
  const u32 place = transposed
                        ? start + at / 64 * leading + at % 64 * 2 + k / 8 * stride + k % 8 * 128
                        : start + at / 8 * stride + at % 8 * 128 + k * 2;
  return one.widen(one.shared + (place ^ (place >> 7 & 7) << 4));
}
static inline void wgmma_work(const void *data) {
  WgmmaLater one;
  memcpy(&one, data, sizeof one);
  if (one.held && memcmp(one.held, one.was, sizeof one.was))
    cuda_host::cuda_host_fail("wgmma: registers were changed while a product read them");
  f32 a[2][16], b[16];
  for (int h = 0; h < 2; h++)
    for (int k = 0; k < 16; k++)
      a[h][k] = one.held ? one.widen((const unsigned char *)one.rows[h] + k * 2)
                         : wgmma_element(one, one.a, one.a_transposed,
                                         one.warp % 4 * 16 + one.lane / 4 + h * 8, k);
  for (int j = 0; j < one.n / 8; j++)
    for (int c = 0; c < 2; c++) {
      for (int k = 0; k < 16; k++)
        b[k] = wgmma_element(one, one.b, one.b_transposed, j * 8 + one.lane % 4 * 2 + c, k);
      for (int h = 0; h < 2; h++) {
        f32 *d = one.d + j * 4 + h * 2 + c, sum = one.accumulate ? *d : 0.0f;
        for (int k = 0; k < 16; k++) sum += a[h][k] * b[k];
        *d = sum;
      }
    }
}
#else
#define FG_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FG_R8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define FG_R16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define FG_R24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define FG_R32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define FG_R40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define FG_R48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define FG_R56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define FG_R64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define FG_R72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define FG_R80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define FG_R88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define FG_R96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define FG_R104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define FG_R112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define FG_R120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define FG_D8(i)                                                                                   \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),      \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FG_WGMMA(N, TYPE, REGISTERS, A, B, ACCUMULATE, A_ACROSS, B_ACROSS, ...)                    \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE                                        \
               ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
               "}, " A ", " B ", p, 1, 1, " A_ACROSS ", " B_ACROSS "; }"                           \
               : __VA_ARGS__                                                                       \
               : "l"(a), "l"(b), "r"((i32)accumulate), "n"((int)A_TRANSPOSED),                     \
                 "n"((int)B_TRANSPOSED))

#define FG_WGMMA_HELD(N, TYPE, REGISTERS, A, B, ACCUMULATE, B_ACROSS, ...)                         \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE                                        \
               ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
               "}, {" A "}, " B ", p, 1, 1, " B_ACROSS "; }"                                       \
               : __VA_ARGS__                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((i32)accumulate),         \
                 "n"((int)B_TRANSPOSED))

#define FG_WGMMA_HELD_OF(TYPE)                                                                     \
  if constexpr (N == 64)                                                                           \
    FG_WGMMA_HELD(64, TYPE, FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24, "%32, %33, %34, %35", "%36", \
                  "%37", "%38", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24));                         \
  else if constexpr (N == 128)                                                                     \
    FG_WGMMA_HELD(128, TYPE,                                                                       \
                  FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40 ", " FG_R48     \
                        ", " FG_R56,                                                               \
                  "%64, %65, %66, %67", "%68", "%69", "%70", FG_D8(0), FG_D8(8), FG_D8(16),        \
                  FG_D8(24), FG_D8(32), FG_D8(40), FG_D8(48), FG_D8(56));

#define FG_WGMMA_OF(TYPE)                                                                          \
  if constexpr (N == 16)                                                                           \
    FG_WGMMA(16, TYPE, FG_R0, "%8", "%9", "%10", "%11", "%12", FG_D8(0));                          \
  else if constexpr (N == 32)                                                                      \
    FG_WGMMA(32, TYPE, FG_R0 ", " FG_R8, "%16", "%17", "%18", "%19", "%20", FG_D8(0), FG_D8(8));   \
  else if constexpr (N == 48)                                                                      \
    FG_WGMMA(48, TYPE, FG_R0 ", " FG_R8 ", " FG_R16, "%24", "%25", "%26", "%27", "%28", FG_D8(0),  \
             FG_D8(8), FG_D8(16));                                                                 \
  else if constexpr (N == 64)                                                                      \
    FG_WGMMA(64, TYPE, FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24, "%32", "%33", "%34", "%35",       \
             "%36", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24));                                     \
  else if constexpr (N == 96)                                                                      \
    FG_WGMMA(96, TYPE, FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40, "%48",    \
             "%49", "%50", "%51", "%52", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24), FG_D8(32),      \
             FG_D8(40));                                                                           \
  else if constexpr (N == 128)                                                                     \
    FG_WGMMA(128, TYPE,                                                                            \
             FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40 ", " FG_R48          \
                   ", " FG_R56,                                                                    \
             "%64", "%65", "%66", "%67", "%68", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24),          \
             FG_D8(32), FG_D8(40), FG_D8(48), FG_D8(56));                                          \
  else if constexpr (N == 144)                                                                     \
    FG_WGMMA(144, TYPE,                                                                            \
             FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40 ", " FG_R48          \
                   ", " FG_R56 ", " FG_R64,                                                        \
             "%72", "%73", "%74", "%75", "%76", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24),          \
             FG_D8(32), FG_D8(40), FG_D8(48), FG_D8(56), FG_D8(64));                               \
  else if constexpr (N == 192)                                                                     \
    FG_WGMMA(192, TYPE,                                                                            \
             FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40 ", " FG_R48          \
                   ", " FG_R56 ", " FG_R64 ", " FG_R72 ", " FG_R80 ", " FG_R88,                    \
             "%96", "%97", "%98", "%99", "%100", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24),         \
             FG_D8(32), FG_D8(40), FG_D8(48), FG_D8(56), FG_D8(64), FG_D8(72), FG_D8(80),          \
             FG_D8(88));                                                                           \
  else if constexpr (N == 256)                                                                     \
    FG_WGMMA(256, TYPE,                                                                            \
             FG_R0 ", " FG_R8 ", " FG_R16 ", " FG_R24 ", " FG_R32 ", " FG_R40 ", " FG_R48          \
                   ", " FG_R56 ", " FG_R64 ", " FG_R72 ", " FG_R80 ", " FG_R88 ", " FG_R96         \
                   ", " FG_R104 ", " FG_R112 ", " FG_R120,                                         \
             "%128", "%129", "%130", "%131", "%132", FG_D8(0), FG_D8(8), FG_D8(16), FG_D8(24),     \
             FG_D8(32), FG_D8(40), FG_D8(48), FG_D8(56), FG_D8(64), FG_D8(72), FG_D8(80),          \
             FG_D8(88), FG_D8(96), FG_D8(104), FG_D8(112), FG_D8(120));
#endif

// d (64 x N) = a b, plus d if `accumulate`, with a of 64 x 16, b of 16 x N elements T (f16 or bf16).
// Of d a thread of warp w of its group holds, with g = lane / 4 and p = lane % 4 * 2, in d[4 j] to
// d[4 j + 3] rows 16 w + g, the same, 16 w + g + 8, the same; columns 8 j + p, 8 j + p + 1, the same.
// The product is done when it has been committed and waited for.
template <class T, int N, bool A_TRANSPOSED, bool B_TRANSPOSED>
FG_DEVICE void wgmma_64(f32 (&d)[N / 2], u64 a, u64 b, bool accumulate) {
#ifdef FG_HOST
  __syncwarp();
  const WgmmaLater later = {d,
                            a,
                            b,
                            accumulate,
                            N,
                            A_TRANSPOSED,
                            B_TRANSPOSED,
                            (int)threadIdx.x / 32,
                            (int)threadIdx.x % 32,
                            cuda_host::cuda_host_now->dynamic_shared,
                            wgmma_widen<T>,
                            nullptr,
                            {},
                            {}};
  cuda_host::cuda_host_later(wgmma_work, &later, sizeof later);
#else
  static_assert(N == 16 || N == 32 || N == 48 || N == 64 || N == 96 || N == 128 || N == 144 ||
                    N == 192 || N == 256,
                "a width above");
  if constexpr (Same<T, f16>::value) {
    FG_WGMMA_OF("f16")
  } else {
    FG_WGMMA_OF("bf16")
  }
#endif
}
// The same with a in registers, as the warps hold d (a[0] two columns of the first row, a[1] of the
// second, a[2] and a[3] the same eight columns further); N is 64 or 128. They keep what they hold until
// the product is done.
template <class T, int N, bool B_TRANSPOSED>
FG_DEVICE void wgmma_64_held(f32 (&d)[N / 2], const u32 (&a)[4], u64 b, bool accumulate) {
#ifdef FG_HOST
  WgmmaLater later = {d,
                      0,
                      b,
                      accumulate,
                      N,
                      false,
                      B_TRANSPOSED,
                      (int)threadIdx.x / 32,
                      (int)threadIdx.x % 32,
                      cuda_host::cuda_host_now->dynamic_shared,
                      wgmma_widen<T>,
                      a,
                      {a[0], a[1], a[2], a[3]},
                      {}};
  for (int i = 0; i < 16; i++)
    later.rows[i / 4 % 2][i / 8 * 4 + i % 4] = __shfl_sync(0xffffffffu, a[i / 4], i % 4, 4);
  cuda_host::cuda_host_later(wgmma_work, &later, sizeof later);
#else
  static_assert(N == 64 || N == 128, "a width above");
  if constexpr (Same<T, f16>::value) {
    FG_WGMMA_HELD_OF("f16")
  } else {
    FG_WGMMA_HELD_OF("bf16")
  }
#endif
}
// Products from here on see what came before, also in registers.
FG_DEVICE void wgmma_fence() {
#ifndef FG_HOST
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
FG_DEVICE void wgmma_commit() {
#ifdef FG_HOST
  cuda_host::cuda_host_later_commit();
#else
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until at most PENDING of the committed groups are under way.
template <int PENDING>
FG_DEVICE void wgmma_wait() {
#ifdef FG_HOST
  cuda_host::cuda_host_later_wait(PENDING);
  __syncwarp();
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
}
// Keeps the compiler from moving sums while products write them.
template <int N>
FG_DEVICE void hold(f32 (&d)[N]) {
#ifndef FG_HOST
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
#endif
}
