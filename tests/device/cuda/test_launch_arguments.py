"""What a kernel is launched with: the same rules as on the cpu, and arrays as numba takes them."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.device.backend import LaunchOptions
from fastgraph.device.cuda.arguments import launch_arguments
from fastgraph.device.cuda.function import CudaFunction
from fastgraph.device.function import parse_signature
from fastgraph.device.native import function_work
from fastgraph.device.nodes import as_place
from fastgraph.device.pending import PointerSlot, Scalar, Scratch
from tests.device.cuda.loaders import FakeLoader

SIGNATURE = "float *out, const float *a, int n, float s, void *any"


# The rules are those of any device; buffers of the cpu stand for its own.
LOADER = FakeLoader(device="cpu")


def function(signature=SIGNATURE, ndims=None):
    return CudaFunction("k", parse_signature("k", signature), 1000, LOADER, None, ndims)


def place(value, written):
    return as_place(value, "cpu", written)


def scalar(name, dtype, where):
    return Scalar(name, np.array(1, dtype), where, "cpu")


def four():
    return fg.DeviceContext("cpu").create_buffer(4)


def test_arguments():
    x = four()
    n = scalar("n", "i4", "node")
    accesses, arguments = launch_arguments(place, "k", function(), (x, x, n, 2.5, x[1:]))
    assert arguments == (
        ("pointer", 0),
        ("pointer", 1),
        ("scalar", 2, 4),
        ("value", np.float32(2.5).tobytes()),
        ("pointer", 3),
    )
    assert [(a.reads, a.writes) for a in accesses] == [
        (True, True), (True, False), (True, False), (True, True),
    ]  # fmt: skip
    assert accesses[2].place is n
    assert all(a.known for a in accesses)


def test_values_have_their_own_sizes():
    f = function("char a, short b, unsigned c, long long d, double e, half g, bool h")
    _, arguments = launch_arguments(place, "k", f, (-1, -2, 3, -4, 1, 0.5, True))
    assert [len(bytes_) for _, bytes_ in arguments] == [1, 2, 4, 8, 8, 2, 1]
    assert arguments[3] == ("value", (-4).to_bytes(8, "little", signed=True))


def test_every_kind_of_place():
    x = four()
    slot = PointerSlot("p", x)
    scratch = Scratch((4,), np.dtype("f4"), "cpu")
    memory = scalar("s", "f4", "memory")
    pointer = fg.Pointer(x.ptr, x.nbytes, x, "float32")
    f = function("float *a, float *b, const float *c, float *d")
    accesses, _ = launch_arguments(place, "k", f, (fg.Out(slot), scratch, memory, fg.In(pointer)))
    assert [a.place for a in accesses] == [slot, scratch, memory, pointer.buffer]
    assert [(a.reads, a.writes) for a in accesses] == [
        (False, True), (True, True), (True, False), (True, False),
    ]  # fmt: skip


def bad(x):
    read_only = scalar("s", "f4", "memory")
    good = [x, x, 4, 1.0, x]
    changes = {
        0: [4096, None, [1.0], np.zeros(4, "f4"), np.zeros((), "f4"), x[0:2].numpy(), read_only,
            fg.DeviceContext("cpu").create_buffer(4, "i4"), np.float32(1), fg.In(np.zeros(4, "f4")),
            Scratch((4,), np.dtype("f4"), "cuda:7"), scalar("s", "f4", "node")],
        1: [fg.Out(x), fg.InOut(x), scalar("s", "f8", "memory")],
        2: [2.0, True, 2**31, np.int64(5), "1", 1j, x, fg.In(5), fg.In(x), None,
            scalar("n", "i8", "node"), scalar("n", "i4", "memory"), np.ma.masked],
        3: [2**24 + 1, np.float64(1), 1e39, [1.0], np.zeros(1, "f4"), "1"],
    }  # fmt: skip
    yield ()
    yield (*good, 1)
    for i, values in changes.items():
        for value in values:
            yield (*good[:i], value, *good[i + 1 :])


def test_refused_as_on_the_cpu():
    """Word for word."""
    x = four()
    native = fg.NativeKernel(4096, SIGNATURE, name="k")
    for args in bad(x):
        messages = []
        for act in (
            lambda args=args: function_work(place, native, args, LaunchOptions()),
            lambda args=args: launch_arguments(place, "k", function(), args),
        ):
            with pytest.raises(fg.InputError) as caught:
                act()
            messages.append(str(caught.value))
        here, there = (message.partition("(")[0] for message in messages)
        assert here == there
        assert messages[0].replace(SIGNATURE, "") == messages[1].replace(
            ", ".join(p.text for p in native.parameters), ""
        )


def test_arrays():
    x = four()
    ctx = fg.DeviceContext("cpu")
    f = function("float *a, const long *b, int n, const double *c", (1, 2, None, 0))
    b, c = ctx.create_buffer((3, 5), "i8"), ctx.create_buffer((), "f8")
    accesses, arguments = launch_arguments(place, "k", f, (x, b, 7, c))

    def shown():
        for argument in arguments:
            value = argument[1]
            if argument[0] == "value":
                yield int.from_bytes(value, "little")
            else:
                yield f"pointer {value}"

    assert list(shown()) == [
        *(0, 0, 4, 4, "pointer 0", 4, 4),
        *(0, 0, 15, 8, "pointer 1", 3, 5, 40, 8),
        7,
        *(0, 0, 1, 8, "pointer 2"),
    ]
    assert [(a.reads, a.writes) for a in accesses] == [(True, True), (True, False), (True, False)]
    empty = ctx.create_buffer((0, 3), "i8")
    _, arguments = launch_arguments(place, "k", f, (x, empty, 7, c))
    assert arguments[9] == ("value", bytes(8))
    with pytest.raises(fg.InputError, match=r"argument 1 .*2 axes is needed, the buffer has 1"):
        launch_arguments(place, "k", f, (x, ctx.create_buffer(15, "i8"), 7, c))
    pointer = fg.Pointer(x.ptr, x.nbytes, x, "float32")
    accesses, arguments = launch_arguments(place, "k", f, (fg.Out(pointer), b, 7, c))
    assert not accesses[0].reads
    assert len(arguments) == 7 + 9 + 1 + 5
