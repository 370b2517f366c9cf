"""The call of ``replay()``: over a loop in C on the same executable, and beside other packages."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from typing import Any

import fastgraph as fg
from bench.gpu.clockwork import Way, in_turn, loop, nothing
from bench.gpu.native import say
from bench.gpu.peers import PeerGraph
from bench.gpu.rig import BLOCK, TOGETHER, Rig

__all__ = ["allocations", "replay_beside", "replay_call"]

STATES = {"drained": False, "busy": True}
# Fewer than the launches after which the GIL is let go.
COUNTED = 32


def replay_call(rig: Rig) -> None:
    """``replay()`` and the driver's call on the same executable, in turn."""
    for n in rig.effort.chains:
        chain = rig.chain("inc", n)
        for state, busy in STATES.items():
            ways = {
                "replay()": rig.replay_call(chain, busy),
                "C loop": rig.chain_launch_call(chain, busy),
            }
            found = in_turn(ways, rig.effort.rounds, rig.effort.few(n))
            for way, series in found.items():
                series.report(f"{n}: {way}, {state}")
            name = f"{n}: replay() minus C loop, {state}"
            found["replay()"].minus(found["C loop"], name)
        blocks, nbytes = allocations(chain.graph.replay, rig.wait)
        chain.launches += 3 * COUNTED
        chain.check()
        say(f"{n}: blocks left by {COUNTED} replays", blocks, "")
        say(f"{n}: bytes allocated during {COUNTED} replays", nbytes, "B")


def allocations(call: Callable[[], object], wait: Callable[[], object]) -> tuple[int, int]:
    """Blocks that `COUNTED` calls leave behind, and the most bytes they held meanwhile.

    Less what the counting itself takes. Calls `call` three times as often.
    """
    taken = []
    for counted in (nothing, call):
        for _ in range(COUNTED):
            counted()
        wait()
        gc.collect()
        gc.disable()
        try:
            before = sys.getallocatedblocks()
            for _ in repeat(None, COUNTED):
                counted()
            blocks = sys.getallocatedblocks() - before
            wait()
            tracemalloc.start()
            try:
                tracemalloc.reset_peak()
                start, _ = tracemalloc.get_traced_memory()
                for _ in repeat(None, COUNTED):
                    counted()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            wait()
        finally:
            gc.enable()
        taken.append((blocks, peak - start))
    (idle_blocks, idle_bytes), (blocks, nbytes) = taken
    return max(0, blocks - idle_blocks), max(0, nbytes - idle_bytes)


def replay_beside(rig: Rig, peer_name: str) -> None:
    """``replay()`` in turn with another package's call on a graph of the same kernels.

    Each also beside a loop in C on its own executable, where it tells its handle.
    """
    peer = import_module(f"bench.gpu.peers.{peer_name}")
    for n in rig.effort.chains:
        chain = rig.chain("inc", n)
        data = rig.ctx.create_buffer(BLOCK, "int32")
        theirs = Theirs(rig, peer, data, n, peer.chain(rig, "inc", data.ptr, n))
        for state, busy in STATES.items():
            ways = {
                "fastgraph": rig.replay_call(chain, busy),
                peer.NAME: theirs.call(busy),
                "C loop on ours": rig.chain_launch_call(chain, busy),
            }
            if theirs.made.executable:
                ways["C loop on theirs"] = theirs.twin(busy)
            found = in_turn(ways, rig.effort.rounds, rig.effort.few(n))
            for way, series in found.items():
                series.report(f"{n}: {way}, {state}")
            ours, other = found["fastgraph"], found[peer.NAME]
            ours.over(other, f"{n}: fastgraph over {peer.NAME}, {state}")
            ours.minus(found["C loop on ours"], f"{n}: fastgraph minus C loop, {state}")
            if theirs.made.executable:
                name = f"{n}: {peer.NAME} minus C loop, {state}"
                other.minus(found["C loop on theirs"], name)


class Theirs:
    """Another package's chain, and how often it was launched."""

    def __init__(self, rig: Rig, peer: Any, data: fg.Buffer, nodes: int, made: PeerGraph) -> None:
        self.rig = rig
        self.name = peer.NAME
        self.data = data
        self.nodes = nodes
        self.made = made
        self.launches = 0

    def call(self, busy: bool) -> Way:
        """Its launch, as a user writes it."""
        made, together = self.made, TOGETHER if busy else 1

        def before() -> None:
            if busy:
                self.rig.busy(made.stream)
                made.launch()
            self.count(together + busy)

        timed = loop(made.line, made.names, before=before, after=self.wait, together=together)
        return Way(timed, self.check, self.rig.clock / together)

    def twin(self, busy: bool) -> Way:
        """A loop in C on its executable."""
        executable = self.made.executable
        assert executable is not None
        way = self.rig.launch_call(executable, self.made.stream, busy, self.count)
        return Way(way.run, self.check, way.clock)

    def count(self, launches: int) -> None:
        """Note launches."""
        self.launches += launches

    def wait(self) -> None:
        """Wait for its stream."""
        self.rig.must(self.rig.twin.twin_wait(self.made.stream))

    def check(self) -> None:
        """Each kernel of each launch ran once."""
        self.wait()
        found = self.data.numpy()
        if (found != self.nodes * self.launches).any():
            wanted = self.nodes * self.launches
            raise RuntimeError(f"{self.name}'s kernels counted {found[0]}, not {wanted}")
