"""Conditionals, host functions and Python kernels: scenario A 25 and its neighbours."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from fastgraph.testing import replay_in_random_order
from tests.device.kernels import N, fill, inc


def make_flag(ctx):
    """One uint32 on the device."""
    return ctx.create_buffer(1, "uint32")


def test_a25_if_and_else(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)

    def build(b):
        b.add_if(
            flag, lambda i: fill(i, kernels, x, 1.0), lambda i: fill(i, kernels, x, 2.0), name="if"
        )

    graph = fg.DeviceGraph.create(ctx, build)
    for value, want in ((0, 2), (1, 1), (7, 1), (0, 2), (2**32 - 1, 1)):
        ctx.memset(flag, value)
        graph.replay()
        assert (x.numpy() == want).all()
    assert [(n.name, n.kind) for n in graph.nodes] == [("if", "if")]
    assert graph.stats.nodes == 3


def test_a25_if_alone(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)
    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_if(flag, lambda i: inc(i, kernels, x, 1.0)))
    for value, want in ((0, 0), (1, 1), (0, 1), (5, 2)):
        ctx.memset(flag, value)
        graph.replay()
        assert (x.numpy() == want).all()


def test_a25_while(ctx, kernels):
    """Three squarings of 2 give 256."""
    flag = make_flag(ctx)
    x = ctx.create_buffer(1)

    def build(b):
        with b.region():
            b.add_memset(x, 2.0)
            b.add_memset(flag, 3)
            b.add_while(flag, lambda w: w.add_function(kernels.square, x, flag))

    graph = fg.DeviceGraph.create(ctx, build)
    for made in (graph, graph.clone()):
        made.replay()
        assert (x.numpy()[0], flag.numpy()[0]) == (256, 0)


def test_a25_switch(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)

    def build(b):
        b.add_memset(x, 0.0)
        bodies = [lambda s, v=v: fill(s, kernels, x, v) for v in (10.0, 20.0, 30.0)]
        b.add_switch(flag, bodies, dependencies=b.nodes)

    graph = fg.DeviceGraph.create(ctx, build)
    for value, want in ((0, 10), (2, 30), (1, 20), (3, 0), (2**32 - 1, 0)):
        ctx.memset(flag, value)
        graph.replay()
        assert (x.numpy() == want).all()


def test_a25_more_than_sixteen_and_nested(ctx, kernels):
    flag = make_flag(ctx)
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def nest(b, depth):
        if depth:
            b.add_if(flag, lambda inner: nest(inner, depth - 1))
        else:
            inc(b, kernels, y, 1.0)

    def build(b):
        for _ in range(40):
            b.add_if(flag, lambda i: inc(i, kernels, x, 1.0), dependencies=b.nodes[-1:])
        b.add_if(flag, lambda i: nest(i, 20))

    graph = fg.DeviceGraph.create(ctx, build)
    graph.replay()
    assert not x.numpy().any()
    ctx.memset(flag, 1)
    graph.replay()
    assert (x.numpy() == 40).all()
    assert (y.numpy() == 1).all()


def test_a25_cloned_updated_rebuilt(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)

    def build(b):
        set_flag = b.add_memset(flag, 1, name="flag")
        b.add_if(
            flag,
            lambda i: fill(i, kernels, x, 1.0),
            lambda i: fill(i, kernels, x, 2.0),
            dependencies=[set_flag],
        )

    graph = fg.DeviceGraph.create(ctx, build)
    clone = graph.clone()
    clone.update("flag", value=0)
    for made, want in ((graph, 1), (clone, 2), (clone.clone(), 2), (graph, 1)):
        made.replay()
        assert (x.numpy() == want).all()


def test_regions_and_scratch_in_bodies(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)

    def body(b):
        with b.region():
            mine = b.create_buffer(N)
            fill(b, kernels, mine, 4.0)
            b.add_copy(x, mine)

    def build(b):
        one = b.create_buffer(N)
        first = fill(b, kernels, one, 1.0)
        cond = b.add_if(flag, body, dependencies=[first])
        inc(b, kernels, x, 1.0, dependencies=[cond])
        b.add_output(x)

    graph = fg.DeviceGraph.create(ctx, build)
    ctx.memset(flag, 1)
    assert (graph.run()[0] == 5).all()


def test_what_bodies_refuse(ctx):
    flag = make_flag(ctx)
    x, host = ctx.create_buffer(4), np.zeros(4, "f4")
    seen = []

    def body(b):
        for act in (
            lambda: b.add_host_function(print),
            lambda: b.add_copy(x, host),
            lambda: b.add_copy(host, x),
            lambda: b.add_output(x),
            lambda: b.create_input_buffer(4),
            lambda: b.register_in_place_input(x),
            lambda: b.add_input(x),
        ):
            with pytest.raises(fg.UnsupportedError, match="body"):
                act()
            seen.append(act)
        assert b.nodes == []

    fg.DeviceGraph.create(ctx, lambda b: b.add_if(flag, body))
    assert len(seen) == 7


def test_scopes(ctx):
    flag = make_flag(ctx)
    kept = []

    def build(b):
        outer = b.add_empty()

        def body(inner):
            with pytest.raises(fg.ScopeError, match="a body is being built"):
                b.add_empty()
            with pytest.raises(fg.ScopeError, match="only in the body"):
                inner.add_empty(dependencies=[outer])
            kept[:] = [inner, inner.add_empty()]

        b.add_if(flag, body)
        with pytest.raises(fg.ScopeError, match="only in the body"):
            b.add_empty(dependencies=[kept[1]])
        with pytest.raises(fg.ScopeError, match="callback has returned"):
            kept[0].add_empty()
        b.add_if(flag, lambda other: kept.append(other.add_empty()))
        with pytest.raises(fg.ScopeError):
            b.add_if(flag, lambda other: other.add_empty(dependencies=[kept[1]]))

    fg.DeviceGraph.create(ctx, build)


def test_a_body_that_raises(ctx):
    flag = make_flag(ctx)
    gc.collect()
    before = counters.snapshot()

    def body(b):
        b.add_memset(b.create_buffer(4), 1.0)
        raise ValueError("mine")

    def build(b):
        first = b.add_empty()
        for act in (
            lambda: b.add_if(flag, body),
            lambda: b.add_if(flag, lambda i: None, body),
            lambda: b.add_switch(flag, [lambda i: None, body]),
            lambda: b.add_while(flag, body, dependencies=[first]),
        ):
            with pytest.raises(ValueError, match="mine"):
                act()
            assert b.nodes == [first]
        for act in (
            lambda: b.add_if(flag, 5),
            lambda: b.add_switch(flag, []),
            lambda: b.add_if(flag, print, name=5),
            lambda: b.add_if(flag, lambda i: i.region().__enter__() and None),
            lambda: b.add_if(flag, lambda i: None, dependencies=[5]),
        ):
            with pytest.raises(fg.GraphError):
                act()
        assert b.nodes == [first]

    graph = fg.DeviceGraph.create(ctx, build)
    assert graph.nbytes == 0
    graph.replay()
    del graph
    gc.collect()
    assert counters.snapshot()["blocks"] == before["blocks"]


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint64", "bool"])
def test_conditions_of_another_dtype(ctx, dtype):
    with pytest.raises(fg.InputError, match="one uint32"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_if(ctx.create_buffer(1, dtype), lambda i: None))


def test_conditions_that_are_no_single_number(ctx):
    for bad in (ctx.create_buffer(2, "uint32"), ctx.create_buffer(0, "uint32")):
        with pytest.raises(fg.InputError, match="one uint32"):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: b.add_while(bad, lambda i: None))
    for bad in (1, True, None):
        with pytest.raises(fg.InputError):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: b.add_while(bad, lambda i: None))
    with pytest.raises(fg.UnsupportedError):
        fg.DeviceGraph.create(ctx, lambda b: b.add_if(np.ones(1, "u4"), lambda i: None))


def test_hazards_see_into_bodies(ctx, kernels):
    flag = make_flag(ctx)
    x = ctx.create_buffer(N)

    def build(b):
        fill(b, kernels, x, 1.0, name="outside")
        b.add_if(flag, lambda i: fill(i, kernels, x, 2.0), name="inside")

    with pytest.raises(fg.HazardError, match=r"'outside' and \d+ 'inside'"):
        fg.DeviceGraph.create(ctx, build)

    def within(b):
        b.add_if(flag, lambda i: [fill(i, kernels, x, v, name=str(v)) for v in (1.0, 2.0)])

    with pytest.raises(fg.HazardError, match=r"'1\.0' and \d+ '2\.0'"):
        fg.DeviceGraph.create(ctx, within)
    with pytest.raises(fg.HazardError, match=r"'set' and \d+ 'if'"):
        fg.DeviceGraph.create(
            ctx, lambda b: [b.add_memset(flag, 1, name="set"), b.add_if(flag, lambda i: None)]
        )


def test_an_endless_loop_is_left_by_a_signal(host):
    flag = make_flag(host)
    host.memset(flag, 1)
    graph = fg.DeviceGraph.create(host, lambda b: b.add_while(flag, lambda w: w.add_empty()))
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            graph.replay()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    host.memset(flag, 0)
    graph.replay()


def test_host_functions_run_in_order_and_raise(host):
    x, seen = host.create_buffer(4), []

    def look():
        seen.append((threading.get_ident(), x.numpy()[0]))
        if len(seen) == 3:
            raise ZeroDivisionError("mine")

    def build(b):
        with b.region():
            b.add_memset(x, 1.0)
            b.add_host_function(look)
            b.add_memset(x, 2.0)

    graph = fg.DeviceGraph.create(host, build)
    for _ in range(2):
        graph.replay()
    assert seen == [(threading.get_ident(), 1.0)] * 2
    with pytest.raises(ZeroDivisionError, match="mine"):
        graph.replay()
    assert x.numpy()[0] == 1
    graph.replay()
    assert x.numpy()[0] == 2
    with pytest.raises(fg.GraphError, match="callable"):
        fg.DeviceGraph.create(host, lambda b: b.add_host_function(5))


def test_python_kernels(host):
    x, y = host.to_device(np.arange(6, dtype="f4").reshape(2, 3)), host.create_buffer((2, 3))
    array, seen = np.arange(3, dtype="i4"), []

    def body(grid, block, out, a, h, factor, small):
        seen.append((grid, block, a.shape, h.dtype, type(factor), type(small)))
        out[...] = a * factor + small

    kernel = fg.Kernel("scale", cpu=body)

    def build(b):
        b.add_function(
            kernel, fg.Out(y), fg.In(x), array, 2.0, np.int8(1), grid_dim=(2, 3), block_dim=7
        )

    fg.DeviceGraph.create(host, build).replay()
    assert seen == [((2, 3, 1), (7, 1, 1), (2, 3), np.dtype("i4"), float, np.int8)]
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 2 + 1)
    host.launch(kernel, y, x, array, 3.0, np.int8(0))
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 3)


PLAIN = (
    "double *out, float a, int8_t b, const float *x, double c, uint8_t d, int64_t e, float f, "
    "bool g, double h, float i, float j, double k"
)


def test_plain_c_functions(host, native_library):
    pointer = ctypes.cast(native_library.plain, ctypes.c_void_p).value
    kernel = fg.NativeKernel(pointer, PLAIN, owner=native_library, convention="c")
    out, x = host.create_buffer(13, "float64"), host.to_device(np.full(1, 3.5, "f4"))
    given = [1.25, -100, x, -2.5, 200, -(2**40), 0.5, True, 1e300, -7.5, 3.0, -0.0]
    want = [0, 1.25, -100, 3.5, -2.5, 200, -(2**40), 0.5, 1, 1e300, -7.5, 3.0, -0.0]
    host.launch(kernel, out, *given)
    assert out.numpy().tolist() == want

    def build(b):
        types = {"a": "f4", "b": "i1", "c": "f8", "d": "u1", "e": "i8", "g": "?"}
        scalars = {n: b.scalar(n, t, {"g": False}.get(n, 0)) for n, t in types.items()}
        args = list(given)
        for at, name in ((0, "a"), (1, "b"), (3, "c"), (4, "d"), (5, "e"), (7, "g")):
            args[at] = scalars[name]
        b.add_function(kernel, out, *args)

    graph = fg.DeviceGraph.create(host, build)
    graph.replay()
    assert out.numpy().tolist() == [0, 0, 0, 3.5, 0, 0, 0, 0.5, 0, *want[9:]]
    graph.replay(a=1.25, b=-100, c=-2.5, d=200, e=-(2**40), g=True)
    assert out.numpy().tolist() == want


@pytest.mark.parametrize(
    "signature", [", ".join(["int a"] * 7), ", ".join(["float a"] * 9), "half a"]
)
def test_plain_c_functions_with_too_much(signature):
    with pytest.raises(fg.GraphError, match="plain C"):
        fg.NativeKernel(4096, signature, convention="c")
    fg.NativeKernel(4096, signature)
    with pytest.raises(fg.GraphError, match="convention"):
        fg.NativeKernel(4096, signature, convention="fast")


def test_python_kernels_refuse(host, native_kernels):
    x = host.create_buffer(4)
    kernel = fg.Kernel("k", cpu=lambda grid, block, *args: None)
    for bad in ("x", [1], None, object(), np.arange(4)[::2]):
        with pytest.raises(fg.InputError, match="argument 0"):
            fg.DeviceGraph.create(host, lambda b, bad=bad: b.add_function(kernel, bad))
    with pytest.raises(fg.UnsupportedError, match="no body for cpu"):
        fg.DeviceGraph.create(host, lambda b: b.add_function(fg.Kernel("k", cuda="source"), x))
    with pytest.raises(fg.GraphError, match="has no body"):
        fg.Kernel("k")
    with pytest.raises(fg.GraphError, match="callable"):
        fg.Kernel("k", cpu=5)
    with pytest.raises(fg.InputError, match="says its access"):
        fg.In(fg.Out(x))
    with pytest.raises(fg.InputError, match="only read"):
        host.launch(native_kernels.add, x, fg.Out(x), x, 4)
    with pytest.raises(fg.InputError, match="for buffers"):
        host.launch(native_kernels.fill, x, fg.In(1.0), 4)


def test_a28_what_arguments_say(host):
    """Unknown use is left out by "known" and taken as read and written by True."""
    x = host.create_buffer(4)
    kernel = fg.Kernel("k", cpu=lambda grid, block, *args: None)

    def two(*wrap):
        def build(b):
            for i, w in enumerate(wrap):
                b.add_function(kernel, w(x), name=f"n{i}")

        return build

    def plain(value):
        return value

    for wraps, known, strict in (
        ((fg.In, fg.In), False, False),
        ((fg.In, fg.Out), True, True),
        ((fg.InOut, fg.In), True, True),
        ((plain, plain), False, True),
        ((plain, fg.In), False, True),
    ):
        for check, raises in ((False, False), ("known", known), (True, strict)):
            if raises:
                with pytest.raises(fg.HazardError, match=r"'n0' and \d+ 'n1'"):
                    fg.DeviceGraph.create(host, two(*wraps), check=check)
            else:
                fg.DeviceGraph.create(host, two(*wraps), check=check).replay()


def test_check_true_names_the_node(host):
    def fails(grid, block):
        raise ValueError("mine")

    def build(b):
        b.add_empty()
        b.add_function(fg.Kernel("k", cpu=fails), name="guilty")

    with pytest.raises(ValueError, match="mine") as caught:
        fg.DeviceGraph.create(host, build, check=True).replay()
    assert caught.value.__notes__ == ["in node 1 'guilty' (function)"]
    with pytest.raises(ValueError, match="mine") as caught:
        fg.DeviceGraph.create(host, build).replay()
    assert not hasattr(caught.value, "__notes__")


def test_verify_finds_a_missing_edge(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b, ordered):
        first = fill(b, kernels, x, 1.0)
        fill(b, kernels, x, 2.0, dependencies=[first] if ordered else [])

    fg.DeviceGraph.create(ctx, lambda b: build(b, True), verify=20).replay()
    graph = fg.DeviceGraph.create(ctx, lambda b: build(b, False), check=False, verify=20)
    with pytest.raises(fg.GraphError, match=r"verify: byte .* edge is missing"):
        for _ in range(20):
            graph.replay()
    # Each seed draws an order: both of them come up.
    seen = {tuple(replay_in_random_order(graph, seed)) for seed in range(20)}
    assert seen == {(0, 1), (1, 0)}


def test_verify_leaves_results_alone(ctx, kernels):
    x = ctx.create_buffer(N)

    def build(b):
        inc(b, kernels, x, 1.0)
        b.add_output(x)

    graph = fg.DeviceGraph.create(ctx, build, verify=2)
    assert [graph.run()[0][0] for _ in range(4)] == [1, 2, 3, 4]


def test_pointers_by_address(host, native_kernels):
    array = np.zeros(N, "f4")
    place = fg.Pointer(array.ctypes.data, array.nbytes, array, "float32")
    graph = fg.DeviceGraph.create(host, lambda b: fill(b, native_kernels, place, 3.0))
    graph.replay()
    assert (array == 3).all()
    address = array.ctypes.data
    for bad in (
        (0, 4, array), (-8, 4, array), (address, -1, array), (address, 4, None), ("x", 4, array),
        (address + 1, 4, array, "f4"), (address, 5, array, "f4"), (True, 4, array),
    ):  # fmt: skip
        with pytest.raises(fg.InputError):
            fg.Pointer(*bad)


def test_child_graphs(ctx, kernels):
    x, y = ctx.create_buffer(N), ctx.create_buffer(N)

    def child(b):
        scratch = b.create_buffer(N)
        with b.region():
            fill(b, kernels, scratch, 3.0)
            b.add_copy(x, scratch)
            inc(b, kernels, x, 1.0)

    inner = fg.DeviceGraph.create(ctx, child)

    def build(b):
        with b.region():
            b.add_memset(x, 9.0)
            b.add_child_graph(inner, name="child")
            b.add_child_graph(inner)
            b.add_copy(y, x)

    graph = fg.DeviceGraph.create(ctx, build)
    inner.close()
    gc.collect()
    for made in (graph, graph.clone()):
        ctx.memset(y, 0.0)
        made.replay()
        assert (y.numpy() == 4).all()
    assert [n.kind for n in graph.nodes] == ["memset", "child", "child", "copy"]
    assert graph.stats.nodes == 10
    # The two children's scratch lives at different times.
    assert graph.nbytes == 4 * N
    with pytest.raises(fg.HazardError, match="'child'"):
        second = fg.DeviceGraph.create(ctx, child)
        fg.DeviceGraph.create(ctx, lambda b: [b.add_child_graph(second), b.add_memset(x, 1.0)])


def test_children_that_cannot_be(ctx):
    for bad in (5, None, object()):
        # A GPU takes numbers of graphs, with an owner.
        taken = bad == 5 and "capture" in ctx.capabilities
        with pytest.raises(fg.GraphError if taken else fg.UnsupportedError):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: b.add_child_graph(bad))
    closed = fg.DeviceGraph.create(ctx, lambda b: b.add_empty())
    closed.close()
    with pytest.raises(fg.GraphError, match="closed"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_child_graph(closed))


def test_a27_capture_is_not_on_cpu(ctx):
    if "capture" in ctx.capabilities:
        pytest.skip("this device captures")
    with pytest.raises(fg.UnsupportedError, match="capture"):
        fg.DeviceGraph.create(ctx, lambda b: b.capture())


def test_to_dot(ctx):
    graph = fg.DeviceGraph.create(
        ctx, lambda b: b.add_empty(name='a"b', dependencies=[b.add_empty()])
    )
    text = graph.to_dot()
    assert text.startswith("digraph {") and "n0 -> n1;" in text and r"a\"b" in text
    graph.upload()
    graph.close()
    with pytest.raises(fg.GraphError, match="closed"):
        graph.upload()
