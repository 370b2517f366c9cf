"""Models on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastgraph._core import buffer, cuda_reserve, cuda_work
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.cuda_finish import FINISH_BYTES, Finish
from fastgraph._core.cuda_runner import CudaRunner, cuda_runner
from fastgraph._core.reserve import Reservation
from fastgraph._core.runner import Runner
from fastgraph.device.backend import named
from fastgraph.device.child import Part
from fastgraph.device.context import DeviceContext
from fastgraph.device.cuda.backend import CudaBackend
from fastgraph.device.cuda.batch import load_all
from fastgraph.device.foreign import as_buffer, is_foreign, settle
from fastgraph.errors import InputError, OutOfMemoryError
from fastgraph.ir.dims import Dim
from fastgraph.ir.graph import Graph
from fastgraph.lower.cuda import Target
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.finish import FINISH, finished
from fastgraph.lower.cuda.order import launch_ns
from fastgraph.lower.cuda.recorder import CudaRecorder
from fastgraph.lower.cuda.seam import count_pieces, move_code, with_pointers
from fastgraph.lower.program import Program, SetProgram, TapPlace, lower_calls, record_calls
from fastgraph.lower.residency import NOTHING, Residency
from fastgraph.lower.storage import Lowered
from fastgraph.lower.taps import HEAD_NBYTES, WORD
from fastgraph.passes import Optimised, optimise
from fastgraph.passes.extents import Source
from fastgraph.runtime.cuda_experts import Residence, check_experts
from fastgraph.runtime.cuda_extents import CudaNarrowing
from fastgraph.runtime.cuda_programs import Programs, check_arguments, put_handles
from fastgraph.runtime.options import CompileOptions
from fastgraph.runtime.part import ARENA, part_of
from fastgraph.runtime.side import Code, Narrowing, Side

if TYPE_CHECKING:
    from fastgraph.runtime.compiled import CompiledGraph
    from fastgraph.runtime.params import ParamSet

__all__ = ["CudaSide"]

_Array = np.ndarray[Any, np.dtype[Any]]
_Policy = Literal["auto"] | bool

FAULT_BYTES = 8
STAGING_ALIGNMENT = 64
HANDLE_ALIGNMENT = 16
# From this estimate on a wait lets other threads go on at once.
LONG_NS = 200_000.0
# Up to this estimate a run tells by itself that it is over: longer ones are not found by it.
SHORT_NS = 50_000.0


class CudaSide(Side):
    """One GPU."""

    threads = 1
    lanes = 4  # One copies in, one computes, one copies out, and one is handed in meanwhile.

    def __init__(self, context: DeviceContext, copy_threads: int, release_gil: _Policy) -> None:
        super().__init__(context)
        self.copy_threads = copy_threads
        self.release_gil = release_gil

    @property
    def gpu(self) -> CudaBackend:
        """CudaBackend: the device."""
        found: Any = self.backend
        return found

    def optimise(self, graph: Graph, options: CompileOptions) -> Optimised:
        """Return a graph in the vocabulary of the device's kernels."""
        if options.isa is not None:
            raise InputError(f"isa {options.isa!r}: instruction sets are chosen for the cpu alone")
        return optimise(graph, fuse=options.fuse, pack=False)

    def code(self, optimised: Optimised, options: CompileOptions) -> CudaCode:
        """Return the program of an optimised graph, its kernels compiled and loaded."""
        target = self.target(options)
        functions: dict[KernelCode, Any] = {}
        recorder = CudaRecorder(
            target, functions.__getitem__, self.context.device, self.gpu.function_work
        )
        lowered = lower_calls(optimised.graph, optimised.is_set, recorder)
        return CudaCode(lowered, recorder, functions, self)

    def target(self, options: CompileOptions) -> Target:
        """Return what lowerings may depend on."""
        gpu = self.gpu.gpu
        return Target(
            self.gpu.loader.arch,
            gpu.compute_capability,
            gpu.attribute("multiprocessor_count"),
            gpu.attribute("max_shared_memory_per_block_optin"),
            gpu.attribute("l2_cache_size"),
            options.tf32,
            self.gpu.blas if options.cublas else None,
        )

    def as_stream(self, stream: Any) -> Any:
        """Return a stream of this device."""
        return self.gpu.as_stream(stream)

    def resident(self, what: str, array: Any) -> tuple[Any, bool]:
        """Return an array as a buffer where it lies on the device; others to be copied."""
        device = self.context.device
        if isinstance(array, Buffer) and array.device != device and array.host_visible:
            return array.numpy(), False
        if not isinstance(array, Buffer) and not is_foreign(array):
            return array, False
        try:
            try:
                found, frozen = as_buffer(array, device), False
            except InputError:
                found, frozen = as_buffer(array, device, readonly=True), True
        except InputError as error:
            raise InputError(f"{what}: {error}") from None
        if isinstance(found, Buffer) and found.ptr % HANDLE_ALIGNMENT:
            raise InputError(
                f"{what}: {found!r} does not lie at a multiple of {HANDLE_ALIGNMENT} bytes, which "
                "kernels read at once; copy it to a buffer of its own"
            )
        return found, frozen

    def on_device(self, name: str, array: Any, stream: Any, written: bool = False) -> Any:
        """Return an array as a buffer where it lies on the device; others as they are."""
        what = f"{'output' if written else 'input'} {name!r}"
        if isinstance(array, Buffer):
            if array.device == self.context.device:
                return array
            if not array.host_visible:
                raise InputError(f"{what}: {array!r} is not on {self.context.device}")
            return np.asarray(array)
        if not is_foreign(array):
            return array
        try:
            return as_buffer(array, self.context.device, stream, readonly=not written)
        except InputError as error:
            raise InputError(f"{what}: {error}") from None

    def let_go(self, given: tuple[Any, Any], stream: Any) -> None:
        """Let other libraries' streams wait for a run that was enqueued on their arrays."""
        inputs, out = given
        settle((*inputs.values(), *out), stream)


def _expected_ns(program: Program) -> float:
    return sum(launch_ns(meta) for meta in program.meta)


class CudaCode(Code):
    """Launches of a run and of setting parameters."""

    def __init__(
        self,
        lowered: Lowered,
        recorder: CudaRecorder,
        functions: dict[KernelCode, Any],
        side: CudaSide,
    ) -> None:
        self.recorder = recorder
        self.functions = functions
        self.side = side
        self.target = recorder.target
        self.setup: SetProgram | None = None
        self.programs = Programs(side.gpu, lowered, recorder, functions, self._record)
        self.program, _ = self.programs.reside(NOTHING)
        self.setup = self.program.setup
        check_arguments(self.setup.record, side.gpu)

    def _record(self, lowered: Lowered) -> Program:
        return record_calls(lowered, self.recorder, self.setup)

    def reside(self, residency: Residency) -> tuple[Program, Residency]:
        """Return the program whose kernels read these inputs where they lie, and that feeds."""
        return self.programs.reside(residency)

    def extend(self, source: Source, dims: tuple[Dim, ...], options: CompileOptions) -> Narrowing:
        """Return what runs with extents of these dimensions."""
        return CudaNarrowing(self, source, dims, options)

    def retake(
        self,
        runner: Runner,
        program: Program,
        residency: Residency,
        params: ParamSet,
        handles: Mapping[int, Buffer],
        title: str,
    ) -> None:
        """Let a runner run another program, over the memory that the host sees of it."""
        gpu = self.side.gpu
        assert isinstance(runner, CudaRunner)
        try:
            arena = runner.arena
            if arena.nbytes < program.arena_nbytes:
                arena = gpu.allocate(program.arena_nbytes)
        except OutOfMemoryError as error:
            raise named(error, "the arena of", title, "with handles") from None
        # Numbers of memories are the same, but for those that lie in handles, which are the last.
        blocks = runner.blocks[: len(self.program.record.memories)]
        blocks[ARENA] = arena, 0
        blocks += [None] * len(program.kept)
        put_handles(blocks, program, residency, handles)
        runner.retake(
            program,
            program.record,
            blocks,
            arena,
            [i in residency.inputs for i in range(len(program.inputs))],
            program.kept,
            not params.unset,
        )

    def to_host(self, what: str, array: Any) -> Any:
        """Return an array on the device as a copy on the host, once its library's work is done."""
        if is_foreign(array):
            try:
                array = as_buffer(array, self.side.context.device, readonly=True)
            except InputError as error:
                raise InputError(f"{what}: {error}") from None
        if isinstance(array, Buffer) and not array.host_visible:
            return array.numpy()
        return array

    def block_of(self, array: _Array) -> Block:
        """Return new memory of the device with the elements of an array."""
        block = self.allocate(array.nbytes)
        if array.nbytes:
            device = self.side.context.device
            buffer.view(block, 0, array.shape, array.dtype, device).copy_from(array)
        return block

    def reserve(self, nbytes: int) -> tuple[Reservation, Block]:
        """Return addresses of the device."""
        return cuda_reserve.reserve(self.side.gpu.gpu, nbytes)

    def copy_of(self, source: Buffer) -> Block:
        """Return new memory of the device with the elements of a buffer."""
        gpu = self.side.gpu
        block = self.allocate(source.nbytes)
        if source.nbytes:
            gpu.gpu.synchronize()  # runs that are under way may write it
            stream = gpu.create_stream()
            target = buffer.view(block, 0, source.shape, source.dtype, gpu.device)
            cuda_work.copy(stream, [(target, source)])
            stream.synchronize()
        return block

    def lend(self, array: _Array) -> Block:
        """Return the same: the device reads no memory of the host's that is not its own."""
        return self.block_of(array)

    def allocate(self, nbytes: int) -> Block:
        """Return memory of the device."""
        return self.side.gpu.allocate(nbytes)

    def in_host(self, source: _Array | Block) -> Block:
        """Return pinned memory with the bytes of an array or a block."""
        gpu = self.side.gpu
        if isinstance(source, Block) and source.memory is not None and source.memory.host_visible:
            return source
        nbytes = source.nbytes
        block = gpu.allocate_host(nbytes)
        target = buffer.view(block, 0, (nbytes,), "uint8", gpu.device)
        if isinstance(source, Block):
            stream = gpu.create_stream()
            found = buffer.view(source, 0, (nbytes,), "uint8", gpu.device)
            cuda_work.copy(stream, [(target, found)])
            stream.synchronize()
        elif nbytes:
            np.asarray(target)[...] = np.frombuffer(source, "u1")
        return block

    def check_experts(self, counts: Sequence[TapPlace]) -> None:
        """Raise UnsupportedError where something else reads them."""
        check_experts(self.program, counts)

    def residence(self, counts: Sequence[TapPlace], title: str) -> Residence:
        """Return what keeps experts in slots of the device and in pinned memory."""
        return Residence(self.side.gpu, self.program, counts, title)

    @cached_property
    def nothing(self) -> Block:
        """Block: no memory, at address 0."""
        return buffer.borrow(0, HEAD_NBYTES, self.side)

    def tap(self, nbytes: int) -> Block:
        """Return memory of the device; that it is there is what kernels see."""
        return self.allocate(nbytes)

    def reader(self, block: Block) -> Callable[[], np.ndarray[Any, np.dtype[np.uint64]]]:
        """Return what copies once the work that we have put on the device is done."""
        device = self.side.context.device
        return buffer.view(block, 0, (block.nbytes // WORD,), "uint64", device).numpy

    def run_set(
        self, setup: SetProgram, bindings: Mapping[int, Block], nodes: Sequence[int]
    ) -> int | None:
        """Launch nodes of the set program one after another and wait."""
        gpu = self.side.gpu
        word = gpu.allocate_host(FAULT_BYTES)
        blocks = {**bindings, setup.fault_memory: word}
        blocks.update(dict.fromkeys(setup.taps, self.nothing))
        stream = gpu.create_stream()
        for number in nodes:
            node = setup.record.nodes[number]
            addresses = [blocks[op.memory].ptr + op.offset for op in node.operands]
            cuda_work.perform(stream, node, addresses, {})
        stream.synchronize()
        fault = int(np.asarray(buffer.view(word, 0, (), "uint64", gpu.device))[()])
        return fault - 1 if fault else None

    def runner(self, params: ParamSet, title: str) -> Runner:
        """Return what runs the program, over memory and a stream of its own."""
        gpu, program = self.side.gpu, self.program
        memories = program.record.memories
        try:
            arena = gpu.allocate(program.arena_nbytes)
        except OutOfMemoryError as error:
            held = params.blocks.nbytes
            what = f"the arena of {title} (its parameters and constants take {held} bytes)"
            raise named(error, what) from None
        sizes = [memories[memory].nbytes for memory in program.inputs]
        offsets = _offsets(program, program.inputs)
        inputs = list(zip(sizes, program.inputs, offsets, strict=True))
        outputs = [
            (memories[memory].nbytes, memory, offset)
            for memory, offset in zip(program.outputs, program.output_offsets, strict=True)
        ]
        try:
            staged = gpu.allocate_host(sum(map(_aligned, sizes)))
            home = gpu.allocate_host(program.outputs_nbytes)
            fault = gpu.allocate_host(FAULT_BYTES)
            finish = self._finish(program)
        except OutOfMemoryError as error:
            raise named(error, "pinned memory for inputs and outputs of", title) from None
        blocks: list[tuple[Block, int] | None] = [None] * len(memories)
        blocks[ARENA] = arena, 0
        blocks[program.fault_memory] = fault, 0
        for block, ports in ((staged, inputs), (home, outputs)):
            for _, memory, offset in ports:
                blocks[memory] = block, offset
        for value, memory in program.blocks.items():
            found = params.block(value)
            blocks[memory] = None if found is None else (found, 0)
        for place in program.taps:
            blocks[place.memory] = self.nothing, 0
        return cuda_runner(
            gpu.gpu,
            gpu.create_stream(),
            program,
            program.record,
            blocks,
            arena,
            staged,
            home,
            fault,
            inputs,
            outputs,
            program.scalar_memory,
            not params.unset,
            gpu.helpers,
            self.side.release_gil,
            _expected_ns(program) >= LONG_NS,
            finish,
            self.side.copy_threads,
        )

    def _finish(self, program: Program) -> Finish | None:
        """Return how a short run of `program` says that it is over."""
        gpu, programmatic = self.side.gpu, self.target.capability >= (9, 0)
        if not programmatic or self.side.release_gil is True or _expected_ns(program) > SHORT_NS:
            return None
        function = load_all(gpu.loader, {FINISH: 0})[FINISH]
        block = gpu.allocate_host(FINISH_BYTES)
        return Finish(lambda record: finished(record, function, FINISH_BYTES), block)

    def part(self, model: CompiledGraph, title: str) -> Part:
        """Return the nodes of a model for another graph, which gives scalars by address."""
        program = self.program
        sizes = {offset: dtype.itemsize for _, dtype, offset, _ in program.scalars}
        nodes = []
        for node in program.record.nodes:
            if count := count_pieces(node):
                code = move_code(count, 0)
                function = load_all(self.side.gpu.loader, {code: 0})[code]
                nodes.append(with_pointers(node, sizes, function))
            else:
                nodes.append(node)
        own = {ARENA: True, program.fault_memory: False, **dict.fromkeys(program.outputs, False)}
        return part_of(model, title, nodes, own, {}, program.fault_memory)

    @property
    def words(self) -> str:
        """str: what the kernels are compiled for, and the GPU's name."""
        return f"{self.target.arch}, {self.side.gpu.gpu.name}"


def _offsets(program: Program, memories: Sequence[int]) -> list[int]:
    """Where inputs lie in their staging."""
    offsets, end = [], 0
    for memory in memories:
        offsets.append(end)
        end += _aligned(program.record.memories[memory].nbytes)
    return offsets


def _aligned(nbytes: int) -> int:
    return -(-nbytes // STAGING_ALIGNMENT) * STAGING_ALIGNMENT
