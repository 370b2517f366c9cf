// What all probes share: reporting, failing, timing, and short ways to build graphs.
//
// A probe is an `extern "C" int f()` that prints its findings as lines
//   @ <tab> name <tab> value <tab> unit <tab> CUresult <tab> note
// and returns 0, or prints what failed and returns 1. Lines are flushed one by one, so that what
// was found before a crash is kept. The parent process is facts.py.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

inline void say(const std::string &name, double value, const char *unit, int code = 0,
                const std::string &note = "") {
  std::printf("@\t%s\t%.9g\t%s\t%d\t%s\n", name.c_str(), value, unit, code, note.c_str());
  std::fflush(stdout);
}

// Whether a call was taken: value 1 or 0, with the driver's answer.
inline CUresult verdict(const std::string &name, CUresult code, const std::string &note = "") {
  say(name, code == CUDA_SUCCESS, "accepted", code, note);
  return code;
}

struct Failure : std::runtime_error {
  Failure(int code, const std::string &what) : std::runtime_error(what), code(code) {}
  int code;
};

inline void must(CUresult code, const char *call, const char *file, int line) {
  if (code == CUDA_SUCCESS) return;
  const char *name = "?";
  cuGetErrorName(code, &name);
  const char *base = std::strrchr(file, '/');
  throw Failure(code, std::string(base ? base + 1 : file) + ":" + std::to_string(line) + ": " +
                          call + " gave " + name);
}
#define MUST(call) must((call), #call, __FILE__, __LINE__)

inline void expect(bool truth, const std::string &what) {
  if (!truth) throw Failure(0, "not as expected: " + what);
}

template <class Work>
int guarded(Work &&work) {
  try {
    work();
    return 0;
  } catch (const Failure &failure) {
    say("failed", NAN, "", failure.code, failure.what());
  } catch (const std::exception &error) {
    say("failed", NAN, "", -1, error.what());
  }
  return 1;
}

// ---- time ----------------------------------------------------------------------------------------
inline double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

template <class Call>
double timed(Call &&call) {
  const double t = now_us();
  call();
  return now_us() - t;
}

struct Samples {
  std::vector<double> us;
  void add(double value) { us.push_back(value); }
  double at(double fraction) {
    expect(!us.empty(), "samples were taken");
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, static_cast<size_t>(fraction * us.size()))];
  }
  void report(const std::string &name, const std::string &note = "") {
    say(name + " p50", at(0.5), "us", 0, note);
    say(name + " p99", at(0.99), "us", 0, note);
  }
  void median(const std::string &name, const std::string &note = "") {
    say(name, at(0.5), "us", 0, note);
  }
};

// ---- the device, opened once in a process ---------------------------------------------------------
struct Rig {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUstream stream;
  CUdeviceptr data;  // 1 MiB, zeroed
  float *pinned;     // 1 MiB, zeroed, mapped
  CUfunction function(const char *name) const {
    CUfunction f;
    MUST(cuModuleGetFunction(&f, module, name));
    return f;
  }
  void wait() const { MUST(cuStreamSynchronize(stream)); }
  float first(CUdeviceptr where) const {
    float value;
    wait();
    MUST(cuMemcpyDtoH(&value, where, sizeof value));
    return value;
  }
  void zero(CUdeviceptr where, size_t words = 64) const {
    MUST(cuMemsetD32(where, 0, words));
    MUST(cuCtxSynchronize());
  }
};
Rig &rig();

// ---- nodes ------------------------------------------------------------------------------------------
// Arguments live in one static place until the next call of `kernel`; the driver copies them when
// the node is added or set.
inline char argument_bytes[8][256];
inline void *argument_pointers[8];

template <class... Values>
CUgraphNodeParams kernel(CUfunction f, unsigned grid, unsigned block, Values... values) {
  unsigned n = 0;
  auto put = [&](const void *value, size_t size) {
    std::memcpy(argument_bytes[n], value, size);
    argument_pointers[n] = argument_bytes[n];
    ++n;
  };
  (put(&values, sizeof values), ...);
  CUgraphNodeParams p;
  std::memset(&p, 0, sizeof p);
  p.type = CU_GRAPH_NODE_TYPE_KERNEL;
  p.kernel.func = f;
  p.kernel.gridDimX = grid;
  p.kernel.gridDimY = p.kernel.gridDimZ = 1;
  p.kernel.blockDimX = block;
  p.kernel.blockDimY = p.kernel.blockDimZ = 1;
  p.kernel.kernelParams = argument_pointers;
  return p;
}

CUDA_KERNEL_NODE_PARAMS narrow(const CUgraphNodeParams &p);  // for the older calls
CUgraphNodeParams fill(CUdeviceptr to, unsigned value, size_t n, unsigned size = 4, size_t rows = 1);
CUgraphNodeParams copy(uintptr_t to, bool to_host, uintptr_t from, bool from_host, size_t bytes);
CUgraphNodeParams nothing();
CUgraphNodeParams child(CUgraph graph, bool move = false);
CUgraphNodeParams host(CUhostFn f, void *data);

using Nodes = std::vector<CUgraphNode>;
CUgraphEdgeData programmatic();
CUresult try_add(CUgraph graph, CUgraphNodeParams p, const Nodes &after, CUgraphNode *node,
                 const std::vector<CUgraphEdgeData> &edges = {});
CUgraphNode add(CUgraph graph, CUgraphNodeParams p, const Nodes &after = {},
                const std::vector<CUgraphEdgeData> &edges = {});
CUgraph new_graph();
CUgraphExec executable(CUgraph graph, unsigned long long flags = 0);
void run(CUgraphExec exec);  // launch and wait
void raise_clocks();         // an idle device is slow: keeps it at work for a while
bool goes(const std::string &name, CUgraph graph);  // instantiates and runs, saying where it ends

struct Conditional {
  CUgraph graph;
  CUgraphNode node;
  CUgraphConditionalHandle handle;
  CUgraph body;
};
Conditional conditional(CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF, CUgraph in = nullptr,
                        unsigned initial = 1);
// The same node without failing: for where it may be refused.
CUgraphNodeParams conditional_params(CUgraphConditionalNodeType type, CUgraph in, unsigned initial,
                                     CUgraphConditionalHandle *handle);

// A chain (or several side by side) of n kernels that each take `data` alone.
Nodes chain(CUgraph graph, CUfunction f, int n, bool early = false, int lanes = 1);
