"""Memory over long runs on a GPU: graphs of many keys, and threads that run one graph."""

from __future__ import annotations

from time import perf_counter

from bench.gpu.native import say
from bench.gpu.rig import Rig
from bench.graph_soak import ROOM, create_many, run_from_threads, zipf

__all__ = ["soak"]

THREADS = 16


def soak(rig: Rig) -> None:
    """Zipf keys with room for a tenth of them; then threads with inputs of their own."""
    effort = rig.effort
    # Executables and blocks that drivers and allocators keep for reuse are there from now on.
    create_many(rig.ctx, zipf(effort.creates // 10), effort.creates // 10)
    began = perf_counter()
    plateau, stats = create_many(rig.ctx, zipf(effort.creates), effort.creates)
    say("creates", effort.creates, "", note=f"in {perf_counter() - began:.1f} s")
    for look in plateau.looks:
        note = f"{look.graphs} graphs, {look.seconds:.1f} s"
        say(f"host bytes after {look.after} creates", look.resident, "B", note=note)
        say(f"device bytes after {look.after} creates", look.device, "B", note=note)
    for what, told in (("resident", "host"), ("device", "device")):
        say(f"{told} bytes above the plateau", plateau.growth(what), "B")
    say("live objects above the plateau", plateau.growth("live"), "")
    say("graphs alive", stats.live_graphs, "", note=f"room for {ROOM}")
    say("builds", stats.builds, "", note=f"{stats.hits} hits, {stats.evictions} evictions")

    began = perf_counter()
    done = run_from_threads(rig.ctx, THREADS, effort.runs, effort.seconds)
    seconds = perf_counter() - began
    say("runs of the threads", done, "", note=f"{THREADS} threads, {seconds:.1f} s")
    say("runs of the threads over those asked for", done / (THREADS * effort.runs), "ratio")
    say("runs of the threads: each", seconds * 1e6 / max(1, done), "us")
