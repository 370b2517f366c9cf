"""``python -m bench.gpu.operators``: operators of compiled graphs, beside PyTorch's.

Each line is one case: what it takes on the device, as a rate or as a share of what a kernel reads
that only reads (of what one moves that only copies, where as much is written), and the same in a
CUDA graph of torch where that is installed. Results are compared with NumPy's on the way.
``--tiles`` times every way instead in which the tables of tiles let a case be cut: what their
numbers are taken from.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg
from bench.gpu.native import environment, gpu_problem
from bench.gpu.operator_cases import CASES, Attention, Product, Streamed
from bench.gpu.operator_tiles import ways
from bench.machine import installed
from bench.outcome import Goal, verdict

__all__ = ["Clock", "main"]

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
COPY = """
extern "C" __global__ void __launch_bounds__(256)
    copy_all(uint4 *y, const uint4 *x, long long n) {
  const long long first = blockIdx.x * 1024LL + threadIdx.x;
  uint4 all[4];
#pragma unroll
  for (int j = 0; j < 4; j++) if (first + j * 256 < n) all[j] = x[first + j * 256];
#pragma unroll
  for (int j = 0; j < 4; j++) if (first + j * 256 < n) y[first + j * 256] = all[j];
}
"""
# Of the rates of kernels that only read, or only copy.
OF_READ, OF_COPY = 0.85, 0.95

Case = Product | Attention | Streamed


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

    def copy_bytes_per_ns(self, nbytes: int) -> float:
        """What a kernel moves that only copies, `nbytes` read and written together."""
        x, y = (self.ctx.create_buffer(nbytes // 2, "uint8") for _ in range(2))
        function = self.ctx.compile_function(COPY, "copy_all")
        count = nbytes // 32

        def step() -> None:
            blocks = -(-count // 1024)
            self.ctx.launch(function, y, x, np.int64(count), grid_dim=blocks, block_dim=256)

        return nbytes / self.us(step) / 1e3

    def in_place(self, case: Streamed, array: Any) -> tuple[float, Any]:
        """Microseconds of a run that works where its input lies, and its first result."""
        model, held = self.session.compile(case.build()), self.ctx.to_device(array)
        model.bind_gpu_handle("x0", held)
        model.set_gpu_handle_feed("x0", "y")
        step = model.bind({}, {"y": held}, stream=self.ctx.stream)
        step()
        self.ctx.synchronize()
        found = held.numpy()[[0, -1]]
        return self.us(step), found

    def ours(self, case: Case, arrays: Sequence[Any], cublas: bool = True) -> tuple[float, Any]:
        """Microseconds of a run of the compiled graph, and its result."""
        if isinstance(case, Streamed):
            return self.in_place(case, arrays[0])
        graph = case.build()
        model = self.session.compile(graph, fg.CompileOptions(cublas=cublas))
        params = {info.name for info in model.params}
        model.set_params({f"x{i}": a for i, a in enumerate(arrays) if f"x{i}" in params})
        inputs = {
            f"x{i}": self.ctx.to_device(a) for i, a in enumerate(arrays) if f"x{i}" not in params
        }
        for name in case.resident if isinstance(case, Attention) else ():
            model.bind_gpu_handle(name, inputs.pop(name))
        shape = model.outputs[0].shape
        y = self.ctx.create_buffer(shape, case.dtype)
        step = model.bind(inputs, {"y": y}, stream=self.ctx.stream)
        us = self.us(step)
        self.ctx.synchronize()
        return us, y.numpy()


def torch_us(case: Case, arrays: Sequence[Any]) -> float:
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


def compare(clock: Clock, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """What can be read, then one line a case."""
    read = clock.read_bytes_per_ns()
    print(f"a kernel that only reads: {read:,.0f} GB/s")
    has_torch = installed("torch")
    yield {"read_gb_per_s": read}
    for case in cases:
        line: dict[str, Any] = {"case": case.name, **asdict(case)}
        try:
            arrays = case.arrays()
            line["us"], found = clock.ours(case, arrays)
            line["error"] = case.error(found, arrays)
            line["tflops"] = case.flops / line["us"] / 1e6
            rate = case.nbytes / line["us"] / 1e3
            if isinstance(case, Streamed):
                line["share_of_copy"] = rate / clock.copy_bytes_per_ns(case.nbytes)
            else:
                line["share_of_read"] = rate / read
            if has_torch:
                line["torch_us"] = torch_us(case, arrays)
        except Exception as error:  # One case that fails is a line; the others are wanted, too.
            line["failed"] = f"{type(error).__name__}: {error}"
        print(_shown(line), flush=True)
        yield line


def goals(cases: Sequence[Case], lines: Sequence[dict[str, Any]]) -> list[Goal]:
    """What was promised of single rows in a chain, and of what moves memory."""
    found = []
    for case, line in zip(cases, lines, strict=False):
        if "share_of_copy" in line:
            what = f"{case.name}, of a copy"
            found.append(Goal(what, OF_COPY, line["share_of_copy"], least=True))
        elif isinstance(case, Product) and case.m == 1 and "share_of_read" in line:
            what = f"{case.name}, of what can be read"
            found.append(Goal(what, OF_READ, line["share_of_read"], least=True))
    return found


def _shown(line: dict[str, Any]) -> str:
    if "us" not in line:
        return f"{line['case']:<64} FAILED {line['failed'][:300]}"
    torch = ""
    if "torch_us" in line:
        torch = (
            f"  torch {line['torch_us']:9.2f} us, ours over it {line['us'] / line['torch_us']:.2f}"
        )
    of = "copy" if "share_of_copy" in line else "read"
    return (
        f"{line['case']:<64} {line['us']:9.2f} us {line['tflops']:7.1f} TFLOP/s "
        f"{line[f'share_of_{of}']:6.1%} of {of}  error {line['error']:.1e}{torch}"
    )


def tiles(clock: Clock, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Every way that the tables allow, for each case."""
    for case in cases:
        arrays = case.arrays()
        for way in ways(case):
            line: dict[str, Any] = {"case": case.name, "tile": way.name}
            try:
                with way.taken():
                    line["us"], found = clock.ours(case, arrays, cublas=False)
                line["error"] = case.error(found, arrays)
                shown = f"{line['us']:9.2f} us {case.flops / line['us'] / 1e6:7.1f} TFLOP/s"
                shown += f" {case.nbytes / line['us'] / 1e3:7.0f} GB/s"
            except Exception as error:  # As above.
                shown = line["failed"] = f"FAILED {type(error).__name__}: {error}"[:300]
            print(f"{case.name:<56} {way.name:<40} {shown}", flush=True)
            yield line


def main() -> int:
    """Run from a shell."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.operators", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    parser.add_argument("--tiles", action="store_true", help="time every tile of the tables")
    parser.add_argument("--out", type=Path, default=Path("operators.json"), help="the JSON file")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    chosen = parser.parse_args()
    cases = [case for case in CASES if chosen.only in case.name]
    if chosen.tiles:
        cases = [case for case in cases if not isinstance(case, Streamed)]
    if chosen.list:
        print("\n".join(case.name for case in cases))
        return 0
    if problem := gpu_problem():
        print(f"there is no GPU to measure: {problem}", file=sys.stderr)
        return 1
    clock = Clock()
    lines: list[dict[str, Any]] = []
    record: dict[str, Any] = {"machine": environment(), "lines": lines, "goals": []}
    for line in (tiles if chosen.tiles else compare)(clock, cases):
        lines.append(line)
        if not chosen.tiles:
            record["goals"] = [goal.record() for goal in goals(cases, lines[1:])]
        # What was measured stays, whenever somebody has had enough.
        chosen.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("\n".join(verdict(goal) for goal in record["goals"]))
    return int(any("failed" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
