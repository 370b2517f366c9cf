"""Images are looked through before a driver reads them: it is told no length."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph.device.cuda import kernels
from fastgraph.device.cuda.compile import compile_source
from fastgraph.device.cuda.image import as_image, is_ptx, ptx_text

PTX = ".version 9.0\n.target sm_90\n.entry k() { ret; }\n"


@pytest.mark.parametrize(
    "given_",
    [PTX, PTX.encode(), PTX.encode() + b"\0", bytearray(PTX.encode()), memoryview(PTX.encode())],
)
def test_ptx(given_):
    assert as_image("k", given_) == PTX.encode() + b"\0"


def test_what_may_stand_before_ptx():
    text = "\n// made by hand\n/* .target */ \t\n" + PTX
    assert is_ptx(text)
    assert ptx_text(as_image("k", text)) == text
    assert not is_ptx("// .version 9.0\n__global__ void k() {}")
    assert not is_ptx("__global__ void k() {}")


def test_fat_binaries():
    image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 8) + bytes(8)
    assert as_image("k", image) == image
    assert as_image("k", image + b"more") == image + b"more"
    for length in (4, 15, 16, 23):
        with pytest.raises(fg.GraphError, match="cut off"):
            as_image("k", image[:length])
    with pytest.raises(fg.GraphError, match="holds an address"):
        as_image("k", struct.pack("<IIQQ", 0x466243B1, 1, 4096, 0))


def test_cubins(nvrtc):
    image = compile_source(kernels.source_text("control.cu"), "fg_fill8", "sm_90").image
    assert as_image("k", image) == image
    assert ptx_text(image) is None
    for length in (4, 63, 64, 1000, len(image) - 1):
        with pytest.raises(fg.GraphError, match="cut off"):
            as_image("k", image[:length])


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_magic_number(data):
    for magic in (b"\x7fELF\2\1", b"\x50\xed\x55\xba", b".version"):
        with contextlib.suppress(fg.GraphError):
            assert as_image("k", magic + data).startswith(magic)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (b"", "begins with b''"),
        (b"PK\3\4", "a cubin, a fat binary or PTX"),
        ("__global__ void k() {}", "a cubin, a fat binary or PTX"),
        (PTX.replace("sm", "\0sm"), "has a NUL at 21"),
        (None, "bytes or PTX text, not NoneType"),
        (5, "bytes or PTX text, not int"),
    ],
)
def test_what_is_no_image(given_, message):
    with pytest.raises(fg.GraphError, match=message):
        as_image("k", given_)
