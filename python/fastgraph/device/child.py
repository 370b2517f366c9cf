"""Graphs inside a graph: what a child brings along, and what the parent puts in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph._core import buffer
from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.record import RecordNode
from fastgraph.device.moving import moved_works
from fastgraph.device.nodes import copy_work
from fastgraph.device.pending import Inlined, Pending, Piece, Scalar, Scratch, Where, Work, place_at
from fastgraph.device.values import pattern
from fastgraph.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from fastgraph.device.builder import DeviceGraphBuilder

__all__ = ["Part", "Port", "inline"]

BYTE = np.dtype("u1")


class Port(NamedTuple):
    """An input, output or scalar of a child: where it lies in a memory of the child's.

    ``default`` is of scalars alone; None where there is none.
    """

    name: str
    memory: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    default: Any = None

    @property
    def nbytes(self) -> int:
        """int: its bytes."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


class Part(NamedTuple):
    """A graph as it goes into another one.

    Attributes
    ----------
    title : str
        What messages call it.
    device : str
    nodes : sequence of RecordNode
    works : sequence of Work
        What each was made of, in the child's places.
    sizes : sequence of int
        Bytes of each memory.
    own : dict of int to bool
        Memories that the parent makes anew; True if their bytes may serve others in between.
    bound : dict of int to (Block, int)
        Memories that stay what they are.
    aliases : dict of int to (int, int)
        Memories that are bytes of another: its number, and where.
    inputs, outputs, scalars : sequence of Port
        What the parent fills, and what it may read.
    named : bool
        Whether inputs may be given by name.
    isa : str or None
    faults : dict of int to tuple of str
        Memories of `own` in which a kernel leaves 1 + the number of the node that met bad data,
        with what messages call each node.
    fixed : callable
        Makes of an argument in `works` what it is now, where a name stands for it.
    locate : callable
        Gives for an argument its (memory, offset), None for what is no memory of the child's own.
    """

    title: str
    device: str
    nodes: Sequence[RecordNode]
    works: Sequence[Work]
    sizes: Sequence[int]
    own: Mapping[int, bool]
    bound: Mapping[int, tuple[Block, int]]
    aliases: Mapping[int, tuple[int, int]]
    inputs: Sequence[Port] = ()
    outputs: Sequence[Port] = ()
    scalars: Sequence[Port] = ()
    named: bool = False
    isa: str | None = None
    faults: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    fixed: Callable[[Any], Any] = lambda value: value
    locate: Callable[[Any], Where | None] = lambda value: None


def inline(part: Part, builder: DeviceGraphBuilder, inputs: Any, name: str) -> Inlined:
    """Return the nodes of a child for a parent, with a place for all bytes that they name.

    Parameters
    ----------
    part : Part
    builder : DeviceGraphBuilder
        Of the parent; gets scratch.
    inputs : sequence, mapping or None
        What fills the inputs, in order or by name.
    name : str
        Of the child's node.

    Raises
    ------
    InputError
        `inputs` do not fit, or the child is of another device.
    UnsupportedError
        The child's memory is laid out for another instruction set than that of an earlier child.
    """
    if part.device != builder.context.device:
        raise InputError(
            f"{part.title} is on {part.device}, this graph on {builder.context.device}"
        )
    given = _by_name(part, inputs)
    others = {child.isa for child in builder._shared.children} - {None, part.isa}
    if part.isa is not None and others:
        raise UnsupportedError(
            f"{part.title} is compiled for {part.isa}, an earlier child for {others.pop()}; one "
            "graph runs with one instruction set"
        )
    pieces: dict[int, tuple[Piece, ...]] = {}
    copies: list[Pending] = []
    faults: list[tuple[Scratch, tuple[str, ...]]] = []
    written = list(_written(part))
    for port in part.scalars:
        place = _scalar(part, builder, port, given[port.name])
        found = Piece(port.offset, port.nbytes, place)
        pieces[port.memory] = (*pieces.get(port.memory, ()), found)
    for port in part.inputs:
        place, copy = _input(part, builder, port, given[port.name], written, name)
        copies += copy
        found = Piece(port.offset, port.nbytes, place)
        pieces[port.memory] = (*pieces.get(port.memory, ()), found)
    for number, size in enumerate(part.sizes):
        if number in pieces:
            continue
        if number in part.own:
            scratch = Scratch((size,), BYTE, part.device, own=not part.own[number])
            pieces[number] = (Piece(0, size, builder._own(scratch)),)
            if number in part.faults:
                faults.append((scratch, part.faults[number]))
        elif number in part.bound:
            block, offset = part.bound[number]
            whole = buffer.view(block, offset, (size,), BYTE, part.device)
            pieces[number] = (Piece(0, size, whole),)
    inlined = Inlined(tuple(part.nodes), (), pieces, copies, (), part.isa, tuple(faults))
    for number, (memory, offset) in part.aliases.items():
        place, at = inlined.find(memory, offset, part.sizes[number])
        whole = place_at(place, at, (part.sizes[number],), BYTE)
        pieces[number] = (Piece(0, part.sizes[number], whole),)
    outputs = []
    for port in part.outputs:
        place, at = inlined.find(port.memory, port.offset, port.nbytes)
        outputs.append(place_at(place, at, port.shape, port.dtype))

    def move(value: Any) -> Any:
        value = part.fixed(value)
        where = part.locate(value)
        if where is None:
            return value
        place, at = inlined.find(*where, value.nbytes)
        return place_at(place, at, value.shape, value.dtype)

    return inlined._replace(outputs=tuple(outputs), works=moved_works(part.works, move))


def _by_name(part: Part, inputs: Any) -> dict[str, Any]:
    """Return what is given for each input and scalar, None for scalars that are left out."""
    listed = ", ".join(f"{p.name} {p.dtype}{list(p.shape)}" for p in part.inputs) or "none"
    if isinstance(inputs, Mapping):
        if not part.named:
            raise InputError(
                f"inputs of {part.title} have no names; give a list of what fills them: {listed}"
            )
        given = dict(inputs)
        known = [port.name for port in (*part.inputs, *part.scalars)]
        if unknown := [key for key in given if key not in known]:
            raise InputError(f"{part.title} has no input {unknown[0]!r}; it has {known}")
    else:
        if inputs is None:
            if part.inputs:
                raise InputError(
                    f"{part.title} has inputs ({listed}), which nothing fills inside another "
                    "graph; give add_child_graph(…, inputs=[…]) what does"
                )
            inputs = ()
        if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
            raise InputError(f"inputs of a child are a list, not a {type(inputs).__name__}")
        if len(inputs) != len(part.inputs):
            raise InputError(
                f"{len(inputs)} inputs were given; {part.title} takes {len(part.inputs)}: {listed}"
            )
        given = {port.name: value for port, value in zip(part.inputs, inputs, strict=True)}
    for port in part.inputs:
        if port.name not in given:
            raise InputError(
                f"input {port.name!r} of {part.title} was not given; it takes {listed}"
            )
    return {port.name: given.get(port.name) for port in (*part.inputs, *part.scalars)}


def _input(
    part: Part,
    builder: DeviceGraphBuilder,
    port: Port,
    value: Any,
    written: Sequence[tuple[int, int, int, int]],
    name: str,
) -> tuple[Any, list[Pending]]:
    """Return the place of an input: what was given, or else scratch and the copy that fills it."""
    try:
        place = builder._place(value)
    except InputError as error:
        raise InputError(f"input {port.name!r} of {part.title}: {error}") from None
    if place.shape != port.shape or place.dtype != port.dtype:
        raise InputError(
            f"input {port.name!r} of {part.title} is {port.dtype}{list(port.shape)}, not "
            f"{place.dtype}{list(place.shape)}"
        )
    if isinstance(place, Buffer | Scratch) and not _touched(part, port, place, written):
        return place, []
    twin = builder._own(Scratch(port.shape, port.dtype, part.device))
    copy = copy_work(builder._place, twin, value)
    return twin, [Pending(f"{name} input {port.name}", copy, ())]


def _touched(
    part: Part, port: Port, place: Any, written: Sequence[tuple[int, int, int, int]]
) -> bool:
    """Whether the child may write to an input, or to the buffer that is to stand for it."""
    for memory, start, stop, address in written:
        if memory == port.memory and start < port.offset + port.nbytes and port.offset < stop:
            return True
        if (
            isinstance(place, Buffer)
            and address
            and address < place.ptr + place.nbytes
            and place.ptr < address + stop - start
        ):
            return True
    return False


def _written(part: Part) -> Iterator[tuple[int, int, int, int]]:
    """Memory, start, stop of all bytes that a node may write, and where the host has them or 0."""

    def operands(nodes: Sequence[RecordNode]) -> Iterator[Any]:
        for node in nodes:
            yield from node.operands
            for body in node.bodies:
                yield from operands(body)

    for operand in operands(part.nodes):
        # Neither read nor written is what nobody said how it is used.
        if operand.nbytes and (operand.writes or not operand.reads):
            memory, start = operand.memory, operand.offset
            if memory in part.aliases:
                memory, base = part.aliases[memory]
                start += base
            address = 0
            if memory in part.bound:
                block, offset = part.bound[memory]
                address = block.ptr + offset + start
            yield memory, start, start + operand.nbytes, address


def _scalar(part: Part, builder: DeviceGraphBuilder, port: Port, value: Any) -> Any:
    """Return the place of a scalar: one of the parent's in memory, or a buffer with its value."""
    value = port.default if value is None else value
    if value is None:
        raise InputError(
            f"scalar {port.name!r} ({port.dtype}) of {part.title} has no default and was not "
            "given; give it by name in inputs={…}"
        )
    if isinstance(value, Scalar | Scratch | Buffer):
        place = builder._place(value)
        if place.dtype != port.dtype or place.nbytes != port.nbytes:
            raise InputError(
                f"scalar {port.name!r} of {part.title} is one {port.dtype}, not {place!r}"
            )
        return place
    try:
        element = pattern(value, port.dtype)
    except InputError as error:
        raise InputError(f"scalar {port.name!r} of {part.title}: {error}") from None
    block = builder.context._backend.allocate_for(
        port.nbytes, "scalar", port.name, "of", part.title
    )
    kept = buffer.view(block, 0, (1,), port.dtype, part.device)
    kept.copy_from(element.reshape(1))
    return kept
