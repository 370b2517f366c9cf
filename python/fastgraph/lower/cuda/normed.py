"""Products on cuda whose rows are normed, by what adds up the parts of K where there are such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.launch import call, i64
from fastgraph.lower.cuda.matmul import NOTHING, Product, describe, product_calls, text
from fastgraph.lower.cuda.normalization import RowPlan, is_early, norm_type, number_of
from fastgraph.lower.cuda.planned import Calls
from fastgraph.lower.cuda.registry import Target, lowers

__all__ = ["lower_normed_matmul"]


@lowers("normed_matmul")
def lower_normed_matmul(node: Node, target: Target) -> Calls:
    """Lower to the product, and to one launch that adds up, ends and norms, or norms alone."""
    out = node.outputs[0]
    if 0 in out.shape:
        return []

    def close(product: Product, partial: Temp, splits: int) -> CudaCall:
        return norm_call(product, partial, splits, target)

    sums = node.outputs[1] if node.attrs["sum"] else Temp(out.size * out.dtype.itemsize, "sums")
    product = replace(describe(node, target), result=sums, close=close)
    if isinstance(sums, Temp):
        product = replace(product, inplace=())
    calls = [*product_calls(product, target)]
    last = calls[-1]
    if not isinstance(last, Alias) and last.outs[0] is sums:
        calls.append(norm_call(product, sums, 0, target))
    return calls


def norm_call(product: Product, read: Value | Temp, splits: int, target: Target) -> CudaCall:
    """Return what norms the rows of `read`: so many parts of K, or the product itself if 0."""
    node, attrs = product.node, product.node.attrs
    out, name = node.outputs[0], ctype(node.outputs[0].dtype)
    rows, length = prod(out.shape[:-1]), out.shape[-1]
    scale, shift = (attrs[part] for part in ("scale", "shift"))
    values = [node.inputs[i] for i in (scale, shift) if i is not None]
    # Parts are of four bytes, whatever comes of them.
    itemsize = 4 if splits else out.dtype.itemsize
    plan = RowPlan.of(rows, length, itemsize, target)
    assert plan is not None, "the pass takes no longer rows"
    ends: Sequence[Value] = product.operands[2:] if splits else ()
    added = [node.inputs[attrs["bias"]]] if splits and attrs["bias"] is not None else []
    early = is_early(plan, rows, [*values, *added], node, target)
    sum_seen = bool(splits) and attrs["sum"]
    norm = norm_type(
        name, attrs["norm"], False, scale is not None, shift is not None, sum_seen, early
    )
    aligned = min(map(target.alignment, (*values, *ends)), default=16)
    shape = plan.arguments(out.dtype.itemsize, aligned, rows, length)
    ins = (read, *ends, *values)
    places = {value: ("in", i) for i, value in enumerate(ins)}

    def operand(name: str) -> Argument:
        return NOTHING if attrs[name] is None else places[node.inputs[attrs[name]]]

    outs: tuple[Value, ...] = (out, node.outputs[1]) if sum_seen else (out,)
    entry, given = f"norm_rows<{norm}, {shape}>", [NOTHING]
    if splits:
        entry = f"norm_parts_of_k<{norm}, {product.end}, {splits}, {shape}>"
        given = [operand("bias"), operand("residual")]
    arguments = (
        *(("out", 0), ("out", 1) if sum_seen else NOTHING, ("in", 0), *given),
        *(
            operand("scale"),
            operand("shift"),
            number_of(name, attrs["eps"]),
            i64(rows),
            i64(length),
        ),
    )
    norming = call(
        KernelCode(text("rows.cuh", "norm", "norm_parts"), entry, attrs["norm"]),
        outs,
        ins,
        plan.blocks(rows),
        plan.threads,
        arguments,
        flops=(8 + splits) * out.size,
    )
    return replace(norming, label=attrs["norm"])
