// Which kernel tables this build holds and which of them this machine can run.
#ifndef FG_ISA_HPP
#define FG_ISA_HPP

#include "kernels/fg_kernel.h"

#if defined(__x86_64__)
namespace v2 {
fg_kernel lookup(const char *name);
}
namespace v3 {
fg_kernel lookup(const char *name);
}
namespace v4 {
fg_kernel lookup(const char *name);
}
#else
namespace neon {
fg_kernel lookup(const char *name);
}
#endif

struct fg_isa {
  const char *name;
  bool runs;
  fg_kernel (*lookup)(const char *name);
};

// Worst first, so that the last that runs is the one to choose.
static inline int fg_isas(fg_isa out[4]) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool has3 = has2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi");
  const bool has4 = has3 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  out[0] = {"x86-64-v2", has2, v2::lookup};
  out[1] = {"x86-64-v3", has3, v3::lookup};
  out[2] = {"x86-64-v4", has4, v4::lookup};
  return 3;
#else
  out[0] = {"aarch64", true, neon::lookup};
  return 1;
#endif
}

#endif
