// Streams: creation, order, waiting.
#include "fake.h"

namespace {
// Asking a capturing stream how far it is spoils the capture.
CUresult not_capturing(CUstream stream) {
  if (!stream->capture) return CUDA_SUCCESS;
  spoil(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// The stream itself, poisoned or not.
CUresult find_any(CUstream handle, CUstream *out) {
  const CUresult code = find_stream(handle, out);
  return code == CUDA_ERROR_INVALID_HANDLE || code == CUDA_ERROR_INVALID_CONTEXT ? code
                                                                                 : CUDA_SUCCESS;
}
}  // namespace

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
  ENTER(CONTEXT | HEALTHY);
  if (!out || (flags & ~CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  *out = new_stream(entry.context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY);
  if (!out || (flags & ~CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  *out = new_stream(entry.context, flags, 0);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream handle) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->implicit) return CUDA_ERROR_INVALID_HANDLE;
  close_stream(stream);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream handle) {
  ENTER(CALLBACK | CHILD);
  if (in_callback) return CUDA_ERROR_NOT_READY;
  CUstream stream;
  TRY(find_stream(handle, &stream));
  TRY(not_capturing(stream));
  bool is_done = !stream->last || stream->last->done;
  for (const TicketRef &ticket : stream->pending) is_done = is_done && ticket->done;
  return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  TRY(not_capturing(stream));
  CUcontext context = stream->context;
  Tickets waits = stream->pending;
  waits.push_back(stream->last);
  if (stream == context->legacy) {
    for (CUstream other : state().streams)
      if (other->context == context && !(other->flags & CU_STREAM_NON_BLOCKING))
        waits.push_back(other->last);
  }
  for (const TicketRef &ticket : waits) wait_for(entry.lock, ticket);
  return context->sticky;
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (!state().events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture || stream->capture) return capture_wait(stream, event);
  if (event->ticket && !event->ticket->done) stream->pending.push_back(event->ticket);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_HOST;
  work.host = {function, data};
  return submit(stream, std::move(work));
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *id = stream->id;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *device = stream->context->device;
  return CUDA_SUCCESS;
}

#undef cuStreamGetCtx
EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *context = stream->context;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_any(handle, &stream));
  *context = stream->context;
  if (green) *green = nullptr;
  return CUDA_SUCCESS;
}
