// The perceptron 784-512-512-10 at batch 1, from host memory to host memory, written in C++.
#include <atomic>
#include <functional>
#include <random>

#include "probe.h"

namespace {

constexpr int IN = 784, MID = 512, OUT = 10, INPUTS = 16;

struct Layer {
  int k, n;
  std::vector<float> w, b;
  CUdeviceptr device_w, device_b;
  Layer(int k, int n, std::mt19937 &random) : k(k), n(n), w(size_t(k) * n), b(n) {
    std::normal_distribution<float> weight(0.0f, 1.4f / std::sqrt(float(k))), bias(0.0f, 0.3f);
    for (float &v : w) v = weight(random);
    for (float &v : b) v = bias(random);
    MUST(cuMemAlloc(&device_w, w.size() * 4));
    MUST(cuMemAlloc(&device_b, b.size() * 4));
    MUST(cuMemcpyHtoD(device_w, w.data(), w.size() * 4));
    MUST(cuMemcpyHtoD(device_b, b.data(), b.size() * 4));
  }
  std::vector<double> reference(const std::vector<double> &x, bool last) const {
    std::vector<double> y(n);
    for (int i = 0; i < n; ++i) {
      double sum = b[i];
      for (int j = 0; j < k; ++j) sum += double(w[size_t(i) * k + j]) * x[j];
      y[i] = last ? sum : 0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0)));
    }
    return y;
  }
};

struct Model {
  std::mt19937 random{7};
  Layer one{IN, MID, random}, two{MID, MID, random}, three{MID, OUT, random};
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<double>> answers;
  CUdeviceptr x, h1, h2, y, turn;
  float *staged, *out;  // pinned and mapped
  volatile unsigned *flag;
  CUdeviceptr staged_d, out_d, flag_d;
  unsigned turns = 0;

  Model() {
    std::normal_distribution<float> pixel(0.0f, 1.0f);
    for (int i = 0; i < INPUTS; ++i) {
      std::vector<float> v(IN);
      for (float &p : v) p = pixel(random);
      inputs.push_back(v);
      std::vector<double> d(v.begin(), v.end());
      answers.push_back(
          three.reference(two.reference(one.reference(d, false), false), true));
    }
    for (CUdeviceptr *p : {&x, &h1, &h2, &y, &turn}) MUST(cuMemAlloc(p, 4096));
    rig().zero(turn, 1);
    auto map = [](CUdeviceptr *device) {
      void *p;
      MUST(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
      std::memset(p, 0, 4096);
      MUST(cuMemHostGetDevicePointer(device, p, 0));
      return p;
    };
    staged = static_cast<float *>(map(&staged_d));
    out = static_cast<float *>(map(&out_d));
    flag = static_cast<volatile unsigned *>(map(&flag_d));
  }

  struct Form {
    bool copies = false, early = false, flagged = false;
  };

  // The kernels in their order, each handed to `place`.
  void kernels(Form f, const std::function<void(CUgraphNodeParams)> &place) const {
    const Rig &r = rig();
    auto pick = [&](const char *plain, const char *early) {
      return r.function(f.early ? early : plain);
    };
    if (!f.copies) place(kernel(pick("copy_in", "copy_in_early"), 1, IN / 4, staged_d, x));
    place(kernel(pick("hidden_784", "hidden_784_early"), MID / 4, 128, x, one.device_w,
                 one.device_b, h1));
    place(kernel(pick("hidden_512", "hidden_512_early"), MID / 4, 128, h1, two.device_w,
                 two.device_b, h2));
    place(kernel(pick("logits_plain", "logits_early"), 1, 32 * OUT, h2, three.device_w,
                 three.device_b, f.copies ? y : out_d, f.flagged ? flag_d : CUdeviceptr(0), turn));
  }

  CUgraphExec graph(Form f) const {
    CUgraph g = new_graph();
    CUgraphNode last = nullptr;
    if (f.copies) last = add(g, copy(x, false, reinterpret_cast<uintptr_t>(staged), true, IN * 4));
    kernels(f, [&](CUgraphNodeParams p) {
      if (!last) last = add(g, p);
      else if (f.early) last = add(g, p, {last}, {programmatic()});
      else last = add(g, p, {last});
    });
    if (f.copies) add(g, copy(reinterpret_cast<uintptr_t>(out), true, y, false, OUT * 4), {last});
    CUgraphExec exec = executable(g);
    MUST(cuGraphUpload(exec, rig().stream));
    rig().wait();
    return exec;
  }

  void await_flag() {
    const unsigned expected = ++turns;
    const double until = now_us() + 1e6;
    while (*flag != expected)
      if (now_us() > until) throw Failure(0, "the completion flag never came");
    std::atomic_thread_fence(std::memory_order_acquire);
  }
};

}  // namespace

extern "C" int probe_mlp_twin() {
  return guarded([] {
    Rig &r = rig();
    raise_clocks();
    static Model m;
    struct Way {
      const char *name;
      Model::Form form;
      CUgraphExec exec;
      Samples hot, cold, call;
    };
    std::vector<Way> ways = {
        {"memcpy nodes, stream wait", {true, false, false}, nullptr, {}, {}, {}},
        {"copy-in kernel, mapped output", {false, false, false}, nullptr, {}, {}, {}},
        {"… with programmatic edges", {false, true, false}, nullptr, {}, {}, {}},
        {"… with a completion flag", {false, false, true}, nullptr, {}, {}, {}},
        {"… with both", {false, true, true}, nullptr, {}, {}, {}},
        {"eager kernels, mapped output", {false, false, false}, nullptr, {}, {}, {}},
    };
    for (size_t i = 0; i + 1 < ways.size(); ++i) ways[i].exec = m.graph(ways[i].form);
    struct Launch {
      CUgraphNodeParams params;
      char bytes[8][256];
      void *pointers[8];
    };
    static std::vector<Launch> eager;
    m.kernels(ways.back().form, [](CUgraphNodeParams p) {
      eager.push_back({p, {}, {}});
      std::memcpy(eager.back().bytes, argument_bytes, sizeof argument_bytes);
    });
    for (Launch &l : eager)
      for (int i = 0; i < 8; ++i) l.pointers[i] = l.bytes[i];

    CUdeviceptr sweep;
    const size_t swept = 256u << 20;  // several times the second-level cache
    MUST(cuMemAlloc(&sweep, swept));
    double worst = 0;
    float y[OUT];
    auto trip = [&](Way &way, int i, Samples &times, Samples *calls) {
      const std::vector<float> &x = m.inputs[i % INPUTS];
      for (float &v : y) v = NAN;
      for (int k = 0; k < OUT; ++k) m.out[k] = NAN;
      const double t = now_us();
      std::memcpy(m.staged, x.data(), IN * 4);
      if (way.exec) {
        MUST(cuGraphLaunch(way.exec, r.stream));
      } else {
        for (Launch &l : eager)
          MUST(cuLaunchKernel(l.params.kernel.func, l.params.kernel.gridDimX, 1, 1,
                              l.params.kernel.blockDimX, 1, 1, 0, r.stream, l.pointers, nullptr));
      }
      const double launched = now_us();
      if (way.form.flagged) m.await_flag();
      else r.wait();
      std::memcpy(y, m.out, sizeof y);
      times.add(now_us() - t);
      if (calls) calls->add(launched - t);
      double error = 0, size = 0;
      for (int k = 0; k < OUT; ++k) {
        const double d = y[k] - m.answers[i % INPUTS][k];
        error += d * d;
        size += m.answers[i % INPUTS][k] * m.answers[i % INPUTS][k];
      }
      const double relative = std::sqrt(error / size);
      expect(relative < 1e-5, std::string(way.name) + ": relative error " + std::to_string(relative));
      worst = std::max(worst, relative);
    };
    for (Way &way : ways) {
      Samples warm;
      for (int i = 0; i < 50; ++i) trip(way, i, warm, nullptr);
    }
    const int rounds = 40, each = 25;
    for (int round = 0; round < rounds; ++round) {
      for (Way &way : ways)
        for (int i = 0; i < each; ++i) trip(way, round + i, way.hot, &way.call);
      for (Way &way : ways) {
        r.wait();
        MUST(cuMemsetD8Async(sweep, static_cast<unsigned char>(round), swept, r.stream));
        r.wait();
        trip(way, round, way.cold, nullptr);
      }
    }
    for (Way &way : ways) {
      const std::string name = std::string(way.name) + ": ";
      way.hot.report(name + "round trip, hot");
      way.cold.report(name + "round trip, cold");
      way.call.median(name + "copy and launch call");
    }
    say("largest relative error", worst, "", 0, "against float64, every call");
  });
}
