"""Arguments of functions with declared parameters: what fits, and what is done to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph.device.backend import PlaceMaker
from fastgraph.device.foreign import bare, is_foreign
from fastgraph.device.pending import Access, Scalar
from fastgraph.device.values import pattern
from fastgraph.errors import InputError

if TYPE_CHECKING:
    from fastgraph.device.kernel import Declared

__all__ = ["Bound", "Parameter", "bind_arguments", "check_arguments", "take_arguments"]

POINTER_BYTES = 8
# NumPy scalars whose bytes are their value; structured ones stand for structs.
PLAIN_KINDS = frozenset("biufcV")


class Parameter(NamedTuple):
    """One parameter: element type (None: void or unknown), pointer or value, const or not.

    Of a value without a dtype at most the size is known, and perhaps that it is an integer.
    """

    dtype: np.dtype[Any] | None
    pointer: bool
    const: bool
    text: str
    nbytes: int | None = None
    is_integer: bool = False

    @property
    def is_floating(self) -> bool:
        """bool: a value that goes into a floating-point register."""
        return not self.pointer and self.dtype is not None and self.dtype.kind == "f"

    @property
    def is_opaque(self) -> bool:
        """bool: a value whose type is unknown."""
        return not self.pointer and self.dtype is None

    @property
    def size(self) -> int | None:
        """int or None: how many bytes it has, if that is known."""
        if self.pointer:
            return POINTER_BYTES
        return self.nbytes if self.dtype is None else self.dtype.itemsize


class Bound(NamedTuple):
    """Where an argument's bytes come from: ``pointer`` or ``scalar`` of an access, or a value."""

    kind: str
    access: int
    value: np.ndarray[Any, Any] | None = None


def take_arguments(
    name: str,
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    declared: Sequence[Declared | None],
    place: PlaceMaker,
) -> list[Any]:
    """Return `args` with arrays of other libraries as memory of the device, where one is taken.

    Raises
    ------
    InputError
        What `place` raises.
    """
    taken = list(args)
    for i, (parameter, value) in enumerate(zip(parameters, args, strict=False)):
        if (parameter.pointer or parameter.is_opaque) and is_foreign(value):
            said = declared[i]
            written = not parameter.const if said is None else said.writes
            try:
                taken[i] = place(value, written)
            except InputError as error:
                raise InputError(
                    f"kernel {name!r}, argument {i} ({parameter.text}): {error}"
                ) from None
    return taken


def check_arguments(
    name: str, signature: str, parameters: Sequence[Parameter], args: Sequence[Any]
) -> list[Any]:
    """Return for each argument its buffer, its scalar, or its value as a 0-d array.

    Raises
    ------
    InputError
        The number, a type or a value does not fit; the message names the argument.
    """
    if len(args) != len(parameters):
        raise InputError(
            f"kernel {name!r} takes {len(parameters)} arguments ({signature}), not {len(args)}"
        )
    return [
        _check(f"kernel {name!r}, argument {i} ({parameter.text})", parameter, value)
        for i, (parameter, value) in enumerate(zip(parameters, args, strict=True))
    ]


def _check(where: str, parameter: Parameter, value: Any) -> Any:
    if parameter.pointer:
        if not _looks_like_buffer(value):
            raise InputError(f"{where}: a buffer is needed, not {value!r}")
        held = getattr(value, "dtype", None)
        if parameter.dtype is not None and held != parameter.dtype:
            raise InputError(f"{where}: the buffer holds {held}")
        return value
    if parameter.dtype is None:
        return _check_opaque(where, parameter, value)
    if isinstance(value, Scalar):
        if value.where != "node" or value.dtype != parameter.dtype:
            raise InputError(
                f"{where}: {value!r}; a scalar of this type with where='node' is needed"
            )
        return value
    try:
        return pattern(value, parameter.dtype)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _looks_like_buffer(value: Any) -> bool:
    return hasattr(value, "nbytes") and hasattr(value, "device")


def _check_opaque(where: str, parameter: Parameter, value: Any) -> Any:
    """A value of which only the size is known: bytes that say their own type, or a buffer."""
    size = parameter.nbytes
    what = "an integer whose sign is not known" if parameter.is_integer else "of unknown type"
    known = f"{where}: {size} bytes, {what}"
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{where}: {value!r} is masked, so it has no value")
    if isinstance(value, np.ndarray):
        value = bare(value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        dtype = value.dtype
        if dtype.itemsize != size or dtype.kind not in PLAIN_KINDS or dtype.hasobject:
            raise InputError(f"{known}; {value!r} is {dtype} of {dtype.itemsize} bytes")
        if parameter.is_integer and dtype.kind not in "biu":
            raise InputError(f"{known}; {value!r} is {dtype}")
        return np.array(value)
    if isinstance(value, Scalar) and value.where == "node":
        if value.nbytes != size or (parameter.is_integer and value.dtype.kind not in "biu"):
            raise InputError(f"{known}; {value!r} has {value.nbytes} bytes")
        return value
    if parameter.is_integer and isinstance(value, int) and (type(value) is int or size == 1):
        assert size is not None
        # The number itself, for a subclass may compare as it likes; such a one is the same bytes
        # with and without a sign.
        value = int.__pos__(value)
        if 0 <= value < 1 << (8 * size - 1):
            return np.array(value, f"u{size}")
        raise InputError(
            f"{known}; {value!r} can be told with a NumPy integer of that size or with signature="
        )
    if not parameter.is_integer and size == POINTER_BYTES and _looks_like_buffer(value):
        return value
    if isinstance(value, np.ndarray):
        raise InputError(
            f"{known}; an array of shape {value.shape} is no value of it"
            + ("; its one element is x.reshape(())" if value.size == 1 else "")
        )
    raise InputError(
        f"{known}; a NumPy scalar of that size is needed"
        f"{' or a buffer' if size == POINTER_BYTES and not parameter.is_integer else ''}, "
        f"not {value!r}; or declare the types with signature="
    )


def bind_arguments(
    place: PlaceMaker,
    name: str,
    parameters: Sequence[Parameter],
    values: Sequence[Any],
    declared: Sequence[Declared | None],
) -> tuple[tuple[Access, ...], tuple[Bound, ...]]:
    """Return what a call does to which place, and where each argument's bytes come from.

    Parameters
    ----------
    place : callable
        Makes a place of the graph of a buffer, told whether it is written; raises InputError.
    name : str
    parameters : sequence of Parameter
    values : sequence
        What `check_arguments` returned.
    declared : sequence of Declared or None
        What the caller said of each argument.

    Raises
    ------
    InputError
        An argument is said to be written but is const, or is no buffer of this device.
    """
    accesses: list[Access] = []
    bound: list[Bound] = []
    for i, (parameter, value, said) in enumerate(zip(parameters, values, declared, strict=True)):
        where = f"kernel {name!r}, argument {i} ({parameter.text})"
        by_value = isinstance(value, np.ndarray) and value.ndim == 0
        by_node = isinstance(value, Scalar) and value.where == "node"
        if not parameter.pointer and (by_value or by_node):
            if said is not None:
                raise InputError(f"{where}: {said!r} is for buffers")
            if by_value:
                bound.append(Bound("value", -1, value))
            else:
                bound.append(Bound("scalar", len(accesses)))
                accesses.append(Access(value, True, False))
            continue
        # Nobody writes a scalar in memory, whatever the kernel could do with its address.
        writes = not parameter.const
        if parameter.is_opaque and isinstance(value, Scalar):
            writes = False
        reads = True
        if said is not None:
            if said.writes and parameter.const:
                raise InputError(f"{where}: {said!r}, but a pointer to const is only read")
            reads, writes = said.reads, said.writes
        found = value if isinstance(value, np.ndarray) else place(value, writes)
        if isinstance(found, np.ndarray):
            raise InputError(f"{where}: a buffer is needed, not a host array; copy it to one")
        bound.append(Bound("pointer", len(accesses)))
        # Bytes of unknown type say nothing of what the kernel does with an address in them.
        known = said is not None or not parameter.is_opaque
        accesses.append(Access(found, reads, writes, known))
    return tuple(accesses), tuple(bound)
