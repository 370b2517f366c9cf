// Graphs: nodes and the edges between them.
#include <algorithm>
#include <cstring>

#include "graph.h"

namespace {
bool has_edge(const CUgraphNode_st &to, CUgraphNode from) {
  return std::any_of(to.in.begin(), to.in.end(), [&](const Edge &e) { return e.from == from; });
}

bool is_plain(const CUgraphEdgeData &data) {
  const CUgraphEdgeData plain = plain_edge();
  return !std::memcmp(&data, &plain, sizeof plain);
}

// Fills what the caller has room for; how many there are when there is no room given.
template <class Item>
CUresult hand_out(const std::vector<Item> &found, Item *out, size_t *count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (out) {
    if (!*count) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < *count; ++i) out[i] = i < found.size() ? found[i] : Item{};
    *count = std::min(*count, found.size());
  } else {
    *count = found.size();
  }
  return CUDA_SUCCESS;
}

// The same for edges; their data may be left out only if there is nothing in them.
CUresult hand_out_edges(const std::vector<CUgraphNode> &first, CUgraphNode *out_first,
                        const std::vector<CUgraphNode> &second, CUgraphNode *out_second,
                        const std::vector<CUgraphEdgeData> &data, CUgraphEdgeData *out_data,
                        size_t *count) {
  if (!out_data && (out_first || out_second))
    for (const CUgraphEdgeData &one : data)
      if (!is_plain(one)) return CUDA_ERROR_LOSSY_QUERY;
  size_t n = *count;
  if (out_data) TRY(hand_out(data, out_data, &n));
  n = *count;
  if (out_second) TRY(hand_out(second, out_second, &n));
  return hand_out(first, out_first, count);
}
}  // namespace

CUgraphEdgeData plain_edge() {
  CUgraphEdgeData data;
  std::memset(&data, 0, sizeof data);
  return data;
}

bool is_live(CUgraph graph) { return state().graphs.count(graph); }
bool is_live(CUgraphNode node) { return state().nodes.count(node); }

std::map<CUgraphConditionalHandle, Condition> &conditions() {
  static auto *all = new std::map<CUgraphConditionalHandle, Condition>;
  return *all;
}

CUgraph make_graph() {
  CUgraph graph = new CUgraph_st;
  state().graphs.insert(graph);
  return graph;
}

void destroy_node(CUgraphNode node) {
  if (node->work.child) destroy_graph(node->work.child);
  for (CUgraph body : node->work.conditional.bodies) destroy_graph(body);
  if (node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    const CUgraphConditionalHandle handle = node->work.conditional.handle;
    auto found = conditions().find(handle);
    if (found != conditions().end() && is_live(found->second.graph)) {
      auto &handles = found->second.graph->handles;
      handles.erase(std::remove(handles.begin(), handles.end(), handle), handles.end());
    }
  }
  if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) release(node->work.memory, Kind::device);
  state().nodes.erase(node);
  delete node;
}

void destroy_graph(CUgraph graph) {
  state().graphs.erase(graph);
  for (CUgraphNode node : graph->nodes) destroy_node(node);
  delete graph;
}

bool has_conditional(CUgraph graph) {
  for (CUgraphNode node : graph->nodes)
    if (node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        (node->work.child && has_conditional(node->work.child)))
      return true;
  return false;
}

bool in_body(CUgraph graph) {
  for (; graph->owner; graph = graph->owner->graph)
    if (graph->owner->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return true;
  return false;
}

CUresult clone_graph(CUgraph graph, CUgraph *out) {
  if (has_conditional(graph) || graph->moved) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph made = make_graph();
  std::map<CUgraphNode, CUgraphNode> twin;
  for (CUgraphNode node : graph->nodes) {
    CUgraphNode copy = new CUgraphNode_st(*node);
    copy->graph = made;
    copy->id = next_id();
    copy->original = node;
    auto &kernel = copy->work.kernel;
    kernel.pointers.clear();
    for (auto &bytes : kernel.arguments) kernel.pointers.push_back(bytes.data());
    if (node->work.child) {
      // Without conditionals there is nothing that could be refused.
      clone_graph(node->work.child, &copy->work.child);
      copy->work.child->owner = copy;
    }
    twin[node] = copy;
    made->nodes.push_back(copy);
    state().nodes[copy] = copy->id;
  }
  for (CUgraphNode copy : made->nodes)
    for (Edge &edge : copy->in) edge.from = twin[edge.from];
  *out = made;
  return CUDA_SUCCESS;
}

CUresult check_edges(CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t n,
                     CUgraphNodeType to) {
  std::set<CUgraphNode> seen;
  if (n && !from) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; ++i) {
    if (!is_live(from[i]) || from[i]->graph != graph || !seen.insert(from[i]).second)
      return CUDA_ERROR_INVALID_VALUE;
    if (!data || is_plain(data[i])) continue;
    // Programmatic edges go from kernel to kernel, and nothing else is more than plain.
    if (data[i].type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || data[i].to_port ||
        from[i]->work.type != CU_GRAPH_NODE_TYPE_KERNEL || to != CU_GRAPH_NODE_TYPE_KERNEL ||
        (data[i].from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
         data[i].from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult add_node(CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t n,
                  Work work, CUgraphNode *out) {
  CUgraphNode node = new CUgraphNode_st;
  node->graph = graph;
  node->id = next_id();
  node->work = std::move(work);
  auto &kernel = node->work.kernel;
  for (auto &bytes : kernel.arguments) kernel.pointers.push_back(bytes.data());
  if (node->work.child) node->work.child->owner = node;
  for (CUgraph body : node->work.conditional.bodies) body->owner = node;
  for (size_t i = 0; i < n; ++i) node->in.push_back({from[i], data ? data[i] : plain_edge()});
  graph->nodes.push_back(node);
  state().nodes[node] = node->id;
  *out = node;
  return CUDA_SUCCESS;
}

// ---- calls -------------------------------------------------------------------------------------
EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned int flags) {
  ENTER(PLAIN);
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  *out = make_graph();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  ENTER(PLAIN);
  if (!is_live(graph) || graph->owner) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(graph);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphClone(CUgraph *out, CUgraph graph) {
  ENTER(PLAIN);
  if (!out || !is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  return clone_graph(graph, out);
}

EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone) {
  ENTER(PLAIN);
  if (!is_live(clone)) return CUDA_ERROR_INVALID_VALUE;
  for (CUgraphNode node : clone->nodes)
    if (node->original == original) {
      *out = node;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode node) {
  ENTER(PLAIN);
  if (!is_live(node)) return CUDA_ERROR_INVALID_VALUE;
  auto &nodes = node->graph->nodes;
  nodes.erase(std::remove(nodes.begin(), nodes.end(), node), nodes.end());
  for (CUgraphNode other : nodes)
    other->in.erase(std::remove_if(other->in.begin(), other->in.end(),
                                   [&](const Edge &e) { return e.from == node; }),
                    other->in.end());
  destroy_node(node);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                       const CUgraphNode *to, const CUgraphEdgeData *data,
                                       size_t n) {
  ENTER(PLAIN);
  if (!is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  std::set<std::pair<CUgraphNode, CUgraphNode>> seen;
  for (size_t i = 0; i < n; ++i) {
    if (!is_live(to[i]) || to[i]->graph != graph || from[i] == to[i])
      return CUDA_ERROR_INVALID_VALUE;
    TRY(check_edges(graph, from + i, data ? data + i : nullptr, 1, to[i]->work.type));
    if (has_edge(*to[i], from[i]) || !seen.insert({from[i], to[i]}).second)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < n; ++i) to[i]->in.push_back({from[i], data ? data[i] : plain_edge()});
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                          const CUgraphNode *to, const CUgraphEdgeData *,
                                          size_t n) {
  ENTER(PLAIN);
  if (!is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; ++i)
    if (!is_live(to[i]) || !has_edge(*to[i], from[i])) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; ++i) {
    auto &in = to[i]->in;
    in.erase(std::remove_if(in.begin(), in.end(), [&](const Edge &e) { return e.from == from[i]; }),
             in.end());
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *count) {
  ENTER(PLAIN);
  if (!is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  return hand_out(graph->nodes, out, count);
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *count) {
  ENTER(PLAIN);
  if (!is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> roots;
  for (CUgraphNode node : graph->nodes)
    if (node->in.empty()) roots.push_back(node);
  return hand_out(roots, out, count);
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                CUgraphEdgeData *data, size_t *count) {
  ENTER(PLAIN);
  if (!is_live(graph) || !count || !from != !to) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> starts, ends;
  std::vector<CUgraphEdgeData> datas;
  for (CUgraphNode node : graph->nodes)
    for (const Edge &edge : node->in) {
      starts.push_back(edge.from);
      ends.push_back(node);
      datas.push_back(edge.data);
    }
  return hand_out_edges(starts, from, ends, to, datas, data, count);
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *out,
                                           CUgraphEdgeData *data, size_t *count) {
  ENTER(PLAIN);
  if (!is_live(node) || !count) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> found;
  std::vector<CUgraphEdgeData> datas;
  for (const Edge &edge : node->in) found.push_back(edge.from), datas.push_back(edge.data);
  return hand_out_edges(found, out, {}, nullptr, datas, data, count);
}

EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *out,
                                             CUgraphEdgeData *data, size_t *count) {
  ENTER(PLAIN);
  if (!is_live(node) || !count) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> found;
  std::vector<CUgraphEdgeData> datas;
  for (CUgraphNode other : node->graph->nodes)
    for (const Edge &edge : other->in)
      if (edge.from == node) found.push_back(other), datas.push_back(edge.data);
  return hand_out_edges(found, out, {}, nullptr, datas, data, count);
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  ENTER(PLAIN);
  if (!is_live(node)) return CUDA_ERROR_INVALID_VALUE;
  *type = node->work.type;
  return CUDA_SUCCESS;
}
