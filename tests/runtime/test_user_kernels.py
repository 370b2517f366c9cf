"""Kernels of users inside models: arguments, launches, Python, and what each device refuses."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from fastgraph.ir import reference
from tests.runtime.models import compiled

f4 = np.float32


def sums(kernels, x, y, n=3):
    """`x` + `y`, by a kernel."""
    return ops.kernel(kernels.add, [x, y], (n,), "float32", scalars=[n], grid_dim=4, block_dim=256)


def graph_of(build, *shapes):
    """A graph of a function of inputs."""
    graph = fg.Graph("own")
    found = build(*(graph.input(f"x{i}", shape) for i, shape in enumerate(shapes)))
    for i, value in enumerate(found if isinstance(found, tuple) else (found,)):
        graph.output(value, f"y{i}")
    return graph


def test_among_other_operators(kernels):
    graph = graph_of(lambda x, y: (sums(kernels, x * 2, y) + 1, sums(kernels, x, x)), (3,), (3,))
    w = graph.param("w", (3,))
    graph.output(sums(kernels, w, graph.constant(f4([1, 1, 1]))) @ w, "z")
    model = compiled(graph)
    for k in (1, 2):
        model.set_param("w", np.full(3, k, "f4"))
        for i in range(3):
            y, twice, z = model.run({"x0": f4([1, 2, 3]) + i, "x1": f4([10, 20, 30])})
            assert y.tolist() == [13 + 2 * i, 25 + 2 * i, 37 + 2 * i]
            assert twice.tolist() == [2 + 2 * i, 4 + 2 * i, 6 + 2 * i]
            assert z == 3 * (k + 1) * k
    assert any("kernel add" in node.operator for node in model.profile(
        {"x0": f4([1, 2, 3]), "x1": f4([0, 0, 0])}, 1).nodes)  # fmt: skip


def test_in_loops_and_branches(kernels):
    def build(x, y):
        def turn(i, a):
            return i + 1, ops.cond(i > 0, lambda: sums(kernels, a, y), lambda: sums(kernels, a, a))

        return ops.while_loop(lambda i, a: i < 3, turn, np.int32(0), x)[1]

    model = compiled(graph_of(build, (3,), (3,)))
    assert model.run({"x0": f4([1, 2, 3]), "x1": f4([10, 0, 0])})[0].tolist() == [22, 4, 6]
    assert model.clone().run({"x0": f4([0, 0, 0]), "x1": f4([1, 2, 3])})[0].tolist() == [2, 4, 6]


def test_inside_another_graph(device, kernels):
    model = compiled(graph_of(lambda x, y: sums(kernels, x + 1, y), (3,), (3,)))
    ctx = fg.DeviceContext(device)
    x, out = ctx.to_device(f4([1, 2, 3])), ctx.create_buffer(3)

    def build(b):
        node = b.add_child_graph(model, inputs=[x, x])
        b.add_copy(out, node.outputs[0], dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.run()
    assert out.numpy().tolist() == [3, 5, 7]
    graph.close()


def test_what_does_not_fit_is_told_when_it_is_compiled(kernels):
    for build, message in (
        (lambda x: ops.kernel(kernels.add, [x], (3,), "float32"), "takes 4 arguments"),
        (
            lambda x: ops.kernel(kernels.add, [x, x], (3,), "int32", scalars=[3]),
            "argument 0 .*the buffer holds int32",
        ),
        (
            lambda x: ops.kernel(kernels.add, [x, x], (3,), "float32", scalars=[2.5]),
            "argument 3",
        ),
    ):
        with pytest.raises(fg.CompileError, match=message) as caught:
            compiled(graph_of(build, (3,)))
        assert "test_user_kernels.py" in str(caught.value)


def test_an_output_that_the_kernel_only_reads_is_refused(kernels):
    with pytest.raises(fg.CompileError, match="const"):
        compiled(graph_of(lambda x: ops.kernel(
            kernels.add, [x], [(3,)] * 2, "float32", scalars=[3]), (3,)))  # fmt: skip


@pytest.mark.host
def test_shared_memory_is_refused_on_the_cpu(native_kernels):
    with pytest.raises(fg.UnsupportedError, match="shared memory"):
        compiled(graph_of(lambda x: ops.kernel(
            native_kernels.add, [x, x], (3,), "float32", scalars=[3], shared_mem_bytes=64,
        ), (3,)))  # fmt: skip


@pytest.mark.cuda
def test_the_other_devices_kernels_are_refused(device, native_kernels):
    def python(grid, block, y, x):
        raise AssertionError

    only_cuda = fg.Kernel("only", cuda='extern "C" __global__ void only(float *y) {}')
    for kernel in (native_kernels.add, python) if device == "cuda" else (only_cuda,):
        graph = graph_of(lambda x, kernel=kernel: ops.kernel(kernel, [x], (3,), "float32"), (3,))
        with pytest.raises(fg.UnsupportedError, match=f"for {device}|cuda runs"):
            compiled(graph)


# ---- Python


@pytest.mark.host
def test_python_runs_in_the_calling_thread():
    seen = []

    def largest(grid, block, value, where, x, bias):
        seen.append((threading.get_ident(), grid, block, x.flags.writeable))
        value[...] = x.max() + bias
        where[...] = x.argmax()

    def build(x):
        value, where = ops.kernel(
            largest, [x], [(), (1,)], ["float32", "int64"], scalars=[np.float32(0.5)],
            grid_dim=(2, 3), block_dim=4,
        )  # fmt: skip
        return value * 2, where + 1

    graph = graph_of(build, (4,))
    x = {"x0": f4([1, 7, 3, 2])}
    model = compiled(graph, threads=2)
    assert [y.tolist() for y in model.run(x)] == [15, [2]]
    assert seen == [(threading.get_ident(), (2, 3, 1), (4, 1, 1), False)]
    assert [y.tolist() for y in reference.evaluate(graph, x).values()] == [15, [2]]


@pytest.mark.host
def test_python_that_raises_and_that_keeps_what_it_is_given():
    kept = []

    def picky(grid, block, y, x):
        kept.append(x)
        y[...] = x
        if x[0] < 0:
            raise KeyError("negative")

    model = compiled(graph_of(lambda x: ops.kernel(picky, [x.reshape(3)], (3,), "float32"), (1, 3)))
    with pytest.raises(KeyError, match="negative"):
        model.run({"x0": f4([[-1, 2, 3]])})
    x = f4([[4, 5, 6]])
    assert model.run({"x0": x})[0].tolist() == [4, 5, 6]
    del x
    assert kept[1].tolist() == [4, 5, 6]
    model.close()
    assert kept[1].tolist() == [4, 5, 6]
    with pytest.raises(ValueError, match="read-only"):
        kept[1][0] = 1


@pytest.mark.host
def test_a_plain_function_of_c():
    libc = ctypes.CDLL(None)
    copy = fg.NativeKernel(
        ctypes.cast(libc.memcpy, ctypes.c_void_p).value, "void *to, const void *from, size_t n",
        name="memcpy", owner=libc, convention="c",
    )  # fmt: skip
    for dtype in ("float64", "bool", "bfloat16", "int16"):
        graph = fg.Graph("copy")
        x = graph.input("x", (2, 3), dtype)
        y = ops.kernel(copy, [x.T], (3, 2), dtype, scalars=[x.nbytes])
        graph.output(y, "y")
        given = np.arange(6).reshape(2, 3).astype(x.dtype)
        np.testing.assert_array_equal(compiled(graph).run({"x": given})[0], given.T)


# ---- as it is written


def test_results_that_nobody_reads_and_known_inputs():
    """Such a kernel is not called; it is never called while a graph is compiled."""
    called = []

    def count(grid, block, y, x):
        called.append(1)
        y[...] = x

    graph = fg.Graph("known")
    graph.output(ops.kernel(count, [graph.constant(f4([1, 2]))], (2,), "float32"), "y")
    ops.kernel(count, [graph.constant(f4([1, 2]))], (2,), "float32")
    model = fg.Session("cpu").compile(graph)
    assert not called
    assert model.run({})[0].tolist() == [1, 2]
    assert called == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": 3}, "a Kernel, a NativeKernel, a callable"),
        ({"inputs": 3}, "inputs are a list"),
        ({"inputs": []}, "at least one operand"),
        ({"shape": [(2,), (-1,)]}, "dimensions must be 0 or more"),
        ({"shape": [(2,), (3,)], "dtype": ["float32"]}, "2 shapes and 1 dtypes"),
        ({"dtype": "complex64"}, "complex64"),
        ({"scalars": ["a"]}, "scalars are numbers, found str"),
        ({"grid_dim": 0}, "grid_dim.x is 0"),
        ({"shared_mem_bytes": -1}, "shared_mem_bytes"),
    ],
)
def test_what_is_refused_where_it_is_written(change, message):
    graph = fg.Graph("own")
    x = graph.input("x", (2,))
    given = {"kernel": print, "inputs": [x], "shape": (2,), "dtype": "float32", **change}
    with pytest.raises(fg.GraphError, match=message):
        ops.kernel(**given)
    assert len(graph.nodes) == 1
