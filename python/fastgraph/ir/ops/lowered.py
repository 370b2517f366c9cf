"""Operators that passes make and lowerings see, beside those that users build.

Their references make the oracle good for graphs before and after any pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.opdef import OPS, Attrs, register
from fastgraph.ir.ops.matmul import check_numbers, matmul_shape
from fastgraph.ir.ops.numerics import convert, widened
from fastgraph.ir.types import (
    FLOAT32,
    FLOAT64,
    Shape,
    Spec,
    broadcast,
    is_float,
    is_half,
)

__all__ = ["ACTIVATIONS", "PANEL", "Instr", "packed_size"]

Array = np.ndarray[Any, np.dtype[Any]]

PANEL = 16
"""Columns of one panel of a packed weight."""

ACTIVATIONS: dict[str, tuple[str, Attrs]] = {
    "relu": ("relu", {}),
    "gelu": ("gelu", {"approximate": "none"}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
    "sigmoid": ("sigmoid", {}),
    "tanh": ("tanh", {}),
}
"""What an epilogue can end with: its name there, then operator and attributes."""


class Instr(NamedTuple):
    """One instruction of a region.

    Operand i is input i of the region for i below their number n, else the result of
    instruction i - n. ``("const", (), {"value": number}, dtype)`` is a scalar.
    """

    op: str
    args: tuple[int, ...]
    attrs: Attrs
    dtype: np.dtype[Any]


def packed_size(k: int, n: int) -> int:
    """Return the number of floats of a packed ``[k, n]`` weight: whole panels, zero padded."""
    return k * (-(-n // PANEL) * PANEL)


def infer_region(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check each instruction by its own operator's rule; give the full shape to all results."""
    shapes = [shape for shape, _ in inputs]
    full: Shape = broadcast([*shapes, attrs.get("shape", ())], "region")
    specs: list[Spec] = list(inputs)
    for op, args, one, dtype in attrs["body"]:
        if op == "const":
            specs.append(((), dtype))
            continue
        if any(not 0 <= arg < len(specs) for arg in args):
            raise GraphError(f"region: {op} reads operands {args} of {len(specs)}")
        ((shape, found),) = OPS[op].infer([specs[arg] for arg in args], dict(one))
        if found != dtype:
            raise GraphError(f"region: {op} gives {found.name}, its instruction says {dtype.name}")
        specs.append((shape, found))
    return [(full, specs[result][1]) for result in attrs["results"]]


def region_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Run the instructions on whole arrays."""
    full = np.broadcast_shapes(*(array.shape for array in arrays), attrs.get("shape", ()))
    values: list[Array] = list(arrays)
    for op, args, one, dtype in attrs["body"]:
        if op == "const":
            values.append(np.asarray(one["value"], dtype))
        else:
            values += OPS[op].reference([values[arg] for arg in args], one)
    return [np.broadcast_to(values[result], full) for result in attrs["results"]]


def infer_pack(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Take a matrix of the size that the attributes say: packed it is float32."""
    ((shape, dtype),) = inputs
    k, n = attrs["k"], attrs["n"]
    packable = dtype == FLOAT32 or is_half(dtype)
    if not packable or shape != ((n, k) if attrs["transposed"] else (k, n)):
        raise GraphError(f"pack_weight: {dtype.name}{list(shape)} is no weight of {k} by {n}")
    return [((packed_size(k, n),), FLOAT32)]


def pack_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Lay the weight out as [panels][k][16]."""
    weight = arrays[0].T if attrs["transposed"] else arrays[0]
    k, n = weight.shape
    panels = -(-n // PANEL)
    padded = np.zeros((k, panels * PANEL), FLOAT32)
    padded[:, :n] = weight
    return [padded.reshape(k, panels, PANEL).transpose(1, 0, 2).reshape(-1)]


def unpack(packed: Array, k: int, n: int) -> Array:
    """Return the ``[k, n]`` weight of a packed one."""
    panels = -(-n // PANEL)
    return packed.reshape(panels, k, PANEL).transpose(1, 0, 2).reshape(k, panels * PANEL)[:, :n]


def swapped(shape: Shape) -> Shape:
    """Return `shape` with its last two axes swapped."""
    return (*shape[:-2], shape[-1], shape[-2])


def infer_fused_matmul(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check the product, then each operand of the epilogue."""
    # A packed weight is float32, whatever it was packed from.
    dtype = check_numbers("fused_matmul", [inputs[0], *inputs[2 if attrs["packed"] else 1 :]])
    if attrs["packed"] and (inputs[1][1] != FLOAT32 or not (dtype == FLOAT32 or is_half(dtype))):
        raise GraphError(f"fused_matmul: {dtype.name} by {inputs[1][1].name} is not packed")
    x, w = inputs[0][0], inputs[1][0]
    k, n = attrs["k"], attrs["n"]
    if len(x) < 2:
        raise GraphError(f"fused_matmul: x must have two axes or more, found {x}")
    x = swapped(x) if attrs["transpose_a"] else x
    if attrs["packed"]:
        if attrs["transpose_a"] or attrs["transpose_b"] or w != (packed_size(k, n),):
            raise GraphError(f"fused_matmul: {w} is no packed weight of {k} by {n}")
        w = (k, n)
    elif attrs["transpose_b"]:
        w = swapped(w)
    full = matmul_shape("fused_matmul", x, w)
    if (x[-1], full[-1]) != (k, n):
        raise GraphError(f"fused_matmul: {x} by {w} is no product over {k} giving {n}")
    for name, wanted in (("bias", (n,)), ("residual", full)):
        if attrs[name] is not None and inputs[attrs[name]][0] != wanted:
            found = inputs[attrs[name]][0]
            raise GraphError(f"fused_matmul: {name} must have shape {wanted}, found {found}")
    if attrs["activation"] is not None and attrs["activation"] not in ACTIVATIONS:
        raise GraphError(f"fused_matmul: there is no activation {attrs['activation']!r}")
    return [(full, dtype)]


def fused_matmul_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Accumulate floats in float64, then finish in the kernel's dtype, half types in float32."""
    dtype = arrays[0].dtype
    arrays = [widened(array) for array in arrays]
    x, w = arrays[0], arrays[1]
    x = np.swapaxes(x, -1, -2) if attrs["transpose_a"] else x
    if attrs["packed"]:
        w = unpack(w, attrs["k"], attrs["n"])
    elif attrs["transpose_b"]:
        w = np.swapaxes(w, -1, -2)
    with np.errstate(all="ignore"):
        wide = np.matmul(x.astype(FLOAT64), w.astype(FLOAT64)) if is_float(x.dtype) else x @ w
        if attrs["bias"] is not None:
            wide = wide + arrays[attrs["bias"]]
        residual = None if attrs["residual"] is None else arrays[attrs["residual"]]
        if residual is not None and attrs["residual_first"]:
            wide, residual = wide + residual, None
        found = np.asarray(wide).astype(x.dtype)
        if attrs["activation"] is not None:
            op, one = ACTIVATIONS[attrs["activation"]]
            (found,) = OPS[op].reference([found], one)
        return [convert(found if residual is None else found + residual, dtype)]


def infer_normed_matmul(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check the product, then what its rows are scaled and shifted by."""
    ((full, dtype),) = infer_fused_matmul(inputs, attrs)
    if attrs["norm"] not in ("layer_norm", "rms_norm"):
        raise GraphError(f"normed_matmul: there is no norm {attrs['norm']!r}")
    for name in ("scale", "shift"):
        if attrs[name] is not None and inputs[attrs[name]][0] != full[-1:]:
            found = inputs[attrs[name]][0]
            raise GraphError(f"normed_matmul: {name} must have shape {full[-1:]}, found {found}")
    return [(full, dtype)] * (2 if attrs["sum"] else 1)


def normed_matmul_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """The same as its parts; what they give is the second output where it is one."""
    (product,) = fused_matmul_reference(arrays, attrs)
    given = [attrs[name] for name in ("scale", "shift")]
    weight, bias = (place is not None for place in given)
    one = {"axis": (product.ndim - 1,), "eps": attrs["eps"], "weight": weight, "bias": bias}
    operands = [product, *(arrays[place] for place in given if place is not None)]
    return [*OPS[attrs["norm"]].reference(operands, one), *([product] if attrs["sum"] else [])]


def infer_row_product(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Check the norm of the row, both weights, which lie as [N, K], and the epilogue."""
    dtype = check_numbers("row_product", inputs)
    k, n = attrs["k"], attrs["n"]
    shape = inputs[0][0]
    if not shape or shape[-1] != k or prod(shape) != k:
        raise GraphError(f"row_product: {shape} is no single row of {k}")
    full = (*shape[:-1], n)
    wanted = {"w": (n, k), "gate": (n, k), "scale": (k,), "bias": (n,), "residual": full}
    for name, one in wanted.items():
        if attrs[name] is not None and inputs[attrs[name]][0] != one:
            found = inputs[attrs[name]][0]
            raise GraphError(f"row_product: {name} must have shape {one}, found {found}")
    for name in ("gate_activation", "activation"):
        if attrs[name] is not None and attrs[name] not in ACTIVATIONS:
            raise GraphError(f"row_product: there is no activation {attrs[name]!r}")
    return [(full, dtype)]


def row_product_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """The same as its parts, rounded once."""
    dtype = arrays[0].dtype
    given = {name: attrs[name] for name in ("w", "gate", "scale", "bias", "residual")}
    parts = {name: widened(arrays[i]) for name, i in given.items() if i is not None}
    x = widened(arrays[0])
    with np.errstate(all="ignore"):
        wide = x.astype(FLOAT64)
        if attrs["eps"] is not None:
            wide = wide / np.sqrt(np.mean(wide * wide) + attrs["eps"])
        if "scale" in parts:
            wide = wide * parts["scale"]
        found = np.asarray(wide @ parts["w"].astype(FLOAT64).T).astype(x.dtype)
        if "gate" in parts:
            gate = np.asarray(wide @ parts["gate"].astype(FLOAT64).T).astype(x.dtype)
            op, one = ACTIVATIONS[attrs["gate_activation"]]
            found = found * OPS[op].reference([gate], one)[0]
        if "bias" in parts:
            found = found + parts["bias"]
        residual = parts.get("residual")
        if residual is not None and attrs["residual_first"]:
            found, residual = found + residual, None
        if attrs["activation"] is not None:
            op, one = ACTIVATIONS[attrs["activation"]]
            (found,) = OPS[op].reference([found], one)
        return [convert(found if residual is None else found + residual, dtype)]


register("region", "lowered", infer_region, region_reference)
register("pack_weight", "lowered", infer_pack, pack_reference)
register("fused_matmul", "lowered", infer_fused_matmul, fused_matmul_reference)
register("normed_matmul", "lowered", infer_normed_matmul, normed_matmul_reference)
register("row_product", "lowered", infer_row_product, row_product_reference)
