"""Windows on images on the cpu: what kernels are told of them, patches, folds and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fastgraph.ir.graph import Node
from fastgraph.ir.ops.registry import Windows
from fastgraph.lower.call import Alias, Call
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import KINDS, kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.registry import Target, lowers

__all__ = ["AXES", "filled", "lower_fold", "lower_patches", "lower_pool", "window_words"]

AXES = 3
"""Spatial axes that all kernels walk; images with fewer have axes of one element in front."""

# One core, roughly.
_RUN_NS = 4.0
_FOLD_NS = 0.4
_POOL_NS = 0.5
_ROW_NS = 20.0


def filled(sizes: Sequence[int], one: int = 1) -> tuple[int, ...]:
    """Return `sizes` of spatial axes with those in front that the image has not.

    >>> filled((5, 7)), filled((2,), 0)
    ((1, 5, 7), (0, 0, 2))
    """
    return (*(one for _ in range(AXES - len(sizes))), *sizes)


def window_words(images: int, channels: int, windows: Windows) -> list[int]:
    """Return the words of struct Windows in src/_core/kernels/windows.h."""
    words = [images, channels, *filled(windows.sizes), *filled(windows.kernel)]
    words += [*filled(windows.strides), *filled(windows.dilations)]
    return [*words, *filled(windows.begins, 0), *filled(windows.counts)]


@lowers("patches")
def lower_patches(node: Node, target: Target) -> list[Call | Alias]:
    """Lay out a row for each window; zeros stand where it overhangs."""
    (x,), (y,) = node.inputs, node.outputs
    if y.size == 0:
        return []
    windows: Windows = node.attrs["windows"]
    words = [*window_words(x.shape[0], x.shape[-1], windows), x.dtype.itemsize]
    runs = y.shape[0] * prod(windows.kernel[:-1])
    cost_ns = 10.0 + runs * _RUN_NS + memory_ns(2 * y.nbytes)
    parts = choose_parts(cost_ns, target.threads, y.shape[0])
    return [Call("patches", (y,), (x,), words, parts, cost_ns, nbytes=x.nbytes + y.nbytes)]


@lowers("fold")
@in_float32
def lower_fold(node: Node, target: Target) -> list[Call | Alias]:
    """Add up what lies on each other, a channel at a time."""
    x, y = node.inputs[0], node.outputs[0]
    if y.size == 0:
        return []
    kind = kernel_kind(node, x, ("f32", "f64"))
    units = y.shape[0] * y.shape[1]
    windows: Windows = node.attrs["windows"]
    words = [*window_words(y.shape[0], y.shape[1], windows), len(node.inputs) - 1]
    nbytes = x.nbytes + 2 * y.nbytes
    cost_ns = 10.0 + x.size * _FOLD_NS + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, units)
    return [
        Call(f"fold_{kind}", (y,), tuple(node.inputs), words, parts, cost_ns, flops=x.size,
             nbytes=nbytes)
    ]  # fmt: skip


@lowers("pool")
@in_float32
def lower_pool(node: Node, target: Target) -> list[Call | Alias]:
    """Work out rows of windows, one element of all of them after another."""
    (x,), (y,) = node.inputs, node.outputs
    if y.size == 0:
        return []
    windows: Windows = node.attrs["windows"]
    how = node.attrs["kind"]
    kind = kernel_kind(node, x, ("f32", "f64") if how == "average" else tuple(KINDS.values()))
    words = window_words(x.shape[0], x.shape[1], windows)
    words += [int(node.attrs["count_include_pad"]), *filled(windows.ends, 0)]
    rows = y.size // windows.counts[-1]
    steps = y.size * prod(windows.kernel)
    cost_ns = rows * _ROW_NS + steps * _POOL_NS + memory_ns(x.nbytes + y.nbytes)
    parts = choose_parts(cost_ns, target.threads, rows)
    return [
        Call(f"{how}_pool_{kind}", (y,), (x,), words, parts, cost_ns, flops=steps,
             nbytes=x.nbytes + y.nbytes, label=f"{how}_pool")
    ]  # fmt: skip
