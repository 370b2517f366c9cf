"""Binding a model's symbolic dimensions to sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastgraph._core.sizes import Size, dimension
from fastgraph.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt
    from onnx import ValueInfoProto

__all__ = ["Dim", "bind_shapes", "check_rank", "declared_dims", "dims_text"]

Dim = int | str | None  # a size, a symbol, or nothing at all


def bind_shapes(
    inputs: Sequence[ValueInfoProto],
    dims: Mapping[str, int] | None,
    shapes: Mapping[str, Sequence[int]] | None,
    values: Mapping[str, npt.NDArray[Any]],
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The static shape of every input, and a line for each dimension that has no size.

    Raises
    ------
    InputError
        `dims` or `shapes` name something that the model does not have, or they or the shapes of
        `values` contradict it or each other.
    """
    for what, given_sizes in (("dims", dims), ("shapes", shapes)):
        if given_sizes is not None and not isinstance(given_sizes, Mapping):
            raise InputError(
                f"{what} is a mapping of names to sizes, not {type(given_sizes).__name__}"
            )
    declared = {info.name: declared_dims(info) for info in inputs}
    sizes: dict[str, Dim] = dict(_checked_dims(dims or {}, declared))
    given = _checked_shapes(shapes or {}, declared)
    for name, shape in given.items():
        _agree(f"shapes[{name!r}]", declared[name], shape, sizes)
    for name, value in values.items():
        if given.setdefault(name, value.shape) != value.shape:
            raise InputError(
                f"values[{name!r}] has shape {value.shape}, but shapes gives it {given[name]}"
            )
        _agree(f"values[{name!r}]", declared[name], value.shape, sizes)
    bound: dict[str, tuple[int, ...]] = {}
    open_symbols: dict[str, list[tuple[str, int]]] = {}
    problems = []
    for name, wanted in declared.items():
        if name in given:
            bound[name] = given[name]
            continue
        if wanted is None:
            problems.append(
                f"input {name!r} declares no shape: pass shapes={{{name!r}: (size, ...)}}"
            )
            continue
        found = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in wanted]
        for axis, dim in enumerate(found):
            if isinstance(dim, str):
                open_symbols.setdefault(dim, []).append((name, axis))
            elif dim is None:
                problems.append(
                    f"axis {axis} of input {name!r} has neither size nor name: "
                    f"pass shapes={{{name!r}: {dims_text(wanted)}}}"
                )
        bound[name] = tuple(dim for dim in found if isinstance(dim, int))
    for symbol, places in open_symbols.items():
        where = " and ".join(f"axis {axis} of input {name!r}" for name, axis in places)
        first = places[0][0]
        problems.append(
            f"dimension {symbol!r} ({where}) has no size: pass dims={{{symbol!r}: size}} "
            f"or shapes={{{first!r}: {dims_text(declared[first] or ())}}}"
        )
    return bound, problems


def declared_dims(info: ValueInfoProto) -> tuple[Dim, ...] | None:
    """The dimensions of an input as the model gives them, or None where it gives no rank."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    found: list[Dim] = []
    for dim in tensor.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value" and dim.dim_value >= 0:
            found.append(dim.dim_value)
        else:  # exporters of old wrote -1 for "any size"
            found.append((dim.dim_param or None) if kind == "dim_param" else None)
    return tuple(found)


def dims_text(wanted: Sequence[Dim]) -> str:
    """Dimensions as one writes a tuple, with ``size`` for those that have neither size nor name."""
    shown = ", ".join(str(d) if d is not None else "size" for d in wanted)
    return f"({shown},)" if len(wanted) == 1 else f"({shown})"


def check_rank(what: str, wanted: Sequence[Dim] | None, sizes: Sequence[int]) -> None:
    """Raise InputError where `what`, a name and its verb, has another number of dimensions."""
    if wanted is not None and len(wanted) != len(sizes):
        raise InputError(
            f"{what} {sizes}, but the model declares {dims_text(wanted)}: "
            f"{len(wanted)} dimensions, not {len(sizes)}"
        )


def _size(value: object, what: str) -> int:
    if isinstance(value, Size):
        return value
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        size = -1
    if size < 0 or isinstance(value, bool):
        raise InputError(f"{what} must be a size of 0 or more, not {value!r}")
    return size


def _named(name: str, size: int) -> int:
    """Return a size that active extents know by the model's own name for it."""
    return dimension(name, size) if size and not isinstance(size, Size) else size


def _checked_dims(
    dims: Mapping[str, int], declared: Mapping[str, tuple[Dim, ...] | None]
) -> dict[str, int]:
    symbols = {d for wanted in declared.values() for d in wanted or () if isinstance(d, str)}
    for name in dims:
        if name not in symbols:
            known = ", ".join(repr(s) for s in sorted(symbols)) or "none"
            raise InputError(
                f"dims names {name!r}, which is no dimension of this model; it has {known}"
            )
    return {name: _named(name, _size(value, f"dims[{name!r}]")) for name, value in dims.items()}


def _checked_shapes(
    shapes: Mapping[str, Sequence[int]], declared: Mapping[str, tuple[Dim, ...] | None]
) -> dict[str, tuple[int, ...]]:
    checked = {}
    for name, shape in shapes.items():
        if name not in declared:
            known = ", ".join(repr(n) for n in declared) or "none"
            raise InputError(
                f"shapes names {name!r}, which is no input of this model; it has {known}"
            )
        if not isinstance(shape, Iterable) or isinstance(shape, str | bytes):
            raise InputError(f"shapes[{name!r}] is a sequence of sizes, not {shape!r}")
        sizes = tuple(_size(s, f"shapes[{name!r}][{i}]") for i, s in enumerate(shape))
        check_rank(f"shapes[{name!r}] is", declared[name], sizes)
        checked[name] = sizes
    return checked


def _agree(
    what: str, declared: Sequence[Dim] | None, shape: Sequence[int], sizes: dict[str, Dim]
) -> None:
    """Hold given sizes against what is declared or already bound; bind symbols by them."""
    for axis, (dim, size) in enumerate(zip(declared or (), shape, strict=False)):
        if isinstance(dim, int) and dim != size:
            raise InputError(f"{what} gives {size} for axis {axis}, which the model fixes at {dim}")
        if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
            raise InputError(
                f"{what} gives {size} for dimension {dim!r} (axis {axis}), "
                f"which is already bound to {sizes[dim]}"
            )
