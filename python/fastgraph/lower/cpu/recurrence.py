"""Recurrent layers on the cpu: one call for all steps, or one for each where threads share it."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import ceil

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import GATES
from fastgraph.ir.types import FLOAT32, FLOAT64
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.matmul import PANEL, packed_size
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["lower_recurrence"]

# The numbers of enum Kind, Function and Phase in src/_core/kernels/recurrence.cpp.
KINDS = {"lstm": 0, "gru": 1, "rnn": 2}
FUNCTIONS = {"sigmoid": 0, "tanh": 1, "relu": 2}
WHOLE, PHASES = 0, (1, 2)

# Steps that threads share are calls of their own; more of them are not worth their nodes.
MOST_CALLS = 256
# Signals are looked for between calls.
LONGEST_CALL_NS = 5e6
# Rows of a unit of several steps are a multiple of it: whole tiles of every kernel.
ROW_STEP = 12

FLOPS_PER_NS = 60.0
DOUBLE_FLOPS_PER_NS = 2.0
# Weights that stream from a second-level cache, or from a farther one.
BYTES_PER_NS = 35.0
GATE_NS = 1.0
STEP_NS = 30.0


@lowers("recurrence")
def lower_recurrence(node: Node, target: Target) -> list[Call | Alias]:
    """Lower a layer; its weights are brought into panels once."""
    attrs, y = node.attrs, node.outputs[0]
    if y.size == 0:
        return []
    kind = kernel_kind(node, y, ("f32", "f64"))
    steps, ways, batch, hidden = y.shape
    count = GATES[attrs["kind"]]
    calls: list[Call | Alias] = []
    weights = node.inputs[1]
    if y.dtype == FLOAT32:
        weights, pack = packed(node, count * ways, hidden, target)
        calls.append(pack)
    places = [attrs[n] for n in ("initial_h", "initial_c", "peephole", "recurrent_bias", "lengths")]
    given = [node.inputs[place] for place in places if place is not None]
    step_ns = cost_of_step(node, count * ways, batch, hidden)
    apart = target.threads > 1 and steps <= MOST_CALLS
    parts = choose_parts(step_ns, target.threads, ways * ceil(hidden / PANEL)) if apart else 1
    apart = parts > 1 or steps == 1
    twice = attrs["kind"] == "gru" and not attrs["linear_before_reset"]
    # Rows that are done together share the weights that they stream.
    row_step = ceil(batch / target.threads / ROW_STEP) * ROW_STEP
    blocks = ways * ceil(batch / row_step)
    each = 1 if apart else max(1, min(steps, int(LONGEST_CALL_NS * blocks / step_ns)))
    if not apart:
        parts = choose_parts(step_ns * each, target.threads, blocks)

    # The state of every other step, and what a GRU keeps between its two products.
    states = 3 if twice else 1
    scratch = Temp(states * ways * batch * hidden * y.dtype.itemsize, "state")
    outs: tuple[Value | Temp, ...] = (*node.outputs, scratch)
    ins = (node.inputs[0], weights, *given)
    flops = 2 * count * ways * batch * hidden * hidden
    for first in range(0, steps, each):
        last = min(first + each, steps)
        for phase in PHASES if twice and apart else (WHOLE,):
            words = [KINDS[attrs["kind"]], steps, batch, hidden, ways, first, last, phase]
            words += [*option_words(node), int(apart), row_step]
            # Where a step goes on, it reads the state that the one before it left.
            again = () if first == 0 and phase != PHASES[1] else outs[1:]
            share = (last - first) / (2 if phase else 1)
            calls.append(
                Call(f"recurrence_{kind}", outs, (*ins, *again), words, parts, step_ns * share,
                     inplace=cell_in_place(node, steps), flops=int(flops * share),
                     nbytes=weights.nbytes, label=attrs["kind"])
            )  # fmt: skip
    return calls


def packed(node: Node, matrices: int, hidden: int, target: Target) -> tuple[Value, Call]:
    """Return the weights in panels, and the call that lays them out, once where they are set."""
    source = node.inputs[1]
    maker = Node(node.graph, "pack_recurrent", (source,), {}, f"{node.name}.pack", node.site)
    value = Value(maker, 0, (matrices * packed_size(hidden, hidden),), FLOAT32)
    maker.outputs = (value,)
    nbytes = source.nbytes + value.nbytes
    cost_ns = memory_ns(2 * nbytes)
    parts = choose_parts(cost_ns, target.threads, matrices * ceil(hidden / PANEL))
    call = Call("pack_recurrent", (value,), (source,), [matrices, hidden], parts, cost_ns)
    return value, replace(call, nbytes=nbytes, early=True)


def cost_of_step(node: Node, matrices: int, batch: int, hidden: int) -> float:
    """Return the nanoseconds that one core needs for a step."""
    double = node.outputs[0].dtype == FLOAT64
    flops = 2 * matrices * batch * hidden * hidden
    rate = DOUBLE_FLOPS_PER_NS if double else FLOPS_PER_NS
    streamed = matrices * hidden * hidden * node.outputs[0].dtype.itemsize / BYTES_PER_NS
    return STEP_NS + max(flops / rate, streamed) + matrices * batch * hidden * GATE_NS


def option_words(node: Node) -> list[int]:
    """Return the words from `reverse` to `index` of struct Layer."""
    attrs = node.attrs
    functions = [FUNCTIONS[name] for way in attrs["activations"] for name in _three(way)]
    functions += [0] * (6 - len(functions))
    (clip,) = struct.unpack("<q", struct.pack("<d", attrs["clip"]))
    words = [int(attrs["direction"] == "reverse"), *functions, clip]
    words += [int(attrs["input_forget"]), int(attrs["linear_before_reset"])]
    for name in ("initial_h", "initial_c", "peephole", "recurrent_bias", "lengths"):
        words.append(int(attrs[name] is not None))
    lengths = attrs["lengths"]
    return [*words, 0 if lengths is None else node.inputs[lengths].dtype.itemsize]


def _three(names: tuple[str, ...]) -> tuple[str, ...]:
    return (*names, *("tanh",) * (3 - len(names)))


def cell_in_place(node: Node, steps: int) -> tuple[tuple[int, int], ...]:
    """Return that the cells may take the bytes of those before them: each is read where written."""
    place = node.attrs["initial_c"]
    if place is None or node.attrs["kind"] != "lstm" or steps > 1:
        return ()
    if sum(value is node.inputs[place] for value in node.inputs) > 1:
        return ()
    before = 1 if node.attrs["initial_h"] is not None else 0
    return ((2, 2 + before),)
