// Executables: making them of graphs, and ending them.
#include <algorithm>

#include "graph.h"

namespace {
bool is_cyclic(CUgraph graph) {
  std::map<CUgraphNode, size_t> waits;
  std::map<CUgraphNode, std::vector<CUgraphNode>> next;
  std::vector<CUgraphNode> ready;
  for (CUgraphNode node : graph->nodes) {
    waits[node] = node->in.size();
    for (const Edge &edge : node->in) next[edge.from].push_back(node);
    if (node->in.empty()) ready.push_back(node);
  }
  size_t done = 0;
  for (; !ready.empty(); ++done) {
    CUgraphNode node = ready.back();
    ready.pop_back();
    for (CUgraphNode after : next[node])
      if (--waits[after] == 0) ready.push_back(after);
  }
  return done < graph->nodes.size();
}

// The rules that are looked at only now.
CUresult check_graph(CUgraph graph, bool is_body) {
  if (is_cyclic(graph)) return CUDA_ERROR_INVALID_VALUE;
  for (CUgraphConditionalHandle handle : graph->handles)
    if (!conditions()[handle].node) return CUDA_ERROR_INVALID_VALUE;
  for (CUgraphNode node : graph->nodes) {
    const Work &work = node->work;
    if (is_body && is_forbidden_in_body(work)) return CUDA_ERROR_INVALID_VALUE;
    if (work.type == CU_GRAPH_NODE_TYPE_KERNEL && !work.kernel.function->alive)
      return CUDA_ERROR_INVALID_VALUE;
    if (work.child) TRY(check_graph(work.child, is_body));
    for (CUgraph body : work.conditional.bodies) TRY(check_graph(body, true));
  }
  return CUDA_SUCCESS;
}

PlanRef plan_of(CUgraph graph, bool is_body) {
  PlanRef plan = std::make_shared<Plan>();
  plan->is_body = is_body;
  std::map<CUgraphNode, size_t> place;
  for (CUgraphNode node : graph->nodes) place[node] = place.size();
  for (CUgraphNode node : graph->nodes) {
    Step step;
    step.node = node->id;
    step.work = node->work;
    step.work.kernel.pointers.clear();
    for (const Edge &edge : node->in) step.in.emplace_back(place[edge.from], edge.data);
    if (node->work.child) step.plans.push_back(plan_of(node->work.child, is_body));
    for (CUgraph body : node->work.conditional.bodies) step.plans.push_back(plan_of(body, true));
    plan->steps.push_back(std::move(step));
  }
  return plan;
}

CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUcontext context) {
  const unsigned long long known =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (!out || !is_live(graph) || (flags & ~known)) return CUDA_ERROR_INVALID_VALUE;
  if (graph->moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (*graph->lives > 0 && has_conditional(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphExec made = new CUgraphExec_st;
  if (CUresult bad = make_plan(graph, &made->plan)) {
    delete made;
    return bad;
  }
  made->flags = flags;
  made->context = context;
  made->lives = graph->lives;
  ++*made->lives;
  state().execs.insert(made);
  *out = made;
  return CUDA_SUCCESS;
}
}  // namespace

bool is_forbidden_in_body(const Work &work) {
  switch (work.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return false;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return source_side(work.copy) == Side::pageable ||
             destination_side(work.copy) == Side::pageable;
    default:
      return true;
  }
}

CUresult make_plan(CUgraph graph, PlanRef *out) {
  TRY(check_graph(graph, false));
  *out = plan_of(graph, false);
  return CUDA_SUCCESS;
}

PlanRef copy_plan(const Plan &plan) {
  PlanRef copy = std::make_shared<Plan>(plan);
  for (Step &step : copy->steps)
    for (PlanRef &inner : step.plans) inner = copy_plan(*inner);
  return copy;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                            unsigned long long flags) {
  ENTER(CONTEXT | HEALTHY);
  return instantiate(out, graph, flags, entry.context);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  ENTER(CONTEXT | HEALTHY);
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUresult code = instantiate(out, graph, params->flags, entry.context);
  params->hErrNode_out = nullptr;
  params->result_out = code ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return code;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER(PLAIN);
  if (!state().execs.erase(exec)) return CUDA_ERROR_INVALID_VALUE;
  --*exec->lives;
  delete exec;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
  ENTER(PLAIN);
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}
