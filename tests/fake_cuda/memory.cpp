// Allocation, and what an address is.
#include <algorithm>

#include "fake.h"

namespace {
uintptr_t integer(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

CUresult attribute(void *data, CUpointer_attribute name, uintptr_t address) {
  const Block *block = block_at(address);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext *>(data) = block->context;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned *>(data) =
          is_host_kind(block->kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr *>(data) = address;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (block->kind == Kind::device || block->kind == Kind::global)
        return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void **>(data) = reinterpret_cast<void *>(address);
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned *>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long *>(data) = block->id;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned *>(data) = block->kind == Kind::managed;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int *>(data) = block->context ? block->context->device : -1;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr *>(data) = block->begin;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t *>(data) = block->size;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned *>(data) = 1;
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<void **>(data) = nullptr;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// What cuPointerGetAttributes gives for memory that the driver does not know.
void nothing(void *data, CUpointer_attribute name) {
  switch (name) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned *>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int *>(data) = -2;
      break;
    default:
      *static_cast<void **>(data) = nullptr;
  }
}
}  // namespace

// ---- memory of a device ------------------------------------------------------------------------
EXPORT CUresult cuMemAlloc(CUdeviceptr *out, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t place = 0;
  TRY(allocate(entry.context, size, Kind::device, 0, &place));
  *out = place;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  uintptr_t place = 0;
  TRY(allocate(entry.context, size, Kind::managed, flags, &place));
  *out = place;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned int) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  *pitch = (width + 511) / 512 * 512;
  uintptr_t place = 0;
  TRY(allocate(entry.context, *pitch * height, Kind::device, 0, &place));
  *out = place;
  return CUDA_SUCCESS;
}

// The real one waits for work under way. This one does not: work that touches it afterwards faults.
EXPORT CUresult cuMemFree(CUdeviceptr address) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return address ? release(address, Kind::device) : CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream handle) {
  ENTER(CONTEXT);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  uintptr_t place = 0;
  TRY(allocate(stream->context, size, Kind::device, 0, &place));
  *out = place;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  ENTER(PLAIN);
  CUstream stream;
  TRY(find_stream(handle, &stream));
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!block_at(address)) return CUDA_ERROR_INVALID_VALUE;
  enqueue(stream, [address] {
    Lock lock(state().mutex);
    release(address, Kind::device);
  });
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo(size_t *available, size_t *total) {
  ENTER(CONTEXT | HEALTHY);
  size_t used = 0;
  for (const auto &[begin, block] : state().blocks)
    if (block.context && block.context->device == entry.context->device &&
        !is_host_kind(block.kind))
      used += block.size;
  used += granules_in_use(entry.context->device);
  *total = state().memory_total;
  *available = *total - std::min(used, *total);
  return CUDA_SUCCESS;
}

// ---- pinned memory -----------------------------------------------------------------------------
EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  uintptr_t place = 0;
  TRY(allocate(entry.context, size, Kind::pinned, flags, &place));
  *out = reinterpret_cast<void *>(place);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocHost(void **out, size_t size) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  uintptr_t place = 0;
  TRY(allocate(entry.context, size, Kind::pinned, CU_MEMHOSTALLOC_DEVICEMAP, &place));
  *out = reinterpret_cast<void *>(place);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *pointer) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  return pointer ? release(integer(pointer), Kind::pinned) : CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *pointer, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY);
  const Block *block = block_at(integer(pointer));
  if (flags || !block || !is_host_kind(block->kind)) return CUDA_ERROR_INVALID_VALUE;
  *out = integer(pointer);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer) {
  ENTER(CONTEXT | HEALTHY);
  const Block *block = block_at(integer(pointer));
  if (!block || !is_host_kind(block->kind)) return CUDA_ERROR_INVALID_VALUE;
  *flags = block->flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister(void *pointer, size_t size, unsigned int flags) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  if (!pointer || !size) return CUDA_ERROR_INVALID_VALUE;
  if (block_at(integer(pointer))) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  adopt(integer(pointer), size, Kind::registered, entry.context, flags);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostUnregister(void *pointer) {
  ENTER(CONTEXT | HEALTHY | UNSAFE);
  const Block *block = block_at(integer(pointer));
  if (!block || block->kind != Kind::registered || block->begin != integer(pointer))
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  disown(integer(pointer));
  return CUDA_SUCCESS;
}

// ---- questions ---------------------------------------------------------------------------------
EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *begin, size_t *size, CUdeviceptr address) {
  ENTER(CONTEXT | HEALTHY);
  const Block *block = block_at(address);
  if (!block) return CUDA_ERROR_NOT_FOUND;
  if (begin) *begin = block->begin;
  if (size) *size = block->size;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute name, CUdeviceptr address) {
  ENTER(PLAIN);
  return data ? attribute(data, name, address) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **data,
                                       CUdeviceptr address) {
  ENTER(PLAIN);
  for (unsigned i = 0; i < count; ++i)
    if (attribute(data[i], names[i], address)) nothing(data[i], names[i]);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *, CUpointer_attribute, CUdeviceptr) {
  ENTER(PLAIN);
  return CUDA_SUCCESS;
}
