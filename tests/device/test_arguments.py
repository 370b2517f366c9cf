"""Arguments of which only a size is known."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.device.arguments import Parameter, bind_arguments, check_arguments
from fastgraph.device.pending import Scalar

BYTES = {n: Parameter(None, False, False, f"{n} bytes", n) for n in (1, 2, 4, 8, 12)}
INTEGER = {n: Parameter(None, False, False, f".u{8 * n}", n, True) for n in (1, 2, 4)}


def one(parameter, value):
    (found,) = check_arguments("k", parameter.text, [parameter], [value])
    return found


@pytest.mark.parametrize(
    "value",
    [np.float32(1.5), np.int32(-5), np.uint32(7), np.array(1.5, "f4"), np.array(1, "i4")],
)
def test_numpy_scalars_of_the_size(value):
    assert one(BYTES[4], value).tobytes() == value.tobytes()


def test_structures():
    kind = np.dtype([("a", "i4"), ("b", "f4", 2)])
    value = np.zeros((), kind)[()]
    assert one(BYTES[12], value).tobytes() == bytes(12)
    objects = np.zeros((), np.dtype([("a", "O"), ("b", "i4")]))
    with pytest.raises(fg.InputError, match="argument 0"):
        one(BYTES[12], objects)


@pytest.mark.parametrize("value", [1, -1, 1.5, True, None, "x", b"abcd", 1j, [1]])
@pytest.mark.parametrize("size", [4, 8, 12])
def test_what_has_no_size_of_its_own(value, size):
    with pytest.raises(fg.InputError, match=r"argument 0 .*signature="):
        one(BYTES[size], value)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (BYTES[4], np.float64(1)),
        (BYTES[8], np.float32(1)),
        (BYTES[4], np.ma.masked),
        (BYTES[8], np.ma.masked_all((), "f8")),
        (INTEGER[4], np.float32(1)),
        (INTEGER[4], np.int64(1)),
        (BYTES[4], np.array("a")),
    ],
    ids=str,
)
def test_values_of_another_size(parameter, value):
    with pytest.raises(fg.InputError, match="argument 0"):
        one(parameter, value)


@pytest.mark.parametrize("size", INTEGER)
def test_integers_of_unknown_sign(size):
    most = 2 ** (8 * size - 1) - 1
    for value in (0, 1, most):
        assert int(one(INTEGER[size], value)) == value
        assert one(INTEGER[size], value).nbytes == size
    for value in (-1, most + 1, 2**200):
        with pytest.raises(fg.InputError, match=r"sign is not known.*NumPy integer"):
            one(INTEGER[size], value)
    for value in (1.0, None, "1"):
        with pytest.raises(fg.InputError, match="argument 0"):
            one(INTEGER[size], value)
    assert one(INTEGER[size], np.dtype(f"i{size}").type(-1)).tobytes() == b"\xff" * size


def test_truth_values():
    assert one(INTEGER[1], True).tobytes() == b"\1"
    with pytest.raises(fg.InputError):
        one(INTEGER[4], True)


def scalar(dtype, where):
    return Scalar("s", np.array(1, dtype), where, "cpu")


def test_scalars():
    assert one(BYTES[4], scalar("f4", "node")).name == "s"
    assert one(INTEGER[4], scalar("i4", "node")).name == "s"
    for parameter, value in (
        (BYTES[4], scalar("f8", "node")),
        (INTEGER[4], scalar("f4", "node")),
        (BYTES[4], scalar("f4", "memory")),
    ):
        with pytest.raises(fg.InputError, match="argument 0"):
            one(parameter, value)


def bind(parameter, value, declared=None):
    values = check_arguments("k", parameter.text, [parameter], [value])
    places = []

    def place(value, written):
        places.append(written)
        return value

    return *bind_arguments(place, "k", [parameter], values, [declared]), places


def test_eight_bytes_may_be_a_buffer():
    x = fg.DeviceContext("cpu").create_buffer(4)
    accesses, bound, _ = bind(BYTES[8], x)
    assert [(a.reads, a.writes) for a in accesses] == [(True, True)]
    assert bound[0].kind == "pointer"
    for declared, want in ((fg.In(x), (True, False)), (fg.Out(x), (False, True))):
        ((access,), _, written) = bind(BYTES[8], x, declared)
        assert (access.reads, access.writes) == want
        assert written == [want[1]]
    accesses, bound, _ = bind(BYTES[8], np.float64(2))
    assert accesses == ()
    assert bound[0].value.tobytes() == np.float64(2).tobytes()
    (access,), bound, written = bind(BYTES[8], scalar("f4", "memory"))
    assert (bound[0].kind, access.writes, written) == ("pointer", False, [False])
    (access,), bound, _ = bind(BYTES[8], scalar("f8", "node"))
    assert (bound[0].kind, access.writes) == ("scalar", False)


def test_what_is_no_buffer():
    x = fg.DeviceContext("cpu").create_buffer(4)
    with pytest.raises(fg.InputError, match="a buffer is needed, not a host array"):
        bind(BYTES[8], np.zeros(4, "f4"))
    with pytest.raises(fg.InputError, match="is for buffers"):
        bind(BYTES[8], np.float64(2), fg.In(x))
    for value in (x, np.zeros(1, "f4")):
        with pytest.raises(fg.InputError, match="argument 0"):
            bind(INTEGER[4], value)
        with pytest.raises(fg.InputError, match="argument 0"):
            bind(BYTES[4], value)
