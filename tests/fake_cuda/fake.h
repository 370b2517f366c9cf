// A small CUDA driver that works on host memory: what its files share.
//
// One lock guards all state. Work of a stream is done by a thread of that stream, without the lock;
// only looking things up takes it. See __init__.py for what the whole is for.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using Lock = std::unique_lock<std::mutex>;

constexpr size_t kPage = 4096;
constexpr int kMaxThreads = 1024;
constexpr int kMultiprocessors = 132;
constexpr int kSharedDefault = 49152, kSharedOptin = 232448;

// ---- waiting -----------------------------------------------------------------------------------
// Stands for one piece of work: done once, at a time.
struct Ticket {
  bool done = false;
  double when = 0;  // seconds
};
using TicketRef = std::shared_ptr<Ticket>;
using Tickets = std::vector<TicketRef>;

double now();

// ---- things that handles name ------------------------------------------------------------------
struct CUctx_st {
  int device = 0;
  unsigned retained = 0;  // of a primary one
  unsigned flags = 0;
  bool primary = true;
  CUresult sticky = CUDA_SUCCESS;  // once set, the context is good for nothing
  std::set<CUcontext> peers;       // whose memory its kernels may touch
  CUstream legacy = nullptr;
  unsigned long long id = 0;
};

// A capture that one or more streams take part in.
struct Capture {
  CUgraph graph = nullptr;
  bool owned = true;  // the graph is made by the capture and handed out at its end
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  bool invalid = false;
  unsigned long long id = 0;
  std::set<CUstream> members;
  std::set<CUgraphNode> joined;  // nodes that the origin waits for, so far
};
using CaptureRef = std::shared_ptr<Capture>;

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  TicketRef ticket;               // of the last record; none: never recorded
  CaptureRef capture;             // where it was recorded into a capture instead
  std::vector<CUgraphNode> from;  // the nodes that it then stands for
};

struct Job {
  std::function<void()> run;
  TicketRef ticket;
  Tickets waits;
};

struct CUstream_st {
  CUcontext context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  bool implicit = false;  // the legacy and the per-thread one: nobody destroys them
  std::deque<Job> jobs;
  TicketRef last;
  Tickets pending;  // events that the next job waits for
  bool has_worker = false, closing = false;
  CaptureRef capture;
  std::vector<CUgraphNode> tail;  // what the next captured node depends on
};

// ---- memory ------------------------------------------------------------------------------------
enum class Kind { device, pinned, registered, managed, global };

struct Block {
  uintptr_t begin = 0;
  size_t size = 0, mapped = 0;
  Kind kind = Kind::device;
  CUcontext context = nullptr;
  unsigned flags = 0;
  unsigned long long id = 0;
};

bool in_arena(uintptr_t address);
// The live block that holds the address (a block of no bytes holds its own), or null.
Block *block_at(uintptr_t address);
bool was_freed(uintptr_t address);
// Whether work may touch these bytes. Memory that we never gave out is the caller's own affair.
bool touchable(uintptr_t address, size_t size);
CUresult allocate(CUcontext context, size_t size, Kind kind, unsigned flags, uintptr_t *out);
CUresult release(uintptr_t address, Kind kind);
void adopt(uintptr_t address, size_t size, Kind kind, CUcontext context, unsigned flags);
void disown(uintptr_t address);
void release_all(CUcontext context);
bool is_host_kind(Kind kind);

// ---- state -------------------------------------------------------------------------------------
// Memory that lies nowhere until it is mapped.
struct Granules {
  size_t size = 0;
  int device = 0;
  int uses = 1;  // the handle, until it is released, and each mapping
};
size_t granules_in_use(int device);

struct Failure {
  long countdown;
  CUresult code;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  bool initialised = false;
  volatile bool forked = false;

  // Set by the tests.
  bool hold = false;
  long permits = 0;  // steps that may be taken while held
  bool poison_next = false;
  uint64_t seed = 1;
  int version = 13000, devices = 2, major = 9, minor = 0;
  size_t memory_total = size_t{1} << 30;
  std::map<std::string, Failure> failures;
  std::map<std::string, long> calls;

  // What is alive.
  std::set<CUcontext> contexts;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::set<CUmodule> modules;
  std::set<CUlibrary> libraries;
  std::set<CUfunction> functions;
  std::set<CUkernel> kernels;
  std::set<CUgraph> graphs;
  std::map<CUgraphNode, uint64_t> nodes;  // with the number that is never used again
  std::set<CUgraphExec> execs;
  std::set<CaptureRef> captures;
  std::map<uintptr_t, Block> blocks;
  std::map<uintptr_t, size_t> freed;
  std::map<uintptr_t, size_t> reservations;
  std::map<unsigned long long, Granules> granules;                      // by handle
  std::map<uintptr_t, std::pair<size_t, unsigned long long>> mappings;  // to size and handle
  long kernels_run = 0;
};

State &state();
unsigned long long next_id();

// The context of a device, made on first use.
CUcontext primary(int device);
CUcontext current();
void poison(CUcontext context, CUresult code);
// Whether the calling thread runs a host function of a stream or a graph.
extern thread_local bool in_callback;

// ---- entering a call ---------------------------------------------------------------------------
enum : unsigned {
  PLAIN = 0,
  CONTEXT = 1,   // 201 without a current context
  HEALTHY = 2,   // the sticky error where the current context has one
  CALLBACK = 4,  // allowed in a host function
  EARLY = 8,     // allowed before cuInit
  UNSAFE = 16,   // spoils a capture that forbids such calls
  CHILD = 32     // taken in a forked child, where it does nothing
};

// Counts the call, holds the lock while it lasts, and says why it must not go on.
struct Entry {
  Lock lock;
  CUresult code = CUDA_SUCCESS;
  CUcontext context = nullptr;  // the current one
  Entry(const char *function, unsigned flags);
  ~Entry();
};

#define ENTER(flags)                                                                               \
  Entry entry(__func__, flags);                                                                    \
  if (entry.code || state().forked) return entry.code

#define TRY(call)                                                                                  \
  if (CUresult bad = (call)) return bad

// ---- streams -----------------------------------------------------------------------------------
// Resolves 0, the legacy and the per-thread handle; INVALID_HANDLE, INVALID_CONTEXT or the sticky
// error otherwise.
CUresult find_stream(CUstream handle, CUstream *out);
bool is_legacy(CUstream handle);
TicketRef enqueue(CUstream stream, std::function<void()> run, Tickets waits = {});
// Lets held execution stop here. Called by workers, with the lock.
void pass_gate(Lock &lock);
void wait_for(Lock &lock, const TicketRef &ticket);
CUstream new_stream(CUcontext context, unsigned flags, int priority);
void close_stream(CUstream stream);
Tickets unfinished(CUcontext context);

// ---- work --------------------------------------------------------------------------------------
struct ParamInfo {
  size_t offset, size;
};
struct Code;

struct CUfunc_st {
  CUmodule module = nullptr;
  CUcontext context = nullptr;
  const Code *code = nullptr;
  std::shared_ptr<void> image;  // that holds the code, until the module is gone
  bool alive = true;
  int max_dynamic_shared = kSharedDefault;
  int preferred_carveout = -1;
  bool non_portable_cluster = false;
};

using Attributes = std::map<int, CUlaunchAttributeValue>;

struct KernelWork {
  CUfunction function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared = 0;
  std::vector<std::vector<char>> arguments;
  std::vector<void *> pointers;  // into arguments, for those who ask a node for its parameters
  Attributes attributes;
};

struct Condition {
  CUgraph graph = nullptr;  // that the handle was made on
  CUgraphNode node = nullptr;
  unsigned fallback = 0, flags = 0;
  unsigned value = 0;
};

struct ConditionalWork {
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<CUgraph> bodies;  // owned by the graph's node
};

struct Work {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  KernelWork kernel;
  CUDA_MEMCPY3D copy = {};
  CUDA_MEMSET_NODE_PARAMS fill = {};
  CUDA_HOST_NODE_PARAMS host = {};
  CUevent event = nullptr;
  CUgraph child = nullptr;  // owned by the graph's node
  CUdeviceptr memory = 0;
  std::vector<CUstreamBatchMemOpParams> operations;
  ConditionalWork conditional;
};

// Does one piece of leaf work, without the lock; the code is what poisons the context.
CUresult perform(const Work &work, CUcontext context);
CUresult run_kernel(const KernelWork &kernel, CUcontext context);
CUresult run_copy(const CUDA_MEMCPY3D &copy);
CUresult run_fill(const CUDA_MEMSET_NODE_PARAMS &fill);
// Queues it, or adds it to the stream's capture.
CUresult submit(CUstream stream, Work work);
// Runs `work(data)` and catches its illegal accesses: false.
bool guarded(void (*work)(void *), void *data);

CUresult check_kernel(const KernelWork &kernel);
CUresult check_copy(const CUDA_MEMCPY3D &copy);
CUresult check_fill(const CUDA_MEMSET_NODE_PARAMS &fill);
// Where the sides of a copy lie: host memory of the driver, of the process, or of a device.
enum class Side { device, pinned, pageable };
Side source_side(const CUDA_MEMCPY3D &copy);
Side destination_side(const CUDA_MEMCPY3D &copy);
// A plain copy, each side as its address says.
CUDA_MEMCPY3D flat_copy(uintptr_t destination, uintptr_t source, size_t size);

CUfunction find_function(CUfunction handle);
CUresult pack_arguments(CUfunction function, void **params, void **extra, KernelWork *out);
bool runs_here(CUfunction function);
// False where there is no such condition. With the lock.
bool set_condition(CUgraphConditionalHandle handle, unsigned value);

// ---- captures ----------------------------------------------------------------------------------
CUresult capture_work(CUstream stream, Work work);
CUresult capture_record(CUstream stream, CUevent event);
CUresult capture_wait(CUstream stream, CUevent event);
void spoil(const CaptureRef &capture);
// A call that may disturb captures: spoils those that forbid it and says 900.
CUresult unsafe_call();
// The legacy stream must not be used beside captures of blocking streams: 906.
CUresult legacy_beside_capture(CUcontext context);
