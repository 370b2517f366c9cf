"""Work that is cut into parts: the same bits for every number of threads, and still right."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir.types import is_float
from tests.ops.agreement import SETS, assert_close, bits, graph_of, reference_of, run
from tests.ops.cases import BINARY, UNARY, accepted, dtypes_of

# Dtypes whose loops are their own; the others use those of these, or conversions.
NATIVE = {"bool", "int8", "uint16", "int64", "float16", "float32", "float64"}
TALL, WIDE, CUBE = (1031, 67), (5, 20011), (33, 65, 37)
FACTORS = [
    ((1, 784), (784, 512)), ((1, 3072), (3072, 768)), ((1, 700), (700, 10)),
    ((3, 300), (300, 1000)),
    ((129, 131), (131, 133)), ((7, 129, 65), (65, 130)), ((6, 50, 40), (6, 40, 70)),
    ((4, 1, 33, 64), (5, 64, 33)), ((513, 1), (1, 517)), ((20000, 3), (3, 2)),
    ((4096,), (4096, 100)),
    ((300, 4096), (4096,)),
]  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    if is_float(np.dtype(dtype)):
        return (random.normal(size=shape) * 2).astype(dtype)
    return random.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(dtype)


def calls() -> dict[str, tuple[Any, list[Any], float]]:
    """Operator calls by name: function, arrays, and what widens the bounds."""
    found: dict[str, tuple[Any, list[Any], float]] = {}
    for name in (*BINARY, *UNARY):
        count = 2 if name in BINARY else 1
        for dtypes in accepted(name, count):
            if len(set(dtypes)) == 1 and dtypes[0] in NATIVE:
                arrays = [numbers(TALL, dtype, i) for i, dtype in enumerate(dtypes)]
                found[f"{name}-{dtypes[0]}"] = (getattr(ops, name), arrays, 4.0)
    for name in ("sum", "mean", "max", "min", "argmax", "prod"):
        for dtype in sorted(NATIVE & set(dtypes_of(name))):
            for shape, axis in (
                (TALL, 0),
                (TALL, 1),
                (WIDE, 1),
                (WIDE, 0),
                (CUBE, 1),
                (CUBE, None),
            ):
                x = numbers(shape, dtype)
                if name == "prod" and is_float(x.dtype):
                    x = np.exp(x / 400).astype(dtype)
                scale = 60.0 if name in ("sum", "prod") else 4.0
                key = f"{name}-{dtype}-{'x'.join(map(str, shape))}-{axis}"
                found[key] = (lambda v, n=name, a=axis: getattr(ops, n)(v, axis=a), [x], scale)
    for axis, dtype in product((0, 1, 2), ("float32", "bfloat16", "float64")):
        found[f"softmax-{axis}-{dtype}"] = (
            lambda v, a=axis: ops.softmax(v, a),
            [numbers(CUBE, dtype)],
            4.0,
        )
    norms = [((TALL, -1), (TALL, 0), (WIDE, 1), (CUBE, (1, 2)), (CUBE, (0, 2))), ((CUBE, (0, 2)),)]
    for name, dtype in product(("layer_norm", "rms_norm"), ("float32", "float16", "float64")):
        for shape, axis in norms[dtype != "float32"]:
            key = f"{name}-{'x'.join(map(str, shape))}-{axis}-{dtype}"
            found[key] = (
                lambda v, n=name, a=axis: getattr(ops, n)(v, axis=a),
                [numbers(shape, dtype)],
                8.0,
            )
    for dtype, (a, b) in product(("float16", "float64", "uint8", "int16", "int64"), FACTORS[4:9]):
        key = f"matmul-{'x'.join(map(str, a))}-{'x'.join(map(str, b))}-{dtype}"
        pair = [numbers(a, dtype), numbers(b, dtype, 1)]
        found[key] = (ops.matmul, pair, a[-1] ** 0.5 * 4)
    for a, b in FACTORS:
        key = f"matmul-{'x'.join(map(str, a))}-{'x'.join(map(str, b))}"
        found[key] = (
            ops.matmul,
            [numbers(a, "float32"), numbers(b, "float32", 1)],
            a[-1] ** 0.5 * 4,
        )
    for dtype in ("bool", "int16", "float32", "int64"):
        x = numbers(CUBE, dtype)
        index = np.random.default_rng(0).integers(-33, 33, (60,))
        moves = {
            "transpose": lambda v: ops.transpose(v, (2, 0, 1)),
            "swap": lambda v: ops.transpose(v, (1, 0, 2)),
            "slice": lambda v: v[::-1, 1::2, ::-3],
            "concat": lambda v: ops.concat([v, v[::-1], v], axis=1),
            "broadcast": lambda v: ops.broadcast_to(v[:, :1], (3, *CUBE)),
            "astype": lambda v: ops.astype(v, "int64"),
            "where": lambda v: ops.where(v > 0, v, v[:1]),
            "copy": lambda v: v,
            "reshape": lambda v: v.reshape(-1),
        }
        found.update({f"{name}-{dtype}": (call, [x], 1.0) for name, call in moves.items()})
        found[f"take-{dtype}"] = (lambda v, i: ops.take(v, i, axis=0), [x, index], 1.0)
        found[f"take-inner-{dtype}"] = (lambda v, i: ops.take(v, i, axis=2), [x, index % 37], 1.0)
    return found


CALLS = calls()


@pytest.mark.parametrize("key", CALLS)
def test_same_bits_by_any_number_of_threads(key):
    call, arrays, scale = CALLS[key]
    graph = graph_of(call, arrays, ["input"] * len(arrays))
    data = {f"x{i}": array for i, array in enumerate(arrays)}
    (wanted,) = reference_of(graph, data)
    for name in SETS:
        (one,) = run(graph, data, isa=name)
        assert_close(one, wanted, scale=scale)
        for threads in (2, 3):
            (found,) = run(graph, data, threads=threads, isa=name)
            assert bits(found) == bits(one)


def test_weights_give_what_inputs_give():
    """A factor that is a parameter is packed first; the product stays within the bounds."""
    for a, b in FACTORS:
        arrays = [numbers(a, "float32"), numbers(b, "float32", 1)]
        data = {"x0": arrays[0], "x1": arrays[1]}
        for roles in (["input", "param"], ["param", "input"]):
            graph = graph_of(ops.matmul, arrays, roles)
            (wanted,) = reference_of(graph, data)
            for name in SETS:
                (one,) = run(graph, data, isa=name)
                (two,) = run(graph, data, threads=2, isa=name)
                assert_close(one, wanted, scale=a[-1] ** 0.5 * 4)
                assert bits(one) == bits(two)


def test_parts_are_really_many():
    """The shapes above are cut: else the tests of threads would test nothing."""
    cut = 0
    for call, arrays, _ in CALLS.values():
        graph = graph_of(call, arrays, ["input"] * len(arrays))
        model = fg.Session("cpu", threads=2).compile(graph)
        cut += any(node.parts > 1 for node in model.executable.program.record.nodes)
    assert cut > 0.8 * len(CALLS)
