"""The first and the last node of a run: inputs come in, outputs go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fastgraph._core.record import Launch, Operand, RecordNode
from fastgraph.ir.graph import Value
from fastgraph.lower.call import Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.feeds import feed_calls
from fastgraph.lower.cuda.launch import i64
from fastgraph.lower.cuda.movement import spread_call
from fastgraph.lower.cuda.registry import Target
from fastgraph.lower.cuda.text import source
from fastgraph.lower.residency import NOTHING, Residency
from fastgraph.lower.storage import Item, Lowered, Output, Place, Seam, nbytes_of
from fastgraph.lower.strides import is_prefix

__all__ = [
    "INPUTS",
    "SCALAR_BYTES",
    "close_seams",
    "count_pieces",
    "launch_of",
    "move_calls",
    "move_code",
    "with_pointers",
]

INPUTS, OUTPUTS = "inputs", "outputs"

THREADS = 256
# What a thread moves at once, and how many blocks a multiprocessor do it: more than one would take
# room from other runs' kernels, while they wait for the bus. From so many bytes on, on the device,
# one is too few: 16 MiB were measured at 30 and 25 us with one and with four, 4 MiB at 9 with both.
WIDE = 16
WAVES, MOST_WAVES = 1, 4
LONG_BYTES = 8 << 20
# One kernel moves so many pieces and scalars; there is code for each of these numbers.
SLOTS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_PIECES = MOST_SCALARS = 64
# A scalar, whatever its dtype, and every other argument of these kernels.
SCALAR_BYTES = 8

# An output of more bytes is computed on the device and moved out by one kernel.
DIRECT_BYTES = 64 << 10

# To, from, and how many bytes.
Piece = tuple[Place, Place, int]


def close_seams(lowered: Lowered, target: Target, residency: Residency = NOTHING) -> None:
    """Let inputs come from where the caller has them and outputs go to where he wants them.

    A small output that one kernel writes and none reads is written there by that kernel. Resident
    inputs are read where they are.
    """
    saved = _saved(lowered, residency)
    before = [(place, value, nbytes_of(value)) for value, place in saved.items()]
    lowered.run_calls += move_calls(OUTPUTS, before, None, (), target)
    read = {lowered.roots.of(i)[0] for _, call in lowered.run_calls for i in call.ins}
    feeds = feed_calls(lowered, residency.feeds, saved, target)
    read |= {lowered.roots.of(i)[0] for _, call in feeds for i in call.ins}
    # What lies in a handle is moved out of it, too.
    read |= {place for _, place in lowered.kept}
    _claim_outputs(lowered, read)
    out: list[Piece] = []
    spread: list[Item] = []
    for i, output in enumerate(lowered.outputs):
        if output.root is lowered.roots.of(output.value)[0] or not nbytes_of(output.value):
            continue
        if is_first(lowered, i):
            out.append((output.root, output.value, nbytes_of(output.value)))
        else:
            call = spread_call(output.root, output.value, lowered.wholes[i])
            spread.append((Seam(OUTPUTS, "copy", output.value.shape), call))
        read.add(lowered.roots.of(output.value)[0])
    pieces: list[Piece] = []
    for i, value in enumerate(lowered.graph.inputs):
        if i in residency.inputs:
            continue
        place = Temp(nbytes_of(value), value.name)
        lowered.inputs[i] = place
        if not place.nbytes:
            lowered.roots.put(value, place, 0)
        elif value in read:
            pieces.append((value, place, lowered.reads.get(value, place.nbytes)))
    scalars = lowered.graph.scalars
    words = Temp(SCALAR_BYTES * len(scalars), "scalars")
    for i, value in enumerate(scalars):
        lowered.roots.put(value, words, SCALAR_BYTES * i)
        lowered.scalars[i] = Temp(SCALAR_BYTES, value.name)
    needed = [i for i, value in enumerate(scalars) if value in read]
    given = [lowered.scalars[i] for i in range(len(scalars))] if needed else []
    inward = move_calls(INPUTS, pieces, words if given else None, given, target)
    lowered.run_calls[:0] = inward
    lowered.run_calls += [*spread, *move_calls(OUTPUTS, out, None, (), target)]
    lowered.run_calls += feeds


def is_first(lowered: Lowered, i: int) -> bool:
    """Whether what a run writes of an output is the first of its memory."""
    return not lowered.wholes or is_prefix(lowered.graph.outputs[i][1].shape, lowered.wholes[i])


def _whole_bytes(lowered: Lowered, i: int) -> int:
    """Bytes of the memory of an output."""
    value = lowered.graph.outputs[i][1]
    shape = lowered.wholes[i] if lowered.wholes else value.shape
    return prod(shape) * value.dtype.itemsize


def _saved(lowered: Lowered, residency: Residency) -> dict[Value, Temp]:
    """Return places for fed outputs that are bytes of a handle: a feed may write those first."""
    handles = {lowered.graph.inputs[i] for i in residency.inputs}
    fed = {lowered.graph.outputs[feed.output][1]: None for feed in residency.feeds}
    return {
        value: Temp(nbytes_of(value), value.name or "fed")
        for value in fed
        if nbytes_of(value) and lowered.roots.of(value)[0] in handles
    }


def _claim_outputs(lowered: Lowered, read: set[Place]) -> None:
    """Choose where each output lies: with the kernel that writes it, or beside it."""
    writers: dict[Place, list[CudaCall]] = {}
    for _, call in lowered.run_calls:
        for operand in call.outs:
            writers.setdefault(lowered.roots.of(operand)[0], []).append(call)
    claimed: set[Place] = set()
    for i, (name, value) in enumerate(lowered.graph.outputs):
        root, _ = lowered.roots.of(value)
        calls = writers.get(root, ())
        direct = (
            is_first(lowered, i)
            and len(calls) == 1
            and not calls[0].rereads
            and root not in read
            and root not in claimed
            and nbytes_of(root) == nbytes_of(value) <= DIRECT_BYTES
        )
        place = root if direct else Temp(_whole_bytes(lowered, i), name)
        claimed.add(place)
        lowered.outputs.append(Output(name, value, place))


def move_calls(
    name: str,
    pieces: Sequence[Piece],
    words: Temp | None,
    scalars: Sequence[Place],
    target: Target,
) -> list[Item]:
    """Return the calls that move bytes and write scalars to `words`.

    Most graphs need one; only one with more pieces or scalars than a kernel takes needs several.
    """
    calls: list[Item] = []
    for start in range(0, len(pieces), MOST_PIECES):
        calls.append(_move(name, pieces[start : start + MOST_PIECES], None, (), 0, target))
    for start in range(0, len(scalars), MOST_SCALARS):
        few = scalars[start : start + MOST_SCALARS]
        if len(calls) == 1 and len(scalars) <= MOST_SCALARS:
            calls = [_move(name, pieces, words, few, 0, target)]
        else:
            calls.append(_move(name, (), words, few, start, target))
    return calls


def _move(
    name: str,
    pieces: Sequence[Piece],
    words: Temp | None,
    scalars: Sequence[Place],
    first: int,
    target: Target,
) -> Item:
    arguments: list[Argument] = []
    for i, (_, _, nbytes) in enumerate(pieces):
        arguments += [("out", i), ("in", i), i64(nbytes)]
    arguments += _nothing(3 * (_slots(len(pieces)) - len(pieces)))
    outs: list[Place] = [to for to, _, _ in pieces]
    ins: list[Place] = [source for _, source, _ in pieces]
    if words is not None:
        arguments += [("out", len(outs)), ("value", _word(first))]
        arguments += [("scalar", len(ins) + i) for i in range(len(scalars))]
        arguments += _nothing(_slots(len(scalars)) - len(scalars))
        arguments.append(("value", _word(len(scalars))))
        outs.append(words)
        ins += scalars
    longest = max((int(nbytes) for _, _, nbytes in pieces), default=0)
    rows = max(len(pieces), 1)
    wanted = -(-longest // (THREADS * WIDE))
    waves = MOST_WAVES if longest > LONG_BYTES else WAVES
    blocks = max(1, min(wanted, waves * target.multiprocessors // rows))
    moved = sum(int(nbytes) for _, _, nbytes in pieces) + SCALAR_BYTES * len(scalars)
    call = CudaCall(
        move_code(len(pieces), len(scalars)),
        tuple(outs),
        tuple(ins),
        (blocks, rows, 1),
        (THREADS, 1, 1),
        tuple(arguments),
        nbytes=2 * moved,
        label="copy",
    )
    return Seam(name, "copy", (moved,)), call


def move_code(n_pieces: int, n_scalars: int) -> KernelCode:
    """Return the kernel that moves so many pieces and scalars."""
    pieces, words = _slots(n_pieces), _slots(n_scalars)
    entry = f"fg_move_{pieces}_{words}"
    return KernelCode(source("move") + _kernel(entry, pieces, words), entry, "move")


def with_pointers(node: RecordNode, sizes: Mapping[int, int], function: Any) -> RecordNode:
    """Return a node that moves scalars like all pieces, from memory.

    Parameters
    ----------
    node : RecordNode
        That of a call which takes scalars by value.
    sizes : mapping of int to int
        Bytes of each scalar, by its offset in their block.
    function : object
        What `move_code` of `count_pieces` pieces was loaded as.
    """
    call = launch_of(node)
    scalars = [op for op in node.operands if op.reads][-_count_scalars(node) :]
    outs = [op for op in node.operands if op.writes]
    ins = [op for op in node.operands if op.reads][: len(outs) - 1]
    words = outs.pop()
    for scalar in scalars:
        nbytes = sizes[scalar.offset]
        place = words.offset + scalar.offset
        outs.append(Operand(words.memory, place, nbytes, False, True))
        ins.append(Operand(scalar.memory, scalar.offset, nbytes, True, False))
    arguments: list[tuple[Any, ...]] = []
    for i, out in enumerate(outs):
        arguments += [("pointer", i), ("pointer", len(outs) + i), ("value", _word(out.nbytes))]
    arguments += _nothing(3 * (_slots(len(outs)) - len(outs)))
    grid = (call.grid[0], len(outs), 1)
    launch = call._replace(function=function, grid=grid, arguments=tuple(arguments))
    return node._replace(operands=(*outs, *ins), call=launch)


def count_pieces(node: RecordNode) -> int:
    """Return how many pieces `with_pointers` makes of a node; 0 where it takes no scalars."""
    if not isinstance(node.call, Launch):
        return 0  # Scalars come in before.
    scalars = _count_scalars(node)
    return sum(op.writes for op in node.operands) - 1 + scalars if scalars else 0


def _count_scalars(node: RecordNode) -> int:
    return sum(argument[0] == "scalar" for argument in launch_of(node).arguments)


def launch_of(node: RecordNode) -> Launch:
    """Return the launch of a node that is a kernel's."""
    assert isinstance(node.call, Launch)
    return node.call


def _word(value: int) -> bytes:
    return value.to_bytes(SCALAR_BYTES, "little")


def _nothing(count: int) -> list[tuple[str, bytes]]:
    """Arguments for slots that nothing is in."""
    return [("value", bytes(SCALAR_BYTES))] * count


def _slots(count: int) -> int:
    return next(slots for slots in SLOTS if slots >= count) if count else 0


def _kernel(entry: str, n_pieces: int, n_words: int) -> str:
    """Return a kernel of which the rows of blocks move one piece each, the first block scalars."""
    parameters = []
    cases = []
    for i in range(n_pieces):
        parameters.append(f"char *to{i}, const char *from{i}, u64 n{i}")
        cases.append(f"  if (blockIdx.y == {i}) fg_move_bytes(to{i}, from{i}, n{i});\n")
    if n_words:
        words = [f"w{i}" for i in range(n_words)]
        parameters.append("u64 *words, u64 first, " + ", ".join(f"u64 {w}" for w in words))
        parameters.append("u64 n_words")
        cases.append(f"  const u64 given[] = {{{', '.join(words)}}};\n")
        cases.append("  fg_move_words(words, first, given, n_words);\n")
    head = f"__global__ void {entry}({', '.join(parameters)})"
    return f"{head} {{\n  fg_wait();\n  fg_trigger();\n{''.join(cases)}}}\n"
