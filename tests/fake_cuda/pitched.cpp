// Copies of rows and planes.
#include "fake.h"

namespace {
CUDA_MEMCPY3D deep(const CUDA_MEMCPY2D &flat) {
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = flat.srcXInBytes, copy.srcY = flat.srcY;
  copy.srcMemoryType = flat.srcMemoryType;
  copy.srcHost = flat.srcHost, copy.srcDevice = flat.srcDevice, copy.srcPitch = flat.srcPitch;
  copy.dstXInBytes = flat.dstXInBytes, copy.dstY = flat.dstY;
  copy.dstMemoryType = flat.dstMemoryType;
  copy.dstHost = flat.dstHost, copy.dstDevice = flat.dstDevice, copy.dstPitch = flat.dstPitch;
  copy.WidthInBytes = flat.WidthInBytes, copy.Height = flat.Height, copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D deep(const CUDA_MEMCPY3D_PEER &peer) {
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = peer.srcXInBytes, copy.srcY = peer.srcY, copy.srcZ = peer.srcZ;
  copy.srcMemoryType = peer.srcMemoryType;
  copy.srcHost = peer.srcHost, copy.srcDevice = peer.srcDevice;
  copy.srcPitch = peer.srcPitch, copy.srcHeight = peer.srcHeight;
  copy.dstXInBytes = peer.dstXInBytes, copy.dstY = peer.dstY, copy.dstZ = peer.dstZ;
  copy.dstMemoryType = peer.dstMemoryType;
  copy.dstHost = peer.dstHost, copy.dstDevice = peer.dstDevice;
  copy.dstPitch = peer.dstPitch, copy.dstHeight = peer.dstHeight;
  copy.WidthInBytes = peer.WidthInBytes, copy.Height = peer.Height, copy.Depth = peer.Depth;
  return copy;
}

// Pageable memory is used when the work is done: what waits for it waits here.
CUresult submit_copy(Lock &lock, const CUDA_MEMCPY3D &copy, CUstream handle, bool is_waiting) {
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (!copy.WidthInBytes || !copy.Height || !copy.Depth) return CUDA_SUCCESS;
  TRY(check_copy(copy));
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  work.copy = copy;
  CUcontext context = stream->context;
  TRY(submit(stream, std::move(work)));
  if (stream->capture) return CUDA_SUCCESS;
  if (is_waiting || source_side(copy) == Side::pageable || destination_side(copy) == Side::pageable)
    wait_for(lock, TicketRef(stream->last));
  return context->sticky;
}
}  // namespace

EXPORT CUresult cuMemcpy2D(const CUDA_MEMCPY2D *copy) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return submit_copy(entry.lock, deep(*copy), nullptr, true);
}

EXPORT CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *copy) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return submit_copy(entry.lock, deep(*copy), nullptr, true);
}

EXPORT CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream) {
  ENTER(PLAIN);
  return submit_copy(entry.lock, deep(*copy), stream, false);
}

EXPORT CUresult cuMemcpy3D(const CUDA_MEMCPY3D *copy) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return submit_copy(entry.lock, *copy, nullptr, true);
}

EXPORT CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream) {
  ENTER(PLAIN);
  return submit_copy(entry.lock, *copy, stream, false);
}

EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return submit_copy(entry.lock, deep(*copy), nullptr, true);
}

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
  ENTER(PLAIN);
  return submit_copy(entry.lock, deep(*copy), stream, false);
}
