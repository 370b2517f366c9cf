"""What tests of driver graphs work with: a device of the fake driver, memory, kernels, records."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fastgraph._core import cuda_graph, device_memory
from fastgraph._core import stream as streams
from fastgraph._core.record import Launch, Operand, Record

HELPERS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry fg_set_condition(.param .u64 a, .param .u64 b) { ret; }
.visible .entry fg_fill8(.param .u64 a, .param .u64 b, .param .u64 c) { ret; }
"""


def f4(value):
    return np.float32(value).tobytes()


def i4(value):
    return np.int32(value).tobytes()


class Bench:
    """One device, one stream, kernels by attribute of `kernels`."""

    def __init__(self, fake, library: Path) -> None:
        self.fake = fake
        self.device = streams.cuda_device(0)
        self.stream = streams.Stream(self.device)
        self.cuda = fake.cuda
        self.cuda.cuCtxSetCurrent(ctypes.c_void_p(self.device.context))
        names = ("add", "scale", "count_down", "note", "nothing")
        self.kernels = self._load(library.read_bytes(), names)
        helpers = self._load(HELPERS.encode() + b"\0", ("fg_set_condition", "fg_fill8"))
        self.helpers = SimpleNamespace(
            set_condition=helpers.fg_set_condition, fill8=helpers.fg_fill8
        )

    def _load(self, image: bytes, names: Sequence[str]) -> SimpleNamespace:
        module = ctypes.c_void_p()
        assert self.cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
        found = {}
        for name in names:
            handle = ctypes.c_void_p()
            assert self.cuda.cuModuleGetFunction(ctypes.byref(handle), module, name.encode()) == 0
            found[name] = SimpleNamespace(handle=handle.value, name=name)
        return SimpleNamespace(**found)

    def memory(self, values, pinned=False):
        """A block with the bytes of an array; `read` gives them back."""
        values = np.ascontiguousarray(values)
        make = device_memory.allocate_pinned if pinned else device_memory.allocate
        block = make(self.device, values.nbytes)
        ctypes.memmove(block.ptr, values.ctypes.data, values.nbytes)
        return block

    def read(self, block, dtype="f4"):
        """The bytes of a block; of memory of the fake, so nothing is waited for."""
        return np.frombuffer(ctypes.string_at(block.ptr, block.nbytes), dtype)

    def launch(self, name, *arguments, **options):
        """A `Launch` of one block."""
        return Launch(getattr(self.kernels, name), (1, 1, 1), (1, 1, 1), arguments, **options)

    def instantiate(self, record, blocks, **options):
        options.setdefault("helpers", self.helpers)
        return cuda_graph.instantiate(record, list(blocks), self.device, self.stream, **options)

    def run(self, graph):
        graph.replay_on(self.stream)
        graph.wait()


class Recipe:
    """A record over memories of 64 bytes, in few words."""

    def __init__(self, bench: Bench, memories: int = 1, record: Record | None = None) -> None:
        self.bench = bench
        self.record = record or Record()
        for i in range(memories if record is None else 0):
            self.record.add_memory("buffer", f"m{i}", 64)

    def body(self) -> Recipe:
        return Recipe(self.bench, record=self.record.body())

    def node(self, name, kind, operands, after=(), **options):
        kernel = {"copy": "copy_bytes", "memset": "set_bytes"}.get(kind)
        return self.record.add_node(name, kind, kernel, operands, dependencies=after, **options)

    def add(self, value, memory=0, after=(), name="add", kernel="add", **options):
        """A kernel that adds to the 16 floats of a memory (or scales them)."""
        call = self.bench.launch(
            kernel, ("pointer", 0), ("value", f4(value)), ("value", i4(16)), **options
        )
        return self.node(name, "function", [at(memory)], after, call=call)

    def note(self, number, after=(), memory=0, **options):
        """A kernel that writes its number to the log in a memory."""
        call = self.bench.launch("note", ("pointer", 0), ("value", i4(number)), **options)
        return self.node(f"note {number}", "function", [at(memory)], after, call=call)

    def copy(self, dst, src, after=(), nbytes=64):
        return self.node(
            "copy", "copy", [at(dst, nbytes), at(src, nbytes)], after, params=(nbytes,)
        )

    def memset(self, value, itemsize=4, memory=0, after=(), nbytes=64):
        params = (nbytes, itemsize, value)
        return self.node("memset", "memset", [at(memory, nbytes)], after, params=params)

    def control(self, kind, bodies, condition, after=()):
        bodies = [body.record for body in bodies]
        return self.node(kind, kind, [at(condition, 4)], after, bodies=bodies)


def at(memory, nbytes=64, offset=0):
    return Operand(memory, offset, nbytes, True, True)
