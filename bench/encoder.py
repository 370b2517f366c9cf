"""A sentence encoder of MiniLM-L6's sizes: seeded weights, inputs, and a reference in double."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["EPS", "HEADS", "INNER", "LAYERS", "WIDTH", "Sentence", "encode", "seeded_weights"]

Array = np.ndarray[Any, Any]

LAYERS, WIDTH, HEADS, INNER, TOKENS, WORDS = 6, 384, 12, 1536, 512, 30522
EPS = 1e-12

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Sentence:
    """One sentence of `tokens` tokens, as one call."""

    tokens: int

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Sentence:
        """The sentence that `spec` describes."""
        return cls(spec["tokens"])

    def spec(self, **more: Any) -> dict[str, Any]:
        """What a contender is told."""
        return {"workload": "encoder", **asdict(self), **more}

    def inputs(self, seed: int) -> list[Array]:
        """The numbers of its tokens, different for every seed."""
        random = np.random.default_rng(seed)
        return [random.integers(0, WORDS, (1, self.tokens), dtype=np.int64)]

    def reference(self, inputs: list[Array]) -> Array:
        """The result in double precision."""
        return encode(inputs[0], seeded_weights())


@lru_cache(maxsize=1)
def seeded_weights() -> dict[str, Array]:
    """Weights under the names of the model's file. Scores, norms and sums keep sizes of order one.

    Linear weights have the shape (outputs, inputs).
    """
    random = np.random.default_rng(2025)

    def normal(*shape: int, size: float) -> Array:
        return random.standard_normal(shape, dtype=np.float32) * np.float32(size)

    made = {
        "embeddings.word_embeddings.weight": normal(WORDS, WIDTH, size=1.0),
        "embeddings.position_embeddings.weight": normal(TOKENS, WIDTH, size=0.3),
        "embeddings.token_type_embeddings.weight": normal(2, WIDTH, size=0.3),
    }

    def norm(name: str) -> None:
        made[f"{name}.LayerNorm.weight"] = 1 + normal(WIDTH, size=0.2)
        made[f"{name}.LayerNorm.bias"] = normal(WIDTH, size=0.2)

    def linear(name: str, outputs: int, inputs: int) -> None:
        made[f"{name}.weight"] = normal(outputs, inputs, size=1.2 / math.sqrt(inputs))
        made[f"{name}.bias"] = normal(outputs, size=0.3)

    norm("embeddings")
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{name}.attention.self.{part}", WIDTH, WIDTH)
        linear(f"{name}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{name}.attention.output")
        linear(f"{name}.intermediate.dense", INNER, WIDTH)
        linear(f"{name}.output.dense", WIDTH, INNER)
        norm(f"{name}.output")
    return made


def encode(ids: Array, weights: dict[str, Array]) -> Array:
    """One row of length 1 for each row of `ids`, in double precision."""
    batch, tokens = ids.shape

    def wide(name: str) -> Array:
        return weights[name].astype(np.float64)

    def linear(x: Array, name: str) -> Array:
        return x @ wide(f"{name}.weight").T + wide(f"{name}.bias")

    def norm(x: Array, name: str) -> Array:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
        return x * wide(f"{name}.LayerNorm.weight") + wide(f"{name}.LayerNorm.bias")

    def heads(x: Array) -> Array:
        return x.reshape(batch, tokens, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    x = weights["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x = x + wide("embeddings.position_embeddings.weight")[:tokens]
    x = norm(x + wide("embeddings.token_type_embeddings.weight")[0], "embeddings")
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        q, k, v = (
            heads(linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(WIDTH // HEADS)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, WIDTH)
        x = norm(x + linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output")
        inner = linear(x, f"{name}.intermediate.dense")
        inner = 0.5 * inner * (1 + _erf(inner / math.sqrt(2)))
        x = norm(x + linear(inner, f"{name}.output.dense"), f"{name}.output")
    pooled = x.mean(1)
    return pooled / np.sqrt((pooled * pooled).sum(-1, keepdims=True))
