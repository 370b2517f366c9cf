"""From a graph as it was written to one that lowerings take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from fastgraph._core.sizes import activated
from fastgraph.ir.collector import paused
from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.passes import (
    attention,
    bodies,
    canonicalise,
    channels,
    dead,
    extents,
    fold,
    fuse,
    joint,
    normed,
    pairs,
    rewrite,
    rows,
    same,
    scales,
    schedule,
    setprogram,
    steps,
    views,
)

__all__ = ["Optimised", "optimise"]

Pass = Callable[[Graph], Graph]

# Rows of a product that are many for a GPU.
GPU_ROWS = 1024


@dataclass(frozen=True)
class Optimised:
    """A graph in the lowered vocabulary.

    Attributes
    ----------
    graph : Graph
        Leaves first, then the set program, then the run, each in the order to run them.
    is_set : set of Node
        The set program: the nodes, leaves aside, that depend on parameters and constants alone.
    """

    graph: Graph
    is_set: set[Node]

    @property
    def set_nodes(self) -> list[Node]:
        """The nodes of the set program, in order."""
        return [node for node in self.graph.nodes if node in self.is_set]

    @property
    def run_nodes(self) -> list[Node]:
        """The nodes of a run, in order, leaves aside."""
        return [n for n in self.graph.nodes if not n.is_leaf and n not in self.is_set]


@paused
def optimise(
    graph: Graph, *, fuse: bool = True, pack: bool = True, single: bool = False
) -> Optimised:
    """Return `graph` folded, canonical, with its set program apart, fused and scheduled.

    Parameters
    ----------
    graph : Graph
        Left as it is.
    fuse : bool
        Without it each operator stays a node of its own: slower, and what fusion is checked by.
    pack : bool
        Whether weights are brought into panels for host kernels; without it products read them as
        they are, but that those of half floats, and of a few rows, want them as [N, K].
    single : bool
        Whether extents of the graph are of a single row and stay so: then it is optimised like the
        graph written for that row, upon weights that lie as they do for all rows.

    Returns
    -------
    Optimised
        With the same inputs, parameters, scalars and outputs, in the same order.

    Examples
    --------
    >>> from fastgraph.ir import Graph, ops
    >>> from fastgraph.passes import optimise
    >>> g = Graph()
    >>> x, w, b = g.input("x", (1, 8)), g.param("w", (8, 4)), g.param("b", (4,))
    >>> _ = g.output(ops.gelu(x @ w + b))
    >>> found = optimise(g)
    >>> [node.op for node in found.set_nodes], [node.op for node in found.run_nodes]
    (['pack_weight'], ['fused_matmul'])
    >>> found = optimise(g, pack=False)
    >>> [node.op for node in found.set_nodes], [node.op for node in found.run_nodes]
    (['transpose'], ['row_product'])
    """
    found = dead.run(graph)
    for run in passes_of(fuse, pack, single):
        made = run(found)
        if made is not found:
            made.spent = True
            found = dead.run(made)
            found.spent = True
    found = schedule.run(found)
    found.spent = False
    is_set = {node for node in rewrite.set_nodes(found.nodes) if not node.is_leaf}
    return Optimised(found, is_set)


def passes_of(fuse: bool, pack: bool, single: bool) -> Iterator[Pass]:
    """Give the passes in their order, as `optimise` is told."""
    yield fold.run
    if fuse:
        yield from (same.run, scales.run)
    yield from (channels.run, canonicalise.run)
    if fuse:
        yield attention.run
        if not pack:
            yield rows.gated
        yield joint.run if pack else lambda graph: joint.run(graph, gains_on_a_gpu)
    yield setprogram.run if pack else setprogram.turn
    if single:
        yield extents.settled
    if fuse:
        yield views.run
    yield lambda graph: fuse_run(graph, fuse=fuse)
    if fuse and not pack:
        yield from (rows.normed, normed.run, same.run, pairs.run)
    again = partial(optimise, fuse=fuse, pack=pack, single=single)
    yield lambda graph: bodies.run(graph, again)
    if fuse and not pack:
        yield steps.run


def gains_on_a_gpu(result: Value) -> bool:
    """Whether a product has a single row, or is so large that those beside it wait for it anyhow.

    Of single rows the parts lie side by side, and each launch less is time won. Others that are
    small run at the same time. The encoder in float16, joined and apart, was measured at 378 and
    405 microseconds for 4,096 tokens, at 141 and 136 for 128; in float32 at 433 and 365.
    """
    # As many as there can be: a program for extents has the weights of the model's own.
    rows = activated(prod(result.shape[:-1]), ())
    return rows == 1 or (result.dtype.itemsize == 2 and rows >= GPU_ROWS)


fuse_run = fuse.run  # The keyword of `optimise` hides the module.
