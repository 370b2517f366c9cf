"""Arrays of other libraries in host memory: as inputs, and in copies; nothing is copied twice."""

from __future__ import annotations

import array
import ctypes

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.device.foreign import as_array, as_buffer


class Dlpack:
    """What a tensor of another library is: DLPack alone."""

    def __init__(self, data):
        self._data = data

    def __dlpack__(self, **options):
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._data.__dlpack_device__()


class Interface:
    """An object with NumPy's interface alone."""

    def __init__(self, data):
        self._data = data
        self.__array_interface__ = data.__array_interface__


class Elsewhere(Dlpack):
    """A tensor on a device of another maker."""

    def __dlpack_device__(self):
        return 10, 0


class Failing(Dlpack):
    """A tensor that is not given away."""

    def __dlpack__(self, **options):
        raise RuntimeError("requires grad")


class Copying:
    """As images are: bytes made for the asking."""

    @property
    def __array_interface__(self):
        return {"shape": (4,), "typestr": "<f4", "version": 3, "data": bytes(16)}


def kinds():
    """Each kind of array over its own four float32, and the ndarray that sees the same bytes."""
    for make in (Dlpack, Interface, memoryview):
        data = np.zeros(4, "f4")
        yield make.__name__, make(data), data
    numbers = array.array("f", [0] * 4)
    yield "array", numbers, np.frombuffer(numbers, "f4")
    numbers = (ctypes.c_float * 4)()
    yield "ctypes", numbers, np.frombuffer(numbers, "f4")


@pytest.mark.parametrize("kind", range(5))
def test_foreign_arrays_are_inputs(ctx, kind):
    _, x, data = list(kinds())[kind]
    cache = fg.DeviceGraphCache()

    def build(b, twin):
        y = b.create_buffer(4)
        b.add_copy(y, twin)
        b.add_output(y)

    fg.DeviceGraph.create(ctx, build, np.zeros(4, "f4"), cache=cache)
    graph = fg.DeviceGraph.create(ctx, build, x, cache=cache)
    assert (cache.stats.builds, cache.stats.hits) == (1, 1)
    for value in (1, 2):
        data[:] = value
        assert graph.run(x)[0].tolist() == [value] * 4
        assert graph.run(np.full(4, 9, "f4"))[0].tolist() == [9] * 4
    with pytest.raises(fg.InputError, match=r"float32\[4\], not float32\[2\]"):
        graph.run(memoryview(np.zeros(2, "f4")))


@pytest.mark.parametrize("kind", range(5))
def test_foreign_arrays_in_copies_of_a_graph(ctx, kind):
    name, x, data = list(kinds())[kind]
    device = ctx.create_buffer(4)

    def build(b):
        first = b.add_copy(device, x)
        second = b.add_memset(device[0:2], 8.0, dependencies=[first])
        if as_array(x).flags.writeable:
            b.add_copy(x, device, dependencies=[second], name="back")

    graph = fg.DeviceGraph.create(ctx, build)
    data[:] = 3
    graph.replay()
    ctx.synchronize()
    assert device.numpy().tolist() == [8, 8, 3, 3]
    back = [node.name for node in graph.nodes][2:]
    assert data.tolist() == ([8, 8, 3, 3] if back else [3] * 4), name
    other = array.array("f", [5] * 4)
    graph.update(0, src=other)
    graph.replay()
    assert device.numpy().tolist() == [8, 8, 5, 5]


@pytest.mark.parametrize("kind", range(5))
def test_foreign_arrays_in_copies_done_at_once(ctx, kind):
    _, x, data = list(kinds())[kind]
    data[:] = 4
    device = ctx.to_device(x)
    ctx.memset(device[1:], 6.0)
    if as_array(x).flags.writeable:
        ctx.copy(x, device)
        ctx.synchronize()
        assert data.tolist() == [4, 6, 6, 6]
    data[:] = 1
    ctx.copy(device, x)
    assert device.numpy().tolist() == [1] * 4


def test_what_is_no_array(ctx):
    x = ctx.create_buffer(4)
    data = np.zeros(4, "f4")
    for bad, text in (
        (Failing(data), "this Failing is not given away: requires grad"),
        (Copying(), "hands out a copy"),
        (b"1234567890123456", "bytes"),
        ([1.0, 2.0, 3.0, 4.0], "list"),
        (np.float32(1), "float32"),
        (3.0, "float"),
        (np.ma.masked_array(data), "mask"),
    ):
        with pytest.raises(fg.InputError, match=text):
            fg.DeviceGraph.create(ctx, lambda b, twin: b.add_empty(), bad)
        with pytest.raises(fg.InputError, match=text):
            fg.DeviceGraph.create(ctx, lambda b, bad=bad: b.add_copy(x, bad))
        with pytest.raises(fg.InputError, match=text):
            ctx.copy(bad, x)
    with pytest.raises(fg.InputError, match="dense"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_copy(x, memoryview(np.zeros(8, "f4"))[::2]))
    with pytest.raises(fg.InputError, match="may not be written"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_copy(memoryview(bytes(16)).cast("f"), x))
    if ctx.api == "cuda":
        with pytest.raises(fg.InputError, match="host array"):
            fg.DeviceGraph.create(ctx, lambda b: b.add_memset(Dlpack(data), 1.0))
    else:  # memory of the device
        fg.DeviceGraph.create(ctx, lambda b: b.add_memset(Dlpack(data), 1.0)).replay()
        assert data.tolist() == [1] * 4


ODD = [
    np.array([object()]),
    np.array(["a"]),
    np.array([b"a"]),
    np.array(["2026-01-01"], "M8[D]"),
    np.array([1], "m8[s]"),
    np.zeros(2, [("a", "f4")]),
    np.zeros(2, ">f4"),
    np.zeros(2, "longdouble"),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda x: x.dtype.str)
def test_elements_that_are_no_numbers_of_ours(ctx, odd):
    with pytest.raises(fg.InputError, match=r"ndarray: dtype .* (is|has)"):
        as_buffer(odd, "cpu")
    with pytest.raises(fg.InputError, match="dtype"):
        fg.DeviceGraph.create(ctx, lambda b, x: b.add_output(x), odd)
    with pytest.raises(fg.InputError, match="dtype"):
        fg.DeviceGraph.create(ctx, lambda b: b.add_copy(odd, odd))
    x = ctx.create_buffer(odd.shape)
    with pytest.raises(fg.InputError):
        ctx.copy(x, odd)
    with pytest.raises(fg.InputError, match="dtype"):
        ctx.to_device(odd)
    with pytest.raises(fg.InputError):
        fg.DeviceGraph.create(ctx, lambda b: b.add_output(x)).run(out=[odd])


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:", "cuda:-1", ""])
def test_devices_that_are_none(device):
    with pytest.raises(fg.InputError, match="there is no device"):
        as_buffer(Dlpack(np.zeros(4, "f4")), device)


class Places(Dlpack):
    """A tensor whose device is what is given."""

    def __init__(self, data, place):
        super().__init__(data)
        self.place = place

    def __dlpack_device__(self):
        if self.place is KeyError:
            raise KeyError("place")
        return self.place


@pytest.mark.parametrize(
    "place", ["ab", 5, None, (1,), (1, 2, 3), (None, 0), KeyError, (2**70, 0), (1e400, 0)]
)
def test_places_that_are_none(ctx, place):
    x, bad = ctx.create_buffer(4), Places(np.zeros(4, "f4"), place)
    for act in (
        lambda: fg.DeviceGraph.create(ctx, lambda b, x: b.add_output(x), bad),
        lambda: ctx.copy(x, bad),
        lambda: ctx.memset(bad, 1.0),
        lambda: fg.InPlace(bad),
        lambda: ctx.to_device(bad),
    ):
        with pytest.raises(fg.InputError, match="this Places"):
            act()


def test_what_lies_on_another_device(ctx):
    x, far = ctx.create_buffer(4), Elsewhere(np.zeros(4, "f4"))
    for act in (
        lambda: fg.DeviceGraph.create(ctx, lambda b: b.add_copy(x, far)),
        lambda: fg.DeviceGraph.create(ctx, lambda b, twin: b.add_empty(), far),
        lambda: ctx.copy(far, x),
        lambda: ctx.copy(x, far),
    ):
        with pytest.raises(fg.InputError, match="device"):
            act()


def test_graphs_keep_foreign_arrays(ctx):
    numbers = array.array("f", [7] * 4)
    x = ctx.create_buffer(4)
    graph = fg.DeviceGraph.create(ctx, lambda b, held=[numbers]: b.add_copy(x, held.pop()))
    with pytest.raises(BufferError):
        numbers.append(1.0)
    del numbers
    graph.replay()
    assert x.numpy().tolist() == [7] * 4
