"""Graphs lowered for cuda and run on the host, call by call, beside the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastgraph.ir import reference
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.lower.call import Alias, Temp
from fastgraph.lower.cuda import LOWERINGS, Target
from fastgraph.lower.cuda.call import CudaCall
from fastgraph.lower.cuda.text import source
from fastgraph.lower.storage import Roots
from fastgraph.lower.taps import Tap
from fastgraph.passes import optimise
from tests.cuda_host import Guarded, Kernels

__all__ = ["SMALL", "Case", "Suite", "close"]

Array = np.ndarray[Any, np.dtype[Any]]
Place = Value | Temp

# So few multiprocessors that what is made for big data happens with small ones.
SMALL = Target("sm_90", (9, 0), 2, 232448, 1 << 20)

# What generated kernels begin with; compiled once for all that do.
HEADERS = (
    (),
    ("elementwise.cuh",),
    ("elementwise.cuh", "reduce"),
    ("transpose",),
    ("rows.cuh", "softmax"),
    ("rows.cuh", "norm"),
    ("elementwise.cuh", "matmul.cuh", "rows.cuh", "norm", "norm_parts"),
)


@dataclass
class Case:
    """One graph: `build(*inputs)` gives its outputs, a Value or several, for these arrays.

    Or it gives nothing and is given a graph: then the arrays are of its inputs and its parameters.

    Attributes
    ----------
    name : str
    build : callable or Graph
    arrays : tuple of ndarray
        What the inputs hold.
    target : Target
    faults : bool
        Whether the data are bad: the reference is not asked, the error word is.
    """

    name: str
    build: Callable[..., Any] | Graph
    arrays: tuple[Array, ...]
    target: Target = SMALL
    faults: bool = False
    graph: Graph = field(init=False)
    items: list[tuple[Node, list[CudaCall | Alias]]] = field(init=False)
    roots: Roots = field(init=False)

    @staticmethod
    def of(name: str, graph: Graph, target: Target) -> Case:
        """A case of a graph, whose inputs and parameters are of numbers like any.

        Matrices of parameters neither blow up nor wear down what they multiply.
        """
        random = np.random.default_rng(1)
        arrays = [random.normal(size=v.shape) for v in (*graph.inputs, *graph.params)]
        for array in arrays[len(graph.inputs) :]:
            if array.ndim > 1:
                array /= np.sqrt(max(array.shape))
        leaves = (*graph.inputs, *graph.params)
        typed = [array.astype(v.dtype) for array, v in zip(arrays, leaves, strict=True)]
        return Case(name, graph, tuple(typed), target)

    def __post_init__(self) -> None:
        if isinstance(self.build, Graph):
            graph = self.build
        else:
            graph = Graph(self.name)
            inputs = [graph.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(self.arrays)]
            outputs = self.build(*inputs)
            for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
                graph.output(output)
        self.graph = graph
        optimised = optimise(graph, pack=False)
        self.optimised = optimised.graph
        self.roots = Roots()
        self.items = []
        target = replace(self.target, roots=self.roots, is_set=frozenset(optimised.is_set))
        self.lowered_for = target
        for node in self.optimised.nodes:
            if node.is_leaf:
                continue
            found = list(LOWERINGS[node.op](node, target))
            for item in found:
                if isinstance(item, Alias):
                    self.roots.add(item)
            self.items.append((node, found))

    @property
    def calls(self) -> list[CudaCall]:
        """All launches, in order."""
        return [item for _, found in self.items for item in found if isinstance(item, CudaCall)]

    def expected(self) -> list[Array]:
        """What the reference gives."""
        values = [*self.graph.inputs, *self.graph.params]
        given = dict(zip((value.name for value in values), self.arrays, strict=True))
        count = len(self.graph.inputs)
        inputs, params = dict(list(given.items())[:count]), dict(list(given.items())[count:])
        with np.errstate(all="ignore"):
            return list(reference.evaluate(self.graph, inputs, params).values())


class Suite:
    """The kernels of many cases, built by one run of the compiler."""

    def __init__(self, cases: Iterable[Case], sanitize: bool = False, level: str = "-O1") -> None:
        codes = {call.code for case in cases for call in case.calls}
        names = sorted((code.source, code.entry) for code in codes)
        self.sanitize = sanitize
        headers = [source(*families) for families in HEADERS]
        self.kernels = Kernels(names, headers, sanitize, level)

    def run(self, case: Case, seed: int = 0, inplace: bool = False) -> list[Array]:
        """Return the outputs; `inplace` lets every call write where it says it may."""
        memory: dict[Place, Guarded] = {}
        self.fault = self._guarded(np.zeros(1, "u8"))
        graph = case.optimised
        leaves = [*graph.inputs, *graph.params]
        for value, array in zip(leaves, case.arrays, strict=True):
            memory[value] = self._guarded(array)
        for node in graph.nodes:
            if node.op == "constant":
                memory[node.outputs[0]] = self._guarded(np.ascontiguousarray(node.attrs["value"]))
        for number, (node, items) in enumerate(case.items):
            for call in items:
                if isinstance(call, CudaCall):
                    self._launch(case, node, call, number, memory, seed, inplace)
        results = []
        for _, value in graph.outputs:
            root, offset = case.roots.of(value)
            data = memory[root].array.tobytes() if root in memory else b""
            nbytes = value.size * value.dtype.itemsize
            found = np.frombuffer(data[offset : offset + nbytes], value.dtype)
            results.append(found.reshape(value.shape))
        return results

    def _launch(
        self, case: Case, node: Node, call: CudaCall, number: int, memory: dict[Place, Guarded],
        seed: int, inplace: bool,
    ) -> None:  # fmt: skip
        own: dict[Place, Place] = {}
        # Nobody writes what has no bytes.
        for place in (*call.outs, *call.ins):
            root, _ = case.roots.of(place)
            if root not in memory:
                size = root.nbytes if isinstance(root, Temp) else root.size * root.dtype.itemsize
                memory[root] = self._guarded(np.full(size, 0xFF, "u1"))
        for i, j in call.inplace if inplace else ():
            (out, _), (read, offset) = case.roots.of(call.outs[i]), case.roots.of(call.ins[j])
            if offset or read in own or out in set(own.values()) or read not in memory:
                continue
            if memory[out].array.nbytes == memory[read].array.nbytes:
                data = np.frombuffer(memory[read].array.tobytes(), "u1")
                memory[out].array.reshape(-1).view("u1")[...] = data
                own[read] = out
        written = {case.roots.of(out)[0] for out in call.outs}
        before = {place: o.array.tobytes() for place, o in memory.items() if place not in written}
        arguments: list[Any] = []
        hidden: dict[int, Guarded] = {}
        for kind, *rest in call.arguments:
            if kind in ("in", "out"):
                place = (call.ins if kind == "in" else call.outs)[rest[0]]
                root, offset = case.roots.of(place)
                if isinstance(root, Tap):
                    arguments.append(bytes(8))  # Nobody listens.
                    continue
                operand = memory[own.get(root, root) if kind == "in" else root]
                fixed = isinstance(place, Value) and case.lowered_for.is_constant(place, node)
                if kind == "out" or not fixed:
                    hidden[operand.address] = operand
                arguments.append((operand.address + offset).to_bytes(8, "little"))
            elif kind == "value":
                arguments.append(rest[0])
            elif kind == "fault":
                arguments.append(self.fault)
            else:
                arguments.append(np.uint64(number + 1))
        self.kernels.launch(
            (call.code.source, call.code.entry), call.grid, call.block, arguments,
            call.shared_bytes, call.cluster, seed, must_wait=call.programmatic,
            hidden=list(hidden.values()) if call.programmatic else (),
        )  # fmt: skip
        for place, operand in memory.items():
            assert operand.untouched(), f"{call.code.entry}: wrote outside of {place}"
            if place in before:
                assert operand.array.tobytes() == before[place], f"{call.code.entry}: wrote {place}"

    def _guarded(self, array: Array) -> Guarded:
        return Guarded(array, sanitize=self.sanitize)


# By the type that results are stored in: relative and absolute.
TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (1.6e-2, 1.6e-2), "float32": (2e-6, 2e-6),
             "float64": (1e-13, 1e-13)}  # fmt: skip


def close(found: Array, expected: Array, scale: float = 1.0) -> None:
    """Assert that two arrays are equal to what their dtype can hold."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if found.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(found, expected)
        return
    rtol, atol = (scale * bound for bound in TOLERANCE[found.dtype.name])
    wide = (found.astype("f8"), expected.astype("f8"))
    np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
