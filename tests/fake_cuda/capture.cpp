// Capturing the work of streams into graphs.
#include <unistd.h>

#include <algorithm>

#include "graph.h"

namespace {
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

uint64_t this_thread() { return static_cast<uint64_t>(gettid()); }

CUresult sound(CUstream stream) {
  return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

void leave(const CaptureRef &capture) {
  for (CUstream member : capture->members) {
    member->capture = nullptr;
    member->tail.clear();
  }
  for (CUevent event : state().events)
    if (event->capture == capture) event->capture = nullptr;
  state().captures.erase(capture);
}

void merge(std::vector<CUgraphNode> *into, const std::vector<CUgraphNode> &more) {
  for (CUgraphNode node : more)
    if (std::find(into->begin(), into->end(), node) == into->end()) into->push_back(node);
}

// Whether all that the capture holds is reached from where its origin stands.
bool is_joined(const Capture &capture, const std::vector<CUgraphNode> &tail) {
  std::set<CUgraphNode> reached;
  std::vector<CUgraphNode> open = tail;
  while (!open.empty()) {
    CUgraphNode node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    for (const Edge &edge : node->in) open.push_back(edge.from);
  }
  for (CUstream member : capture.members)
    if (member != capture.origin)
      for (CUgraphNode node : member->tail)
        if (!reached.count(node)) return false;
  return true;
}

CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *from, size_t n,
               CUstreamCaptureMode mode) {
  if (is_legacy(handle) || mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->owned = !graph;
  capture->graph = graph ? graph : make_graph();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = this_thread();
  capture->id = next_id();
  capture->members.insert(stream);
  state().captures.insert(capture);
  stream->capture = capture;
  stream->tail.assign(from, from + n);
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus status_of(CUstream stream) {
  if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}
}  // namespace

void spoil(const CaptureRef &capture) {
  if (capture) capture->invalid = true;
}

CUresult unsafe_call() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool is_spoilt = false;
  for (const CaptureRef &capture : state().captures) {
    const bool is_own = capture->thread == this_thread();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        (!is_own && (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
                     thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
      continue;
    spoil(capture);
    is_spoilt = true;
  }
  return is_spoilt ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult legacy_beside_capture(CUcontext context) {
  bool is_spoilt = false;
  for (const CaptureRef &capture : state().captures) {
    if (capture->origin->context != context || (capture->origin->flags & CU_STREAM_NON_BLOCKING))
      continue;
    spoil(capture);
    is_spoilt = true;
  }
  return is_spoilt ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult capture_work(CUstream stream, Work work) {
  TRY(sound(stream));
  if (CUresult bad = check_work(work)) {
    spoil(stream->capture);
    return bad;
  }
  CUgraphNode node;
  TRY(add_node(stream->capture->graph, stream->tail.data(), nullptr, stream->tail.size(),
               std::move(work), &node));
  stream->tail = {node};
  return CUDA_SUCCESS;
}

CUresult capture_record(CUstream stream, CUevent event) {
  TRY(sound(stream));
  event->capture = stream->capture;
  event->from = stream->tail;
  return CUDA_SUCCESS;
}

CUresult capture_wait(CUstream stream, CUevent event) {
  if (!event->capture) {
    // Work outside of the capture cannot be waited for.
    spoil(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != event->capture) {
    spoil(stream->capture);
    spoil(event->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!stream->capture) {
    if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream->capture = event->capture;
    stream->capture->members.insert(stream);
  }
  merge(&stream->tail, event->from);
  return CUDA_SUCCESS;
}

// ---- calls -------------------------------------------------------------------------------------
EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  ENTER(PLAIN);
  return begin(stream, nullptr, nullptr, 0, mode);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *from,
                                            const CUgraphEdgeData *, size_t n,
                                            CUstreamCaptureMode mode) {
  ENTER(PLAIN);
  if (!is_live(graph)) return CUDA_ERROR_INVALID_VALUE;
  return begin(stream, graph, from, n, mode);
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *out) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (out) *out = nullptr;
  const CaptureRef capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult code = CUDA_SUCCESS;
  if (capture->invalid) {
    code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!is_joined(*capture, stream->tail)) {
    code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  leave(capture);
  if (code && capture->owned) destroy_graph(capture->graph);
  if (!code && out) *out = capture->graph;
  return code;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream == stream->context->legacy) TRY(legacy_beside_capture(stream->context));
  *out = status_of(stream);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status,
                                       cuuint64_t *id, CUgraph *graph, const CUgraphNode **from,
                                       const CUgraphEdgeData **data, size_t *count) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream == stream->context->legacy) TRY(legacy_beside_capture(stream->context));
  *status = status_of(stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id) *id = stream->capture->id;
  if (graph) *graph = stream->capture->graph;
  if (from) *from = stream->tail.data();
  if (data) *data = nullptr;
  if (count) *count = stream->tail.size();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *from,
                                                  const CUgraphEdgeData *, size_t n,
                                                  unsigned int flags) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  TRY(sound(stream));
  for (size_t i = 0; i < n; ++i)
    if (!is_live(from[i]) || from[i]->graph != stream->capture->graph)
      return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tail.clear();
  merge(&stream->tail, std::vector<CUgraphNode>(from, from + n));
  return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(PLAIN);
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}
