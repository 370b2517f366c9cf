// Memory given out by the driver: which bytes are alive, and which have been.
//
// One range of addresses is reserved once and never given out twice until it is used up, so a stale
// address is known as one. Behind every block lies a page that nobody may touch.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "fake.h"

namespace {
constexpr size_t kReserved = size_t{1} << 38;
// New memory is full of this, so that nobody relies on zeros. Only the front of large blocks.
constexpr int kGarbage = 0xee;
constexpr size_t kGarbageLimit = size_t{8} << 20;

uintptr_t base() {
  static const uintptr_t reserved = [] {
    void *p =
        mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(p);
  }();
  return reserved;
}

uintptr_t next_place(size_t mapped) {
  static size_t used = kPage;
  State &s = state();
  if (used + mapped > kReserved) used = kPage;
  // After a turn round: step over what is still alive.
  for (auto it = s.blocks.lower_bound(base() + used); it != s.blocks.end();) {
    const Block &b = it->second;
    if (!b.mapped || b.begin >= base() + used + mapped) break;
    used = b.begin + b.mapped - base();
    it = s.blocks.lower_bound(base() + used);
  }
  if (used + mapped > kReserved) return 0;
  const uintptr_t place = base() + used;
  used += mapped;
  s.freed.erase(s.freed.lower_bound(place), s.freed.lower_bound(place + mapped));
  return place;
}

size_t in_use(CUcontext context) {
  size_t sum = 0;
  for (const auto &[begin, block] : state().blocks)
    if (block.context && block.context->device == context->device && !is_host_kind(block.kind))
      sum += block.size;
  return sum + granules_in_use(context->device);
}
}  // namespace

bool is_host_kind(Kind kind) { return kind == Kind::pinned || kind == Kind::registered; }

bool in_arena(uintptr_t address) { return address - base() < kReserved; }

Block *block_at(uintptr_t address) {
  auto &blocks = state().blocks;
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  Block &block = std::prev(after)->second;
  return address - block.begin < std::max<size_t>(block.size, 1) ? &block : nullptr;
}

bool was_freed(uintptr_t address) {
  auto &freed = state().freed;
  auto after = freed.upper_bound(address);
  return after != freed.begin() && address - std::prev(after)->first < std::prev(after)->second;
}

bool touchable(uintptr_t address, size_t size) {
  for (const auto &[begin, reserved] : state().reservations) {
    // Memory of several granules is one to who uses it.
    if (address - begin >= reserved) continue;
    while (size) {
      const Block *part = block_at(address);
      if (!part) return false;
      const size_t here = std::min(size, part->begin + part->size - address);
      address += here, size -= here;
    }
    return true;
  }
  const Block *block = block_at(address);
  if (block) return address - block->begin + size <= block->size;
  return !in_arena(address) && address >= kPage;
}

CUresult allocate(CUcontext context, size_t size, Kind kind, unsigned flags, uintptr_t *out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > state().memory_total) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!is_host_kind(kind) && in_use(context) + size > state().memory_total)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t mapped = (size + kPage - 1) / kPage * kPage + kPage;
  const uintptr_t place = next_place(mapped);
  if (!place || mprotect(reinterpret_cast<void *>(place), mapped - kPage, PROT_READ | PROT_WRITE))
    return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(reinterpret_cast<void *>(place), kGarbage, std::min(size, kGarbageLimit));
  state().blocks[place] = {place, size, mapped, kind, context, flags, next_id()};
  *out = place;
  return CUDA_SUCCESS;
}

CUresult release(uintptr_t address, Kind kind) {
  State &s = state();
  auto found = s.blocks.find(address);
  if (found == s.blocks.end() || is_host_kind(found->second.kind) != is_host_kind(kind) ||
      !found->second.mapped)
    return CUDA_ERROR_INVALID_VALUE;
  const Block block = found->second;
  s.blocks.erase(found);
  s.freed[block.begin] = block.size;
  void *place = reinterpret_cast<void *>(block.begin);
  madvise(place, block.mapped, MADV_DONTNEED);
  mprotect(place, block.mapped, PROT_NONE);
  return CUDA_SUCCESS;
}

void adopt(uintptr_t address, size_t size, Kind kind, CUcontext context, unsigned flags) {
  state().blocks[address] = {address, size, 0, kind, context, flags, next_id()};
}

void disown(uintptr_t address) { state().blocks.erase(address); }

void release_all(CUcontext context) {
  std::vector<Block> all;
  for (const auto &[begin, block] : state().blocks)
    if (block.context == context) all.push_back(block);
  for (const Block &block : all) {
    if (block.mapped) {
      release(block.begin, block.kind);
    } else {
      disown(block.begin);
    }
  }
}
