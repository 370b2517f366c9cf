"""Recurrent layers on cuda: a launch for each step, a warp for each unit of the state."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from fastgraph._core.sizes import least, most
from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import GATES
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import words
from fastgraph.lower.cuda.launch import call
from fastgraph.lower.cuda.matmul import NOTHING, flag
from fastgraph.lower.cuda.registry import Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_recurrence"]

# The numbers in sources/recurrence.cu.
KINDS = {"lstm": 0, "gru": 1, "rnn": 2}
FUNCTIONS = {"sigmoid": 0, "tanh": 1, "relu": 2}
WHOLE, PHASES = 0, (1, 2)
WARPS = 4
# Rows of the batch that a warp does, so that it reads its weights once for all of them.
ROWS = (1, 4, 8)
OPTIONAL = ("initial_h", "initial_c", "peephole", "recurrent_bias", "lengths")


@lowers("recurrence")
def lower_recurrence(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower a layer to its steps; a GRU whose reset comes before its product has two for each."""
    attrs, y = node.attrs, node.outputs[0]
    if y.size == 0:
        return []
    steps, ways, batch, hidden = y.shape
    linear = attrs["linear_before_reset"]
    twice = attrs["kind"] == "gru" and not linear
    scratch = Temp((3 if twice else 1) * node.outputs[1].size * y.dtype.itemsize, "state")
    outs: tuple[Value | Temp, ...] = (*node.outputs, scratch)
    ins = node.inputs
    last = len(node.outputs)
    arguments: list[Argument] = [("out", 0), ("out", 1), ("out", 2) if last == 3 else NOTHING]
    arguments += [("out", last), ("in", 0), ("in", 1)]
    arguments += [NOTHING if attrs[n] is None else ("in", attrs[n]) for n in OPTIONAL]
    arguments += [("fault",), ("node",)]
    lengths = attrs["lengths"]
    index = "i32" if lengths is None else ctype(ins[lengths].dtype)
    rows = next((n for n in ROWS if n >= batch), ROWS[-1])
    grid = (ceil(ways * hidden / WARPS), ceil(batch / rows), 1)
    text = source("elementwise.cuh", "recurrence")
    flops = 2 * GATES[attrs["kind"]] * ways * batch * hidden * hidden
    calls: list[CudaCall | Alias] = []
    # As many steps as there can be; those beyond the last are none.
    for step in range(steps):
        some = least(1, most(0, steps - step))
        for phase in PHASES if twice else (WHOLE,):
            shape = [ctype(y.dtype), index, KINDS[attrs["kind"]], phase, flag(linear), WARPS, rows]
            code = KernelCode(text, f"recurrence<{', '.join(map(str, shape))}>", attrs["kind"])
            # Where a step goes on, it reads the state that the one before it left.
            again = () if step == 0 and phase != PHASES[1] else outs[1:]
            made = call(
                code, outs, (*ins, *again), grid[0], 32 * WARPS,
                [*arguments, layer_words(node, step)], flops=flops // (2 if twice else 1),
            )  # fmt: skip
            here = (grid[0] * some, *grid[1:])
            calls.append(replace(made, grid=here, rereads=True, label=attrs["kind"]))
    return calls


def layer_words(node: Node, step: int) -> Argument:
    """Return struct Layer."""
    attrs = node.attrs
    steps, ways, batch, hidden = node.outputs[0].shape
    functions = [0] * 6
    for way, names in enumerate(attrs["activations"]):
        for which, name in enumerate(names):
            functions[3 * way + which] = FUNCTIONS[name]
    numbers = [steps, batch, hidden, ways, step, attrs["direction"] == "reverse", *functions]
    return words("<13i4xd", *numbers, attrs["input_forget"], attrs["clip"])
