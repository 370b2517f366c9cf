#include "probe.h"

namespace {
Rig opened;
}

Rig &rig() { return opened; }

extern "C" int probe_open(const char *cubin) {
  return guarded([&] {
    Rig &r = opened;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&r.device, 0));
    MUST(cuDevicePrimaryCtxRetain(&r.context, r.device));
    MUST(cuCtxSetCurrent(r.context));
    MUST(cuModuleLoad(&r.module, cubin));
    MUST(cuStreamCreate(&r.stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&r.data, 1 << 20));
    r.zero(r.data, (1 << 20) / 4);
    void *pinned;
    MUST(cuMemHostAlloc(&pinned, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
    std::memset(pinned, 0, 1 << 20);
    r.pinned = static_cast<float *>(pinned);
  });
}

CUDA_KERNEL_NODE_PARAMS narrow(const CUgraphNodeParams &p) {
  CUDA_KERNEL_NODE_PARAMS k;
  std::memset(&k, 0, sizeof k);
  k.func = p.kernel.func;
  k.gridDimX = p.kernel.gridDimX;
  k.gridDimY = p.kernel.gridDimY;
  k.gridDimZ = p.kernel.gridDimZ;
  k.blockDimX = p.kernel.blockDimX;
  k.blockDimY = p.kernel.blockDimY;
  k.blockDimZ = p.kernel.blockDimZ;
  k.sharedMemBytes = p.kernel.sharedMemBytes;
  k.kernelParams = p.kernel.kernelParams;
  return k;
}

CUgraphNodeParams nothing() {
  CUgraphNodeParams p;
  std::memset(&p, 0, sizeof p);
  p.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return p;
}

CUgraphNodeParams fill(CUdeviceptr to, unsigned value, size_t n, unsigned size, size_t rows) {
  CUgraphNodeParams p = nothing();
  p.type = CU_GRAPH_NODE_TYPE_MEMSET;
  p.memset.dst = to;
  p.memset.value = value;
  p.memset.elementSize = size;
  p.memset.width = n;
  p.memset.height = rows;
  p.memset.pitch = rows > 1 ? n * size : 0;
  p.memset.ctx = rig().context;
  return p;
}

CUgraphNodeParams copy(uintptr_t to, bool to_host, uintptr_t from, bool from_host, size_t bytes) {
  CUgraphNodeParams p = nothing();
  p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  p.memcpy.copyCtx = rig().context;
  CUDA_MEMCPY3D &c = p.memcpy.copyParams;
  c.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  c.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (from_host) c.srcHost = reinterpret_cast<const void *>(from);
  else c.srcDevice = from;
  if (to_host) c.dstHost = reinterpret_cast<void *>(to);
  else c.dstDevice = to;
  c.WidthInBytes = bytes;
  c.Height = c.Depth = 1;
  return p;
}

CUgraphNodeParams child(CUgraph graph, bool move) {
  CUgraphNodeParams p = nothing();
  p.type = CU_GRAPH_NODE_TYPE_GRAPH;
  p.graph.graph = graph;
  p.graph.ownership =
      move ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  return p;
}

CUgraphNodeParams host(CUhostFn f, void *data) {
  CUgraphNodeParams p = nothing();
  p.type = CU_GRAPH_NODE_TYPE_HOST;
  p.host.fn = f;
  p.host.userData = data;
  return p;
}

CUgraphEdgeData programmatic() {
  CUgraphEdgeData edge;
  std::memset(&edge, 0, sizeof edge);
  edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return edge;
}

CUresult try_add(CUgraph graph, CUgraphNodeParams p, const Nodes &after, CUgraphNode *node,
                 const std::vector<CUgraphEdgeData> &edges) {
  *node = nullptr;
  return cuGraphAddNode(node, graph, after.empty() ? nullptr : after.data(),
                        edges.empty() ? nullptr : edges.data(), after.size(), &p);
}

CUgraphNode add(CUgraph graph, CUgraphNodeParams p, const Nodes &after,
                const std::vector<CUgraphEdgeData> &edges) {
  CUgraphNode node;
  MUST(try_add(graph, p, after, &node, edges));
  return node;
}

CUgraph new_graph() {
  CUgraph graph;
  MUST(cuGraphCreate(&graph, 0));
  return graph;
}

CUgraphExec executable(CUgraph graph, unsigned long long flags) {
  CUgraphExec exec;
  MUST(cuGraphInstantiate(&exec, graph, flags));
  return exec;
}

void run(CUgraphExec exec) {
  MUST(cuGraphLaunch(exec, rig().stream));
  MUST(cuStreamSynchronize(rig().stream));
}

void raise_clocks() {
  const CUfunction linger = rig().function("linger");
  kernel(linger, 132, 256, 400000000ull);
  MUST(cuLaunchKernel(linger, 132, 1, 1, 256, 1, 1, 0, rig().stream, argument_pointers, nullptr));
  rig().wait();
}

bool goes(const std::string &name, CUgraph graph) {
  CUgraphExec exec;
  if (verdict(name + ": instantiate", cuGraphInstantiate(&exec, graph, 0))) return false;
  CUresult code = cuGraphLaunch(exec, rig().stream);
  if (code == CUDA_SUCCESS) code = cuStreamSynchronize(rig().stream);
  verdict(name + ": run", code);
  cuGraphExecDestroy(exec);
  return code == CUDA_SUCCESS;
}

CUgraphNodeParams conditional_params(CUgraphConditionalNodeType type, CUgraph in, unsigned initial,
                                     CUgraphConditionalHandle *handle) {
  MUST(cuGraphConditionalHandleCreate(handle, in, rig().context, initial,
                                      CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams p = nothing();
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional.handle = *handle;
  p.conditional.type = type;
  p.conditional.size = 1;
  p.conditional.ctx = rig().context;
  return p;
}

Conditional conditional(CUgraphConditionalNodeType type, CUgraph in, unsigned initial) {
  Conditional c;
  c.graph = in ? in : new_graph();
  CUgraphNodeParams p = conditional_params(type, c.graph, initial, &c.handle);
  MUST(cuGraphAddNode(&c.node, c.graph, nullptr, nullptr, 0, &p));
  c.body = p.conditional.phGraph_out[0];
  return c;
}

Nodes chain(CUgraph graph, CUfunction f, int n, bool early, int lanes) {
  Nodes nodes;
  for (int i = 0; i < n; ++i) {
    // Lanes touch different bytes, so that a wrong order would show in the sums.
    CUgraphNodeParams p = kernel(f, 1, 32, rig().data + 4096 * (i % lanes));
    if (i < lanes) nodes.push_back(add(graph, p));
    else if (early) nodes.push_back(add(graph, p, {nodes[i - lanes]}, {programmatic()}));
    else nodes.push_back(add(graph, p, {nodes[i - lanes]}));
  }
  return nodes;
}
