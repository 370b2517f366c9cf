"""Compiling a case in every way that must agree, and how far results may be from the reference."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg
from fastgraph._core import isa
from fastgraph.ir import reference
from fastgraph.ir.types import is_float, is_half

# By dtype: relative and absolute bound on the distance from the reference, whose one rounding is
# from float64. Half types are computed in float32 and rounded: two units of their last place.
# Integers, bools and the operators of EXACT have no bound: they are equal.
TOLERANCE = {
    "float16": (2e-3, 1e-6),
    "bfloat16": (1.6e-2, 1e-6),
    "float32": (4e-6, 2e-6),
    "float64": (1e-13, 1e-14),
}

# IEEE 754 gives the one right result, or elements only move.
EXACT = {
    "abs", "add", "all", "any", "argmax", "argmin", "astype", "bitwise_and", "bitwise_or",
    "bitwise_xor", "broadcast_to", "ceil", "clip", "concat", "cumulative_sum", "divide",
    "equal", "expand_dims", "floor", "fmod", "gather_nd", "getitem", "greater", "greater_equal",
    "invert", "isfinite", "isinf", "isnan", "kernel", "left_shift", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "logical_xor", "max", "max_pool", "maximum", "min",
    "minimum", "multiply", "negative", "not_equal", "one_hot", "pad", "relu", "reshape",
    "right_shift", "round", "scatter_nd", "sign", "slice", "split", "sqrt", "square", "squeeze",
    "stack", "subtract", "take", "take_along_axis", "thresholded_relu", "tile", "top_k",
    "transpose", "tril", "triu", "trunc", "where",
}  # fmt: skip

SETS = isa.offered()


def bits(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of an array, with every nan the same."""
    if is_float(array.dtype):
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return array.tobytes()


def assert_close(found: Any, wanted: Any, *, scale: float = 1.0, exact: bool = False) -> None:
    """Assert shape, dtype and values; `scale` widens the bounds where rounding adds up."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    relative, absolute = TOLERANCE.get(wanted.dtype.name, (0.0, 0.0))
    if is_half(wanted.dtype):
        found, wanted = found.astype("f4"), wanted.astype("f4")
    if exact or not relative:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(
            found, wanted, rtol=relative * scale, atol=absolute * scale, equal_nan=True
        )


@cache
def code_of_the_extension() -> tuple[tuple[int, int], ...]:
    """Address ranges of the code in fastgraph's compiled modules."""
    home = str(Path(fg.__file__).parent)
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *rest = line.split(maxsplit=5)
        if "x" in rights and len(rest) == 4 and rest[3].startswith(home):
            low, high = span.split("-")
            ranges.append((int(low, 16), int(high, 16)))
    return tuple(ranges)


def is_compiled(address: int) -> bool:
    """Whether there is code of ours at `address`."""
    return any(low <= address < high for low, high in code_of_the_extension())


def assert_compiled(model: fg.CompiledGraph) -> None:
    """Walk the host program: every node is a compiled function of ours, or a choice among them."""
    functions = model.executable.functions()
    assert list(dict.fromkeys(node for node, _ in functions)) == list(range(len(model.graph.nodes)))
    chosen = [node for node, address in functions if not address]
    assert all(model.graph.nodes[node].bodies for node in chosen)
    assert all(is_compiled(address) for _, address in functions if address)


def graph_of(call: Any, arrays: list[Any], roles: list[str]) -> fg.Graph:
    """A graph of one call; each array is an input, a parameter or a constant."""
    graph = fg.Graph("case")
    values = []
    for i, (array, role) in enumerate(zip(arrays, roles, strict=True)):
        if role == "constant":
            values.append(graph.constant(array))
        else:
            values.append(getattr(graph, role)(f"x{i}", array.shape, array.dtype))
    graph.output(call(*values), "y")
    return graph


def run(graph: fg.Graph, data: dict[str, Any], threads: int = 1, **options: Any) -> list[Any]:
    """Compile and run once; `data` holds inputs and parameters by name."""
    model = fg.Session("cpu", threads=threads).compile(graph, fg.CompileOptions(**options))
    assert_compiled(model)
    model.set_params({info.name: data[info.name] for info in model.params})
    return list(model.run({info.name: data[info.name] for info in model.inputs}))


def reference_of(graph: fg.Graph, data: dict[str, Any]) -> list[Any]:
    """What the reference gives, without its warnings."""
    inputs = {value.name: data[value.name] for value in graph.inputs}
    params = {value.name: data[value.name] for value in graph.params}
    with np.errstate(all="ignore"):
        return list(reference.evaluate(graph, inputs, params).values())


def agree(
    graph: fg.Graph, data: dict[str, Any], *, scale: float = 1.0, exact: bool = False
) -> None:
    """Assert that all ways of compiling agree: with the reference, and in bits over threads."""
    wanted = reference_of(graph, data)
    for name in SETS:
        found = run(graph, data, isa=name)
        again = run(graph, data, threads=2, isa=name)
        assert [bits(array) for array in found] == [bits(array) for array in again]
        for one, right in zip(found, wanted, strict=True):
            assert_close(one, right, scale=scale, exact=exact)
    for one, right in zip(run(graph, data, fuse=False), wanted, strict=True):
        assert_close(one, right, scale=scale, exact=exact)
