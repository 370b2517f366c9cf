#include "fibers.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace cuda_host {
namespace {

constexpr size_t STACK = 128 << 10;
constexpr unsigned MAX_THREADS = 1024, MAX_CLUSTER = 8, BARRIERS = 16, WARP = 32;

// Switching stacks ---------------------------------------------------------------------------------
#if defined(__x86_64__)
struct Context {
  void *stack_pointer;
};
extern "C" void cuda_host_switch(void **save, void *restore);
asm(R"(
.text
.type cuda_host_switch, @function
cuda_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_host_switch, .-cuda_host_switch
)");
void prepare(Context *context, unsigned char *stack, void (*entry)()) {
  void **top = (void **)(stack + STACK);
  *--top = nullptr;  // where entry would return to; keeps the stack as a call leaves it
  *--top = (void *)entry;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  context->stack_pointer = top;
}
void change(Context *from, Context *to) {
  cuda_host_switch(&from->stack_pointer, to->stack_pointer);
}
#else
struct Context {
  ucontext_t context;
};
void prepare(Context *context, unsigned char *stack, void (*entry)()) {
  getcontext(&context->context);
  context->context.uc_stack.ss_sp = stack;
  context->context.uc_stack.ss_size = STACK;
  context->context.uc_link = nullptr;
  makecontext(&context->context, entry, 0);
}
void change(Context *from, Context *to) { swapcontext(&from->context, &to->context); }
#endif

// One cluster, mostly of one block ---------------------------------------------------------------
struct Copy {
  void *to;
  const void *from;
  unsigned bytes, zeros;
};

struct Later {
  void (*work)(const void *);
  std::vector<unsigned char> data;
};

// In the 8 bytes of a barrier in shared memory.
struct Mbarrier {
  uint16_t count, left;
  uint32_t phase;  // under a mark, so that garbage is told apart
};
constexpr uint32_t MARK = 0x6d620000;

enum State { READY, AT_BARRIER, IN_MEETING, AT_WAIT, AT_MBARRIER, ENDED };

struct Fiber {
  Context context;
  Now now;
  State state;
  unsigned index, rank;
  bool waited;
  std::deque<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> open;
  std::deque<std::vector<Later>> later;
  std::vector<Later> open_later;
};

struct Gathering {
  uint32_t mask, here;
  const char *kind;
  void *brought[WARP];
};

struct Barrier {
  unsigned wanted = 0;
  std::vector<unsigned> here;
};

struct Landing {
  std::vector<Copy> copies;
  void *barrier;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<unsigned> ready;
  size_t first_ready = 0;
  unsigned alive[MAX_CLUSTER] = {};
  bool begun[MAX_CLUSTER] = {};
  unsigned char *shared[MAX_CLUSTER] = {};
  Barrier barriers[MAX_CLUSTER][BARRIERS], together;
  std::vector<std::vector<Gathering>> gatherings;  // by warp
  std::vector<std::pair<void *, unsigned>> at_mbarriers;
  std::deque<Landing> landings;
  unsigned char *stacks = nullptr;
  Context scheduler;
  const Launch *launch = nullptr;
  Body body = nullptr;
  void *const *arguments = nullptr;
  uint64_t random = 0;
  Fiber *running = nullptr;
  bool hiding = false;  // fg_wait holds threads back, and what they may not touch faults
  const void *main_bottom = nullptr;
  size_t main_size = 0;
};

Block block;
// One launch at a time in the process: what runs is found through variables of it.
std::mutex one_launch;
sigjmp_buf failed;
std::string complaint_text;
bool launching = false;

unsigned pick(unsigned limit) {
  block.random = block.random * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)((block.random >> 33) % limit);
}

void make_ready(unsigned index) {
  block.fibers[index].state = READY;
  block.ready.push_back(index);
}

unsigned char *stack_of(const Fiber *fiber) { return block.stacks + fiber->index * STACK; }

void to_scheduler(bool last) {
  (void)last;
  Fiber *self = block.running;
#if SANITIZED
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, block.main_bottom, block.main_size);
#endif
  change(&self->context, &block.scheduler);
#if SANITIZED
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void release_if_full(Barrier &barrier, unsigned alive) {
  const unsigned wanted = barrier.wanted ? barrier.wanted : alive;
  if (barrier.here.empty() || barrier.here.size() < wanted) return;
  static std::vector<unsigned> leaving;
  leaving.clear();
  leaving.swap(barrier.here);
  barrier.wanted = 0;
  for (unsigned index : leaving) make_ready(index);
}

void release_full_barriers() {
  unsigned all = 0;
  for (unsigned rank = 0; rank < block.launch->cluster; rank++) {
    for (Barrier &barrier : block.barriers[rank]) release_if_full(barrier, block.alive[rank]);
    all += block.alive[rank];
  }
  release_if_full(block.together, all);
}

// Of blocks that see each other's memory: whether it is there.
void show_shared(unsigned rank, bool there);

void entry() {
#if SANITIZED
  __sanitizer_finish_switch_fiber(nullptr, &block.main_bottom, &block.main_size);
#endif
  Fiber *self = block.running;
  block.body(block.arguments);
  if (block.launch->must_wait && !self->waited)
    cuda_host_fail("a thread ended without fg_wait, in a kernel that is launched programmatically");
  if (!self->groups.empty() || !self->open.empty())
    cuda_host_fail("a thread ended before its asynchronous copies did");
  if (!self->later.empty() || !self->open_later.empty())
    cuda_host_fail("a thread ended before its asynchronous products did");
  self->state = ENDED;
  if (!--block.alive[self->rank]) show_shared(self->rank, false);
  release_full_barriers();
  to_scheduler(true);
  abort();
}

void run_fiber(Fiber *fiber) {
  block.running = fiber;
  cuda_host_now = &fiber->now;
  if (!block.begun[fiber->rank]) show_shared(fiber->rank, true);
  block.begun[fiber->rank] = true;
#if SANITIZED
  void *fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_of(fiber), STACK);
#endif
  change(&block.scheduler, &fiber->context);
#if SANITIZED
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  block.running = nullptr;
}

Dim place(unsigned index, Dim size) {
  return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}

__attribute__((no_sanitize("address"))) void spoil(unsigned char *at, size_t bytes) {
  for (volatile unsigned char *p = at; p < at + bytes; p++) *p = 0xff;
}

constexpr size_t PAGE = 4096;
size_t mapped(size_t bytes, size_t align) { return (bytes + align + 2 * PAGE) / PAGE * PAGE; }

// The last byte lies less than `align` before the end of its page.
unsigned char *base_of(unsigned char *pointer, size_t bytes, size_t align) {
  const uintptr_t end = ((uintptr_t)pointer + bytes + PAGE - 1) / PAGE * PAGE;
  return (unsigned char *)(end - mapped(bytes, align) - PAGE);
}

void show_shared(unsigned rank, bool there) {
  const Launch &launch = *block.launch;
  if (launch.cluster > 1)
    mprotect(base_of(block.shared[rank], launch.shared_bytes, 1024) + PAGE,
             mapped(launch.shared_bytes, 1024), there ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void land(const std::vector<Copy> &copies) {
  for (const Copy &copy : copies) {
    memcpy(copy.to, copy.from, copy.bytes);
    memset((char *)copy.to + copy.bytes, 0, copy.zeros);
  }
}

Mbarrier *mbarrier_at(void *place) {
  Mbarrier *barrier = (Mbarrier *)place;
  if ((uintptr_t)place % 8 || (barrier->phase & ~1u) != MARK)
    cuda_host_fail("a barrier in shared memory that was not made");
  return barrier;
}

void arrive_at(void *place) {
  Mbarrier *barrier = mbarrier_at(place);
  if (--barrier->left) return;
  barrier->left = barrier->count;
  barrier->phase ^= 1;
  auto &all = block.at_mbarriers;
  for (size_t i = 0; i < all.size();) {
    if (all[i].first == place) {
      make_ready(all[i].second);
      all.erase(all.begin() + (long)i);
    } else {
      i++;
    }
  }
}

// The first copies that threads wait for without having them.
bool land_one() {
  if (block.landings.empty()) return false;
  const size_t one = block.launch->seed ? pick((unsigned)block.landings.size()) : 0;
  const Landing landing = std::move(block.landings[one]);
  block.landings.erase(block.landings.begin() + (long)one);
  land(landing.copies);
  arrive_at(landing.barrier);
  return true;
}

void run_ready() {
  const Launch &launch = *block.launch;
  while (block.first_ready < block.ready.size() || land_one()) {
    if (block.first_ready == block.ready.size()) continue;
    if (launch.seed) {
      const size_t left = block.ready.size() - block.first_ready;
      std::swap(block.ready[block.first_ready],
                block.ready[block.first_ready + pick((unsigned)left)]);
    }
    run_fiber(&block.fibers[block.ready[block.first_ready++]]);
    if (block.first_ready == 4096) {
      block.ready.erase(block.ready.begin(), block.ready.begin() + 4096);
      block.first_ready = 0;
    }
  }
}

void hide(bool on) {
  block.hiding = on;
  for (size_t i = 0; i < block.launch->n_hidden; i++) {
    const Hidden &one = block.launch->hidden[i];
    mprotect(base_of(one.pointer, one.bytes, one.align) + PAGE, mapped(one.bytes, one.align),
             on ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

void run_cluster(unsigned number) {
  const Launch &launch = *block.launch;
  const unsigned each = launch.block.x * launch.block.y * launch.block.z;
  const unsigned threads = each * launch.cluster;
  spoil(launch.statics, launch.statics_bytes);
  block.ready.clear();
  block.first_ready = 0;
  block.together = Barrier();
  for (unsigned rank = 0; rank < launch.cluster; rank++) {
    show_shared(rank, true);
    spoil(block.shared[rank], launch.shared_bytes);
    show_shared(rank, false);
    block.alive[rank] = each;
    block.begun[rank] = false;
    for (Barrier &barrier : block.barriers[rank]) barrier = Barrier();
  }
  block.gatherings.assign((threads + WARP - 1) / WARP, {});
  block.at_mbarriers.clear();
  block.landings.clear();
  for (unsigned i = 0; i < threads; i++) {
    Fiber &fiber = block.fibers[i];
    fiber.rank = i / each;
    fiber.now = {place(i % each, launch.block),
                 place(number * launch.cluster + fiber.rank, launch.grid), launch.block,
                 launch.grid, block.shared[fiber.rank]};
    fiber.index = i;
    fiber.waited = false;
    fiber.groups.clear();
    fiber.open.clear();
    fiber.later.clear();
    fiber.open_later.clear();
#if SANITIZED
    // The last fiber on this stack ended without leaving its functions.
    __asan_unpoison_memory_region(stack_of(&fiber), STACK);
#endif
    prepare(&fiber.context, stack_of(&fiber), entry);
    make_ready(i);
  }
  // The first block shows what all do before they wait.
  if (number == 0 && launch.n_hidden) {
    hide(true);
    run_ready();
    hide(false);
    for (Fiber &fiber : block.fibers)
      if (fiber.state == AT_WAIT) make_ready(fiber.index);
  }
  run_ready();
  bool waits = false;
  for (unsigned rank = 0; rank < launch.cluster; rank++) waits |= block.alive[rank] != 0;
  if (waits) {
    std::string text = "block " + std::to_string(number * launch.cluster) + " waits forever:";
    for (unsigned i = 0, told = 0; i < threads && told < 4; i++) {
      const Fiber &fiber = block.fibers[i];
      if (fiber.state == ENDED) continue;
      told++;
      text += " thread " + std::to_string(i) +
              (fiber.state == AT_BARRIER || fiber.state == AT_MBARRIER ? " at a barrier;" : " at");
      for (const Gathering &gathering : block.gatherings[i / WARP])
        if (fiber.state == IN_MEETING && (gathering.here >> i % WARP & 1))
          text += std::string(" ") + gathering.kind + ";";
    }
    cuda_host_fail(text.c_str());
  }
}

void on_fault(int, siginfo_t *info, void *) {
  char text[160];
  const Now *now = cuda_host_now;
  snprintf(text, sizeof text, "block (%u,%u,%u) thread (%u,%u,%u) touched %p, which is no memory",
           now->block.x, now->block.y, now->block.z, now->thread.x, now->thread.y, now->thread.z,
           info->si_addr);
  complaint_text = text;
  siglongjmp(failed, 1);
}

// What lies around an operand; no number that a kernel would write there by chance.
unsigned char pattern(const volatile unsigned char *p) {
  return (unsigned char)((uintptr_t)p * 167 + 43);
}

}  // namespace

extern "C" {

Now *cuda_host_now = nullptr;

void cuda_host_fail(const char *complaint) {
  complaint_text = complaint;
  if (!launching) abort();
  siglongjmp(failed, 1);
}

void cuda_host_copy_begin(void *to, const void *from, unsigned bytes, unsigned zeros) {
  if ((uintptr_t)to % (bytes + zeros) || (uintptr_t)from % (bytes + zeros))
    cuda_host_fail("an asynchronous copy whose addresses are not multiples of its size");
  block.running->open.push_back({to, from, bytes, zeros});
}

void cuda_host_copy_commit() {
  Fiber *self = block.running;
  self->groups.push_back(std::move(self->open));
  self->open.clear();
}

void cuda_host_copy_wait(unsigned pending) {
  Fiber *self = block.running;
  while (self->groups.size() > pending) {
    land(self->groups.front());
    self->groups.pop_front();
  }
}

void cuda_host_mbarrier_init(void *barrier, unsigned count) {
  if (!count || count > 0xffff) cuda_host_fail("a barrier of so many arrivals");
  *(Mbarrier *)barrier = {(uint16_t)count, (uint16_t)count, MARK};
}
void cuda_host_mbarrier_arrive(void *barrier) { arrive_at(barrier); }
void cuda_host_mbarrier_wait(void *barrier, unsigned parity) {
  Fiber *self = block.running;
  if ((mbarrier_at(barrier)->phase & 1) != (parity & 1)) return;
  block.at_mbarriers.push_back({barrier, self->index});
  self->state = AT_MBARRIER;
  to_scheduler(false);
}
void cuda_host_copy_arrive(void *barrier) {
  Fiber *self = block.running;
  mbarrier_at(barrier);
  Landing landing = {{}, barrier};
  self->groups.push_back(std::move(self->open));
  self->open.clear();
  for (const std::vector<Copy> &group : self->groups)
    landing.copies.insert(landing.copies.end(), group.begin(), group.end());
  self->groups.clear();
  block.landings.push_back(std::move(landing));
}

void cuda_host_later(void (*work)(const void *), const void *data, unsigned bytes) {
  const unsigned char *begin = (const unsigned char *)data;
  block.running->open_later.push_back({work, {begin, begin + bytes}});
}
void cuda_host_later_commit() {
  Fiber *self = block.running;
  self->later.push_back(std::move(self->open_later));
  self->open_later.clear();
}
void cuda_host_later_wait(unsigned pending) {
  Fiber *self = block.running;
  while (self->later.size() > pending) {
    for (const Later &one : self->later.front()) one.work(one.data.data());
    self->later.pop_front();
  }
}

void cuda_host_barrier(unsigned id, unsigned count) {
  Fiber *self = block.running;
  if (id >= BARRIERS) cuda_host_fail("barriers are numbered from 0 to 15");
  Barrier &barrier = block.barriers[self->rank][id];
  if (!barrier.here.empty() && barrier.wanted != count)
    cuda_host_fail("threads wait at one barrier for different numbers of others");
  barrier.wanted = count;
  barrier.here.push_back(self->index);
  self->state = AT_BARRIER;
  release_full_barriers();
  to_scheduler(false);
}

void cuda_host_cluster_barrier() {
  Fiber *self = block.running;
  block.together.here.push_back(self->index);
  self->state = AT_BARRIER;
  release_full_barriers();
  to_scheduler(false);
}
void *cuda_host_cluster_shared(void *own, unsigned rank) {
  if (rank >= block.launch->cluster) cuda_host_fail("a cluster has no block of this number");
  const ptrdiff_t at = (unsigned char *)own - block.shared[block.running->rank];
  return block.shared[rank] + at;
}

void cuda_host_meet(uint32_t mask, const char *kind, Meeting work, void *brought) {
  Fiber *self = block.running;
  const unsigned lane = self->index % WARP, first = self->index - lane;
  const unsigned threads = (unsigned)block.fibers.size();
  if (!(mask >> lane & 1)) cuda_host_fail("a lane is not in the mask that it gives");
  for (unsigned i = 0; i < WARP; i++) {
    if (!(mask >> i & 1)) continue;
    if (first + i >= threads || block.fibers[first + i].state == ENDED) {
      std::string text = std::string(kind) + ": its mask names a lane that has ended";
      cuda_host_fail(text.c_str());
    }
  }
  std::vector<Gathering> &all = block.gatherings[first / WARP];
  size_t at = 0;
  while (at < all.size() && all[at].mask != mask) at++;
  if (at == all.size()) all.push_back({mask, 0, kind, {}});
  if (strcmp(all[at].kind, kind)) {
    std::string text =
        std::string("lanes of one warp meet at different places: ") + all[at].kind + " and " + kind;
    cuda_host_fail(text.c_str());
  }
  all[at].here |= 1u << lane;
  all[at].brought[lane] = brought;
  if (all[at].here == mask) {
    const Gathering done = all[at];
    all.erase(all.begin() + (long)at);
    work(done.brought, mask);
    for (unsigned i = 0; i < WARP; i++)
      if ((mask >> i & 1) && i != lane) make_ready(first + i);
    // With a seed the last to come does not go on first, either.
    if (block.launch->seed) {
      make_ready(self->index);
      to_scheduler(false);
    }
    return;
  }
  self->state = IN_MEETING;
  to_scheduler(false);
}

void cuda_host_waited() {
  block.running->waited = true;
  if (!block.hiding) return;
  block.running->state = AT_WAIT;
  to_scheduler(false);
}
void cuda_host_triggered() {}

int cuda_host_launch(const Launch *launch, Body body, void *const *arguments, char *complaint,
                     size_t complaint_bytes) {
  // There is one block; the fake driver has a thread for each stream.
  static std::mutex turn;
  std::lock_guard<std::mutex> mine(turn);
  const unsigned threads = launch->block.x * launch->block.y * launch->block.z;
  const unsigned blocks = launch->grid.x * launch->grid.y * launch->grid.z;
  if (!threads || threads > MAX_THREADS || !blocks || launch->grid.y > 65535 ||
      launch->grid.z > 65535 || launch->block.z > 64 || !launch->cluster ||
      launch->cluster > MAX_CLUSTER || launch->grid.x % launch->cluster ||
      (launch->cluster > 1 && threads % WARP)) {
    snprintf(complaint, complaint_bytes, "a grid, block or cluster of a size that no device takes");
    return 1;
  }
  const std::lock_guard<std::mutex> alone(one_launch);
  if (!block.stacks) {
    block.stacks =
        (unsigned char *)mmap(nullptr, STACK * MAX_THREADS * MAX_CLUSTER, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  block.launch = launch;
  block.body = body;
  block.arguments = arguments;
  block.random = launch->seed;
  block.fibers = std::vector<Fiber>(threads * launch->cluster);
  for (unsigned rank = 0; rank < launch->cluster; rank++)
    block.shared[rank] = cuda_host_allocate(launch->shared_bytes, 1024);
  struct sigaction ours = {}, segv, bus;
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (!SANITIZED) {
    sigaction(SIGSEGV, &ours, &segv);
    sigaction(SIGBUS, &ours, &bus);
  }
  launching = true;
  int bad = sigsetjmp(failed, 1);
  if (!bad) {
    // Blocks are in no order either.
    const unsigned clusters = blocks / launch->cluster;
    for (unsigned i = 0; i < clusters; i++) run_cluster(launch->seed % 2 ? clusters - 1 - i : i);
  } else {
    const bool early = block.hiding;
    hide(false);
    snprintf(complaint, complaint_bytes, "%s%s", complaint_text.c_str(),
             early ? ", or may not be touched before fg_wait" : "");
  }
  launching = false;
  if (!SANITIZED) {
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
  }
  for (unsigned rank = 0; rank < launch->cluster; rank++)
    cuda_host_free(block.shared[rank], launch->shared_bytes, 1024);
  return bad;
}

unsigned char *cuda_host_allocate(size_t bytes, size_t align) {
  const size_t size = mapped(bytes, align);
  unsigned char *base = (unsigned char *)mmap(nullptr, size + 2 * PAGE, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(base + PAGE, size, PROT_READ | PROT_WRITE);
  unsigned char *begin =
      (unsigned char *)(((uintptr_t)(base + PAGE + size) - bytes) / align * align);
  for (unsigned char *p = base + PAGE; p < base + PAGE + size; p++) *p = pattern(p);
  memset(begin, 0xff, bytes);
#if SANITIZED
  __asan_poison_memory_region(base + PAGE, (size_t)(begin - base - PAGE));
  __asan_poison_memory_region(begin + bytes, (size_t)(base + PAGE + size - begin - bytes));
#endif
  return begin;
}

__attribute__((no_sanitize("address"))) int cuda_host_untouched(unsigned char *pointer,
                                                                size_t bytes, size_t align) {
  const unsigned char *base = base_of(pointer, bytes, align) + PAGE;
  const unsigned char *end = base + mapped(bytes, align);
  for (const volatile unsigned char *p = base; p < pointer; p++)
    if (*p != pattern(p)) return 0;
  for (const volatile unsigned char *p = pointer + bytes; p < end; p++)
    if (*p != pattern(p)) return 0;
  return 1;
}

void cuda_host_free(unsigned char *pointer, size_t bytes, size_t align) {
  const size_t size = mapped(bytes, align);
  unsigned char *base = base_of(pointer, bytes, align);
#if SANITIZED
  __asan_unpoison_memory_region(base + PAGE, size);
#endif
  munmap(base, size + 2 * PAGE);
}

}  // extern "C"

}  // namespace cuda_host
