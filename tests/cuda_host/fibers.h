// The threads of one block, or of a cluster's, as fibers of one host thread, and where they meet.
//
// A fiber runs until it waits: at a barrier of the block or with other lanes of its warp. Which
// fiber goes on then is first in, first out, or, with a seed, any; what holds only in one order is
// a race.
#ifndef CUDA_HOST_FIBERS_H
#define CUDA_HOST_FIBERS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
namespace cuda_host {

struct Dim {
  unsigned x, y, z;
};

// What a kernel may ask about the thread that runs, kept where it is found without a call.
struct Now {
  Dim thread, block, block_dim, grid_dim;
  unsigned char *dynamic_shared;
};
extern "C" Now *cuda_host_now;

// One copy that a thread has begun and not yet waited for.
extern "C" void cuda_host_copy_begin(void *to, const void *from, unsigned bytes, unsigned zeros);
extern "C" void cuda_host_copy_commit();
extern "C" void cuda_host_copy_wait(unsigned pending);

// Barriers of 8 bytes in shared memory. A phase ends with the last of its `count` arrivals; `parity`
// is that of the phase waited for. What cuda_host_copy_arrive stands for comes as late as it can: the
// thread's copies land, and the arrival counts, when no thread can go on without.
extern "C" void cuda_host_mbarrier_init(void *barrier, unsigned count);
extern "C" void cuda_host_mbarrier_arrive(void *barrier);
extern "C" void cuda_host_mbarrier_wait(void *barrier, unsigned parity);
extern "C" void cuda_host_copy_arrive(void *barrier);

// Work of a unit beside the thread, given a copy of `data`; it is done when the thread waits for it.
extern "C" void cuda_host_later(void (*work)(const void *data), const void *data, unsigned bytes);
extern "C" void cuda_host_later_commit();
extern "C" void cuda_host_later_wait(unsigned pending);

// Wait until `count` threads are at barrier `id`; 0 stands for all that have not ended.
extern "C" void cuda_host_barrier(unsigned id, unsigned count);

// Wait for all threads of the blocks of the cluster; where block `rank` has what lies at `own` in the
// running block's dynamic shared memory. A block is there from its first thread's start to the end of
// its last one: touched before or after, it is no memory.
extern "C" void cuda_host_cluster_barrier();
extern "C" void *cuda_host_cluster_shared(void *own, unsigned rank);

// The lanes of `mask` come together; the last to come runs `work` for all of them with what each
// has brought. `kind` is compared: lanes that meet at different places are an error.
typedef void (*Meeting)(void *const brought[32], uint32_t mask);
extern "C" void cuda_host_meet(uint32_t mask, const char *kind, Meeting work, void *brought);

// What programmatic launches ask of every thread.
extern "C" void cuda_host_waited();
extern "C" void cuda_host_triggered();

// Ends the launch with this complaint.
extern "C" [[noreturn]] void cuda_host_fail(const char *complaint);

// A kernel with its arguments bound, run by every thread.
typedef void (*Body)(void *const *arguments);

// Memory of cuda_host_allocate that nobody may touch before fg_wait.
struct Hidden {
  unsigned char *pointer;
  size_t bytes, align;
};

struct Launch {
  Dim grid, block;
  size_t shared_bytes;
  unsigned cluster;  // neighbouring blocks that run at once, along x
  uint64_t seed;     // 0: in order
  int must_wait;     // every thread has to call fg_wait
  const Hidden *hidden;
  size_t n_hidden;
  unsigned char *statics;  // the kernel's static shared memory: garbage at the start of each block
  size_t statics_bytes;
};

// 0, or a complaint is in `complaint`.
extern "C" int cuda_host_launch(const Launch *launch, Body body, void *const *arguments,
                                char *complaint, size_t complaint_bytes);

// Memory of bytes 0xff with a page that faults before it and behind it, as close to the end as
// `align`, up to a page, allows; whether nothing was written around it; its end.
extern "C" unsigned char *cuda_host_allocate(size_t bytes, size_t align);
extern "C" int cuda_host_untouched(unsigned char *pointer, size_t bytes, size_t align);
extern "C" void cuda_host_free(unsigned char *pointer, size_t bytes, size_t align);

}  // namespace cuda_host
#pragma GCC visibility pop

#endif
