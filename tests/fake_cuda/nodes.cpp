// Adding nodes, and what a node of each kind must look like.
#include <cstring>

#include "graph.h"

namespace {
CUresult add_leaf(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t n, Work work) {
  if (!out || !is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_edges(graph, from, nullptr, n, work.type));
  return add_node(graph, from, nullptr, n, std::move(work), out);
}

CUresult child_work(CUgraph graph, CUgraph child, bool is_move, Work *out) {
  if (!is_live(child) || child == graph) return CUDA_ERROR_INVALID_VALUE;
  if (has_conditional(child) || child->moved) return CUDA_ERROR_NOT_SUPPORTED;
  out->type = CU_GRAPH_NODE_TYPE_GRAPH;
  if (is_move) {
    if (child->owner) return CUDA_ERROR_INVALID_VALUE;
    child->moved = true;
    out->child = child;
    return CUDA_SUCCESS;
  }
  return clone_graph(child, &out->child);
}

CUresult conditional_work(const CUDA_CONDITIONAL_NODE_PARAMS *params, Work *out) {
  auto found = conditions().find(params->handle);
  if (found == conditions().end() || found->second.node) return CUDA_ERROR_INVALID_VALUE;
  const unsigned size = params->size;
  switch (params->type) {
    case CU_GRAPH_COND_TYPE_IF:
      if (size != 1 && size != 2) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_GRAPH_COND_TYPE_WHILE:
      if (size != 1) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_GRAPH_COND_TYPE_SWITCH:
      if (size == 0) return CUDA_ERROR_INVALID_VALUE;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  out->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  out->conditional.handle = params->handle;
  out->conditional.type = params->type;
  for (unsigned i = 0; i < size; ++i) out->conditional.bodies.push_back(make_graph());
  return CUDA_SUCCESS;
}

bool is_handle_of(CUgraphConditionalHandle handle, CUgraph graph) {
  auto found = conditions().find(handle);
  return found != conditions().end() && found->second.graph == graph;
}
}  // namespace

// ---- each kind ---------------------------------------------------------------------------------
CUresult check_work(const Work &work) {
  switch (work.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return check_kernel(work.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return check_copy(work.copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return check_fill(work.fill);
    case CU_GRAPH_NODE_TYPE_HOST:
      return work.host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return state().events.count(work.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_SUCCESS;
  }
}

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS &p, Work *out) {
  out->type = CU_GRAPH_NODE_TYPE_KERNEL;
  KernelWork &k = out->kernel;
  k.function = find_function(p.func ? p.func : reinterpret_cast<CUfunction>(p.kern));
  if (!k.function) return CUDA_ERROR_INVALID_VALUE;
  const unsigned dims[6] = {p.gridDimX,  p.gridDimY,  p.gridDimZ,
                            p.blockDimX, p.blockDimY, p.blockDimZ};
  std::memcpy(k.grid, dims, sizeof k.grid);
  std::memcpy(k.block, dims + 3, sizeof k.block);
  k.shared = p.sharedMemBytes;
  TRY(pack_arguments(k.function, p.kernelParams, p.extra, &k));
  return check_work(*out);
}

CUresult copy_work(const CUDA_MEMCPY3D *params, Work *out) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  out->copy = *params;
  return check_work(*out);
}

CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS *params, Work *out) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_MEMSET;
  out->fill = *params;
  return check_work(*out);
}

CUresult host_work(const CUDA_HOST_NODE_PARAMS *params, Work *out) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  out->type = CU_GRAPH_NODE_TYPE_HOST;
  out->host = *params;
  return check_work(*out);
}

CUresult event_work(CUgraphNodeType type, CUevent event, Work *out) {
  out->type = type;
  out->event = event;
  return check_work(*out);
}

CUresult leaf_work(const CUgraphNodeParams *p, Work *out) {
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS narrow;
      static_assert(sizeof narrow == sizeof p->kernel);
      std::memcpy(&narrow, &p->kernel, sizeof narrow);
      return kernel_work(narrow, out);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_work(&p->memcpy.copyParams, out);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto &m = p->memset;
      const CUDA_MEMSET_NODE_PARAMS old = {m.dst,         m.pitch, m.value,
                                           m.elementSize, m.width, m.height};
      return fill_work(&old, out);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS old = {p->host.fn, p->host.userData};
      return host_work(&old, out);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      out->type = p->type;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work(p->type, p->eventWait.event, out);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work(p->type, p->eventRecord.event, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      out->type = p->type;
      out->operations.assign(p->memOp.paramArray, p->memOp.paramArray + p->memOp.count);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// ---- calls -------------------------------------------------------------------------------------
EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph graph,
                                               CUcontext context, unsigned int fallback,
                                               unsigned int flags) {
  ENTER(PLAIN);
  if (!out || !is_live(graph) || flags > CU_GRAPH_COND_ASSIGN_DEFAULT)
    return CUDA_ERROR_INVALID_VALUE;
  if (!context && !entry.context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = (0xc0de000000000000ull) | next_id();
  Condition &made = conditions()[*out];
  made.graph = graph;
  made.fallback = fallback;
  made.flags = flags;
  graph->handles.push_back(*out);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                               const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *params) {
  ENTER(PLAIN);
  if (!out || !is_live(graph) || !params) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_edges(graph, from, data, n, params->type));
  Work work;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      TRY(child_work(graph, params->graph.graph,
                     params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, &work));
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (!is_handle_of(params->conditional.handle, graph)) return CUDA_ERROR_INVALID_VALUE;
      TRY(conditional_work(&params->conditional, &work));
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      uintptr_t place = 0;
      TRY(allocate(primary(params->alloc.poolProps.location.id), params->alloc.bytesize,
                   Kind::device, 0, &place));
      work.type = params->type;
      work.memory = params->alloc.dptr = place;
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      bool is_known = false;
      for (CUgraphNode node : graph->nodes)
        is_known = is_known || (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
                                node->work.memory == params->free.dptr);
      if (!is_known) return CUDA_ERROR_INVALID_VALUE;
      work.type = params->type;
      break;
    }
    default:
      TRY(leaf_work(params, &work));
  }
  TRY(add_node(graph, from, data, n, std::move(work), out));
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    conditions()[params->conditional.handle].node = *out;
    params->conditional.phGraph_out = (*out)->work.conditional.bodies.data();
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                     size_t n, const CUDA_KERNEL_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  TRY(kernel_work(*params, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                     size_t n, const CUDA_MEMCPY3D *params, CUcontext) {
  ENTER(PLAIN);
  Work work;
  TRY(copy_work(params, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                     size_t n, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext) {
  ENTER(PLAIN);
  Work work;
  TRY(fill_work(params, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                   size_t n, const CUDA_HOST_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  TRY(host_work(params, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                    size_t n) {
  ENTER(PLAIN);
  return add_leaf(out, graph, from, n, Work());
}

EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                          size_t n, CUevent event) {
  ENTER(PLAIN);
  Work work;
  TRY(event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                        size_t n, CUevent event) {
  ENTER(PLAIN);
  Work work;
  TRY(event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work));
  return add_leaf(out, graph, from, n, std::move(work));
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                         size_t n, CUgraph child) {
  ENTER(PLAIN);
  if (!out || !is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  TRY(check_edges(graph, from, nullptr, n, CU_GRAPH_NODE_TYPE_GRAPH));
  Work work;
  TRY(child_work(graph, child, false, &work));
  return add_node(graph, from, nullptr, n, std::move(work), out);
}
