"""Rules for If and Loop, whose bodies read values of the graph around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.control import cond, while_loop
from fastgraph.onnx.registry import NodeError, OnnxNode, Operand, Untranslated, onnx_op

__all__: list[str] = []

# Loops of up to so many turns, if their number is known, are written out: then indices and shapes
# that count turns are known as well.
MAX_WRITTEN_OUT = 64


@onnx_op("If", raw=True, wanted=(0,))
def if_else(node: OnnxNode, condition: Operand) -> Any:
    """The branch that is known to be taken, or both."""
    if isinstance(condition, np.ndarray):
        return node.run_body("then_branch" if one(condition) else "else_branch", ())

    def then_branch() -> tuple[Value, ...]:
        return lifted(node, node.run_body("then_branch", ()))

    def else_branch() -> tuple[Value, ...]:
        return lifted(node, node.run_body("else_branch", ()))

    try:
        found = cond(scalar(condition), then_branch, else_branch)
    except Untranslated:
        raise NodeError(
            "only a run knows which branch is taken, so both must be sound; where "
            f"'{node.inputs[0]}' is always the same, pass values= of the inputs it comes from, or "
            "make it an initialiser or a Constant"
        ) from None
    return found if isinstance(found, tuple) else (found,)


@onnx_op("Loop", raw=True, wanted=(0, 1))
def loop(
    node: OnnxNode,
    count: Operand | None = None,
    condition: Operand | None = None,
    *initial: Operand,
) -> Any:
    """Turns written out where few are known, else a loop of the run."""
    if isinstance(condition, np.ndarray) and one(condition):
        condition = None
    if isinstance(condition, np.ndarray) or (isinstance(count, np.ndarray) and one(count) <= 0):
        return without_turns(node, initial)
    if condition is None and isinstance(count, np.ndarray) and one(count) <= MAX_WRITTEN_OUT:
        found = written_out(node, one(count), initial)
        if found is not None:
            return found
    return counted(node, count, condition, initial)


def one(array: np.ndarray[Any, Any]) -> Any:
    """The one element of an array."""
    if array.size != 1:
        raise NodeError(f"takes one number, found shape {array.shape}")
    return array.reshape(()).item()


def scalar(operand: Operand) -> Operand:
    """One number without axes."""
    if operand.size != 1:
        raise NodeError(f"takes one number, found shape {operand.shape}")
    return ops.reshape(operand, ()) if operand.shape and isinstance(operand, Value) else operand


def lifted(node: OnnxNode, operands: Sequence[Operand]) -> tuple[Value, ...]:
    """Values of the graph."""
    return tuple(o if isinstance(o, Value) else node.constant(o) for o in operands)


def without_turns(node: OnnxNode, initial: Sequence[Operand]) -> tuple[Operand, ...]:
    """What a loop without a turn gives: what it starts from."""
    if len(node.outputs) > len(initial):
        raise NodeError("makes no turn, and gathers the results of turns, whose shape is not known")
    return tuple(initial)


def written_out(
    node: OnnxNode, count: int, initial: Sequence[Operand]
) -> tuple[Operand, ...] | None:
    """The turns one after another; None where a run decides how many there are."""
    carried = tuple(initial)
    gathered: list[tuple[Operand, ...]] = []
    for turn in range(count):
        given = (np.asarray(turn, np.int64), np.asarray(True), *carried)
        again, *found = node.run_body("body", given)
        if isinstance(again, Value):
            return None
        carried, scanned = tuple(found[: len(initial)]), tuple(found[len(initial) :])
        gathered.append(scanned)
        if not one(again):
            break
    rows = zip(*(lifted(node, scanned) for scanned in gathered), strict=True)
    return (*carried, *(ops.stack(list(row)) for row in rows))


def counted(
    node: OnnxNode,
    count: Operand | None,
    condition: Operand | None,
    initial: Sequence[Operand],
) -> tuple[Value, ...]:
    """A loop of the run."""
    if len(node.outputs) > len(initial):
        raise NodeError(
            "gathers the results of turns, and only a run knows how many there are, so they have "
            f"no fixed shape: up to {MAX_WRITTEN_OUT} that are known when the model is read are "
            "written out; pass values= of the inputs their number comes from, or make it an "
            "initialiser or a Constant in the model"
        )
    limit = None if count is None else scalar(count)
    holds = np.asarray(True) if condition is None else scalar(condition)

    def test(turn: Value, holds: Value, *carried: Value) -> Value:
        return holds if limit is None else ops.logical_and(holds, turn < limit)

    def body(turn: Value, holds: Value, *carried: Value) -> tuple[Value, ...]:
        again, *found = lifted(node, node.run_body("body", (turn, holds, *carried)))
        return (turn + 1, ops.reshape(again, ()), *found)

    start = lifted(node, (np.asarray(0, np.int64), holds, *initial))
    return tuple(while_loop(test, body, *start)[2:])
