"""Images of other sizes: each axis is interpolated by itself, from a few neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.ops.arguments import flag, in_float32, integers, number, one
from fastgraph.ir.ops.arithmetic import add, multiply
from fastgraph.ir.ops.comparison import where
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.indexing import take
from fastgraph.ir.ops.matmul import matmul
from fastgraph.ir.ops.shaping import transpose
from fastgraph.ir.types import FLOAT64, Shape, check_axis, check_table, is_float

__all__ = ["resize"]

Weights = np.ndarray[Any, np.dtype[Any]]
Places = np.ndarray[Any, np.dtype[np.int64]]

MODES = ("nearest", "linear", "cubic")
TAKEN = 4
"""With more neighbours than this an axis is a product with a matrix."""
MAX_MATRIX = 1 << 22
"""Unless that has more elements, most of which are 0."""

# By mode: where element x of `after` elements lies among `before` ones, `scale` times as many.
Place = Callable[[Weights, float, int, int, tuple[float, float]], Weights]


def half_pixel(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """Elements are areas, whose middles count."""
    return (x + 0.5) / scale - 0.5


def pytorch_half_pixel(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """The same, but a single element is the one before the first."""
    return half_pixel(x, scale, before, after, part) if scale * before != 1 else x - 0.5


def half_pixel_symmetric(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """Areas, of which what is cut off at the end is cut off at both ends."""
    missing = 1 - after / (scale * before)
    return before / 2 * missing + half_pixel(x, scale, before, after, part)


def align_corners(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """First and last elements stay where they are."""
    last = scale * before - 1
    return x * (before - 1) / last if last else 0.0 * x


def asymmetric(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """First elements stay where they are."""
    return x / scale


def tf_crop_and_resize(
    x: Weights, scale: float, before: int, after: int, part: tuple[float, float]
) -> Weights:
    """A part of the axis, whose first and last elements stay where they are."""
    last, (start, end) = scale * before - 1, part
    step = x * (end - start) / last if last else 0.0 * x + (end - start) / 2
    return (step + start) * (before - 1)


PLACES: dict[str, Place] = {
    one.__name__: one
    for one in (
        half_pixel,
        pytorch_half_pixel,
        half_pixel_symmetric,
        align_corners,
        asymmetric,
        tf_crop_and_resize,
    )
}
NEAREST: dict[str, Callable[[Weights], Weights]] = {
    "round_prefer_floor": lambda ratio: ratio > 0.5,
    "round_prefer_ceil": lambda ratio: ratio >= 0.5,
    "floor": lambda ratio: ratio >= 1,
    "ceil": lambda ratio: ratio > 0,
}
"""Whether the right one of two neighbours is taken, by how far on from the left one it is."""


def linear(x: Weights, a: float) -> Weights:
    """The weight of a neighbour at this distance."""
    return np.clip(1 - np.abs(x), 0, 1)


def cubic(x: Weights, a: float) -> Weights:
    """The weight of a neighbour at this distance."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@dataclass(frozen=True)
class Taps:
    """What each element of an axis (a row) takes: elements from before, and how much of each.

    One may be named several times.
    """

    places: Places
    shares: Weights


def taps_of(before: int, place: Weights, scale: float, mode: str, options: dict[str, Any]) -> Taps:
    """Return what elements take of `before` ones, among which they lie at `place`."""
    # The left neighbour is never the place itself, so its distance is in (0, 1].
    left = np.ceil(place) - 1
    ratio = place - left
    if mode == "nearest":
        taps = (left + NEAREST[options["nearest_mode"]](ratio))[:, None]
        shares = np.ones(taps.shape)
    else:
        shrunk = min(scale, 1.0) if options["antialias"] else 1.0
        reach = 1 if mode == "linear" else 2
        first = int(np.floor(-reach / shrunk) + 1)
        steps = np.arange(first, reach + 1 - first - (reach - 1))
        check_table((len(place), len(steps)), FLOAT64, "resize")
        taps = left[:, None] + steps
        kind = linear if mode == "linear" else cubic
        shares = kind((steps - ratio[:, None]) * shrunk, options["cubic_coeff_a"])
        if options["antialias"]:
            shares /= shares.sum(axis=1, keepdims=True)
        if options["exclude_outside"]:
            shares = np.where((taps >= 0) & (taps < before), shares, 0.0)
            shares /= shares.sum(axis=1, keepdims=True)
    count = int((shares != 0).sum(axis=1).max(initial=0))
    order = np.argsort(shares == 0, axis=1, kind="stable")[:, : max(count, 1)]
    # Beyond the ends there is more of the last elements.
    places = np.clip(np.take_along_axis(taps, order, 1), 0, before - 1).astype(np.int64)
    shares = np.take_along_axis(shares, order, 1)
    # A row of fewer elements takes the first in halves, for 0 times another may be nan.
    for k in range(1, places.shape[1]):
        fewer = shares[:, k] == 0
        shares[fewer, 0] /= 2
        places[fewer, k], shares[fewer, k] = places[fewer, 0], shares[fewer, 0]
    return Taps(places, shares)


def along(x: Value, axis: int, taps: Taps) -> Value:
    """Return `x` with the elements of an axis mixed."""
    places, shares = taps.places, taps.shares
    before, (after, count) = x.shape[axis], places.shape
    if count == 1 and (shares == 1).all():
        return take(x, places[:, 0], axis=axis)
    if count > TAKEN and before * after <= MAX_MATRIX:
        mixer = np.zeros((before, after))
        np.add.at(mixer, (places, np.arange(after)[:, None]), shares)
        axes = (*(i for i in range(x.ndim) if i != axis), axis)
        mixed = matmul(transpose(x, axes), mixer.astype(x.dtype))
        return transpose(mixed, tuple(axes.index(i) for i in range(x.ndim)))
    total = None
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    for tap, share in zip(places.T, shares.T, strict=True):
        part = multiply(take(x, tap, axis=axis), share.astype(x.dtype).reshape(shape))
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def one_of(what: str, found: Any, known: Any) -> str:
    """Return `found`; GraphError unless it is one of what is known."""
    if found not in known:
        raise GraphError(f"resize: {what} must be one of {', '.join(known)}, found {found!r}")
    return str(found)


def new_sizes(
    x: Shape, axes: tuple[int, ...], sizes: Any, scales: Any
) -> list[tuple[int, int, float]]:
    """Return axis, new size and scale of each axis that changes."""
    if (sizes is None) == (scales is None):
        raise GraphError("resize: either sizes or scales must be given")
    if any(x[axis] == 0 for axis in axes):
        raise GraphError(f"resize: there is nothing to interpolate in {x}")
    if sizes is not None:
        wanted = integers("resize", "sizes", sizes)
        if len(wanted) != len(axes) or min(wanted, default=1) < 1:
            raise GraphError(f"resize: sizes must be {len(axes)} of 1 or more, found {sizes!r}")
        factors = [size / x[axis] for size, axis in zip(wanted, axes, strict=True)]
    else:
        several = scales if isinstance(scales, tuple | list | np.ndarray) else [scales]
        factors = [number("resize", "scales", one) for one in several]
        if len(factors) != len(axes) or min(factors, default=1) <= 0:
            raise GraphError(f"resize: scales must be {len(axes)} above 0, found {scales!r}")
        wanted = tuple(int(x[axis] * f) for axis, f in zip(axes, factors, strict=True))
        if min(wanted, default=1) < 1:
            raise GraphError(f"resize: scales {scales!r} leave nothing of {x}")
    return list(zip(axes, wanted, factors, strict=True))


@public("ONNX", "float int uint bool")
def resize(
    x: Any,
    sizes: Any = None,
    scales: Any = None,
    axis: Any = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    antialias: bool = False,
    exclude_outside: bool = False,
    cubic_coeff_a: float = -0.75,
    roi: Any = None,
    extrapolation_value: float = 0.0,
) -> Value:
    """Return `x` with other sizes, interpolated between its elements.

    Parameters
    ----------
    x : Value
    sizes : int or tuple of int, optional
        The new size of each of the axes.
    scales : float or tuple of float, optional
        Or how many times the old size each is, cut to a whole number.
    axis : int or tuple of int, optional
        Which axes these are. Without it, all.
    mode : str
        ``"nearest"``, or for floats ``"linear"`` or ``"cubic"``.
    coordinate_transformation_mode : str
        Where a new element lies among the old ones: ``"half_pixel"``, ``"pytorch_half_pixel"``,
        ``"half_pixel_symmetric"``, ``"align_corners"``, ``"asymmetric"`` or
        ``"tf_crop_and_resize"``.
    nearest_mode : str
        Which of two neighbours is the nearest: ``"round_prefer_floor"``, ``"round_prefer_ceil"``,
        ``"floor"`` or ``"ceil"``.
    antialias : bool
        Whether more neighbours are taken where an axis becomes shorter.
    exclude_outside : bool
        Whether neighbours beyond the ends have no weight; else those are the last elements again.
    cubic_coeff_a : float
        The coefficient of cubic interpolation.
    roi : tuple of float, optional
        For ``"tf_crop_and_resize"``: where the part of each axis begins, then where each ends, of
        1.
    extrapolation_value : float
        There, what stands outside of the old elements.

    Returns
    -------
    Value

    Raises
    ------
    GraphError
        For a mode, sizes or scales that do not fit, or another mode than nearest without floats.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> x = np.float32([1, 2])
    >>> reference.apply(lambda x: ops.resize(x, 4), x)
    array([1., 1., 2., 2.], dtype=float32)
    >>> reference.apply(lambda x: ops.resize(x, 4, mode="linear"), x)
    array([1.  , 1.25, 1.75, 2.  ], dtype=float32)
    """
    value = one("resize", x)
    mode = one_of("mode", mode, MODES)
    named = one_of("coordinate_transformation_mode", coordinate_transformation_mode, tuple(PLACES))
    if mode != "nearest" and not is_float(value.dtype):
        raise GraphError(f"resize: {mode} takes floats, found {value.dtype.name}; use astype")
    axes = tuple(range(value.ndim)) if axis is None else integers("resize", "axis", axis)
    axes = tuple(check_axis(one, value.ndim, "resize") for one in axes)
    changed = new_sizes(value.shape, axes, sizes, scales)
    options = {
        "nearest_mode": one_of("nearest_mode", nearest_mode, tuple(NEAREST)),
        "antialias": flag("resize", "antialias", antialias),
        "exclude_outside": flag("resize", "exclude_outside", exclude_outside),
        "cubic_coeff_a": number("resize", "cubic_coeff_a", cubic_coeff_a),
    }
    fill = number("resize", "extrapolation_value", extrapolation_value)
    crops = named == "tf_crop_and_resize"
    bounds = [0.0] * len(axes) + [1.0] * len(axes)
    if crops:
        bounds = [number("resize", "roi", one) for one in (roi if roi is not None else ())]
        if len(bounds) != 2 * len(axes):
            raise GraphError(f"resize: roi must be {2 * len(axes)} numbers, found {roi!r}")

    def build(x: Value) -> Value:
        for i, (axis, size, scale) in enumerate(changed):
            before, part = value.shape[axis], (bounds[i], bounds[i + len(axes)])
            if size == before and scale == 1 and not crops:
                continue
            check_table((size,), FLOAT64, "resize")
            place = PLACES[named](np.arange(size, dtype="f8"), scale, before, size, part)
            x = along(x, axis, taps_of(before, place, scale, mode, options))
            if crops:
                outside = (place < 0) | (place > before - 1)
                shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
                if outside.any():
                    x = filled(x, outside.reshape(shape), fill)
        return x

    return build(value) if mode == "nearest" else in_float32(value, build)


def filled(x: Value, outside: Weights, fill: float) -> Value:
    """Return `x` with a number in some places along an axis."""
    return where(outside, x.graph.constant(np.asarray(fill, x.dtype)), x)
