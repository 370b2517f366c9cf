"""Kernels for a GPU, run on the host: their numbers and their addresses, tested without a device.

The C++ compiler of the host builds a kernel's own text; ``words.h`` gives the words of CUDA and
``common.cuh`` the bodies that it has for ``FG_HOST``. Blocks run one after another, the threads of
a block as fibers that change where they wait: barriers, shuffles and votes, matrix units, copies
into shared memory behave as on a device, and what is wrong there is an error here:

    >>> from tests.cuda_host import Guarded, Kernels
    >>> import numpy as np
    >>> text = '''
    ... __global__ void twice(const float *x, float *y, int n) {
    ...   const int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = 2 * x[i];
    ... }'''
    >>> kernels = Kernels([(text, "twice")])
    >>> x, y = Guarded(np.arange(3, dtype="f4")), Guarded(np.zeros(3, "f4"))
    >>> kernels.launch("twice", (1, 1, 1), (32, 1, 1), [x, y, np.int32(3)])
    >>> y.array
    array([0., 2., 4.], dtype=float32)

What is seen: memory touched outside of an operand by a page or more, or written outside at all
(under `sanitize`: any byte outside); loads wider than their address allows; barriers and masks that
not all threads reach; shared memory read before it is written (it holds 0xff); asynchronous copies
read before they are waited for; `must_wait` kernels with a path without ``fg_wait()``, or that
touch `hidden` operands before it; and, with another `seed`, orders of threads and blocks that a
missing barrier lets through.

What is not: how fast it is, what a device does with an inline assembler text, a race between
threads that change one word between two waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cuda_host.build import build_kernels, build_runtime, compiler

__all__ = ["Fault", "Guarded", "Kernels", "compiler"]

PAGE = 4096


class Fault(RuntimeError):
    """What a kernel did that it must not."""


class _Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Hidden(ctypes.Structure):
    _fields_ = [
        ("pointer", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("align", ctypes.c_size_t),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", _Dim),
        ("block", _Dim),
        ("shared_bytes", ctypes.c_size_t),
        ("cluster", ctypes.c_uint),
        ("seed", ctypes.c_uint64),
        ("must_wait", ctypes.c_int),
        ("hidden", ctypes.POINTER(_Hidden)),
        ("n_hidden", ctypes.c_size_t),
        ("statics", ctypes.c_void_p),
        ("statics_bytes", ctypes.c_size_t),
    ]


def _runtime(sanitize: bool) -> ctypes.CDLL:
    runtime = ctypes.CDLL(str(build_runtime(sanitize)))
    runtime.cuda_host_allocate.restype = ctypes.c_void_p
    runtime.cuda_host_allocate.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    runtime.cuda_host_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    runtime.cuda_host_untouched.argtypes = runtime.cuda_host_free.argtypes
    return runtime


class Guarded:
    """A copy of `array` in memory with pages that fault before and behind it.

    Parameters
    ----------
    array : ndarray
    align : int
        What the address is a multiple of, and of nothing greater. The smaller, the closer the end
        is to the page behind it.
    """

    def __init__(self, array: np.ndarray[Any, Any], align: int = 64, sanitize: bool = False):
        array = np.asarray(array)
        self._runtime = _runtime(sanitize)
        # A multiple of `align` alone lies that far behind a multiple of twice as much.
        self._lead = align if align < 64 else 0
        self._bytes, self._align = array.nbytes + self._lead, max(64, align)
        self._base = self._runtime.cuda_host_allocate(self._bytes, self._align)
        self.address = self._base + self._lead
        raw = (ctypes.c_ubyte * array.nbytes).from_address(self.address)
        self.array = np.frombuffer(raw, array.dtype).reshape(array.shape)
        self.array[...] = array

    @property
    def place(self) -> tuple[int, int, int]:
        """Address, bytes and alignment of the memory as it was asked for."""
        return self._base, self._bytes, self._align

    def untouched(self) -> bool:
        """Whether nothing was written outside."""
        lead = bytes((ctypes.c_ubyte * self._lead).from_address(self._base))
        untouched = self._runtime.cuda_host_untouched(self._base, self._bytes, self._align)
        return bool(untouched) and lead == b"\xff" * self._lead

    def __del__(self) -> None:
        if hasattr(self, "_base"):
            self._runtime.cuda_host_free(self._base, self._bytes, self._align)


class Kernels:
    """Kernels built together: one run of the compiler for all of them.

    Parameters
    ----------
    codes : sequence of (str, str)
        Of each the source and the kernel's name in C++. Sources may define the same names.
    headers : sequence of str
        Texts that sources may begin with, each compiled once; all begin with the first.
    sanitize : bool
        Whether the compiler's sanitizers look on; the process then needs their library preloaded.
    level : str
        ``"-O0"`` compiles many kernels in half the time.
    """

    def __init__(
        self,
        codes: Sequence[tuple[str, str]],
        headers: Sequence[str] = (),
        sanitize: bool = False,
        level: str = "-O1",
    ) -> None:
        bodies: dict[tuple[int, str], list[int]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        for source, entry in dict.fromkeys(codes):
            fitting = [i for i, header in enumerate(headers) if source.startswith(header)]
            place = max(fitting, key=lambda i: len(headers[i]), default=-1)
            body = source.removeprefix(headers[place]) if fitting else source
            number = self._numbers[source, entry] = len(self._numbers)
            bodies.setdefault((place, body), []).append(number)
        names = list(self._numbers)
        head = ['#include "words.h"', *headers[:1]]
        for i, header in enumerate(headers[1:], 1):
            head += [f"namespace header_{i} {{", header.removeprefix(headers[0]), "}"]
        # In two halves, which are compiled at once.
        halves = [head[:], head[:]] if len(bodies) > 8 else [head[:]]
        for place, ((header_place, body), numbers) in enumerate(bodies.items()):
            text = halves[place % len(halves)]
            text.append(f"namespace source_{place} {{")
            if header_place > 0:
                text.append(f"using namespace header_{header_place};")
            text.append(body)
            text += [f"CUDA_HOST_ENTRY({number}, {names[number][1]})" for number in numbers]
            text.append("}")
        halves[0].append(STATICS)
        self._runtime = _runtime(sanitize)
        self._library = ctypes.CDLL(
            str(build_kernels(list(map("\n".join, halves)), sanitize, level))
        )
        self._library.cuda_host_statics.restype = ctypes.c_void_p
        self._library.cuda_host_statics_bytes.restype = ctypes.c_size_t

    def launch(
        self,
        code: str | tuple[str, str],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        cluster: int = 1,
        seed: int = 0,
        must_wait: bool = False,
        hidden: Sequence[Guarded] = (),
    ) -> None:
        """Run a kernel.

        Parameters
        ----------
        code : str or (str, str)
            The entry, with its source where two have the same.
        arguments : sequence
            A `Guarded` for a pointer, a NumPy number or bytes for a value.
        cluster : int
            Neighbouring blocks along x that run at once.
        seed : int
            Another order of threads and blocks for each; 0 is the natural one.
        must_wait : bool
            Whether every thread has to call ``fg_wait()``.
        hidden : sequence of Guarded
            What may not be touched before that; the first block is watched.

        Raises
        ------
        Fault
            What the kernel did wrong.
        """
        number = self._number(code)
        sizes = getattr(self._library, f"cuda_host_sizes_{number}")
        sizes.restype = ctypes.POINTER(ctypes.c_int)
        values = [_value(argument) for argument in arguments]
        wanted: list[int] = []
        while (size := sizes()[len(wanted)]) >= 0:
            wanted.append(size)
        if wanted != [len(value) for value in values]:
            raise Fault(f"{code}: parameters of {wanted} bytes, arguments of {values}")
        # Addresses that any type can be read from.
        cells = [(ctypes.c_uint64 * (len(value) // 8 + 1))() for value in values]
        for cell, value in zip(cells, values, strict=True):
            ctypes.memmove(cell, value, len(value))
        pointers = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        covers = (_Hidden * len(hidden))(*(operand.place for operand in hidden))
        launch = _Launch(
            _Dim(*grid), _Dim(*block), shared_bytes, cluster, seed, must_wait, covers, len(hidden),
            self._library.cuda_host_statics(), self._library.cuda_host_statics_bytes(),
        )  # fmt: skip
        body = ctypes.cast(getattr(self._library, f"cuda_host_entry_{number}"), ctypes.c_void_p)
        complaint = ctypes.create_string_buffer(512)
        if self._runtime.cuda_host_launch(ctypes.byref(launch), body, pointers, complaint, 512):
            raise Fault(complaint.value.decode())
        for argument in arguments:
            if isinstance(argument, Guarded) and not argument.untouched():
                raise Fault(f"{code}: wrote outside of an operand of {argument.array.shape}")

    def _number(self, code: str | tuple[str, str]) -> int:
        if isinstance(code, tuple):
            return self._numbers[code]
        (number,) = (number for (_, entry), number in self._numbers.items() if entry == code)
        return number


def _value(argument: Any) -> bytes:
    if isinstance(argument, Guarded):
        return argument.address.to_bytes(8, "little")
    return argument if isinstance(argument, bytes) else np.asarray(argument).tobytes()


# What lies between these symbols of the linker is what kernels call __shared__.
STATICS = """
extern "C" {
extern __attribute__((visibility("hidden"))) unsigned char __bss_start, _end;
__attribute__((visibility("default"))) unsigned char *cuda_host_statics() { return &__bss_start; }
__attribute__((visibility("default"))) size_t cuda_host_statics_bytes() {
  return (size_t)(&_end - &__bss_start);
}
}
"""
