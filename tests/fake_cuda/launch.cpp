// Launching executables, and running what they hold in an order that the edges allow.
#include <algorithm>
#include <random>

#include "images.h"
#include "graph.h"

namespace {
// A legal order; without a seed that of the nodes' making, as far as edges allow.
std::vector<size_t> order_of(const Plan &plan, std::mt19937_64 *random) {
  const size_t n = plan.steps.size();
  std::vector<size_t> waits(n), ready, order;
  std::vector<std::vector<size_t>> next(n);
  for (size_t i = 0; i < n; ++i) {
    waits[i] = plan.steps[i].in.size();
    for (const auto &[from, data] : plan.steps[i].in) next[from].push_back(i);
    if (!waits[i]) ready.push_back(i);
  }
  while (!ready.empty()) {
    const size_t at = random ? (*random)() % ready.size()
                             : std::min_element(ready.begin(), ready.end()) - ready.begin();
    const size_t step = ready[at];
    ready[at] = ready.back();
    ready.pop_back();
    order.push_back(step);
    for (size_t after : next[step])
      if (--waits[after] == 0) ready.push_back(after);
  }
  return order;
}

unsigned value_of(CUgraphConditionalHandle handle) {
  Lock lock(state().mutex);
  auto found = conditions().find(handle);
  return found == conditions().end() ? 0 : found->second.value;
}

CUresult run(const Plan &plan, CUcontext context, std::mt19937_64 *random);

CUresult run_conditional(const Step &step, CUcontext context, std::mt19937_64 *random) {
  const ConditionalWork &c = step.work.conditional;
  unsigned value = value_of(c.handle);
  if (c.type == CU_GRAPH_COND_TYPE_WHILE) {
    for (; value; value = value_of(c.handle)) TRY(run(*step.plans[0], context, random));
    return CUDA_SUCCESS;
  }
  if (c.type == CU_GRAPH_COND_TYPE_IF) value = value ? 0 : 1;
  return value < step.plans.size() ? run(*step.plans[value], context, random) : CUDA_SUCCESS;
}

CUresult run(const Plan &plan, CUcontext context, std::mt19937_64 *random) {
  for (size_t place : order_of(plan, random)) {
    const Step &step = plan.steps[place];
    {
      Lock lock(state().mutex);
      pass_gate(lock);
      if (context->sticky) return context->sticky;
    }
    if (!step.enabled) continue;
    if (step.work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      TRY(run_conditional(step, context, random));
    } else if (step.work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      TRY(run(*step.plans[0], context, random));
    } else {
      TRY(perform(step.work, step.work.type == CU_GRAPH_NODE_TYPE_KERNEL
                                 ? step.work.kernel.function->context
                                 : context));
    }
  }
  return CUDA_SUCCESS;
}

void assign_defaults(const Plan &plan) {
  for (const Step &step : plan.steps) {
    if (step.work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      auto found = conditions().find(step.work.conditional.handle);
      if (found != conditions().end() && (found->second.flags & CU_GRAPH_COND_ASSIGN_DEFAULT))
        found->second.value = found->second.fallback;
    }
    for (const PlanRef &inner : step.plans) assign_defaults(*inner);
  }
}
}  // namespace

bool set_condition(CUgraphConditionalHandle handle, unsigned value) {
  auto found = conditions().find(handle);
  if (found == conditions().end()) return false;
  found->second.value = value;
  return true;
}

bool runs_here(const Plan &plan) {
  for (const Step &step : plan.steps) {
    if (step.work.type == CU_GRAPH_NODE_TYPE_KERNEL && step.enabled &&
        step.work.kernel.function->alive && !runs_here(step.work.kernel.function))
      return false;
    for (const PlanRef &inner : step.plans)
      if (!runs_here(*inner)) return false;
  }
  return true;
}

CUresult run_plan(const Plan &plan, CUcontext context, uint64_t seed) {
  {
    Lock lock(state().mutex);
    assign_defaults(plan);
  }
  std::mt19937_64 random(seed);
  return run(plan, context, seed ? &random : nullptr);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  ENTER(PLAIN);
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) {
    spoil(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  CUcontext context = stream->context;
  if (stream == context->legacy) TRY(legacy_beside_capture(context));
  if (!runs_here(*exec->plan)) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t seed = state().seed ? state().seed * 1000003 + next_id() : 0;
  exec->last = enqueue(stream,
                       [plan = exec->plan, context, seed] {
                         if (CUresult code = run_plan(*plan, context, seed)) poison(context, code);
                       },
                       {exec->last});
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  ENTER(PLAIN);
  if (!state().execs.count(exec)) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) {
    spoil(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  enqueue(stream, [] {});
  return CUDA_SUCCESS;
}
