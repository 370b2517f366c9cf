"""Loops over dense results on cuda: a kernel written for each, which knows sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from fastgraph.ir.graph import Value
from fastgraph.lower.cuda.call import CudaCall, KernelCode
from fastgraph.lower.cuda.given import Given
from fastgraph.lower.cuda.launch import call, pieces, pointers, spread
from fastgraph.lower.cuda.registry import WIDEST, Target
from fastgraph.lower.cuda.text import source

__all__ = ["Loop", "Operand"]

# What a thread should have under way of dense inputs, so that enough is under way in all.
BYTES_IN_FLIGHT = 64
MOST_VECTORS = 4
# Elements that a thread holds of its inputs, at most: registers are not endless.
MOST_LOADED = 64
THIRTY_TWO_BITS = 2**31


@dataclass(frozen=True)
class Operand:
    """An input of a loop.

    Attributes
    ----------
    value : Value
    ctype : str
        What kernels call its elements.
    strides : tuple of int
        How many elements a step along each axis of the loop is, in what is read.
    offset : int
        Elements before the first that is read.
    """

    value: Value
    ctype: str
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Loop:
    """``outs[i] = results[i]`` for all elements, after `statements`, which read inputs as ``x<i>``.

    Attributes
    ----------
    name : str
        The kernel's.
    sizes : tuple of int
        The shape of the results, with axes merged that all operands walk through as one.
    own : tuple of int
        The strides of the results over `sizes`.
    outs, out_ctypes : tuple
    operands : tuple of Operand
    statements, results : sequence of str
        C++; a result is of the type that its element is computed in.
    """

    name: str
    sizes: tuple[int, ...]
    own: tuple[int, ...]
    outs: tuple[Value, ...]
    out_ctypes: tuple[str, ...]
    operands: tuple[Operand, ...]
    statements: Sequence[str]
    results: Sequence[str]

    def lower(self, target: Target, *families: str) -> CudaCall:
        """Return the launch; `families` are the texts that the statements need."""
        total = prod(self.sizes)
        width = self._width(total, target)
        reads = [_Read.of(operand, self, width, target) for operand in self.operands]
        dense = [read for read in reads if read.kind in ("dense", "row")]
        loaded = sum(width * read.operand.value.dtype.itemsize for read in dense)
        unroll = 1
        if total // width >= 8 * 256 * target.multiprocessors:
            limit = min(MOST_VECTORS, MOST_LOADED // (width * max(1, len(reads))))
            while unroll * 2 <= limit and unroll * loaded < BYTES_IN_FLIGHT:
                unroll *= 2
        blocks, threads = spread(ceil(ceil(total / width) / unroll), target)
        short = total < THIRTY_TWO_BITS and all(read.short for read in reads)
        given = Given("u32" if short else "i64")
        text = self._text(reads, total, width, unroll, threads, given)
        ins = tuple(operand.value for operand in self.operands)
        arguments = (*pointers(self.outs, ins), *given.arguments)
        inplace = tuple(
            (i, j)
            for i, out in enumerate(self.outs)
            for j, read in enumerate(reads)
            if read.kind == "dense" and ins[j].dtype.itemsize == out.dtype.itemsize
        )
        code = KernelCode(source(*families) + text, self.name, self.name)
        flops = total * len(self.statements)
        return call(code, self.outs, ins, blocks, threads, arguments, flops=flops, inplace=inplace)

    def _width(self, total: int, target: Target) -> int:
        """Elements that a thread takes at once: 16 bytes of the widest, fewer for few elements."""
        widest = [out.dtype.itemsize for out in self.outs]
        widest += [o.value.dtype.itemsize for o in self.operands if o.strides == self.own]
        width = WIDEST // max(widest)
        while width > 1 and total // width < 128 * target.multiprocessors:
            width //= 2
        # Rows are better read in short vectors than element by element.
        if any(any(o.strides) and o.strides != self.own for o in self.operands):
            shorter = width
            while shorter > 1 and self.sizes[-1] % shorter:
                shorter //= 2
            width = shorter if shorter * 2 >= width else width
        return width

    def _text(
        self, reads: list[_Read], total: int, width: int, unroll: int, threads: int, given: Given
    ) -> str:
        """The kernel: a function of elements, where each is read, and the loop."""
        names, index = self.out_ctypes, given.ctype
        takes = [f"compute_t<{read.operand.ctype}> x{i}" for i, read in enumerate(reads)]
        takes += [f"{name} &r{i}" for i, name in enumerate(names)]
        lines = ["", f"FG_DEVICE void compute({', '.join(takes)}) {{"]
        lines += [f"  {statement}" for statement in self.statements]
        lines += [f"  r{i} = narrow<{n}>({self.results[i]});" for i, n in enumerate(names)]
        lines.append("}")
        # Vectors of a thread are a block's width apart, so that neighbours load side by side.
        head, lines = lines, [
            "  fg_trigger();",
            f"  const {index} first = ({index})blockIdx.x * {threads * unroll} + threadIdx.x;",
        ]  # fmt: skip
        for i, read in enumerate(reads):
            if read.kind not in ("dense", "one"):
                place = read.place(self.sizes, given)
                lines.append(
                    f"  const auto place{i} = [&]({index} e) -> {index} {{ return {place}; }};"
                )
        lines.append("  fg_wait();")
        lines += [f"  {read.declaration(i, width, unroll, given)}" for i, read in enumerate(reads)]
        whole = total // width
        # Where all threads have as much to do nobody asks.
        guard = (
            f"if (first + u * {threads} < {given(whole)}) " if whole % (threads * unroll) else ""
        )
        element = f"    const {index} e = (first + u * {threads}) * {width};"
        repeat = ["#pragma unroll", f"  for (int u = 0; u < {unroll}; u++) {guard}{{", element]
        lines += [*repeat, *(f"    {read.load(i, width)}" for i, read in enumerate(reads)), "  }"]
        lines += [*repeat, *(f"    Vec<{name}, {width}> b{i};" for i, name in enumerate(names))]
        call = [read.element(i) for i, read in enumerate(reads)]
        call += [f"b{i}.v[j]" for i in range(len(names))]
        lines += ["#pragma unroll", f"    for (int j = 0; j < {width}; j++)"]
        lines.append(f"      compute({', '.join(call)});")
        for i, out in enumerate(self.outs):
            lines.append(f"    store<{pieces(width, out.dtype.itemsize)}>(o{i} + e, b{i});")
        lines.append("  }")
        if total % width:
            lines += [
                f"  if (blockIdx.x == 0 && threadIdx.x < {given(total % width)}) {{",
                f"    const {index} e = {given(whole * width)} + threadIdx.x;",
                *(f"    {read.last(i)}" for i, read in enumerate(reads) if read.kind != "one"),
            ]
            call = [f"s{i}" for i in range(len(reads))] + [f"o{i}[e]" for i in range(len(names))]
            lines += [f"    compute({', '.join(call)});", "  }"]
        lines.append("}")
        parameters = [f"{name} *o{i}" for i, name in enumerate(names)]
        parameters += [f"const {read.operand.ctype} *i{i}" for i, read in enumerate(reads)]
        takes = [*parameters, *given.parameters]
        bounds = f"__global__ __launch_bounds__({threads})"
        head.append(f"{bounds} void {self.name}({', '.join(takes)}) {{")
        return "\n".join([*head, *lines]) + "\n"


@dataclass(frozen=True)
class _Read:
    """How a kernel reads an operand.

    `kind` is ``dense``: element by element like the result; ``row``: side by side along the last
    axis; ``same``: one element for all of a vector; ``one``: one for all; ``gather``: each from
    its own place. One load takes `piece` elements.
    """

    operand: Operand
    kind: str
    piece: int = 1
    short: bool = True

    @classmethod
    def of(cls, operand: Operand, loop: Loop, width: int, target: Target) -> _Read:
        strides, value, offset = operand.strides, operand.value, operand.offset
        sizes, itemsize = loop.sizes, value.dtype.itemsize
        # Backward steps and places far away need signs and more bits.
        short = value.size < THIRTY_TWO_BITS and min(strides, default=0) >= 0
        alignment = target.alignment(value)
        if strides == loop.own and not offset:
            return cls(operand, "dense", pieces(width, itemsize, alignment), short)
        if not any(strides):
            return cls(operand, "one", short=short)
        if sizes[-1] % width == 0 and strides[-1] == 0:
            return cls(operand, "same", short=short)
        if sizes[-1] % width == 0 and strides[-1] == 1:
            steps = (*strides[:-1], offset)
            return cls(operand, "row", pieces(width, itemsize, alignment, *steps), short)
        return cls(operand, "gather", short=short)

    def place(self, sizes: Sequence[int], given: Given) -> str:
        """The place of what is read for element ``e`` of the result."""
        terms, inner = [], prod(sizes)
        for axis, (size, stride) in enumerate(zip(sizes, self.operand.strides, strict=True)):
            inner //= size
            if not stride:
                continue
            term = "e" if inner == 1 else f"e / {given(inner)}"
            if axis:
                term = f"{term} % {given(size)}"
            terms.append(f"({term}) * {given(stride)}" if stride != 1 else f"({term})")
        if self.operand.offset:
            terms.insert(0, given(self.operand.offset))
        return " + ".join(terms)

    def declaration(self, i: int, width: int, unroll: int, given: Given) -> str:
        """What holds the elements that a thread reads."""
        name = self.operand.ctype
        if self.kind == "one":
            offset = f" + {given(self.operand.offset)}" if self.operand.offset else ""
            return f"const compute_t<{name}> s{i} = widen(*(i{i}{offset}));"
        held = name if self.kind == "same" else f"Vec<{name}, {width}>"
        return f"{held} a{i}[{unroll}];"

    def load(self, i: int, width: int) -> str:
        """The statement that reads vector ``u``."""
        if self.kind == "one":
            return ""
        if self.kind == "same":
            return f"a{i}[u] = i{i}[place{i}(e)];"
        if self.kind == "gather":
            return f"for (int j = 0; j < {width}; j++) a{i}[u].v[j] = i{i}[place{i}(e + j)];"
        place = "e" if self.kind == "dense" else f"place{i}(e)"
        return f"a{i}[u] = load<{width}, {self.piece}>(i{i} + {place});"

    def element(self, i: int) -> str:
        """Element ``j`` of what was read as vector ``u``."""
        if self.kind == "one":
            return f"s{i}"
        return f"widen(a{i}[u])" if self.kind == "same" else f"widen(a{i}[u].v[j])"

    def last(self, i: int) -> str:
        """The statement that reads the one element ``e``, behind the last whole vector."""
        place = "e" if self.kind == "dense" else f"place{i}(e)"
        return f"const compute_t<{self.operand.ctype}> s{i} = widen(i{i}[{place}]);"
