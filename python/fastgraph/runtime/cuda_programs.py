"""Programs of one graph on a GPU, by what runs keep in handles: lowered once, finished for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastgraph._core.buffer import Buffer
from fastgraph._core.record import Launch, Record, flat_nodes
from fastgraph.device.cuda.batch import load_all
from fastgraph.errors import CompileError
from fastgraph.lower.cuda.call import KernelCode
from fastgraph.lower.cuda.recorder import CudaRecorder, codes_of
from fastgraph.lower.cuda.seam import SCALAR_BYTES
from fastgraph.lower.program import Program
from fastgraph.lower.residency import NOTHING, Residency
from fastgraph.lower.sharing import can_share
from fastgraph.lower.storage import Lowered, Place, nbytes_of

if TYPE_CHECKING:
    from fastgraph.device.cuda.backend import CudaBackend

__all__ = ["Programs", "check_arguments", "put_handles"]

# So many programs of one graph are kept, by which inputs are resident and what is fed.
MOST_RESIDENT = 8


class Programs:
    """The programs of one set of launches.

    Parameters
    ----------
    gpu : CudaBackend
    lowered : Lowered
        Without the nodes that bring inputs in and outputs out.
    recorder : CudaRecorder
    functions : dict of KernelCode to function
        What is loaded; more is added.
    record : callable
        Makes a program of a `Lowered` that is complete.
    """

    def __init__(
        self,
        gpu: CudaBackend,
        lowered: Lowered,
        recorder: CudaRecorder,
        functions: dict[KernelCode, Any],
        record: Callable[[Lowered], Program],
    ) -> None:
        self.gpu = gpu
        self.lowered = lowered
        self.recorder = recorder
        self.functions = functions
        self.record = record
        # The latest programs for runs that keep a state.
        self._resident: dict[Residency, tuple[Program, Residency]] = {}

    def program(self, residency: Residency = NOTHING) -> Program:
        """Return a new program whose inputs and outputs come and go like this."""
        lowered = self.lowered.copy()
        self.recorder.finish(lowered, residency)
        codes = {c: n for c, n in codes_of(lowered).items() if c not in self.functions}
        self.functions.update(load_all(self.gpu.loader, codes))
        program = self.record(lowered)
        check_arguments(program.record, self.gpu)
        return program

    def reside(self, residency: Residency) -> tuple[Program, Residency]:
        """Return the program whose kernels read these inputs where they lie, and that feeds."""
        found = self._resident.get(residency)
        if found is None:
            found = self._reside(residency)
            self._resident[residency] = found
            while len(self._resident) > MOST_RESIDENT:
                self._resident.pop(next(iter(self._resident)), None)
        return found

    def _reside(self, residency: Residency) -> tuple[Program, Residency]:
        graph, roots = self.lowered.graph, self.lowered.roots
        written = {roots.of(out)[0] for _, call in self.lowered.run_calls for out in call.outs}
        taken: set[Place] = set()
        refused = set()
        for feed in residency.feeds:
            if feed.in_place:
                value = graph.outputs[feed.output][1]
                root, _ = roots.of(value)
                if root in written - taken and nbytes_of(root) == nbytes_of(value):
                    taken.add(root)
                else:
                    refused.add((feed.handle, feed.output))
        residency = residency.copying(refused)
        program = self.program(residency)
        kept = dict(program.kept)
        pairs = {
            (program.inputs[feed.handle], kept[feed.handle]): (feed.handle, feed.output)
            for feed in residency.feeds
            if feed.in_place
        }
        apart = {pairs[pair] for pair in pairs.keys() - can_share(program, pairs)}
        return self._reside(residency.copying(apart)) if apart else (program, residency)


def put_handles(
    blocks: list[Any], program: Program, residency: Residency, handles: Mapping[int, Buffer]
) -> None:
    """Let memories be where the handles are that a program reads, or fills, in place."""
    for i, memory in [*program.kept, *((i, program.inputs[i]) for i in residency.inputs)]:
        if i in handles:
            blocks[memory] = handles[i].block, handles[i].offset


def check_arguments(record: Record, gpu: CudaBackend) -> None:
    """Raise CompileError where a launch does not give what its kernel takes: the driver asks not.

    That is a mistake of a lowering, not of the graph's.
    """
    sizes: dict[int, list[int]] = {}
    for node in flat_nodes(record.nodes):
        call = node.call
        if not isinstance(call, Launch):
            continue
        handle = call.function.handle
        if handle not in sizes:
            sizes[handle] = [size for _, size in gpu.loader.parameter_sizes(handle)]
        given = [_size(argument) for argument in call.arguments]
        if given != sizes[handle]:
            raise CompileError(
                f"node {node.name!r} ({node.label}): kernel {call.function.name!r} takes "
                f"parameters of {sizes[handle]} bytes and is given {given}"
            )


def _size(argument: tuple[Any, ...]) -> int:
    if argument[0] == "value":
        return len(argument[1])
    return argument[1].nbytes if argument[0] == "sized" else SCALAR_BYTES
