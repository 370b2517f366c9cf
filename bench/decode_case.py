"""One step of the decoder in `examples`: seeded weights, full caches, a reference in double."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from examples import decoder
from examples.decoder import (
    CONTEXT,
    EPS,
    EXPERT_INNER,
    EXPERTS,
    HEAD,
    HEADS,
    INNER,
    KV_HEADS,
    LAYERS,
    TOP,
    WIDTH,
    Weights,
)

__all__ = ["CHARACTERS", "Plain", "Step", "caches", "seeded_weights"]

Array = np.ndarray[Any, Any]

CHARACTERS = 100


@dataclass(frozen=True)
class Step:
    """The character behind `past` others, by a dense decoder or one of experts."""

    past: int
    experts: bool

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Step:
        """The step that `spec` describes."""
        return cls(spec["past"], spec["experts"])

    def spec(self, **more: Any) -> dict[str, Any]:
        """What a contender is told."""
        return {"workload": "decode", **asdict(self), **more}

    def inputs(self, seed: int) -> list[Array]:
        """A character, different for every seed."""
        return [np.random.default_rng(seed).integers(0, CHARACTERS, 1)]

    def reference(self, inputs: list[Array]) -> Array:
        """The logits of the character that follows, in double precision."""
        plain = Plain(seeded_weights(self.experts))
        for held, cache in zip(plain.cache, caches(self.past), strict=True):
            for rows, array in zip(held, cache, strict=True):
                rows.extend(array[: self.past])
        return plain.read(int(inputs[0][0]))[None]


@lru_cache(maxsize=2)
def seeded_weights(experts: bool) -> Weights:
    """Weights under the names of the trained ones; scores and sums keep sizes of order one."""
    random = np.random.default_rng(2026)

    def matrix(*shape: int, size: float = 1.0) -> Array:
        scale = np.float32(size / np.sqrt(shape[-2]))
        return random.standard_normal(shape, dtype=np.float32) * scale

    def gain() -> Array:
        return random.uniform(0.5, 1.5, WIDTH).astype(np.float32)

    made = {"embedding": matrix(CHARACTERS, WIDTH, size=10.0), "norm": gain()}
    for i in range(LAYERS):
        own = f"layer.{i}"
        made[f"{own}.attention_norm"], made[f"{own}.mlp_norm"] = gain(), gain()
        for part, heads in (("query", HEADS), ("key", KV_HEADS), ("value", KV_HEADS)):
            made[f"{own}.{part}"] = matrix(WIDTH, heads * HEAD)
        made[f"{own}.output"] = matrix(HEADS * HEAD, WIDTH)
        if experts:
            made[f"{own}.router"] = matrix(WIDTH, EXPERTS)
        several, inner = ((EXPERTS,), EXPERT_INNER) if experts else ((), INNER)
        for part, shape in (
            ("gate", (WIDTH, inner)),
            ("up", (WIDTH, inner)),
            ("down", (inner, WIDTH)),
        ):
            made[f"{own}.{part}"] = matrix(*several, *shape)
    return Weights(made, "".join(chr(0x4E00 + i) for i in range(CHARACTERS)), experts)


def caches(past: int) -> list[tuple[Array, Array]]:
    """Keys and values of each layer, (context, key heads, elements) each; zero from `past` on."""
    random = np.random.default_rng(11)
    made = random.standard_normal((LAYERS, 2, CONTEXT, KV_HEADS, HEAD), dtype=np.float32)
    made[:, :, past:] = 0
    return [(keys, values) for keys, values in made]


class Plain:
    """The decoder in NumPy and double precision, one character at a time."""

    def __init__(self, weights: Weights) -> None:
        self.w = {name: array.astype(np.float64) for name, array in weights.arrays.items()}
        self.experts = weights.experts
        self.cache: list[tuple[list[Array], list[Array]]] = [([], []) for _ in range(LAYERS)]
        self.angles = [angles.astype(np.float64) for angles in decoder.rotations()]

    def read(self, number: int) -> Array:
        """Take a character; the logits of the one that follows."""
        x = self.w["embedding"][number]
        for i, (keys, values) in enumerate(self.cache):
            own = f"layer.{i}"
            n = self._norm(x, f"{own}.attention_norm")
            q, k, v = (
                (n @ self.w[f"{own}.{part}"]).reshape(-1, HEAD)
                for part in ("query", "key", "value")
            )
            place = len(keys)
            keys.append(self._turn(k, place))
            values.append(v)
            q = self._turn(q, place).reshape(KV_HEADS, HEADS // KV_HEADS, HEAD)
            scores = np.einsum("kgd,tkd->kgt", q, np.array(keys)) / np.sqrt(HEAD)
            mixed = np.einsum("kgt,tkd->kgd", _softmax(scores), np.array(values)).reshape(-1)
            x = x + mixed @ self.w[f"{own}.output"]
            x = x + self._think(self._norm(x, f"{own}.mlp_norm"), own)
        return self._norm(x, "norm") @ self.w["embedding"].T

    def _norm(self, x: Array, name: str) -> Array:
        return x / np.sqrt(np.mean(x * x) + EPS) * self.w[name]

    def _turn(self, x: Array, place: int) -> Array:
        cos, sin = (angles[place] for angles in self.angles)
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def _think(self, x: Array, own: str) -> Array:
        matrices = [self.w[f"{own}.{part}"] for part in ("gate", "up", "down")]
        if not self.experts:
            return _gated(x, *matrices)
        scores = _softmax(x @ self.w[f"{own}.router"])
        best = np.argsort(-scores, kind="stable")[:TOP]
        share = scores[best] / scores[best].sum()
        each = [_gated(x, *(several[expert] for several in matrices)) for expert in best]
        return np.tensordot(share, each, axes=1)


def _softmax(x: Array) -> Array:
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def _gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    inner = x @ gate
    return (inner / (1 + np.exp(-inner)) * (x @ up)) @ down
