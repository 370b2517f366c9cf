// Contexts: one primary per device, others on demand, a stack of current ones per thread.
#include "fake.h"

namespace {
thread_local std::vector<CUcontext> stack;

bool is_live(CUcontext context) {
  return context && state().contexts.count(context) && (!context->primary || context->retained);
}

CUcontext make(int device, bool is_primary) {
  CUcontext made = new CUctx_st;
  made->device = device;
  made->primary = is_primary;
  made->id = next_id();
  state().contexts.insert(made);
  return made;
}

// All that lives in a context goes with it.
void clear(CUcontext context) {
  State &s = state();
  for (CUstream stream : std::set<CUstream>(s.streams))
    if (stream->context == context) close_stream(stream);
  for (CUevent event : std::set<CUevent>(s.events))
    if (event->context == context) s.events.erase(event);
  for (CUfunction function : std::set<CUfunction>(s.functions))
    if (function->context == context) {
      function->alive = false;
      s.functions.erase(function);
    }
  release_all(context);
  context->sticky = CUDA_SUCCESS;
  context->legacy = nullptr;
  context->peers.clear();
  for (CUcontext other : s.contexts) other->peers.erase(context);
}

CUresult synchronize(Lock &lock, CUcontext context) {
  // Seen to kill a capture in every mode, from any thread.
  for (const CaptureRef &capture : state().captures) spoil(capture);
  if (!state().captures.empty()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (const TicketRef &ticket : unfinished(context)) wait_for(lock, ticket);
  return context->sticky;
}
}  // namespace

CUcontext primary(int device) {
  static std::map<int, CUcontext> all;
  CUcontext &found = all[device];
  if (!found) found = make(device, true);
  return found;
}

CUcontext current() { return stack.empty() ? nullptr : stack.back(); }

// ---- primary contexts --------------------------------------------------------------------------
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext context = primary(device);
  ++context->retained;
  *out = context;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext context = primary(device);
  if (!context->retained) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->retained == 0) clear(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  clear(primary(device));
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  primary(device)->flags = flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  *flags = primary(device)->flags;
  *active = primary(device)->retained > 0;
  return CUDA_SUCCESS;
}

// ---- others ------------------------------------------------------------------------------------
EXPORT CUresult cuCtxCreate(CUcontext *out, CUctxCreateParams *, unsigned int flags,
                            CUdevice device) {
  ENTER(PLAIN);
  if (device < 0 || device >= state().devices) return CUDA_ERROR_INVALID_DEVICE;
  *out = make(device, false);
  (*out)->flags = flags;
  stack.push_back(*out);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
  ENTER(PLAIN);
  if (!is_live(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  clear(context);
  state().contexts.erase(context);
  if (current() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

// ---- the current one ---------------------------------------------------------------------------
EXPORT CUresult cuCtxGetCurrent(CUcontext *out) {
  ENTER(PLAIN);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = current();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(PLAIN);
  if (context && !is_live(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  ENTER(PLAIN);
  if (!is_live(context)) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *out) {
  ENTER(CONTEXT);
  if (out) *out = current();
  stack.pop_back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(CONTEXT);
  *device = entry.context->device;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
  ENTER(PLAIN);
  if (!context) context = entry.context;
  if (!is_live(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  ENTER(PLAIN);
  if (!context) context = entry.context;
  if (!is_live(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned int *flags) {
  ENTER(CONTEXT);
  *flags = entry.context->flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext, unsigned int *version) {
  ENTER(PLAIN);
  *version = 3020;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(CONTEXT);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit) {
  ENTER(CONTEXT | HEALTHY);
  *value = 1024;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) {
  ENTER(CONTEXT | HEALTHY);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
  ENTER(CONTEXT | HEALTHY);
  return synchronize(entry.lock, entry.context);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  ENTER(PLAIN);
  if (!context) context = entry.context;
  if (!is_live(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return synchronize(entry.lock, context);
}

// ---- peers -------------------------------------------------------------------------------------
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!is_live(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == entry.context->device) return CUDA_ERROR_INVALID_DEVICE;
  if (!entry.context->peers.insert(peer).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  ENTER(CONTEXT | HEALTHY);
  if (!entry.context->peers.erase(peer)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return CUDA_SUCCESS;
}
