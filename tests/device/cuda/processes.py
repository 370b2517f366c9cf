"""Scripts in processes of their own, on the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

FAKE = """
from tests import fake_cuda
fake = fake_cuda.load()
"""

IMPORTS = """
import gc, os, pathlib, signal, sys, threading, time, warnings
import numpy as np
import fastgraph as fg
from fastgraph._core import counters

N = 1024
GRID = {"grid_dim": 4, "block_dim": 256}

def refusal(f, *args, **options):
    "What a call raises, which must be an error of ours."
    try:
        f(*args, **options)
    except fg.FastGraphError as error:
        return error
    raise AssertionError(f"{f} was taken")

def native(ctx, name, signature):
    return ctx.load_function(pathlib.Path(KERNELS).read_bytes(), name, signature)

def fill_of(ctx):
    return native(ctx, "fill", "float *out, float value, int32_t n")
"""

# Things of every kind on `ctx`, and every public call that needs the device.
ALL_CALLS = """
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x, pinned = ctx.create_buffer(N), ctx.create_host_buffer(N)
flag, live = ctx.to_device(np.ones(1, "u4")), np.ones(N, "f4")
cache = fg.DeviceGraphCache()
stream, event, late = ctx.create_stream(), ctx.create_event(), ctx.create_event()
event.record()

def build(b, live):
    first = b.add_function(fill, x, b.scalar("v", "float32", 1.0), N, **GRID, name="fill")
    b.add_copy(b.pointer("p", x), live, dependencies=[first])
    b.add_output(x)

def setting(b):
    b.add_memset(x, 1.0, name="set")

def choosing(b):
    b.add_if(flag, lambda body: body.add_memset(x, 2.0))

create = fg.DeviceGraph.create
graph, plain = create(ctx, build, live), create(ctx, setting)
checked, verified = create(ctx, setting, check=True), create(ctx, setting, verify=2)
cached = create(ctx, choosing, cache=cache)
hosted = create(ctx, lambda b: b.add_host_function(lambda: None))
graph.run(live)
calls = {
    "synchronize": ctx.synchronize,
    "wait_for": lambda: ctx.wait_for(fg.DeviceContext("cuda", stream=stream)),
    "execution_time": lambda: ctx.execution_time(lambda: None),
    "memory_info": lambda: ctx.memory_info,
    "context": lambda: fg.DeviceContext("cuda"),
    "create_buffer": lambda: ctx.create_buffer(4),
    "create_host_buffer": lambda: ctx.create_host_buffer(4),
    "to_device": lambda: ctx.to_device(live),
    "numpy": x.numpy,
    "numpy, pinned": pinned.numpy,
    "copy_from": lambda: x.copy_from(live),
    "dlpack": lambda: x.__dlpack__(stream=1),
    "array interface": lambda: x.__cuda_array_interface__,
    "memset": lambda: ctx.memset(x, 1.0),
    "copy, in": lambda: ctx.copy(x, live),
    "copy, out": lambda: ctx.copy(live, x),
    "copy, across": lambda: ctx.copy(x, pinned),
    "launch": lambda: ctx.launch(fill, x, 1.0, N),
    "load_function": lambda: native(ctx, "inc", "float *buf, float delta, int32_t n"),
    "create_stream": ctx.create_stream,
    "stream.query": stream.query,
    "stream.synchronize": stream.synchronize,
    "create_event": ctx.create_event,
    "event.record": late.record,
    "event.query": event.query,
    "event.synchronize": event.synchronize,
    "create": lambda: create(ctx, setting),
    "create, inputs": lambda: create(ctx, build, live),
    "create, choice": lambda: create(ctx, choosing),
    "create, capture": lambda: create(ctx, lambda b: b.capture().__enter__()),
    "replay": plain.replay,
    "replay, live": lambda: graph.replay(live),
    "replay, given": lambda: graph.replay(live, v=2.0, p=x),
    "replay, stream": lambda: graph.replay(live, stream=stream),
    "replay, checked": checked.replay,
    "replay, verified": verified.replay,
    "replay, cached": cached.replay,
    "replay, hosted": hosted.replay,
    "run": plain.run,
    "run, live": lambda: graph.run(live),
    "clone": plain.clone,
    "clone, twins": graph.clone,
    "set": lambda: graph.set(v=2.0),
    "set, pointer": lambda: graph.set(p=ctx.create_buffer(N)),
    "upload": plain.upload,
    "update": lambda: plain.update("set", value=3.0),
    "update, enabled": lambda: plain.update("set", enabled=False),
}

def tell_all(good):
    "Call all; print what raises something that is not `good`, or nothing."
    for name, call in calls.items():
        try:
            call()
        except BaseException as error:
            if not good(error):
                print(name, "raised", repr(error), flush=True)
        else:
            print(name, "was taken", flush=True)

def drop_all():
    "Let everything go that is of the device."
    global graph, plain, checked, verified, cached, hosted, x, pinned, flag, stream, event, late
    global fill, calls
    graph.close()
    graph.close()
    cache.clear()
    graph = plain = checked = verified = cached = hosted = x = pinned = flag = None
    stream = event = late = fill = calls = None
    gc.collect()
"""


def run(script: str, kernels: Path | None = None, preload: str = FAKE, code: int = 0) -> str:
    """What a process of its own prints; it must end well, and say nothing besides."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    head = f"KERNELS = {str(kernels)!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", preload + IMPORTS + head + script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == "", done.stderr
    return done.stdout
