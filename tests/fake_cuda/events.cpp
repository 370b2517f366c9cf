// Events: marks in streams.
#include "fake.h"

namespace {
CUresult find(CUevent event) {
  return state().events.count(event) ? event->context->sticky : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record(CUstream handle, CUevent event) {
  CUstream stream;
  TRY(find_stream(handle, &stream));
  TRY(find(event));
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return capture_record(stream, event);
  event->capture = nullptr;
  event->ticket = enqueue(stream, [] {});
  return CUDA_SUCCESS;
}
}  // namespace

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY);
  if (!out || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  CUevent event = new CUevent_st;
  event->context = entry.context;
  event->flags = flags;
  state().events.insert(event);
  *out = event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event) {
  ENTER(PLAIN);
  TRY(find(event));
  state().events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(PLAIN);
  return record(stream, event);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  TRY(find(event));
  if (stream->capture && (flags & CU_EVENT_RECORD_EXTERNAL)) {
    Work work;
    work.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    work.event = event;
    return capture_work(stream, std::move(work));
  }
  return record(handle, event);
}

EXPORT CUresult cuEventQuery(CUevent event) {
  ENTER(PLAIN);
  TRY(find(event));
  if (event->capture) {
    spoil(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return !event->ticket || event->ticket->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
  ENTER(PLAIN);
  TRY(find(event));
  if (event->capture) {
    spoil(event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  CUcontext context = event->context;
  wait_for(entry.lock, TicketRef(event->ticket));
  return context->sticky;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  ENTER(PLAIN);
  TRY(find(start));
  TRY(find(end));
  if (!start->ticket || !end->ticket || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->capture || end->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (!start->ticket->done || !end->ticket->done) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>((end->ticket->when - start->ticket->when) * 1e3);
  return CUDA_SUCCESS;
}
