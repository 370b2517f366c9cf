// What the driver refuses: conditionals, edges, a second life. A fake driver keeps these rules.
#include "probe.h"

namespace {
void CUDA_CB do_nothing(void *) {}
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

// Programmatic edges inside bodies: taken, in order, and what they gain.
extern "C" int probe_programmatic_bodies() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data;
    const CUfunction early = r.function("inc_early");
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
  });
}

// Programmatic edges between all kinds of nodes.
extern "C" int probe_programmatic_edges() {
  return guarded([] {
    Rig &r = rig();
    const CUdeviceptr p = r.data, q = p + 4096;
    const CUfunction inc = r.function("inc"), early = r.function("inc_early");
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
    // All take the same argument, since the place of arguments is shared.
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
      verdict(std::string(pair.name) + ": add", code, "at add");
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
      verdict("kernel -> conditional: add", code, "at add");
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
