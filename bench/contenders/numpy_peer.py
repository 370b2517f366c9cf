"""NumPy, written as well as one can: buffers made once, the faster layout of each weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from bench.timing import Call
from bench.workloads import Layers

try:
    from scipy.special import erf
except ImportError:
    erf = None

__all__ = ["build"]

Array = np.ndarray[Any, Any]
Step = Callable[[Array], Array]

TRIALS = 15


def build(spec: dict[str, Any]) -> Call:
    """The workload by NumPy."""
    if spec["workload"] == "add":
        x, y = np.zeros(16, np.float32), np.empty(16, np.float32)
        return Call("add(x, x, out=y)", {"add": np.add, "x": x, "y": y}, [x], lambda: y)
    layers = Layers.of(spec)
    x = np.zeros((layers.rows, layers.sizes[0]), np.float32)
    steps: list[Step] = []
    layouts = []
    source = x
    y = x
    for layer, (w, b) in enumerate(layers.weights()):
        y = np.empty((layers.rows, w.shape[1]), np.float32)
        weight, layout = _faster_layout(source, w, y)
        layouts.append(layout)
        steps.append(_dense(source, weight, b, y))
        if layer < layers.gelu_layers:
            steps.append(_gelu(y))
        source = y

    def run() -> None:
        for step in steps:
            step()

    note = f"weights {', '.join(layouts)}; erf by {'SciPy' if erf is not None else 'NumPy'}"
    result = y
    return Call("run()", {"run": run}, [x], lambda: result, note)


def _faster_layout(x: Array, w: Array, y: Array) -> tuple[Array, str]:
    """The weight as rows or as columns, whichever `matmul` multiplies faster."""
    random = np.random.default_rng(0).standard_normal(x.shape).astype("f4")
    choices = {"by row": np.ascontiguousarray(w), "by column": np.asfortranarray(w)}
    times = {}
    for name, weight in choices.items():
        taken = []
        for _ in range(TRIALS):
            start = perf_counter_ns()
            np.matmul(random, weight, out=y)
            taken.append(perf_counter_ns() - start)
        times[name] = min(taken)
    best = min(times, key=times.__getitem__)
    return choices[best], best


def _dense(x: Array, w: Array, b: Array | None, y: Array) -> Callable[[], None]:
    matmul, add = np.matmul, np.add
    if b is None:
        return lambda: matmul(x, w, out=y)

    def dense() -> None:
        matmul(x, w, out=y)
        add(y, b, out=y)

    return dense


def _gelu(y: Array) -> Callable[[], None]:
    """Exact GELU in place: by SciPy's erf, else by Abramowitz and Stegun 7.1.26 (1.5e-7)."""
    t, z, e = np.empty_like(y), np.empty_like(y), np.empty_like(y)
    root, half, one = np.float32(math.sqrt(0.5)), np.float32(0.5), np.float32(1)
    multiply, add = np.multiply, np.add

    def by_erf() -> None:
        multiply(y, root, out=t)
        erf(t, out=t)
        add(t, one, out=t)
        multiply(t, half, out=t)
        multiply(y, t, out=y)

    if erf is not None:
        return by_erf
    p = np.float32(0.3275911)
    first, *terms = map(
        np.float32, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    )

    def by_polynomial() -> None:
        np.abs(y, out=z)
        multiply(z, root, out=z)
        multiply(z, p, out=t)
        add(t, one, out=t)
        np.divide(one, t, out=t)
        multiply(t, first, out=e)
        for term in terms:
            add(e, term, out=e)
            multiply(e, t, out=e)
        multiply(z, z, out=z)
        np.negative(z, out=z)
        np.exp(z, out=z)
        multiply(e, z, out=e)
        np.subtract(one, e, out=e)
        np.copysign(e, y, out=e)
        add(e, one, out=e)
        multiply(e, half, out=e)
        multiply(y, e, out=y)

    return by_polynomial
