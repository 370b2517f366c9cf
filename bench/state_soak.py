"""Long runs of what keeps state: decode steps, changes of buckets, runs in flight. Memory is flat.

``bench/soak.py`` has the same of compiles, runs and graphs of a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fastgraph as fg
from bench.decode_case import Plain, seeded_weights
from bench.graph_soak import LOOKS, Plateau
from bench.outcome import Goal, Outcome
from bench.rounds import FULL, Effort, WrongResult
from examples.decoder import Decoder

__all__ = ["changes", "commits", "main", "steps"]

STEPS, CHANGES, COMMITS = 100_000, 10_000, 1_000_000
SHORT = 100  # a quick look does one in so many

# A text has so many characters, and one in so many texts is followed in NumPy.
LENGTH, FOLLOWED = 64, 100
WIDTH = 8
# Memory that the allocator keeps at hand.
SLACK_BYTES = 2 << 20

Array = np.ndarray[Any, Any]


def looked(ctx: fg.DeviceContext, work: Iterator[None], count: int) -> Plateau:
    """Do `work`, which pauses `count` times, and look at memory ten times on the way."""
    plateau = Plateau(ctx)
    part = max(1, count // LOOKS)
    for number, _ in enumerate(work, 1):
        if number % part == 0:
            plateau.look(number)
    return plateau


def steps(count: int, device: str = "cpu") -> Iterator[None]:
    """Texts by a decoder whose caches are handles; some are held against NumPy step by step."""
    weights = seeded_weights(False)
    made = Decoder(weights, device)
    chance = np.random.default_rng(1)
    for number in range(count):
        if number % LENGTH == 0:
            made.past = 0
            plain = Plain(weights) if number // LENGTH % FOLLOWED == 0 else None
        ids = chance.integers(0, len(weights.alphabet), 1)
        logits = made.read(ids)
        if plain and not np.allclose(logits, plain.read(int(ids[0])), atol=1e-3, rtol=1e-3):
            raise WrongResult(f"step {number} gives other logits than NumPy")
        yield


def rowwise(rows: int) -> fg.Graph:
    """Rows that do not look at each other."""
    g = fg.Graph("rows")
    x, w = g.input("x", (rows, WIDTH)), g.param("w", (WIDTH, WIDTH))
    g.output(fg.ops.softmax(x @ w, axis=-1), "y")
    return g


def changes(count: int, device: str = "cpu") -> Iterator[None]:
    """Rows of a number that changes from run to run, so that the bucket does."""
    chance = np.random.default_rng(2)
    w = chance.standard_normal((WIDTH, WIDTH), dtype=np.float32)
    buckets = fg.BucketedCompileCache(device, fg.power_of_two_ladder(4, 64))
    buckets.set_param("w", w)
    for number in range(count):
        rows = int(chance.integers(1, 65))
        x = chance.standard_normal((rows, WIDTH), dtype=np.float32)
        (y,) = buckets.run_padded(rows, rowwise, {"x": x})
        wanted = np.exp(x @ w)
        wanted /= wanted.sum(axis=1, keepdims=True)
        if y.shape != wanted.shape or not np.allclose(y, wanted, atol=1e-5):
            raise WrongResult(f"change {number}: {rows} rows give something else than NumPy")
        yield


def commits(count: int, device: str = "cpu") -> Iterator[None]:
    """Runs in flight that count in a handle: none may be lost, and none done twice."""
    g = fg.Graph("count")
    n, by = g.input("n", (WIDTH,), "int64"), g.input("by", (WIDTH,), "int64")
    g.output(n + by, "next")
    model = fg.Session(device).compile(g)
    model.bind_handle("n", np.zeros(WIDTH, np.int64))
    model.set_gpu_handle_feed("n", "next")
    by_now, wanted = np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64)
    for number in range(1, count + 1):
        by_now[:] = number % 7 + np.arange(WIDTH)
        wanted += by_now
        model.commit_no_wait({"by": by_now})
        if number % max(1, count // 100) == 0:
            model.sync_pending()
            if not np.array_equal(model.read_handle("n"), wanted):
                raise WrongResult(f"after {number} runs in flight the count is another")
        yield
    model.close()


KINDS: dict[str, tuple[Callable[[int], Iterator[None]], int]] = {
    "decode steps": (steps, STEPS),
    "changes of buckets": (changes, CHANGES),
    "runs in flight": (commits, COMMITS),
}


def main(effort: Effort = FULL) -> Outcome:
    """Do all so often; the quick form a hundredth of it."""
    outcome = Outcome(
        "state_soak",
        "Decode steps, changes of buckets and runs in flight",
        ["after", "resident bytes", "live objects", "seconds"],
    )
    ctx = fg.DeviceContext("cpu")
    for label, (work, count) in KINDS.items():
        if effort.quick:
            count //= SHORT
        plateau = looked(ctx, work(count), count)
        for look in plateau.looks:
            cells = [f"{look.resident:,}", f"{look.live:,}", f"{look.seconds:.1f}"]
            outcome.cells.append([f"{look.after:,} {label}", *cells])
            outcome.rows.append(
                {
                    "case": f"{look.after} {label}",
                    "resident": look.resident,
                    "live": look.live,
                    "correct": True,
                }
            )
        outcome.goals += [
            Goal(f"resident bytes more during {label}", SLACK_BYTES, plateau.growth("resident")),
            Goal(f"live objects more during {label}", 0, plateau.growth("live")),
        ]
    outcome.notes.append("results are those of NumPy: each change, one text in 100, each sum")
    outcome.failed = not all(goal.met for goal in outcome.goals)
    return outcome
