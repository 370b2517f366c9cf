"""Each check of a graph, with a graph that must fail it, and one that must not."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from tests.device.cuda.processes import run
from tests.device.kernels import N, add, fill, inc

pytestmark = pytest.mark.cuda


def test_known_accesses(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    pinned = ctx.create_host_buffer(N)

    def build(*nodes):
        def made(b):
            for node in nodes:
                node(b)

        return fg.DeviceGraph.create(ctx, made)

    for bad in (
        (lambda b: fill(b, kernels, x, 1.0), lambda b: fill(b, kernels, x, 2.0)),
        (lambda b: fill(b, kernels, x, 1.0), lambda b: add(b, kernels, y, x, x)),
        (lambda b: b.add_copy(pinned, x), lambda b: b.add_memset(x[10:20], 1.0)),
        (lambda b: b.add_copy(pinned[:20], x[:20]), lambda b: b.add_copy(pinned[19:21], y[:2])),
    ):
        with pytest.raises(fg.HazardError):
            build(*bad)
    for good in (
        (lambda b: add(b, kernels, x, y, y), lambda b: b.add_copy(pinned, y)),
        (lambda b: b.add_copy(pinned[:20], x[:20]), lambda b: b.add_copy(pinned[20:22], y[:2])),
    ):
        build(*good).run()


def test_true_takes_the_unknown_as_written(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b, said):
        inc(b, kernels, said(x), 0.0)
        inc(b, kernels, fg.In(x), 0.0)

    fg.DeviceGraph.create(ctx, lambda b: build(b, fg.In), check=True).run()
    for said in (fg.InOut, fg.Out, lambda buffer: buffer):
        with pytest.raises(fg.HazardError):
            fg.DeviceGraph.create(ctx, lambda b, said=said: build(b, said), check=True)


def test_true_finds_a_build_that_changed(ctx, kernels):
    x, values = ctx.create_buffer(N), {"v": 1.0}
    cache = fg.DeviceGraphCache()

    def build(b):
        fill(b, kernels, x, values["v"])

    fg.DeviceGraph.create(ctx, build, cache=cache, check=True).run()
    fg.DeviceGraph.create(ctx, build, cache=cache, check=True).run()
    values["v"] = 2.0
    with pytest.raises(fg.GraphError, match="records"):
        fg.DeviceGraph.create(ctx, build, cache=cache, check=True)


@pytest.mark.fake
@pytest.mark.timeout(200)
def test_true_names_the_node_of_a_fault(native_path):
    out = run(
        """
ctx = fg.DeviceContext("cuda")
fill = fill_of(ctx)
x = ctx.create_buffer(N)
y = ctx.create_buffer(N)
gone = fg.Pointer(y.ptr, y.nbytes, object(), "float32", "cuda")

def build(b):
    with b.region():
        b.add_function(fill, x, 1.0, N, **GRID, name="good")
        b.add_function(fill, gone, 2.0, N, **GRID, name="bad")
        b.add_function(fill, x, 3.0, N, **GRID, name="late")

graph = fg.DeviceGraph.create(ctx, build, check=True)
graph.replay()
del y
gc.collect()
error = refusal(graph.replay)
print(type(error).__name__, error.code)
print(" ".join(error.__notes__))
""",
        native_path,
    )
    first, notes = out.splitlines()
    assert first == "ContextPoisonedError 700"
    assert "in node 1 'bad' (function)" in notes
    assert "good" not in notes
    assert "late" not in notes


@pytest.mark.fake
def test_true_names_the_node_that_the_driver_refuses(ctx, kernels, fake):
    x = ctx.create_buffer(N)

    def build(b):
        with b.region():
            fill(b, kernels, x, 1.0, name="one")
            fill(b, kernels, x, 2.0, name="two")

    graph = fg.DeviceGraph.create(ctx, build, check=True)
    graph.replay()
    fake.fail("cuGraphLaunch", 1, 2)
    with pytest.raises(fg.DriverError) as caught:
        graph.replay()
    assert any("node 1 'two'" in note for note in caught.value.__notes__)
    graph.replay()
    assert (x.numpy() == 2).all()


def test_true_waits_after_each_node(ctx, kernels, more):
    x = ctx.create_buffer(N)
    flag = ctx.to_device(np.ones(1, "u4"))

    def build(b, live):
        with b.region():
            b.add_function(more.linger, 2_000_000)
            fill(b, kernels, x, b.scalar("v", "float32", 1.0))
            b.add_if(flag, lambda body: inc(body, kernels, x, 1.0))
            add(b, kernels, x, x, live)
            b.add_host_function(lambda: None)
        b.add_output(x)

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"), check=True)
    graph.replay(np.ones(N, "f4"))
    assert ctx.stream.unobserved == 0
    assert (x.numpy() == 3).all()
    assert (graph.run(np.ones(N, "f4"), v=5.0)[0] == 7).all()
    assert (graph.run(np.ones(N, "f4"))[0] == 3).all()


def test_verify_finds_a_missing_edge(ctx, kernels):
    """With two orders there is an even chance each time."""
    x = ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, 1.0)
        fill(b, kernels, x, 2.0)
        inc(b, kernels, x, 1.0)

    graph = fg.DeviceGraph.create(ctx, build, check=False, verify=20)
    with pytest.raises(fg.GraphError, match="an edge is missing"):
        for _ in range(20):
            graph.replay()


def test_verify_finds_nothing_where_all_is_well(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_host_buffer(N)
    flag = ctx.to_device(np.ones(1, "u4"))
    other = ctx.to_device(np.full(N, 5, "f4"))

    def build(b, live):
        scratch = b.create_buffer(N)
        first = fill(b, kernels, scratch, b.scalar("v", "float32", 1.0))
        second = add(b, kernels, x, scratch, live, dependencies=[first])
        both = b.add_if(flag, lambda body: inc(body, kernels, x, 1.0), dependencies=[second])
        b.add_copy(y, b.pointer("p", x), dependencies=[both])
        b.add_output(y)

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"), verify=4)
    live = np.full(N, 2, "f4")
    assert (graph.run(live)[0] == 4).all()
    assert (graph.run(live, v=3.0)[0] == 6).all()
    assert (graph.run(live, p=other)[0] == 5).all()
    for _ in range(3):
        assert (graph.run(live)[0] == 4).all()


def test_verify_finds_what_differs_from_run_to_run(ctx, more):
    """A kernel whose result depends on how often it ran, over memory that is copied before."""
    counter, slots = ctx.create_buffer(1, "uint32"), ctx.create_buffer(2, "uint32")

    def build(b):
        b.add_function(more.take_number, counter, slots[:1])
        b.add_function(more.take_number, counter, slots[1:])

    graph = fg.DeviceGraph.create(ctx, build, check=False, verify=20)
    with pytest.raises(fg.GraphError, match="verify"):
        for _ in range(20):
            graph.replay()
