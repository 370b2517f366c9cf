"""What the handles of one executable share: its record, memory, scalars, inputs and lock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.executable import Cell
from fastgraph._core.record import Record
from fastgraph._core.scalars import ScalarTable
from fastgraph.device.backend import Backend, SharedScratch, backend_of
from fastgraph.device.foreign import as_taken, is_foreign
from fastgraph.device.inputs import RecordedInput, check_live
from fastgraph.device.libraries import Live
from fastgraph.device.moving import moved_works
from fastgraph.device.orders import bytes_of, copy_blocks, random_order
from fastgraph.device.pending import Family, PointerSlot, Scalar, Scratch, Where, Work
from fastgraph.device.ranges import named_range
from fastgraph.device.recording import Recorded
from fastgraph.device.values import pattern
from fastgraph.errors import GraphError, InputError

if TYPE_CHECKING:
    from fastgraph.device.context import DeviceContext

__all__ = ["GraphState", "Place", "Settings", "Version"]

_Array = np.ndarray[Any, np.dtype[Any]]
Place = tuple[Block, int]


class Settings:
    """What was asked for when the graph was made, and what it was given."""

    __slots__ = ("check", "family", "inputs", "verify")

    def __init__(
        self,
        check: str | bool,
        verify: int,
        inputs: Sequence[RecordedInput],
        family: Family,
    ) -> None:
        self.check = check
        self.verify = verify
        self.inputs = tuple(inputs)
        self.family = family  # nodes of it are the graph's


class Version(NamedTuple):
    """What an update changes, all at once: a clone sees one version or the next.

    ``program`` is what a device makes of a record once, for all its executables.
    """

    record: Record
    program: Any
    works: tuple[Work, ...]
    blocks: tuple[Place, ...]


class Values(NamedTuple):
    """What was given by name: bytes of scalars by memory and offset, buffers of pointers."""

    scalars: dict[Where, bytes]
    pointers: dict[str, Buffer]


NOTHING = Values({}, {})


class GraphState(ABC):
    """One executable and what its handles share; it changes under its lock alone.

    What is left to each device: how a record becomes an executable, how inputs and named values
    reach it, how it runs, and how outputs come back.
    """

    executable: Any  # an Executable of its device
    version: Version
    cell: Cell
    filled_by: object
    verify_left: int
    updates: int

    def __init__(
        self,
        context: DeviceContext,
        recorded: Recorded,
        settings: Settings,
        shared: SharedScratch | None = None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.shared = shared if shared is not None else self.backend.new_scratch()
        self.outputs = recorded.outputs
        self.names = recorded.names
        self.arena = recorded.arena
        self.private = recorded.private
        self.faults = recorded.faults
        # Of callers' memory only the bindings know: an update may let go of it.
        own = (place for place in recorded.places if not isinstance(place, Buffer | np.ndarray))
        self.places = [place for place in own if id(place) in recorded.located]
        self.located: dict[int, Where] = {id(p): recorded.located[id(p)] for p in self.places}
        self.isa = recorded.isa
        self.twin_places = recorded.twins
        scalars: dict[str, Scalar] = {}
        self.targets: dict[str, Buffer] = {}  # of pointers
        for name, (held, _) in recorded.names.items():
            if isinstance(held, Scalar):
                scalars[name] = held
            else:
                self.targets[name] = held.target
        self.scalars = ScalarTable(
            {name: (self.names[name][1], held.dtype) for name, held in scalars.items()}, pattern
        )
        arena = self.shared.block
        blocks = [
            (arena, 0) if arena is not None and number == recorded.arena else place
            for number, place in enumerate(recorded.blocks)
        ]
        self._reset()
        program = self._program(recorded.record)
        self._bind(
            recorded.record,
            program,
            recorded.works,
            self._allocated(recorded.record, blocks),
            {self.names[name][1]: held.default.tobytes() for name, held in scalars.items()},
        )

    def clone(self) -> GraphState:
        """Return another executable of the same graph, with private memory of its own."""
        twin = type(self).__new__(type(self))
        while True:
            twin.__dict__.update(self.__dict__)
            values = self.executable.scalar_values()
            # Pointers, nodes and values change together; here they are read one after another.
            if self.targets is twin.targets and self.version is twin.version:
                break
        now = twin.version
        twin.shared = self.backend.new_scratch()
        blocks = self._allocated(
            now.record, [None if i in self.private else b for i, b in enumerate(now.blocks)]
        )
        twin._reset()
        twin._bind(now.record, now.program, twin._own_twins(now, blocks), blocks, values)
        return twin

    def _own_twins(self, origin: Version, blocks: Sequence[Place]) -> tuple[Work, ...]:
        """In a clone: let works and pointers that name twins of `origin` name those in `blocks`."""
        stand_ins: dict[int, tuple[Scratch, Block]] = {}
        for number in {memory for memory, *_ in self.twin_places}:
            size = (origin.record.memories[number].nbytes,)
            stand_in = Scratch(size, np.dtype("u1"), self.context.device, own=True)
            stand_ins[id(origin.blocks[number][0])] = stand_in, blocks[number][0]
            self.places = [*self.places, stand_in]
            self.located = {**self.located, id(stand_in): (number, 0)}
        if not stand_ins:
            return origin.works

        def move(value: Any) -> Any:
            if isinstance(value, Buffer) and id(value.block) in stand_ins:
                stand_in = stand_ins[id(value.block)][0]
                return stand_in.view(value.offset, value.shape, value.dtype)
            return value

        for name, value in self.targets.items():
            if id(value.block) in stand_ins:
                block = stand_ins[id(value.block)][1]
                own = buffer.view(block, value.offset, value.shape, value.dtype, value.device)
                self.targets = {**self.targets, name: own}
        return moved_works(origin.works, move)

    @property
    def backend(self) -> Backend:
        """Backend: the device."""
        return backend_of(self.context.device)

    @property
    def record(self) -> Record:
        """Record: the nodes as they are now."""
        return self.version.record

    @property
    def nbytes(self) -> int:
        """int: bytes of memory of the graph's own."""
        return sum(self.record.memories[number].nbytes for number in self.private)

    @property
    def defaults(self) -> dict[str, Any]:
        """dict: what each scalar, as a 0-d array, and each pointer is by default."""
        values = self.executable.scalar_values()
        return {
            name: np.frombuffer(values[where], held.dtype).reshape(())
            if isinstance(held, Scalar)
            else self.targets[name]
            for name, (held, where) in self.names.items()
        }

    @property
    @abstractmethod
    def running(self) -> bool:
        """bool: a replay is under way."""

    @property
    def rebuilds(self) -> int:
        """int: how often an update took a new executable of the driver."""
        return 0

    def note_plain(self) -> None:
        """Work out whether a replay is one run of the executable and nothing else."""
        self.cell.set(self._plain(self.executable))

    def _plain(self, executable: Any) -> Any:
        more = self.twin_places or self.verify_left or self.settings.check is True
        return None if more else executable

    def run(
        self,
        token: object,
        live: tuple[Any, ...],
        given: Mapping[str, Any],
        stream: Any = None,
        collects: bool = False,
        out: Sequence[Any] | None = None,
        order: Sequence[int] | None = None,
    ) -> tuple[_Array, ...]:
        """Fill the inputs and run every node once; as one unit with `collect`, if that is asked."""
        stream = self.stream_of(stream)
        # The arrays last: what else is checked may run code that changes them.
        values = self.check_names(given, stream) if given else NOTHING
        arrays = check_live(self.settings.inputs, live, stream) if live else None
        return self.executable.locked(
            self._run, token, arrays, values, stream, collects, out, order
        )

    def _run(
        self,
        token: object,
        arrays: list[Buffer | _Array | Live] | None,
        values: Values,
        stream: Any,
        collects: bool,
        out: Sequence[Any] | None,
        order: Sequence[int] | None,
    ) -> tuple[_Array, ...]:
        """`run` with all that was given checked; called by work of `locked`."""
        if arrays is None and self.twin_places and self.filled_by is not token:
            raise InputError(
                "replay() without inputs is for the handle that gave the last ones; another "
                "caller has filled the inputs since, or nobody has: give them"
            )
        self._begin(stream)
        if arrays is not None:
            self.filled_by = None  # an interrupt may leave them half filled
            self._fill(arrays, stream)
            self.filled_by = token
        found: tuple[_Array, ...] = self.executable.run_with(
            self._aims(values.pointers),
            values.scalars,
            self._work,
            values,
            stream,
            collects,
            out,
            order,
        )
        return found

    def _work(
        self,
        values: Values,
        stream: Any,
        collects: bool,
        out: Sequence[Any] | None,
        order: Sequence[int] | None,
    ) -> tuple[_Array, ...]:
        """The run itself, while the executable has the values of it."""
        if order is not None:
            self.run_in_order(order)
        elif self.verify_left:
            self._verify(values, stream)
        elif self.settings.check is True:
            self._run_one_by_one()
        else:
            self._execute(stream)
        return self.collect(out, stream) if collects else ()

    def _aims(self, targets: Mapping[str, Buffer]) -> dict[int, Place]:
        """Return what pointers point to by the memories that they are in the record."""
        return {
            self.names[name][1][0]: (target.block, target.offset)
            for name, target in targets.items()
        }

    def set(self, given: dict[str, Any]) -> None:
        """Change defaults."""
        scalars = self.scalars.read(given)
        if scalars is None:
            values = self.check_names(given, self.stream_of(None))
            self.executable.locked(self._set, values)
        else:
            self.executable.set_scalars(scalars)

    def _set(self, values: Values) -> None:
        targets = {**self.targets, **values.pointers}
        self.executable.set_values(
            self._aims(values.pointers), values.scalars, self, {"targets": targets}
        )

    def check_names(self, given: Mapping[str, Any], stream: Any = None) -> Values:
        """Return values given by name as scalars and pointers take them, or raise InputError."""
        scalars: dict[Where, bytes] = {}
        pointers: dict[str, Buffer] = {}
        for name, value in given.items():
            if name not in self.names:
                known = ", ".join(map(repr, self.names)) or "none"
                raise InputError(f"the graph has no scalar or pointer {name!r}; it has {known}")
            held = self.names[name][0]
            if isinstance(held, Scalar):
                scalars |= self.scalars.read({name: value}) or {}
                continue
            if is_foreign(value):
                value = as_taken(value, held.device, stream)
            if not isinstance(value, Buffer):
                raise InputError(f"pointer {name!r} takes a Buffer, not {type(value).__name__}")
            if (value.shape, value.dtype, value.device) != (held.shape, held.dtype, held.device):
                raise InputError(
                    f"pointer {name!r} is {held.dtype}{list(held.shape)} on {held.device}, "
                    f"not {value!r}"
                )
            pointers[name] = value
        return Values(scalars, pointers)

    def run_in_order(self, order: Sequence[int]) -> None:
        """Run the nodes one after another and wait; called by work of `locked`."""
        for node in order:
            self._step(self.executable, node)

    @abstractmethod
    def collect(self, out: Sequence[Any] | None, stream: Any) -> tuple[_Array, ...]:
        """Wait; return the outputs as arrays of the caller's own, or copied to `out`.

        Parameters
        ----------
        out : sequence of ndarray or Buffer, optional
            What `check_outputs` returned.
        stream : Stream or None
        """

    @abstractmethod
    def upload(self) -> None:
        """Bring the executable to the device."""

    @abstractmethod
    def stream_of(self, stream: Any) -> Any:
        """Return the stream that a call means by `stream`."""

    @abstractmethod
    def _program(self, record: Record) -> Any:
        """Return what is made of a record once, for all its executables."""

    @abstractmethod
    def _instantiate(
        self,
        program: Any,
        record: Record,
        blocks: Sequence[Place],
        scalars: dict[Where, bytes],
    ) -> Any:
        """Return an executable over memories, under the lock of this graph."""

    @abstractmethod
    def replace(self, record: Record, works: Sequence[Work], blocks: Sequence[Place]) -> None:
        """Take another record over the same private memory, all or nothing, in one step.

        Called by work of `locked`.
        """

    @abstractmethod
    def _attached(self, version: Version) -> dict[str, Any]:
        """Return what fills inputs and gives outputs in a version: attributes of this state."""

    @abstractmethod
    def _begin(self, stream: Any) -> None:
        """Let what is enqueued on `stream` from now on come after all that was enqueued."""

    @abstractmethod
    def _fill(self, arrays: list[Any], stream: Any) -> None:
        """Copy live arrays to the twins."""

    @abstractmethod
    def _execute(self, stream: Any) -> None:
        """Run every node once, or enqueue that."""

    @abstractmethod
    def _finish(self, stream: Any) -> None:
        """Run every node once and wait."""

    @abstractmethod
    def _run_node(self, executable: Any, node: int) -> None:
        """Run one node of an executable of this record and wait."""

    @abstractmethod
    def _values_now(self) -> dict[Where, bytes]:
        """Return the values that scalars have in the run that is under way."""

    def _reset(self) -> None:
        """What a new executable starts with."""
        self.cell = Cell(None, self.scalars)
        self.filled_by = None
        self.verify_left = self.settings.verify
        self.updates = 0

    def _allocated(self, record: Record, places: Sequence[Place | None]) -> list[Place]:
        """Return `places` with memory of this graph's own where there is None."""
        blocks = []
        for memory, place in zip(record.memories, places, strict=True):
            if place is None:
                title = self.settings.family.title
                if memory.kind == "faults":
                    block = self.backend.allocate_host(memory.nbytes)
                else:
                    block = self.backend.allocate_for(memory.nbytes, memory.name, "of", title)
                place = block, 0
            blocks.append(place)
        return blocks

    def placed(self, blocks: Sequence[Place]) -> list[Place]:
        """Return where memories lie, named pointers where their defaults are."""
        found = list(blocks)
        for name, (held, (memory, _)) in self.names.items():
            if isinstance(held, PointerSlot):
                target = self.targets[name]
                found[memory] = target.block, target.offset
        return found

    def _bind(
        self,
        record: Record,
        program: Any,
        works: Sequence[Work],
        blocks: Sequence[Place],
        scalars: dict[Where, bytes],
    ) -> None:
        """Make an executable over memories, named pointers where their defaults are."""
        placed = self.placed(blocks)
        self.executable = self._instantiate(program, record, placed, scalars)
        self.version = Version(record, program, tuple(works), tuple(placed))
        self.__dict__.update(self._attached(self.version))
        self.note_plain()

    def _step(self, executable: Any, node: int) -> None:
        with named_range(self.record.nodes[node].name):
            self._run_node(executable, node)

    def _run_one_by_one(self) -> None:
        for number, node in enumerate(self.record.nodes):
            try:
                self._step(self.executable, number)
            except BaseException as error:
                error.add_note(f"in node {number} {node.name!r} ({node.kind})")
                raise

    def _verify(self, values: Values, stream: Any) -> None:
        """Run, and run again on copies of all memory, node by node in another legal order."""
        memories = self.record.memories
        sizes = [memory.nbytes for memory in memories]
        places = self.placed(self.version.blocks)
        for name, value in values.pointers.items():
            places[self.names[name][1][0]] = value.block, value.offset
        copies = copy_blocks(places, sizes, self.backend)
        twin = self._instantiate(self.version.program, self.record, copies, self._values_now())
        self._finish(stream)
        self.verify_left -= 1
        self.note_plain()
        order = random_order(self.record.dependencies(), self.verify_left)
        for node in order:
            self._step(twin, node)
        spans = [
            (number, 0, size)
            for number, size in enumerate(sizes)
            if memories[number].kind == "buffer"
        ]
        for number, offset, shape, dtype in self.outputs:
            spans.append((number, offset, int(np.prod(shape, dtype=object)) * dtype.itemsize))
        for number, offset, size in spans:
            (block, start), (other, at) = places[number], copies[number]
            seen = bytes_of(block, start + offset, size)
            wanted = bytes_of(other, at + offset, size)
            if not np.array_equal(seen, wanted):
                where = int(np.flatnonzero(seen != wanted)[0])
                raise GraphError(
                    f"verify: byte {where} of {memories[number].name!r} is {seen[where]} after the "
                    f"replay and {wanted[where]} after running node by node in the order "
                    f"{order[:20]}{'…' if len(order) > 20 else ''}: an edge is missing, or a "
                    "kernel does not give the same result twice"
                )
