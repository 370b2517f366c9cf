// The C loop that `replay()` is measured against: the launch call, and the launch with its wait.
#include "probe.h"

namespace {

void keep_busy(unsigned long long ns, CUstream stream) {
  static const CUfunction linger = rig().function("linger");
  kernel(linger, 1, 1, ns);
  MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, stream, argument_pointers, nullptr));
}

// One timed launch. Busy: an earlier launch of the same executable still waits in the stream.
void measure(CUgraphExec exec, CUstream stream, unsigned long long busy_ns, double *call,
             double *done) {
  if (busy_ns) {
    keep_busy(busy_ns, stream);
    MUST(cuGraphLaunch(exec, stream));
  }
  const double t = now_us();
  MUST(cuGraphLaunch(exec, stream));
  *call = now_us() - t;
  MUST(cuStreamSynchronize(stream));
  *done = now_us() - t;
}

}  // namespace

// For a benchmark that holds an executable of its own, so that both are timed in one process.
// `busy_ns` 0 means a drained stream. `call` and `done` take `rounds` times in microseconds.
extern "C" int twin_measure(void *exec, void *stream, int rounds, unsigned long long busy_ns,
                            double *call, double *done) {
  return guarded([&] {
    for (int i = 0; i < rounds; ++i)
      measure(static_cast<CUgraphExec>(exec), static_cast<CUstream>(stream), busy_ns, call + i,
              done + i);
  });
}

extern "C" int probe_launch_twin() {
  return guarded([] {
    Rig &r = rig();
    const CUfunction inc = r.function("inc"), early = r.function("inc_early");
    raise_clocks();
    struct Shape {
      const char *name;
      CUfunction f;
      bool programmatic;
      int lanes;
    };
    const Shape shapes[] = {{"plain", inc, false, 1},
                            {"programmatic", early, true, 1},
                            {"eight chains", inc, false, 8}};
    for (int n : {1, 10, 100, 1000}) {
      struct Row {
        const Shape *shape;
        CUgraphExec exec;
        Samples call, done, busy_call, back_to_back;
        int launches;
      };
      std::vector<Row> rows;
      r.zero(r.data, 8 * 1024);
      for (const Shape &shape : shapes) {
        if (n < shape.lanes) continue;
        CUgraph g = new_graph();
        chain(g, shape.f, n, shape.programmatic, shape.lanes);
        CUgraphExec exec = executable(g);
        MUST(cuGraphUpload(exec, r.stream));
        rows.push_back({&shape, exec, {}, {}, {}, {}, 0});
        for (int i = 0; i < 20; ++i, ++rows.back().launches) run(exec);
      }
      Samples eager;
      const int rounds = n >= 1000 ? 60 : 300, together = 10;
      for (int i = 0; i < rounds; ++i) {
        for (Row &row : rows) {
          double call, done;
          measure(row.exec, r.stream, 0, &call, &done);
          row.call.add(call);
          row.done.add(done);
          measure(row.exec, r.stream, 50000ull + 1000ull * n, &call, &done);
          row.busy_call.add(call);
          row.launches += 3;
          if (i % 10) continue;
          const double t = now_us();
          for (int k = 0; k < together; ++k) MUST(cuGraphLaunch(row.exec, r.stream));
          r.wait();
          row.back_to_back.add((now_us() - t) / together);
          row.launches += together;
        }
        if (i % 10) continue;
        kernel(inc, 1, 32, r.data + 65536);
        const double t = now_us();
        for (int k = 0; k < n; ++k)
          MUST(cuLaunchKernel(inc, 1, 1, 1, 32, 1, 1, 0, r.stream, argument_pointers, nullptr));
        r.wait();
        eager.add(now_us() - t);
      }
      float sum = 0, expected = 0;
      for (int lane = 0; lane < 8; ++lane) sum += r.first(r.data + 4096 * lane);
      for (Row &row : rows) expected += static_cast<float>(row.launches) * n;
      expect(sum == expected, "each kernel of each launch ran once, in order");
      for (Row &row : rows) {
        const std::string name = std::string(row.shape->name) + ", " + std::to_string(n) + ": ";
        row.call.report(name + "launch call, drained");
        row.busy_call.report(name + "launch call, busy");
        row.done.report(name + "launch + wait");
        row.back_to_back.median(name + "back to back, each");
        say(name + "per node", row.back_to_back.at(0.5) / n, "us");
      }
      eager.median("eager launches, " + std::to_string(n) + ": all + wait");
    }
  });
}
