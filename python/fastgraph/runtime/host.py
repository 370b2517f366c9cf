"""Models on the cpu."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastgraph._core import buffer, host_graph, isa, reserve
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.checks import check_stream
from fastgraph._core.host_program import HostProgram
from fastgraph._core.host_runner import host_runner
from fastgraph._core.params import block_of
from fastgraph._core.reserve import Reservation
from fastgraph._core.runner import Runner
from fastgraph.device.backend import named
from fastgraph.device.child import Part
from fastgraph.device.context import DeviceContext
from fastgraph.errors import InputError, OutOfMemoryError
from fastgraph.ir.dims import Dim
from fastgraph.ir.graph import Graph
from fastgraph.lower.cpu import Target
from fastgraph.lower.cpu.recorder import HostRecorder
from fastgraph.lower.program import (
    Program,
    SetProgram,
    TapPlace,
    extend,
    lower,
    lower_calls,
)
from fastgraph.lower.residency import Residency
from fastgraph.lower.sharing import ports_that_share
from fastgraph.lower.storage import nbytes_of
from fastgraph.lower.taps import HEAD_NBYTES, WORD
from fastgraph.passes import Optimised, optimise
from fastgraph.passes.extents import Source, resized
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.part import ARENA, part_of
from fastgraph.runtime.side import Code, Narrow, Narrowing, Side

if TYPE_CHECKING:
    from fastgraph._core.host_graph import HostGraph
    from fastgraph.runtime.compiled import CompiledGraph
    from fastgraph.runtime.extents import Extended
    from fastgraph.runtime.params import ParamSet

__all__ = ["HostSide"]

_Array = np.ndarray[Any, np.dtype[Any]]
_Policy = Literal["auto"] | bool


class HostSide(Side):
    """The cpu, with so many threads."""

    threads = 1

    def __init__(self, context: DeviceContext, threads: int, release_gil: _Policy) -> None:
        super().__init__(context)
        self.threads = threads
        self.release_gil = release_gil

    def optimise(self, graph: Graph, options: CompileOptions) -> Optimised:
        """Return a graph in the vocabulary of host kernels."""
        _isa_of(options)
        return optimise(graph, fuse=options.fuse)

    def code(self, optimised: Optimised, options: CompileOptions) -> HostCode:
        """Return the program of an optimised graph."""
        chosen = _isa_of(options)
        recorder = HostRecorder(Target(self.threads, chosen))
        program = lower(optimised.graph, optimised.is_set, recorder)
        return HostCode(program, chosen, self.threads, self.release_gil)

    def as_stream(self, stream: Any) -> Any:
        """Refuse: the cpu has none."""
        check_stream(stream)

    def resident(self, what: str, array: Any) -> tuple[Any, bool]:
        """Return a buffer of the cpu as it is, and others to be copied."""
        if not isinstance(array, Buffer) or array.device == self.context.device:
            return array, False
        if not array.host_visible:
            raise InputError(f"{what}: {array!r} is not on {self.context.device}")
        return array.numpy(), False


def _isa_of(options: CompileOptions) -> str:
    chosen = isa.chosen() if options.isa is None else options.isa
    if not isinstance(chosen, str) or chosen not in isa.offered():
        raise InputError(f"isa {chosen!r}: this machine offers {isa.offered()}")
    return chosen


class HostCode(Code):
    """Host programs of a run and of setting parameters."""

    def __init__(self, program: Program, chosen: str, threads: int, release_gil: _Policy) -> None:
        self.program = program
        self.isa = chosen
        self.threads = threads
        self.release_gil = release_gil
        self.host = HostProgram(program.record, chosen)
        self.host_setup = HostProgram(program.setup.record, chosen)
        # What has been asked of pairs of an input and an output.
        self.shared: dict[tuple[int, int], bool] = {}

    def block_of(self, array: _Array) -> Block:
        """Return a new block with the elements of a C-contiguous array."""
        return block_of(array)

    def reserve(self, nbytes: int) -> tuple[Reservation, Block]:
        """Return addresses of the host."""
        return reserve.reserve(nbytes)

    def copy_of(self, source: Buffer) -> Block:
        """Return a new block with the elements of a buffer."""
        return block_of(np.asarray(source))

    def lend(self, array: _Array) -> Block:
        """Return a block over the elements of a C-contiguous array."""
        return buffer.borrow(array.ctypes.data, array.nbytes, array)

    def allocate(self, nbytes: int) -> Block:
        """Return memory of the host."""
        return buffer.allocate(nbytes, zero=False)

    def in_host(self, source: _Array | Block) -> Block:
        """Return a block that is one, and an array as one."""
        return source if isinstance(source, Block) else block_of(source)

    def check_experts(self, counts: Sequence[TapPlace]) -> None:
        """Nothing moves, so nothing is in the way."""

    def residence(self, counts: Sequence[TapPlace], title: str) -> None:
        """Return None: experts are read where they are."""

    @cached_property
    def nothing(self) -> Block:
        """Block: zeros."""
        return buffer.allocate(HEAD_NBYTES)

    def tap(self, nbytes: int) -> Block:
        """Return memory of the host."""
        block = buffer.allocate(nbytes)
        _words(block)[0] = 1
        return block

    def reader(self, block: Block) -> Callable[[], np.ndarray[Any, np.dtype[np.uint64]]]:
        """Return what copies: a run is over when its call returns."""
        return _words(block).copy

    def run_set(
        self, setup: SetProgram, bindings: Mapping[int, Block], nodes: Sequence[int]
    ) -> int | None:
        """Run nodes of the set program."""
        quiet = dict.fromkeys(setup.taps, self.nothing)
        executable = host_graph.instantiate(self.host_setup, {**bindings, **quiet}, self.threads)
        try:
            executable.run_subset(nodes)
        except InputError:
            # Once more, one at a time, to tell which met bad data.
            for node in nodes[:-1]:
                try:
                    executable.run_subset([node])
                except InputError:
                    return node
            return nodes[-1]
        return None

    def runner(self, params: ParamSet, title: str) -> Runner:
        """Return what runs the program, over an arena of its own."""
        program = self.program
        try:
            arena = buffer.allocate(program.arena_nbytes, zero=False)
        except OutOfMemoryError as error:
            raise named(error, "the arena of", title) from None
        bindings: dict[int, Any] = {ARENA: arena}
        for memory, offset in zip(program.outputs, program.output_offsets, strict=True):
            bindings[memory] = (arena, offset)
        for value, memory in program.blocks.items():
            block = params.block(value)
            if block is not None:
                bindings[memory] = block
        bindings.update({place.memory: self.nothing for place in program.taps})
        executable = host_graph.instantiate(self.host, bindings, self.threads, self.release_gil)
        sizes = program.record.memories
        return host_runner(
            executable,
            arena,
            [(nbytes_of(v), m) for v, m in zip(program.graph.inputs, program.inputs, strict=True)],
            [
                (sizes[memory].nbytes, memory, offset)
                for memory, offset in zip(program.outputs, program.output_offsets, strict=True)
            ],
            program.scalar_nbytes,
            program.scalar_memory,
        )

    def reside(self, residency: Residency) -> tuple[Program, Residency]:
        """Return the one program that there is: inputs and outputs lie wherever they are bound."""
        asked = [(feed.handle, feed.output) for feed in residency.feeds if feed.in_place]
        unknown = [pair for pair in asked if pair not in self.shared]
        if unknown:
            found = ports_that_share(self.program, unknown)
            self.shared.update({pair: pair in found for pair in unknown})
        return self.program, residency.copying({pair for pair in asked if not self.shared[pair]})

    def extend(self, source: Source, dims: tuple[Dim, ...], options: CompileOptions) -> Narrowing:
        """Return the program of the graph with sizes that follow these dimensions."""
        return HostNarrowing(self, source, dims, options)

    def part(self, model: CompiledGraph, title: str) -> Part:
        """Return the nodes of a model for another graph."""
        program = self.program
        places = zip(program.outputs, program.output_offsets, strict=True)
        aliases = {memory: (ARENA, offset) for memory, offset in places}
        part = part_of(model, title, program.record.nodes, {ARENA: True}, aliases)
        return part._replace(isa=self.isa)

    @property
    def words(self) -> str:
        """str: threads and instruction set."""
        return f"{self.threads} threads, {self.isa}"


class HostNarrowing(Narrowing):
    """One program for all extents of some dimensions: what follows them is worked out for each."""

    def __init__(
        self, code: HostCode, source: Source, dims: tuple[Dim, ...], options: CompileOptions
    ) -> None:
        graph, _ = resized(source, dims)
        optimised = optimise(graph, fuse=options.fuse)
        recorder = HostRecorder(Target(code.threads, code.isa))
        lowered = lower_calls(optimised.graph, optimised.is_set, recorder)
        self.code = code
        self.dims = dims
        self.program = extend(lowered, recorder, code.program)

    def start(self, title: str) -> HostNarrow:
        """Return a program with words of its own, and an executable with an arena of its own."""
        code, program = self.code, self.program
        host = HostProgram(program.record, code.isa, self.dims)
        try:
            arena = buffer.allocate(program.arena_nbytes, zero=False)
        except OutOfMemoryError as error:
            raise named(error, "the arena for extents of", title) from None
        bindings: dict[int, Any] = {ARENA: arena}
        for value, memory in program.blocks.items():
            if value.node.op == "constant":
                bindings[memory] = block_of(np.ascontiguousarray(value.node.attrs["value"]))
        # What it notes where the model's own program notes nothing is of no use to anybody.
        bindings.update({place.memory: code.nothing for place in program.taps})
        executable = host_graph.instantiate(host, bindings, code.threads, code.release_gil)
        return HostNarrow(program, host, executable)


class HostNarrow(Narrow):
    """Words that a model sets, and an executable that reads them in each run."""

    def __init__(self, program: Program, host: HostProgram, executable: HostGraph) -> None:
        self._program = program
        self._host = host
        self._executable = executable

    @property
    def program(self) -> Program:
        """Program: that of all extents."""
        return self._program

    def prepare(self, model: Extended, actual: tuple[int, ...]) -> None:
        """Look for the parameters that are read."""
        if model._extents.running is not self:
            self.places(model, self._program)

    def enter(self, model: Extended, actual: tuple[int, ...]) -> bool:
        """Set the words; let the runner run the executable."""
        if model._extents.own is None:
            model._extents.own = model.executable
        if model.executable is self._executable:
            self._host.set_extents(actual)
            return False
        places = self.places(model, self._program)
        self._host.set_extents(actual)
        model._switch(self._executable, places)
        return False

    def leave(self, model: Extended) -> None:
        """Let the runner run its own executable."""
        if model._extents.own is not None:
            model._switch(model._extents.own, [])


def _words(block: Block) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The memory of a block as an array."""
    return np.asarray(buffer.view(block, 0, (block.nbytes // WORD,), "uint64", "cpu"))
