"""What a kernel is launched with, from the arguments that a caller gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fastgraph.device.arguments import Bound, bind_arguments, check_arguments, take_arguments
from fastgraph.device.backend import PlaceMaker
from fastgraph.device.kernel import Declared
from fastgraph.device.pending import Access
from fastgraph.errors import InputError

if TYPE_CHECKING:
    from fastgraph.device.cuda.function import CudaFunction

__all__ = ["launch_arguments"]

# ("pointer", access) | ("value", bytes) | ("scalar", access, nbytes), as a `Launch` holds them.
Argument = tuple[Any, ...]


def launch_arguments(
    place: PlaceMaker, name: str, f: CudaFunction, args: tuple[Any, ...]
) -> tuple[tuple[Access, ...], tuple[Argument, ...]]:
    """Return what a launch does to which place, and the launch's arguments.

    Parameters
    ----------
    place : callable
        Makes a place of the graph of a buffer, told whether it is written; raises InputError.
    name : str
        For messages.
    f : CudaFunction
    args : tuple
        A buffer for each pointer and array, a number or a scalar for each value; `In`, `Out` and
        `InOut` may stand around buffers.

    Raises
    ------
    InputError
        The number, a type or a value of an argument; what `place` raises.
    """
    declared = [arg if isinstance(arg, Declared) else None for arg in args]
    given = [arg.value if isinstance(arg, Declared) else arg for arg in args]
    bare = take_arguments(name, f.parameters, given, declared, place)
    values = check_arguments(name, f.signature, f.parameters, bare)
    accesses, bound = bind_arguments(place, name, f.parameters, values, declared)
    arguments: list[Argument] = []
    for i, (each, ndim) in enumerate(zip(bound, f.array_ndims, strict=True)):
        if ndim is None:
            arguments.append(_plain(each, accesses))
        else:
            where = f"kernel {name!r}, argument {i} ({f.parameters[i].text})"
            arguments += _array(where, each.access, accesses[each.access].place, ndim)
    return accesses, tuple(arguments)


def _plain(bound: Bound, accesses: tuple[Access, ...]) -> Argument:
    if bound.value is not None:
        return ("value", bound.value.tobytes())
    if bound.kind == "pointer":
        return ("pointer", bound.access)
    return ("scalar", bound.access, accesses[bound.access].place.nbytes)


def _array(where: str, access: int, place: Any, ndim: int) -> list[Argument]:
    """An array as a numba kernel takes it: seven words and more, for a dense one in row order."""
    shape, itemsize = place.shape, place.dtype.itemsize
    if len(shape) != ndim:
        raise InputError(f"{where}: an array of {ndim} axes is needed, the buffer has {len(shape)}")
    strides = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(ndim)]

    def word(number: int) -> Argument:
        return ("value", number.to_bytes(8, "little", signed=True))

    # Whoever owns the memory is none of the kernel's business: two null pointers.
    head = [word(0), word(0), word(math.prod(shape)), word(itemsize)]
    return [*head, ("pointer", access), *map(word, shape), *map(word, strides)]
