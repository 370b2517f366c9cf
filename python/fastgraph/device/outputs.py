"""Where the caller wants the outputs of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastgraph._core.buffer import Buffer
from fastgraph._core.checks import check_out, describe
from fastgraph.device.foreign import as_buffer
from fastgraph.errors import InputError

__all__ = ["check_outputs"]

Spec = tuple[str, tuple[int, ...], np.dtype[Any]]


def check_outputs(specs: Sequence[Spec], out: Any, device: str, stream: Any) -> list[Any]:
    """Return what a caller gives for outputs as buffers of the device and host arrays.

    Parameters
    ----------
    specs : sequence of (str, tuple of int, numpy.dtype)
        Name, shape and dtype of each output.
    out : sequence
        An ndarray, a Buffer or an array of another library for each.
    device : str
    stream : Stream or None
        Where the outputs are written; it waits for work of other libraries on their arrays.

    Raises
    ------
    InputError
        There are more or fewer than outputs; one is of another shape, dtype or device, may not be
        written, or has bytes in common with another.
    """
    if isinstance(out, dict | str | bytes) or not isinstance(out, Iterable):
        return check_out(tuple(specs), out)  # which says what is wrong
    given = list(out)
    if len(given) != len(specs) or all(isinstance(x, np.ndarray) for x in given):
        return check_out(tuple(specs), given)
    places = [_place(spec, x, device, stream) for spec, x in zip(specs, given, strict=True)]
    hosted = [i for i, place in enumerate(places) if isinstance(place, np.ndarray)]
    check_out(tuple(specs[i] for i in hosted), [places[i] for i in hosted])
    others = [(specs[i][0], places[i]) for i in range(len(places)) if i not in hosted]
    for i, (name, place) in enumerate(others):
        for before, other in others[:i]:
            if place.ptr < other.ptr + other.nbytes and other.ptr < place.ptr + place.nbytes:
                raise InputError(f"outputs {before!r} and {name!r} were given the same bytes")
    return places


def _place(spec: Spec, x: Any, device: str, stream: Any) -> Any:
    name, shape, dtype = spec
    try:
        place = as_buffer(x, device, stream)
    except InputError as error:
        raise InputError(f"output {name!r}: {error}") from None
    if place.shape != shape or place.dtype != dtype:
        raise InputError(
            f"output {name!r} is {describe(shape, dtype)}, not {describe(place.shape, place.dtype)}"
        )
    # On the cpu a buffer is an array like others.
    return np.asarray(place) if isinstance(place, Buffer) and device == "cpu" else place
