"""Bad arguments: a named error, nothing changed, and an interpreter that goes on."""

from __future__ import annotations

import copy
import ctypes
import gc
import shutil
import subprocess
import threading

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import counters
from fastgraph.device.pending import Scratch
from tests.device.kernels import N, fill


class Thing:
    """What no call takes; it is called the same in each process of a run of tests."""

    def __repr__(self):
        return "thing"


THING = Thing()


def build_one(ctx, act, *, check="known"):
    """Record what `act(builder)` adds."""
    return fg.DeviceGraph.create(ctx, act, check=check)


def refused(ctx, act, error, message=None):
    """Adding raises inside the build, adds nothing, and the build goes on."""

    def build(b):
        with pytest.raises(error, match=message):
            act(b)
        assert b.nodes == []
        b.add_empty()

    assert len(build_one(ctx, build).nodes) == 1


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (0, "grid_dim.x is 0"),
        (-1, "grid_dim.x is -1"),
        ((1, 0), "grid_dim.y is 0"),
        ((1, 1, -5), "grid_dim.z is -5"),
        (2**31, "grid_dim.x is 2147483648"),
        (True, "grid_dim.x is True, not an integer"),
        ((1.0, 1), "grid_dim.x is 1.0, not an integer"),
        ("ab", "grid_dim.x is 'a'"),
        ((), "one to three sizes"),
        ((1, 1, 1, 1), "one to three sizes"),
        (None, "one to three sizes"),
        (1.5, "one to three sizes"),
    ],
)
def test_dimensions(ctx, kernels, dims, message):
    x = ctx.create_buffer(N)
    refused(
        ctx,
        lambda b: b.add_function(kernels.fill, x, 1.0, N, grid_dim=dims),
        fg.GraphError,
        message,
    )
    refused(
        ctx,
        lambda b: b.add_function(kernels.fill, x, 1.0, N, block_dim=dims),
        fg.GraphError,
        message.replace("grid", "block"),
    )


def test_dimensions_of_numpy(ctx, kernels):
    sizes = ctx.create_buffer(6, "i4")
    dims = {"grid_dim": np.array([2, 3]), "block_dim": np.int64(4)}
    build_one(ctx, lambda b: b.add_function(kernels.dims, sizes, **dims)).replay()
    assert sizes.numpy().tolist() == [2, 3, 1, 4, 1, 1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "takes 3 arguments"),
        (("x", 1.0), "takes 3 arguments"),
        (("x", 1.0, N, 5), r"takes 3 arguments .*, not 4"),
        ((4096, 1.0, N), "argument 0 .*a buffer is needed"),
        ((None, 1.0, N), "argument 0"),
        (([1.0], 1.0, N), "argument 0"),
        (("x", 1.0, 2.0), "argument 2"),
        (("x", 1.0, True), "argument 2"),
        (("x", 1.0, 2**31), "argument 2"),
        (("x", 1.0, np.int64(5)), "argument 2"),
        (("x", 2**24 + 1, N), "argument 1"),
        (("x", np.float64(1), N), "argument 1"),
        (("x", 1e39, N), "argument 1"),
        (("x", "1", N), "argument 1"),
        (("x", 1j, N), "argument 1"),
        (("x", [1.0], N), "argument 1"),
        (("x", np.zeros(1, "f4"), N), "argument 1"),
        (("x", np.ma.masked, N), "argument 1"),
        (("wrong dtype", 1.0, N), "argument 0 .*the buffer holds int32"),
    ],
    ids=str,
)
def test_kernel_arguments(ctx, kernels, args, message):
    named = {"x": ctx.create_buffer(N), "wrong dtype": ctx.create_buffer(N, "i4")}
    args = [named.get(a, a) if isinstance(a, str) and a != "1" else a for a in args]
    refused(ctx, lambda b: b.add_function(kernels.fill, *args), fg.InputError, message)


class Odd:
    """Looks a little like a buffer."""

    nbytes, device, shape, dtype = 4096, "cpu", (N,), np.dtype("f4")


class NoDtype:
    nbytes, device = 4096, "cpu"


class Elsewhere(Odd):
    device = "cuda"


@pytest.mark.parametrize("kind", [Odd, NoDtype, Elsewhere])
def test_what_looks_like_a_buffer(ctx, kernels, kind):
    for act in (
        lambda b: fill(b, kernels, kind(), 1.0),
        lambda b: b.add_memset(kind(), 1.0),
        lambda b: b.add_copy(kind(), kind()),
        lambda b: b.add_output(kind()),
    ):
        refused(ctx, act, fg.InputError)


def test_buffer_of_another_device(ctx):
    there = Scratch((4,), np.dtype("f4"), "cuda:7")
    for act in (lambda b: b.add_memset(there, 1.0), lambda b: b.add_output(there)):
        refused(ctx, act, fg.InputError, f"is on cuda:7, the graph on {ctx.device}")


def read_only():
    array = np.zeros(N, "f4")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "dst",
    [
        read_only(),
        np.frombuffer(b"\0" * 4 * N, "f4"),
        np.zeros(2 * N, "f4")[::2],
        np.zeros(N, "f4")[::-1],
        np.zeros(4 * N + 1, "u1")[1:].view("f4"),
        np.zeros(N, ">f4"),
        np.ma.zeros(N, "f4"),
        np.broadcast_to(np.zeros(1, "f4"), (N,)),
    ],
    ids=["readonly", "bytes", "strided", "negative", "unaligned", "swapped", "masked", "broadcast"],
)
def test_destinations(ctx, kernels, dst):
    """A kernel's pointer is as much a destination as that of a copy."""
    x = ctx.create_buffer(N)
    for act in (
        lambda b: b.add_copy(dst, x),
        lambda b: b.add_memset(dst, 1.0),
        lambda b: fill(b, kernels, dst, 1.0),
    ):
        refused(ctx, act, fg.InputError)
    assert not np.asarray(dst).any()


def test_host_arrays_are_for_copies_alone(ctx, kernels):
    """As on a device whose kernels cannot reach the host's memory."""
    out, source = ctx.create_buffer(N), np.arange(N, dtype="f4")
    dims = {"grid_dim": 4, "block_dim": 256}
    for act in (
        lambda b: b.add_function(kernels.add, out, source, source, N, **dims),
        lambda b: b.add_memset(source, 1.0),
    ):
        refused(ctx, act, fg.InputError, "a buffer is needed, not a host array")


@pytest.mark.parametrize(
    "pair", [((4, "f4"), (5, "f4")), ((4, "f4"), (4, "i4")), ((4, "f4"), (2, "f8"))], ids=str
)
def test_unequal_copies(ctx, pair):
    one, two = (ctx.create_buffer(*each) for each in pair)
    refused(ctx, lambda b: b.add_copy(one, two), fg.InputError, "copy of")
    with pytest.raises(fg.InputError):
        ctx.copy(one, two)


@pytest.mark.parametrize("bad", [None, 5, "x", [1.0], object(), b"abcd"])
def test_what_is_no_memory(ctx, bad):
    x = ctx.create_buffer(4)
    for act in (
        lambda b: b.add_copy(x, bad),
        lambda b: b.add_copy(bad, x),
        lambda b: b.add_memset(bad, 1.0),
        lambda b: b.add_output(bad),
    ):
        refused(ctx, act, fg.InputError)
    for act in (lambda: ctx.copy(bad, x), lambda: ctx.memset(bad, 1.0)):
        with pytest.raises(fg.InputError):
            act()
    with pytest.raises(fg.InputError):
        ctx.copy(x, bad)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", 256), ("u1", -1), ("u1", 1.0), ("u1", True), ("i8", 2**63), ("u8", -1),
        ("f2", 70000), ("f2", 1e6), ("f2", 2049), ("f4", 1e39), ("f4", 2**24 + 1), ("f4", True),
        ("?", 2), ("?", 1.0), ("?", "x"), ("f4", None), ("f4", "1"), ("f4", 1j), ("f4", [1.0]),
        ("f4", np.float64(1)), ("f8", 10**400), ("f4", np.ma.masked), ("f4", set()),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_values(ctx, dtype, value):
    x = ctx.create_buffer(4, dtype)
    refused(ctx, lambda b: b.add_memset(x, value), fg.InputError)
    with pytest.raises(fg.InputError):
        ctx.memset(x, value)
    assert not x.numpy().any()


@pytest.mark.parametrize("shape", [-1, (2, -1), 1.5, (1.5,), "ab", None, (True,), (None,), ((1,),)])
def test_shapes(ctx, shape):
    refused(ctx, lambda b: b.create_buffer(shape), fg.InputError, "shape")
    with pytest.raises(fg.InputError, match="shape"):
        ctx.create_buffer(shape)


@pytest.mark.parametrize("shape", [2**62, (2**40, 2**40), (0, 2**62), (0, 2**40, 2**40), 2**45])
def test_too_large(ctx, shape):
    refused(ctx, lambda b: b.create_buffer(shape), fg.InputError, "the limit is")
    with pytest.raises(fg.InputError, match="the limit is"):
        ctx.create_buffer(shape)


def test_too_many_axes(ctx):
    assert ctx.create_buffer((1,) * 32).numpy().shape == (1,) * 32
    with pytest.raises(fg.InputError, match="33 axes; 32 are possible"):
        ctx.create_buffer((1,) * 33)


@pytest.mark.parametrize(
    "dtype",
    [
        "O",
        "c8",
        "c16",
        "S4",
        "U1",
        "V2",
        "M8[s]",
        "m8",
        ">f4",
        "g",
        "f4,f4",
        "no such",
        5,
        THING,
    ],
    ids=str,
)
def test_dtypes(ctx, dtype):
    refused(ctx, lambda b: b.create_buffer(4, dtype), fg.InputError, "dtype")
    with pytest.raises(fg.InputError, match="dtype"):
        ctx.create_buffer(4, dtype)


@pytest.mark.parametrize("array", ["abc", None, [[1], [2, 3]], object(), {}, np.array(["a"])])
def test_arrays_without_elements_of_ours(ctx, array):
    with pytest.raises(fg.InputError):
        ctx.to_device(array)


def test_scratch_too_large_for_the_machine(ctx):
    gc.collect()
    before = counters.snapshot()

    def build(b):
        # Together more than addresses reach: some systems promise all memory that is asked for.
        for _ in range(4):
            scratch = b.create_buffer(2**46, "u1")
            b.add_memset(scratch, 1)
            b.add_output(scratch)

    with pytest.raises(fg.OutOfMemoryError):
        build_one(ctx, build)
    gc.collect()
    assert counters.snapshot() == before


@pytest.mark.parametrize("dependencies", [None, 5, [None], [0], "x", [object()], {"a": 1}])
def test_dependencies_that_are_no_nodes(ctx, dependencies):
    x = ctx.create_buffer(4)
    for act in (
        lambda b: b.add_empty(dependencies=dependencies),
        lambda b: b.add_memset(x, 1.0, dependencies=dependencies),
    ):
        refused(ctx, act, fg.GraphError, "dependencies are nodes")


def test_foreign_and_forged_nodes(ctx):
    kept = []
    build_one(ctx, lambda b: kept.append(b.add_empty()))
    refused(ctx, lambda b: b.add_empty(dependencies=kept), fg.GraphError, "another graph")
    for number in (0, 1, -1, 99):
        refused(
            ctx,
            lambda b, number=number: b.add_empty(dependencies=[fg.Node(b, number, "forged")]),
            fg.GraphError,
            "another graph",
        )


def test_nodes_of_other_graphs(ctx):
    x, kept = ctx.create_buffer(4), []

    def first(b):
        kept.append(b.add_memset(x, 1.0, name="set"))

    def second(b):
        b.add_memset(x, 2.0, name="set")

    own, other = (fg.DeviceGraph.create(ctx, build) for build in (first, second))
    with pytest.raises(fg.GraphError, match=r"another graph, the graph of .*first, .* of .*second"):
        other.update(kept[0], value=7.0)
    assert other.stats.updates == 0
    for graph in (own, own.clone(), own.clone().clone(), copy.copy(own)):
        graph.update(kept[0], value=7.0)
        x.copy_from(np.zeros(4, "f4"))
        graph.replay()
        assert x.numpy()[0] == 7
    for node in (0, (0,), "set"):
        other.update(node, value=8.0)
    other.replay()
    assert x.numpy()[0] == 8


def test_nodes_of_graphs_that_were_recorded_again(ctx):
    x, kept, cache = ctx.create_buffer(4), [], fg.DeviceGraphCache()

    def build(b, kept=kept):
        kept.append(b.add_memset(x, 1.0))

    for _ in range(2):
        graph = fg.DeviceGraph.create(ctx, build, cache=cache, check=True).clone()
    assert len(kept) > 1
    for node in kept:
        graph.update(node, value=2.0)


def test_foreign_scratch(ctx):
    kept = []
    build_one(ctx, lambda b: kept.append(b.create_buffer(4)))
    for act in (lambda b: b.add_memset(kept[0], 1.0), lambda b: b.add_output(kept[0])):
        refused(ctx, act, fg.GraphError, "another graph")


@pytest.mark.parametrize("name", [5, b"x", 1.5, ["a"], np.zeros(3)])
def test_names(ctx, name):
    refused(ctx, lambda b: b.add_empty(name=name), fg.GraphError, "name of a node is a string")


@pytest.mark.parametrize("f", [None, 5, print, "fill", ctypes.CFUNCTYPE(None)(lambda: None)])
def test_functions(host, f):
    refused(host, lambda b: b.add_function(f), fg.UnsupportedError, "NativeKernel")


@pytest.mark.parametrize(
    "option", [{"cluster_dim": 2}, {"shared_mem_bytes": 1}, {"cooperative": True}], ids=str
)
def test_what_the_device_cannot_do(host, native_kernels, option):
    x = host.create_buffer(N)
    refused(
        host,
        lambda b: b.add_function(native_kernels.fill, x, 1.0, N, **option),
        fg.UnsupportedError,
    )


@pytest.mark.parametrize(
    "signature",
    [
        "float out[4]", "float &x", "float *out, float (*f)(int)", "float **x", "void x", "x",
        "struct thing *x", "long double x", "long double", "float double", "float, , int", "float,",
        "const", "int8 x", "float x = 3", "float ...", "std::size_t n", None, 5, b"float x",
        ",".join(["int"] * 65),
    ],
    ids=str,
)  # fmt: skip
def test_signatures(signature):
    with pytest.raises(fg.GraphError):
        fg.NativeKernel(4096, signature)


@pytest.mark.parametrize(
    ("signature", "want"),
    [
        ("", []),
        ("void", []),
        ("unsigned long long n", [("u8", False, False)]),
        ("unsigned", [("u4", False, False)]),
        ("long int x, short int", [("i8", False, False), ("i2", False, False)]),
        ("const float *__restrict__ a, float*b", [("f4", True, True), ("f4", True, False)]),
        ("float const *a, float *const b", [("f4", True, True), ("f4", True, False)]),
        ("const void *p, void*", [(None, True, True), (None, True, False)]),
        ("const int n", [("i4", False, True)]),
    ],
)
def test_good_signatures(signature, want):
    parameters = fg.NativeKernel(4096, signature).parameters
    assert [(p.dtype and p.dtype.str.lstrip("<|"), p.pointer, p.const) for p in parameters] == want


@pytest.mark.parametrize("pointer", [0, -1, 2**63, 2**64, True, 1.5, "x", None, ctypes.c_void_p(8)])
def test_pointers(pointer):
    with pytest.raises(fg.GraphError, match="is not the address of a function"):
        fg.NativeKernel(pointer, "")


def test_builder_and_nodes_after_the_build(ctx, kernels):
    kept, x = [], ctx.create_buffer(N)
    for fails in (False, True):

        def build(b, fails=fails):
            kept[:] = [b, b.add_empty()]
            if fails:
                raise ValueError("no")

        if fails:
            with pytest.raises(ValueError, match="no"):
                build_one(ctx, build)
        else:
            build_one(ctx, build)
        builder, node = kept
        for act in (
            lambda b=builder: b.add_empty(),
            lambda b=builder, n=node: b.add_empty(dependencies=[n]),
            lambda b=builder: b.add_memset(x, 1.0),
            lambda b=builder: b.add_copy(x, x),
            lambda b=builder: fill(b, kernels, x, 1.0),
            lambda b=builder: b.create_buffer(4),
            lambda b=builder: b.add_output(x),
        ):
            with pytest.raises(fg.ScopeError, match="callback has returned"):
                act()


def test_a_kept_builder_keeps_no_memory(ctx):
    gc.collect()
    before, kept = counters.snapshot(), []

    def build(b):
        kept.append(b.add_memset(ctx.create_buffer(4), 1.0))

    build_one(ctx, build)
    gc.collect()
    assert counters.snapshot() == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, fg.InputError, GeneratorExit])
def test_a_build_that_raises(ctx, error):
    gc.collect()
    before = counters.snapshot()
    wanted = error("mine")

    def build(b):
        b.add_memset(b.create_buffer(4), 1.0)
        raise wanted

    with pytest.raises(error) as caught:
        build_one(ctx, build)
    assert caught.value is wanted
    del caught
    wanted.__traceback__ = None
    gc.collect()
    assert counters.snapshot() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"check": "all"}, fg.InputError),
        ({"check": None}, fg.InputError),
        ({"check": 1}, fg.InputError),
        ({"verify": -1}, fg.InputError),
        ({"verify": True}, fg.InputError),
        ({"cache": THING}, fg.InputError),
        ({"key": 5}, fg.InputError),
    ],
    ids=str,
)
def test_create_options(ctx, options, error):
    built = []
    with pytest.raises(error):
        fg.DeviceGraph.create(ctx, built.append, **options)
    assert built == []


def test_create_rubbish(ctx):
    for bad in (None, "cpu", 5):
        with pytest.raises(fg.InputError, match="DeviceContext"):
            fg.DeviceGraph.create(bad, lambda b: None)
        with pytest.raises(fg.InputError, match="build callback"):
            fg.DeviceGraph.create(ctx, None if bad == "cpu" else bad)
    for bad in (3.0, None, "x", [1, 2]):
        with pytest.raises(fg.InputError, match="graph input"):
            fg.DeviceGraph.create(ctx, lambda b, x: None, bad)
    with pytest.raises(TypeError, match="graphs are made by"):
        fg.DeviceGraph()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("gpu", fg.InputError), ("cpu:1", fg.InputError), ("cpu:", fg.InputError),
        ("CPU", fg.InputError), ("", fg.InputError), ("cpu:x", fg.InputError), (5, fg.InputError),
        (b"cpu", fg.InputError), (("cpu",), fg.InputError),
    ],
    ids=str,
)  # fmt: skip
def test_unknown_devices(name, error):
    with pytest.raises(error):
        fg.DeviceContext(name)
    with pytest.raises(error):
        fg.Session(name)


def test_contexts_of_one_device_are_equal(ctx, device):
    other = fg.DeviceContext(device)
    assert (ctx == other, hash(ctx) == hash(other), ctx == "cpu") == (True, True, False)
    assert fg.DeviceContext("cpu:0") == fg.DeviceContext("cpu")
    x = other.to_device(np.ones(4, "f4"))
    with other as entered:
        assert entered is other
        build_one(ctx, lambda b: b.add_memset(x, 2.0)).replay()
    assert x.numpy().tolist() == [2] * 4
    assert copy.copy(ctx) == copy.deepcopy(ctx) == ctx


def test_a_graph_built_within_a_build(ctx):
    x, inner = ctx.create_buffer(4), []

    def build(b):
        first = b.add_memset(x, 1.0)
        inner.append(build_one(ctx, lambda other: other.add_memset(x, 2.0)))
        refuse = pytest.raises(fg.GraphError, match="another graph")
        build_one(ctx, lambda other: refuse.__enter__() and None)
        with refuse:
            build_one(ctx, lambda other: other.add_empty(dependencies=[first]))
        b.add_empty(dependencies=[first])

    graph = build_one(ctx, build)
    graph.replay()
    inner[0].replay()
    assert x.numpy().tolist() == [2] * 4


def test_collection_amid_a_build(ctx):
    def build(b):
        last = []
        for i in range(50):
            scratch = b.create_buffer(100 + i)
            last = [b.add_memset(scratch, float(i), dependencies=last)]
            gc.collect()
        b.add_output(scratch)

    (out,) = build_one(ctx, build).run()
    assert out.tolist() == [49.0] * 149


def kernel_of(function):
    """A native kernel that calls back into Python."""
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: function())
    return fg.NativeKernel(ctypes.cast(called, ctypes.c_void_p).value, "", owner=called)


def test_a_kernel_that_enters_its_own_graph(host):
    graphs, seen = [], []

    def enter():
        for act in (graphs[0].replay, graphs[0].run):
            try:
                act()
            except fg.GraphError as error:
                seen.append(str(error))
        graphs[0].clone()
        gc.collect()

    graphs.append(build_one(host, lambda b: b.add_function(kernel_of(enter))))
    graphs[0].replay()
    assert len(seen) == 2
    assert all("running in this very thread" in message for message in seen)
    graphs.clear()


def test_a_kernel_that_closes_its_own_graph(host):
    graphs = []

    def close():
        graphs.pop().close()
        gc.collect()

    graphs.append(build_one(host, lambda b: b.add_function(kernel_of(close))))
    graphs[0].replay()
    assert graphs == []


def test_closed_while_another_thread_replays(host):
    started, go = threading.Event(), threading.Event()

    def wait():
        started.set()
        go.wait(20)

    graph = build_one(host, lambda b: b.add_function(kernel_of(wait)))
    thread = threading.Thread(target=graph.replay)
    thread.start()
    assert started.wait(20)
    graph.close()
    gc.collect()
    go.set()
    thread.join()
    with pytest.raises(fg.GraphError, match="closed"):
        graph.replay()


def test_objects_made_without_their_factories():
    """`__new__` alone gives objects that raise, whatever they are asked."""
    cases = [
        (fg.RawOutput, ["name", "shape", "dtype", "size", "ptr", "array", "__repr__"]),
        (fg.Step, ["__call__"]),
        (fg.CompiledGraph, ["arena_ptr", "arena_nbytes", "bind", "graph", "inputs", "clone"]),
        (fg.DeviceGraph, ["replay", "run", "clone", "nodes", "edges", "nbytes"]),
    ]
    for kind, names in cases:
        empty = kind.__new__(kind)
        for name in names:
            with pytest.raises((AttributeError, TypeError, fg.FastGraphError)):
                found = getattr(empty, name)
                found()
    empty = fg.CompiledGraph.__new__(fg.CompiledGraph)
    for act in (
        lambda: empty.run({}),
        lambda: empty.run_slots([]),
        lambda: empty.run_raw({}),
        lambda: empty.output_view(0),
        lambda: empty.bind({}, {}),
    ):
        with pytest.raises((AttributeError, TypeError, fg.FastGraphError)):
            act()


def test_another_thread_may_not_build(ctx):
    caught = []

    def add(b):
        try:
            b.add_empty()
        except fg.ScopeError as error:
            caught.append(str(error))

    def build(b):
        thread = threading.Thread(target=add, args=(b,))
        thread.start()
        thread.join()
        assert b.nodes == []

    fg.DeviceGraph.create(ctx, build)
    assert caught == ["a builder belongs to the thread of its build callback"]


def test_a_kernel_owns_its_arguments(host, tmp_path):
    """What a kernel does to its by-value arguments is seen by no later call and no clone."""
    source, library = tmp_path / "dec.c", tmp_path / "dec.so"
    source.write_text(
        "void dec(void *const *args, const int dims[6]) {"
        " (**(float **)args[0]) = (float)(*(int *)args[1])--; }",
        "utf-8",
    )
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "g++"))))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    address = ctypes.cast(loaded.dec, ctypes.c_void_p).value
    kernel = fg.NativeKernel(address, "float *out, int n", "dec", loaded)
    x = host.create_buffer(1)
    graph = fg.DeviceGraph.create(host, lambda b: b.add_function(kernel, x, 5))
    for each in (graph, graph, graph.clone(), graph):
        each.replay()
        assert x.numpy()[0] == 5
