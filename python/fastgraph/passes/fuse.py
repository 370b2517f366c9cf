"""Fuses products with bias, residual and activation, norms with residual, elementwise regions.

Convolutions are products here. An intermediate that two nodes read, or that is an output, stays
visible; one that only nodes of the same region read does not.
"""

from __future__ import annotations

from typing import Any

from fastgraph.ir.graph import Graph, Node
from fastgraph.ir.ops.registry import ELEMENTWISE
from fastgraph.passes import regions
from fastgraph.passes.epilogues import follow, has_epilogue, residual_norm
from fastgraph.passes.rewrite import Rewriter, readers_of, set_first, set_nodes

__all__ = ["run"]


def run(graph: Graph, *, fuse: bool = True) -> Graph:
    """Return `graph` in the lowered vocabulary; without `fuse` each operator stays by itself."""
    is_set = set_nodes(graph.nodes)
    absorbed: dict[Node, Any] = {}
    emitted: dict[Node, Any] = {}
    if fuse:
        readers = readers_of(graph)
        visible = {value for _, value in graph.outputs}
        for node in graph.nodes:
            if has_epilogue(node):
                chain = follow(node, readers, visible, absorbed, is_set)
                absorbed.update(dict.fromkeys(chain.nodes, chain))
                emitted[chain.last] = chain
        for node in graph.nodes:
            if node.op in ("layer_norm", "rms_norm"):
                pair = residual_norm(node, readers, visible, absorbed, is_set)
                if pair is not None:
                    absorbed.update(dict.fromkeys((pair.sum, pair.norm), pair))
                    emitted[pair.place] = pair
        found = regions.grow(graph, readers, visible, absorbed, is_set)
    else:
        found = [regions.Region(node) for node in graph.nodes if node.op in ELEMENTWISE]
    region_of = {region.root: region for region in found}
    absorbed.update((node, region) for region in found for node in region.nodes)

    rewriter = Rewriter(graph)
    for node in set_first(graph, is_set):
        if node in emitted:
            emitted[node].emit(rewriter)
        elif node in region_of:
            regions.emit(rewriter, region_of[node])
        elif node not in absorbed:
            rewriter.keep(node)
    return rewriter.finish()
