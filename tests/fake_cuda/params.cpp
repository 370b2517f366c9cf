// Asking nodes of graphs for their parameters, and changing them there.
#include <cstring>

#include "graph.h"

namespace {
CUresult find(CUgraphNode node, CUgraphNodeType type) {
  return is_live(node) && node->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Keeps what belongs to the node and not to its parameters.
CUresult change(CUgraphNode node, Work work) {
  TRY(find(node, work.type));
  work.kernel.attributes = node->work.kernel.attributes;
  node->work = std::move(work);
  KernelWork &kernel = node->work.kernel;
  kernel.pointers.clear();
  for (auto &bytes : kernel.arguments) kernel.pointers.push_back(bytes.data());
  return CUDA_SUCCESS;
}
}  // namespace

// ---- kernels -----------------------------------------------------------------------------------
EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_KERNEL));
  KernelWork &k = node->work.kernel;
  std::memset(out, 0, sizeof *out);
  out->func = k.function;
  out->gridDimX = k.grid[0], out->gridDimY = k.grid[1], out->gridDimZ = k.grid[2];
  out->blockDimX = k.block[0], out->blockDimY = k.block[1], out->blockDimZ = k.block[2];
  out->sharedMemBytes = k.shared;
  out->kernelParams = k.pointers.data();
  out->ctx = k.function->context;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  TRY(find(node, CU_GRAPH_NODE_TYPE_KERNEL));
  TRY(kernel_work(*params, &work));
  return change(node, std::move(work));
}

EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID name,
                                              const CUkernelNodeAttrValue *value) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_KERNEL));
  KernelWork trial = node->work.kernel;
  trial.attributes[name] = *value;
  TRY(check_kernel(trial));
  node->work.kernel.attributes[name] = *value;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID name,
                                              CUkernelNodeAttrValue *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_KERNEL));
  std::memset(out, 0, sizeof *out);
  auto found = node->work.kernel.attributes.find(name);
  if (found != node->work.kernel.attributes.end()) *out = found->second;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  ENTER(PLAIN);
  TRY(find(to, CU_GRAPH_NODE_TYPE_KERNEL));
  TRY(find(from, CU_GRAPH_NODE_TYPE_KERNEL));
  to->work.kernel.attributes = from->work.kernel.attributes;
  return CUDA_SUCCESS;
}

// ---- other kinds -------------------------------------------------------------------------------
EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_MEMCPY));
  *out = node->work.copy;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
  ENTER(PLAIN);
  Work work;
  TRY(copy_work(params, &work));
  return change(node, std::move(work));
}

EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_MEMSET));
  *out = node->work.fill;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                           const CUDA_MEMSET_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  TRY(fill_work(params, &work));
  return change(node, std::move(work));
}

EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_HOST));
  *out = node->work.host;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
  ENTER(PLAIN);
  Work work;
  TRY(host_work(params, &work));
  return change(node, std::move(work));
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_GRAPH));
  *out = node->work.child;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD));
  *out = node->work.event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *out) {
  ENTER(PLAIN);
  TRY(find(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT));
  *out = node->work.event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
  ENTER(PLAIN);
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  TRY(leaf_work(params, &work));
  return change(node, std::move(work));
}
