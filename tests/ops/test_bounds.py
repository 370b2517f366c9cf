"""No kernel reads or writes a byte beside its operands: the pages next to them are forbidden."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.ops.agreement import SETS

SHAPES = [(3, 5), (7, 33), (1, 131), (17, 67), (130, 3), (1, 1), (5, 1), (64, 65)]
PAGE = mmap.PAGESIZE


def guarded(shape: tuple[int, ...], dtype: Any, side: str) -> Any:
    """An array that ends where a forbidden page begins, or begins where one ends."""
    libc = ctypes.CDLL(None)
    count = int(np.prod(shape))
    used = count * np.dtype(dtype).itemsize
    pages = -(-used // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    forbidden = start if side == "before" else start + pages * PAGE
    assert libc.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(PAGE), 0) == 0
    first = PAGE if side == "before" else pages * PAGE - used
    return np.frombuffer(memory, dtype, count, first).reshape(shape)


def graph_of(shape: tuple[int, int]) -> fg.Graph:
    graph = fg.Graph("bounds")
    k = shape[1]
    x, b, w = graph.input("x", shape), graph.input("b", (k, 37)), graph.param("w", (k, 19))
    index = graph.input("index", (shape[0],), "int32")
    half, double = graph.input("half", shape, "float16"), graph.input("double", shape, "float64")
    byte = graph.input("byte", shape, "uint8")
    heads, wide = x.reshape(1, 1, *shape), double.reshape(1, 1, *shape)
    angles = x[:, : k // 2].reshape(1, shape[0], k // 2)
    for value in (
        half * half + 1, half @ half.T, ops.softmax(half), half[::-1], half.T, ops.max(half, 0),
        double * 2.0, double @ double.T, ops.layer_norm(double), ops.sum(double, 0), ops.exp(half),
        byte @ byte.T, byte << 1, byte % 7, ops.argmin(byte, axis=1), ops.take(half, index, axis=0),
        ops.astype(double, "bfloat16"), ops.astype(half, "int8"), ops.where(byte > 3, half, -half),
        x @ b, x @ w, x @ x.T, x.T @ x, ops.gelu(x @ w), ops.softmax(x, 0), ops.softmax(x, 1), x.T,
        ops.layer_norm(x), ops.rms_norm(x, axis=0), ops.sum(x, axis=0), ops.sum(x, axis=1),
        ops.max(x, axis=1), ops.argmax(x, axis=0), ops.argmax(x, axis=1), ops.prod(x, axis=1),
        ops.mean(x), ops.gelu(x + 1) * x, x[::-1, ::-1], ops.concat([x, x], 1), x > 0, index * 2,
        ops.broadcast_to(x, (2, *shape)), ops.astype(x, "int64"), ops.where(x > 0, x, -x),
        ops.take(x, index, axis=0), ops.take(x, index, axis=0).T,
        ops.attention(heads, heads, heads), ops.attention(heads, heads, heads, x[:, :1] > 0),
        ops.attention(wide, wide, wide, is_causal=True), ops.cumulative_sum(x, 0, reverse=True),
        ops.cumulative_sum(byte, 1), ops.top_k(x, min(k, 3))[0], ops.top_k(byte, 1, 0)[1],
        ops.scatter_nd(x, index.reshape(-1, 1), x + 1), ops.grouped_matmul(x, b[None], index * 0),
        ops.rotary_embedding(heads, angles, angles, rotary_embedding_dim=k // 2 * 2),
        ops.take_along_axis(x, index.reshape(-1, 1) * 0, axis=1), ops.pad(x, 2, "reflect"),
    ):  # fmt: skip
        graph.output(value, f"y{len(graph.outputs)}")
    return graph


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_beside_the_operands_is_touched(shape, side):
    graph = graph_of(shape)
    random = np.random.default_rng(0)
    inputs = {value.name: guarded(value.shape, value.dtype, side) for value in graph.inputs}
    inputs["x"][...] = random.normal(size=shape)
    inputs["b"][...] = random.normal(size=(shape[1], 37))
    inputs["half"][...] = random.normal(size=shape)
    inputs["double"][...] = random.normal(size=shape)
    inputs["byte"][...] = random.integers(0, 256, shape)
    inputs["index"][...] = random.integers(-shape[0], shape[0], shape[0])
    for name in SETS:
        for fuse in (True, False):
            options = fg.CompileOptions(isa=name, fuse=fuse)
            model = fg.Session("cpu", threads=2).compile(graph, options)
            model.set_param("w", random.normal(size=(shape[1], 19)).astype("f4"))
            outputs = {i.name: guarded(i.shape, i.dtype, side) for i in model.outputs}
            model.bind(inputs, outputs)()
            for info, wanted in zip(model.outputs, model.run(inputs), strict=True):
                assert outputs[info.name].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("side", "beside"), [("before", -1), ("after", 60)])
def test_the_pages_beside_are_forbidden(side, beside):
    """The check above can fail: a process that touches the byte beside is ended."""
    code = f"""
import ctypes
from tests.ops.test_bounds import guarded
array = guarded((3, 5), "f4", {side!r})
ctypes.string_at(array.ctypes.data, 60)
print("inside", flush=True)
ctypes.string_at(array.ctypes.data + {beside}, 1)
"""
    root = Path(__file__).resolve().parents[2]
    search = os.pathsep.join([str(root), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
    )
    assert result.stdout == "inside\n", result.stderr
    assert result.returncode == -signal.SIGSEGV
