"""Windows on images on cuda: convolutions, patches, folds and pools."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from fastgraph.ir.graph import Node
from fastgraph.ir.ops.registry import Windows
from fastgraph.lower.call import Alias
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.dtypes import ctype
from fastgraph.lower.cuda.given import refuse, words
from fastgraph.lower.cuda.launch import call, i32, i64
from fastgraph.lower.cuda.matmul import NOTHING, Activation, Residual, flag
from fastgraph.lower.cuda.registry import Target, lowers
from fastgraph.lower.cuda.text import source

__all__ = ["lower_conv", "lower_fold", "lower_patches", "lower_pool"]

AXES = 3
THREADS = 256
# Channels and positions of a block of a convolution, and its step along the elements of windows.
TILE, STEP = 64, 16
# What elements that only move are moved as, by their size.
WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def filled(sizes: tuple[int, ...], one: int = 1) -> tuple[int, ...]:
    """Return `sizes` with those axes in front that the image has not."""
    return (*(one for _ in range(AXES - len(sizes))), *sizes)


def window_words(windows: Windows) -> Argument:
    """Return struct Windows of sources/windows.cuh."""
    fields = (windows.sizes, windows.kernel, windows.strides, windows.dilations)
    numbers = [n for one in fields for n in filled(one)]
    numbers += [n for one in (windows.begins, windows.ends) for n in filled(one, 0)]
    numbers += filled(windows.counts)
    return words(f"<{len(numbers)}i", *numbers)


@lowers("conv")
def lower_conv(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower to one launch: tiles of channels and positions."""
    x, w, y, attrs = node.inputs[0], node.inputs[1], node.outputs[0], node.attrs
    if y.size == 0:
        return []
    windows: Windows = attrs["windows"]
    group, outs, ins = attrs["group"], w.shape[0] // attrs["group"], w.shape[1]
    extras = [node.inputs[attrs[name]] for name in ("bias", "residual") if attrs[name] is not None]
    has_bias, place = attrs["bias"] is not None, Residual.none
    if attrs["residual"] is not None:
        place = Residual.before if attrs["residual_first"] else Residual.after
    activation = Activation[attrs["activation"] or "none"]
    refuse("windows stay the same", *windows.kernel)
    shape = [TILE, STEP, *filled(windows.kernel), flag(has_bias), int(activation), int(place)]
    entry = f"conv<{ctype(x.dtype)}, {', '.join(map(str, shape))}>"
    text = source("elementwise.cuh", "matmul.cuh", "windows.cuh", "conv")
    arguments: list[Argument] = [("out", 0), ("in", 0), ("in", 1)]
    arguments += [("in", 2) if has_bias else NOTHING, ("in", 2 + has_bias) if place else NOTHING]
    arguments += [*map(i32, (x.shape[0], group, outs, ins)), window_words(windows)]
    across, down = ceil(x.shape[0] * prod(windows.counts) / TILE), ceil(outs / TILE)
    code = KernelCode(text, entry, "conv")
    flops = 2 * y.size * ins * prod(windows.kernel)
    threads = TILE * TILE // 16
    made = call(code, (y,), (x, w, *extras), across, threads, arguments, flops=flops)
    return [replace(made, grid=(across, down, group))]


@lowers("patches")
def lower_patches(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lay out a row for each window."""
    (x,), (y,) = node.inputs, node.outputs
    if y.size == 0:
        return []
    entry = f"patches<{WORDS[x.dtype.itemsize]}>"
    arguments = [("out", 0), ("in", 0), i64(y.size), i32(x.shape[-1])]
    return [elements(node, entry, [*arguments, window_words(node.attrs["windows"])])]


@lowers("fold")
def lower_fold(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Add up what lies on each other."""
    x, y = node.inputs[0], node.outputs[0]
    if y.size == 0:
        return []
    biased = len(node.inputs) > 1
    entry = f"fold<{ctype(x.dtype)}, {flag(biased)}>"
    arguments: list[Argument] = [("out", 0), ("in", 0), ("in", 1) if biased else NOTHING]
    arguments += [i64(y.size), i32(y.shape[1]), window_words(node.attrs["windows"])]
    return [elements(node, entry, arguments, x.size)]


@lowers("pool")
def lower_pool(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Walk the elements of each window."""
    (x,), (y,) = node.inputs, node.outputs
    if y.size == 0:
        return []
    largest = flag(node.attrs["kind"] == "max")
    entry = f"pool<{ctype(x.dtype)}, {largest}, {flag(node.attrs['count_include_pad'])}>"
    windows: Windows = node.attrs["windows"]
    arguments = [("out", 0), ("in", 0), i64(y.size), window_words(windows)]
    return [elements(node, entry, arguments, y.size * prod(windows.kernel))]


def elements(node: Node, entry: str, arguments: list[Argument], flops: int = 0) -> CudaCall:
    """Return the launch of a thread for each element of the result."""
    code = KernelCode(source("windows.cuh", "windows"), entry, node.op)
    blocks = ceil(node.outputs[0].size / THREADS)
    return call(code, node.outputs, node.inputs, blocks, THREADS, arguments, flops=flops)
