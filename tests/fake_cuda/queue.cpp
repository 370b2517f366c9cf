// Queues of work: one thread a stream takes the jobs in order, each after what it waits for.
#include <thread>

#include "fake.h"

namespace {
// Stops at the gate until held execution may take a step.
bool gate_is_open() { return !state().hold || state().permits > 0; }

void work_off(CUstream stream) {
  State &s = state();
  Lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] { return !stream->jobs.empty() || stream->closing; });
    if (stream->jobs.empty()) break;
    Job job = std::move(stream->jobs.front());
    stream->jobs.pop_front();
    for (const TicketRef &ticket : job.waits) wait_for(lock, ticket);
    pass_gate(lock);
    // What is queued behind a fault is never done.
    if (!stream->context->sticky) {
      lock.unlock();
      job.run();
      job.run = nullptr;
      lock.lock();
    }
    job.ticket->when = now();
    job.ticket->done = true;
    s.changed.notify_all();
  }
  delete stream;
}

// The stream of a thread: closed when the thread ends.
struct ThreadStreams {
  std::map<CUcontext, CUstream> all;
  ~ThreadStreams() {
    if (state().forked) return;
    Lock lock(state().mutex);
    for (auto &[context, stream] : all)
      if (state().streams.count(stream)) close_stream(stream);
  }
};
thread_local ThreadStreams own;
}  // namespace

void pass_gate(Lock &lock) {
  State &s = state();
  s.changed.wait(lock, gate_is_open);
  if (s.hold) --s.permits;
}

void wait_for(Lock &lock, const TicketRef &ticket) {
  if (ticket) state().changed.wait(lock, [&] { return ticket->done; });
}

bool is_legacy(CUstream handle) { return !handle || handle == CU_STREAM_LEGACY; }

CUstream new_stream(CUcontext context, unsigned flags, int priority) {
  CUstream stream = new CUstream_st;
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id();
  state().streams.insert(stream);
  return stream;
}

// What is queued is still done.
void close_stream(CUstream stream) {
  state().streams.erase(stream);
  if (stream->capture) {
    spoil(stream->capture);
    stream->capture->members.erase(stream);
  }
  if (stream->has_worker) {
    stream->closing = true;
    state().changed.notify_all();
  } else {
    delete stream;
  }
}

CUresult find_stream(CUstream handle, CUstream *out) {
  CUstream found = handle;
  if (is_legacy(handle) || handle == CU_STREAM_PER_THREAD) {
    CUcontext context = current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    CUstream &slot = is_legacy(handle) ? context->legacy : own.all[context];
    if (!slot || !state().streams.count(slot)) {
      slot = new_stream(context, CU_STREAM_DEFAULT, 0);
      slot->implicit = true;
    }
    found = slot;
  } else if (!state().streams.count(handle)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *out = found;
  return found->context->sticky;
}

TicketRef enqueue(CUstream stream, std::function<void()> run, Tickets waits) {
  State &s = state();
  CUcontext context = stream->context;
  // The legacy stream and all blocking ones of its context come one after the other.
  if (stream == context->legacy) {
    for (CUstream other : s.streams)
      if (other->context == context && !(other->flags & CU_STREAM_NON_BLOCKING) && other->last)
        waits.push_back(other->last);
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING) && context->legacy) {
    waits.push_back(context->legacy->last);
  }
  waits.insert(waits.end(), stream->pending.begin(), stream->pending.end());
  stream->pending.clear();
  stream->last = std::make_shared<Ticket>();
  stream->jobs.push_back({std::move(run), stream->last, std::move(waits)});
  if (!stream->has_worker) {
    stream->has_worker = true;
    std::thread(work_off, stream).detach();
  }
  s.changed.notify_all();
  return stream->last;
}

Tickets unfinished(CUcontext context) {
  Tickets found;
  for (CUstream stream : state().streams)
    if (stream->context == context && stream->last && !stream->last->done)
      found.push_back(stream->last);
  return found;
}
