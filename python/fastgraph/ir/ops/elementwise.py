"""Elementwise operators: one rule for shapes (broadcasting) and one for dtypes (NumPy's result).

Operands of a node have equal dtypes: the public functions insert ``astype`` where NumPy promotes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.opdef import OPS, Attrs, register
from fastgraph.ir.ops import numerics
from fastgraph.ir.types import (
    BOOL,
    FLOAT64,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SUPPORTED,
    Spec,
    broadcast,
    check_dtype,
)

__all__ = ["ELEMENTWISE", "UNARY_FLOAT"]

Array = np.ndarray[Any, np.dtype[Any]]
BOOLS = (BOOL,)


def check_operands(
    op: str, inputs: Sequence[Spec], count: int, allowed: Collection[np.dtype[Any]]
) -> np.dtype[Any]:
    """Return the one dtype of `inputs`; GraphError naming `op` if there are several, or others."""
    if len(inputs) != count:
        raise GraphError(f"{op}: {count} operands are needed, found {len(inputs)}")
    dtypes = [dtype for _, dtype in inputs]
    if len(set(dtypes)) > 1:
        names = " and ".join(dtype.name for dtype in dtypes)
        raise GraphError(f"{op}: operands must have one dtype, found {names}; use astype")
    if dtypes[0] not in allowed:
        names = ", ".join(dtype.name for dtype in allowed)
        raise GraphError(f"{op}: takes {names}, found {dtypes[0].name}; use astype")
    return dtypes[0]


def enter(
    op: str,
    count: int,
    allowed: Sequence[np.dtype[Any]],
    function: Callable[..., Array],
    result: np.dtype[Any] | None = None,
) -> None:
    """Register an operator of `count` operands that is `function` per element."""
    kinds = dict.fromkeys(allowed)  # In their order, and looked up at once.

    def infer(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
        dtype = check_operands(op, inputs, count, kinds)
        if count == 1:
            return [(inputs[0][0], result or dtype)]
        return [(broadcast([shape for shape, _ in inputs], op), result or dtype)]

    def reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
        with np.errstate(all="ignore"):
            found = np.asarray(function(*map(numerics.widened, arrays)))
            return [numerics.convert(found, result or arrays[0].dtype)]

    register(op, "elementwise", infer, reference)


def infer_gelu(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check the attribute too."""
    check_operands("gelu", inputs, 1, FLOATS)
    found = attrs.get("approximate")
    if not isinstance(found, str) or found not in ("none", "tanh"):
        raise GraphError(f"gelu: approximate must be 'none' or 'tanh', found {found!r}")
    return [inputs[0]]


def infer_where(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a bool condition and two operands of one dtype."""
    if len(inputs) != 3:
        raise GraphError(f"where: 3 operands are needed, found {len(inputs)}")
    check_operands("where: condition", inputs[:1], 1, BOOLS)
    dtype = check_operands("where", inputs[1:], 2, SUPPORTED)
    return [(broadcast([shape for shape, _ in inputs], "where"), dtype)]


def infer_astype(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give the dtype that the attribute names."""
    if len(inputs) != 1:
        raise GraphError(f"astype: 1 operand is needed, found {len(inputs)}")
    return [(inputs[0][0], check_dtype(attrs["dtype"], "astype"))]


UNARY_FLOAT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "erf": numerics.erf,
    "sigmoid": numerics.sigmoid,
    "silu": lambda x: x * numerics.sigmoid(x),
    "reciprocal": lambda x: 1.0 / x,
}


def in_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Compute in float64, so that the one rounding at the end is all that the oracle loses."""
    return lambda x: function(x.astype(FLOAT64))


def integers_shifted(
    function: Callable[[Array, Array], Array],
) -> Callable[[Array, Array], Array]:
    """Shift by the number of bits where that is less than the shift, or the shift is negative."""

    def shift(x: Array, by: Array) -> Array:
        width = 8 * x.dtype.itemsize
        far = (by < 0) | (by >= width)
        # Two shifts: NumPy leaves one by the whole width to the machine.
        most = np.asarray(width - 1, x.dtype)
        near = function(x, np.where(far, most, by).astype(x.dtype))
        return np.where(far, function(near, np.asarray(1, x.dtype)), near)

    return shift


for _op, _function in UNARY_FLOAT.items():
    enter(_op, 1, FLOATS, in_double(_function))

enter("relu", 1, FLOATS, lambda x: np.maximum(x, x.dtype.type(0)))
enter("floor", 1, FLOATS, np.floor)
enter("ceil", 1, FLOATS, np.ceil)
enter("round", 1, FLOATS, np.rint)
enter("trunc", 1, FLOATS, np.trunc)
enter("negative", 1, NUMBERS, np.negative)
enter("abs", 1, NUMBERS, np.abs)
enter("sign", 1, NUMBERS, np.sign)
enter("square", 1, NUMBERS, np.square)
enter("invert", 1, INTEGERS, np.invert)
enter("logical_not", 1, BOOLS, np.logical_not)

enter("add", 2, NUMBERS, np.add)
enter("subtract", 2, NUMBERS, np.subtract)
enter("multiply", 2, NUMBERS, np.multiply)
enter("divide", 2, FLOATS, np.divide)
enter("power", 2, NUMBERS, numerics.power)
enter("floor_divide", 2, NUMBERS, np.floor_divide)
enter("remainder", 2, NUMBERS, np.remainder)
enter("fmod", 2, NUMBERS, np.fmod)
enter("maximum", 2, NUMBERS, np.maximum)
enter("minimum", 2, NUMBERS, np.minimum)
enter("bitwise_and", 2, INTEGERS, np.bitwise_and)
enter("bitwise_or", 2, INTEGERS, np.bitwise_or)
enter("bitwise_xor", 2, INTEGERS, np.bitwise_xor)
enter("left_shift", 2, INTEGERS, integers_shifted(np.left_shift))
enter("right_shift", 2, INTEGERS, integers_shifted(np.right_shift))
enter("logical_and", 2, BOOLS, np.logical_and)
enter("logical_or", 2, BOOLS, np.logical_or)
enter("equal", 2, SUPPORTED, np.equal, BOOL)
enter("not_equal", 2, SUPPORTED, np.not_equal, BOOL)
enter("less", 2, SUPPORTED, np.less, BOOL)
enter("less_equal", 2, SUPPORTED, np.less_equal, BOOL)
enter("greater", 2, SUPPORTED, np.greater, BOOL)
enter("greater_equal", 2, SUPPORTED, np.greater_equal, BOOL)


def gelu_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute in float64, as all functions of one float."""
    (x,) = arrays
    with np.errstate(all="ignore"):
        return [numerics.convert(numerics.gelu(x.astype(FLOAT64), attrs["approximate"]), x.dtype)]


register("gelu", "elementwise", infer_gelu, gelu_reference)
register("where", "elementwise", infer_where, lambda arrays, attrs: [np.where(*arrays)])
register(
    "astype",
    "elementwise",
    infer_astype,
    lambda arrays, attrs: [numerics.convert(arrays[0], np.dtype(attrs["dtype"]))],
)

ELEMENTWISE = frozenset(name for name, op in OPS.items() if op.family == "elementwise")
"""The operators that fuse into regions."""
