// Addresses without memory, and granules of memory that are mapped behind them.
//
// A granule may be touched once access to it was given; what lies behind none faults.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "fake.h"

namespace {
constexpr size_t kGranule = size_t{2} << 20;
constexpr int kGarbage = 0xee;

bool whole(size_t size) { return size && size % kGranule == 0; }

// Whether all of these addresses were reserved together.
bool reserved(uintptr_t address, size_t size) {
  for (const auto &[begin, length] : state().reservations)
    if (address >= begin && address - begin + size <= length) return true;
  return false;
}

bool is_mapped(uintptr_t address, size_t size) {
  for (const auto &[begin, mapping] : state().mappings)
    if (begin < address + size && address < begin + mapping.first) return true;
  return false;
}

void drop(unsigned long long handle) {
  auto found = state().granules.find(handle);
  if (!--found->second.uses) state().granules.erase(found);
}

bool known(const CUmemAllocationProp *prop) {
  return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
         prop->location.id < state().devices;
}
}  // namespace

size_t granules_in_use(int device) {
  size_t sum = 0;
  for (const auto &[handle, granules] : state().granules)
    if (granules.device == device) sum += granules.size;
  // What is mapped and open is counted as a block, too.
  for (const auto &[begin, mapping] : state().mappings)
    if (state().blocks.count(begin) && state().granules[mapping.second].device == device)
      sum -= mapping.first;
  return sum;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags) {
  ENTER(PLAIN);
  if (!out || !known(prop)) return CUDA_ERROR_INVALID_VALUE;
  *out = kGranule;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t, CUdeviceptr,
                                    unsigned long long flags) {
  ENTER(PLAIN | UNSAFE);
  if (!out || !whole(size) || flags) return CUDA_ERROR_INVALID_VALUE;
  // One granule more, so that the start can be a multiple and the end meets nobody.
  const size_t room = size + 2 * kGranule;
  void *p = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t start = reinterpret_cast<uintptr_t>(p);
  const uintptr_t place = (start + kGranule - 1) / kGranule * kGranule;
  munmap(p, place - start);
  munmap(reinterpret_cast<void *>(place + size + kGranule), start + room - place - size - kGranule);
  state().reservations[place] = size;
  *out = place;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  ENTER(PLAIN | UNSAFE);
  auto found = state().reservations.find(address);
  if (found == state().reservations.end() || found->second != size || is_mapped(address, size))
    return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void *>(address), size + kGranule);
  state().reservations.erase(found);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
  ENTER(PLAIN | UNSAFE);
  if (!out || !whole(size) || !known(prop) || flags) return CUDA_ERROR_INVALID_VALUE;
  size_t used = granules_in_use(prop->location.id);
  for (const auto &[begin, block] : state().blocks)
    if (block.context && block.context->device == prop->location.id && !is_host_kind(block.kind))
      used += block.size;
  if (used + size > state().memory_total) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = next_id();
  state().granules[*out] = {size, prop->location.id, 1};
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(PLAIN | UNSAFE);
  if (!state().granules.count(handle)) return CUDA_ERROR_INVALID_VALUE;
  drop(handle);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER(PLAIN | UNSAFE);
  auto found = state().granules.find(handle);
  if (found == state().granules.end() || found->second.size != size || offset || flags ||
      address % kGranule || !reserved(address, size) || is_mapped(address, size))
    return CUDA_ERROR_INVALID_VALUE;
  ++found->second.uses;
  state().mappings[address] = {size, handle};
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                               size_t count) {
  ENTER(PLAIN | UNSAFE);
  auto found = state().mappings.find(address);
  if (found == state().mappings.end() || found->second.first != size || !access || count != 1 ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
      access->location.id != state().granules[found->second.second].device)
    return CUDA_ERROR_INVALID_VALUE;
  void *place = reinterpret_cast<void *>(address);
  if (mprotect(place, size, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(place, kGarbage, size);
  adopt(address, size, Kind::device, primary(access->location.id), 0);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  ENTER(PLAIN | UNSAFE);
  auto found = state().mappings.find(address);
  if (found == state().mappings.end() || found->second.first != size)
    return CUDA_ERROR_INVALID_VALUE;
  disown(address);
  void *place = reinterpret_cast<void *>(address);
  madvise(place, size, MADV_DONTNEED);
  mprotect(place, size, PROT_NONE);
  drop(found->second.second);
  state().mappings.erase(found);
  return CUDA_SUCCESS;
}
