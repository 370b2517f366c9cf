// What calls on graphs cost: updates, whole-graph updates, scalars, host nodes, events, memory.
#include <unistd.h>

#include "probe.h"

namespace {

double resident_bytes() {
  long total = 0, resident = 0;
  FILE *f = std::fopen("/proc/self/statm", "r");
  if (f) {
    if (std::fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return static_cast<double>(resident) * sysconf(_SC_PAGESIZE);
}

double free_device_bytes() {
  size_t available, total;
  MUST(cuMemGetInfo(&available, &total));
  return static_cast<double>(available);
}

Nodes adders(CUgraph g, CUfunction f, int n, float value) {
  Nodes nodes;
  for (int i = 0; i < n; ++i) {
    CUgraphNodeParams p = kernel(f, 1, 1, rig().data, value);
    nodes.push_back(i ? add(g, p, {nodes.back()}) : add(g, p));
  }
  return nodes;
}

void CUDA_CB count(void *counter) { ++*static_cast<volatile int *>(counter); }

struct Inside {
  CUstream stream;
  CUdeviceptr data;
};
void CUDA_CB call_the_driver(void *data) {
  const Inside &in = *static_cast<Inside *>(data);
  CUcontext context = nullptr;
  verdict("in a host node: CtxGetCurrent", cuCtxGetCurrent(&context),
          context ? "a context is current" : "no context is current");
  int value = 0;
  verdict("in a host node: DeviceGetAttribute",
          cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  size_t available, total;
  verdict("in a host node: MemGetInfo", cuMemGetInfo(&available, &total));
  CUevent event;
  verdict("in a host node: EventCreate", cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  verdict("in a host node: StreamQuery", cuStreamQuery(in.stream));
  verdict("in a host node: MemsetD32Async", cuMemsetD32Async(in.data, 0, 1, in.stream));
  CUdeviceptr p;
  verdict("in a host node: MemAlloc", cuMemAlloc(&p, 256));
}

}  // namespace

// A launch after one node's parameters changed, beside a plain launch of the same executable.
extern "C" int probe_update_cost() {
  return guarded([] {
    Rig &r = rig();
    raise_clocks();
    const CUfunction f = r.function("add_value");
    for (int n : {10, 100, 1000}) {
      CUgraph g = new_graph();
      Nodes nodes = adders(g, f, n, 1.0f);
      CUgraphExec exec = executable(g);
      MUST(cuGraphUpload(exec, r.stream));
      for (int i = 0; i < 10; ++i) run(exec);
      const std::string size = std::to_string(n) + " nodes: ";
      const int where[] = {0, n / 2, n - 1};
      const char *names[] = {"first", "middle", "last"};
      Samples plain_call, plain_done, set[3], set_old, after_call[3], after_done[3];
      const int rounds = n >= 1000 ? 100 : 300;
      float expected = 0;
      r.zero(r.data);
      float value = 1.0f, values[3] = {1.0f, 1.0f, 1.0f};
      auto launch = [&](Samples &call, Samples &done) {
        const double t = now_us();
        MUST(cuGraphLaunch(exec, r.stream));
        call.add(now_us() - t);
        MUST(cuStreamSynchronize(r.stream));
        done.add(now_us() - t);
        expected += static_cast<float>(n - 3) + values[0] + values[1] + values[2];
      };
      for (int i = 0; i < rounds; ++i) {
        launch(plain_call, plain_done);
        for (int w = 0; w < 3; ++w) {
          value = static_cast<float>(1 + i % 2);
          CUgraphNodeParams p = kernel(f, 1, 1, r.data, value);
          set[w].add(timed([&] { MUST(cuGraphExecNodeSetParams(exec, nodes[where[w]], &p)); }));
          values[w] = value;
          launch(after_call[w], after_done[w]);
        }
        CUgraphNodeParams p = kernel(f, 1, 1, r.data, values[1]);
        CUDA_KERNEL_NODE_PARAMS old = narrow(p);
        set_old.add(
            timed([&] { MUST(cuGraphExecKernelNodeSetParams(exec, nodes[where[1]], &old)); }));
      }
      expect(r.first(r.data) == expected, "every update took effect in its launch");
      plain_call.report(size + "plain launch call");
      plain_done.median(size + "plain launch + wait");
      for (int w = 0; w < 3; ++w) {
        set[w].median(size + "set " + names[w] + " node");
        after_call[w].report(size + "launch call after setting the " + names[w]);
        after_done[w].median(size + "launch + wait after setting the " + names[w]);
      }
      set_old.median(size + "set middle node, KernelNodeSetParams");

      Samples all_set, all_call, all_done, again_call, update, updated_call, updated_done;
      for (int i = 0; i < 20; ++i) {
        CUgraphNodeParams p = kernel(f, 1, 1, r.data, 1.0f);
        all_set.add(timed([&] {
          for (CUgraphNode node : nodes) MUST(cuGraphExecNodeSetParams(exec, node, &p));
        }));
        launch(all_call, all_done);
        launch(again_call, plain_done);
        p = kernel(f, 1, 1, r.data, static_cast<float>(i % 2));
        MUST(cuGraphNodeSetParams(nodes[0], &p));
        CUgraphExecUpdateResultInfo info;
        update.add(timed([&] { MUST(cuGraphExecUpdate(exec, g, &info)); }));
        launch(updated_call, updated_done);
      }
      all_set.median(size + "set all nodes");
      all_call.median(size + "launch call after setting all");
      all_done.median(size + "launch + wait after setting all");
      again_call.median(size + "second launch call after setting all");
      update.median(size + "ExecUpdate, one node changed");
      updated_call.median(size + "launch call after ExecUpdate");
      updated_done.median(size + "launch + wait after ExecUpdate");

      Samples instantiate, upload;
      for (int i = 0; i < 5; ++i) {
        CUgraphExec fresh;
        instantiate.add(timed([&] { MUST(cuGraphInstantiate(&fresh, g, 0)); }));
        upload.add(timed([&] {
          MUST(cuGraphUpload(fresh, r.stream));
          r.wait();
        }));
        MUST(cuGraphExecDestroy(fresh));
      }
      instantiate.median(size + "instantiate");
      upload.median(size + "upload + wait");
    }
  });
}

// One node of another kind changed: memset, memcpy.
extern "C" int probe_update_cost_kinds() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 65536;
    CUgraph g = new_graph();
    CUgraphNode m = add(g, fill(p, 1, 64)), y = add(g, copy(q, false, p, false, 256), {m});
    CUgraphExec exec = executable(g);
    for (int i = 0; i < 10; ++i) run(exec);
    Samples plain, memset_set, memset_call, memcpy_set, memcpy_call, enabled;
    auto launch = [&](Samples &s) {
      s.add(timed([&] { MUST(cuGraphLaunch(exec, r.stream)); }));
      r.wait();
    };
    for (unsigned i = 0; i < 300; ++i) {
      launch(plain);
      CUgraphNodeParams mp = fill(p, i, 64), yp = copy(q + 256 * (i % 2), false, p, false, 256);
      memset_set.add(timed([&] { MUST(cuGraphExecNodeSetParams(exec, m, &mp)); }));
      launch(memset_call);
      memcpy_set.add(timed([&] { MUST(cuGraphExecNodeSetParams(exec, y, &yp)); }));
      launch(memcpy_call);
      unsigned word;
      MUST(cuMemcpyDtoH(&word, q + 256 * (i % 2), 4));
      expect(word == i, "the new value went to the new place");
      enabled.add(timed([&] { MUST(cuGraphNodeSetEnabled(exec, m, i % 2)); }));
      MUST(cuGraphNodeSetEnabled(exec, m, 1));
    }
    plain.median("memset + memcpy: plain launch call");
    memset_set.median("set a memset");
    memset_call.median("launch call after setting a memset");
    memcpy_set.median("set a memcpy");
    memcpy_call.median("launch call after setting a memcpy");
    enabled.median("NodeSetEnabled");
  });
}

// Bytes that executables take, on the device and in the process.
extern "C" int probe_executable_bytes() {
  return guarded([] {
    Rig &r = rig();
    const CUfunction f = r.function("inc");
    struct Shape {
      const char *name;
      int n, count, lanes;
      bool copies;
    };
    // A first executable opens the driver's own pools; it is not counted.
    {
      CUgraph g = new_graph();
      chain(g, f, 10);
      run(executable(g));
    }
    const Shape shapes[] = {
        {"1 kernel", 1, 256, 1, false},
        {"1,000 kernels", 1000, 16, 1, false},
        {"10,000 kernels", 10000, 2, 1, false},
        {"1,000 kernels in 8 chains", 1000, 16, 8, false},
        {"1,000 device copies", 1000, 16, 1, true},
    };
    for (const Shape &s : shapes) {
      const double nodes = static_cast<double>(s.n) * s.count;
      const std::string name = std::string(s.name) + ": ";
      double host0 = resident_bytes();
      std::vector<CUgraph> graphs;
      for (int i = 0; i < s.count; ++i) {
        CUgraph g = new_graph();
        if (s.copies) {
          CUgraphNode last = nullptr;
          for (int k = 0; k < s.n; ++k) {
            CUgraphNodeParams p = copy(r.data + 4096, false, r.data, false, 64);
            last = last ? add(g, p, {last}) : add(g, p);
          }
        } else {
          chain(g, f, s.n, false, s.lanes);
        }
        graphs.push_back(g);
      }
      double host1 = resident_bytes(), device1 = free_device_bytes();
      std::vector<CUgraphExec> execs;
      for (CUgraph g : graphs) execs.push_back(executable(g));
      double host2 = resident_bytes(), device2 = free_device_bytes();
      for (CUgraphExec e : execs) MUST(cuGraphUpload(e, r.stream));
      r.wait();
      double device3 = free_device_bytes();
      for (CUgraphExec e : execs) MUST(cuGraphLaunch(e, r.stream));
      r.wait();
      double host4 = resident_bytes(), device4 = free_device_bytes();
      const std::string note = std::to_string(s.count) + " executables";
      say(name + "host, graph", (host1 - host0) / nodes, "B/node", 0, note);
      say(name + "host, instantiate", (host2 - host1) / nodes, "B/node", 0, note);
      say(name + "host, upload and first launch", (host4 - host2) / nodes, "B/node", 0, note);
      say(name + "device, instantiate", (device1 - device2) / nodes, "B/node", 0, note);
      say(name + "device, upload", (device2 - device3) / nodes, "B/node", 0, note);
      say(name + "device, first launch", (device3 - device4) / nodes, "B/node", 0, note);
      say(name + "device, all in all", (device1 - device4) / s.count, "B/executable", 0, note);
      for (CUgraphExec e : execs) MUST(cuGraphExecDestroy(e));
      for (CUgraph g : graphs) MUST(cuGraphDestroy(g));
      say(name + "device, not returned after destruction", device1 - free_device_bytes(), "B");
      size_t held = 0;
      cuuint64_t bytes = 0;
      if (cuDeviceGetGraphMemAttribute(r.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
          CUDA_SUCCESS)
        held = bytes;
      if (held) say(name + "graph memory reserved", held, "B");
    }
  });
}

// A scalar by value in every node, or one in memory that every node reads.
extern "C" int probe_scalar_cost() {
  return guarded([] {
    Rig &r = rig();
    raise_clocks();
    const int n = 1000;
    const CUdeviceptr scalar = r.data + 65536;
    const float one = 1.0f;
    MUST(cuMemcpyHtoD(scalar, &one, 4));
    CUgraph by_value = new_graph(), by_memory = new_graph();
    adders(by_value, r.function("add_value"), n, 1.0f);
    Nodes nodes;
    for (int i = 0; i < n; ++i) {
      CUgraphNodeParams p = kernel(r.function("add_memory"), 1, 1, r.data, scalar);
      nodes.push_back(i ? add(by_memory, p, {nodes.back()}) : add(by_memory, p));
    }
    CUgraphExec execs[] = {executable(by_value), executable(by_memory)};
    Samples done[2];
    for (int i = 0; i < 40; ++i)
      for (int w = 0; w < 2; ++w) {
        r.zero(r.data);
        const double t = now_us();
        run(execs[w]);
        if (i >= 5) done[w].add((now_us() - t) / n);
        expect(r.first(r.data) == n, "every node added one");
      }
    done[0].median("a scalar by value: per node");
    done[1].median("a scalar in memory: per node");
    say("in memory over by value", done[1].at(0.5) / done[0].at(0.5), "ratio");
  });
}

// Host callbacks, in graphs and in streams.
extern "C" int probe_host_nodes() {
  return guarded([] {
    Rig &r = rig();
    static volatile int counter = 0;
    int *where = const_cast<int *>(&counter);
    CUgraphNodeParams k = kernel(r.function("inc"), 1, 32, r.data);
    CUgraph without = new_graph(), with = new_graph(), alone = new_graph();
    add(without, k, {add(without, k)});
    add(with, k, {add(with, host(count, where), {add(with, k)})});
    add(alone, host(count, where));
    struct Case {
      const char *name;
      CUgraphExec exec;
      Samples call, done;
    } cases[] = {{"kernel, kernel", executable(without), {}, {}},
                 {"kernel, host, kernel", executable(with), {}, {}},
                 {"host alone", executable(alone), {}, {}}};
    Samples function;
    for (int i = 0; i < 300; ++i) {
      for (Case &c : cases) {
        const double t = now_us();
        MUST(cuGraphLaunch(c.exec, r.stream));
        c.call.add(now_us() - t);
        r.wait();
        c.done.add(now_us() - t);
      }
      const double t = now_us();
      MUST(cuLaunchHostFunc(r.stream, count, where));
      r.wait();
      function.add(now_us() - t);
    }
    expect(counter == 900, "every callback ran once");
    for (Case &c : cases) {
      c.call.median(std::string(c.name) + ": launch call");
      c.done.report(std::string(c.name) + ": launch + wait");
    }
    function.report("LaunchHostFunc + wait");
    say("a host node adds", cases[1].done.at(0.5) - cases[0].done.at(0.5), "us");

    Inside inside = {r.stream, r.data};
    CUgraph caller = new_graph();
    add(caller, host(call_the_driver, &inside));
    CUgraphExec exec = executable(caller);
    CUresult code = cuGraphLaunch(exec, r.stream);
    if (code == CUDA_SUCCESS) code = cuStreamSynchronize(r.stream);
    verdict("the stream after a host node that called the driver", code);
  });
}
