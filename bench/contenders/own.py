"""fastgraph itself."""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench import decode_case, speech
from bench.decode_case import Step
from bench.encoder import Sentence, seeded_weights
from bench.timing import Call
from bench.workloads import Layers, add_inputs
from examples import decoder, minilm, vad

__all__ = ["allocations", "beside_busy", "build", "compile_model", "layers_graph"]

LINES = {
    "run_slots": "call(inputs)",
    "bind": "call()",
    "run": "call(inputs)",
    "run_raw": "call(inputs)",
    "executable": "call()",
}


def layers_graph(layers: Layers) -> tuple[fg.Graph, dict[str, np.ndarray[Any, Any]]]:
    """The graph of `layers` and its parameters."""
    g = fg.Graph("layers")
    h = g.input("x", (layers.rows, layers.sizes[0]))
    params = {}
    for i, (w, b) in enumerate(layers.weights()):
        params[f"w{i}"] = w
        h = h @ g.param(f"w{i}", w.shape)
        if b is not None:
            params[f"b{i}"] = b
            h = h + g.param(f"b{i}", b.shape)
        if i < layers.gelu_layers:
            h = fg.ops.gelu(h)
    g.output(h, "y")
    return g, params


def add_graph(n: int = 16) -> fg.Graph:
    """``y = x + x``."""
    g = fg.Graph("add")
    x = g.input("x", (n,))
    g.output(x + x, "y")
    return g


def build(spec: dict[str, Any]) -> Call:
    """A compiled model run by one of its methods."""
    if spec["workload"] == "decode":
        return _decode(Step.of(spec), spec["threads"])
    session = fg.Session("cpu", threads=spec["threads"])
    if spec["workload"] == "add":
        model = session.compile(add_graph())
    elif spec["workload"] == "speech":
        return step_of(spec)
    elif spec["workload"] == "encoder":
        model = session.compile(minilm.build(Sentence.of(spec).tokens))
        model.set_params(minilm.params_of(model.params, seeded_weights()))
    else:
        graph, params = layers_graph(Layers.of(spec))
        model = session.compile(graph)
        model.set_params(params)
    return _call(model, spec["how"])


def step_of(spec: dict[str, Any]) -> Call:
    """A step of Silero VAD, which has several inputs and outputs."""
    model = fg.load(vad.model_file(), threads=spec["threads"], dims=speech.DIMS)
    arrays = [np.zeros(info.shape, info.dtype) for info in model.inputs]
    if spec["how"] == "run_slots":
        views = [model.output_view(i) for i in range(len(model.outputs))]
        names = {"call": model.run_slots, "inputs": arrays}
        return Call(LINES["run_slots"], names, arrays, lambda: speech.joined(views))
    kept: list[np.ndarray[Any, Any]] = []
    given = dict(zip(speech.NAMES, arrays, strict=True))
    names = {"call": model.run, "inputs": given, "kept": kept}
    return Call("kept[:] = call(inputs)", names, arrays, lambda: speech.joined(kept))


def _decode(step: Step, threads: int) -> Call:
    made = decoder.Decoder(decode_case.seeded_weights(step.experts), threads=threads)
    for i, both in enumerate(decode_case.caches(step.past)):
        for part, array in zip(("keys", "values"), both, strict=True):
            made.caches[f"{part}.{i}"].copy_from(array)
    model = made.model(1)
    ids, last, past = np.zeros(1, np.int64), np.zeros(1, np.int64), np.array(step.past)
    given = {"ids": ids, "past": past, "last": last}
    y = np.empty((1, decode_case.CHARACTERS), np.float32)
    # The caches are handles, which the step feeds.
    return Call("call()", {"call": model.bind(given, {"logits": y})}, [ids], lambda: y)


def _call(model: fg.CompiledGraph, how: str) -> Call:
    (given,), (result,) = model.inputs, model.outputs
    x = np.zeros(given.shape, given.dtype)
    y = np.empty(result.shape, result.dtype)
    view = model.output_view(0)
    if how == "run_slots":
        return Call(LINES[how], {"call": model.run_slots, "inputs": [x]}, [x], lambda: view)
    if how == "bind":
        return Call(
            LINES[how], {"call": model.bind({given.name: x}, {result.name: y})}, [x], lambda: y
        )
    if how == "executable":
        # The walk over the recorded nodes alone, on addresses that an earlier run left.
        model.run_slots([x])
        return Call(LINES[how], {"call": model.executable.run}, [x], lambda: view)
    named = {given.name: x}
    call = model.run if how == "run" else model.run_raw
    return Call(LINES[how], {"call": call, "inputs": named}, [x], lambda: view)


def allocations(calls: int) -> dict[str, dict[str, int]]:
    """What `calls` calls of the 16-float add leave behind and reach in between, by method.

    ``blocks``: growth of the interpreter's allocated blocks; ``peak``: bytes above the start that
    tracemalloc saw at any moment. What the counting itself takes is taken off.
    """
    model = fg.Session("cpu", threads=1).compile(add_graph())
    x = add_inputs(0)[0]
    ways = {
        "run_slots": (model.run_slots, ([x],)),
        "bind": (model.bind({"x": x}, {"y": np.empty_like(x)}), ()),
    }
    counted = {"blocks": _blocks, "peak": _peak}
    gc.collect()
    gc.disable()
    found: dict[str, dict[str, int]] = {name: {} for name in ways}
    for what, count in counted.items():
        if what == "peak":
            tracemalloc.start()
        for name, (call, arguments) in ways.items():
            # The second time, nothing is done for the first time.
            count(call, arguments, calls)
            base = min(count(_nothing, (), calls) for _ in range(2))
            found[name][what] = max(0, count(call, arguments, calls) - base)
    tracemalloc.stop()
    gc.enable()
    return found


def _nothing() -> None:
    pass


def _blocks(call: Callable[..., object], arguments: tuple[Any, ...], calls: int) -> int:
    before = sys.getallocatedblocks()
    for _ in repeat(None, calls):
        call(*arguments)
    return sys.getallocatedblocks() - before


def _peak(call: Callable[..., object], arguments: tuple[Any, ...], calls: int) -> int:
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for _ in repeat(None, calls):
        call(*arguments)
    return tracemalloc.get_traced_memory()[1] - before


def beside_busy(release_gil: str | bool, seconds: float) -> dict[str, Any]:
    """Single run_slots calls for `seconds` each, alone and beside a thread that runs Python.

    Returns
    -------
    dict
        ``alone`` and ``beside``: median, 99th percentile and mean in nanoseconds, and how many
        calls; ``turns``: what the busy thread did meanwhile, in thousands; ``correct``.
    """
    model = fg.Session("cpu", threads=1, release_gil=release_gil).compile(add_graph())
    inputs = add_inputs(0)
    call = model.run_slots

    def timed() -> tuple[float, float, float, int]:
        taken = []
        end = perf_counter_ns() + int(seconds * 1e9)
        stop = 0
        while stop < end:
            start = perf_counter_ns()
            call(inputs)
            stop = perf_counter_ns()
            taken.append(stop - start)
        p50, p99 = np.percentile(taken, [50, 99])
        return float(p50), float(p99), float(np.mean(taken)), len(taken)

    turns = [0]
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            total = 0
            for number in range(1000):
                total += number
            turns[0] += 1

    timed()
    alone = timed()
    busy = threading.Thread(target=spin)
    busy.start()
    try:
        while not turns[0]:
            time.sleep(0.001)
        before = turns[0]
        beside = timed()
        during = turns[0] - before
    finally:
        stop.set()
        busy.join()
    right = bool(np.array_equal(model.output_view(0), inputs[0] + inputs[0]))
    return {"alone": alone, "beside": beside, "turns": during, "correct": right}


def compile_model(model: bytes, x: np.ndarray[Any, Any], threads: int) -> np.ndarray[Any, Any]:
    """Read and compile a model and run it once."""
    return np.array(fg.load(model, threads=threads, dims={}).run({"x": x})[0])
