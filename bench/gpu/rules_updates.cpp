// What an executable takes: attributes, changed parameters, streams and threads of a launch.
#include <thread>

#include "probe.h"

namespace {
void CUDA_CB do_nothing(void *) {}
void CUDA_CB do_nothing_too(void *) {}
}  // namespace

// Attributes of a kernel node, before and after the graph has an executable.
extern "C" int probe_attributes() {
  return guarded([] {
    Rig &r = rig();
    const CUfunction f = r.function("add_value");
    int least, greatest;
    MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
    say("lowest priority", least, "priority");
    say("highest priority", greatest, "priority");
    auto priority = [](int level) {
      CUkernelNodeAttrValue value;
      std::memset(&value, 0, sizeof value);
      value.priority = level;
      return value;
    };
    for (int use = 0; use < 2; ++use)
      for (int set = 0; set < 2; ++set) {
        const std::string name = std::string(use ? "USE_NODE_PRIORITY" : "no flag") +
                                 (set ? ", priority set: " : ", priority not set: ");
        CUgraph g = new_graph();
        CUgraphNode k = add(g, kernel(f, 1, 1, r.data, 1.0f));
        CUgraphNode m = add(g, fill(r.data + 4096, 1, 4), {k});
        CUkernelNodeAttrValue value = priority(greatest), got;
        if (set)
          MUST(cuGraphKernelNodeSetAttribute(k, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
        MUST(cuGraphKernelNodeGetAttribute(k, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
        say(name + "priority read back", got.priority, "priority");
        CUgraphExec exec;
        if (verdict(name + "instantiate",
                    cuGraphInstantiate(&exec, g, use ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0)))
          continue;
        run(exec);
        CUgraphNodeParams p = kernel(f, 1, 1, r.data, 5.0f);
        CUDA_KERNEL_NODE_PARAMS old = narrow(p);
        CUresult code = cuGraphExecKernelNodeSetParams(exec, k, &old);
        r.zero(r.data);
        run(exec);
        verdict(name + "ExecKernelNodeSetParams", code,
                "then sum " + std::to_string(static_cast<int>(r.first(r.data))));
        p = kernel(f, 1, 1, r.data, 6.0f);
        verdict(name + "ExecNodeSetParams kernel", cuGraphExecNodeSetParams(exec, k, &p));
        CUgraphNodeParams mp = fill(r.data + 4096, 2, 4);
        verdict(name + "ExecNodeSetParams memset", cuGraphExecNodeSetParams(exec, m, &mp));
        verdict(name + "NodeSetEnabled", cuGraphNodeSetEnabled(exec, k, 0));
        verdict(name + "NodeSetEnabled back", cuGraphNodeSetEnabled(exec, k, 1));
        CUgraphExecUpdateResultInfo info;
        std::memset(&info, 0, sizeof info);
        code = cuGraphExecUpdate(exec, g, &info);
        verdict(name + "ExecUpdate, same graph", code, "result " + std::to_string(info.result));
        value = priority(set ? least : greatest);
        verdict(name + "KernelNodeSetAttribute after instantiation",
                cuGraphKernelNodeSetAttribute(k, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
        std::memset(&info, 0, sizeof info);
        code = cuGraphExecUpdate(exec, g, &info);
        verdict(name + "ExecUpdate after the priority changed", code,
                "result " + std::to_string(info.result));
      }
    struct Case {
      const char *name;
      CUkernelNodeAttrID id;
      CUkernelNodeAttrValue value;
    };
    std::vector<Case> cases(4);
    for (Case &c : cases) std::memset(&c.value, 0, sizeof c.value);
    cases[0].name = "cooperative", cases[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cases[0].value.cooperative = 1;
    cases[1].name = "cluster of 2", cases[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cases[1].value.clusterDim = {2, 1, 1};
    cases[2].name = "access policy window", cases[2].id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    cases[2].value.accessPolicyWindow = {reinterpret_cast<void *>(r.data), 4096, 1.0f,
                                         CU_ACCESS_PROPERTY_PERSISTING, CU_ACCESS_PROPERTY_STREAMING};
    cases[3].name = "memory synchronisation domain", cases[3].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
    cases[3].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    for (Case &c : cases) {
      const std::string name = std::string(c.name) + ": ";
      CUgraph g = new_graph();
      CUgraphNode k = add(g, kernel(f, 2, 1, r.data, 1.0f));
      CUgraphExec exec = executable(g);
      if (verdict(name + "KernelNodeSetAttribute after instantiation",
                  cuGraphKernelNodeSetAttribute(k, c.id, &c.value)))
        continue;
      CUgraphExecUpdateResultInfo info;
      std::memset(&info, 0, sizeof info);
      CUresult code = cuGraphExecUpdate(exec, g, &info);
      verdict(name + "ExecUpdate after that", code, "result " + std::to_string(info.result));
      goes(name + "set before instantiation", g);
    }
  });
}

// Which changes of parameters an executable takes: what else means one rebuild.
extern "C" int probe_update_rules() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 65536;
    const CUfunction f = r.function("add_value"), g2 = r.function("scale_value"),
                     one = r.function("inc");
    const uintptr_t pinned = reinterpret_cast<uintptr_t>(r.pinned);
    static float pageable[64];
    const uintptr_t page = reinterpret_cast<uintptr_t>(pageable);
    auto attempt = [&](const char *name, CUgraphNodeParams from, CUgraphNodeParams to) {
      CUgraph g = new_graph();
      CUgraphNode node;
      CUresult code = try_add(g, from, {}, &node);
      if (code) {
        verdict(std::string(name) + " (the first form, at add)", code);
        return;
      }
      CUgraphExec exec = executable(g);
      run(exec);
      code = cuGraphExecNodeSetParams(exec, node, &to);
      CUresult ran = cuGraphLaunch(exec, r.stream);
      if (ran == CUDA_SUCCESS) ran = cuStreamSynchronize(r.stream);
      verdict(name, code, "then launch gives " + std::to_string(ran));
      MUST(cuGraphExecDestroy(exec));
      MUST(cuGraphDestroy(g));
    };
    auto attempt_kernel = [&](const char *name, auto change) {
      // The static argument place is overwritten by the second kernel: same values, same meaning.
      CUgraphNodeParams from = kernel(f, 1, 32, p, 1.0f), to = from;
      change(to);
      attempt(name, from, to);
    };
    attempt_kernel("kernel: grid", [](auto &k) { k.kernel.gridDimX = 7; });
    attempt_kernel("kernel: block", [](auto &k) { k.kernel.blockDimX = 64; });
    attempt_kernel("kernel: block of 2048", [](auto &k) { k.kernel.blockDimX = 2048; });
    attempt_kernel("kernel: shared memory 16 KiB", [](auto &k) { k.kernel.sharedMemBytes = 16384; });
    attempt_kernel("kernel: shared memory 64 KiB, limit not raised",
                   [](auto &k) { k.kernel.sharedMemBytes = 65536; });
    MUST(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    attempt_kernel("kernel: shared memory 64 KiB, limit raised",
                   [](auto &k) { k.kernel.sharedMemBytes = 65536; });
    attempt_kernel("kernel: function, same signature", [&](auto &k) { k.kernel.func = g2; });
    attempt_kernel("kernel: function, other signature", [&](auto &k) { k.kernel.func = one; });
    attempt("memset: value", fill(q, 1, 64), fill(q, 2, 64));
    attempt("memset: destination", fill(q, 1, 64), fill(q + 4096, 1, 64));
    attempt("memset: width", fill(q, 1, 64), fill(q, 1, 128));
    attempt("memset: element size", fill(q, 1, 64), fill(q, 1, 64, 1));
    attempt("memset: rows 1 to 4", fill(q, 1, 64), fill(q, 1, 64, 4, 4));
    attempt("memset: rows 4 to 8", fill(q, 1, 64, 4, 4), fill(q, 1, 64, 4, 8));
    attempt("memset: width of 0", fill(q, 1, 64), fill(q, 1, 0));
    const auto dd = copy(q, false, p, false, 256), hd = copy(q, false, pinned, true, 256),
               dh = copy(pinned, true, p, false, 256);
    attempt("memcpy: size", dd, copy(q, false, p, false, 512));
    attempt("memcpy: size of 0", dd, copy(q, false, p, false, 0));
    attempt("memcpy: source", dd, copy(q, false, p + 4096, false, 256));
    attempt("memcpy: destination", dd, copy(q + 4096, false, p, false, 256));
    attempt("memcpy: device to host to device", dd, hd);
    attempt("memcpy: host to device to device to host", hd, dh);
    attempt("memcpy: pinned source to pageable source", hd, copy(q, false, page, true, 256));
    attempt("memcpy: pageable source to pinned source", copy(q, false, page, true, 256), hd);
    attempt("host: function", host(do_nothing, nullptr), host(do_nothing_too, pageable));
    attempt("empty: itself", nothing(), nothing());
    CUgraph inner = new_graph(), same = new_graph(), longer = new_graph();
    chain(inner, one, 2);
    chain(same, one, 2);
    chain(longer, one, 3);
    attempt("child graph: same shape", child(inner), child(same));
    attempt("child graph: one node more", child(inner), child(longer));

    auto enable = [&](const char *name, CUgraphNodeParams params) {
      CUgraph g = new_graph();
      CUgraphNode node = add(g, params);
      CUgraphExec exec = executable(g);
      CUresult code = cuGraphNodeSetEnabled(exec, node, 0);
      CUresult ran = cuGraphLaunch(exec, r.stream);
      if (ran == CUDA_SUCCESS) ran = cuStreamSynchronize(r.stream);
      verdict(std::string("NodeSetEnabled off: ") + name, code,
              "then launch gives " + std::to_string(ran));
    };
    enable("kernel", kernel(one, 1, 32, p));
    enable("memset", fill(q, 1, 64));
    enable("memcpy", dd);
    enable("host", host(do_nothing, nullptr));
    enable("empty", nothing());
    enable("child graph", child(inner));

    // Only launches that come after an update see it, also while one runs.
    CUgraph g = new_graph();
    CUgraphNode wait = add(g, kernel(r.function("linger"), 1, 1, 2000000ull));
    CUgraphNode k = add(g, kernel(f, 1, 1, p, 1.0f), {wait});
    CUgraphExec exec = executable(g);
    run(exec);
    r.zero(p);
    double t = now_us();
    MUST(cuGraphLaunch(exec, r.stream));
    CUgraphNodeParams to = kernel(f, 1, 1, p, 100.0f);
    double set = now_us();
    verdict("update while a launch runs", cuGraphExecNodeSetParams(exec, k, &to));
    double done = now_us();
    bool was_running = cuStreamQuery(r.stream) == CUDA_ERROR_NOT_READY;
    float after_one = r.first(p);
    say("update while a launch runs: sum of the running launch", after_one, "sum", 0,
        was_running ? "1 means that it was not touched" : "the launch had ended already");
    say("update while a launch runs: call", done - set, "us", 0,
        "launch call " + std::to_string(set - t) + " us");
    run(exec);
    say("update while a launch runs: sum added by the next", r.first(p) - after_one, "sum");
    attempt_kernel("kernel: no arguments given", [](auto &k) { k.kernel.kernelParams = nullptr; });
  });
}

// Streams and threads that a launch may come from, and what it may meet there.
extern "C" int probe_launch_rules() {
  return guarded([] {
    Rig &r = rig();
    CUgraph g = new_graph();
    chain(g, r.function("inc"), 4);
    CUgraphExec exec = executable(g);
    run(exec);
    auto on = [&](const char *name, CUstream stream) {
      CUresult code = cuGraphLaunch(exec, stream);
      if (code == CUDA_SUCCESS) code = cuStreamSynchronize(stream);
      verdict(std::string("launch on ") + name, code);
    };
    on("stream 0", nullptr);
    on("the legacy stream", CU_STREAM_LEGACY);
    on("the per-thread stream", CU_STREAM_PER_THREAD);
    std::thread([&] {
      CUcontext current;
      cuCtxGetCurrent(&current);
      on(current ? "a thread with a context" : "a thread without a context", r.stream);
      CUevent event;
      verdict("EventCreate on a thread without a context", cuEventCreate(&event, 2));
      CUdeviceptr p;
      verdict("MemAlloc on a thread without a context", cuMemAlloc(&p, 256));
      verdict("MemcpyHtoDAsync on a thread without a context",
              cuMemcpyHtoDAsync(r.data, r.pinned, 64, r.stream));
      verdict("StreamQuery on a thread without a context",
              cuStreamQuery(r.stream) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS
                                                              : cuStreamQuery(r.stream));
      CUgraphNode node;
      CUgraphNodeParams m = fill(r.data + 4096, 1, 4);
      CUgraph other;
      verdict("GraphCreate on a thread without a context", cuGraphCreate(&other, 0));
      verdict("GraphAddNode memset on a thread without a context", try_add(other, m, {}, &node));
      CUgraphExec twin;
      verdict("GraphInstantiate on a thread without a context", cuGraphInstantiate(&twin, other, 0));
    }).join();
    MUST(cuStreamSynchronize(r.stream));
    MUST(cuStreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    verdict("launch on a capturing stream", cuGraphLaunch(exec, r.stream));
    verdict("MemcpyBatchAsync on a capturing stream", [&] {
      CUdeviceptr to = r.data + 4096, from = reinterpret_cast<CUdeviceptr>(r.pinned);
      size_t bytes = 64, first = 0;
      CUmemcpyAttributes how;
      std::memset(&how, 0, sizeof how);
      how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
      return cuMemcpyBatchAsync(&to, &from, &bytes, 1, &how, &first, 1, r.stream);
    }());
    CUgraph captured = nullptr;
    verdict("StreamEndCapture after that", cuStreamEndCapture(r.stream, &captured));
    if (captured) {
      size_t n = 0;
      cuGraphGetNodes(captured, nullptr, &n);
      say("captured nodes", n, "nodes");
    }
    CUgraph empty = new_graph();
    goes("an empty graph", empty);
    CUdeviceptr huge;
    verdict("MemAlloc of 1 TiB", cuMemAlloc(&huge, 1ull << 40));
    on("the stream, after that", r.stream);
    CUgraph wide = new_graph();
    CUgraphNode node;
    verdict("AddNode, block of 2048",
            try_add(wide, kernel(r.function("inc"), 1, 2048, r.data), {}, &node));
    verdict("AddNode, grid of 0", try_add(wide, kernel(r.function("inc"), 0, 32, r.data), {}, &node));
    verdict("AddNode, memset of width 0", try_add(wide, fill(r.data, 0, 0), {}, &node));
    verdict("AddNode, memset of 8-byte elements", try_add(wide, fill(r.data, 0, 4, 8), {}, &node));
    verdict("AddNode, memset of 4-byte elements, unaligned",
            try_add(wide, fill(r.data + 1, 0, 4), {}, &node));
    verdict("AddNode, memcpy of 0 bytes",
            try_add(wide, copy(r.data, false, r.data + 64, false, 0), {}, &node));
    verdict("launch of a null executable", cuGraphLaunch(nullptr, r.stream));
  });
}
