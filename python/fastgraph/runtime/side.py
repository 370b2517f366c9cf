"""What compiling and running models asks of a device, behind one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.reserve import Reservation
from fastgraph._core.runner import Runner
from fastgraph.device.backend import Backend, backend_of
from fastgraph.device.child import Part
from fastgraph.device.outputs import check_outputs
from fastgraph.errors import UnsupportedError
from fastgraph.lower.program import Program, SetProgram, TapPlace
from fastgraph.lower.residency import Residency

if TYPE_CHECKING:
    from fastgraph.device.context import DeviceContext
    from fastgraph.ir.dims import Dim
    from fastgraph.ir.graph import Graph, Value
    from fastgraph.passes import Optimised
    from fastgraph.passes.extents import Source
    from fastgraph.runtime.compiled import CompiledGraph
    from fastgraph.runtime.extents import Extended
    from fastgraph.runtime.options import CompileOptions
    from fastgraph.runtime.params import ParamSet

__all__ = ["Code", "Narrow", "Narrowing", "Side"]

_Array = np.ndarray[Any, np.dtype[Any]]


class Code(ABC):
    """A program made ready for a device: what a model and its clones share of it."""

    program: Program

    def to_host(self, what: str, array: Any) -> Any:
        """Return an array on the device as a copy on the host; others as they are."""
        return array

    @abstractmethod
    def block_of(self, array: _Array) -> Block:
        """Return a new block with the elements of a C-contiguous array."""

    @abstractmethod
    def reserve(self, nbytes: int) -> tuple[Reservation, Block]:
        """Return addresses of the device, of which the first ones get memory by and by."""

    @abstractmethod
    def copy_of(self, source: Buffer) -> Block:
        """Return a new block with the elements of a buffer of the device."""

    @abstractmethod
    def lend(self, array: _Array) -> Block:
        """Return a block with the same elements, for as long as the array is there."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Block:
        """Return memory in which the set program works."""

    @abstractmethod
    def in_host(self, source: _Array | Block) -> Block:
        """Return memory of the host that the device reaches, with the bytes of an array or block.

        A block that is such memory is returned as it is.
        """

    @abstractmethod
    def check_experts(self, counts: Sequence[TapPlace]) -> None:
        """Raise UnsupportedError where experts cannot be kept apart by what is resident."""

    @abstractmethod
    def residence(self, counts: Sequence[TapPlace], title: str) -> Any:
        """Return what keeps a model's experts where its masks say; None where all are at hand.

        Raises
        ------
        OutOfMemoryError
            Its tables do not fit.
        """

    @property
    @abstractmethod
    def nothing(self) -> Block:
        """Block: what a tap has to which nobody listens."""

    @abstractmethod
    def tap(self, nbytes: int) -> Block:
        """Return memory in which kernels make notes: zeros, behind a first word that is not."""

    @abstractmethod
    def reader(self, block: Block) -> Callable[[], np.ndarray[Any, np.dtype[np.uint64]]]:
        """Return what gives a copy of the words of a block, as they are after all runs so far."""

    @abstractmethod
    def run_set(
        self, setup: SetProgram, bindings: Mapping[int, Block], nodes: Sequence[int]
    ) -> int | None:
        """Run nodes of the set program; return the one that met bad data, or None."""

    @abstractmethod
    def runner(self, params: ParamSet, title: str) -> Runner:
        """Return what runs the program, over memory of its own.

        Raises
        ------
        OutOfMemoryError
            The memory does not fit; nothing is held.
        """

    @abstractmethod
    def reside(self, residency: Residency) -> tuple[Program, Residency]:
        """Return the program of runs that keep these inputs and feeds where they are.

        Feeds are in place that ask for it and can be. The set program is that of all.
        """

    def retake(
        self,
        runner: Runner,
        program: Program,
        residency: Residency,
        params: ParamSet,
        handles: Mapping[int, Buffer],
        title: str,
    ) -> None:
        """Let a runner run another program that `reside` gave; called with the model's lock.

        Raises
        ------
        OutOfMemoryError, DriverError
            The runner is as it was.
        """
        raise NotImplementedError

    @abstractmethod
    def part(self, model: CompiledGraph, title: str) -> Part:
        """Return the nodes of a model for another graph; called with its lock."""

    @abstractmethod
    def extend(self, source: Source, dims: tuple[Dim, ...], options: CompileOptions) -> Narrowing:
        """Return what runs with extents of these dimensions.

        Raises
        ------
        UnsupportedError
            Operators cannot follow; each is named.
        """

    @property
    @abstractmethod
    def words(self) -> str:
        """str: how summaries call what the program was made for."""


class Narrowing(ABC):
    """What runs with extents of some dimensions: what a model and its clones share of it."""

    @abstractmethod
    def start(self, title: str) -> Narrow:
        """Return what one model has of it; raises OutOfMemoryError."""


class Narrow(ABC):
    """What one model runs with extents of some dimensions.

    Attributes
    ----------
    resides : bool
        Its program is another one for other handles and feeds.
    """

    resides = False

    @property
    @abstractmethod
    def program(self) -> Program:
        """Program: that of the extents set last."""

    @abstractmethod
    def prepare(self, model: Extended, actual: tuple[int, ...]) -> None:
        """Do what takes long and what can fail for these extents, without the model's lock.

        Raises
        ------
        UnsupportedError
            A parameter is needed as it was set, of which only what was computed of it is kept.
        """

    @abstractmethod
    def enter(self, model: Extended, actual: tuple[int, ...]) -> bool:
        """Let runs have these extents; with the lock.

        Returns
        -------
        bool
            Whether the runner has to be told of handles and feeds anew.

        Raises
        ------
        FastGraphError
            Everything is as it was.
        """

    def settle(self, model: Extended, actual: tuple[int, ...]) -> Residency:
        """Let the runner run what handles and feeds now ask for, where `resides`; with the lock."""
        raise NotImplementedError

    @abstractmethod
    def leave(self, model: Extended) -> None:
        """Let runs be the model's own again; with the lock."""

    def params(self, model: Extended, program: Program) -> dict[int, Value]:
        """Return, by memory, the model's parameters that `program` reads and its own does not."""
        names = {value.name: value for value in model._compilation.program.graph.params}
        return {
            memory: names[value.name]
            for value, memory in program.blocks.items()
            if value.node.op == "param"
        }

    def places(self, model: Extended, program: Program) -> list[tuple[int, Block]]:
        """Return where the parameters lie that `program` alone reads; raises as `prepare`."""
        places = []
        params = model._params
        for memory, value in self.params(model, program).items():
            block = params.block(value)
            if block is not None:
                places.append((memory, block))
            elif value in params.is_set:
                raise UnsupportedError(
                    f"the active extent needs parameter {value.name!r} as it was set, of which "
                    "only what was computed of it is kept"
                )
        return places


class Side(ABC):
    """One device, for a session.

    Attributes
    ----------
    lanes : int
        How many runs of a model may be under way unless a caller says otherwise.
    """

    lanes = 2

    def __init__(self, context: DeviceContext) -> None:
        self.context = context

    @property
    def backend(self) -> Backend:
        """Backend: the device."""
        return backend_of(self.context.device)

    @property
    @abstractmethod
    def threads(self) -> int:
        """int: how many threads of the host share the work of a run."""

    @abstractmethod
    def optimise(self, graph: Graph, options: CompileOptions) -> Optimised:
        """Return a graph in the vocabulary that the device lowers; checks the options."""

    @abstractmethod
    def code(self, optimised: Optimised, options: CompileOptions) -> Code:
        """Return the program of an optimised graph."""

    @abstractmethod
    def as_stream(self, stream: Any) -> Any:
        """Return what a caller gives as a stream."""

    @abstractmethod
    def resident(self, what: str, array: Any) -> tuple[Any, bool]:
        """Return an array as a buffer where it lies on the device, and whether it is read-only.

        Others are returned as something to copy from.

        Raises
        ------
        InputError
            It lies where neither is possible; `what` is told.
        """

    def on_device(self, name: str, array: Any, stream: Any, written: bool = False) -> Any:
        """Return an array as a buffer where it lies on the device; others as they are.

        Parameters
        ----------
        name : str
            Of the input or output that it is for.
        array : array
        stream : Stream or None
            What is made to wait for the work that fills it.
        written : bool
            It is for an output.
        """
        return array

    def check_out(self, specs: Sequence[Any], out: Any, stream: Any) -> tuple[list[Any], list[Any]]:
        """Return what a caller gives for outputs, and the same as ndarrays and buffers."""
        given: Any = out if isinstance(out, dict | str | bytes) else _listed(out)
        return given, check_outputs(specs, given, self.context.device, stream)

    def let_go(self, given: tuple[Any, Any], stream: Any) -> None:
        """Let other libraries' streams wait for a run that was enqueued on their arrays."""
        raise NotImplementedError


def _listed(out: Any) -> Any:
    try:
        return list(out)
    except TypeError:
        return out  # the check says what is wrong with it
