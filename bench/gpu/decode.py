"""``python -m bench.gpu.decode``: a step of a Llama-shaped stack, beside PyTorch's graph of it.

Sixteen layers with grouped heads, rotary angles and a gated perceptron take one token behind 1,023
others. Keys and values are handles that stay on the device, and a feed puts the row of a step
behind the earlier ones, in the run itself. The result and the rows that the caches got are compared
with NumPy's, torch's result too. What a step has to read, over the time that it takes, is compared
with a kernel that only reads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.gpu.operator_cases import numbers, relative
from bench.gpu.operators import ROUNDS, Clock
from bench.machine import installed
from bench.outcome import Goal, verdict

__all__ = ["FULL", "Sizes", "build", "goals", "main", "measure", "seeded", "step"]

GOAL = 0.75  # of the read bandwidth
TOLERANCE = 2e-2  # relative to the largest element
EPS = 1e-5
CACHES, NORMS = ("keys", "values"), ("attention_norm", "mlp_norm")
# Numbers between where two layers begin: no two have the same anywhere.
SHIFT = 64
MODES = ("eager", "compiled")

Line = dict[str, Any]


class Sizes(NamedTuple):
    """The stack, and how many tokens its caches have room for: a step takes the last place."""

    layers: int = 16
    hidden: int = 2048
    heads: int = 32
    key_heads: int = 8
    head: int = 64
    inner: int = 8192
    tokens: int = 1024

    @property
    def weights(self) -> dict[str, tuple[int, int]]:
        """Name and shape of the matrices of a layer."""
        hidden, kv = self.hidden, self.key_heads * self.head
        return {
            "qkv": (hidden, self.heads * self.head + 2 * kv),
            "output": (self.heads * self.head, hidden),
            "gate": (hidden, self.inner),
            "up": (hidden, self.inner),
            "down": (self.inner, hidden),
        }

    @property
    def cache(self) -> tuple[int, int, int]:
        """Shape of the keys, and of the values, of a layer."""
        return self.tokens, self.key_heads, self.head

    @property
    def nbytes(self) -> int:
        """What a step reads: all matrices, keys and values, once."""
        matrices = sum(k * n for k, n in self.weights.values())
        return 2 * self.layers * (matrices + 2 * int(np.prod(self.cache)))


FULL = Sizes()


def seeded(sizes: Sizes) -> dict[str, Any]:
    """Weights, caches and the token by name. All layers have parts of the same numbers."""
    found: dict[str, Any] = {"x": numbers((1, sizes.hidden), "float16", 1.0, 5)}
    shapes: dict[str, tuple[tuple[int, ...], float]] = {
        name: (shape, shape[0] ** -0.5) for name, shape in sizes.weights.items()
    }
    shapes |= dict.fromkeys(CACHES, (sizes.cache, 1.0))
    for seed, (name, (shape, size)) in enumerate(shapes.items()):
        count = int(np.prod(shape))
        pool = numbers((count + SHIFT * sizes.layers,), "float16", size, seed)
        for i in range(sizes.layers):
            found[f"{name}.{i}"] = pool[SHIFT * i : SHIFT * i + count].reshape(shape)
    for name in NORMS:
        for i in range(sizes.layers):
            found[f"{name}.{i}"] = 1 + numbers((sizes.hidden,), "float16", 0.1, i)
    return found


def rotations(sizes: Sizes) -> tuple[Any, Any]:
    """Cosines and sines of the angles of every place, for half a head."""
    half = sizes.head // 2
    angles = np.arange(sizes.tokens)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype("f2"), np.sin(angles).astype("f2")


def build(sizes: Sizes) -> fg.Graph:
    """The graph of a step; `past` says how many tokens the caches hold."""
    ops, hidden, kv = fg.ops, sizes.hidden, sizes.key_heads * sizes.head
    g = fg.Graph("decode")
    x = g.input("x", (1, hidden), "float16")
    past = g.input("past", (), "int64")
    place = past.reshape(1, 1)
    seen = ops.greater_equal(place, np.arange(sizes.tokens))
    cos, sin = rotations(sizes)

    def heads(x: fg.Value) -> fg.Value:
        return x.reshape(1, 1, -1, sizes.head).transpose(0, 2, 1, 3)

    for i in range(sizes.layers):

        def weight(name: str, i: int = i) -> fg.Value:
            return g.param(f"{name}.{i}", sizes.weights.get(name, (hidden,)), "float16")

        qkv = ops.rms_norm(x, weight("attention_norm"), eps=EPS) @ weight("qkv")
        turned = ops.rotary_embedding(heads(qkv[:, :-kv]), cos, sin, place)
        both = []
        new = (turned[:, sizes.heads :], qkv[:, -kv:])
        for name, row in zip(CACHES, new, strict=True):
            cache = g.input(f"{name}.{i}", sizes.cache, "float16")
            # Fed to the cache, this is computed where the cache is: only the new row is written.
            row = row.reshape(1, sizes.key_heads, sizes.head)
            cache = g.output(ops.scatter_nd(cache, place, row), f"next {name}.{i}")
            both.append(cache.transpose(1, 0, 2).reshape(1, *sizes.cache[1::-1], sizes.head))
        mixed = ops.attention(turned[:, : sizes.heads], *both, mask=seen)
        x = x + mixed.reshape(1, -1) @ weight("output")
        n = ops.rms_norm(x, weight("mlp_norm"), eps=EPS)
        x = x + (ops.silu(n @ weight("gate")) * (n @ weight("up"))) @ weight("down")
    g.output(x, "y")
    return g


def step(sizes: Sizes, arrays: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the last place gives in float32, and the rows of the caches there."""
    cos, sin = (angles[-1].astype("f4") for angles in rotations(sizes))
    kv, half, rows = sizes.key_heads * sizes.head, sizes.head // 2, {}

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt(np.mean(x * x) + EPS) * arrays[name].astype("f4")

    x = arrays["x"][0].astype("f4")
    for i in range(sizes.layers):

        def by(x: Any, name: str, i: int = i) -> Any:
            return x @ arrays[f"{name}.{i}"].astype("f4")

        qkv = by(norm(x, f"attention_norm.{i}"), "qkv")
        first, second = np.split(qkv[:-kv].reshape(-1, sizes.head), [half], axis=1)
        turned = np.hstack([first * cos - second * sin, second * cos + first * sin])
        new = (turned[sizes.heads :], qkv[-kv:].reshape(-1, sizes.head))
        for name, row in zip(CACHES, new, strict=True):
            rows[f"{name}.{i}"] = row
        keys, values = (
            np.concatenate([arrays[f"{name}.{i}"][:-1].astype("f4"), rows[f"{name}.{i}"][None]])
            for name in CACHES
        )
        queries = turned[: sizes.heads].reshape(sizes.key_heads, -1, sizes.head)
        scores = queries @ keys.transpose(1, 2, 0) / np.sqrt(sizes.head)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + by((weights @ values.transpose(1, 0, 2)).ravel(), "output")
        n = norm(x, f"mlp_norm.{i}")
        gate = by(n, "gate")
        x = x + by(gate / (1 + np.exp(-gate)) * by(n, "up"), "down")
    return x[None], rows


class Ours:
    """The compiled step over caches on the device."""

    def __init__(self, clock: Clock, sizes: Sizes, arrays: dict[str, Any]) -> None:
        self.clock, self.sizes = clock, sizes
        self.model = clock.session.compile(build(sizes))
        self.model.set_params({info.name: arrays[info.name] for info in self.model.params})
        self.caches = {}
        for name in (f"{name}.{i}" for i in range(sizes.layers) for name in CACHES):
            self.caches[name] = clock.ctx.to_device(arrays[name])
            self.model.bind_gpu_handle(name, self.caches[name])
            self.model.set_gpu_handle_feed(name, f"next {name}")
        self.y = clock.ctx.create_buffer((1, sizes.hidden), "float16")
        given = {"x": arrays["x"], "past": np.array(sizes.tokens - 1)}
        inputs = {name: clock.ctx.to_device(array) for name, array in given.items()}
        # The caches are where they are wanted: nothing of them is moved out.
        outputs = {"y": self.y, **{f"next {name}": cache for name, cache in self.caches.items()}}
        self.run = self.model.bind(inputs, outputs, stream=clock.ctx.stream)

    def error(self, wanted: Any, rows: dict[str, Any]) -> float:
        """Of the result and of the new rows, the largest."""
        self.run()
        self.clock.ctx.synchronize()
        found = [relative(self.y.numpy(), wanted)]
        found += [relative(self.caches[name].numpy()[-1], row) for name, row in rows.items()]
        return max(found)


def torch_step(sizes: Sizes, arrays: dict[str, Any], mode: str) -> tuple[float, Any]:
    """Microseconds of the same in a CUDA graph of torch, and the result.

    Its caches are full, so that it needs no mask, and lie as its attention likes them.
    """
    torch: Any = importlib.import_module("torch")
    functional = torch.nn.functional
    kv, (heads, key_heads, head) = sizes.key_heads * sizes.head, sizes[2:5]
    tensors = {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}
    for i in range(sizes.layers):
        both = [tensors.pop(f"{name}.{i}").T for name in ("gate", "up")]
        tensors[f"gate up.{i}"] = torch.cat(both)
        for name in ("qkv", "output", "down"):
            tensors[f"{name}.{i}"] = tensors[f"{name}.{i}"].T.contiguous()
        for name in CACHES:
            tensors[f"{name}.{i}"] = tensors[f"{name}.{i}"].transpose(0, 1)[None].contiguous()
    cos, sin = (torch.from_numpy(angles).cuda() for angles in rotations(sizes))
    place = torch.tensor([sizes.tokens - 1], device="cuda")

    def work(x: Any, place: Any) -> Any:
        c, s = cos[place], sin[place]
        for i in range(sizes.layers):
            n = functional.rms_norm(x, (sizes.hidden,), tensors[f"attention_norm.{i}"], EPS)
            qkv = functional.linear(n, tensors[f"qkv.{i}"])
            first, second = qkv[:, :-kv].view(1, heads + key_heads, 2, -1).unbind(2)
            turned = torch.cat([first * c - second * s, second * c + first * s], -1)
            new = turned[:, heads:], qkv[:, -kv:].view(1, key_heads, head)
            for name, row in zip(CACHES, new, strict=True):
                tensors[f"{name}.{i}"].index_copy_(2, place, row[:, :, None])
            both = [tensors[f"{name}.{i}"] for name in CACHES]
            mixed = functional.scaled_dot_product_attention(
                turned[:, :heads, None], *both, enable_gqa=True
            )
            x = x + functional.linear(mixed.reshape(1, -1), tensors[f"output.{i}"])
            n = functional.rms_norm(x, (sizes.hidden,), tensors[f"mlp_norm.{i}"], EPS)
            gate, up = functional.linear(n, tensors[f"gate up.{i}"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, tensors[f"down.{i}"])
        return x

    call = work if mode == "eager" else torch.compile(work)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(3):
            call(tensors["x"], place)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            y = call(tensors["x"], place)
        taken = []
        for _ in range(ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(20):
                graph.replay()
            end.record()
            end.synchronize()
            taken.append(1e3 * begin.elapsed_time(end) / 20)
        return statistics.median(taken), y.float().cpu().numpy()


def measure(clock: Clock, sizes: Sizes = FULL, modes: Sequence[str] = MODES) -> list[Line]:
    """One line for ours and one for each of torch's ways."""
    read = clock.read_bytes_per_ns()
    arrays = seeded(sizes)
    wanted, rows = step(sizes, arrays)
    ours = Ours(clock, sizes, arrays)
    error = ours.error(wanted, rows)
    lines: list[Line] = [{"case": "fastgraph", "us": clock.us(ours.run), "error": error}]
    lines[0]["nodes"] = len(ours.model.graph.nodes)
    ours.model.close()
    for mode in modes if installed("torch") else ():
        try:
            us, y = torch_step(sizes, arrays, mode)
        except Exception as error:  # One way of the peer that fails is told; ours is wanted still.
            print(f"torch, {mode}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
            continue
        lines.append({"case": f"torch, {mode}", "us": us, "error": relative(y, wanted)})
    for line in lines:
        line["share_of_read"] = sizes.nbytes / line["us"] / 1e3 / read
        line["read_gb_per_s"] = read
        if line["error"] > TOLERANCE:
            raise RuntimeError(f"{line['case']} is wrong by {line['error']}")
    return lines


def goals(lines: Sequence[Line]) -> list[Goal]:
    """What was promised."""
    ours, *torch = lines
    found = [Goal("of the read bandwidth", GOAL, ours["share_of_read"], least=True)]
    if torch:
        best = min(line["us"] for line in torch)
        found.append(Goal("a step over torch's best", 1.0, ours["us"] / best))
    return found


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.decode", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("decode.json"), help="the JSON file")
    parser.add_argument("--modes", nargs="*", default=MODES, help="how torch runs the step")
    chosen = parser.parse_args()
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    lines = measure(Clock(), modes=chosen.modes)
    for line in lines:
        print(
            f"{line['case']:<20} {line['us']:9.2f} us, {line['share_of_read']:.1%} of read, "
            f"error {line['error']:.1e}"
        )
    found = [goal.record() for goal in goals(lines)]
    print("\n".join(verdict(goal) for goal in found))
    record = {
        "machine": environment(),
        "sizes": FULL._asdict(),
        "bytes": FULL.nbytes,
        "lines": lines,
        "goals": found,
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
