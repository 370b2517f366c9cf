"""``python -m bench.gpu.operators``: products and attention of compiled graphs, beside PyTorch's.

Each line is one case: what it takes on the device, as a rate or as a share of what a kernel reads
that only reads, and the same in a CUDA graph of torch where that is installed. Results are compared
with float64 on the way. ``--tiles`` times every tile of the tables for each product instead, which
is what the tables' numbers are taken from.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.machine import installed

__all__ = ["Attention", "Product", "main"]

ROUNDS, LEAST_SECONDS = 7, 0.003
# More than any second-level cache holds.
COLD_BYTES = 512 << 20
READ = """
extern "C" __global__ void __launch_bounds__(1024)
    read_all(const uint4 *x, long long n, int *sink) {
  unsigned found = 0;
  for (long long i = blockIdx.x * 1024LL + threadIdx.x; i < n; i += 4LL * gridDim.x * 1024) {
    uint4 all[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const long long at = i + (long long)j * gridDim.x * 1024;
      if (at < n) all[j] = x[at]; else all[j] = make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) found |= all[j].x ^ all[j].y ^ all[j].z ^ all[j].w;
  }
  if (found == 0x12345678) *sink = 1;
}
"""


def numbers(shape: tuple[int, ...], dtype: str, size: float, seed: int = 0) -> Any:
    """Numbers of about this standard deviation, quickly made."""
    found = np.random.default_rng(seed).integers(-127, 128, shape, "i1").astype("f4")
    found *= np.float32(size / 73)
    return found.astype(dtype)


def relative(found: Any, wanted: Any) -> float:
    """The largest error relative to the largest element."""
    return float(np.abs(np.asarray(found, "f8") - wanted).max() / np.abs(wanted).max())


@dataclass(frozen=True)
class Product:
    """A chain of `layers` products of [m, k] by [k, n], or back and forth where n is not k."""

    m: int
    k: int
    n: int
    dtype: str = "float16"
    along: bool = False
    layers: int = 1

    @property
    def name(self) -> str:
        """How it is listed."""
        how = "[N,K]" if self.along else "[K,N]"
        chain = f", {self.layers} in a chain" if self.layers > 1 else ""
        return f"{self.m}x{self.k}x{self.n} {self.dtype} {how}{chain}"

    def shapes(self) -> list[tuple[int, int]]:
        """K and N of each layer."""
        return [(self.k, self.n) if i % 2 == 0 or self.k == self.n else (self.n, self.k)
                for i in range(self.layers)]  # fmt: skip

    @property
    def flops(self) -> int:
        """Of all layers."""
        return sum(2 * self.m * k * n for k, n in self.shapes())

    @property
    def nbytes(self) -> int:
        """Of all weights."""
        return sum(k * n for k, n in self.shapes()) * np.dtype(self.dtype).itemsize

    def arrays(self) -> list[Any]:
        """x and the weights, scaled so that a chain neither grows nor vanishes."""
        found = [numbers((self.m, self.k), self.dtype, 1.0)]
        for i, (k, n) in enumerate(self.shapes()):
            shape = (n, k) if self.along else (k, n)
            found.append(numbers(shape, self.dtype, 1 / np.sqrt(k), i))
        return found

    def build(self) -> fg.Graph:
        """The graph of the package."""
        g = fg.Graph("products")
        y = g.input("x0", (self.m, self.k), self.dtype)
        for i, (k, n) in enumerate(self.shapes()):
            w = g.param(f"x{i + 1}", (n, k) if self.along else (k, n), self.dtype)
            y = y @ (fg.ops.transpose(w) if self.along else w)
        g.output(y, "y")
        return g

    def torch(self, x: Any, *weights: Any) -> Any:
        """The same on tensors."""
        for w in weights:
            x = x @ (w.T if self.along else w)
        return x

    def error(self, found: Any, arrays: Sequence[Any]) -> float:
        """Of the first and the last row, relative to the largest element."""
        y = arrays[0][[0, -1]].astype("f4")
        for w in arrays[1:]:
            y = y @ (w.T if self.along else w).astype("f4")
        return relative(found[[0, -1]], y)


@dataclass(frozen=True)
class Attention:
    """Attention of q [batch, heads, queries, length] over [batch, key_heads, keys, length]."""

    batch: int
    heads: int
    queries: int
    length: int
    causal: bool = False
    key_heads: int = 0
    keys: int = 0
    dtype: str = "float16"

    @property
    def name(self) -> str:
        """How it is listed."""
        keys, heads = self.keys or self.queries, self.key_heads or self.heads
        causal = ", causal" if self.causal else ""
        return (
            f"attention {self.batch}x{self.heads}x{self.queries}x{self.length} over "
            f"{heads} heads of {keys}, {self.dtype}{causal}"
        )

    @property
    def flops(self) -> int:
        """Half of the products are left out where it is causal."""
        keys = self.keys or self.queries
        return 4 * self.batch * self.heads * self.queries * keys * self.length // (1 + self.causal)

    @property
    def nbytes(self) -> int:
        """Of keys and values."""
        heads, keys = self.key_heads or self.heads, self.keys or self.queries
        return 2 * self.batch * heads * keys * self.length * np.dtype(self.dtype).itemsize

    def arrays(self) -> list[Any]:
        """q, k and v."""
        kv = (self.batch, self.key_heads or self.heads, self.keys or self.queries, self.length)
        shapes = [(self.batch, self.heads, self.queries, self.length), kv, kv]
        return [numbers(shape, self.dtype, 1.0, i) for i, shape in enumerate(shapes)]

    def build(self) -> fg.Graph:
        """The graph of the package."""
        g = fg.Graph("attention")
        q, k, v = (
            g.input(f"x{i}", array.shape, self.dtype) for i, array in enumerate(self.arrays())
        )
        g.output(fg.ops.attention(q, k, v, is_causal=self.causal), "y")
        return g

    def torch(self, q: Any, k: Any, v: Any) -> Any:
        """The same on tensors; its causal mask begins with the first key, so only where all fit."""
        attend = importlib.import_module("torch.nn.functional").scaled_dot_product_attention
        return attend(q, k, v, is_causal=self.causal, enable_gqa=k.shape[1] != q.shape[1])

    def error(self, found: Any, arrays: Sequence[Any]) -> float:
        """Of the last head of the last batch, relative to the largest element."""
        q, k, v = (np.asarray(a[-1, -1], "f8") for a in arrays)
        scores = q @ k.T / np.sqrt(self.length)
        if self.causal:
            i, j = np.ogrid[: q.shape[0], : k.shape[0]]
            scores[j > i + k.shape[0] - q.shape[0]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return relative(found[-1, -1], weights @ v / weights.sum(-1, keepdims=True))


CASES: tuple[Product | Attention, ...] = (
    *(
        Product(m, 4096, 4096, along=along, layers=16)
        for m in (1, 8, 16)
        for along in (True, False)
    ),
    *(Product(1, 4096, 14336, along=along, layers=6) for along in (True, False)),
    *(Product(1, 2048, 8192, along=along, layers=16) for along in (True, False)),
    *(Product(1, 4096, 4096, "float32", along, 8) for along in (True, False)),
    *(
        Product(m, 384, n, dtype, layers=8)
        for dtype in ("float16", "float32")
        for m in (128, 4096)
        for n in (384, 1536)
    ),
    *(Product(n, n, n, "float16", along, 4) for n in (2048, 4096) for along in (True, False)),
    Product(2048, 2048, 2048, "float32", layers=4),
    *(Attention(8, 16, 2048, length, causal) for length in (64, 128) for causal in (False, True)),
    *(Attention(batch, 12, 128, 32, dtype=d) for batch in (1, 32) for d in ("float16", "float32")),
    Attention(1, 32, 1, 64, key_heads=8, keys=1024),
    Attention(8, 32, 1, 128, key_heads=8, keys=8192),
)


class Clock:
    """Times steps on the device."""

    def __init__(self) -> None:
        self.ctx = fg.DeviceContext("cuda")
        self.session = fg.Session("cuda")

    def us(self, step: Callable[[], object]) -> float:
        """The median over rounds of one step, of as many as make a round long enough to time."""
        step()
        n = max(1, min(400, int(LEAST_SECONDS / max(self.ctx.execution_time(step, 3) / 3, 1e-7))))
        return 1e6 * statistics.median(self.ctx.execution_time(step, n) / n for _ in range(ROUNDS))

    def read_bytes_per_ns(self) -> float:
        """What a kernel reads that only reads, colder than the cache."""
        data = self.ctx.create_buffer(COLD_BYTES, "uint8")
        sink = self.ctx.create_buffer(1, "int32")
        function = self.ctx.compile_function(READ, "read_all")
        blocks = 2 * self.ctx.attributes["multiprocessor_count"]
        count = np.int64(COLD_BYTES // 16)

        def step() -> None:
            self.ctx.launch(function, data, count, sink, grid_dim=blocks, block_dim=1024)

        return COLD_BYTES / self.us(step) / 1e3

    def ours(self, case: Product | Attention, arrays: Sequence[Any]) -> tuple[float, Any]:
        """Microseconds of a run of the compiled graph, and its result."""
        graph = case.build()
        model = self.session.compile(graph)
        params = {info.name for info in model.params}
        model.set_params({f"x{i}": a for i, a in enumerate(arrays) if f"x{i}" in params})
        inputs = {
            f"x{i}": self.ctx.to_device(a) for i, a in enumerate(arrays) if f"x{i}" not in params
        }
        shape = model.outputs[0].shape
        y = self.ctx.create_buffer(shape, case.dtype)
        step = model.bind(inputs, {"y": y}, stream=self.ctx.stream)
        us = self.us(step)
        self.ctx.synchronize()
        return us, y.numpy()


def torch_us(case: Product | Attention, arrays: Sequence[Any]) -> float:
    """The same in a CUDA graph of torch, microseconds."""
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    tensors = [torch.from_numpy(a).cuda() for a in arrays]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            case.torch(*tensors)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            case.torch(*tensors)

        def round_of(n: int) -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(n):
                graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / n

        n = max(1, min(400, int(1e3 * LEAST_SECONDS / max(round_of(3), 1e-4))))
        return 1e3 * statistics.median(round_of(n) for _ in range(ROUNDS))


def compare(clock: Clock, cases: Sequence[Product | Attention]) -> list[dict[str, Any]]:
    """One line a case."""
    read = clock.read_bytes_per_ns()
    print(f"a kernel that only reads: {read:,.0f} GB/s")
    has_torch = installed("torch")
    lines: list[dict[str, Any]] = [{"read_gb_per_s": read}]
    for case in cases:
        line: dict[str, Any] = {"case": case.name, **asdict(case)}
        try:
            arrays = case.arrays()
            line["us"], found = clock.ours(case, arrays)
            line["error"] = case.error(found, arrays)
            line["tflops"] = case.flops / line["us"] / 1e6
            line["share_of_read"] = case.nbytes / line["us"] / 1e3 / read
            if has_torch:
                line["torch_us"] = torch_us(case, arrays)
        except Exception as error:  # One case that fails is a line; the others are wanted, too.
            line["failed"] = f"{type(error).__name__}: {error}"
        lines.append(line)
        print(_shown(line), flush=True)
    return lines


def _shown(line: dict[str, Any]) -> str:
    if "us" not in line:
        return f"{line['case']:<64} FAILED {line['failed'][:300]}"
    torch = ""
    if "torch_us" in line:
        torch = (
            f"  torch {line['torch_us']:9.2f} us, ours over it {line['us'] / line['torch_us']:.2f}"
        )
    return (
        f"{line['case']:<64} {line['us']:9.2f} us {line['tflops']:7.1f} TFLOP/s "
        f"{line['share_of_read']:6.1%} of read  error {line['error']:.1e}{torch}"
    )


def tiles(clock: Clock, cases: Sequence[Product | Attention]) -> list[dict[str, Any]]:
    """Every tile for each product of more rows than are streamed, and every tile of attention."""
    lowering: Any = importlib.import_module("fastgraph.lower.cuda.matmul")
    attention: Any = importlib.import_module("fastgraph.lower.cuda.attention")
    lines = []
    for case in cases:
        if isinstance(case, Product):
            if case.m <= lowering.MAX_ROWS:
                continue
            module, name = lowering, "SIMT" if case.dtype == "float32" else "MMA"
            whole = getattr(module, name)
            options = {str(tuple(tile)[:-2]): (tile,) for tile in whole}
        else:
            if case.dtype != "float16" or case.queries == 1:
                continue
            module, name = attention, "FLASH"
            whole = attention.FLASH
            limit = next(limit for limit in whole if limit >= case.length)
            options = {str(tuple(tile)): {**whole, limit: (tile,)} for tile in whole[limit]}
        arrays = case.arrays()
        for tile, table in options.items():
            setattr(module, name, table)
            line: dict[str, Any] = {"case": case.name, "tile": tile}
            try:
                line["us"], found = clock.ours(case, arrays)
                line["error"] = case.error(found, arrays)
                shown = f"{line['us']:9.2f} us {case.flops / line['us'] / 1e6:7.1f} TFLOP/s"
            except Exception as error:  # As above.
                shown = line["failed"] = f"FAILED {type(error).__name__}: {error}"[:300]
            finally:
                setattr(module, name, whole)
            lines.append(line)
            print(f"{case.name:<64} {tile:<34} {shown}", flush=True)
    return lines


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.operators", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    parser.add_argument("--tiles", action="store_true", help="time every tile of the tables")
    parser.add_argument("--out", type=Path, default=Path("operators.json"), help="the JSON file")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    chosen = parser.parse_args()
    cases = [case for case in CASES if chosen.only in case.name]
    if chosen.list:
        print("\n".join(case.name for case in cases))
        return 0
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    clock = Clock()
    lines = (tiles if chosen.tiles else compare)(clock, cases)
    record = {"machine": environment(), "lines": lines}
    chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return int(any("failed" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
