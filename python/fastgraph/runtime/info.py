"""What users read of a compiled graph: tensors, profiles, summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NodeTime", "Profile", "TensorInfo", "table"]


class TensorInfo(NamedTuple):
    """Name, shape and dtype of an input, parameter or output."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class NodeTime:
    """Times of one node.

    Attributes
    ----------
    name, operator : str
    shape : tuple of int
        Of its first output.
    us : float
        Median time in microseconds.
    bytes_per_s : float
        Bytes that it reads and writes over that time.
    flops_per_s : float
        Arithmetic operations over that time.
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    us: float
    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True)
class Profile:
    """What `CompiledGraph.profile` measured.

    Attributes
    ----------
    nodes : list of NodeTime
        In the order of the run.
    runs : int
    total_us : float
        Sum of the nodes' medians, in microseconds.
    """

    graph: str
    nodes: list[NodeTime]
    runs: int

    @property
    def total_us(self) -> float:
        """float: sum of the nodes' medians, in microseconds."""
        return sum(node.us for node in self.nodes)

    def slowest(self, n: int = 5) -> list[NodeTime]:
        """Return the `n` nodes that took longest, slowest first."""
        return sorted(self.nodes, key=lambda node: -node.us)[:n]

    def chrome_trace(self) -> dict[str, Any]:
        """Return the nodes one after another as a Chrome trace: ``json.dump`` it to a file."""
        events, at = [], 0.0
        for node in self.nodes:
            events.append(
                {
                    "name": node.name,
                    "cat": node.operator,
                    "ph": "X",
                    "ts": at,
                    "dur": node.us,
                    "pid": 0,
                    "tid": 0,
                    "args": {"shape": list(node.shape)},
                }
            )
            at += node.us
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def __str__(self) -> str:
        rows = [
            (
                node.name,
                node.operator,
                str(list(node.shape)),
                f"{node.us:.2f}",
                f"{node.bytes_per_s / 1e9:.1f}",
                f"{node.flops_per_s / 1e9:.1f}",
            )
            for node in self.nodes
        ]
        return table(("node", "operator", "shape", "us", "GB/s", "GFLOP/s"), rows)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of text in aligned columns."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)
