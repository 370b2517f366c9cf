"""Inputs of a model whose values are told when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph._core.checks import as_array, element
from fastgraph.errors import InputError
from fastgraph.onnx.dims import check_rank, declared_dims
from fastgraph.onnx.proto import element_type_name
from fastgraph.onnx.registry import SUPPORTED_NAMES

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ValueInfoProto

__all__ = ["known_values"]


def known_values(
    inputs: Sequence[ValueInfoProto], values: Mapping[str, npt.ArrayLike] | None
) -> dict[str, np.ndarray[Any, Any]]:
    """What `values` gives, as arrays of the declared dtypes; the graph copies what it keeps.

    Raises
    ------
    InputError
        It names no input, or an array has another dtype or number of dimensions than declared.
    """
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"values is a mapping of names to arrays, not {type(values).__name__}")
    declared = {info.name: info for info in inputs}
    found = {}
    for name, value in (values or {}).items():
        if name not in declared:
            known = ", ".join(map(repr, declared)) or "none"
            raise InputError(
                f"values names {name!r}, which is no input of this model; it has {known}"
            )
        dtype = element_type_name(declared[name].type.tensor_type.elem_type)
        if dtype in SUPPORTED_NAMES:  # others are refused with the model, for a better reason
            found[name] = _array(f"values[{name!r}]", value, declared[name], np.dtype(dtype))
    return found


def _array(
    what: str, value: npt.ArrayLike, info: ValueInfoProto, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    if isinstance(value, bool | int | float):
        array = element(value, dtype, what)
    else:
        array = as_array(what, value, (), dtype)
    if array.dtype != dtype:
        raise InputError(
            f"{what} has dtype {array.dtype}, not {dtype}; nothing is cast: use "
            f"array.astype({dtype.name!r})"
        )
    check_rank(f"{what} has shape", declared_dims(info), array.shape)
    return array
