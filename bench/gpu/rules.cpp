// What the driver takes and what it refuses: the rules that a fake driver has to keep.
#include <thread>

#include "probe.h"

namespace {

const char *edge_note = "at add";

// Instantiates and runs, saying where it ends. True when the graph ran.
bool goes(const std::string &name, CUgraph graph) {
  CUgraphExec exec;
  if (verdict(name + ": instantiate", cuGraphInstantiate(&exec, graph, 0))) return false;
  CUresult code = cuGraphLaunch(exec, rig().stream);
  if (code == CUDA_SUCCESS) code = cuStreamSynchronize(rig().stream);
  verdict(name + ": run", code);
  cuGraphExecDestroy(exec);
  return code == CUDA_SUCCESS;
}

void CUDA_CB do_nothing(void *) {}
void CUDA_CB do_nothing_too(void *) {}

}  // namespace

// Set-params on nodes that stand inside the body of a conditional.
extern "C" int probe_body_updates() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 4096, t = p + 8192;
    const CUfunction f = r.function("add_value");
    Conditional c = conditional();
    CUgraphNode k = add(c.body, kernel(f, 1, 1, p, 1.0f));
    CUgraphNode m = add(c.body, fill(q, 7, 1), {k});
    CUgraphNode y = add(c.body, copy(t, false, q, false, 4), {m});
    CUgraphExec exec = executable(c.graph);
    auto outcome = [&] {  // what one replay does: the kernel's sum, the memset's and the copy's word
      r.zero(p, 4096);
      run(exec);
      unsigned set, copied;
      MUST(cuMemcpyDtoH(&set, q, 4));
      MUST(cuMemcpyDtoH(&copied, t, 4));
      return "sum " + std::to_string(static_cast<int>(r.first(p))) + ", set " +
             std::to_string(set) + ", copied " + std::to_string(copied);
    };
    expect(outcome() == "sum 1, set 7, copied 7", "the body ran once");

    auto try_set = [&](const char *name, CUresult code) {
      verdict(name, code, code ? "" : "then " + outcome());
    };
    CUgraphNodeParams kp = kernel(f, 1, 1, p, 10.0f);
    CUDA_KERNEL_NODE_PARAMS narrow_kp = narrow(kp);
    try_set("ExecKernelNodeSetParams", cuGraphExecKernelNodeSetParams(exec, k, &narrow_kp));
    kp = kernel(f, 1, 1, p, 20.0f);
    try_set("ExecNodeSetParams kernel", cuGraphExecNodeSetParams(exec, k, &kp));
    CUgraphNodeParams mp = fill(q, 9, 1);
    try_set("ExecNodeSetParams memset", cuGraphExecNodeSetParams(exec, m, &mp));
    CUDA_MEMSET_NODE_PARAMS old_mp = {q, 0, 11, 4, 1, 1};
    try_set("ExecMemsetNodeSetParams", cuGraphExecMemsetNodeSetParams(exec, m, &old_mp, r.context));
    CUgraphNodeParams yp = copy(t, false, p, false, 4);
    try_set("ExecNodeSetParams memcpy", cuGraphExecNodeSetParams(exec, y, &yp));
    try_set("ExecMemcpyNodeSetParams",
            cuGraphExecMemcpyNodeSetParams(exec, y, &yp.memcpy.copyParams, r.context));
    try_set("NodeSetEnabled kernel off", cuGraphNodeSetEnabled(exec, k, 0));
    CUgraphExecUpdateResultInfo info;
    try_set("ExecUpdate, same graph", cuGraphExecUpdate(exec, c.graph, &info));
    kp = kernel(f, 1, 1, p, 30.0f);
    verdict("GraphNodeSetParams on the body's kernel", cuGraphNodeSetParams(k, &kp));
    std::memset(&info, 0, sizeof info);
    try_set("ExecUpdate after that", cuGraphExecUpdate(exec, c.graph, &info));
    say("ExecUpdate after that: result", info.result, "enum");

    Conditional other = conditional();
    CUgraphNode k2 = add(other.body, kernel(f, 1, 1, p, 40.0f));
    CUgraphNode m2 = add(other.body, fill(q, 7, 1), {k2});
    add(other.body, copy(t, false, q, false, 4), {m2});
    std::memset(&info, 0, sizeof info);
    try_set("ExecUpdate from a twin graph", cuGraphExecUpdate(exec, other.graph, &info));
    say("ExecUpdate from a twin graph: result", info.result, "enum");
  });
}

// Programmatic edges: inside bodies, and between kinds of nodes.
extern "C" int probe_programmatic_edges() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 4096;
    const CUfunction inc = r.function("inc"), early = r.function("inc_early");
    double per_node[2];
    for (int is_early = 0; is_early < 2; ++is_early) {
      const char *name = is_early ? "body, programmatic edges" : "body, plain edges";
      Conditional c = conditional();
      const int n = 200;
      Nodes nodes{add(c.body, kernel(early, 1, 32, p))};
      for (int i = 1; i < n; ++i) {
        CUgraphNode node;
        std::vector<CUgraphEdgeData> edges;
        if (is_early) edges.push_back(programmatic());
        CUresult code = try_add(c.body, kernel(early, 1, 32, p), {nodes.back()}, &node, edges);
        if (i == 1 || code) verdict(std::string(name) + ": add", code);
        MUST(code);
        nodes.push_back(node);
      }
      CUgraphExec exec;
      MUST(verdict(std::string(name) + ": instantiate", cuGraphInstantiate(&exec, c.graph, 0)));
      r.zero(p);
      run(exec);
      expect(r.first(p) == n, "every kernel of the body ran, in order");
      Samples s;
      for (int i = 0; i < 60; ++i) {
        double t = now_us();
        run(exec);
        s.add((now_us() - t) / n);
      }
      per_node[is_early] = s.at(0.5);
      say(std::string(name) + ": per node", s.at(0.5), "us", 0, "200 nodes, launch+wait / 200");
    }
    say("body, programmatic over plain", per_node[1] / per_node[0], "ratio");

    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUgraph inner = new_graph();
    add(inner, kernel(inc, 1, 32, q));
    struct Pair {
      const char *name;
      CUgraphNodeParams from, to;
    };
    CUgraphNodeParams record = nothing();
    record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    record.eventRecord.event = event;
    // Kernels without arguments of their own: the static argument place is shared.
    const CUgraphNodeParams k = kernel(early, 1, 32, p), unwilling = kernel(inc, 1, 32, p);
    const Pair pairs[] = {
        {"kernel -> kernel", k, k},
        {"kernel -> kernel that never waits", k, unwilling},
        {"kernel that never triggers -> kernel", unwilling, k},
        {"kernel -> memcpy", k, copy(q, false, p, false, 64)},
        {"kernel -> memset", k, fill(q, 0, 16)},
        {"kernel -> empty", k, nothing()},
        {"kernel -> host", k, host(do_nothing, nullptr)},
        {"kernel -> child graph", k, child(inner)},
        {"kernel -> event record", k, record},
        {"memset -> kernel", fill(q, 0, 16), k},
        {"memcpy -> kernel", copy(q, false, p, false, 64), k},
        {"empty -> kernel", nothing(), k},
        {"child graph -> kernel", child(inner), k},
    };
    for (const Pair &pair : pairs) {
      CUgraph g = new_graph();
      CUgraphNode a = add(g, pair.from), b;
      CUresult code = try_add(g, pair.to, {a}, &b, {programmatic()});
      verdict(std::string(pair.name) + ": add", code, edge_note);
      if (code == CUDA_SUCCESS) goes(pair.name, g);
      MUST(cuGraphDestroy(g));
    }
    {
      CUgraph g = new_graph();
      CUgraphNode a = add(g, k), b;
      CUgraphConditionalHandle handle;
      CUgraphNodeParams cp = conditional_params(CU_GRAPH_COND_TYPE_IF, g, 1, &handle);
      CUgraphEdgeData edge = programmatic();
      CUresult code = cuGraphAddNode(&b, g, &a, &edge, 1, &cp);
      verdict("kernel -> conditional: add", code, edge_note);
      if (code == CUDA_SUCCESS) {
        add(cp.conditional.phGraph_out[0], kernel(inc, 1, 32, q));
        goes("kernel -> conditional", g);
      }
    }
    {
      CUgraph g = new_graph();
      CUgraphEdgeData full;
      std::memset(&full, 0, sizeof full);
      CUgraphNode a = add(g, k), b = add(g, kernel(early, 1, 32, q)), c;
      CUresult code = try_add(g, kernel(early, 1, 32, p), {a, b}, &c, {programmatic(), full});
      verdict("one programmatic and one full edge in: add", code);
      if (code == CUDA_SUCCESS) goes("one programmatic and one full edge in", g);
      code = try_add(g, kernel(early, 1, 32, p), {a, b}, &c, {programmatic(), programmatic()});
      verdict("two programmatic edges in: add", code);
      if (code == CUDA_SUCCESS) goes("two programmatic edges in", g);
      code = try_add(g, kernel(early, 1, 32, p), {a, a}, &c, {programmatic(), full});
      verdict("programmatic and full edge from one node: add", code);
      if (code == CUDA_SUCCESS) goes("programmatic and full edge from one node", g);
    }
  });
}

// A graph that holds a conditional: how often it may live.
extern "C" int probe_conditional_rules() {
  return guarded([] {
    Rig &r = rig();
    const CUfunction inc = r.function("inc");
    auto filled = [&] {
      Conditional c = conditional();
      add(c.body, kernel(inc, 1, 32, r.data));
      return c;
    };
    for (int with = 0; with < 2; ++with) {
      const std::string name = with ? "with a conditional: " : "plain: ";
      CUgraph g;
      if (with) {
        g = filled().graph;
      } else {
        g = new_graph();
        chain(g, inc, 1);
      }
      CUgraphExec first = executable(g), second = nullptr;
      CUresult code = verdict(name + "second live instantiation", cuGraphInstantiate(&second, g, 0));
      if (code == CUDA_SUCCESS) {
        run(second);
        MUST(cuGraphExecDestroy(second));
      }
      CUgraph twin = nullptr, parent = new_graph();
      if (!verdict(name + "GraphClone", cuGraphClone(&twin, g))) goes(name + "clone", twin);
      CUgraphNode node;
      if (!verdict(name + "child node, cloned", try_add(parent, child(g), {}, &node)))
        goes(name + "child node, cloned", parent);
      CUgraphExecUpdateResultInfo info;
      std::memset(&info, 0, sizeof info);
      verdict(name + "ExecUpdate with itself", cuGraphExecUpdate(first, g, &info),
              "result " + std::to_string(info.result));
      MUST(cuGraphExecDestroy(first));
      code = verdict(name + "instantiation after the first was destroyed",
                     cuGraphInstantiate(&second, g, 0));
      if (code == CUDA_SUCCESS) {
        run(second);
        code = verdict(name + "GraphDestroy while its executable lives", cuGraphDestroy(g));
        if (code == CUDA_SUCCESS) {
          code = cuGraphLaunch(second, r.stream);
          if (code == CUDA_SUCCESS) code = cuStreamSynchronize(r.stream);
          verdict(name + "launch after GraphDestroy", code);
        }
      }
    }
    {
      Conditional c = filled();
      CUgraph parent = new_graph();
      CUgraphNode node;
      if (!verdict("with a conditional: child node, moved",
                   try_add(parent, child(c.graph, true), {}, &node)))
        goes("with a conditional: child node, moved", parent);
    }
    {
      CUgraph parent = new_graph(), inner = new_graph(), again = new_graph();
      chain(inner, inc, 1);
      CUgraphNode node;
      if (!verdict("plain: child node, moved", try_add(parent, child(inner, true), {}, &node))) {
        goes("plain: child node, moved", parent);
        verdict("plain: moved a second time", try_add(again, child(inner, true), {}, &node));
        CUgraphExec exec;
        verdict("plain: instantiate a moved graph", cuGraphInstantiate(&exec, inner, 0));
      }
    }
    {
      CUgraph g = conditional().graph;
      goes("conditional with an empty body", g);
    }
    {
      Conditional c = filled();
      CUgraphNode node;
      CUgraphNodeParams p = nothing();
      p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
      p.conditional = {c.handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, r.context};
      verdict("a second node on one handle: add", cuGraphAddNode(&node, c.graph, nullptr, nullptr, 0, &p));
      goes("a second node on one handle", c.graph);
    }
    {
      CUgraph g = new_graph();
      CUgraphConditionalHandle unused;
      conditional_params(CU_GRAPH_COND_TYPE_IF, g, 0, &unused);
      chain(g, inc, 1);
      goes("a handle without a node", g);
    }
    {
      Conditional c = filled();
      CUgraphNode node = add(c.graph, kernel(inc, 1, 32, r.data));
      verdict("an edge from a body's node to an outer one",
              try_add(c.graph, kernel(inc, 1, 32, r.data), {add(c.body, nothing())}, &node));
      verdict("GraphDestroyNode of a conditional", cuGraphDestroyNode(c.node));
    }
  });
}

// Edges that make no sense.
extern "C" int probe_dependency_rules() {
  return guarded([] {
    const CUfunction inc = rig().function("inc");
    const CUgraphNodeParams k = kernel(inc, 1, 32, rig().data);
    CUgraph g = new_graph(), other = new_graph();
    CUgraphNode a = add(g, k), b = add(g, k, {a}), foreign = add(other, k), node;
    size_t before, after;
    MUST(cuGraphGetNodes(g, nullptr, &before));
    verdict("AddNode, the same dependency twice", try_add(g, k, {a, a}, &node));
    MUST(cuGraphGetNodes(g, nullptr, &after));
    say("AddNode, the same dependency twice: nodes added", after - before, "nodes");
    verdict("AddKernelNode, the same dependency twice", [&] {
      CUDA_KERNEL_NODE_PARAMS old = narrow(k);
      CUgraphNode twice[] = {a, a};
      return cuGraphAddKernelNode(&node, g, twice, 2, &old);
    }());
    verdict("AddDependencies, an edge that is there", cuGraphAddDependencies(g, &a, &b, nullptr, 1));
    CUgraphEdgeData early = programmatic();
    verdict("AddDependencies, that edge as programmatic",
            cuGraphAddDependencies(g, &a, &b, &early, 1));
    verdict("AddDependencies, a node on itself", cuGraphAddDependencies(g, &a, &a, nullptr, 1));
    verdict("AddNode, a node of another graph", try_add(g, k, {foreign}, &node));
    CUresult code = cuGraphAddDependencies(g, &b, &a, nullptr, 1);
    verdict("AddDependencies, a cycle", code);
    if (code == CUDA_SUCCESS) {
      CUgraphExec exec;
      verdict("a cycle: instantiate", cuGraphInstantiate(&exec, g, 0));
    }
    verdict("AddNode, null dependency", try_add(g, k, {nullptr}, &node));
  });
}

// Which kinds of nodes a body may hold.
extern "C" int probe_body_kinds() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 4096;
    const CUfunction inc = r.function("inc");
    static float pageable[64];
    const uintptr_t pinned = reinterpret_cast<uintptr_t>(r.pinned);
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUgraph plain = new_graph(), with_host = new_graph();
    add(plain, kernel(inc, 1, 32, p));
    add(with_host, host(do_nothing, nullptr));
    CUgraphNodeParams record = nothing(), await = nothing(), take = nothing(), give = nothing(),
                      word = nothing();
    record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    record.eventRecord.event = event;
    await.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    await.eventWait.event = event;
    take.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    take.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    take.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    take.alloc.bytesize = 4096;
    give.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    give.free.dptr = q;
    CUstreamBatchMemOpParams op;
    std::memset(&op, 0, sizeof op);
    op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = q;
    op.writeValue.value = 1;
    word.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    word.memOp = {r.context, 1, &op, 0};
    struct Kind {
      const char *name;
      CUgraphNodeParams params;
    };
    const Kind kinds[] = {
        {"kernel", kernel(inc, 1, 32, p)},
        {"empty", nothing()},
        {"memset 1 byte", fill(q, 1, 16, 1)},
        {"memset 2 bytes", fill(q, 1, 16, 2)},
        {"memset 4 bytes", fill(q, 1, 16, 4)},
        {"memset 2-d", fill(q, 1, 16, 4, 4)},
        {"memcpy device to device", copy(q, false, p, false, 64)},
        {"memcpy pinned to device", copy(q, false, pinned, true, 64)},
        {"memcpy device to pinned", copy(pinned, true, p, false, 64)},
        {"memcpy pageable to device",
         copy(q, false, reinterpret_cast<uintptr_t>(pageable), true, 64)},
        {"memcpy device to pageable",
         copy(reinterpret_cast<uintptr_t>(pageable), true, p, false, 64)},
        {"memcpy pinned to pinned", copy(pinned + 4096, true, pinned, true, 64)},
        {"child graph", child(plain)},
        {"child graph with a host node", child(with_host)},
        {"host", host(do_nothing, nullptr)},
        {"event record", record},
        {"event wait", await},
        {"memory allocation", take},
        {"memory free", give},
        {"batched memory operation", word},
    };
    for (const Kind &kind : kinds)
      for (int outside = 0; outside < 2; ++outside) {
        const std::string name = std::string(kind.name) + (outside ? ", outside" : ", in a body");
        Conditional c = conditional();
        add(c.body, nothing());
        CUgraphNode node;
        CUresult code = try_add(outside ? c.graph : c.body, kind.params, {}, &node);
        verdict(name + ": add", code);
        // Running a free of memory that is not the graph's would pull it from under the others.
        const bool harmful = kind.params.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
        if (code == CUDA_SUCCESS && !harmful) goes(name, c.graph);
      }
    for (int depth = 2; depth <= 4; ++depth) {
      Conditional c = conditional();
      CUgraph body = c.body;
      CUresult code = CUDA_SUCCESS;
      for (int i = 1; i < depth && code == CUDA_SUCCESS; ++i) {
        CUgraphConditionalHandle handle;
        CUgraphNodeParams cp = conditional_params(CU_GRAPH_COND_TYPE_IF, body, 1, &handle);
        CUgraphNode node;
        code = cuGraphAddNode(&node, body, nullptr, nullptr, 0, &cp);
        if (code == CUDA_SUCCESS) body = cp.conditional.phGraph_out[0];
      }
      const std::string name = "conditionals nested " + std::to_string(depth) + " deep";
      verdict(name + ": add", code, "handles made on the body graph");
      if (code) continue;
      add(body, kernel(inc, 1, 32, p));
      r.zero(p);
      if (goes(name, c.graph)) say(name + ": kernel ran", r.first(p), "times");
    }
    for (int cooperative = 0; cooperative < 2; ++cooperative) {
      Conditional c = conditional();
      CUgraphNode node = add(c.body, kernel(inc, 1, 32, p));
      CUkernelNodeAttrValue value;
      std::memset(&value, 0, sizeof value);
      if (cooperative) value.cooperative = 1;
      else value.clusterDim = {1, 1, 1};
      const char *name = cooperative ? "cooperative kernel, in a body" : "cluster kernel, in a body";
      verdict(std::string(name) + ": attribute",
              cuGraphKernelNodeSetAttribute(node, cooperative ? CU_LAUNCH_ATTRIBUTE_COOPERATIVE
                                                              : CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                            &value));
      goes(name, c.graph);
    }
  });
}

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
