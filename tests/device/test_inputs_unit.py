"""Inputs of device graphs with a builder that only notes what it is asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph._core.key import Key
from fastgraph._core.keys import KeyWriter
from fastgraph.device.inputs import (
    DeviceGraphInput,
    HostValue,
    InPlace,
    RecordedInput,
    as_input,
    check_live,
    compose_key,
    record_input,
    write_inputs,
)
from fastgraph.errors import InputError


class Builder:
    """Makes twins and aliases as a graph's builder does, and nothing else."""

    def __init__(self) -> None:
        self.context = fg.DeviceContext("cpu")
        self.twins: list[Buffer] = []
        self.in_place: list[Buffer] = []

    def create_input_buffer(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        self.twins.append(self.context.create_buffer(shape, dtype))
        return self.twins[-1]

    def register_in_place_input(self, buffer: Buffer) -> Buffer:
        self.in_place.append(buffer)
        return buffer


class Cache:
    """A cache as small as can be: recorded inputs by key, each made once."""

    def __init__(self) -> None:
        self.entries: dict[Key, list[RecordedInput]] = {}
        self.builds = 0

    def create(self, *inputs: Any) -> list[RecordedInput]:
        key = compose_key(type(self).create, inputs, ("cpu",))
        if key not in self.entries:
            self.builds += 1
            self.entries[key] = record(*inputs)[1]
        return self.entries[key]


def record(*inputs: Any) -> tuple[list[Any], list[RecordedInput]]:
    stables, recorded = [], []
    for x in inputs:
        builder, source = Builder(), as_input(x)
        stables.append(source.allocate_stable(builder))
        recorded.append(record_input(source, stables[-1], builder.twins))
    return stables, recorded


def key(*inputs: Any) -> Key:
    writer = KeyWriter()
    write_inputs(writer, inputs)
    return writer.take_key()


@pytest.fixture
def ctx() -> fg.DeviceContext:
    return fg.DeviceContext("cpu")


class Pair(DeviceGraphInput):
    """One input of two arrays and a number."""

    def __init__(self, a: Any, b: Any, number: int = 0) -> None:
        self.arrays = [a, b]
        self.number = number

    def write_graph_key(self, writer: KeyWriter) -> None:
        write_inputs(writer, self.arrays)
        writer.write_int(self.number)

    def allocate_stable(self, builder: Any) -> Any:
        return tuple(as_input(array).allocate_stable(builder) for array in self.arrays)

    def live_buffers(self) -> Sequence[Any]:
        return self.arrays


# ---- copied inputs -------------------------------------------------------------------------------


def test_a_copied_input_gets_a_twin_elsewhere(ctx: fg.DeviceContext) -> None:
    x = ctx.to_device(np.arange(8, dtype="f4"))
    builder = Builder()
    twin = as_input(x).allocate_stable(builder)
    assert builder.twins == [twin]
    assert twin.ptr != x.ptr
    assert (twin.shape, twin.dtype) == (x.shape, x.dtype)
    assert not twin.numpy().any()  # recording reads no values


def test_buffers_and_arrays_of_one_shape_share_a_graph(ctx: fg.DeviceContext) -> None:
    cache = Cache()
    a = np.zeros((2, 4), "f4")
    cache.create(a)
    cache.create(a + 1)
    cache.create(np.asfortranarray(a))
    cache.create(ctx.to_device(a))
    cache.create(as_input(a))
    assert cache.builds == 1
    for other in (a.T, a.ravel(), a.astype("f8"), a.astype("i4")):
        cache.create(other)
    assert cache.builds == 5


def test_live_arrays_come_in_order(ctx: fg.DeviceContext) -> None:
    a, b = np.zeros(4, "f4"), ctx.create_buffer((2, 2), "int32")
    recorded = record(a, b)[1]
    other = np.arange(8, dtype="f4")[::2]
    found = check_live(recorded, (other, b))
    assert found[0] is other
    assert found[1] is b
    assert len(found) == 2
    device, array = ctx.to_device(a), np.ones((2, 2), "int32")
    assert check_live(recorded, [device, as_input(array)]) == [device, array]


def test_a_subclass_of_ndarray_is_an_array() -> None:
    class Tagged(np.ndarray):
        pass

    tagged = np.zeros(4, "f4").view(Tagged)
    assert key(tagged) == key(np.zeros(4, "f4"))
    (found,) = check_live(record(np.zeros(4, "f4"))[1], [tagged])
    assert (type(found), found.ctypes.data) == (np.ndarray, tagged.ctypes.data)


def test_nothing_recorded_holds_the_callers_array() -> None:
    array = np.zeros(4)
    gone = weakref.ref(array)
    recorded = record(array, HostValue(np.ones(2)))[1]
    del array
    gc.collect()
    assert gone() is None
    assert len(recorded) == 2


# ---- in place ------------------------------------------------------------------------------------


def test_in_place_is_recorded_at_its_own_address(ctx: fg.DeviceContext) -> None:
    x = ctx.create_buffer(4)
    builder = Builder()
    alias = InPlace(x).allocate_stable(builder)
    assert alias.ptr == x.ptr
    assert builder.in_place == [x]
    assert builder.twins == []


def test_a_moved_buffer_is_another_graph(ctx: fg.DeviceContext) -> None:
    cache = Cache()
    x, y = ctx.create_buffer(8), ctx.create_buffer(8)
    for buf in (x, y, x, x[:8]):
        cache.create(InPlace(buf))
    assert cache.builds == 2
    cache.create(InPlace(x[:4]))
    cache.create(x)
    whole = buffer.view(x.block, 0, (8,), "int32", "cpu")
    cache.create(InPlace(whole))
    assert cache.builds == 5


def test_live_in_place_inputs_must_not_move(ctx: fg.DeviceContext) -> None:
    x, y = ctx.create_buffer(8), ctx.create_buffer(8)
    recorded = record(np.zeros(2), InPlace(x))[1]
    a = np.zeros(2)
    assert check_live(recorded, (a, InPlace(x))) == [a]
    with pytest.raises(InputError, match=r"input 1: .*InPlace float32\[8\] at 0x.*, not InPlace"):
        check_live(recorded, (a, InPlace(y)))
    with pytest.raises(InputError, match=r"input 1: .*InPlace.*not float32\[8\]"):
        check_live(recorded, (a, x))
    with pytest.raises(InputError, match="input 0"):
        check_live(recorded, (InPlace(x), InPlace(x)))


@pytest.mark.parametrize("x", [np.zeros(3), 3, None, "x", [1.0]])
def test_only_a_buffer_is_in_place(x: Any) -> None:
    with pytest.raises(InputError, match="InPlace takes a Buffer"):
        InPlace(x)


# ---- host values ---------------------------------------------------------------------------------


def test_the_bytes_of_a_host_value_are_in_the_key() -> None:
    cache = Cache()
    cache.create(HostValue(np.full(4, 0x2B, np.uint8)))
    cache.create(HostValue(np.full(4, 0x2B, np.uint8)))
    assert cache.builds == 1
    cache.create(HostValue(np.full(4, 0x71, np.uint8)))
    assert cache.builds == 2


def test_numbers_as_host_values() -> None:
    cache = Cache()
    for value in (3.0, 9.0, 3.0):
        cache.create(HostValue(value))
    assert cache.builds == 2
    others: list[Any] = [3, np.float32(3), [3.0], 0.0, -0.0]
    for other in others:
        cache.create(HostValue(other))
    assert cache.builds == 7


def test_same_bytes_of_another_shape_or_dtype_are_another_value() -> None:
    zeros = [np.zeros(4, "f4"), np.zeros(4, "i4"), np.zeros((2, 2), "f4"), np.zeros(16, "u1")]
    assert len({key(HostValue(z)) for z in zeros}) == 4


def test_a_host_value_reaches_build_as_a_copy_of_its_own() -> None:
    array = np.arange(6.0).reshape(2, 3).T
    value = HostValue(array)
    before = key(value)
    stable = value.allocate_stable(Builder())
    assert type(stable) is np.ndarray
    assert not stable.flags.writeable
    array[:] = 0
    np.testing.assert_array_equal(stable, np.arange(6.0).reshape(2, 3).T)
    assert key(value) != before
    assert not key(value) == key(HostValue(stable)) == before


def test_host_values_of_other_kinds(ctx: fg.DeviceContext) -> None:
    config = np.array([(1, 2.0)], dtype=[("n", "i4"), ("scale", "f4")])
    assert HostValue(config).allocate_stable(Builder())["n"] == [1]
    assert key(HostValue(config)) == key(HostValue(config.copy()))
    assert HostValue("mode").allocate_stable(Builder()) == "mode"
    assert HostValue(ctx.to_device(np.ones(2))).allocate_stable(Builder()).tolist() == [1, 1]
    assert HostValue(np.zeros((0, 3))).allocate_stable(Builder()).shape == (0, 3)


@pytest.mark.parametrize("x", [None, object(), [None], np.ma.masked_array([1.0], [True]), [[1], 2]])
def test_what_is_no_host_value(x: Any) -> None:
    with pytest.raises(InputError):
        HostValue(x)


def test_live_host_values_must_have_the_same_bytes() -> None:
    recorded = record(HostValue(3.0))[1]
    assert check_live(recorded, [HostValue(3.0)]) == []
    with pytest.raises(InputError, match=r"input 0: .*recorded with another HostValue"):
        check_live(recorded, [HostValue(9.0)])
    with pytest.raises(InputError, match="HostValue float64"):
        check_live(recorded, [np.array(3.0)])


def test_what_build_saw_is_recorded_though_the_array_changed() -> None:
    array = np.ones(3)
    value = HostValue(array)
    stable = value.allocate_stable(Builder())
    array[0] = 5
    recorded = [record_input(value, stable, [])]
    assert check_live(recorded, [HostValue(np.ones(3))]) == []
    with pytest.raises(InputError):
        check_live(recorded, [value])


# ---- what is no input ----------------------------------------------------------------------------


@pytest.mark.parametrize("x", [3, 3.0, True, np.float32(3), [1.0, 2.0], (1,), "x", b"x", None])
def test_bare_numbers_name_the_way_out(x: Any) -> None:
    with pytest.raises(InputError, match=r"HostValue.*scalar"):
        as_input(x)
    with pytest.raises(InputError, match=r"HostValue.*scalar"):
        key(x)


@pytest.mark.parametrize(
    "x",
    [
        np.ma.masked_array([1.0], [True]),
        np.array([None]),
        np.array(["text"]),
        np.zeros(2, ">f4"),
        np.zeros(2, "c16"),
    ],
)
def test_arrays_without_a_place_on_a_device(x: Any) -> None:
    with pytest.raises(InputError):
        as_input(x)


def test_an_input_comes_back_as_it_is(ctx: fg.DeviceContext) -> None:
    for x in (HostValue(1), InPlace(ctx.create_buffer(1)), Pair(np.zeros(1), np.zeros(1))):
        assert as_input(x) is x


def test_an_input_says_what_it_writes() -> None:
    with pytest.raises(TypeError, match="abstract"):
        DeviceGraphInput()  # type: ignore[abstract]


# ---- inputs of one's own -------------------------------------------------------------------------


def test_one_input_of_two_arrays() -> None:
    a, b = np.zeros(2), np.ones((3, 1), "f4")
    (stable,), recorded = record(Pair(a, b))
    assert [twin.shape for twin in stable] == [(2,), (3, 1)]
    assert check_live(recorded, [Pair(b=b + 1, a=a)])[0] is a
    assert key(Pair(a, b)) != key(a, b)
    assert key(Pair(a, b)) != key(Pair(b, a))
    with pytest.raises(InputError, match=r"input 0: the graph was recorded with another Pair"):
        check_live(recorded, [Pair(a, b, number=1)])
    with pytest.raises(InputError, match=r"input 0: .*Pair, not float64"):
        check_live(recorded, [a])


def test_twins_are_checked_though_the_key_says_nothing() -> None:
    class Loose(Pair):
        def write_graph_key(self, writer: KeyWriter) -> None:
            pass

    a, b = np.zeros(2), np.zeros(3)
    recorded = record(Loose(a, b))[1]
    with pytest.raises(InputError, match=r"input 0: .*float64\[2\], not float64\[3\]"):
        check_live(recorded, [Loose(b, b)])
    with pytest.raises(InputError, match="Buffer or ndarray is needed"):
        check_live(recorded, [Loose(a, [0.0, 0.0, 0.0])])


def test_twins_without_live_buffers_are_found_when_recorded() -> None:
    class Forgetful(Pair):
        def live_buffers(self) -> Sequence[Any]:
            return ()

    with pytest.raises(InputError, match=r"gives 0 arrays .* called 2 times"):
        record(Forgetful(np.zeros(2), np.zeros(2)))


# ---- live inputs that do not fit -----------------------------------------------------------------


def test_as_many_as_recorded() -> None:
    recorded = record(np.zeros(2), np.zeros(2))[1]
    for live in ([], [np.zeros(2)], [np.zeros(2)] * 3):
        with pytest.raises(InputError, match=f"{len(live)} inputs .* recorded with 2"):
            check_live(recorded, live)
    assert check_live([], []) == []


@pytest.mark.parametrize(
    "live",
    [
        np.zeros(3, "f4"),
        np.zeros((2, 1), "f4"),
        np.zeros(2),
        np.zeros(2, ">f4"),
        np.ma.masked_array(np.zeros(2, "f4"), [True, False]),
        3.0,
        None,
    ],
)
def test_what_differs_is_named_by_position(live: Any) -> None:
    good = np.zeros(2, "f4")
    recorded = record(good, good)[1]
    with pytest.raises(InputError, match=r"^input 1: "):
        check_live(recorded, [good, live])


def test_a_buffer_of_another_device(ctx: fg.DeviceContext) -> None:
    recorded = record(np.zeros(2, "f4"))[1]
    elsewhere = buffer.view(ctx.create_buffer(2).block, 0, (2,), "f4", "cuda:1")
    with pytest.raises(InputError, match=r"input 0: .*is on cuda:1, the graph on cpu"):
        check_live(recorded, [elsewhere])
