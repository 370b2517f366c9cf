// Which kinds of nodes the driver takes in the body of a conditional.
#include "probe.h"

namespace {
void CUDA_CB do_nothing(void *) {}
}  // namespace

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
