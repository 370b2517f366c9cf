"""Products whose rows choose their matrix, on the cpu."""

from __future__ import annotations

from math import ceil, prod

from fastgraph.ir.graph import Node
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers
from fastgraph.lower.taps import counts_of

__all__ = ["lower_grouped_matmul"]

# As in the kernel: columns of a panel, and the largest tile.
_PANEL = 16
_TILE = 12 * 4 * _PANEL
_FLOPS_PER_NS = 60.0


@lowers("grouped_matmul")
@in_float32
def lower_grouped_matmul(node: Node, target: Target) -> list[Call | Alias]:
    """Lower to three calls: sort the rows, bring them together, multiply."""
    (x, w, ids), (out,) = node.inputs, node.outputs
    kind, item = kernel_kind(node, x, ("f32", "f64")), x.dtype.itemsize
    rows, k = x.shape
    experts, _, n = w.shape
    if rows == 0:
        return []
    groups = Temp(8 * (experts + 1 + rows), "rows by expert")
    sort = Call(
        "group_rows", (groups,), (ids, counts_of(node, w)), [rows, experts, ids.dtype.itemsize],
        cost_ns=10.0 + 3.0 * rows + experts, nbytes=groups.nbytes,
    )  # fmt: skip
    if n == 0:
        return [sort]  # It looks for experts out of range.
    ordered = Temp(max(item * rows * k, item), "rows in order")
    cost_ns = 10.0 + memory_ns(2 * ordered.nbytes)
    gather = Call(
        "gather_rows", (ordered,), (x, groups), [rows, item * k, experts],
        choose_parts(cost_ns, target.threads, rows), cost_ns, nbytes=2 * ordered.nbytes,
    )  # fmt: skip
    flops = 2 * rows * k * n
    nbytes = item * (rows * (k + n) + min(experts, rows) * k * n)
    cost_ns = 50.0 + flops / _FLOPS_PER_NS + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, ceil(n / _PANEL))
    scratch = k * _PANEL + _TILE
    panels = Temp(item * scratch * parts, "panels")
    multiply = Call(
        f"grouped_matmul_{kind}", (out, panels), (ordered, w, groups),
        [rows, k, n, experts, scratch], parts, cost_ns, flops=flops, nbytes=nbytes,
    )  # fmt: skip
    return [sort, gather, multiply] if prod(out.shape) else [sort]
