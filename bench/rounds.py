"""Comparing contenders: a process each, rounds in turn, results checked in every round."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.machine import ROOT, cores, installed
from bench.worker import receive, send

__all__ = [
    "FULL",
    "MODEL_PEERS",
    "PEERS",
    "QUICK",
    "Effort",
    "Entry",
    "Process",
    "Processes",
    "Timing",
    "WrongResult",
    "check_result",
    "compare",
    "sample_count",
]

Array = np.ndarray[Any, Any]

# They slow OpenBLAS on machines whose processor it would have recognised.
HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
POOL_SIZES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

# By contender: its module, what it needs to be installed, and how long its threads go on spinning
# after a call, so that they do not sit on the next contender's cores.
PEERS = {
    "fastgraph": ("bench.contenders.own", ("fastgraph",), 0.001),
    "ONNX Runtime": ("bench.contenders.onnxruntime_peer", ("onnxruntime", "onnx"), 0.005),
    "NumPy": ("bench.contenders.numpy_peer", ("numpy",), 0.04),
    "OpenVINO": ("bench.contenders.openvino_peer", ("openvino", "onnx"), 0.005),
    "torch": ("bench.contenders.torch_peer", ("torch",), 0.005),
    "ExecuTorch": ("bench.contenders.executorch_peer", ("executorch", "torch"), 0.005),
    "replay": ("bench.contenders.replay", ("fastgraph",), 0.001),
}
MODEL_PEERS = ("fastgraph", "ONNX Runtime", "NumPy", "OpenVINO", "torch", "ExecuTorch")


class NotUsableError(Exception):
    """A contender is installed, but cannot be imported here."""


class WrongResult(Exception):
    """A contender computed something else than the reference."""


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds, and the seconds of one contender's round."""

    rounds: int = 30
    budget: float = 0.02
    cold_samples: int = 3
    scale: float = 1.0

    @property
    def quick(self) -> bool:
        """Whether this is for a look only."""
        return self.rounds < 30


FULL = Effort()
QUICK = Effort(rounds=5, budget=0.005, cold_samples=1, scale=0.05)


class Process:
    """A contender's process; its methods are those of `bench.worker.Contender`."""

    def __init__(self, peer: str, threads: int, cpus: Sequence[int] | None = None) -> None:
        module, _, settle = PEERS[peer]
        environment = {k: v for k, v in os.environ.items() if k not in HARMFUL}
        environment.update(dict.fromkeys(POOL_SIZES, str(threads)))
        path = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(path)
        self.settle = settle if threads > 1 else 0.001
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        send(self._child.stdin, (module, list(cpus if cpus is not None else cores(threads))))
        try:
            worked, reason = receive(self._child.stdout)
        except EOFError as error:
            worked, reason = False, str(error)
        if not worked:
            self.close()
            raise NotUsableError(f"{peer}: {reason}")

    def __call__(self, method: str, *arguments: Any) -> Any:
        send(self._child.stdin, (method, arguments))
        worked, value = receive(self._child.stdout)
        if not worked:
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        """End the process."""
        for pipe in (self._child.stdin, self._child.stdout):
            pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Processes:
    """The processes of all installed contenders at one number of threads."""

    def __init__(self, threads: int, peers: Sequence[str] = MODEL_PEERS) -> None:
        self.threads = threads
        self.missing: dict[str, str] = {}
        self._processes: dict[str, Process] = {}
        for peer in peers:
            if not all(map(installed, PEERS[peer][1])):
                self.missing[peer] = f"{peer}: not installed"
                continue
            try:
                self._processes[peer] = Process(peer, threads)
            except NotUsableError as error:
                if peer == "fastgraph":
                    raise
                self.missing[peer] = str(error)

    def __getitem__(self, peer: str) -> Process:
        return self._processes[peer]

    def __contains__(self, peer: str) -> bool:
        return peer in self._processes

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()


@dataclass(frozen=True)
class Entry:
    """One row to time: a peer, and the `spec` that its module builds."""

    peer: str
    label: str
    spec: Mapping[str, Any]


@dataclass
class Timing:
    """Times of one entry in microseconds."""

    entry: Entry
    note: str
    samples: list[list[float]] = field(default_factory=list)

    @property
    def round_p50(self) -> list[float]:
        """The median of every round."""
        return [float(np.median(taken)) / 1e3 for taken in self.samples]

    @property
    def p50(self) -> float:
        """The median over all samples."""
        return float(np.median(np.concatenate(self.samples))) / 1e3

    @property
    def p99(self) -> float:
        """The 99th percentile over all samples."""
        return float(np.percentile(np.concatenate(self.samples), 99)) / 1e3

    def ratio(self, other: Timing) -> tuple[float, float, float]:
        """Our time over `other`'s, round by round: the median and the 10th and 90th percentile."""
        ratios = np.array(self.round_p50) / np.array(other.round_p50)
        low, middle, high = np.percentile(ratios, [10, 50, 90])
        return float(middle), float(low), float(high)

    def row(self, case: str) -> dict[str, Any]:
        """The row for the record. There is one only if every round's result was right."""
        return {
            "case": case,
            "contender": self.entry.label,
            "note": self.note,
            "p50_us": digits(self.p50),
            "p99_us": digits(self.p99),
            "rounds": len(self.samples),
            "samples": sum(map(len, self.samples)),
            "round_p50_us": [digits(value) for value in self.round_p50],
            "correct": True,
        }


def digits(value: float) -> float:
    """`value` to four significant digits."""
    return float(f"{value:.4g}")


def compare(
    processes: Processes,
    entries: Sequence[Entry],
    inputs: Callable[[int], list[Array]],
    reference: Callable[[list[Array]], Array],
    effort: Effort,
    *,
    tolerance: float = 1e-4,
    cold: bool = False,
    block: int = 1,
) -> dict[str, Timing]:
    """Time the entries whose peer is installed, in turn within each round.

    The inputs change from round to round, and each round's last result is held against the
    reference: a number comes out only for a contender that really computes.

    Raises
    ------
    WrongResult
        Something differs from the reference.
    """
    entries = [entry for entry in entries if entry.peer in processes]
    cases = [inputs(seed) for seed in range(3)]
    expected = [np.asarray(reference(case), np.float64) for case in cases]
    timings = {}
    for entry in entries:
        note = processes[entry.peer]("build", entry.label, dict(entry.spec), block)
        timings[entry.label] = Timing(entry, note)
    samples = {}
    for entry in entries:
        processes[entry.peer]("load", entry.label, cases[0])
        taken = processes[entry.peer]("estimate", entry.label)
        samples[entry.label] = sample_count(taken, block, effort)
        if cold:
            samples[entry.label] = effort.cold_samples
    for number in range(effort.rounds):
        # Everybody is first as often as anybody else.
        start = number % len(entries)
        for entry in entries[start:] + entries[:start]:
            process, label = processes[entry.peer], entry.label
            process("load", label, cases[number % 3])
            timings[label].samples.append(process("round", label, samples[label], cold))
            check_result(label, process("result", label), expected[number % 3], tolerance)
            time.sleep(process.settle)
    for peer in {entry.peer for entry in entries}:
        processes[peer]("clear")
    return timings


def sample_count(call_ns: float, block: int, effort: Effort) -> int:
    """How many samples of `block` calls make a round."""
    return int(np.clip(effort.budget / (call_ns * block / 1e9), 5, 2000))


def check_result(label: str, found: Array, expected: Array, tolerance: float) -> None:
    """Raise WrongResult unless `found` is what was expected."""
    if found.shape != expected.shape:
        raise WrongResult(f"{label}: shape {found.shape}, not {expected.shape}")
    wrong = np.abs(found - expected) / (1 + np.abs(expected))
    if not wrong.max(initial=0) <= tolerance:
        raise WrongResult(f"{label}: differs by {wrong.max():.3g}; {tolerance} is allowed")
