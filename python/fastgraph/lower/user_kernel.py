"""Kernels of users among the calls of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastgraph.device.backend import LaunchOptions, PlaceMaker
from fastgraph.device.kernel import In, Out
from fastgraph.device.pending import Scratch, Work
from fastgraph.errors import CompileError, GraphError, InputError
from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.user_kernel import UserKernel
from fastgraph.lower.recorder import NodeSpec
from fastgraph.lower.storage import Place, nbytes_of

__all__ = ["FunctionWork", "UserCall", "user_call"]

FunctionWork = Callable[[PlaceMaker, Any, tuple[Any, ...], LaunchOptions], Work]


@dataclass(frozen=True, eq=False)
class UserCall:
    """The call of a user's kernel: `work` is what a node of it is, its accesses are operands."""

    outs: tuple[Place, ...]
    ins: tuple[Place, ...]
    work: Work
    label: str
    nbytes: int
    flops: int = 0
    cost_ns: float = 0.0
    inplace: tuple[tuple[int, int], ...] = ()
    early: bool = False
    # Of what our own kernels take, such as the word for faults, it gets nothing.
    arguments: tuple[Any, ...] = ()
    # What a kernel does with its outputs before they are done is its own affair.
    rereads: bool = True

    @property
    def spec(self) -> NodeSpec:
        """NodeSpec: the node of a record."""
        work = self.work
        return NodeSpec(work.kernel, work.params, 1, work.call, (), work.keep)


def user_call(node: Node, device: str, function_work: FunctionWork) -> UserCall:
    """Return the call of a node of `kernel`.

    Parameters
    ----------
    node : Node
    device : str
    function_work : callable
        As `Backend.function_work`.

    Raises
    ------
    CompileError
        The arguments do not fit the kernel.
    UnsupportedError
        The device does not run such a kernel.
    """
    user: UserKernel = node.attrs["user"]

    def stand_in(value: Value) -> Scratch:
        return Scratch(value.shape, value.dtype, device)

    arguments = (
        *(Out(stand_in(value)) for value in node.outputs),
        *(In(stand_in(value)) for value in node.inputs),
        *user.scalars,
    )
    options = LaunchOptions(user.grid_dim, user.block_dim, None, user.shared_mem_bytes)
    try:
        work = function_work(lambda place, written: place, user.kernel, arguments, options)
    except (InputError, GraphError) as error:
        raise CompileError(f"{node.name} (kernel, {node.site}): {error}") from error
    outs, ins = node.outputs, node.inputs
    if len(work.accesses) != len(outs) + len(ins):
        raise CompileError(
            f"{node.name} (kernel, {node.site}): {work.name!r} takes an output or input by value; "
            "it takes their addresses"
        )
    moved = sum(nbytes_of(value) for value in (*outs, *ins))
    return UserCall(outs, ins, work, f"kernel {work.name}", moved)
