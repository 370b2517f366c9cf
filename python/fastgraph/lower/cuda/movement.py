"""Movement on cuda: aliases where the bytes lie right already, else loops and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from fastgraph.ir.graph import Node, Value
from fastgraph.lower.call import Alias
from fastgraph.lower.cpu.layout import broadcast_strides, collapse, row_major
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.given import Given
from fastgraph.lower.cuda.launch import call, pieces, place, pointers
from fastgraph.lower.cuda.loop import Loop, Operand
from fastgraph.lower.cuda.registry import WIDEST, Target, lowers
from fastgraph.lower.cuda.text import source
from fastgraph.lower.storage import Place

__all__ = [
    "BY_SIZE",
    "lower_broadcast_to",
    "lower_concat",
    "lower_reshape",
    "lower_slice",
    "lower_transpose",
    "spread_call",
]

BY_SIZE = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
"""What kernels that only move call elements of so many bytes."""

# Elements that a block of tiles moves, where there is a lot and where there is little.
TILE_AREA, SMALL_AREA = 4096, 1024
TILE_SIDE = 64
THREADS = 256
# Inputs of one kernel of concat.
MOST_PARTS = 128


def _strided(
    node: Node, strides: Sequence[int], offset: int, target: Target
) -> list[CudaCall | Alias]:
    """Read the input with `strides` and from element `offset` on, write the output densely."""
    (read,), (out,) = node.inputs, node.outputs
    if out.size == 0:
        return []
    itemsize = out.dtype.itemsize
    sizes, (own, steps) = collapse(out.shape, [row_major(out.shape), strides])
    if steps == own:
        return [Alias(out, read, offset * itemsize)]
    dense = [axis for axis in range(len(sizes) - 1) if steps[axis] == 1]
    if dense and offset == 0 and steps[-1] > 1:
        return [_tiles(node, sizes, own, steps, dense[-1], target)]
    name = BY_SIZE[itemsize]
    operand = Operand(read, name, tuple(steps), offset)
    loop = Loop(node.op, tuple(sizes), tuple(own), (out,), (name,), (operand,), (), ("x0",))
    return [loop.lower(target)]


def _tiles(
    node: Node, sizes: list[int], own: list[int], steps: list[int], axis: int, target: Target
) -> CudaCall:
    """Exchange axis `axis`, along which the input is dense, with the last, tile by tile."""
    (read,), (out,) = node.inputs, node.outputs
    itemsize = out.dtype.itemsize
    size_a, size_l, out_step, in_step = sizes[axis], sizes[-1], own[axis], steps[-1]
    outer = [i for i in range(len(sizes) - 1) if i != axis]
    area = TILE_AREA if out.size >= TILE_AREA * target.multiprocessors else SMALL_AREA
    area //= max(1, itemsize // 4)
    # A short axis is in the tile as a whole, beside more of the other one.
    side = min(TILE_SIDE, area // 32)
    if size_a < side:
        tile_a = _power_of_two(int(size_a))
        tile_l = area // tile_a
    else:
        tile_l = min(side, _power_of_two(int(size_l)))
        tile_a = area // tile_l
    width = min(max(1, 4 // itemsize), tile_a, tile_l)
    starts = [size_a, size_l, out_step, in_step]
    starts += [step for i in outer for step in (own[i], steps[i])]
    width = pieces(width, itemsize, target.alignment(read), *starts)
    name = BY_SIZE[itemsize]
    given = Given("i64")
    places = [
        place("b", [sizes[i] for i in outer], [p[i] for i in outer], given) for p in (steps, own)
    ]
    numbers = ", ".join(map(given, (size_a, size_l, out_step, in_step)))
    parameters = [f"{name} *out", f"const {name} *in", *given.parameters]
    text = (
        f"__global__ __launch_bounds__({THREADS}) void transpose({', '.join(parameters)}) {{\n"
        "  fg_trigger();\n"
        f"  const auto from = [&](i64 b) -> i64 {{ return {places[0]}; }};\n"
        f"  const auto to = [&](i64 b) -> i64 {{ return {places[1]}; }};\n"
        "  fg_wait();\n"
        f"  transpose_tile<{name}, {width}, {tile_a}, {tile_l}>(out, in, {numbers}, from, to);\n"
        "}\n"
    )
    blocks = ceil(size_a / tile_a) * ceil(size_l / tile_l) * prod(sizes[i] for i in outer)
    code = KernelCode(source("transpose") + text, "transpose", "transpose")
    arguments = (*pointers(node.outputs, node.inputs), *given.arguments)
    return call(code, node.outputs, node.inputs, blocks, THREADS, arguments)


def spread_call(out: Place, value: Value, whole: Sequence[int]) -> CudaCall:
    """Copy `value` to its place in an array of shape `whole`; the rest of that stays."""
    name, given = BY_SIZE[value.dtype.itemsize], Given("i64")
    sizes, (to,) = collapse(value.shape, [row_major(whole)])
    at, total = place("e", sizes, to, given), given(value.size)
    parameters = [f"{name} *out", f"const {name} *in", *given.parameters]
    text = (
        f"__global__ __launch_bounds__({THREADS}) void spread({', '.join(parameters)}) {{\n"
        "  fg_trigger();\n"
        f"  const i64 e = (i64)blockIdx.x * {THREADS} + threadIdx.x;\n"
        "  fg_wait();\n"
        f"  if (e < {total}) out[{at}] = in[e];\n"
        "}\n"
    )
    code, blocks = KernelCode(source() + text, "spread", "copy"), ceil(value.size / THREADS)
    arguments = (*pointers((out,), (value,)), *given.arguments)
    return call(code, (out,), (value,), blocks, THREADS, arguments)


def _power_of_two(number: int) -> int:
    """The first one that is not less."""
    return 1 << (number - 1).bit_length()


@lowers("reshape")
def lower_reshape(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower reshape: the same bytes."""
    return [Alias(node.outputs[0], node.inputs[0])]


@lowers("transpose")
def lower_transpose(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower transpose; an alias where only axes of size 1 move."""
    strides = row_major(node.inputs[0].shape)
    return _strided(node, [strides[axis] for axis in node.attrs["axes"]], 0, target)


@lowers("slice")
def lower_slice(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower slice; an alias where the elements lie side by side."""
    strides = row_major(node.inputs[0].shape)
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    offset = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    walk = [step * stride for step, stride in zip(steps, strides, strict=True)]
    return _strided(node, walk, offset, target)


@lowers("broadcast_to")
def lower_broadcast_to(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower broadcast_to; an alias where nothing is repeated."""
    out = node.outputs[0]
    return _strided(node, broadcast_strides(node.inputs[0].shape, out.shape), 0, target)


@lowers("concat")
def lower_concat(node: Node, target: Target) -> list[CudaCall | Alias]:
    """Lower concat: one launch for all inputs, an alias where only one has elements."""
    out, axis = node.outputs[0], node.attrs["axis"]
    parts = [value for value in node.inputs if value.size]
    if not parts:
        return []
    if len(parts) == 1:
        return [Alias(out, parts[0])]
    rows, inner = prod(out.shape[:axis]), prod(out.shape[axis + 1 :])
    start = 0
    calls: list[CudaCall | Alias] = []
    for first in range(0, len(parts), MOST_PARTS):
        some = parts[first : first + MOST_PARTS]
        widths = [value.shape[axis] * inner for value in some]
        calls.append(_beside(out, some, widths, rows, start, out.shape[axis] * inner, target))
        start += sum(widths)
    return calls


def _beside(
    out: Value, parts: list[Value], widths: list[int], rows: int, start: int, pitch: int,
    target: Target,
) -> CudaCall:  # fmt: skip
    """Copy rows of `parts` side by side into rows of `out`, from column `start` on."""
    itemsize = out.dtype.itemsize
    width = WIDEST // itemsize
    total = sum(widths) * rows
    while width > 1 and (
        any(number % width for number in (*widths, start, pitch))
        or total // width < 128 * target.multiprocessors
    ):
        width //= 2
    vectors = total // width
    unroll = 4 if vectors >= 8 * THREADS * target.multiprocessors else 1
    name, across = BY_SIZE[itemsize], sum(widths) // width
    given = Given("u32" if total < 2**31 and rows * pitch < 2**31 else "i64")
    index = given.ctype
    parameters = [f"{name} *out", *(f"const {name} *in{k}" for k in range(len(parts)))]
    ends = [sum(widths[: k + 1]) // width for k in range(len(parts))]
    loads = []
    for k, value in enumerate(parts):
        piece = pieces(width, itemsize, target.alignment(value))
        begin = ends[k - 1] if k else 0
        own = widths[k] // width
        place = f"(row * {given(own)} + (column - {given(begin)})) * {width}"
        loads.append(f"return load<{width}, {piece}>(in{k} + {place});")
    held = f"Vec<{name}, {width}>"
    wide, some = given(across), f"if (v < {given(vectors)}) "
    body = [
        "  fg_trigger();",
        f"  const auto part = [&]({index} row, {index} column) -> {held} {{",
        *(f"  {line}" for line in _search(loads, [given(end) for end in ends], 0, len(parts))),
        "  };",
        f"  const {index} first = ({index})blockIdx.x * {THREADS * unroll} + threadIdx.x;",
        "  fg_wait();",
        f"  {held} held[{unroll}];",
        "#pragma unroll",
        f"  for (int u = 0; u < {unroll}; u++) {{",
        f"    const {index} v = first + u * {THREADS};",
        f"    {some}held[u] = part(v / {wide}, v % {wide});",
        "  }",
        "#pragma unroll",
        f"  for (int u = 0; u < {unroll}; u++) {{",
        f"    const {index} v = first + u * {THREADS};",
        f"    {some}store(out + v / {wide} * {given(pitch)} + {given(start)} + "
        f"v % {wide} * {width}, held[u]);",
        "  }",
        "}",
        "",
    ]
    takes = ", ".join([*parameters, *given.parameters])
    head = f"__global__ __launch_bounds__({THREADS}) void concat({takes}) {{"
    blocks = ceil(vectors / (THREADS * unroll))
    code = KernelCode("\n".join([source() + head, *body]), "concat", "concat")
    arguments = (*pointers((out,), parts), *given.arguments)
    return call(code, (out,), parts, blocks, THREADS, arguments)


def _search(loads: list[str], ends: list[str], first: int, last: int) -> list[str]:
    """Statements that find the part of a column by halving, and load from it."""
    if last - first == 1:
        return [f"  {loads[first]}"]
    middle = (first + last) // 2
    return [
        f"  if (column < {ends[middle - 1]}) {{",
        *_search(loads, ends, first, middle),
        "  } else {",
        *_search(loads, ends, middle, last),
        "  }",
    ]
