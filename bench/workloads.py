"""What is computed: seeded weights and inputs, and a reference in double precision."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Layers", "add_inputs"]

Array = np.ndarray[Any, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: Array) -> Array:
    """Exact GELU in double precision."""
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


@dataclass(frozen=True)
class Layers:
    """Dense layers: ``x @ w (+ bias)``, each of `gelu_layers` first ones followed by exact GELU.

    The weights keep values of order one through any number of layers, and no two are alike.
    """

    rows: int
    sizes: tuple[int, ...]
    bias: bool = True
    gelu_layers: int = 0

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Layers:
        """The layers that `spec` describes."""
        return cls(spec["rows"], tuple(spec["sizes"]), spec["bias"], spec["gelu_layers"])

    def spec(self, **more: Any) -> dict[str, Any]:
        """What a contender is told."""
        return {"workload": "layers", **asdict(self), **more}

    def weights(self) -> list[tuple[Array, Array | None]]:
        """Weight of shape (inputs, outputs) and bias, by layer."""
        random = np.random.default_rng(2024)
        made = []
        for k, n in zip(self.sizes, self.sizes[1:], strict=False):
            w = random.standard_normal((k, n)).astype("f4") * np.float32(1.5 / math.sqrt(k))
            b = random.standard_normal(n).astype("f4") * np.float32(0.5)
            made.append((w, b if self.bias else None))
        return made

    def inputs(self, seed: int) -> list[Array]:
        """One input, different for every seed."""
        random = np.random.default_rng(seed)
        return [random.standard_normal((self.rows, self.sizes[0])).astype("f4")]

    def reference(self, inputs: list[Array]) -> Array:
        """The result in double precision."""
        x = inputs[0].astype(np.float64)
        for layer, (w, b) in enumerate(self.weights()):
            x = x @ w.astype(np.float64)
            if b is not None:
                x = x + b
            if layer < self.gelu_layers:
                x = gelu(x)
        return x


def add_inputs(seed: int) -> list[Array]:
    """Sixteen floats."""
    return [np.random.default_rng(seed).standard_normal(16).astype("f4")]
