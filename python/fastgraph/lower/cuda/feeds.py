"""The last node of a run that keeps a state: outputs go into handles, unless data was bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastgraph.ir.graph import Value
from fastgraph.lower.call import Temp
from fastgraph.lower.cuda.call import Argument, CudaCall, KernelCode
from fastgraph.lower.cuda.launch import i64
from fastgraph.lower.cuda.registry import Target
from fastgraph.lower.cuda.text import source
from fastgraph.lower.flow import Flow, walk
from fastgraph.lower.residency import FeedSpec
from fastgraph.lower.storage import Item, Lowered, Place, Seam, nbytes_of

__all__ = ["FEEDS", "feed_calls"]

FEEDS = "feeds"
THREADS = 256
# What a thread moves at once, and how many blocks do it where there is a lot.
WIDE = 16
WAVES = 4
# One kernel fills so many handles; so that its parameters are few enough.
MOST_FEEDS = 32
ANY_ROW = -1  # As an unsigned word the largest.

# Where a position is told, bytes of it (less than 0: it has no sign), and the last one possible.
Position = tuple[Place, int, int]


def feed_calls(
    lowered: Lowered, feeds: Sequence[FeedSpec], saved: Mapping[Value, Temp], target: Target
) -> list[Item]:
    """Return the calls that copy outputs into handles; let others be computed there.

    `saved` has copies of outputs whose own bytes may be those of a handle.

    Each call copies nothing where the run has met bad data, or a position is out of range: each
    looks at all of them, or comes after one that did.
    """
    graph = lowered.graph
    copied: list[tuple[FeedSpec, Temp]] = []
    for feed in feeds:
        nbytes = nbytes_of(graph.outputs[feed.output][1])
        if feed.in_place:
            root, _ = lowered.roots.of(graph.outputs[feed.output][1])
            lowered.kept.append((feed.handle, root))
        elif nbytes:
            place = Temp(nbytes_of(graph.inputs[feed.handle]), graph.inputs[feed.handle].name)
            lowered.kept.append((feed.handle, place))
            copied.append((feed, place))
    positions = list(dict.fromkeys(_position(lowered, feed) for feed, _ in copied))
    checks = [position for position in positions if position is not None]
    # A position that is fed itself changes last, when nobody looks at it any more.
    told = {feed.input for feed in feeds}
    can_fail = bool(checks) or any(
        ("fault",) in call.arguments
        for _, call in walk(lowered.run_calls)
        if not isinstance(call, Flow)
    )
    calls = []
    for group, looked in (
        ([one for one in copied if one[0].handle not in told], checks),
        ([one for one in copied if one[0].handle in told], []),
    ):
        for start in range(0, len(group), MOST_FEEDS):
            few = group[start : start + MOST_FEEDS]
            calls.append(_feed(lowered, few, saved, looked, can_fail, target))
    return calls


def _position(lowered: Lowered, feed: FeedSpec) -> Position | None:
    graph = lowered.graph
    if not feed.is_located:
        return None
    at = graph.inputs[feed.input] if feed.input is not None else graph.scalars[feed.scalar or 0]
    rows = graph.inputs[feed.handle].shape[0]
    n_rows = graph.outputs[feed.output][1].shape[0]
    width = at.dtype.itemsize * (-1 if at.dtype.kind == "u" else 1)
    return at, width, ANY_ROW if feed.ring else rows - n_rows


def _feed(
    lowered: Lowered,
    copied: Sequence[tuple[FeedSpec, Temp]],
    saved: Mapping[Value, Temp],
    checks: Sequence[Position],
    can_fail: bool,
    target: Target,
) -> Item:
    graph = lowered.graph
    values = [graph.outputs[feed.output][1] for feed, _ in copied]
    ins: list[Value | Temp] = [saved.get(value, value) for value in values]
    outs = tuple(place for _, place in copied)
    arguments: list[Argument] = []
    for i, (_, width, most) in enumerate(checks):
        arguments += [("in", len(ins) + i), i64(width), i64(most)]
    ins += [at for at, _, _ in checks]
    # Not by list.index: what == makes of two values is a node.
    numbers = {position: i for i, position in enumerate(checks)}
    for i, (feed, _) in enumerate(copied):
        value = graph.outputs[feed.output][1]
        nbytes = nbytes_of(value)
        position = _position(lowered, feed)
        rows = graph.inputs[feed.handle].shape[0] if position else 1
        row = nbytes // value.shape[0] if position else nbytes
        arguments += [("out", i), ("in", i)]
        arguments += map(i64, (nbytes, row, rows))
        # Without a position, the first row.
        arguments.append(i64(numbers[position] if position else len(checks)))
    if can_fail:
        arguments += [("fault",), ("node",)]
    longest = max(int(nbytes_of(value)) for value in ins[: len(copied)])
    wanted = -(-longest // (THREADS * WIDE))
    blocks = max(1, min(wanted, WAVES * target.multiprocessors // len(copied)))
    moved = sum(int(nbytes_of(value)) for value in ins[: len(copied)])
    call = CudaCall(
        _code(len(copied), len(checks), can_fail),
        outs,
        tuple(ins),
        (blocks, len(copied), 1),
        (THREADS, 1, 1),
        tuple(arguments),
        # Of the handle it leaves bytes as they are.
        rereads=True,
        nbytes=2 * moved,
        label="feed",
    )
    names = ", ".join(f"{graph.inputs[feed.handle].name!r}" for feed, _ in copied)
    return Seam(FEEDS, "feed", (moved,), f"handles {names}"), call


def _code(n_feeds: int, n_checks: int, can_fail: bool) -> KernelCode:
    entry = f"fg_feed_{n_feeds}_{n_checks}_{int(can_fail)}"
    return KernelCode(source("move") + _kernel(entry, n_feeds, n_checks, can_fail), entry, "feed")


def _kernel(entry: str, n_feeds: int, n_checks: int, can_fail: bool) -> str:
    """Return a kernel of which the rows of blocks fill one handle each."""
    parameters = [f"const char *at{i}, i64 width{i}, u64 most{i}" for i in range(n_checks)]
    parameters += [
        f"char *to{i}, const char *from{i}, u64 n{i}, u64 row{i}, u64 rows{i}, u64 where{i}"
        for i in range(n_feeds)
    ]
    lines = []
    if can_fail:
        parameters.append("u64 *fault, u64 node")
        lines.append("  if (fg_has_failed(fault)) return;\n")
    if n_checks:
        lines.append("  bool bad = false;\n")
        reads = [f"fg_position(at{i}, width{i}, most{i}, bad)" for i in range(n_checks)]
        lines.append(f"  const u64 first[] = {{{', '.join((*reads, '0'))}}};\n")
        first = "blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0"
        lines.append(f"  if (bad) {{\n    if ({first}) fg_fault(fault, node);\n")
        lines.append("    return;\n  }\n")
    else:
        lines.append("  const u64 first[] = {0};\n")
    lines += [
        f"  if (blockIdx.y == {i}) "
        f"fg_fill_rows(to{i}, from{i}, n{i}, row{i}, rows{i}, first[where{i}]);\n"
        for i in range(n_feeds)
    ]
    head = f"__global__ void {entry}({', '.join(parameters)})"
    return f"{head} {{\n  fg_wait();\n  fg_trigger();\n{''.join(lines)}}}\n"
