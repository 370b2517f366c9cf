"""Convolutions on the cpu: straight from the image where its rows lie as windows read them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil, prod

from fastgraph.ir.graph import Node, Value
from fastgraph.ir.ops.registry import Windows
from fastgraph.ir.types import FLOAT64
from fastgraph.lower.call import Alias, Call, Temp
from fastgraph.lower.cpu.halves import in_float32
from fastgraph.lower.cpu.kinds import kernel_kind
from fastgraph.lower.cpu.layout import choose_parts, memory_ns
from fastgraph.lower.cpu.matmul import Activation, Residual
from fastgraph.lower.cpu.registry import Target, lowers
from fastgraph.lower.cpu.windows import filled, window_words
from fastgraph.lower.strides import row_major

__all__ = ["lower_conv"]

# Columns of the widest tile, and of the narrowest.
WIDEST, PANEL = 64, 16
# Rows of a unit, where channels are cut: whole tiles of every kernel.
ROW_STEP = 12
# Elements of x that a unit reads over and over stay in a second-level cache.
NEAR_ELEMENTS = 49152
# Channels in and out from which on x is brought together, planes that are far, and how much of it.
STAGED_INS, STAGED_OUTS = 16, 24
FAR_BYTES = 2048
STAGED_FLOATS = 32768
# One core, operands in a cache; measured, and used for parts and the cost alone.
FLOPS_PER_NS = 80.0
DOUBLE_FLOPS_PER_NS = 8.0
TILE_NS = 15.0


@dataclass(frozen=True)
class Walk:
    """How the windows of one channel are walked: their elements lie in planes, side by side.

    A plane has one element for each window of an axis, and so many more as a window reaches
    beyond its own; where windows step over elements there is a plane for each phase of a step.
    Positions run through a plane in order, so those between the rows of windows are dropped.
    """

    windows: Windows

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many windows lie along each of three axes."""
        return filled(self.windows.counts)

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """How many planes there are along each axis."""
        spans = zip(self.windows.strides, self.windows.spans, strict=True)
        return filled(tuple(min(step, span) for step, span in spans))

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """The sizes of a plane."""
        w = self.windows
        along = zip(w.counts, w.spans, w.strides, strict=True)
        return filled(tuple(count + (span - 1) // step for count, span, step in along))

    @property
    def span(self) -> int:
        """Positions, from that of the first window to that of the last."""
        steps = row_major(self.extents)
        return 1 + sum((count - 1) * step for count, step in zip(self.counts, steps, strict=True))

    @property
    def in_place(self) -> bool:
        """Whether the image itself is the plane, with a whole tile of positions."""
        same = self.extents == filled(self.windows.sizes) and prod(self.phases) == 1
        return same and not any(self.windows.begins) and self.span >= PANEL

    @property
    def reach(self) -> int:
        """How far from its first element a window's last one is, in one plane."""
        steps = row_major(self.extents)
        far = zip(self.windows.spans, self.windows.strides, strict=True)
        last = filled(tuple((span - 1) // step for span, step in far), 0)
        return sum(at * step for at, step in zip(last, steps, strict=True))

    @property
    def taps(self) -> list[int]:
        """Where the first position's elements of a window are."""
        w, steps = self.windows, row_major(self.extents)
        strides, dilations = filled(w.strides), filled(w.dilations)
        found = []
        for tap in product(*(range(k) for k in filled(w.kernel))):
            phase = inner = 0
            for axis, k in enumerate(tap):
                at, rest = divmod(k * dilations[axis], strides[axis])
                phase = phase * self.phases[axis] + rest
                inner += at * steps[axis]
            found.append(phase * prod(self.extents) + inner)
        return found


@lowers("conv")
@in_float32
def lower_conv(node: Node, target: Target) -> list[Call | Alias]:
    """Lower to one call, and one before it that lays out planes where windows need them."""
    x, w, y, attrs = node.inputs[0], node.inputs[1], node.outputs[0], node.attrs
    if y.size == 0:
        return []
    walk, (images, channels) = Walk(attrs["windows"]), x.shape[:2]
    span, channel = walk.span, prod(walk.phases) * prod(walk.extents)
    calls: list[Call | Alias] = []
    source: Value | Temp = x
    readable = span
    if not walk.in_place and channels:
        readable = span + WIDEST
        source = Temp((images * channels * channel + WIDEST) * x.dtype.itemsize, "planes")
        calls.append(lay_out(x, source, walk, target))

    group, outs, ins = attrs["group"], w.shape[0] // attrs["group"], w.shape[1]
    taps = walk.taps
    nbytes = sum(value.nbytes for value in (y, *node.inputs))
    cost_ns = cost_of(images * group * ceil(span / PANEL), outs, ins * len(taps), x)
    cost_ns += memory_ns(nbytes)
    staged = staged_positions(walk, channel, outs, ins) if x.dtype != FLOAT64 else 0
    near = staged or max(NEAR_ELEMENTS // max(ins * prod(walk.phases), 1) // WIDEST, 1) * WIDEST
    most = images * group * ceil(span / WIDEST) * ceil(outs / ROW_STEP)
    parts = choose_parts(cost_ns, target.threads, most)
    p_step, m_step = steps_of(parts, images * group, span, near, outs)
    parts = min(parts, images * group * ceil(span / p_step) * ceil(outs / m_step))
    staged = min(staged, p_step)
    rooms = [Temp(4 * parts * ins * (staged + walk.reach), "positions")] if staged else []

    extras = [node.inputs[attrs[name]] for name in ("bias", "residual") if attrs[name] is not None]
    place = Residual.none
    if attrs["residual"] is not None:
        place = Residual.before if attrs["residual_first"] else Residual.after
    activation = Activation[attrs["activation"] or "none"]
    words = [images, group, outs, ins, len(taps), *walk.counts, *walk.extents[1:]]
    words += [channels * channel, channel, span, readable, int(activation)]
    words += [int(attrs["bias"] is not None), int(place), m_step, p_step, staged, walk.reach]
    kind = kernel_kind(node, x, ("f32", "f64"))
    flops = 2 * y.size * ins * len(taps)
    calls.append(
        Call(f"conv_{kind}", (y, *rooms), (source, w, *extras), [*words, *taps], parts, cost_ns,
             flops=flops, nbytes=nbytes)
    )  # fmt: skip
    return calls


def staged_positions(walk: Walk, channel: int, outs: int, ins: int) -> int:
    """Return how many positions are brought together at a time; 0 where planes are near enough.

    Rows of a tile read one place of each channel, and each far plane wants a page of its own.
    """
    rereads = outs >= STAGED_OUTS and ins >= STAGED_INS and 4 * channel >= FAR_BYTES
    if not rereads or prod(walk.phases) > 1:
        return 0
    fitting = (STAGED_FLOATS // ins - walk.reach) // WIDEST
    # What a stage reads beyond its own positions is copied again by the next one.
    least = ceil(walk.reach / WIDEST)
    return min(max(fitting, least, 1), ceil(walk.span / WIDEST)) * WIDEST


def lay_out(x: Value, planes: Temp, walk: Walk, target: Target) -> Call:
    """Return the call that brings images into planes, with zeros around them."""
    images, channels = x.shape[:2]
    words = [*window_words(images, channels, walk.windows), *walk.phases, *walk.extents]
    nbytes = x.nbytes + planes.nbytes
    cost_ns = 10.0 + memory_ns(nbytes)
    parts = choose_parts(cost_ns, target.threads, images * channels)
    name = f"planes_{x.dtype.itemsize}"
    return Call(name, (planes,), (x,), words, parts, cost_ns, nbytes=nbytes)


def cost_of(panels: int, outs: int, k: int, x: Value) -> float:
    """Return the nanoseconds of so many panels of positions by `outs` sums of `k` products."""
    rate = DOUBLE_FLOPS_PER_NS if x.dtype == FLOAT64 else FLOPS_PER_NS
    return 2 * panels * PANEL * outs * k / rate + panels * ceil(outs / ROW_STEP) * TILE_NS


def steps_of(parts: int, images: int, span: int, near: int, outs: int) -> tuple[int, int]:
    """Return positions and channels of a unit, so that there are units enough for all parts.

    Positions are cut before channels: a unit with all channels reads its part of x once.
    """
    p_step, m_step = min(near, ceil(span / WIDEST) * WIDEST), outs
    while images * ceil(span / p_step) < parts and p_step > WIDEST:
        p_step = ceil(p_step / 2 / WIDEST) * WIDEST
    across = images * ceil(span / p_step)
    if across < parts and outs > ROW_STEP:
        m_step = max(ceil(outs / ceil(parts / across) / ROW_STEP), 1) * ROW_STEP
    return p_step, min(m_step, outs)
