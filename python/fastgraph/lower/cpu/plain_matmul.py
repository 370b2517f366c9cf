"""Matrix products in float64 and in integers: one kernel, and a region for what follows it."""

from __future__ import annotations

from math import ceil

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import ACTIVATIONS
from fastgraph.ir.types import FLOAT64
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.elementwise import emit
from fastgraph.lower.cpu.instructions import Operand, Program, translate
from fastgraph.lower.cpu.layout import choose_parts
from fastgraph.lower.cpu.registry import Target

__all__ = ["plain_product"]

# Rows and columns of a unit: whole tiles of every kernel.
M_STEP, N_STEP = 48, 128
# One core, roughly, by the size of an item.
FLOPS_PER_NS = {1: 6.0, 2: 15.0, 4: 30.0, 8: 4.0}
FLOAT64_FLOPS_PER_NS = 30.0


def plain_product(
    node: Node, matrices: int, words: list[int], target: Target
) -> list[Call | Alias]:
    """Lower a product of which the kernel is told `words`: sizes, strides and the batch."""
    y, (m, n, k) = node.outputs[0], words[:3]
    width = y.dtype.itemsize
    name = "matmul_f64" if y.dtype == FLOAT64 else f"matmul_i{8 * width}"
    units = matrices * ceil(m / M_STEP) * ceil(n / N_STEP)
    flops = 2 * matrices * m * n * k
    rate = FLOAT64_FLOPS_PER_NS if y.dtype == FLOAT64 else FLOPS_PER_NS[width]
    cost_ns = 20.0 + flops / rate
    parts = choose_parts(cost_ns, target.threads, units)
    attrs = node.attrs
    alone = all(attrs[name] is None for name in ("bias", "residual", "activation"))
    product: Value | Temp = y if alone else Temp(y.nbytes, "product")
    nbytes = y.nbytes + node.inputs[0].nbytes + node.inputs[1].nbytes
    calls: list[Call | Alias] = [
        Call(name, (product,), node.inputs[:2], [M_STEP, N_STEP, *words], parts, cost_ns,
             flops=flops, nbytes=nbytes)
    ]  # fmt: skip
    if not alone:
        program, result = after(node, Operand(y.dtype, source=product, shape=y.shape))
        finish = emit(program.steps, [(y, result)], y.shape, target)
        assert finish is not None, "three instructions always fit"
        calls.append(finish)
    return calls


def after(node: Node, result: Operand) -> tuple[Program, Operand]:
    """The instructions for bias, residual and activation upon the sums `result`."""
    attrs, y = node.attrs, node.outputs[0]
    program = Program(node)

    def plus(name: str) -> None:
        nonlocal result
        value = node.inputs[attrs[name]]
        operand = Operand(y.dtype, source=value, shape=value.shape)
        result = translate(program, "add", (result, operand), {}, y.dtype)

    if attrs["bias"] is not None:
        plus("bias")
    if attrs["residual"] is not None and attrs["residual_first"]:
        plus("residual")
    if attrs["activation"] is not None:
        op, one = ACTIVATIONS[attrs["activation"]]
        result = translate(program, op, (result,), one, y.dtype)
    if attrs["residual"] is not None and not attrs["residual_first"]:
        plus("residual")
    return program, result
