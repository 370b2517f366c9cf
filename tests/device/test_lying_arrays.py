"""Objects that say something else of themselves than what they are, or something else each time."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg

LARGE = 1 << 20


class Shape(np.ndarray):
    shape = property(lambda self: (LARGE,))


class Dtype(np.ndarray):
    dtype = property(lambda self: np.dtype("f4"))


class Size(np.ndarray):
    nbytes = property(lambda self: 4 * LARGE)
    size = property(lambda self: LARGE)


class Address(np.ndarray):
    __array_interface__ = property(
        lambda self: {"data": (8, False), "shape": (4,), "typestr": "<f4", "version": 3}
    )


def handed_on(b, x):
    b.add_output(x)


def test_arrays_are_what_numpy_knows_of_them(ctx):
    graph = fg.DeviceGraph.create(ctx, handed_on, np.zeros(LARGE, "f4"))
    with pytest.raises(fg.InputError, match=r"not float32\[4\]"):
        graph.run(np.zeros(4, "f4").view(Shape))
    graph = fg.DeviceGraph.create(ctx, handed_on, np.zeros(4, "f4"))
    with pytest.raises(fg.InputError, match=r"not float64\[4\]"):
        graph.run(np.zeros(4).view(Dtype))
    for kind in (Shape, Size, Address):
        x = np.arange(4, dtype="f4").view(kind)
        assert graph.run(x)[0].tolist() == [0, 1, 2, 3]
        assert fg.DeviceGraph.create(ctx, handed_on, x).inputs == ["float32[4]"]


@pytest.mark.parametrize("kind", [Shape, Size, Address])
def test_copies_touch_what_is_there(ctx, kind):
    device, x = ctx.create_buffer(4), np.arange(4, dtype="f4").view(kind)
    fg.DeviceGraph.create(ctx, lambda b: b.add_copy(device, x)).replay()
    assert device.numpy().tolist() == [0, 1, 2, 3]
    device.copy_from(np.full(4, 5, "f4"))
    fg.DeviceGraph.create(ctx, lambda b: b.add_copy(x, device)).replay()
    ctx.synchronize()
    assert np.asarray(x).tolist() == [5] * 4
    ctx.memset(device, 6.0)
    ctx.copy(x, device)
    assert np.asarray(x).tolist() == [6] * 4
    ctx.copy(device, np.arange(4, dtype="f4").view(kind))
    assert device.numpy().tolist() == [0, 1, 2, 3]


class Own(fg.DeviceGraphInput):
    """Four float32 that are handed out as `given` says."""

    def __init__(self, given):
        self.given = given

    def write_graph_key(self, writer):
        writer.write_str("own")

    def allocate_stable(self, builder):
        return builder.create_input_buffer(4, "float32")

    def live_buffers(self):
        return self.given


class Changing:
    """A sequence with one array at the first walk and another one at the next."""

    def __init__(self, *arrays):
        self.arrays = list(arrays)

    def __iter__(self):
        return iter([self.arrays.pop(0)])


GOOD = np.arange(4, dtype="f4")


@pytest.mark.parametrize(
    "bad", [np.zeros(4), np.zeros(2, "f4"), np.zeros(LARGE, "f4"), None, [1.0], "text"]
)
def test_live_buffers_are_walked_once(ctx, bad):
    graph = fg.DeviceGraph.create(ctx, handed_on, Own([GOOD]))
    assert graph.run(Own(Changing(GOOD, bad)))[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(fg.InputError, match="input 0: "):
        graph.run(Own(Changing(bad, GOOD)))


@pytest.mark.parametrize("bad", [None, 5, GOOD, "text"])
def test_what_is_no_sequence_of_arrays(ctx, bad):
    graph = fg.DeviceGraph.create(ctx, handed_on, Own([GOOD]))
    with pytest.raises(fg.InputError, match="a sequence of arrays is needed"):
        graph.run(Own(bad))
    with pytest.raises(fg.InputError, match="a sequence of arrays is needed"):
        fg.DeviceGraph.create(ctx, handed_on, Own(bad))


def test_arrays_of_ones_own_may_be_subclasses(ctx):
    graph = fg.DeviceGraph.create(ctx, handed_on, Own([GOOD]))
    assert graph.run(Own([GOOD.view(Shape)]))[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(fg.InputError, match=r"not float64\[4\]"):
        graph.run(Own([np.zeros(4).view(Dtype)]))


class Fickle:
    """An array of another library that tells one size and hands out another."""

    def __init__(self, told, given):
        self.told, self.given = told, given

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        self.told, self.given = self.given, self.told
        return self.given.__dlpack__(**options)


@pytest.mark.parametrize("other", [np.zeros(2, "f4"), np.zeros(2), np.zeros(LARGE, "f4")])
def test_what_another_library_hands_out_is_looked_at(ctx, other):
    graph = fg.DeviceGraph.create(ctx, handed_on, GOOD)
    for given in (Fickle(GOOD, other), Fickle(other, GOOD)):
        with pytest.raises(fg.InputError, match="not float"):
            graph.run(given)
    assert graph.run(GOOD)[0].tolist() == [0, 1, 2, 3]


class Trap(int):
    """A number that changes an array when it is compared, and compares as it likes."""

    def __ge__(self, other):
        self.act()
        return True

    __le__ = __ge__


@pytest.mark.parametrize("shape", [1, (1, 4), 16])
def test_arrays_are_looked_at_after_what_may_change_them(ctx, shape):
    x = np.ones((4, 4), "f4")

    def build(b, given):
        b.scalar("s", "int32", 0)
        b.add_output(given)

    graph = fg.DeviceGraph.create(ctx, build, x)
    value = Trap(3)
    value.act = lambda: x.resize(shape, refcheck=False)
    try:
        (out,) = graph.run(x, s=value)
    except fg.InputError:
        return
    assert (out == 1).all()


def test_numbers_are_what_they_are(ctx):
    def build(b):
        b.scalar("i", "int8", 0)
        b.scalar("f", "float32", 0.0)
        b.add_empty()

    graph = fg.DeviceGraph.create(ctx, build)
    value = Trap(300)
    value.act = lambda: None
    with pytest.raises(fg.InputError, match="300"):
        graph.replay(i=value)

    class Odd(float):
        def __float__(self):
            raise ZeroDivisionError

    graph.replay(f=Odd(3))
    with pytest.raises(fg.InputError, match="1e\\+39"):
        graph.replay(f=Odd(1e39))


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_an_array_of_one_element_is_no_scalar(ctx, shape):
    def build(b):
        b.scalar("s", "float32", 0.0)
        b.add_empty()

    graph = fg.DeviceGraph.create(ctx, build)
    x = np.zeros(shape, "f4")
    with pytest.raises(fg.InputError, match=r"'s': .* of shape \(1,.*is x.reshape\(\(\)\)"):
        graph.replay(s=x)
    graph.replay(s=x.reshape(()))
