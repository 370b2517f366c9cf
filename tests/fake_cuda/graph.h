// Graphs, and what executables are made of.
#pragma once

#include "fake.h"

struct Edge {
  CUgraphNode from;
  CUgraphEdgeData data;
};

struct CUgraphNode_st {
  CUgraph graph = nullptr;
  uint64_t id = 0;
  Work work;
  std::vector<Edge> in;
  CUgraphNode original = nullptr;  // of a clone
};

struct CUgraph_st {
  std::vector<CUgraphNode> nodes;  // in the order of their making
  std::vector<CUgraphConditionalHandle> handles;
  CUgraphNode owner = nullptr;  // the node that this is the child or a body of
  bool moved = false;           // given away to its owner
  std::shared_ptr<int> lives = std::make_shared<int>(0);  // executables made of it
};

// ---- graphs ------------------------------------------------------------------------------------
bool is_live(CUgraph graph);
bool is_live(CUgraphNode node);
CUgraph make_graph();
void destroy_graph(CUgraph graph);
void destroy_node(CUgraphNode node);
CUresult clone_graph(CUgraph graph, CUgraph *out);
bool has_conditional(CUgraph graph);
// Whether the graph is the body of a conditional, or lies in one.
bool in_body(CUgraph graph);
bool is_forbidden_in_body(const Work &work);

std::map<CUgraphConditionalHandle, Condition> &conditions();

// Adds a node. Nothing has changed where it refuses. Takes the graphs that the work owns.
CUresult add_node(CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t n,
                  Work work, CUgraphNode *out);
CUresult check_edges(CUgraph graph, const CUgraphNode *from, const CUgraphEdgeData *data, size_t n,
                     CUgraphNodeType to);
CUgraphEdgeData plain_edge();

// ---- parameters of nodes -----------------------------------------------------------------------
CUresult check_work(const Work &work);
CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS &params, Work *out);
CUresult copy_work(const CUDA_MEMCPY3D *params, Work *out);
CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS *params, Work *out);
CUresult host_work(const CUDA_HOST_NODE_PARAMS *params, Work *out);
CUresult event_work(CUgraphNodeType type, CUevent event, Work *out);
// Leaf kinds only: all but child graphs and conditionals.
CUresult leaf_work(const CUgraphNodeParams *params, Work *out);

// ---- executables -------------------------------------------------------------------------------
struct Plan;
using PlanRef = std::shared_ptr<Plan>;

struct Step {
  uint64_t node = 0;
  Work work;
  bool enabled = true;
  std::vector<std::pair<size_t, CUgraphEdgeData>> in;  // places of the steps that come first
  std::vector<PlanRef> plans;                          // of the child graph, or of the bodies
};

struct Plan {
  std::vector<Step> steps;
  bool is_body = false;
};

struct CUgraphExec_st {
  PlanRef plan;  // shared with the launches under way: copied before it changes
  unsigned long long flags = 0;
  CUcontext context = nullptr;
  TicketRef last;  // one launch at a time
  std::shared_ptr<int> lives;
};

CUresult make_plan(CUgraph graph, PlanRef *out);
PlanRef copy_plan(const Plan &plan);
// The step of a node, wherever it lies, in a plan that may be changed; null: not of this one.
Step *step_of(CUgraphExec exec, CUgraphNode node, bool *in_body = nullptr);
CUresult run_plan(const Plan &plan, CUcontext context, uint64_t seed);
// Whether the plan holds a kernel that only a GPU can run.
bool runs_here(const Plan &plan);
