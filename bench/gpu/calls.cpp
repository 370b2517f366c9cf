// Calls of the driver one by one: what they cost, and what they answer when all is lost.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

// ---- called from Python, with the GIL or without it (gil.py) --------------------------------------
extern "C" void *replay_prepare(int n) {
  CUgraphExec exec = nullptr;
  guarded([&] {
    CUgraph g = new_graph();
    chain(g, rig().function("inc"), n);
    exec = executable(g);
    for (int i = 0; i < 20; ++i) run(exec);
  });
  return exec;
}
extern "C" int replay_nothing() { return 0; }
extern "C" int replay_launch(void *exec) {
  return cuGraphLaunch(static_cast<CUgraphExec>(exec), rig().stream);
}
extern "C" int replay_wait() { return cuStreamSynchronize(rig().stream); }
extern "C" int replay_launch_wait(void *exec) {
  const int code = replay_launch(exec);
  return code ? code : replay_wait();
}
// CUDA_ERROR_NOT_READY where the stream was still at work after `us`.
extern "C" int replay_poll(double us) {
  const double until = now_us() + us;
  CUresult code;
  do {
    code = cuStreamQuery(rig().stream);
  } while (code == CUDA_ERROR_NOT_READY && now_us() < until);
  return code;
}
extern "C" float replay_sum() {
  float value = -1;
  guarded([&] { value = rig().first(rig().data); });
  return value;
}

// The small calls round a replay: polling, events, the current context.
extern "C" int probe_small_calls() {
  return guarded([] {
    Rig &r = rig();
    CUevent event;
    CUstream other;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUfunction linger = r.function("linger");
    auto each = [&](const std::string &name, auto call) {
      Samples s;
      for (int i = 0; i < 2000; ++i) s.add(timed(call));
      s.report(name);
    };
    auto busy = [&](unsigned long long ns) {
      kernel(linger, 1, 1, ns);
      MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, r.stream, argument_pointers, nullptr));
    };
    CUcontext context;
    each("clock", [] {});
    each("CtxGetCurrent", [&] { MUST(cuCtxGetCurrent(&context)); });
    each("CtxSetCurrent, the same", [&] { MUST(cuCtxSetCurrent(r.context)); });
    each("StreamQuery, idle", [&] { MUST(cuStreamQuery(r.stream)); });
    each("EventRecord, idle", [&] { MUST(cuEventRecord(event, r.stream)); });
    r.wait();
    each("EventQuery, done", [&] { MUST(cuEventQuery(event)); });
    each("StreamWaitEvent, done", [&] { MUST(cuStreamWaitEvent(other, event, 0)); });
    each("StreamSynchronize, idle", [&] { r.wait(); });
    busy(200000000ull);
    int ready = 0;
    each("StreamQuery, busy", [&] { ready += cuStreamQuery(r.stream) == CUDA_SUCCESS; });
    MUST(cuEventRecord(event, r.stream));
    each("EventQuery, pending", [&] { ready += cuEventQuery(event) == CUDA_SUCCESS; });
    say("queries that found the busy stream done", ready, "calls", 0, "0 means that it was busy");
    each("StreamWaitEvent, pending", [&] { MUST(cuStreamWaitEvent(other, event, 0)); });
    r.wait();

    // One executable on two streams: its launches follow one another.
    CUgraph g = new_graph();
    add(g, kernel(linger, 1, 1, 2000000ull));
    CUgraphExec exec = executable(g), twin = executable(g);
    run(exec);
    run(twin);
    Samples same, apart, handover;
    for (int i = 0; i < 10; ++i) {
      same.add(timed([&] {
        MUST(cuGraphLaunch(exec, r.stream));
        MUST(cuGraphLaunch(exec, other));
        MUST(cuStreamSynchronize(other));
        r.wait();
      }));
      apart.add(timed([&] {
        MUST(cuGraphLaunch(exec, r.stream));
        MUST(cuGraphLaunch(twin, other));
        MUST(cuStreamSynchronize(other));
        r.wait();
      }));
      handover.add(timed([&] {
        MUST(cuEventRecord(event, r.stream));
        MUST(cuStreamWaitEvent(other, event, 0));
      }));
    }
    same.median("one executable on two streams, 2 ms each", "4 ms means one after the other");
    apart.median("two executables on two streams, 2 ms each");
    handover.median("EventRecord + StreamWaitEvent");
  });
}

// After a store outside all memory: what each call answers. The process is good for nothing after.
extern "C" int probe_poisoned_context() {
  return guarded([] {
    Rig &r = rig();
    CUgraph g = new_graph(), wild = new_graph();
    chain(g, r.function("inc"), 2);
    add(wild, kernel(r.function("wild"), 1, 1, r.data));
    CUgraphExec exec = executable(g), bad = executable(wild);
    CUevent event;
    CUdeviceptr memory, p;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAlloc(&memory, 4096));
    run(exec);
    verdict("launch of the faulty graph", cuGraphLaunch(bad, r.stream));
    CUresult code;
    const double until = now_us() + 2e6;
    do {
      code = cuStreamQuery(r.stream);
    } while (code == CUDA_ERROR_NOT_READY && now_us() < until);
    verdict("poisoned: the StreamQuery that finds it", code);
    verdict("poisoned: StreamSynchronize", cuStreamSynchronize(r.stream));
    verdict("poisoned: GraphLaunch", cuGraphLaunch(exec, r.stream));
    verdict("poisoned: MemAlloc", cuMemAlloc(&p, 4096));
    float value;
    verdict("poisoned: MemcpyDtoH", cuMemcpyDtoH(&value, memory, 4));
    verdict("poisoned: EventQuery", cuEventQuery(event));
    verdict("poisoned: EventRecord", cuEventRecord(event, r.stream));
    CUgraph another;
    verdict("poisoned: GraphCreate", cuGraphCreate(&another, 0));
    CUgraphExec twin;
    verdict("poisoned: GraphInstantiate", cuGraphInstantiate(&twin, g, 0));
    size_t available, total;
    verdict("poisoned: MemGetInfo", cuMemGetInfo(&available, &total));
    CUcontext current;
    verdict("poisoned: CtxGetCurrent", cuCtxGetCurrent(&current));
    int major;
    verdict("poisoned: DeviceGetAttribute",
            cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, r.device));
    verdict("poisoned: EventDestroy", cuEventDestroy(event));
    verdict("poisoned: MemFree", cuMemFree(memory));
    verdict("poisoned: MemFreeHost", cuMemFreeHost(r.pinned));
    verdict("poisoned: GraphExecDestroy", cuGraphExecDestroy(exec));
    verdict("poisoned: GraphDestroy", cuGraphDestroy(g));
    verdict("poisoned: StreamDestroy", cuStreamDestroy(r.stream));
    verdict("poisoned: ModuleUnload", cuModuleUnload(r.module));
    verdict("poisoned: DevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease(r.device));
  });
}

// What a forked child gets for an answer. It may hang, so it has five seconds.
extern "C" int probe_forked_child() {
  return guarded([] {
    Rig &r = rig();
    CUgraph g = new_graph();
    chain(g, r.function("inc"), 2);
    CUgraphExec exec = executable(g);
    run(exec);
    std::fflush(nullptr);
    const pid_t pid = fork();
    expect(pid >= 0, "fork works");
    if (pid == 0) {
      CUcontext current = nullptr;
      CUdeviceptr p;
      int count = 0;
      verdict("forked child: CtxGetCurrent", cuCtxGetCurrent(&current));
      verdict("forked child: DeviceGetCount", cuDeviceGetCount(&count));
      verdict("forked child: Init", cuInit(0));
      verdict("forked child: MemAlloc", cuMemAlloc(&p, 4096));
      verdict("forked child: StreamQuery", cuStreamQuery(r.stream));
      verdict("forked child: GraphLaunch", cuGraphLaunch(exec, r.stream));
      std::fflush(nullptr);
      _exit(0);
    }
    int status = 0;
    const double until = now_us() + 5e6;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (now_us() > until) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        say("forked child: hung", 1, "", 0, "killed after 5 s");
        break;
      }
      usleep(2000);
    }
    say("forked child: ended by signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0, "signal");
    CUresult code = cuGraphLaunch(exec, r.stream);
    if (code == CUDA_SUCCESS) code = cuStreamSynchronize(r.stream);
    verdict("the parent's launch, after the fork", code);
  });
}
