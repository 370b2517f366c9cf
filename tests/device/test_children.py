"""Graphs inside graphs: their inputs, outputs, memory, and compiled models among them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters, isa
from tests.device.kernels import N, fill, inc


def doubled(ctx, kernels):
    """A graph with one copied input whose output is its double."""

    def build(b, x):
        y = b.create_buffer(N)
        b.add_function(kernels.add, y, x, x, N, grid_dim=4, block_dim=256, name="double")
        b.add_output(y)

    return fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))


def counter(ctx, kernels):
    """A graph that counts its copied input up in place, and gives it out."""

    def build(b, x):
        inc(b, kernels, x, 1.0, name="count")
        b.add_output(x)

    return fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))


def test_a_childs_input_is_read_where_it_lies(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)
    child = doubled(ctx, kernels)

    def build(b):
        node = b.add_child_graph(child, inputs=[x], name="child")
        b.add_copy(y, node.outputs[0], dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.nbytes == 4 * N  # no twin
    assert [n.name for n in graph.nodes[0].bodies[0]] == ["double"]
    child.close()
    gc.collect()
    for made in (graph, graph.clone()):
        for value in (1.0, 3.0):
            ctx.memset(x, value)
            made.replay()
            assert (y.numpy() == 2 * value).all()
    with pytest.raises(fg.HazardError, match="'child'"):
        again = doubled(ctx, kernels)
        fg.DeviceGraph.create(
            ctx,
            lambda b: [b.add_child_graph(again, inputs=[x], name="child"), b.add_memset(x, 1.0)],
        )


def test_a_childs_input_that_it_writes_is_a_copy(ctx, kernels):
    x = ctx.to_device(np.full(N, 5, "f4"))
    child = counter(ctx, kernels)

    def build(b):
        node = b.add_child_graph(child, inputs=[x], name="c")
        b.add_output(node.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build)
    assert [(n.name, n.dependencies) for n in graph.nodes[0].bodies[0]] == [
        ("c input 0", ()),
        ("count", (0,)),
    ]
    for made in (graph, graph.clone()):
        for _ in range(2):
            assert (made.run()[0] == 6).all()
    assert (x.numpy() == 5).all()
    # What fills the input, and what is done to it, can both be changed.
    z = ctx.to_device(np.full(N, 7, "f4"))
    graph.update("c input 0", src=z)
    graph.update((0, 0, 1), enabled=False)
    assert (graph.run()[0] == 7).all()


def test_a_childs_input_is_a_copy_where_the_child_writes_to_the_same_buffer(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b, twin):
        with b.region():
            fill(b, kernels, x, 9.0)
            inc(b, kernels, x, 0.0)
            y = b.create_buffer(N)
            b.add_copy(y, twin)
            b.add_output(y)

    child = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))

    def parent(b, source):
        node = b.add_child_graph(child, inputs=[source])
        b.add_output(node.outputs[0])

    for source, want in ((x, 1.0), (ctx.to_device(np.full(N, 2, "f4")), 2.0)):
        graph = fg.DeviceGraph.create(ctx, lambda b, s=source: parent(b, s))
        ctx.memset(x, 1.0)
        assert (graph.run()[0] == want).all()


def test_a_child_with_several_inputs(ctx, kernels):
    """Only what the child writes to is copied, though the twins lie side by side."""

    def build(b, x, y, z):
        with b.region():
            inc(b, kernels, y, 1.0, name="inc")
            out = b.create_buffer(N)
            b.add_function(kernels.add, out, x, y, N, grid_dim=4, block_dim=256)
            b.add_function(kernels.add, out, out, z, N, grid_dim=4, block_dim=256, name="sum")
            b.add_output(out)

    child = fg.DeviceGraph.create(ctx, build, *(np.zeros(N, "f4") for _ in range(3)))
    given = [ctx.to_device(np.full(N, value, "f4")) for value in (1, 10, 100)]

    def parent(b):
        b.add_output(b.add_child_graph(child, inputs=given, name="c").outputs[0])

    graph = fg.DeviceGraph.create(ctx, parent)
    assert [n.name for n in graph.nodes[0].bodies[0]][:2] == ["c input 1", "inc"]
    graph.update("sum", grid_dim=4)
    for made in (graph, graph.clone()):
        for _ in range(2):
            assert (made.run()[0] == 112).all()
    assert [buf.numpy()[0] for buf in given] == [1, 10, 100]


def test_what_can_fill_a_childs_input(ctx, kernels):
    child = doubled(ctx, kernels)
    host = np.full(N, 3, "f4")

    def build(b, twin):
        scratch = b.create_buffer(2 * N)
        set_it = b.add_memset(scratch, 2.0)
        p = b.pointer("p", ctx.to_device(np.full(N, 4, "f4")))
        for i, source in enumerate((scratch[N:], host, p, twin)):
            node = b.add_child_graph(child, inputs=[source], dependencies=[set_it], name=f"c{i}")
            b.add_output(node.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build, np.zeros(N, "f4"))
    live = np.full(N, 5, "f4")
    assert [out[0] for out in graph.run(live)] == [4, 6, 8, 10]
    host[:] = 30
    other = ctx.to_device(np.full(N, 40, "f4"))
    assert [out[0] for out in graph.run(live, p=other)] == [4, 60, 80, 10]
    assert [out[-1] for out in graph.clone().run(live)] == [4, 60, 8, 10]


def test_children_of_children(ctx, kernels):
    x = ctx.to_device(np.full(N, 1, "f4"))
    child = doubled(ctx, kernels)

    def middle(b, twin):
        one = b.add_child_graph(child, inputs=[twin], name="one")
        two = b.add_child_graph(child, inputs=one.outputs, name="two", dependencies=[one])
        inc(b, kernels, two.outputs[0], 0.5, name="inc", dependencies=[two])
        b.add_output(two.outputs[0])

    inner = fg.DeviceGraph.create(ctx, middle, np.zeros(N, "f4"))
    assert (inner.run(np.full(N, 3, "f4"))[0] == 12.5).all()

    def build(b):
        first = b.add_child_graph(inner, inputs=[x], name="first")
        second = b.add_child_graph(inner, inputs=first.outputs, name="second", dependencies=[first])
        b.add_output(second.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build)
    assert (graph.run()[0] == 18.5).all()
    with pytest.raises(fg.GraphError, match="4 nodes are named 'double'"):
        graph.update("double", enabled=False)
    with pytest.raises(fg.GraphError, match="2 nodes are named 'inc'"):
        graph.update("inc", enabled=False)
    graph.update((0, 0, 2), enabled=False)
    for made in (graph, graph.clone()):
        assert (made.run()[0] == 16.5).all()
    assert (inner.run(np.full(N, 3, "f4"))[0] == 12.5).all()


def test_a26_updates_inside_children(ctx, kernels):
    """An update keeps what the child's node had: scratch, twins, scalars, pointers, ranges."""
    x, out = ctx.to_device(np.full(N, 2, "f4")), ctx.create_buffer(N)
    target = ctx.create_buffer(N)

    def middle(b, twin):
        scratch = b.create_buffer(2 * N)
        v = b.scalar("v", "float32", 3.0)
        with b.region():
            b.add_function(
                kernels.scaled, scratch[N:], twin, twin, v, N, grid_dim=4, block_dim=256, name="s"
            )
            b.add_copy(b.pointer("p", target), scratch[N:], name="out")

    child = fg.DeviceGraph.create(ctx, middle, np.zeros(N, "f4"))
    child.set(v=10.0)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(child, inputs=[x]))
    child.set(v=100.0, p=ctx.create_buffer(N))
    graph.replay()
    assert (target.numpy() == 40).all()
    ctx.memset(target, 0.0)
    graph.update("s", grid_dim=1)
    graph.replay()
    assert (target.numpy()[:256] == 40).all()
    graph.update("out", dst=out)
    ctx.memset(target, 0.0)
    for made in (graph, graph.clone()):
        ctx.memset(out, 0.0)
        made.replay()
        assert out.numpy()[0] == 40
    assert not target.numpy().any()
    child.replay(np.full(N, 1, "f4"))
    assert not target.numpy().any()
    assert child.stats.updates == 0


def test_children_without_what_they_need(ctx, kernels):
    x = ctx.create_buffer(N)
    child = doubled(ctx, kernels)
    plain = fg.DeviceGraph.create(ctx, lambda b: b.add_memset(x, 1.0))
    seen = []

    def build(b):
        for graph, inputs, text in (
            (child, None, r"has inputs \(0 float32\[1024\]\), which nothing fills"),
            (child, [], "0 inputs were given; .* takes 1"),
            (child, [x, x], "2 inputs were given"),
            (child, {"x": x}, "have no names"),
            (child, 5, "a list"),
            (child, "x", "a list"),
            (child, [x[1:]], r"is float32\[1024\], not float32\[1023\]"),
            (child, [ctx.create_buffer(N, "int32")], "not int32"),
            (child, [3.0], "input '0'"),
            (child, [np.zeros(2 * N, "f4")[::2]], "dense"),
            (plain, [x], "1 inputs were given; .* takes 0"),
        ):
            with pytest.raises(fg.InputError, match=text):
                b.add_child_graph(graph, inputs=inputs)
            seen.append(text)
        assert b.nodes == []

    graph = fg.DeviceGraph.create(ctx, build)
    assert len(seen) == 11
    assert graph.nbytes == 0
    assert plain.nodes[0].name == "memset"


def test_a_child_that_is_rolled_back_leaves_nothing(ctx, kernels):
    child = counter(ctx, kernels)
    x = ctx.create_buffer(N)

    def build(b):
        with pytest.raises(ZeroDivisionError), b.region():
            b.add_child_graph(child, inputs=[x])
            1 / 0  # noqa: B018
        with pytest.raises(fg.GraphError):
            b.add_child_graph(child, inputs=[x], dependencies=[5])

    gc.collect()
    before = counters.snapshot()
    graph = fg.DeviceGraph.create(ctx, build)
    assert (graph.nodes, graph.nbytes) == ([], 0)
    gc.collect()
    assert counters.snapshot()["blocks"] == before["blocks"]


def test_a_child_keeps_its_owner(ctx):
    class Owner:
        pass

    gone = []
    held = [Owner()]
    weakref.finalize(held[0], gone.append, 1)
    child = fg.DeviceGraph.create(ctx, lambda b: b.add_empty())
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(child, held[0]))
    held.clear()
    gc.collect()
    assert gone == []
    del graph
    gc.collect()
    assert gone == [1]


@pytest.fixture(scope="module")
def session(ctx):
    """A session on a device that models can be compiled for."""
    if "compiled_graphs" not in ctx.capabilities:
        pytest.skip("no models can be compiled for this device")
    return fg.Session(ctx.device, threads=2)


def layer(session, size=4):
    """``relu(x @ w) * k + b`` with parameters w and b, and a scalar k; and the row sums."""
    g = fg.Graph("layer")
    x, b = g.input("x", (2, size)), g.param("b", (size,))
    w, k = g.param("w", (size, size)), g.scalar("k", "float32", 2.0)
    y = fg.ops.relu(x @ w) * k + b
    g.output(y, "y")
    g.output(fg.ops.sum(y, axis=1), "sums")
    model = session.compile(g)
    model.set_params({"w": np.eye(size, dtype="f4"), "b": np.ones(size, "f4")})
    return model


def test_a_model_inside_a_graph(ctx, session):
    model = layer(session)
    x, y = ctx.create_buffer((2, 4)), ctx.create_buffer((2, 4))

    def build(b):
        ready = b.add_memset(x, 1.0, name="ready")
        node = b.add_child_graph(model.graph, inputs=[x], dependencies=[ready], name="model")
        b.add_copy(y, node.outputs[0], dependencies=[node])
        b.add_output(node.outputs[1])

    graph = fg.DeviceGraph.create(ctx, build)
    for made in (graph, graph.clone()):
        ctx.memset(y, 0.0)
        assert made.run()[0].tolist() == [12, 12]
        assert (y.numpy() == 3).all()
    graph.update("ready", value=2.0)
    assert graph.run()[0].tolist() == [20, 20]
    assert [n.name for n in graph.nodes[1].bodies[0]] == [n.name for n in model.graph.nodes]
    with pytest.raises(fg.GraphError, match="nothing that can be changed"):
        graph.update((1, 0, 0), enabled=False)


def test_a_models_arena_is_its_own_in_each_graph(ctx, session):
    """The model and the graph neither wait for each other nor see each other's values."""
    model = layer(session)
    x = ctx.to_device(np.ones((2, 4), "f4"))

    def build(b):
        one = b.add_child_graph(model.graph, inputs={"x": x})
        two = b.add_child_graph(
            model.graph, inputs={"x": one.outputs[0], "k": 10.0}, dependencies=[one]
        )
        for node in (one, two):
            b.add_output(node.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build)
    model.run({"x": np.full((2, 4), 50, "f4")})
    kept = model.output_view(0)
    one, two = graph.run()
    assert ((one == 3).all(), (two == 31).all()) == (True, True)
    assert (kept == 101).all()


def test_a_model_in_a_graph_has_the_parameters_of_the_time(ctx, session):
    model = layer(session)
    x = ctx.to_device(np.ones((2, 4), "f4"))

    def build(b):
        b.add_output(b.add_child_graph(model.graph, inputs=[x]).outputs[0])

    before = fg.DeviceGraph.create(ctx, build)
    model.set_param("w", 5 * np.eye(4, dtype="f4"))
    after = fg.DeviceGraph.create(ctx, build)
    model.close()
    gc.collect()
    assert (before.run()[0] == 3).all()
    assert (after.run()[0] == 11).all()
    with pytest.raises(fg.GraphError, match="closed"):
        fg.DeviceGraph.create(ctx, build)


def test_a_models_scalars_in_a_graph(ctx, session):
    model = layer(session)
    x = ctx.to_device(np.ones((2, 4), "f4"))

    def build(b):
        k = b.scalar("gain", "float32", 7.0, where="memory")
        b.add_output(b.add_child_graph(model.graph, inputs={"x": x, "k": k}).outputs[0])

    graph = fg.DeviceGraph.create(ctx, build)
    assert [graph.run()[0][0, 0], graph.run(gain=3.0)[0][0, 0], graph.run()[0][0, 0]] == [8, 4, 8]

    g = fg.Graph("strict")
    g.output(g.input("x", (2,)) * g.scalar("k", "float32"), "y")
    strict = session.compile(g)
    y = ctx.create_buffer(2)
    for inputs, text in (
        ([y], "no default"),
        ({"x": y}, "no default"),
        ({"x": y, "k": "a"}, "scalar 'k'"),
        ({"x": y, "k": y}, "is one float32"),
        ({"x": y, "k": 1.0, "z": y}, "no input 'z'"),
        ({"k": 1.0}, "'x' .* was not given"),
        (None, r"has inputs \(x float32\[2\]\)"),
    ):
        with pytest.raises(fg.InputError, match=text):
            fg.DeviceGraph.create(
                ctx, lambda b, given=inputs: b.add_child_graph(strict.graph, inputs=given)
            )
    fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(strict.graph, inputs={"x": y, "k": 1.0}))


def test_models_that_cannot_be_children(ctx, session):
    g = fg.Graph("unset")
    g.output(g.input("x", (2,)) * g.param("w", (2,)), "y")
    unset = session.compile(g)
    x = ctx.create_buffer(2)
    with pytest.raises(fg.InputError, match=r"parameters \['w'\] .* no value"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(unset.graph, inputs=[x]))
    with pytest.raises(fg.InputError, match=r"parameters \['w'\] .* no value"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(unset, inputs=[x]))
    handle = unset.graph
    handle.close()
    with pytest.raises(fg.GraphError, match="closed"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(handle, inputs=[x]))
    with pytest.raises(fg.GraphError, match="closed"):
        handle.nodes  # noqa: B018


def test_a_graph_with_a_model_is_itself_a_child(ctx, session):
    model = layer(session)

    def middle(b, twin):
        b.add_output(b.add_child_graph(model.graph, inputs=[twin]).outputs[0])

    child = fg.DeviceGraph.create(ctx, middle, np.ones((2, 4), "f4"))
    x = ctx.to_device(np.ones((2, 4), "f4"))

    def build(b):
        node = b.add_child_graph(child, inputs=[x])
        again = b.add_child_graph(child, inputs=node.outputs, dependencies=[node])
        b.add_output(again.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build, verify=1)
    for _ in range(2):
        assert (graph.run()[0] == 7).all()


def test_models_of_two_instruction_sets(ctx, session):
    if ctx.device != "cpu":
        pytest.skip("instruction sets are the host's")
    x = ctx.to_device(np.ones((2, 4), "f4"))
    g = fg.Graph("twice")
    v = g.input("x", (2, 4))
    g.output(v @ g.param("w", (4, 4), initial=np.eye(4, dtype="f4")), "y")
    models = [session.compile(g, fg.CompileOptions(isa=name)) for name in isa.offered()]

    def build(b, some):
        for model in some:
            b.add_output(b.add_child_graph(model.graph, inputs=[x]).outputs[0])

    for model in models:
        out = fg.DeviceGraph.create(ctx, lambda b, m=model: build(b, [m, m])).run()
        assert (np.array(out) == 1).all()
    if len(models) > 1:
        with pytest.raises(fg.UnsupportedError, match="one instruction set"):
            fg.DeviceGraph.create(ctx, lambda b: build(b, models[:2]))


def test_bad_data_inside_a_model_names_the_node(ctx, session):
    g = fg.Graph("lookup")
    table = g.param("table", (3, 2), initial=np.arange(6, dtype="f4").reshape(3, 2))
    g.output(fg.ops.take(table, g.input("ids", (2,), "int32"), axis=0), "rows")
    model = session.compile(g)
    ids = ctx.to_device(np.array([0, 2], "i4"))

    def build(b):
        node = b.add_child_graph(model.graph, inputs=[ids], name="model")
        b.add_output(node.outputs[0])

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.run()[0].tolist() == [[0, 1], [4, 5]]
    ids.copy_from(np.array([0, 3], "i4"))
    with pytest.raises(fg.InputError, match=r"node 'take' .*index out of range"):
        graph.run()
    ids.copy_from(np.array([1, 1], "i4"))
    assert graph.run()[0].tolist() == [[2, 3], [2, 3]]


def test_bad_data_of_a_replay_is_told_by_whoever_waits(ctx, session):
    if ctx.device == "cpu":
        pytest.skip("there a replay has waited")
    g = fg.Graph("lookup")
    table = g.param("table", (3, 2), initial=np.zeros((3, 2), "f4"))
    g.output(fg.ops.take(table, g.input("ids", (2,), "int32"), axis=0), "rows")
    model = session.compile(g)
    ids = ctx.to_device(np.array([0, 7], "i4"))

    def build(b):
        b.add_output(b.add_child_graph(model.graph, inputs=[ids]).outputs[0])

    inner = fg.DeviceGraph.create(ctx, build)

    def around(b):
        b.add_child_graph(inner)

    for graph in (inner, inner.clone(), fg.DeviceGraph.create(ctx, around)):
        graph.replay()
        with pytest.raises(fg.InputError, match=r"'lookup': node 'take' .*index out of range"):
            ctx.synchronize()
        ctx.synchronize()
