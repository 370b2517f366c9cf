"""Runs with active extents on a GPU: a program for each class of extents, updated for each one."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fastgraph._core.buffer import Block
from fastgraph._core.cuda_runner import CudaRunner
from fastgraph._core.sizes import activated
from fastgraph.device.backend import named
from fastgraph.device.cuda.batch import load_all
from fastgraph.errors import OutOfMemoryError, UnsupportedError
from fastgraph.ir.dims import Dim, follows
from fastgraph.lower.cuda.extents import SizedRecord, bounds_of, idle_code
from fastgraph.lower.cuda.recorder import CudaRecorder
from fastgraph.lower.extension import known_of
from fastgraph.lower.program import Program, lower_calls, record_beside
from fastgraph.lower.residency import Residency
from fastgraph.lower.storage import Lowered
from fastgraph.lower.strides import is_prefix
from fastgraph.passes import optimise
from fastgraph.passes.extents import Source, resized
from fastgraph.runtime.cuda_programs import Programs, put_handles
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.part import ARENA
from fastgraph.runtime.side import Narrow, Narrowing

if TYPE_CHECKING:
    from fastgraph.runtime.cuda import CudaCode
    from fastgraph.runtime.extents import Extended

__all__ = ["CudaNarrow", "CudaNarrowing"]

LOGGER = logging.getLogger("fastgraph")

Extents = tuple[int, ...]


class CudaNarrowing(Narrowing):
    """Programs for extents of some dimensions, by the largest ones that each is for.

    Raises
    ------
    UnsupportedError
        Operators cannot follow; each is named.
    """

    def __init__(
        self, code: CudaCode, source: Source, dims: tuple[Dim, ...], options: CompileOptions
    ) -> None:
        self.code = code
        # A library's products are of one shape.
        self.recorder = CudaRecorder(
            replace(code.target, library=None),
            code.functions.__getitem__,
            code.recorder.device,
            code.recorder.function_work,
        )
        self.source = source
        self.dims = dims
        self.options = options
        self._classes: dict[Extents, Programs] = {}
        self._constants: dict[int, tuple[Program, list[tuple[int, Block]]]] = {}
        # An operator that cannot follow is refused for the one extent that it could do, too.
        self._lowered({dim: dim[1] for dim in dims})

    def of(self, actual: Extents) -> Programs:
        """Return the programs for such extents."""
        bounds = bounds_of(self.dims, actual)
        found = self._classes.get(bounds)
        if found is None:
            uppers = tuple([upper for _, upper in self.dims])
            try:
                found = self._made(bounds)
            except UnsupportedError:
                # Shapes are checked as numbers: a constant may ask for more than there is of few.
                if bounds == bounds_of(self.dims, uppers):
                    raise
                found = self.of(uppers)
            found = self._classes.setdefault(bounds, found)
        return found

    def _made(self, bounds: Extents) -> Programs:
        code, own = self.code, self.code.program
        # Of one row sizes are numbers, as in the graph that is written for it.
        active = dict(zip(self.dims, bounds or (1,) * len(self.dims), strict=True))
        lowered = self._lowered(active, single=not bounds)
        known = known_of(lowered, own, self.recorder.identity)
        lowered.wholes = [value.shape for _, value in own.graph.outputs]
        for value, shape in zip(lowered.graph.inputs, self.source.shapes, strict=True):
            sizes = tuple([activated(n, active) for n in shape])
            if follows(sizes) and is_prefix(sizes, value.shape):
                lowered.reads[value] = prod(sizes) * value.dtype.itemsize

        def record(complete: Lowered) -> Program:
            program = record_beside(complete, self.recorder, own, known)
            functions = code.functions
            idle = idle_code()
            if idle not in functions:
                functions.update(load_all(code.side.gpu.loader, {idle: 0}))
            program.following = SizedRecord(program.record, self.dims, functions[idle])
            return program

        return Programs(code.side.gpu, lowered, self.recorder, code.functions, record)

    def _lowered(self, active: dict[Dim, int], single: bool = False) -> Lowered:
        graph, _ = resized(self.source, active)
        optimised = optimise(graph, fuse=self.options.fuse, pack=False, single=single)
        return lower_calls(optimised.graph, optimised.is_set, self.recorder)

    def constants(self, program: Program) -> list[tuple[int, Block]]:
        """Return the constants that a program has for itself, and their memories."""
        found = self._constants.get(id(program))
        if found is None:
            blocks = [
                (memory, self.code.block_of(np.ascontiguousarray(value.node.attrs["value"])))
                for value, memory in program.blocks.items()
                if value.node.op == "constant"
            ]
            found = self._constants[id(program)] = program, blocks
        return found[1]

    def start(self, title: str) -> CudaNarrow:
        """Return what one model has of it."""
        return CudaNarrow(self, title)


class CudaNarrow(Narrow):
    """The programs of one model for extents of some dimensions."""

    resides = True

    def __init__(self, narrowing: CudaNarrowing, title: str) -> None:
        self._narrowing = narrowing
        self._title = title
        self._arena: Block | None = None
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """Program: that of the extents set last."""
        assert self._program is not None
        return self._program

    def prepare(self, model: Extended, actual: Extents) -> None:
        """Compile what runs with these extents are of, without the lock."""
        program, _ = self._narrowing.of(actual).reside(model._asked())
        self._narrowing.constants(program)
        self.places(model, program)

    def enter(self, model: Extended, actual: Extents) -> bool:
        """Let runs be those; with the lock. Return whether handles and feeds are to be told anew.

        Raises
        ------
        OutOfMemoryError, DriverError, InputError
            Everything is as it was; InputError tells of a run that nobody waited for.
        """
        runner = model._runner
        assert isinstance(runner, CudaRunner)
        before = runner.owner
        self.settle(model, actual)
        return runner.owner is not before

    def settle(self, model: Extended, actual: Extents) -> Residency:
        """The same, also where inputs are resident that were not; return which are, and feeds."""
        program, residency = self._narrowing.of(actual).reside(model._asked())
        record = program.following.at(actual)
        runner, state, params = model._runner, model._state, model._params
        assert isinstance(runner, CudaRunner)
        own = self._narrowing.code.program.record.memories
        blocks = runner.blocks
        if runner.owner is not program:
            blocks = blocks[: len(own)] + [None] * (len(program.record.memories) - len(own))
            places = (*self._narrowing.constants(program), *self.places(model, program))
            for memory, block in places:
                blocks[memory] = block, 0
            for place in program.taps:
                if blocks[place.memory] is None:
                    blocks[place.memory] = self._narrowing.code.nothing, 0
            handles = {i: handle.buffer for i, handle in state.handles.items()}
            put_handles(blocks, program, residency, handles)
            blocks[ARENA] = self._arena_of(runner, program), 0
        runner.retake(
            program,
            record,
            blocks,
            runner.arena,
            [i in residency.inputs for i in range(len(program.inputs))],
            program.kept,
            not params.unset,
        )
        self._program = program
        # What has been resident stays so: its memory is no longer where inputs are staged.
        model._resident = residency.inputs
        following = program.following.n_following
        LOGGER.debug(
            "%s: extents %s, %d of %d nodes follow", self._title, actual, following,
            len(record.nodes),
        )  # fmt: skip
        return residency

    def _arena_of(self, runner: CudaRunner, program: Program) -> Block:
        """The memory of values inside: the model's own where it is large enough."""
        if runner.arena.nbytes >= program.arena_nbytes:
            return runner.arena
        if self._arena is None or self._arena.nbytes < program.arena_nbytes:
            try:
                self._arena = self._narrowing.code.side.gpu.allocate(program.arena_nbytes)
            except OutOfMemoryError as error:
                raise named(error, "the arena for extents of", self._title) from None
        return self._arena

    def leave(self, model: Extended) -> None:
        """Let runs be the model's own again; with the lock."""
        code, title = self._narrowing.code, self._title
        program, residency = code.reside(model._asked())
        handles = {i: handle.buffer for i, handle in model._state.handles.items()}
        code.retake(model._runner, program, residency, model._params, handles, title)
        model._program, model._resident = program, residency.inputs
        self._program = None
