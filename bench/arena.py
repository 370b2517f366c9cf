"""The arena of each graph against the largest sum of bytes that must be live at once."""

from __future__ import annotations

from importlib.resources import files

import fastgraph as fg
from bench.contenders.own import layers_graph
from bench.outcome import Goal, Outcome
from bench.rounds import FULL, Effort
from bench.workloads import Layers
from fastgraph.lower.program import Plan

__all__ = ["GRAPHS", "bound", "main", "measure"]

LIMIT = 1.05


def digits() -> fg.Graph:
    """The digit classifier of the package, 64 images at a time."""
    data = (files("fastgraph") / "data" / "digits.onnx").read_bytes()
    return fg.onnx.load(data, dims={"N": 64})


def mlp(rows: int) -> fg.Graph:
    """The MLP of the benchmarks."""
    return layers_graph(Layers(rows, (784, 512, 512, 10), True, 2))[0]


def residual_stack(depth: int, width: int = 256, rows: int = 32) -> fg.Graph:
    """Normalised two-layer blocks, each added to what it was given."""
    g = fg.Graph("residual")
    x = g.input("x", (rows, width))
    for i in range(depth):
        h = fg.ops.layer_norm(x, g.param(f"g{i}", (width,)), g.param(f"c{i}", (width,)))
        h = fg.ops.gelu(h @ g.param(f"u{i}", (width, 4 * width)) + g.param(f"a{i}", (4 * width,)))
        x = x + (h @ g.param(f"d{i}", (4 * width, width)) + g.param(f"b{i}", (width,)))
    g.output(x, "y")
    return g


def transformer(tokens: int, width: int = 384, heads: int = 12, depth: int = 2) -> fg.Graph:
    """Encoder blocks with attention written out of matmul, transpose and softmax."""
    g = fg.Graph("transformer")
    x = g.input("x", (tokens, width))
    size = width // heads

    def split(h: fg.Value) -> fg.Value:
        return fg.ops.transpose(h.reshape((tokens, heads, size)), (1, 0, 2))

    def norm(h: fg.Value, name: str) -> fg.Value:
        return fg.ops.layer_norm(h, g.param(f"{name}.w", (width,)), g.param(f"{name}.b", (width,)))

    def dense(h: fg.Value, name: str, n_out: int) -> fg.Value:
        k = h.shape[-1]
        return h @ g.param(f"{name}.w", (k, n_out)) + g.param(f"{name}.b", (n_out,))

    for i in range(depth):
        q, k, v = (split(dense(x, f"{i}.{name}", width)) for name in "qkv")
        scores = q @ fg.ops.transpose(k, (0, 2, 1)) * (1 / size**0.5)
        mixed = fg.ops.transpose(fg.ops.softmax(scores, axis=-1) @ v, (1, 0, 2))
        h = dense(mixed.reshape((tokens, width)), f"{i}.o", width)
        x = norm(x + h, f"{i}.n1")
        h = dense(fg.ops.gelu(dense(x, f"{i}.up", 4 * width)), f"{i}.down", width)
        x = norm(x + h, f"{i}.n2")
    g.output(x, "y")
    return g


def branches(count: int, width: int = 128, rows: int = 16) -> fg.Graph:
    """Branches of different widths from one value, joined at the end."""
    g = fg.Graph("branches")
    x = g.input("x", (rows, width))
    ends = []
    for i in range(count):
        wide = width * (1 + i % 4)
        h = fg.ops.relu(x @ g.param(f"u{i}", (width, wide)))
        ends.append(fg.ops.tanh(h @ g.param(f"d{i}", (wide, width))))
    g.output(fg.ops.concat(ends, axis=1), "y")
    return g


def diamonds(depth: int, rows: int = 64, width: int = 96) -> fg.Graph:
    """Values with two consumers at different distances, and two outputs on the way."""
    g = fg.Graph("diamonds")
    x = g.input("x", (rows, width))
    for i in range(depth):
        near = fg.ops.softmax(x, axis=-1)
        far = fg.ops.softmax(near @ g.param(f"w{i}", (width, width)), axis=-1)
        x = fg.ops.concat([near[:, : width // 2], far[:, width // 2 :]], axis=1) + x
        if i in (0, depth // 2):
            g.output(far, f"side{i}")
    g.output(x, "y")
    return g


GRAPHS = {
    "MLP, 1 row": lambda: mlp(1),
    "MLP, 256 rows": lambda: mlp(256),
    "digits, 64 rows": digits,
    "2 residual blocks": lambda: residual_stack(2),
    "24 residual blocks": lambda: residual_stack(24),
    "transformer, 16 tokens": lambda: transformer(16),
    "transformer, 128 tokens": lambda: transformer(128),
    "8 branches": lambda: branches(8),
    "32 branches": lambda: branches(32),
    "12 diamonds": lambda: diamonds(12),
}


def bound(plan: Plan) -> int:
    """The least that any plan needs: the largest sum of bytes live at one node of the chain.

    A value whose writer may work in place of its last-read source counts once with it there.
    Outputs count everywhere.
    """
    n = len(plan.sizes)
    pinned = set(plan.pinned)
    first = [min(plan.writers[v]) for v in range(n)]
    last = [max([*plan.writers[v], *plan.users[v]]) for v in range(n)]
    shared = [0] * max(1, len(plan.dependencies))
    for v, u in plan.inplace:
        if v not in pinned and u not in pinned and last[u] == first[v]:
            shared[first[v]] = max(shared[first[v]], min(plan.sizes[v], plan.sizes[u]))
    always = sum(plan.sizes[v] for v in pinned)
    largest = 0
    for node, saved in enumerate(shared):
        live = sum(
            plan.sizes[v] for v in range(n) if v not in pinned and first[v] <= node <= last[v]
        )
        largest = max(largest, live - saved)
    return always + largest


def measure(graph: fg.Graph) -> tuple[int, int, int]:
    """Bytes of the arena, of the bound, and of all tensors side by side."""
    model = fg.Session("cpu", threads=1).compile(graph)
    plan = model._compilation.program.plan
    return model.arena_nbytes, bound(plan), model.tensor_nbytes


def main(effort: Effort = FULL) -> Outcome:
    """Measure every graph."""
    outcome = Outcome(
        "arena",
        "Arena against the largest sum of bytes live at once",
        ["graph", "arena", "live at once", "ratio", "all tensors"],
    )
    worst = 0.0
    for name, make in GRAPHS.items():
        arena, least, tensors = measure(make())
        worst = max(worst, arena / least)
        outcome.cells.append(
            [name, f"{arena:,}", f"{least:,}", f"{arena / least:.3f}", f"{tensors:,}"]
        )
        outcome.rows.append(
            {"case": name, "arena": arena, "bound": least, "tensors": tensors, "correct": True}
        )
    outcome.goals.append(Goal("largest arena over bound", LIMIT, worst))
    return outcome
