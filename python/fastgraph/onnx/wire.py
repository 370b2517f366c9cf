"""Where the large initialisers of a serialised model lie, so that nobody copies them to parse it.

A model is a protobuf message: fields one after another, each a number and a kind in one varint,
then a value, of which texts, bytes and messages say how long they are. Everything is left to
protobuf but this: the bytes of large tensors are taken out of the message that it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Span", "without_large"]

GRAPH, INITIALISER, RAW_DATA = 7, 5, 9
VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
# Of tensors that are smaller nothing is gained, nor of models that have little in them.
LEAST_BYTES = 1 << 14
LEAST_MODEL_BYTES = 1 << 18


class Span(NamedTuple):
    """Bytes of a serialised model."""

    offset: int
    nbytes: int


class Field(NamedTuple):
    """A field of a message: from its tag at `start` to `stop`, its value from `value` on."""

    number: int
    kind: int
    start: int
    value: int
    stop: int


class Unexpected(Exception):
    """Not how a model is laid out; protobuf says what it is."""


def without_large(data: bytes) -> tuple[bytes, dict[int, Span]]:
    """Return a model without the raw data of its large initialisers, and where these are in `data`.

    By the number of the initialiser in the graph. What is laid out in another way than writers do,
    or is no model, is returned whole.
    """
    if len(data) < LEAST_MODEL_BYTES:
        return data, {}
    try:
        return _taken_apart(data)
    except (IndexError, Unexpected):
        return data, {}


def _taken_apart(data: bytes) -> tuple[bytes, dict[int, Span]]:
    graph = _only(data, 0, len(data), GRAPH)
    if graph is None:
        raise Unexpected
    large: dict[int, Span] = {}
    pieces: list[bytes] = []
    number, copied = -1, graph.value
    for field in _fields(data, graph.value, graph.stop):
        if field.number != INITIALISER:
            continue
        if field.kind != SIZED:
            raise Unexpected
        number += 1
        if field.stop - field.start < LEAST_BYTES:
            continue
        raw = _only(data, field.value, field.stop, RAW_DATA)
        if raw is None or raw.stop - raw.value < LEAST_BYTES:
            continue
        large[number] = Span(raw.value, raw.stop - raw.value)
        rest = data[field.value : raw.start] + data[raw.stop : field.stop]
        pieces += [data[copied : field.start], _sized(INITIALISER, rest)]
        copied = field.stop
    if not large:
        return data, {}
    pieces.append(data[copied : graph.stop])
    shorter = _sized(GRAPH, b"".join(pieces))
    return data[: graph.start] + shorter + data[graph.stop :], large


def _only(data: bytes, start: int, stop: int, number: int) -> Field | None:
    """The one field of this number in a message, or None; of two the parser has to choose."""
    found = [field for field in _fields(data, start, stop) if field.number == number]
    if len(found) > 1 or any(field.kind != SIZED for field in found):
        raise Unexpected
    return found[0] if found else None


def _fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    while at < end:
        start = at
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == SIZED:
            length, at = _varint(data, at)
            stop = at + length
        elif kind == VARINT:
            _, stop = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            stop = at + (4 if kind == FIXED32 else 8)
        else:
            raise Unexpected
        if stop > end:
            raise Unexpected
        yield Field(number, kind, start, at, stop)
        at = stop


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that is written from `at` on, seven bits a byte, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise Unexpected


def _sized(number: int, value: bytes) -> bytes:
    """A field of bytes, as it is written."""
    written = bytearray([number << 3 | SIZED])
    length = len(value)
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written) + value
