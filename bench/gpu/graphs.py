"""Large graphs through the builder: edges, scalars, updates, and what building them takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from time import perf_counter_ns
from typing import Any

import numpy as np

import fastgraph as fg
from bench.gpu.clockwork import Series, Way, in_turn
from bench.gpu.native import say
from bench.gpu.rig import BLOCK, Chain, Rig

__all__ = ["building", "edges", "fresh_and_updated", "scalars"]

# Replays of a large graph in one sample.
TOGETHER = 10
SAMPLES = 3
LANES = 8


def edges(rig: Rig) -> None:
    """Programmatic edges, and chains side by side, per node of a large graph; beside C++."""
    n = rig.effort.nodes
    shapes: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("inc", {}),
        "programmatic": ("inc_early", {"programmatic": True}),
        "eight chains": ("inc", {"lanes": LANES}),
    }
    ways = {}
    for shape, (name, options) in shapes.items():
        chain = rig.chain(name, n, **options)
        ways[shape] = rig.replay_rounds(chain, TOGETHER)
        ways[f"{shape}, C++"] = rig.twin_rounds(rig.twin_chain(name, n, **options), TOGETHER)
    found = in_turn(ways, rig.effort.rounds, SAMPLES)
    for way, series in found.items():
        say(f"{way}: per node", series.at(50) / n, "us")
    for shape in shapes:
        found[shape].over(found[f"{shape}, C++"], f"{shape}: over C++")
    for shape in ("programmatic", "eight chains"):
        found[shape].over(found["plain"], f"{shape}: over plain")


def scalars(rig: Rig) -> None:
    """One scalar of a large graph changed, and one in memory that every node reads."""
    n = rig.effort.nodes
    one = rig.chain("add_value", n, scalar=lambda b: _one_of(b, n, "node"))
    memory = rig.chain("add_memory", n, scalar=lambda b: _same(b, n, "memory"))
    value = rig.chain("add_value", n, 1)
    twin = rig.twin_chain("add_value", n)

    def checked(chain: Chain) -> Callable[[], None]:
        # The values that were given for a call alone are not seen here: the default is back.
        def check() -> None:
            rig.wait()
            chain.data.copy_from(np.zeros(chain.data.shape, np.int32))
            chain.graph.set(v=1)
            chain.graph.replay()
            rig.wait()
            if (chain.data.numpy()[:BLOCK] != n).any():
                raise RuntimeError(f"{chain.data.numpy()[0]} is not {n}: a scalar did not arrive")

        return check

    def set_natively(samples: int) -> list[float]:
        values = cycle((2, 3))
        return [twin.set(n // 2, 1, next(values)) for _ in range(samples)]

    def names(chain: Chain) -> dict[str, Any]:
        # A value that is there already may cost nothing: another one each time.
        return {"graph": chain.graph, "next": cycle((2, 3)).__next__}

    ways = {
        "set(v=…), in a node": rig.call("graph.set(v=next())", names(one), checked(one)),
        "set(v=…), in memory": rig.call("graph.set(v=next())", names(memory), checked(memory)),
        "C: one node set": Way(set_natively, clock=rig.twin_clock),
        "replay()": rig.call("graph.replay()", names(one)),
        "replay(v=…), in a node": rig.call("graph.replay(v=next())", names(one), checked(one)),
        "replay(v=…), in memory": rig.call(
            "graph.replay(v=next())", names(memory), checked(memory)
        ),
    }
    found = in_turn(ways, rig.effort.rounds, SAMPLES)
    for way, series in found.items():
        series.report(way)
    for where in ("in a node", "in memory"):
        name = f"replay(v=…) minus replay(), {where}"
        found[f"replay(v=…), {where}"].minus(found["replay()"], name)
    found["set(v=…), in a node"].minus(found["C: one node set"], "set(v=…) minus C, in a node")

    for chain in (memory, value):
        chain.graph.replay()
        rig.wait()
        chain.data.copy_from(np.zeros(chain.data.shape, np.int32))
        chain.launches = 0
    ways = {
        "in memory": rig.replay_rounds(memory, TOGETHER),
        "by value": rig.replay_rounds(value, TOGETHER),
    }
    found = in_turn(ways, rig.effort.rounds, SAMPLES)
    for way, series in found.items():
        say(f"read by every node, {way}: per node", series.at(50) / n, "us")
    found["in memory"].over(found["by value"], "read by every node: in memory over by value")
    twin.drop()


def _one_of(b: fg.DeviceGraphBuilder, n: int, where: str) -> list[tuple[Any, ...]]:
    behind: list[tuple[Any, ...]] = [(1,)] * n
    behind[n // 2] = (b.scalar("v", "int32", 1, where=where),)
    return behind


def _same(b: fg.DeviceGraphBuilder, n: int, where: str) -> list[tuple[Any, ...]]:
    return [(b.scalar("v", "int32", 1, where=where),)] * n


def fresh_and_updated(rig: Rig) -> None:
    """Executables of one graph side by side: as made, one node updated, all nodes updated."""
    n = rig.effort.nodes
    twins = {
        label: rig.twin_chain("add_value", n)
        for label in ("fresh", "fresh again", "one node", "all nodes", "all nodes, 10 times")
    }
    twins["one node"].set(n // 2, 1, 1)
    twins["all nodes"].set(0, n, 2)
    twins["all nodes"].step = 2
    for value in (*range(2, 11), 1):
        twins["all nodes, 10 times"].set(0, n, value)
    ways = {f"C++, {label}": rig.twin_rounds(twin) for label, twin in twins.items()}
    chains = {
        label: rig.chain("add_value", n, scalar=lambda b: _same(b, n, "node"))
        for label in ("fresh", "all nodes")
    }
    chains["all nodes"].graph.set(v=2)
    chains["all nodes"].step = 2
    ways |= {f"package, {label}": rig.replay_rounds(chain) for label, chain in chains.items()}
    found = in_turn(ways, rig.effort.rounds, SAMPLES)
    for way, series in found.items():
        say(f"{way}: per node", series.at(50) / n, "us")
    for label in list(twins)[1:]:
        found[f"C++, {label}"].over(found["C++, fresh"], f"C++: {label} over fresh")
    found["package, all nodes"].over(found["package, fresh"], "package: all nodes over fresh")
    for twin in twins.values():
        twin.drop()


def building(rig: Rig) -> None:
    """A large graph made from nothing: what Python takes beside the driver's calls alone."""
    n = rig.effort.nodes
    data = rig.ctx.create_buffer(BLOCK, "int32")
    function = rig["inc"]

    def build(b: fg.DeviceGraphBuilder) -> None:
        last: list[fg.Node] = []
        for _ in range(n):
            last = [b.add_function(function, data, block_dim=BLOCK, dependencies=last)]

    def created(check: Any) -> Callable[[int], list[float]]:
        def run(samples: int) -> list[float]:
            taken = []
            for _ in range(samples):
                start = perf_counter_ns()
                graph = fg.DeviceGraph.create(rig.ctx, build, check=check)
                taken.append((perf_counter_ns() - start) / 1e3)
                if len(graph.nodes) != n:
                    raise RuntimeError("nodes are missing")
                graph.close()
            return taken

        return run

    parts: dict[str, list[float]] = {"adding": [], "instantiating": []}

    def native(samples: int) -> list[float]:
        taken = []
        for _ in range(samples):
            handle, (adding, instantiating) = rig.twin_build(function, data, n)
            rig.must(rig.twin.twin_drop(handle))
            taken.append(adding + instantiating)
            parts["adding"].append(adding)
            parts["instantiating"].append(instantiating)
        return taken

    ways = {
        "create": Way(created("known")),
        "create, check=False": Way(created(False)),
        "C++": Way(native),
    }
    found = in_turn(ways, rig.effort.rounds, 1)
    for way, series in found.items():
        series.report(f"{way}: whole")
    for part, taken in parts.items():
        say(f"C++, {part}: per node", float(np.median(taken)) / n, "us")
    for way in ("create", "create, check=False"):
        each = Series([[(us - c) / n] for us, c in _pairs(found[way], found["C++"])])
        each.report(f"{way} minus C++: per node")


def _pairs(one: Series, other: Series) -> list[tuple[float, float]]:
    return list(zip(one.medians, other.medians, strict=True))
