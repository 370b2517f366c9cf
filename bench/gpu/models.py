"""``python -m bench.gpu.models``: whole compiled models, beside PyTorch's graphs of the same.

The perceptron goes from an array of the host to an array of the host, the encoder from and to
memory of the device. Results are compared with float64 on the way. Beside the perceptron runs the
best of the recipes that are written in C++ (``python -m bench.gpu floor --only mlp_twin`` has all).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.encoder import WORDS, encode, seeded_weights
from bench.gpu.native import build, build_twin, driver, environment, gpu_problem
from bench.gpu.operator_cases import relative
from bench.gpu.operators import ROUNDS, Clock
from bench.gpu.probes import runner
from bench.machine import installed
from bench.outcome import Goal, verdict
from examples import minilm

__all__ = ["main"]

LAYERS = ((784, 512), (512, 512), (512, 10))
TRIPS = 1000
TOKENS = 128
# Relative to the largest element of the result.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2}
# "max-autotune-no-cudagraphs" takes minutes for each case, so it runs only where it is named.
MODES = ("eager", "default")
# The encoder over PyTorch's best way.
ENCODER = {("float16", 1): 0.7, ("float16", 32): 0.9, ("float32", 32): 1.0}
RECIPE = "perceptron, the best recipe in C++"
Line = dict[str, Any]


def perceptron() -> tuple[fg.CompiledGraph, dict[str, Any]]:
    """The model of the C twin, with its sizes and its spread of weights."""
    g = fg.Graph("mlp")
    random = np.random.default_rng(7)
    y, params = g.input("x", (1, LAYERS[0][0])), {}
    for i, (k, n) in enumerate(LAYERS):
        params[f"w{i}"] = (random.standard_normal((k, n)) * 1.4 / np.sqrt(k)).astype("f4")
        params[f"b{i}"] = (random.standard_normal(n) * 0.3).astype("f4")
        y = y @ g.param(f"w{i}", (k, n)) + g.param(f"b{i}", (n,))
        y = y if i == len(LAYERS) - 1 else fg.ops.gelu(y)
    g.output(y, "y")
    model = fg.Session("cuda").compile(g)
    model.set_params(params)
    return model, params


def spread(name: str, us: list[float]) -> Line:
    """A line of the median and the 99th percentile."""
    return {"case": name, "us": statistics.median(us), "p99_us": float(np.percentile(us, 99))}


def trips(call: Callable[[Any], object], inputs: list[Any]) -> list[float]:
    """Microseconds of calls, one after another."""
    taken = []
    for i in range(TRIPS):
        x = inputs[i % len(inputs)]
        start = perf_counter_ns()
        call(x)
        taken.append((perf_counter_ns() - start) / 1e3)
    return taken


def recipe() -> Line:
    """The perceptron written by hand, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        found = runner(build(Path(folder)))("mlp_twin")
    if found.problem:
        raise RuntimeError(f"the twin is broken: {found.problem}")
    taken = {
        one.name: one.value
        for one in found.findings
        if one.name.endswith("round trip, hot p50") and one.value is not None
    }
    best = min(taken, key=taken.__getitem__)
    return {"case": RECIPE, "us": taken[best], "recipe": best.partition(":")[0]}


def mlp() -> list[Line]:
    """Round trips through `run_slots`, in C on the same executable, and in torch."""
    model, params = perceptron()
    random = np.random.default_rng(8)
    inputs = [random.standard_normal((1, LAYERS[0][0]), dtype=np.float32) for _ in range(16)]
    view = model.output_view(0)
    erf = np.vectorize(importlib.import_module("math").erf)
    for x in inputs:
        wanted = x.astype("f8")
        for i in range(len(LAYERS)):
            wanted = wanted @ params[f"w{i}"] + params[f"b{i}"]
            if i < len(LAYERS) - 1:
                wanted = 0.5 * wanted * (1 + erf(wanted / np.sqrt(2)))
        model.run_slots([x])
        if (error := relative(view, wanted)) > TOLERANCE["float32"]:
            raise RuntimeError(f"the perceptron is wrong by {error}")
    ways: dict[str, Callable[[], list[float]]] = {
        "run_slots": lambda: trips(lambda x: model.run_slots([x]), inputs),
        "a loop in C on the same executable": native_trips(model),
    }
    if installed("torch"):
        ways["torch, graph and pinned copies"] = torch_trips(params, inputs)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for way, run in ways.items():
            found[way] += run() if turn else run()[:0]
    return [spread(f"perceptron, {way}", us) for way, us in found.items()]


def native_trips(model: fg.CompiledGraph) -> Callable[[], list[float]]:
    """The launch and the wait alone, in C++."""
    driver()  # The twin finds it by its name alone.
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(build_twin(Path(folder))))
    handle, stream = model.executable.executable_handle, model.stream.handle
    us = (ctypes.c_double * TRIPS)()

    def run() -> list[float]:
        code = library.twin_rounds(ctypes.c_void_p(handle), ctypes.c_void_p(stream), TRIPS, 1, us)
        if code:
            raise RuntimeError(f"the twin answers with {code}")
        return list(us)

    return run


def torch_trips(params: dict[str, Any], inputs: list[Any]) -> Callable[[], list[float]]:
    """The same in a CUDA graph of torch, from and to pinned memory."""
    torch: Any = importlib.import_module("torch")
    w = {name: torch.from_numpy(array).cuda() for name, array in params.items()}
    pinned = torch.empty((1, LAYERS[0][0]), pin_memory=True)
    out = torch.empty((1, LAYERS[-1][1]), pin_memory=True)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def work() -> None:
        y = pinned.to("cuda", non_blocking=True)
        for i in range(len(LAYERS)):
            y = torch.addmm(w[f"b{i}"], y, w[f"w{i}"])
            y = y if i == len(LAYERS) - 1 else torch.nn.functional.gelu(y)
        out.copy_(y, non_blocking=True)

    with torch.cuda.stream(stream), torch.no_grad():
        work()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            work()
    tensors = [torch.from_numpy(x) for x in inputs]

    def call(x: Any) -> None:
        pinned.copy_(x)
        with torch.cuda.stream(stream):
            graph.replay()
        stream.synchronize()

    return lambda: trips(call, tensors)


def encoder(clock: Clock, dtype: str, batch: int) -> Line:
    """MiniLM's shapes with seeded weights, from token numbers to rows of length 1."""
    line: Line = {"case": f"encoder, {dtype}, batch {batch}, {TOKENS} tokens"}
    ids = np.random.default_rng(3).integers(0, WORDS, (batch, TOKENS), dtype=np.int64)
    start = perf_counter_ns()
    model = clock.session.compile(minilm.build(TOKENS, batch, dtype=dtype))
    weights = {name: array.astype(dtype) for name, array in seeded_weights().items()}
    model.set_params(minilm.params_of(model.params, weights))
    (found,) = model.run({"ids": ids})
    line["first_run_s"] = (perf_counter_ns() - start) / 1e9
    wanted = encode(ids[:1], seeded_weights())
    line["error"] = relative(found[:1], wanted)
    if line["error"] > TOLERANCE[dtype]:
        raise RuntimeError(f"the encoder is wrong by {line['error']}")
    y = clock.ctx.create_buffer(found.shape, dtype)
    step = model.bind({"ids": clock.ctx.to_device(ids)}, {"embedding": y}, stream=clock.ctx.stream)
    line["us"], line["nodes"] = clock.us(step), len(model.graph.nodes)
    return line


def torch_encoder(dtype: str, batch: int, mode: str) -> Line:
    """The same module of torch in a CUDA graph, eager or compiled."""
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    module: Any = importlib.import_module("bench.contenders.torch_encoder").Encoder(TOKENS)
    module = module.eval().requires_grad_(False).to("cuda", getattr(torch, dtype))
    ids = torch.randint(0, WORDS, (batch, TOKENS), device="cuda")
    start = perf_counter_ns()
    call = module if mode == "eager" else torch.compile(module, mode=mode)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            call(ids)
        stream.synchronize()
        seconds = (perf_counter_ns() - start) / 1e9
        with torch.cuda.graph(graph, stream=stream):
            call(ids)
        taken = []
        for _ in range(ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(50):
                graph.replay()
            end.record()
            end.synchronize()
            taken.append(1e3 * begin.elapsed_time(end) / 50)
    name = f"encoder, {dtype}, batch {batch}, {TOKENS} tokens: torch {mode}"
    return {"case": name, "us": statistics.median(taken), "first_run_s": seconds}


def shown(line: Line) -> str:
    """One line as text."""
    more = [
        f"{key} {value if isinstance(value, str) else format(value, '.4g')}"
        for key, value in line.items()
        if key not in ("case", "us")
    ]
    return f"{line['case']:<72} {line['us']:10.2f} us  {', '.join(more)}"


def goals(lines: list[Line]) -> list[Goal]:
    """What was promised, of what has been measured."""
    us = {line["case"]: line["us"] for line in lines}
    found, ours = [], us.get("perceptron, run_slots")
    if ours and RECIPE in us:
        found.append(Goal("perceptron over the best recipe in C++", 1.1, ours / us[RECIPE]))
    if ours:
        loop = us["perceptron, a loop in C on the same executable"]
        found.append(Goal("perceptron: microseconds over a loop in C", 1.0, ours - loop))
    for (dtype, batch), limit in ENCODER.items():
        case = f"encoder, {dtype}, batch {batch}, {TOKENS} tokens"
        peers = [taken for other, taken in us.items() if other.startswith(f"{case}: torch")]
        if case in us and peers:
            found.append(Goal(f"{case}, over PyTorch's best", limit, us[case] / min(peers)))
    return found


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.models", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("models.json"), help="the JSON file")
    parser.add_argument("--modes", nargs="*", default=MODES, help="how torch runs the encoder")
    chosen = parser.parse_args()
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    clock, lines, machine = Clock(), [], environment()
    works: list[Callable[[], list[Line]]] = [mlp, lambda: [recipe()]]
    for dtype in ("float16", "float32"):
        for batch in (1, 32):
            works.append(lambda d=dtype, b=batch: [encoder(clock, d, b)])  # type: ignore[misc]
            if installed("torch"):
                for mode in chosen.modes:
                    works.append(
                        lambda d=dtype, b=batch, m=mode: [torch_encoder(d, b, m)]  # type: ignore[misc]
                    )
    failed = False
    for work in works:
        try:
            found = work()
        except Exception as error:  # One that fails is told; the others are wanted, too.
            print(f"FAILED {type(error).__name__}: {error}"[:400], file=sys.stderr)
            failed = True
            continue
        for line in found:
            print(shown(line), flush=True)
        lines += found
        # After each, so that a run which is cut short keeps what it had.
        made = [goal.record() for goal in goals(lines)]
        record = {"machine": machine, "lines": lines, "goals": made}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("\n".join(verdict(goal.record()) for goal in goals(lines)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
