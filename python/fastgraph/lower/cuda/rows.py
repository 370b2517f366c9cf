"""Products of a single row on cuda, with the norm before and the gate beside them."""

from __future__ import annotations

import struct

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.launch import cost, i32, traffic
from fastgraph.lower.cuda.matmul import NOTHING, Activation, flag, residual_of, text
from fastgraph.lower.cuda.registry import Target, lowers
from fastgraph.lower.cuda.tiles import choose_row

__all__ = ["lower_row_product"]


@lowers("row_product")
def lower_row_product(node: Node, target: Target) -> list[CudaCall | Alias]:
    """One launch."""
    attrs, (y,) = node.attrs, node.outputs
    n, k = int(attrs["n"]), int(attrs["k"])
    gated = attrs["gate"] is not None
    tile = choose_row(y.dtype.itemsize, n, k, gated, target.multiprocessors)
    residual, alone = residual_of(node)
    flags = (
        *(attrs[name] is not None for name in ("eps", "scale")),
        Activation[attrs["gate_activation"] or "none"],
        attrs["bias"] is not None,
        Activation[attrs["activation"] or "none"],
        residual,
    )
    weights = operands(node, "w", "gate")
    aligned = [
        min(target.alignment(value) for value in values)
        for values in ([node.inputs[0], *operands(node, "scale")], weights)
    ]
    words = [ctype(y.dtype), *tile, *aligned, *flags]
    entry = ", ".join(flag(w) if isinstance(w, bool) else f"{w:d}" for w in words[1:])
    flops, nbytes = 2 * n * k * (1 + gated), traffic((y, *node.inputs))

    def operand(name: str) -> Argument:
        return NOTHING if attrs[name] is None else ("in", attrs[name])

    return [
        CudaCall(
            KernelCode(text("matmul_row"), f"matmul_row<{words[0]}, {entry}>", "matmul"),
            (y,),
            tuple(node.inputs),
            (-(-n * (1 + gated) // tile.block), 1, 1),
            (32 * tile.warps, 1, 1),
            (
                ("out", 0),
                ("in", 0),
                *(operand(name) for name in ("w", "gate", "scale")),
                ("value", struct.pack("<f", attrs["eps"] or 0.0)),
                *(operand(name) for name in ("bias", "residual")),
                i32(n),
                i32(k),
                i32(all(target.is_constant(v, node) for v in (*weights, *operands(node, "scale")))),
            ),
            inplace=((0, attrs["residual"]),) if alone else (),
            flops=flops,
            nbytes=nbytes,
            label="row_product",
            cost_ns=cost(flops, nbytes),
        )
    ]


def operands(node: Node, *names: str) -> list[Value]:
    """Those of these operands that there are."""
    return [node.inputs[node.attrs[name]] for name in names if node.attrs[name] is not None]
