// What the probes of the device time beside the package: the same work on the same kernels and
// executables, called from C++. Nothing here belongs to `rig()`: streams, functions, executables
// and addresses come from the caller, so that both sides of a comparison live in one process.
#include "probe.h"

namespace {

CUfunction linger_function;

CUgraphExec as_exec(void *exec) { return static_cast<CUgraphExec>(exec); }
CUstream as_stream(void *stream) { return static_cast<CUstream>(stream); }

// A kernel over one pointer and, where there is one, a value or a second pointer.
CUgraphNodeParams call_of(void *function, CUdeviceptr data, int value, CUdeviceptr other) {
  const CUfunction f = static_cast<CUfunction>(function);
  if (other) return kernel(f, 1, 32, data, other);
  return kernel(f, 1, 32, data, value);
}

void launch_linger(CUstream stream, unsigned long long ns) {
  kernel(linger_function, 1, 1, ns);
  MUST(cuLaunchKernel(linger_function, 1, 1, 1, 1, 1, 1, 0, stream, argument_pointers, nullptr));
}

}  // namespace

// The kernel that keeps a stream busy, and this thread's context: the primary one.
extern "C" int twin_open(void *linger) {
  return guarded([&] {
    CUdevice device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    linger_function = static_cast<CUfunction>(linger);
  });
}

// The time between two looks at the clock: part of every time here.
extern "C" int twin_clock(int samples, double *us) {
  for (int i = 0; i < samples; ++i) us[i] = timed([] {});
  return 0;
}

extern "C" int twin_busy(void *stream, unsigned long long ns) {
  return guarded([&] { launch_linger(as_stream(stream), ns); });
}

extern "C" int twin_wait(void *stream) {
  return guarded([&] { MUST(cuStreamSynchronize(as_stream(stream))); });
}

// Launch calls, `together` timed as one, each sample's share of it in `us`. With `busy_ns` one
// more launch and a kernel of that length lie before them in the stream; else it is empty.
extern "C" int twin_launches(void *exec, void *stream, int samples, unsigned long long busy_ns,
                             int together, double *us) {
  return guarded([&] {
    for (int i = 0; i < samples; ++i) {
      if (busy_ns) {
        launch_linger(as_stream(stream), busy_ns);
        MUST(cuGraphLaunch(as_exec(exec), as_stream(stream)));
      }
      us[i] = timed([&] {
                for (int k = 0; k < together; ++k)
                  MUST(cuGraphLaunch(as_exec(exec), as_stream(stream)));
              }) /
              together;
      MUST(cuStreamSynchronize(as_stream(stream)));
    }
  });
}

// `together` launches one behind the other and one wait, each launch's share of it.
extern "C" int twin_rounds(void *exec, void *stream, int samples, int together, double *us) {
  return guarded([&] {
    for (int i = 0; i < samples; ++i)
      us[i] = timed([&] {
                for (int k = 0; k < together; ++k)
                  MUST(cuGraphLaunch(as_exec(exec), as_stream(stream)));
                MUST(cuStreamSynchronize(as_stream(stream)));
              }) /
              together;
  });
}

// n launches of a kernel; also into a stream that somebody captures.
extern "C" int twin_enqueue(void *function, void *stream, CUdeviceptr data, int n) {
  return guarded([&] {
    const CUfunction f = static_cast<CUfunction>(function);
    kernel(f, 1, 32, data);
    for (int i = 0; i < n; ++i)
      MUST(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, as_stream(stream), argument_pointers, nullptr));
  });
}

extern "C" int twin_eager(void *function, void *stream, CUdeviceptr data, int n, int samples,
                          double *us) {
  int code = 0;
  for (int i = 0; i < samples && !code; ++i)
    us[i] = timed([&] {
      code = twin_enqueue(function, stream, data, n);
      if (!code) code = twin_wait(stream);
    });
  return code;
}

// ---- graphs of n such kernels --------------------------------------------------------------------
struct TwinGraph {
  CUgraph graph;
  CUgraphExec exec;
  Nodes nodes;
};

// One chain, or several side by side, each over a page of its own. Edges are programmatic where
// `early` says so. `us` takes the times of adding and of instantiating.
extern "C" TwinGraph *twin_build(void *function, CUdeviceptr data, int value, CUdeviceptr other,
                                 int n, int lanes, int early, double *us) {
  TwinGraph *made = new TwinGraph{};
  const int code = guarded([&] {
    us[0] = timed([&] {
      MUST(cuGraphCreate(&made->graph, 0));
      CUgraphEdgeData edge;
      std::memset(&edge, 0, sizeof edge);
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      made->nodes.resize(n);
      for (int i = 0; i < n; ++i) {
        CUgraphNodeParams p = call_of(function, data + 4096 * (i % lanes), value, other);
        const bool first = i < lanes;
        MUST(cuGraphAddNode(&made->nodes[i], made->graph, first ? nullptr : &made->nodes[i - lanes],
                            early && !first ? &edge : nullptr, first ? 0 : 1, &p));
      }
    });
    us[1] = timed([&] { MUST(cuGraphInstantiate(&made->exec, made->graph, 0)); });
  });
  if (!code) return made;
  delete made;
  return nullptr;
}

extern "C" void *twin_exec(TwinGraph *twin) { return twin->exec; }

extern "C" int twin_drop(TwinGraph *twin) {
  return guarded([&] {
    MUST(cuGraphExecDestroy(twin->exec));
    MUST(cuGraphDestroy(twin->graph));
    delete twin;
  });
}

// Gives `count` nodes from `first` on another value, in the executable alone; the time of all.
extern "C" int twin_set(TwinGraph *twin, int first, int count, void *function, CUdeviceptr data,
                        int value, double *us) {
  return guarded([&] {
    *us = timed([&] {
      for (int i = first; i < first + count; ++i) {
        CUgraphNodeParams p = call_of(function, data, value, 0);
        MUST(cuGraphExecNodeSetParams(twin->exec, twin->nodes[i], &p));
      }
    });
  });
}

// ---- inputs -----------------------------------------------------------------------------------------
// Copies in `count` pieces of `bytes` and launches. From the device: one batch, `to` by `from`.
// From the host: all into `staging`, which is pinned, and one copy to the first of `to`, behind
// which the others lie. The call alone, and the call with its wait.
extern "C" int twin_inputs(void *exec, void *stream, int count, size_t bytes, const uint64_t *to,
                           const uint64_t *from, void *staging, size_t stride, int samples,
                           double *call, double *done) {
  return guarded([&] {
    std::vector<CUdeviceptr> dst(to, to + count), src(from, from + count);
    std::vector<size_t> sizes(count, bytes);
    CUmemcpyAttributes how;
    std::memset(&how, 0, sizeof how);
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t every = 0;
    for (int i = 0; i < samples; ++i) {
      const double t = now_us();
      if (!staging) {
        MUST(cuMemcpyBatchAsync(dst.data(), src.data(), sizes.data(), count, &how, &every, 1,
                                as_stream(stream)));
      } else {
        for (int k = 0; k < count; ++k)
          std::memcpy(static_cast<char *>(staging) + k * stride,
                      reinterpret_cast<const void *>(from[k]), bytes);
        MUST(cuMemcpyHtoDAsync(dst[0], staging, (count - 1) * stride + bytes, as_stream(stream)));
      }
      MUST(cuGraphLaunch(as_exec(exec), as_stream(stream)));
      call[i] = now_us() - t;
      MUST(cuStreamSynchronize(as_stream(stream)));
      done[i] = now_us() - t;
    }
  });
}
