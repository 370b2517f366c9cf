"""Inputs of a device graph: how each is recorded, found again by its key, and filled."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastgraph._core import contributions
from fastgraph._core.buffer import Buffer, as_source
from fastgraph._core.key import Key
from fastgraph._core.keys import KeyWriter
from fastgraph.device.foreign import as_located, bare, describe, is_foreign, to_read
from fastgraph.device.libraries import READERS, Live, ordinal_of
from fastgraph.device.values import check_dtype
from fastgraph.errors import InputError

__all__ = [
    "ARRAYS",
    "CopiedInput",
    "DeviceGraphInput",
    "HostValue",
    "InPlace",
    "InputBuilder",
    "RecordedInput",
    "as_input",
    "check_live",
    "compose_key",
    "record_input",
    "write_inputs",
]

_Array = np.ndarray[Any, np.dtype[Any]]
_Twin = tuple[tuple[int, ...], np.dtype[Any], str]


class InputBuilder(Protocol):
    """What an input asks of the builder that records it."""

    def create_input_buffer(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Return a twin that a replay copies a live array to."""

    def register_in_place_input(self, buffer: Buffer) -> Any:
        """Return an alias of `buffer`, recorded at its own address."""


class DeviceGraphInput(ABC):
    """An input of a device graph, by a rule of its own.

    Subclass it to give `DeviceGraph.create` something else than a buffer, an array, an `InPlace`
    or a `HostValue`: one object that stands for several arrays, for instance.

    Notes
    -----
    The type of an input counts in the key too, and no input's contributions are ever taken for
    those of two.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.device.inputs import DeviceGraphInput, as_input, write_inputs
    >>> class Pair(DeviceGraphInput):
    ...     def __init__(self, a, b):
    ...         self.parts = as_input(a), as_input(b)
    ...     def write_graph_key(self, writer):
    ...         write_inputs(writer, self.parts)
    ...     def allocate_stable(self, builder):
    ...         return tuple(part.allocate_stable(builder) for part in self.parts)
    ...     def live_buffers(self):
    ...         return [array for part in self.parts for array in part.live_buffers()]
    >>> len(Pair(np.zeros(4), np.ones(2)).live_buffers())
    2
    """

    __slots__ = ()

    @abstractmethod
    def write_graph_key(self, writer: KeyWriter) -> None:
        """Write all that a graph recorded for this input depends on, but no values to be copied."""

    @abstractmethod
    def allocate_stable(self, builder: InputBuilder) -> Any:
        """Return what build receives: the same kind, shape and dtype, at addresses that stay.

        Every array to be copied at a replay has a twin made by ``builder.create_input_buffer``;
        memory that the graph reads where it lies goes through
        ``builder.register_in_place_input``. Only shapes are read here, not values.
        """

    def live_buffers(self) -> Sequence[Any]:
        """Return the arrays to copy, in the order in which `allocate_stable` made their twins."""
        return ()


class CopiedInput(DeviceGraphInput):
    """A buffer or array that a replay copies to a twin on the device; made by `as_input`."""

    __slots__ = ("dtype", "shape", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        if isinstance(source, Buffer | np.ndarray):
            self.shape, dtype = source.shape, source.dtype
        else:
            self.shape, dtype = describe(source)
        self.dtype = check_dtype(dtype)

    @property
    def nbytes(self) -> int:
        """int: bytes of the twin."""
        return math.prod(self.shape) * self.dtype.itemsize

    def write_graph_key(self, writer: KeyWriter) -> None:
        """Write shape and dtype."""
        writer.write_shape(self.shape)
        writer.write_dtype(self.dtype)

    def allocate_stable(self, builder: InputBuilder) -> Any:
        """Return the twin."""
        return builder.create_input_buffer(self.shape, self.dtype)

    def live_buffers(self) -> Sequence[Any]:
        """Return the one array."""
        return (self.source,)


class InPlace(DeviceGraphInput):
    """A buffer that the graph reads and writes where it lies, without a copy.

    Parameters
    ----------
    buffer : Buffer, or array of another library
        Its address, shape and dtype count in the key: another buffer makes another graph.

    Raises
    ------
    InputError
        `buffer` is neither, or may not be written.

    Notes
    -----
    An array of another library has been filled when this returns. What that library does to it
    later is ordered with replays only if they go to its stream: ``replay(stream=…)``.

    Examples
    --------
    >>> import fastgraph as fg
    >>> from fastgraph.device.inputs import InPlace
    >>> InPlace(fg.DeviceContext("cpu").create_buffer((2, 3))).buffer.shape
    (2, 3)
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: Any) -> None:
        if not isinstance(buffer, Buffer):
            if not is_foreign(buffer):
                raise InputError(
                    f"InPlace takes a Buffer, not {_a(buffer)}; DeviceContext.to_device makes one"
                )
            buffer = as_located(buffer)
        self.buffer: Buffer = buffer

    def write_graph_key(self, writer: KeyWriter) -> None:
        """Write device, address, shape and dtype."""
        writer.write_str(self.buffer.device)
        writer.write_address(self.buffer.ptr)
        writer.write_shape(self.buffer.shape)
        writer.write_dtype(self.buffer.dtype)

    def allocate_stable(self, builder: InputBuilder) -> Any:
        """Return an alias of the buffer."""
        return builder.register_in_place_input(self.buffer)


class HostValue(DeviceGraphInput):
    """A value that build reads on the host while it records; another value makes another graph.

    Parameters
    ----------
    x : array_like
        An array, a NumPy scalar, or what NumPy makes an array of. An array is not copied here:
        its bytes at the time of ``create`` count. Any dtype without Python objects.

    Raises
    ------
    InputError
        `x` is no such thing, or has a mask.

    Notes
    -----
    Build receives a read-only ndarray of its own. A Python float becomes a float64, as in NumPy;
    0.0 and −0.0 are different values, for their bytes are.

    Examples
    --------
    >>> from fastgraph.device.inputs import HostValue
    >>> HostValue(3.0).allocate_stable(None)
    array(3.)
    """

    __slots__ = ("x",)

    def __init__(self, x: npt.ArrayLike) -> None:
        array = as_source(x)
        if array.dtype.hasobject:
            raise InputError(f"HostValue takes numbers, bytes or text, not {_a(x)}")
        self.x = array

    def write_graph_key(self, writer: KeyWriter) -> None:
        """Write shape, dtype and the bytes as they are now."""
        writer.write_shape(self.x.shape)
        writer.write_dtype(self.x.dtype)
        writer.write_bytes(self.x.tobytes())

    def allocate_stable(self, builder: InputBuilder) -> _Array:
        """Return a read-only copy."""
        copy = np.array(self.x, order="C", subok=False)
        copy.setflags(write=False)
        return copy


# What `as_input` wraps: known by their exact type, so that a key needs no wrapper.
ARRAYS: frozenset[type] = frozenset((Buffer, np.ndarray, CopiedInput))


def as_input(x: Any) -> DeviceGraphInput:
    """Return `x` as an input: a buffer or array as one that is copied, an input as it is.

    Arrays of other libraries count as arrays; `foreign.as_buffer` says which.

    Raises
    ------
    InputError
        `x` is something else, or an array that no buffer can hold a copy of: masked, byte-swapped,
        of a dtype without a place on a device.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.device.inputs import as_input
    >>> as_input(np.zeros((2, 3))).shape
    (2, 3)
    >>> as_input(3.0)
    Traceback (most recent call last):
    fastgraph.errors.InputError: a graph input is a Buffer or an ndarray, not a float; \
HostValue(x) hands a value to build, builder.scalar(…) makes one that each replay may change
    """
    if isinstance(x, DeviceGraphInput):
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise InputError("a graph input has no place for the mask of a masked array")
    if isinstance(x, np.ndarray):
        return CopiedInput(bare(x))
    if isinstance(x, Buffer) or is_foreign(x):
        return CopiedInput(x)
    raise InputError(
        f"a graph input is a Buffer or an ndarray, not {_a(x)}; HostValue(x) hands a value to "
        "build, builder.scalar(…) makes one that each replay may change"
    )


def write_inputs(writer: KeyWriter, inputs: Iterable[Any]) -> None:
    """Write the keys of several inputs, each delimited from the next whatever it writes.

    Parameters
    ----------
    writer : KeyWriter
    inputs : iterable
        What `as_input` takes.

    Raises
    ------
    InputError
        As `as_input`; nothing was written.
    """
    contributions.write_inputs(writer, inputs, ARRAYS, as_input)


def compose_key(build: Any, inputs: tuple[Any, ...], settings: tuple[object, ...]) -> Key:
    """Return the key of a graph.

    Parameters
    ----------
    build : callable
    inputs : tuple
        What `as_input` takes.
    settings : tuple
        All else that tells the graph apart, the device among them.

    Returns
    -------
    Key

    Raises
    ------
    InputError
        `build` is not callable, or as `as_input`.
    """
    return contributions.compose(build, inputs, settings, ARRAYS, as_input)


class RecordedInput(NamedTuple):
    """What a graph remembers of an input, to compare live ones with; made by `record_input`.

    ``twins`` are (shape, dtype, device) of each twin. ``key`` tells all else apart; it is None for
    a copied input, whose twin says everything. ``text`` describes it in messages.
    """

    key: Key | None
    twins: tuple[_Twin, ...]
    text: str


def record_input(source: DeviceGraphInput, stable: Any, twins: Sequence[Any]) -> RecordedInput:
    """Return what a graph remembers of an input; it holds none of the input's arrays.

    Parameters
    ----------
    source : DeviceGraphInput
    stable : object
        What its `allocate_stable` returned.
    twins : sequence of Buffer
        What ``create_input_buffer`` returned meanwhile.

    Raises
    ------
    InputError
        `live_buffers` gives other arrays than twins were made for.
    """
    shapes = tuple((tuple(t.shape), np.dtype(t.dtype), str(t.device)) for t in twins)
    if isinstance(source, CopiedInput):
        return RecordedInput(None, shapes, _describe(source))
    # The array may have changed since; what build saw is what counts.
    known = HostValue(stable) if isinstance(source, HostValue) else source
    recorded = RecordedInput(_key_of(known), shapes, _describe(known))
    for array, twin in _pairs(known, recorded, _describe(source)):
        _check_array(array, twin, _describe(source))
    return recorded


def check_live(
    recorded: Sequence[RecordedInput], live: Sequence[Any], stream: Any = None
) -> list[Buffer | _Array | Live]:
    """Return the arrays to copy to the twins, in the order of the twins.

    Parameters
    ----------
    recorded : sequence of RecordedInput
    live : sequence
        One for each: the same kind, shape and dtype; an InPlace the same address, a HostValue the
        same bytes.
    stream : Stream, optional
        Where the copies go; it waits for what fills arrays of other libraries. Without one the
        host does.

    Raises
    ------
    InputError
        There are too few or too many, or one differs; the message names its position.
    """
    if len(live) != len(recorded):
        raise InputError(
            f"{len(live)} inputs for a graph that was recorded with {len(recorded)}; a replay "
            "takes as many, or none"
        )
    arrays: list[Buffer | _Array | Live] = []
    for position, x in enumerate(live):
        key, twins, _ = expected = recorded[position]
        kind = type(x)
        # The common case, without wrappers and messages.
        if key is None and (kind is np.ndarray or kind is Buffer):
            shape, dtype, device = twins[0]
            if (
                x.shape == shape
                and (x.dtype is dtype or x.dtype == dtype)
                and (kind is np.ndarray or x.device == device)
            ):
                arrays.append(x)
                continue
        elif key is None and kind in READERS:
            shape, dtype, device = twins[0]
            found = READERS[kind].read(x, shape, dtype, ordinal_of(device))
            if found is not None:
                arrays.append(found)
                continue
        try:
            arrays += _match(expected, as_input(x), stream)
        except InputError as error:
            raise InputError(f"input {position}: {error}") from None
    return arrays


def _match(
    expected: RecordedInput, live: DeviceGraphInput, stream: Any
) -> list[Buffer | _Array | Live]:
    given = None if isinstance(live, CopiedInput) else _key_of(live)
    text = _describe(live)
    if given != expected.key:
        raise InputError(_difference(expected.text, text))
    arrays: list[Buffer | _Array | Live] = []
    for array, twin in _pairs(live, expected, text):
        _check_array(array, twin, text)
        if is_foreign(array):
            array = to_read(array, *twin, stream)
            if not isinstance(array, Live):
                _check_array(array, twin, text)  # it may say one thing and hand out another
        arrays.append(array)
    return arrays


def _pairs(
    source: DeviceGraphInput, expected: RecordedInput, text: str
) -> Iterator[tuple[Any, _Twin]]:
    """Return each array that an input gives to copy, and what its twin is."""
    given = source.live_buffers()
    if isinstance(given, str | bytes | Buffer | np.ndarray) or not isinstance(given, Iterable):
        raise InputError(
            f"{text}: live_buffers() gives {_a(given)}; a sequence of arrays is needed"
        )
    # Once: another walk could give others.
    arrays = list(given)
    if len(arrays) != len(expected.twins):
        raise InputError(
            f"{text} gives {len(arrays)} arrays to copy, and create_input_buffer was called "
            f"{len(expected.twins)} times; live_buffers() gives one for each call"
        )
    for array, twin in zip(arrays, expected.twins, strict=True):
        is_plain = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)
        yield bare(array) if is_plain else array, twin


def _check_array(array: Any, twin: _Twin, text: str) -> None:
    """Check that an array fits its twin; `text` describes the input that gave it."""
    shape, dtype, device = twin
    if is_foreign(array):
        found = describe(array)
    elif isinstance(array, np.ma.MaskedArray) or not isinstance(array, Buffer | np.ndarray):
        raise InputError(f"{text} gives {_a(array)} to copy; a Buffer or ndarray is needed")
    else:
        found = array.shape, array.dtype
    if found != (shape, dtype):
        raise InputError(
            f"the graph was recorded with {dtype}{list(shape)}, not {found[1]}{list(found[0])}"
        )
    if isinstance(array, Buffer) and array.device != device:
        raise InputError(f"{array!r} is on {array.device}, the graph on {device}")


def _difference(recorded: str, given: str) -> str:
    if recorded == given:
        return f"the graph was recorded with another {recorded}; what its key holds differs"
    return f"the graph was recorded with {recorded}, not {given}"


def _key_of(source: DeviceGraphInput) -> Key:
    writer = KeyWriter()
    write_inputs(writer, (source,))
    return writer.take_key()


def _describe(source: DeviceGraphInput) -> str:
    if isinstance(source, CopiedInput):
        return f"{source.dtype}{list(source.shape)}"
    if isinstance(source, InPlace):
        buffer = source.buffer
        return f"InPlace {buffer.dtype}{list(buffer.shape)} at {buffer.ptr:#x}"
    if isinstance(source, HostValue):
        return f"HostValue {source.x.dtype}{list(source.x.shape)}"
    return type(source).__name__


def _a(x: object) -> str:
    name = type(x).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
