// Changing executables: node by node, or by a whole graph.
#include <cstring>

#include "graph.h"

namespace {
CUresult find_step(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, Step **out,
                   bool *is_body = nullptr) {
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  *out = step_of(exec, node, is_body);
  return *out && (*out)->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_device(Side side) { return side == Side::device; }

// Which changes of a leaf's parameters an executable takes.
CUresult check_change(const Work &is, const Work &to, bool is_body) {
  if (is.type != to.type) return CUDA_ERROR_INVALID_VALUE;
  if (is_body && is_forbidden_in_body(to)) return CUDA_ERROR_INVALID_VALUE;
  switch (is.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return is.kernel.function->context == to.kernel.function->context ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return is.fill.height == to.fill.height ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return is_device(source_side(is.copy)) == is_device(source_side(to.copy)) &&
                     is_device(destination_side(is.copy)) == is_device(destination_side(to.copy))
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_SUCCESS;
  }
}

CUresult set_leaf(CUgraphExec exec, CUgraphNode node, Work work) {
  Step *step;
  bool is_body = false;
  TRY(find_step(exec, node, work.type, &step, &is_body));
  TRY(check_change(step->work, work, is_body));
  if (work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    work.kernel.attributes = step->work.kernel.attributes;
    TRY(check_work(work));
  }
  step->work = std::move(work);
  return CUDA_SUCCESS;
}

template <class T>
T attribute(const Work &work, int name, T CUlaunchAttributeValue::*field) {
  auto found = work.kernel.attributes.find(name);
  return found == work.kernel.attributes.end() ? T{} : found->second.*field;
}

// Makes `to` fit for the place of `is`: what is switched off stays off, and steps keep their nodes.
CUgraphExecUpdateResult adopt(const Plan &is, Plan *to, unsigned long long flags) {
  if (is.steps.size() != to->steps.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < is.steps.size(); ++i) {
    const Step &old = is.steps[i];
    Step &made = to->steps[i];
    if (old.work.type != made.work.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    std::set<size_t> before, after;
    for (const auto &[from, data] : old.in) before.insert(from);
    for (const auto &[from, data] : made.in) after.insert(from);
    if (before != after) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (check_change(old.work, made.work, is.is_body))
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (old.work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
      const auto priority = &CUlaunchAttributeValue::priority;
      const auto cooperative = &CUlaunchAttributeValue::cooperative;
      if (((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) &&
           attribute(old.work, CU_LAUNCH_ATTRIBUTE_PRIORITY, priority) !=
               attribute(made.work, CU_LAUNCH_ATTRIBUTE_PRIORITY, priority)) ||
          attribute(old.work, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, cooperative) !=
              attribute(made.work, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, cooperative))
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    if (old.work.conditional.type != made.work.conditional.type ||
        old.plans.size() != made.plans.size())
      return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    for (size_t k = 0; k < old.plans.size(); ++k)
      if (auto bad = adopt(*old.plans[k], made.plans[k].get(), flags)) return bad;
    made.node = old.node;
    made.enabled = old.enabled;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  Step *step;
  bool is_body = false;
  TRY(find_step(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &step, &is_body));
  if (!is_live(child)) return CUDA_ERROR_INVALID_VALUE;
  PlanRef plan;
  TRY(make_plan(child, &plan));
  if (adopt(*step->plans[0], plan.get(), exec->flags)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  step->plans[0] = plan;
  return CUDA_SUCCESS;
}

bool can_be_off(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEMCPY;
}

Step *search(Plan *plan, uint64_t node, bool *is_body) {
  for (Step &step : plan->steps) {
    if (step.node == node) {
      if (is_body) *is_body = plan->is_body;
      return &step;
    }
    for (PlanRef &inner : step.plans)
      if (Step *found = search(inner.get(), node, is_body)) return found;
  }
  return nullptr;
}
}  // namespace

Step *step_of(CUgraphExec exec, CUgraphNode node, bool *is_body) {
  if (!is_live(node)) return nullptr;
  // Launches under way run what was there when they were called.
  if (exec->plan.use_count() > 1) exec->plan = copy_plan(*exec->plan);
  return search(exec->plan.get(), node->id, is_body);
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         CUgraphNodeParams *params) {
  ENTER(PLAIN);
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) return set_child(exec, node, params->graph.graph);
  Work work;
  TRY(leaf_work(params, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS *params) {
  ENTER(PLAIN);
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  TRY(kernel_work(*params, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_MEMCPY3D *params, CUcontext) {
  ENTER(PLAIN);
  Work work;
  TRY(copy_work(params, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_MEMSET_NODE_PARAMS *params, CUcontext) {
  ENTER(PLAIN);
  Work work;
  TRY(fill_work(params, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_HOST_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  TRY(host_work(params, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                   CUevent event) {
  ENTER(PLAIN);
  Work work;
  TRY(event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                 CUevent event) {
  ENTER(PLAIN);
  Work work;
  TRY(event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work));
  return set_leaf(exec, node, std::move(work));
}

EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                   CUgraph child) {
  ENTER(PLAIN);
  return set_child(exec, node, child);
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                  CUgraphExecUpdateResultInfo *info) {
  ENTER(PLAIN);
  if (!state().execs.count(exec) || !is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  PlanRef plan;
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_ERROR;
  if (!make_plan(graph, &plan)) result = adopt(*exec->plan, plan.get(), exec->flags);
  if (info) *info = {result, nullptr, nullptr};
  if (result) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  exec->plan = plan;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int on) {
  ENTER(PLAIN);
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  Step *step = step_of(exec, node);
  if (!step || !can_be_off(step->work.type)) return CUDA_ERROR_INVALID_VALUE;
  step->enabled = on != 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *on) {
  ENTER(PLAIN);
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  Step *step = step_of(exec, node);
  if (!step || !can_be_off(step->work.type)) return CUDA_ERROR_INVALID_VALUE;
  *on = step->enabled;
  return CUDA_SUCCESS;
}
