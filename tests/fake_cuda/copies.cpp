// Copies and fills on streams, and the calls that wait for them.
#include <cstring>

#include "fake.h"

namespace {
uintptr_t integer(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// An address that must be the device's: of a live or freed block, pinned or on a device.
bool is_ours(uintptr_t address) { return in_arena(address) || block_at(address); }

bool is_pageable(uintptr_t address) { return !is_ours(address); }

Work copy_work(uintptr_t destination, uintptr_t source, size_t size) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  work.copy = flat_copy(destination, source, size);
  return work;
}

// Queues a copy as the driver does: pageable sources have been read when the call returns, and
// pageable destinations have been written.
CUresult copy_async(Lock &lock, uintptr_t destination, uintptr_t source, size_t size,
                    CUstream handle) {
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (size == 0) return CUDA_SUCCESS;
  if (stream->capture) return capture_work(stream, copy_work(destination, source, size));
  CUcontext context = stream->context;
  TicketRef ticket;
  if (is_pageable(source) && !is_pageable(destination)) {
    auto staged = std::make_shared<std::vector<char>>(size);
    std::memcpy(staged->data(), reinterpret_cast<const void *>(source), size);
    enqueue(stream, [=] {
      const Work work = copy_work(destination, integer(staged->data()), size);
      if (CUresult code = perform(work, context)) poison(context, code);
    });
  } else {
    TRY(submit(stream, copy_work(destination, source, size)));
    ticket = is_pageable(destination) ? stream->last : nullptr;
  }
  wait_for(lock, ticket);
  return context->sticky;
}

// Done by the caller, after all that the legacy stream would wait for.
CUresult now_and_here(Lock &lock, CUcontext context, const Work &work) {
  TRY(legacy_beside_capture(context));
  Tickets waits;
  for (CUstream stream : state().streams)
    if (stream->context == context && !(stream->flags & CU_STREAM_NON_BLOCKING))
      waits.push_back(stream->last);
  for (const TicketRef &ticket : waits) wait_for(lock, ticket);
  if (context->sticky) return context->sticky;
  lock.unlock();
  if (CUresult code = perform(work, context)) poison(context, code);
  lock.lock();
  return context->sticky;
}

CUresult copy_sync(Lock &lock, uintptr_t destination, uintptr_t source, size_t size) {
  if (size == 0) return CUDA_SUCCESS;
  return now_and_here(lock, current(), copy_work(destination, source, size));
}

CUresult fill(Lock &lock, uintptr_t destination, size_t pitch, unsigned value, unsigned element,
              size_t width, size_t height, const CUstream *handle) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEMSET;
  work.fill = {destination, pitch, value, element, width, height};
  CUstream stream = nullptr;
  if (handle) TRY(find_stream(*handle, &stream));
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  TRY(check_fill(work.fill));
  return handle ? submit(stream, std::move(work)) : now_and_here(lock, current(), work);
}
}  // namespace

// ---- copies on a stream ------------------------------------------------------------------------
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(PLAIN);
  return copy_async(entry.lock, to, from, size, stream);
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  ENTER(PLAIN);
  if (!is_ours(to)) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(entry.lock, to, integer(from), size, stream);
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(PLAIN);
  if (!is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(entry.lock, integer(to), from, size, stream);
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER(PLAIN);
  if (!is_ours(to) || !is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(entry.lock, to, from, size, stream);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                                  size_t size, CUstream stream) {
  ENTER(PLAIN);
  if (!is_ours(to) || !is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_async(entry.lock, to, from, size, stream);
}

EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                                   CUmemcpyAttributes *hows, size_t *firsts, size_t n_hows,
                                   CUstream handle) {
  ENTER(PLAIN);
  if (is_legacy(handle) || count == 0 || n_hows == 0 || n_hows > count || !hows || !firsts)
    return CUDA_ERROR_INVALID_VALUE;
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) {
    const bool was_spoilt = stream->capture->invalid;
    spoil(stream->capture);
    return was_spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (firsts[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (sizes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t how = 0; how < n_hows; ++how) {
    const unsigned order = hows[how].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        (how && firsts[how] <= firsts[how - 1]) || firsts[how] >= count)
      return CUDA_ERROR_INVALID_VALUE;
  }
  CUcontext context = stream->context;
  for (size_t i = 0, how = 0; i < count; ++i) {
    while (how + 1 < n_hows && firsts[how + 1] <= i) ++how;
    const unsigned order = hows[how].srcAccessOrder;
    if (is_pageable(from[i]) && order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
      // Seen to wait for the stream.
      TRY(submit(stream, copy_work(to[i], from[i], sizes[i])));
      wait_for(entry.lock, TicketRef(stream->last));
    } else if (order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
      auto staged = std::make_shared<std::vector<char>>(sizes[i]);
      if (!touchable(from[i], sizes[i])) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(staged->data(), reinterpret_cast<const void *>(from[i]), sizes[i]);
      enqueue(stream, [=, destination = to[i]] {
        const Work work = copy_work(destination, integer(staged->data()), staged->size());
        if (CUresult code = perform(work, context)) poison(context, code);
      });
    } else {
      TRY(submit(stream, copy_work(to[i], from[i], sizes[i])));
    }
  }
  return context->sticky;
}

// ---- copies that wait --------------------------------------------------------------------------
EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return copy_sync(entry.lock, to, from, size);
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!is_ours(to)) return CUDA_ERROR_INVALID_VALUE;
  return copy_sync(entry.lock, to, integer(from), size);
}

EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_sync(entry.lock, integer(to), from, size);
}

EXPORT CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!is_ours(to) || !is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_sync(entry.lock, to, from, size);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!is_ours(to) || !is_ours(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_sync(entry.lock, to, from, size);
}

// ---- fills -------------------------------------------------------------------------------------
#define FILLS(bits, type)                                                                          \
  EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream s) {       \
    ENTER(CALLBACK);                                                                               \
    return fill(entry.lock, to, n * (bits / 8), value, bits / 8, n, 1, &s);                        \
  }                                                                                                \
  EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                           size_t height, CUstream s) {                            \
    ENTER(CALLBACK);                                                                               \
    return fill(entry.lock, to, pitch, value, bits / 8, width, height, &s);                        \
  }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t n) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return fill(entry.lock, to, n, value, 1, n, 1, nullptr);
}

EXPORT CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t n) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return fill(entry.lock, to, n * 2, value, 2, n, 1, nullptr);
}

EXPORT CUresult cuMemsetD32(CUdeviceptr to, unsigned int value, size_t n) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return fill(entry.lock, to, n * 4, value, 4, n, 1, nullptr);
}
