"""What the handles of one executable share: its record, memory, scalars, inputs and lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastgraph._core import buffer, host_graph, isa
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.host_graph import HostGraph, HostProgram
from fastgraph._core.lock import GraphLock
from fastgraph._core.record import Record, RecordNode
from fastgraph.device.context import DeviceContext
from fastgraph.device.inputs import RecordedInput, check_live
from fastgraph.device.orders import bytes_of, copy_blocks, random_order
from fastgraph.device.pending import PointerSlot, Scalar, Work
from fastgraph.device.recording import Recorded, Where
from fastgraph.device.values import pattern
from fastgraph.errors import GraphError, InputError

__all__ = ["GraphState", "Settings", "check_same"]

_T = TypeVar("_T")
_Array = np.ndarray[Any, np.dtype[Any]]
Place = tuple[Block, int]
FOREIGN_KINDS = frozenset(("function", "host", "child", "if", "while", "switch"))


class Settings:
    """What was asked for when the graph was made, and what it was given."""

    __slots__ = ("check", "inputs", "verify")

    def __init__(
        self, check: str | bool, verify: int, inputs: Sequence[RecordedInput] = ()
    ) -> None:
        self.check = check
        self.verify = verify
        self.inputs = tuple(inputs)


class Version(NamedTuple):
    """What an update changes, all at once: a clone sees one version or the next."""

    record: Record
    program: HostProgram
    works: tuple[Work, ...]
    enabled: tuple[bool, ...]
    blocks: tuple[Place, ...]


class GraphState:
    """One executable and what its handles share; it changes under its lock alone."""

    def __init__(
        self,
        context: DeviceContext,
        recorded: Recorded,
        settings: Settings,
        lock: GraphLock | None = None,
        arena: Block | None = None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.outputs = recorded.outputs
        self.names = recorded.names
        self.arena = recorded.arena
        self.private = recorded.private
        # Of callers' memory only the bindings know: an update may let go of it.
        kept = [place for place in recorded.places if not isinstance(place, Buffer | np.ndarray)]
        self.places = kept
        self.located: dict[int, Where] = {id(p): recorded.located[id(p)] for p in kept}
        self.twin_places = recorded.twins
        self.defaults: dict[str, Any] = {
            name: held.default if isinstance(held, Scalar) else held.target
            for name, (held, _) in recorded.names.items()
        }
        self.lock = GraphLock() if lock is None else lock
        self.filled_by: object = None
        self.caches = 0  # how many caches hold it
        self.running = False
        self.verify_left = settings.verify
        self.updates = 0
        blocks = [
            (arena, 0) if arena is not None and number == recorded.arena else place
            for number, place in enumerate(recorded.blocks)
        ]
        program = HostProgram(recorded.record, isa.chosen())
        works = tuple(recorded.works)
        self.note_plain()
        self._bind(program, works, (True,) * len(works), blocks)

    def clone(self) -> GraphState:
        """Return another executable of the same graph, with private memory of its own."""
        twin = GraphState.__new__(GraphState)
        twin.__dict__.update(self.__dict__)
        now = self.version
        twin.lock = GraphLock()
        twin.filled_by = None
        twin.caches = 0
        twin.running = False
        twin.verify_left = self.settings.verify
        blocks = [None if i in self.private else place for i, place in enumerate(now.blocks)]
        twin.note_plain()
        twin._bind(now.program, now.works, now.enabled, blocks)
        return twin

    @property
    def record(self) -> Record:
        """Record: the nodes as they are now."""
        return self.version.record

    @property
    def nbytes(self) -> int:
        """int: bytes of memory of the graph's own."""
        return sum(self.record.memories[number].nbytes for number in self.private)

    def note_plain(self) -> None:
        """Work out `plain`: whether a replay is one run of the executable and nothing else."""
        self.plain = not (
            self.twin_places or self.caches or self.verify_left or self.settings.check is True
        )

    def count_cache(self, step: int) -> None:
        """Note that one more cache holds this graph, or one less."""
        self.caches += step
        self.note_plain()

    def run(
        self,
        token: object,
        live: tuple[Any, ...],
        given: Mapping[str, Any],
        collect: Callable[[], _T] | None = None,
        order: Sequence[int] | None = None,
    ) -> _T | None:
        """Fill the inputs, run every node once, and return ``collect()``, all as one unit."""
        arrays = [np.asarray(x) for x in check_live(self.settings.inputs, live)] if live else []
        values = self.check_names(given)

        def work() -> _T | None:
            executable = self.executable
            if not live and self.twins and self.filled_by is not token:
                raise InputError(
                    "replay() without inputs is for the handle that gave the last ones; another "
                    "caller has filled the inputs since, or nobody has: give them"
                )
            for twin, array in zip(self.twins, arrays, strict=bool(live)):
                twin[...] = array
            if live:
                self.filled_by = token
            self.running = True
            try:
                self._store(values)
                if order is None:
                    self._execute(executable, values)
                else:
                    self.run_in_order(order)
                return None if collect is None else collect()
            finally:
                self._store({name: self.defaults[name] for name in values})
                self.running = False

        return self.executable.locked(work)

    def set(self, given: Mapping[str, Any]) -> None:
        """Change defaults."""
        values = self.check_names(given)

        def work() -> None:
            self.defaults = {**self.defaults, **values}
            self._store(values)

        self.executable.locked(work)

    def check_names(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return values given by name as scalars and pointers take them, or raise InputError."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in self.names:
                known = ", ".join(map(repr, self.names)) or "none"
                raise InputError(f"the graph has no scalar or pointer {name!r}; it has {known}")
            held = self.names[name][0]
            if isinstance(held, Scalar):
                try:
                    values[name] = pattern(value, held.dtype)
                except InputError as error:
                    raise InputError(f"scalar {name!r}: {error}") from None
                continue
            if not isinstance(value, Buffer):
                raise InputError(f"pointer {name!r} takes a Buffer, not {type(value).__name__}")
            if (value.shape, value.dtype, value.device) != (held.shape, held.dtype, held.device):
                raise InputError(
                    f"pointer {name!r} is {held.dtype}{list(held.shape)} on {held.device}, "
                    f"not {value!r}"
                )
            values[name] = value
        return values

    def collect(self, out: Sequence[_Array] | None) -> tuple[_Array, ...]:
        """Return the outputs as arrays of the caller's own, or copied to `out`."""
        arrays = []
        for i, (memory, offset, shape, dtype) in enumerate(self.outputs):
            block, start = self.version.blocks[memory]
            view = np.asarray(buffer.view(block, start + offset, shape, dtype, "cpu"))
            if out is None:
                arrays.append(np.array(view))
            else:
                out[i][...] = view
                arrays.append(out[i])
        return tuple(arrays)

    def replace(
        self,
        record: Record,
        works: tuple[Work, ...],
        enabled: tuple[bool, ...],
        blocks: Sequence[Place],
    ) -> None:
        """Take another record over the same private memory; called by work of `locked`."""
        self._bind(HostProgram(record, isa.chosen()), works, enabled, blocks)
        self.updates += 1

    def run_in_order(self, order: Sequence[int]) -> None:
        """Run the nodes one after another; called by work of `locked`."""
        for node in order:
            self.executable.run_subset([node], held=True)

    def _bind(
        self,
        program: HostProgram,
        works: tuple[Work, ...],
        enabled: tuple[bool, ...],
        places: Sequence[Place | None],
    ) -> None:
        memories = program.record.memories
        blocks = [
            (buffer.allocate(memories[number].nbytes), 0) if place is None else place
            for number, place in enumerate(places)
        ]
        for name, (held, (memory, _)) in self.names.items():
            if isinstance(held, PointerSlot):
                target = self.defaults[name]
                blocks[memory] = target.block, target.offset
        # Foreign code may take long, or wait for another Python thread.
        foreign = any(node.kind in FOREIGN_KINDS for node in program.record.nodes)
        executable = host_graph.instantiate(
            program,
            dict(enumerate(blocks)),
            release_gil=True if foreign else "auto",
            lock=self.lock,
        )
        self.executable = executable
        self.version = Version(program.record, program, works, enabled, tuple(blocks))
        self.twins = [self._view(*place) for place in self.twin_places]
        self.cells = {
            name: self._view(*where, (), held.dtype)
            for name, (held, where) in self.names.items()
            if isinstance(held, Scalar)
        }
        for name, cell in self.cells.items():
            cell[...] = self.defaults[name]

    def _view(self, memory: int, offset: int, shape: tuple[int, ...], dtype: Any) -> _Array:
        block, start = self.version.blocks[memory]
        return np.asarray(buffer.view(block, start + offset, shape, dtype, "cpu"))

    def _store(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            held, (memory, _) = self.names[name]
            if isinstance(held, PointerSlot):
                self.executable.bind(memory, value.block, value.offset, held=True)
            else:
                self.cells[name][...] = value

    def _execute(self, executable: HostGraph, values: Mapping[str, Any]) -> None:
        if self.verify_left:
            self._verify(executable, values)
        elif self.settings.check is True:
            for number, node in enumerate(self.record.nodes):
                try:
                    executable.run_subset([number], held=True)
                except BaseException as error:
                    error.add_note(f"in node {number} {node.name!r} ({node.kind})")
                    raise
        else:
            executable.run(held=True)

    def _verify(self, executable: HostGraph, values: Mapping[str, Any]) -> None:
        """Run, and run again on copies of all memory, node by node in another legal order."""
        memories = self.record.memories
        sizes = [memory.nbytes for memory in memories]
        places = list(self.version.blocks)
        for name, value in values.items():
            if isinstance(value, Buffer):
                places[self.names[name][1][0]] = value.block, value.offset
        copies = copy_blocks(places, sizes)
        executable.run(held=True)
        self.verify_left -= 1
        self.note_plain()
        twin = host_graph.instantiate(self.version.program, dict(enumerate(copies)))
        order = random_order(self.record.dependencies(), self.verify_left)
        for node in order:
            twin.run_subset([node])
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


def check_same(kept: GraphState, again: GraphState, once_more: GraphState) -> None:
    """Raise GraphError unless all were recorded alike, their own memory aside.

    What has another address in each of the two new ones was made by the build itself.
    """
    wanted, seen, third = _described(kept), _described(again), _described(once_more)
    for old, new, other in zip(wanted, seen, third, strict=False):
        if old[:2] != new[:2] or (old.at != new.at and new.at == other.at):
            raise GraphError(
                f"the build function now records {new.name!r} where the cached graph has "
                f"{old.name!r}, or gives it other arguments: it depends on something that the key "
                "does not see (what a mutable object holds); put that in key= or a HostValue"
            )
    if len(seen) != len(wanted):
        raise GraphError(
            f"the build function now records {len(seen)} nodes and memories, the cached graph has "
            f"{len(wanted)}: it depends on something that the key does not see"
        )


class _Described(NamedTuple):
    name: str
    what: object
    at: object = None


def _described(state: GraphState) -> list[_Described]:
    """Every node, memory and named value with what tells it from others."""

    def nodes(some: Sequence[RecordNode]) -> Iterator[_Described]:
        for node in some:
            given = () if node.call is None else repr(getattr(node.call, "arguments", ()))
            what = (node.kind, node.kernel, node.operands, node.params, node.dependencies, given)
            yield _Described(node.name, what)
            for body in node.bodies:
                yield from nodes(body)

    found = list(nodes(state.record.nodes))
    for number, memory in enumerate(state.record.memories):
        block, offset = state.version.blocks[number]
        at = None if number in state.private else block.ptr + offset
        found.append(_Described(memory.name, (memory.kind, memory.nbytes), at))
    for name, value in state.defaults.items():
        if isinstance(value, Buffer):
            found.append(_Described(name, (value.shape, value.dtype), value.ptr))
        else:
            found.append(_Described(name, value.tobytes()))
    return found
