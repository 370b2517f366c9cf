"""Nodes inside others: how they are seen, found and changed; what clones make of them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from tests.device.kernels import N, fill, inc


def flag_of(ctx, value=1):
    """One uint32 on the device."""
    return ctx.to_device(np.array([value], "u4"))


def nested(ctx, kernels, flag, x, y):
    """A chain: x = 1; if flag: (x += 10; if flag: y = x) else x = 5; y += 1."""

    def deepest(b):
        b.add_copy(y, x, name="deep copy")

    def then(b):
        with b.region():
            inc(b, kernels, x, 10.0, name="inner inc")
            b.add_if(flag, deepest, name="inner if")

    def build(b):
        with b.region():
            fill(b, kernels, x, 1.0, name="fill")
            b.add_if(flag, then, lambda e: e.add_memset(x, 5.0, name="else set"), name="if")
            inc(b, kernels, y, 1.0, name="last")

    return build


def test_nodes_show_what_is_inside(ctx, kernels):
    x, y, flag = ctx.create_buffer(N), ctx.create_buffer(N), flag_of(ctx)
    graph = fg.DeviceGraph.create(ctx, nested(ctx, kernels, flag, x, y))
    fill_info, if_info, last = graph.nodes
    assert (fill_info.bodies, last.bodies) == ((), ())
    then, other = if_info.bodies
    assert [(n.id, n.name, n.kind, n.dependencies) for n in then] == [
        (0, "inner inc", "function", ()),
        (1, "inner if", "if", (0,)),
    ]
    assert [n.name for n in then[1].bodies[0]] == ["deep copy"]
    assert [n.name for n in other] == ["else set"]
    assert graph.stats.nodes == 7


@pytest.mark.parametrize(
    ("node", "changes", "want"),
    [
        ("inner inc", {"args": 20.0}, 22),
        ((1, 0, 0), {"args": 20.0}, 22),
        ([1, 0, 0], {"args": 20.0}, 22),
        ("inner inc", {"enabled": False}, 2),
        ((1, 0, 1, 0, 0), {"enabled": False}, 1),
        ("deep copy", {"src": 7.0}, 8),
        ((np.int64(1), 0, 1, 0, 0), {"src": 7.0}, 8),
        ("fill", {"args": 3.0}, 14),
        ((0,), {"args": 3.0}, 14),
    ],
)
def test_a26_update_inside_bodies(ctx, kernels, node, changes, want):
    x, y, flag = ctx.create_buffer(N), ctx.create_buffer(N), flag_of(ctx)
    graph = fg.DeviceGraph.create(ctx, nested(ctx, kernels, flag, x, y))
    clone = graph.clone()
    if "args" in changes:
        changes = {"args": (x, changes["args"], N)}
    if "src" in changes:
        changes = {"src": ctx.to_device(np.full(N, changes["src"], "f4"))}
    graph.update(node, **changes)
    for made in (graph, graph.clone(), clone):
        ctx.memset(y, 0.0)
        made.replay()
        assert (y.numpy() == (12 if made is clone else want)).all()
    assert (graph.stats.updates, clone.stats.updates) == (1, 0)
    ctx.memset(flag, 0)
    graph.update("else set", value=6.0)
    graph.replay()
    assert (x.numpy() == 6).all()


def test_a26_update_by_the_node_itself(ctx, kernels):
    x, y, flag = ctx.create_buffer(4), ctx.create_buffer(4), flag_of(ctx)
    kept = []

    def build(b):
        first = b.add_memset(x, 1.0)
        outer = b.add_if(
            flag,
            lambda i: kept.append(i.add_memset(x, 2.0, name="same")),
            lambda i: kept.append(i.add_memset(y, 3.0, name="same")),
            dependencies=[first],
        )
        kept.append(outer)

    graph = fg.DeviceGraph.create(ctx, build)
    assert [node.path for node in kept] == [(1, 0, 0), (1, 1, 0), (1,)]
    graph.update(kept[0], value=9.0)
    graph.replay()
    assert (x.numpy() == 9).all()
    with pytest.raises(fg.GraphError, match=r"2 nodes are named 'same'.*\(1, 0, 0\), \(1, 1, 0\)"):
        graph.update("same", value=1.0)


def test_a26_wrong_updates_inside_change_nothing(ctx, kernels):
    x, y, flag = ctx.create_buffer(N), ctx.create_buffer(N), flag_of(ctx)
    graph = fg.DeviceGraph.create(ctx, nested(ctx, kernels, flag, x, y))
    host = np.zeros(N, "f4")
    for node, changes, error, text in (
        ((1, 0), {"value": 1.0}, fg.GraphError, "no path"),
        ((), {"value": 1.0}, fg.GraphError, "no path"),
        ((1, 2, 0), {"value": 1.0}, fg.GraphError, "has 2 bodies"),
        ((0, 0, 0), {"value": 1.0}, fg.GraphError, "has no bodies"),
        ((1, 0, 2), {"value": 1.0}, fg.GraphError, r"no node 2 in body \(1, 0\)"),
        ((1, 0, -1), {"value": 1.0}, fg.GraphError, "no node -1"),
        ((1, True, 0), {"value": 1.0}, fg.GraphError, "by id, path or name"),
        ((1, "a", 0), {"value": 1.0}, fg.GraphError, "by id, path or name"),
        ("if", {"enabled": False}, fg.GraphError, "nothing that can be changed"),
        ((1, 0, 1), {"enabled": False}, fg.GraphError, r"\(1, 0, 1\) \(if 'inner if'\)"),
        ("else set", {"value": "x"}, fg.InputError, "no element"),
        ("inner inc", {"grid_dim": 0}, fg.GraphError, "grid_dim"),
        ("inner inc", {"args": (x, 1.0)}, fg.InputError, "arguments"),
        ("deep copy", {"src": host}, fg.UnsupportedError, "inside a body"),
        ("deep copy", {"dst": host}, fg.UnsupportedError, "inside a body"),
        ("deep copy", {"dst": ctx.create_buffer(N + 1)}, fg.InputError, "copy of"),
    ):
        with pytest.raises(error, match=text):
            graph.update(node, **changes)
        assert graph.stats.updates == 0
    graph.replay()
    assert (y.numpy() == 12).all()


def test_a26_scalars_in_updates_inside(ctx, kernels):
    x, flag, kept = ctx.create_buffer(N), flag_of(ctx), []

    def build(b):
        kept[:] = [b.scalar("v", "float32", 4.0), b.scalar("m", "float32", 4.0, where="memory")]
        b.add_if(flag, lambda i: fill(i, kernels, x, 1.0, name="fill"))

    graph = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.UnsupportedError, match="inside a body scalars"):
        graph.update("fill", args=(x, kept[0], N))
    graph.replay()
    assert (x.numpy() == 1).all()


def test_a26_hazards_are_looked_for_inside(ctx, kernels):
    x, y, flag = ctx.create_buffer(N), ctx.create_buffer(N), flag_of(ctx)

    def body(b):
        fill(b, kernels, x, 1.0, name="one")
        fill(b, kernels, y, 2.0, name="two")

    def build(b):
        b.add_if(flag, body, name="if")
        b.add_memset(ctx.create_buffer(N), 0.0, name="beside")

    graph = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.HazardError, match=r"'one' and 1 'two'"):
        graph.update("two", args=(x, 2.0, N))
    with pytest.raises(fg.HazardError, match="'if' and 1 'beside'"):
        graph.update("beside", dst=y)
    with pytest.raises(fg.HazardError, match="'if' and 1 'beside'"):
        graph.update("beside", dst=flag, value=1)
    graph.replay()
    assert (x.numpy()[0], y.numpy()[0]) == (1, 2)


def test_a26_updates_see_through_pointers(ctx, kernels):
    x, y, z = (ctx.create_buffer(N) for _ in range(3))

    def build(b):
        fill(b, kernels, b.pointer("p", x), 1.0, name="by pointer")
        fill(b, kernels, y, 2.0, name="two")

    graph = fg.DeviceGraph.create(ctx, build)
    with pytest.raises(fg.HazardError, match="'by pointer' and 1 'two'"):
        graph.update("two", args=(x, 2.0, N))
    graph.set(p=z)
    with pytest.raises(fg.HazardError, match="'by pointer' and 1 'two'"):
        graph.update("two", args=(z, 2.0, N))
    # The bytes where a pointer points by default are not the pointer.
    graph.update("two", args=(x, 2.0, N))
    graph.replay(p=y)
    assert [buf.numpy()[0] for buf in (x, y, z)] == [2, 1, 0]


def test_verify_knows_where_pointers_point_now(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: inc(b, kernels, b.pointer("p", x), 1.0), verify=3)
    graph.replay()
    graph.set(p=y)
    graph.replay()
    graph.replay()
    assert (x.numpy()[0], y.numpy()[0]) == (1, 2)


def test_clones_have_twins_of_their_own_also_in_updates(ctx):
    """What an update takes over from the recording is the clone's, not the original's."""
    y, z = ctx.create_buffer(4), ctx.create_buffer(4)

    def build(b, twin):
        b.add_copy(y[0:2], twin[1:3], name="copy")
        b.add_output(twin)

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(4, "f4"))
    clone = graph.clone()
    for made in (clone, clone.clone()):
        graph.replay(np.full(4, 5, "f4"))
        made.update("copy", dst=z[2:4])
        made.replay(np.arange(4, dtype="f4"))
        assert z.numpy().tolist() == [0, 0, 1, 2]
        ctx.memset(z, 0.0)
    assert (graph.run(np.full(4, 6, "f4"))[0] == 6).all()


def test_pointers_at_twins_are_the_clones_own(ctx):
    y = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(
        ctx, lambda b, twin: b.add_copy(y, b.pointer("p", twin)), np.zeros(4, "f4")
    )
    clone = graph.clone()
    graph.replay(np.full(4, 5, "f4"))
    clone.replay(np.full(4, 6, "f4"))
    assert (y.numpy() == 6).all()


def test_ranges_of_scratch(ctx, kernels):
    out = ctx.create_buffer((2, 3))

    def build(b):
        scratch = b.create_buffer((4, 3))
        assert (len(scratch), scratch[1:3].shape, scratch[2:].nbytes) == (4, (2, 3), 24)
        assert scratch[1:3][1:2].shape == (1, 3)
        for bad in (0, (0, 1), slice(0, 4, 2), None):
            with pytest.raises(fg.InputError):
                scratch[bad]
        with pytest.raises(fg.InputError, match="without axes"):
            b.create_buffer(())[0:1]
        with b.region():
            b.add_memset(scratch, 1.0)
            b.add_memset(scratch[1:3][1:], 2.0)
            b.add_memset(scratch[9:], 3.0)
            b.add_copy(out, scratch[1:3])
        b.add_output(scratch[2:3])

    graph = fg.DeviceGraph.create(ctx, build)
    for made in (graph, graph.clone()):
        ctx.memset(out, 0.0)
        assert made.run()[0].tolist() == [[2, 2, 2]]
        assert out.numpy().tolist() == [[1, 1, 1], [2, 2, 2]]


def test_ranges_of_scratch_share_its_planning(ctx):
    def build(b, ordered):
        one, two = b.create_buffer(1024), b.create_buffer(1024)
        first = b.add_memset(one[:16], 1.0)
        last = b.add_copy(one[16:32], one[:16], dependencies=[first])
        b.add_memset(two[512:], 2.0, dependencies=[last] if ordered else [])

    assert fg.DeviceGraph.create(ctx, lambda b: build(b, True)).nbytes == 4096
    assert fg.DeviceGraph.create(ctx, lambda b: build(b, False)).nbytes == 8192

    def beside(b):
        one = b.create_buffer(8)
        b.add_memset(one[:4], 1.0)
        b.add_memset(one[4:], 1.0)

    def across(b):
        one = b.create_buffer(8)
        b.add_memset(one[:5], 1.0)
        b.add_memset(one[4:], 1.0)

    fg.DeviceGraph.create(ctx, beside)
    with pytest.raises(fg.HazardError, match="bytes 16 to 20"):
        fg.DeviceGraph.create(ctx, across)


def test_ranges_of_scratch_with_an_address(ctx):
    def build(b):
        scratch = b.create_buffer(8)
        part = scratch[2:4]
        assert part.ptr == scratch.ptr + 8
        b.add_memset(part, 1.0)
        b.add_output(scratch)

    assert fg.DeviceGraph.create(ctx, build).run()[0].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_ranges_of_anothers_scratch(ctx):
    kept = []

    def build(b):
        kept.append(b.create_buffer(8))
        b.add_memset(kept[-1], 1.0, name="set")
        b.add_output(kept[-1])

    graph, other = (fg.DeviceGraph.create(ctx, build) for _ in range(2))
    for act in (
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_memset(kept[0][:4], 1.0)),
        lambda: other.update("set", dst=kept[0][:4]),
    ):
        with pytest.raises(fg.GraphError, match="another graph"):
            act()
    graph.update("set", dst=kept[0][4:])
    assert graph.run()[0][4:].tolist() == [1, 1, 1, 1]


def test_a_closed_handle_tells_nothing(ctx):
    x = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0))
    other = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0))
    graph.close()
    for act in (
        lambda: graph.nodes,
        lambda: graph.edges,
        lambda: graph.stats,
        lambda: graph.nbytes,
        lambda: graph.inputs,
        lambda: graph.outputs,
        graph.to_dot,
        graph.clone,
        graph.upload,
        graph.run,
        graph.replay,
        graph.set,
        lambda: graph.update(0, value=1.0),
    ):
        with pytest.raises(fg.GraphError, match="closed"):
            act()
    assert graph.context == ctx
    assert repr(graph) == "<DeviceGraph closed>"
    graph.close()
    assert len(other.nodes) == 1


def test_closed_handles_hold_nothing(ctx):
    gc.collect()
    before = counters.snapshot()
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(ctx.create_buffer(4), 1.0))
    graph.close()
    gc.collect()
    after = counters.snapshot()
    assert {k: after[k] - before[k] for k in ("blocks", "buffers", "executables")} == {
        "blocks": 0,
        "buffers": 0,
        "executables": 0,
    }
