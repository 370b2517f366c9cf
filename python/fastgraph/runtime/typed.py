"""Tensors as bytes: what travels without NumPy, with the dtype by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fastgraph.errors import FastGraphError, InputError
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import check_dtype, is_float
from fastgraph.runtime.info import TensorInfo

__all__ = ["arrays_of", "bytes_of", "param_of"]

Array = np.ndarray[Any, np.dtype[Any]]


def bytes_of(array: Array) -> tuple[bytes, str]:
    """Return the elements of an array in order, little-endian, and the name of their dtype."""
    # All machines that this package runs on are little-endian.
    return array.tobytes(), array.dtype.name


def arrays_of(
    infos: Iterable[TensorInfo], given: Any, parts: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Return typed inputs by name; InputError where they are not those of `infos`.

    `parts` has shapes that inputs may have instead of their own.

    A missing or unknown name is left to the run, which is told all names.
    """
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise InputError(
            f"run_typed takes a list of (name, bytes, dtype), not {type(given).__name__}"
        )
    declared = {info.name: info for info in infos}
    arrays: dict[str, Array] = {}
    for entry in given:
        if not isinstance(entry, tuple | list) or len(entry) != 3:
            raise InputError(f"a typed input is (name, bytes, dtype), not {entry!r:.80}")
        name, data, kind = entry
        if not isinstance(name, str):
            raise InputError(f"the name of a typed input is a str, not {name!r:.80}")
        if name in arrays:
            raise InputError(f"input {name!r} was given twice")
        if name not in declared:
            raise InputError(f"the graph has no input {name!r}; it takes {list(declared)}")
        info, what = declared[name], f"input {name!r}"
        found = dtype_of(what, kind)
        if found != info.dtype:
            raise InputError(f"{what} has dtype {found}, not {info.dtype}; nothing is cast")
        arrays[name] = array_of(what, data, found, info.shape, parts.get(name))
    return arrays


def param_of(info: TensorInfo, data: Any, kind: Any) -> Array:
    """Return a typed parameter in its declared dtype; only floats are converted, to floats."""
    what = f"parameter {info.name!r}"
    found = dtype_of(what, kind)
    if found != info.dtype and not (is_float(found) and is_float(info.dtype)):
        raise InputError(
            f"{what} was given as {found}, declared is {info.dtype}; only float dtypes are "
            "converted, to each other"
        )
    with np.errstate(over="ignore"):
        return convert(array_of(what, data, found, info.shape), info.dtype)


def dtype_of(what: str, kind: Any) -> np.dtype[Any]:
    """Return the dtype of a name; InputError naming `what` for another thing."""
    if not isinstance(kind, str | np.dtype):
        raise InputError(
            f"{what}: a dtype is told by its name, such as 'float32', not {kind!r:.80}"
        )
    try:
        return check_dtype(kind, what)
    except FastGraphError as error:
        raise InputError(str(error)) from None


def array_of(
    what: str,
    data: Any,
    kind: np.dtype[Any],
    shape: tuple[int, ...],
    part: tuple[int, ...] | None = None,
) -> Array:
    """Return `data` as an array of `kind` in `shape`, or `part`; InputError if it does not fit."""
    try:
        view = memoryview(data).cast("B")
    except TypeError as error:
        raise InputError(f"{what}: dense bytes are needed: {error}") from None
    needed = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if part is not None and view.nbytes == kind.itemsize * int(np.prod(part, dtype=np.int64)):
        shape = part
    elif view.nbytes != needed:
        raise InputError(f"{what} was given {view.nbytes} bytes; {kind}{list(shape)} has {needed}")
    return np.frombuffer(view, np.uint8).view(kind).reshape(shape)
