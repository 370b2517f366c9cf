"""Every family of kernels compiles for each architecture that portable code is made for."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgraph.errors import GraphError
from fastgraph.ir import ops
from fastgraph.lower.cuda import attention, matmul, tiles
from fastgraph.lower.cuda.text import source
from tests.cuda_host.lowered import SMALL, Case

pytestmark = pytest.mark.cuda

ARCHITECTURES = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}


def family(
    build: Callable[..., object], *shapes: tuple[int, ...], dtype: str = "f4"
) -> Callable[[str], Case]:
    arrays = tuple(np.zeros(shape, dtype) for shape in shapes)

    def case(arch: str) -> Case:
        target = replace(SMALL, arch=arch, capability=ARCHITECTURES[arch])
        return Case("compiled", build, arrays, target)

    return case


FAMILIES = {
    "region": family(lambda x, y: ops.gelu(x + y) ** 3 // 2, (64, 128), (128,)),
    "rows": family(lambda x: ops.mean(x, axis=1), (64, 128)),
    "columns": family(lambda x: ops.max(x, axis=0), (64, 128)),
    "all": family(lambda x: ops.argmax(x), (64, 1280)),
    "softmax": family(lambda x: ops.softmax(x), (64, 128)),
    "softmax, columns": family(lambda x: ops.softmax(x, axis=0), (64, 128)),
    "softmax, parts": family(lambda x: ops.softmax(x), (2, 40000)),
    "norm": family(lambda x, y, w: ops.rms_norm(x + y, w), (4, 128), (4, 128), (128,)),
    "norm, parts": family(lambda x, w: ops.layer_norm(x, w, w), (2, 40000), (40000,)),
    "transpose": family(lambda x: ops.transpose(x), (64, 128)),
    "slice": family(lambda x: x[:, ::-2], (64, 128)),
    "concat": family(lambda x, y: ops.concat([x, y]), (3, 8), (5, 8)),
    "matmul, long": family(lambda x, w: x @ w, (20, 4096), (4096, 16)),
    "matmul, few rows": family(lambda x, w: x @ w, (1, 128), (128, 64)),
    "matmul f16, few rows": family(lambda x, w: x @ w, (9, 128), (128, 64), dtype="f2"),
    "matmul f16": family(lambda x, w: x @ w, (64, 128), (128, 36), dtype="f2"),
    "matmul and norm": family(
        lambda x, w: ops.layer_norm(x @ w), (20, 4096), (4096, 36), dtype="f2"
    ),
    "matmul f64": family(lambda x, w: x @ w, (64, 128), (128, 36), dtype="f8"),
    "attention": family(ops.attention, *[(1, 1, 40, 32)] * 3),
    "attention f16": family(ops.attention, *[(1, 1, 40, 32)] * 3, dtype="f2"),
    "attention f16, step": family(ops.attention, (1, 1, 1, 32), *[(1, 1, 600, 32)] * 2, dtype="f2"),
    "take": family(lambda x, i: ops.take(x, i.astype("int64")), (3, 8), (5,)),
    "scan": family(lambda x: ops.cumulative_sum(x, axis=1), (64, 128)),
    "scan, parts": family(lambda x: ops.cumulative_sum(x, reverse=True), (40000,)),
    "scan, columns": family(lambda x: ops.cumulative_sum(x, axis=0), (64, 128)),
    "top_k": family(lambda x: ops.top_k(x, 4)[1], (64, 128)),
    "top_k, pieces": family(lambda x: ops.top_k(x, 4)[1], (1, 4000), dtype="f8"),
    "top_k, counted": family(lambda x: ops.top_k(x, 2000)[1], (1, 4000), dtype="f2"),
    "rotary": family(
        lambda x, c: ops.rotary_embedding(x, c, c), (1, 2, 3, 8), (1, 3, 4), dtype="f2"
    ),
    "grouped": family(
        lambda x, w: ops.grouped_matmul(x, w, np.array([0, 1, 0])), (3, 8), (2, 8, 16)
    ),
    "grouped f16": family(
        lambda x, w: ops.grouped_matmul(x, w, np.array([0] * 70)),
        *((70, 8), (1, 8, 16)),
        dtype="f2",
    ),
    "conv": family(lambda x, w: ops.relu(ops.conv(x, w, pads=1)), (1, 3, 40, 40), (8, 3, 3, 3)),
    "conv f16, few positions": family(
        lambda x, w: ops.conv(x, w, pads=1), (1, 3, 4), (8, 3, 3), dtype="f2"
    ),
    "conv_transpose": family(ops.conv_transpose, (1, 3, 9), (3, 8, 3)),
    "pool": family(lambda x: ops.max_pool(x, 3), (1, 3, 9), dtype="f2"),
    "pool, mean": family(lambda x: ops.average_pool(x, 3), (1, 3, 9)),
    "lstm": family(lambda *v: ops.lstm(*v)[1], (2, 1, 3), (1, 32, 3), (1, 32, 8)),
    "gru": family(lambda *v: ops.gru(*v)[1], (2, 9, 3), (1, 24, 3), (1, 24, 8), dtype="f8"),
    "scatter": family(lambda x, y: ops.scatter_add(x, np.array([1, 1]), y), (3,), (2,)),
}

# What the harness gives bodies of its own to.
TEXT = source() + Path(__file__).with_name("kernels.cu").read_text()
WORDS = ("product<bf16>", "product_tf32", "sums<f16>", "lanes", "faults", "double_to_half")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_families_compile(arch: str) -> None:
    compile_source = importlib.import_module("fastgraph.device.cuda.compile").compile_source
    codes = [call.code for case in FAMILIES.values() for call in case(arch).calls]
    texts = [(code.source, code.entry) for code in codes] + [(TEXT, entry) for entry in WORDS]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda text: compile_source(*text, arch), texts):
            assert found.image


def variants() -> list[tuple[str, str, str]]:
    """One kernel of each family that is for certain targets alone, and these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul, "WGMMA", (tiles.WgmmaTile(64, 64, 1, 3, 2),))
        patch.setattr(matmul, "MMA", ())
        tiles.choose.cache_clear()
        shapes = ((64, 128), (128, 40), (40,))
        calls = family(lambda x, w, b: x @ w + b, *shapes, dtype="f2")("sm_90").calls
        calls += family(ops.attention, *[(2, 2, 128, 64)] * 3, dtype="f2")("sm_90").calls
    tiles.choose.cache_clear()
    return [(call.code.source, call.code.entry, call.code.arch) for call in calls]


def log_of(source_text: str, entry: str, arch: str) -> str:
    core = importlib.import_module("cuda.core")
    options = core.ProgramOptions(arch=arch, std="c++17", no_source_include=True)
    log = io.StringIO()
    program = core.Program(source_text, "c++", options)
    program.compile("cubin", name_expressions=(entry,), logs=log)
    program.close()
    return log.getvalue()


def test_variants_compile_for_the_targets_they_name() -> None:
    compile_source = importlib.import_module("fastgraph.device.cuda.compile").compile_source
    for source_text, entry, arch in variants():
        assert arch == "sm_90a"
        assert compile_source(source_text, entry, arch).image
        # Products that the compiler cannot follow it waits for one by one.
        assert "serialized" not in log_of(source_text, entry, arch)
        # What is lowered for others has none of them.
        with pytest.raises(GraphError, match="wgmma"):
            compile_source(source_text, entry, "sm_90")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_tile_of_the_tables_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_source = importlib.import_module("fastgraph.device.cuda.compile").compile_source
    texts: set[tuple[str, str, str]] = set()

    def add(
        module: Any, name: str, table: object, build: Callable[..., object], dtype: str,
        *shapes: tuple[int, ...], tf32: bool = False,
    ) -> None:  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(module, name, table)
            target = replace(SMALL, tf32=tf32)
            arrays = tuple(np.zeros(shape, dtype) for shape in shapes)
            for call in Case("compiled", build, arrays, target).calls:
                texts.add((call.code.source, call.code.entry, call.code.arch or "sm_90"))

    for name, dtype in (("MMA", "f2"), ("SIMT", "f4"), ("TF32", "f4")):
        for tile in getattr(tiles, name):
            add(
                matmul, name, (tile,), lambda x, w: ops.relu(x @ w), dtype, (64, 128), (128, 64),
                tf32=name == "TF32",
            )  # fmt: skip
    monkeypatch.setattr(matmul, "MMA", ())
    for tile in tiles.WGMMA:
        builds = [lambda x, w: ops.gelu(x @ ops.transpose(w))]
        if tile.fits(False, SMALL.max_shared_bytes):
            builds.append(lambda x, w: x @ w)
        for build in builds:
            add(matmul, "WGMMA", (tile,), build, "f2", (128, 128), (128, 128))
    for limit, choices in tiles.FLASH.items():
        for tile in choices:
            table = {**tiles.FLASH, limit: (tile,)}
            add(attention, "FLASH", table, ops.attention, "f2", *[(8, 1, 200, limit)] * 3)
    for length, choices in tiles.WARP_GROUPS.items():
        for tile in choices:
            table = {length: (tile,)}
            add(attention, "WARP_GROUPS", table, ops.attention, "f2", *[(8, 1, 256, length)] * 3)
    assert len(texts) >= 30
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda text: compile_source(*text), sorted(texts)):
            assert found.image
