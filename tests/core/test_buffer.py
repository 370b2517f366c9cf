"""Blocks and buffers: slices, copies, and every way out to other libraries."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest

from fastgraph._core import buffer, counters
from fastgraph.device.context import DeviceContext
from fastgraph.errors import InputError, OutOfMemoryError

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16]
SHAPES = [(), (0,), (1,), (5,), (2, 3), (0, 4), (3, 0, 2), (2, 1, 2, 1, 2)]


@pytest.fixture
def ctx():
    return DeviceContext("cpu")


def sample(shape, dtype):
    count = int(np.prod(shape, dtype=int))
    return np.arange(count).astype("f4").astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_there_and_back(ctx, shape, dtype):
    array = sample(shape, dtype)
    x = ctx.to_device(array)
    assert (x.shape, x.dtype, x.nbytes) == (array.shape, array.dtype, array.nbytes)
    assert x.device == "cpu"
    for back in (x.numpy(), np.asarray(x), np.array(x)):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    assert x.ptr % 64 == 0


def test_starts_as_zeros(ctx):
    for size in (1, 1000, 3 << 20):
        assert not ctx.create_buffer(size, "u1").numpy().any()


def test_numpy_is_owned(ctx):
    x = ctx.to_device(np.arange(4, dtype="f4"))
    mine = x.numpy()
    mine[:] = 9
    assert mine.flags.owndata
    assert x.numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["f4", ml_dtypes.bfloat16], ids=str)
def test_asarray_is_a_view_that_keeps_the_memory(ctx, dtype):
    before = counters.snapshot()
    x = ctx.to_device(np.ones(1000).astype(dtype))
    view = np.asarray(x)
    view[3] = 7
    assert x.numpy()[3] == 7
    assert view.flags.writeable
    del x
    gc.collect()
    others = [ctx.create_buffer(1000, "f4") for _ in range(20)]
    assert view[3] == 7
    assert view[0] == 1
    assert counters.snapshot()["blocks"] == before["blocks"] + 21
    del view, others
    gc.collect()
    assert counters.snapshot() == before


def test_asarray_with_a_dtype(ctx):
    x = ctx.to_device(np.arange(3).astype(ml_dtypes.bfloat16))
    assert np.asarray(x, dtype="f4").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="needs a copy"):
        x.__array__(np.float32, copy=False)
    taken = x.__array__(copy=True)
    taken[0] = 5
    assert x.numpy()[0] == 0


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None), [0, 1, 2, 3]),
        (slice(-2, None), [2, 3]),
        (slice(3, 1), []),
        (slice(4, 9), []),
        (slice(0, 0), []),
    ],
)
def test_slices_share(ctx, key, want):
    x = ctx.to_device(np.arange(4, dtype="i4"))
    part = x[key]
    assert part.numpy().tolist() == want
    assert len(part) == len(want)
    np.asarray(part)[...] = -1
    assert [v for v in x.numpy() if v >= 0] == [v for v in range(4) if v not in want]
    assert part.block is x.block


def test_slice_of_rows(ctx):
    x = ctx.to_device(sample((4, 3), "f4"))
    part = x[1:4][1:2]
    assert part.shape == (1, 3)
    assert part.numpy().tolist() == [[6, 7, 8]]
    assert part.ptr == x.ptr + 2 * 12


@pytest.mark.parametrize(
    "key", [0, -1, slice(None, None, 2), slice(None, None, -1), ..., None, "a", (slice(1),), 1.5]
)
def test_bad_slices(ctx, key):
    with pytest.raises(InputError):
        ctx.create_buffer((4, 4))[key]


def test_slice_indices_that_are_none(ctx):
    with pytest.raises(TypeError):
        ctx.create_buffer(4)["a":]


def test_without_axes(ctx):
    x = ctx.to_device(np.float32(3))
    assert x.shape == ()
    assert x.numpy() == 3
    with pytest.raises(InputError, match="without axes"):
        x[:]
    with pytest.raises(TypeError, match="has no length"):
        len(x)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(3, "f4"),
        np.zeros((4, 1), "f4"),
        np.zeros(4, "f8"),
        np.zeros(4, ">f4"),
        np.zeros((), "f4"),
        [1.0, 2.0, 3.0, 4.0],
        [[1], [2, 3]],
        "abcd",
        None,
        object(),
        np.ma.masked_array(np.zeros(4, "f4"), [0, 1, 0, 0]),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_copy_from_refuses(ctx, bad):
    x = ctx.to_device(np.arange(4, dtype="f4"))
    with pytest.raises(InputError):
        x.copy_from(bad)
    assert x.numpy().tolist() == [0, 1, 2, 3]


def test_copy_from_any_strides(ctx):
    x = ctx.create_buffer((2, 3), "f4")
    array = np.arange(24, dtype="f4").reshape(4, 6)[::-2, ::2]
    x.copy_from(array)
    np.testing.assert_array_equal(x.numpy(), array)
    x.copy_from(x)
    x[0:1].copy_from(x[1:2])
    np.testing.assert_array_equal(x.numpy(), [array[1], array[1]])


def test_buffer_protocol(ctx):
    x = ctx.to_device(sample((2, 3), "i2"))
    view = memoryview(x)
    assert (view.shape, view.strides, view.format) == ((2, 3), (6, 2), "h")
    assert not view.readonly
    assert view.c_contiguous
    assert bytes(view) == sample((2, 3), "i2").tobytes()
    del x
    view.cast("B")[0] = 5
    assert view[0, 0] == 5


def test_no_format_in_the_buffer_protocol(ctx):
    with pytest.raises(BufferError, match="bfloat16 has no format"):
        memoryview(ctx.create_buffer(2, ml_dtypes.bfloat16))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dlpack(ctx, shape, dtype):
    x = ctx.to_device(sample(shape, dtype))
    other = np.from_dlpack(x)
    np.testing.assert_array_equal(other, x.numpy())
    assert x.__dlpack_device__() == (1, 0)
    if other.size:
        assert other.__array_interface__["data"][0] == x.ptr
    del x
    gc.collect()
    np.testing.assert_array_equal(other, sample(shape, dtype))


def test_is_made_by_contexts_alone(ctx):
    for kind in (buffer.Buffer, buffer.Block):
        with pytest.raises(TypeError, match="are made by"):
            kind()


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.ptr,
        lambda x: x.numpy(),
        lambda x: x[0:1],
        lambda x: len(x),
        lambda x: repr(x),
        lambda x: x.copy_from([1]),
        lambda x: memoryview(x),
        lambda x: x.__array__(),
        lambda x: x.__dlpack__(),
        lambda x: DeviceContext("cpu").copy(x, x),
        lambda x: DeviceContext("cpu").memset(x, 1),
    ],
)
def test_one_without_memory_raises(use):
    """`__new__` alone makes an empty buffer; whatever is asked of it, the interpreter goes on."""
    for kind in (buffer.Buffer, type("Mine", (buffer.Buffer,), {})):
        with pytest.raises((TypeError, AttributeError, BufferError, InputError)):
            use(kind.__new__(kind))


def test_is_not_pickled_or_copied(ctx):
    x = ctx.create_buffer(4)
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            act(x)


def test_weak_reference_and_hash(ctx):
    x = ctx.create_buffer(4)
    assert weakref.ref(x)() is x
    assert x in {x}


def test_in_a_cycle(ctx):
    """A buffer in collected garbage gives its memory back."""
    before = counters.snapshot()

    class Holder:
        pass

    holder = Holder()
    holder.me, holder.x = holder, ctx.create_buffer(1000)
    holder.borrowed = buffer.borrow(holder.x.ptr, 8, holder)
    del holder
    gc.collect()
    assert counters.snapshot() == before


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, (1 << 20) - 1, 1 << 20, (1 << 21) + 1])
def test_allocate(nbytes):
    before = counters.snapshot()
    block = buffer.allocate(nbytes)
    assert block.nbytes == nbytes
    assert block.ptr % 64 == 0
    assert block.ptr
    assert counters.snapshot()["block_bytes"] - before["block_bytes"] == nbytes
    del block
    assert counters.snapshot() == before


def test_too_large():
    before = counters.snapshot()
    with pytest.raises(OutOfMemoryError):
        buffer.allocate(2**63 - 1)
    with pytest.raises(InputError, match="-1 bytes"):
        buffer.allocate(-1)
    assert counters.snapshot() == before


def test_borrow():
    array = np.arange(4, dtype="f4")
    block = buffer.borrow(array.ctypes.data, 16, array)
    x = buffer.view(block, 4, (3,), "f4", "cpu")
    alive = weakref.ref(array)
    del array, block
    assert x.numpy().tolist() == [1, 2, 3]
    del x
    assert alive() is None
    with pytest.raises(InputError, match="owner"):
        buffer.borrow(4096, 16, None)


@pytest.mark.parametrize(
    ("offset", "shape"),
    [
        (-1, (1,)),
        (0, (17,)),
        (64, (1,)),
        (61, (1,)),
        (0, (-1,)),
        (0, (1,) * 33),
        (0, (2**40, 2**40)),
    ],
)
def test_view_outside(offset, shape):
    block = buffer.allocate(64)
    with pytest.raises(InputError):
        buffer.view(block, offset, shape, "f4", "cpu")


def test_view_of_nothing():
    with pytest.raises(TypeError):
        buffer.view(None, 0, (1,), "f4", "cpu")
