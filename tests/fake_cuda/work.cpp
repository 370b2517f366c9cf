// Doing one piece of work: copies, fills, host functions, words of memory.
#include <setjmp.h>
#include <signal.h>

#include <cstring>

#include "fake.h"

namespace {
thread_local sigjmp_buf *way_out = nullptr;
struct sigaction previous_segv, previous_bus;

void on_fault(int number, siginfo_t *, void *) {
  if (way_out) siglongjmp(*way_out, 1);
  // Not ours: the instruction faults again under the handler that was there.
  sigaction(number, number == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
}

// Somebody may have put a handler of their own over ours since the last time.
void watch(int number, struct sigaction *previous) {
  struct sigaction is;
  sigaction(number, nullptr, &is);
  if ((is.sa_flags & SA_SIGINFO) && is.sa_sigaction == on_fault) return;
  *previous = is;
  struct sigaction ours = {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(number, &ours, nullptr);
}

struct Rows {
  uintptr_t to, from;
  size_t to_pitch, to_slice, from_pitch, from_slice, width, height, depth;
};

void move_rows(void *data) {
  const Rows &r = *static_cast<Rows *>(data);
  for (size_t z = 0; z < r.depth; ++z)
    for (size_t y = 0; y < r.height; ++y)
      std::memmove(reinterpret_cast<void *>(r.to + z * r.to_slice + y * r.to_pitch),
                   reinterpret_cast<void *>(r.from + z * r.from_slice + y * r.from_pitch), r.width);
}

void fill_rows(void *data) {
  const CUDA_MEMSET_NODE_PARAMS &f = *static_cast<CUDA_MEMSET_NODE_PARAMS *>(data);
  for (size_t y = 0; y < f.height; ++y) {
    char *row = reinterpret_cast<char *>(f.dst + y * f.pitch);
    for (size_t x = 0; x < f.width; ++x)
      std::memcpy(row + x * f.elementSize, &f.value, f.elementSize);
  }
}

void do_operations(void *data) {
  for (const CUstreamBatchMemOpParams &op :
       *static_cast<std::vector<CUstreamBatchMemOpParams> *>(data)) {
    if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32)
      *reinterpret_cast<volatile cuuint32_t *>(op.writeValue.address) = op.writeValue.value;
    if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
      *reinterpret_cast<volatile cuuint64_t *>(op.writeValue.address) = op.writeValue.value64;
  }
}

uintptr_t base_of(CUmemorytype type, const void *host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(host) : device;
}

Rows rows_of(const CUDA_MEMCPY3D &c) {
  Rows r;
  r.width = c.WidthInBytes, r.height = c.Height, r.depth = c.Depth;
  r.from_pitch = c.srcPitch ? c.srcPitch : c.WidthInBytes;
  r.to_pitch = c.dstPitch ? c.dstPitch : c.WidthInBytes;
  r.from_slice = r.from_pitch * (c.srcHeight ? c.srcHeight : c.Height);
  r.to_slice = r.to_pitch * (c.dstHeight ? c.dstHeight : c.Height);
  r.from = base_of(c.srcMemoryType, c.srcHost, c.srcDevice) + c.srcXInBytes +
           c.srcY * r.from_pitch + c.srcZ * r.from_slice;
  r.to = base_of(c.dstMemoryType, c.dstHost, c.dstDevice) + c.dstXInBytes + c.dstY * r.to_pitch +
         c.dstZ * r.to_slice;
  return r;
}

size_t span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
  return (depth - 1) * slice + (height - 1) * pitch + width;
}

Side side_of(CUmemorytype type, uintptr_t address) {
  const Block *block = block_at(address);
  if (type == CU_MEMORYTYPE_DEVICE) return Side::device;
  if (block && !is_host_kind(block->kind)) return Side::device;
  return block || in_arena(address) ? Side::pinned : Side::pageable;
}
}  // namespace

bool guarded(void (*work)(void *), void *data) {
  watch(SIGSEGV, &previous_segv);
  watch(SIGBUS, &previous_bus);
  sigjmp_buf here;
  sigjmp_buf *const outer = way_out;
  const bool is_good = sigsetjmp(here, 1) == 0;
  if (is_good) {
    way_out = &here;
    work(data);
  }
  way_out = outer;
  return is_good;
}

CUDA_MEMCPY3D flat_copy(uintptr_t destination, uintptr_t source, size_t size) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = source;
  copy.dstDevice = destination;
  copy.WidthInBytes = copy.srcPitch = copy.dstPitch = size;
  copy.Height = copy.Depth = 1;
  return copy;
}

Side source_side(const CUDA_MEMCPY3D &c) { return side_of(c.srcMemoryType, rows_of(c).from); }
Side destination_side(const CUDA_MEMCPY3D &c) { return side_of(c.dstMemoryType, rows_of(c).to); }

CUresult check_copy(const CUDA_MEMCPY3D &c) {
  for (const CUmemorytype type : {c.srcMemoryType, c.dstMemoryType})
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
      return CUDA_ERROR_INVALID_VALUE;
  if (!c.WidthInBytes || !c.Height || !c.Depth) return CUDA_ERROR_INVALID_VALUE;
  const Rows r = rows_of(c);
  if ((r.height > 1 || r.depth > 1) && (r.from_pitch < r.width || r.to_pitch < r.width))
    return CUDA_ERROR_INVALID_VALUE;
  if (c.srcMemoryType == CU_MEMORYTYPE_DEVICE && !in_arena(r.from) && !block_at(r.from))
    return CUDA_ERROR_INVALID_VALUE;
  if (c.dstMemoryType == CU_MEMORYTYPE_DEVICE && !in_arena(r.to) && !block_at(r.to))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult run_copy(const CUDA_MEMCPY3D &c) {
  Rows r = rows_of(c);
  {
    Lock lock(state().mutex);
    if (!touchable(r.from, span(r.width, r.height, r.depth, r.from_pitch, r.from_slice)) ||
        !touchable(r.to, span(r.width, r.height, r.depth, r.to_pitch, r.to_slice)))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return guarded(move_rows, &r) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS &f) {
  const size_t element = f.elementSize;
  if (element != 1 && element != 2 && element != 4) return CUDA_ERROR_INVALID_VALUE;
  if (!f.width || !f.height || f.dst % element) return CUDA_ERROR_INVALID_VALUE;
  if (f.height > 1 && (f.pitch < f.width * element || f.pitch % element))
    return CUDA_ERROR_INVALID_VALUE;
  return in_arena(f.dst) || block_at(f.dst) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult run_fill(const CUDA_MEMSET_NODE_PARAMS &f) {
  {
    Lock lock(state().mutex);
    if (!touchable(f.dst, (f.height - 1) * f.pitch + f.width * f.elementSize))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  CUDA_MEMSET_NODE_PARAMS copy = f;
  return guarded(fill_rows, &copy) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult perform(const Work &work, CUcontext context) {
  switch (work.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return run_kernel(work.kernel, context);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return run_copy(work.copy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return run_fill(work.fill);
    case CU_GRAPH_NODE_TYPE_HOST:
      in_callback = true;
      work.host.fn(work.host.userData);
      in_callback = false;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
      Lock lock(state().mutex);
      if (!state().events.count(work.event)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      work.event->ticket = std::make_shared<Ticket>();
      work.event->ticket->done = true;
      work.event->ticket->when = now();
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      Lock lock(state().mutex);
      if (!state().events.count(work.event)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      wait_for(lock, TicketRef(work.event->ticket));
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      auto operations = work.operations;
      return guarded(do_operations, &operations) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    default:
      return CUDA_SUCCESS;
  }
}

CUresult submit(CUstream stream, Work work) {
  if (stream->capture) return capture_work(stream, std::move(work));
  CUcontext context = stream->context;
  if (stream == context->legacy) TRY(legacy_beside_capture(context));
  enqueue(stream, [context, work = std::make_shared<Work>(std::move(work))] {
    if (CUresult code = perform(*work, context)) poison(context, code);
  });
  return CUDA_SUCCESS;
}
