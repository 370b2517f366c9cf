"""Compiling and running."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import fastgraph as fg

Array = np.ndarray[Any, np.dtype[Any]]

session = fg.Session("cpu", threads=2, release_gil="auto")
model = session.compile(fg.Graph())
assert_type(model, fg.CompiledGraph)
assert_type(fg.load("model.onnx"), fg.CompiledGraph)
assert_type(fg.load(Path("model.onnx"), device="cpu", dims={"batch": 1}), fg.CompiledGraph)
assert_type(fg.load(b"bytes", threads=1), fg.CompiledGraph)

image: Array = np.zeros((1, 784), "f4")
model.set_param("w", image)
model.set_params({"w": image})
assert_type(model.run({"x": image}), tuple[Array, ...])
assert_type(model.run({"x": image}, position=3), tuple[Array, ...])
assert_type(model.run_slots([image]), tuple[tuple[int, int], ...])
assert_type(model.run_typed([("x", bytes(4), "float32")]), tuple[tuple[bytes, str], ...])
model.set_param_typed("w", bytes(4), "bfloat16")
assert_type(model.arena_ptr, int)
assert_type(model.arena_nbytes, int)
assert_type(model.output_view(0), Array)
assert_type(model.capabilities, frozenset[str])
assert_type(model.clone(), fg.CompiledGraph)
assert_type(model.graph, fg.DeviceGraph)
assert_type(model.summary(), str)
for raw in model.run_raw({"x": image}):
    assert_type(raw.array(), Array)
    assert_type(raw.ptr, int)

assert_type(model.run_pipelined([{"x": image, "position": 3}]), list[tuple[Array, ...]])
assert_type(model.pipeline(iter([{"x": image}]), depth=2), Iterator[tuple[Array, ...]])
assert_type(model.submit({"x": image}, position=3), Future[tuple[Array, ...]])
assert_type(model.submit({"x": image}).result(), tuple[Array, ...])
assert_type(model.sync_pending(), tuple[tuple[int, int], ...])
model.commit_no_wait({"x": image}, position=3)


async def serve() -> None:
    assert_type(await model.run_async({"x": image}), tuple[Array, ...])


step = model.bind({"x": image})
step()

model.set_moe_resident_experts([True, False])
model.set_moe_resident_experts_per_layer([np.ones(2, bool), None])
assert_type(model.take_moe_residency_stats(), fg.ResidencyStats | None)
model.enable_moe_topk_capture(2)
for chosen in model.take_moe_topk_capture() or ():
    assert_type(chosen, np.ndarray[Any, np.dtype[np.uint32]])
pool = fg.ExpertPool(8, budget=2, period=4, policy="window")
assert_type(pool.step([1, 2]), fg.PoolChange | None)
assert_type(pool.refresh().promotions, list[int])
assert_type(pool.target(), list[int])

cache = fg.CompileCache("cpu", max_graphs=3)
assert_type(cache.compile(fg.Graph(), fg.CompileOptions()), fg.CompiledGraph)
buckets = fg.BucketedCompileCache("cpu", fg.power_of_two_ladder(8, 64), max_padding=2.0)


def build(rows: int) -> fg.Graph:
    return fg.Graph(f"rows {rows}")


assert_type(buckets.get_or_compile(3, build), tuple[int, fg.CompiledGraph] | None)
assert_type(buckets.run_padded(3, build, {"x": image}, position=3), tuple[Array, ...])
assert_type(buckets.stats.compiles, int)
buckets.set_params({"w": image})
buckets.prepare(build, background=True).result()

assert_type(model.set_active_extent((1, 4), dim="rows"), None)
assert_type(model.set_active_extent(None), None)
assert_type(model.active_extents, dict[str, tuple[int, int]])
assert_type(fg.dim("rows", 4), int)

# What is ignored must be an error: an unused ignore is one itself.
fg.Session("cpu", release_gil="sometimes")  # type: ignore[arg-type]
session.compile("model.onnx")  # type: ignore[arg-type]
model.run([image])  # type: ignore[call-overload]
model.set_param("w")  # type: ignore[call-arg]
model.set_active_extent(4)  # type: ignore[arg-type]
buckets.get_or_compile(3, fg.Graph())  # type: ignore[arg-type]


def state(model: fg.CompiledGraph, x: Array) -> None:
    model.bind_handle("x", x)
    model.bind_gpu_handle("x", x, grow=True)
    model.set_gpu_handle_feed("x", "y", at="pos", ring=True)
    assert_type(model.has_gpu_handle("x"), bool)
    assert_type(model.read_handle("x"), Array)
    assert_type(model.read_gpu_handle("x"), Array)
    assert_type(model.run_feed_gpu_handle({}, "x", 0, pos=3), Array)
    model.unbind_handle("x")
