"""The node by which a short run tells the host that it is over."""

from __future__ import annotations

from typing import Any

from fastgraph._core.record import Launch, Operand, Record
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.text import source

__all__ = ["FINISH", "finished"]

WORD = 8

FINISH = KernelCode(source("finish"), "fg_finish", "finish")


def finished(record: Record, function: Any, nbytes: int) -> Record:
    """Return `record` with a last node, and a last memory of `nbytes` whose halves are words.

    The node copies the first word to the other one behind all nodes.
    """
    found = record.copy()
    memory = found.add_memory("staging", "finish", nbytes)
    awaited = {i for node in found.nodes for i in node.dependencies}
    ends = [i for i in range(len(found.nodes)) if i not in awaited]
    operands = [
        Operand(memory, 0, WORD, True, False),
        Operand(memory, nbytes // 2, WORD, False, True),
    ]
    arguments = (("pointer", 0), ("pointer", 1))
    launch = Launch(function, (1, 1, 1), (1, 1, 1), arguments, programmatic=True)
    found.add_node("finish", "function", None, operands, dependencies=ends, call=launch)
    return found
