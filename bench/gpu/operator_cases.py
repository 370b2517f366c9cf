"""Operators that are timed: graphs, operands, and what they have to give."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

import fastgraph as fg

__all__ = ["CASES", "Attention", "Product", "Streamed"]


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
    """Attention of q [batch, heads, queries, length] over [batch, key_heads, keys, length].

    `layers` times in a chain, each of what came of the one before, over the same keys and values,
    which lie on the device.
    """

    batch: int
    heads: int
    queries: int
    length: int
    causal: bool = False
    key_heads: int = 0
    keys: int = 0
    dtype: str = "float16"
    layers: int = 1

    @property
    def name(self) -> str:
        """How it is listed."""
        keys, heads = self.keys or self.queries, self.key_heads or self.heads
        causal = ", causal" if self.causal else ""
        chain = f", {self.layers} in a chain" if self.layers > 1 else ""
        return (
            f"attention {self.batch}x{self.heads}x{self.queries}x{self.length} over "
            f"{heads} heads of {keys}, {self.dtype}{causal}{chain}"
        )

    @property
    def resident(self) -> tuple[str, ...]:
        """What lies on the device: q is brought in and the result out, once a chain."""
        return ("x1", "x2")

    @property
    def scales(self) -> list[float]:
        """Of each layer: what comes of many values is small, yet scores are to vary as before."""
        keys = self.keys or self.queries
        return [(1.0 if i == 0 else (keys / 3) ** 0.5) / self.length**0.5
                for i in range(self.layers)]  # fmt: skip

    @property
    def flops(self) -> int:
        """Half of the products are left out where it is causal."""
        pairs = self.queries * (self.keys or self.queries) // (1 + self.causal)
        return 4 * self.layers * self.batch * self.heads * pairs * self.length

    @property
    def nbytes(self) -> int:
        """Of keys and values."""
        heads, keys = self.key_heads or self.heads, self.keys or self.queries
        itemsize = np.dtype(self.dtype).itemsize
        return 2 * self.layers * self.batch * heads * keys * self.length * itemsize

    def arrays(self) -> list[Any]:
        """q, k and v."""
        return [numbers(shape, self.dtype, 1.0, i) for i, shape in enumerate(self.shapes())]

    def shapes(self) -> list[tuple[int, ...]]:
        """Of q, k and v."""
        kv = (self.batch, self.key_heads or self.heads, self.keys or self.queries, self.length)
        return [(self.batch, self.heads, self.queries, self.length), kv, kv]

    def build(self) -> fg.Graph:
        """The graph of the package."""
        g = fg.Graph("attention")
        q, k, v = (g.input(f"x{i}", shape, self.dtype) for i, shape in enumerate(self.shapes()))
        for scale in self.scales:
            q = fg.ops.attention(q, k, v, is_causal=self.causal, scale=scale)
        g.output(q, "y")
        return g

    def torch(self, q: Any, k: Any, v: Any) -> Any:
        """The same on tensors; its causal mask begins with the first key, so only where all fit."""
        attend = importlib.import_module("torch.nn.functional").scaled_dot_product_attention
        gqa = k.shape[1] != q.shape[1]
        for scale in self.scales:
            q = attend(q, k, v, is_causal=self.causal, enable_gqa=gqa, scale=scale)
        return q

    def error(self, found: Any, arrays: Sequence[Any]) -> float:
        """Of the last head of the last batch, relative to the largest element."""
        q, k, v = (np.asarray(a[-1, -1], "f8") for a in arrays)
        for scale in self.scales:
            scores = q @ k.T * scale
            if self.causal:
                i, j = np.ogrid[: q.shape[0], : k.shape[0]]
                scores[j > i + k.shape[0] - q.shape[0]] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            q = weights @ v / weights.sum(-1, keepdims=True)
        return relative(found[-1, -1], q)


@dataclass(frozen=True)
class Streamed:
    """What moves memory: `kind` of rows of x, put where x was."""

    kind: str
    rows: int
    length: int
    dtype: str = "float16"

    @property
    def name(self) -> str:
        """How it is listed."""
        return f"{self.kind} {self.rows}x{self.length} {self.dtype}"

    @property
    def flops(self) -> int:
        """One for each element."""
        return self.rows * self.length

    @property
    def nbytes(self) -> int:
        """What is read and what is written."""
        return 2 * self.rows * self.length * np.dtype(self.dtype).itemsize

    def arrays(self) -> list[Any]:
        """x, whose rows come again."""
        return [np.resize(numbers((251, self.length), self.dtype, 1.0), (self.rows, self.length))]

    def build(self) -> fg.Graph:
        """The graph of the package."""
        g = fg.Graph("streamed")
        x = g.input("x0", (self.rows, self.length), self.dtype)
        ones, zeros = np.ones(self.length, self.dtype), np.zeros(self.length, self.dtype)
        weights = {"rms_norm": (ones,), "layer_norm": (ones, zeros)}.get(self.kind, ())
        g.output(getattr(fg.ops, self.kind)(x, *weights), "y")
        return g

    def torch(self, x: Any) -> Any:
        """The same on tensors."""
        functional = importlib.import_module("torch.nn.functional")
        last = {"softmax": (-1,), "gelu": ()}.get(self.kind, ((self.length,),))
        return getattr(functional, self.kind)(x, *last)

    def error(self, found: Any, arrays: Sequence[Any]) -> float:
        """Of the first and the last row, relative to the largest element."""
        x = arrays[0][[0, -1]].astype("f8")
        if self.kind == "softmax":
            y = np.exp(x - x.max(-1, keepdims=True))
            y /= y.sum(-1, keepdims=True)
        elif self.kind == "gelu":
            y = 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))
        else:
            y = x - x.mean(-1, keepdims=True) if self.kind == "layer_norm" else x
            y = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return relative(found[[0, -1]], y)


CASES: tuple[Product | Attention | Streamed, ...] = (
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
    *(
        Attention(8, 16, 2048, length, causal, layers=4)
        for length in (64, 128)
        for causal in (False, True)
    ),
    *(
        Attention(batch, 12, 128, 32, dtype=dtype, layers=8)
        for batch in (1, 32)
        for dtype in ("float16", "float32")
    ),
    Attention(1, 32, 1, 64, key_heads=8, keys=1024, layers=8),
    Attention(8, 32, 1, 128, key_heads=8, keys=8192, layers=2),
    *(
        Streamed(kind, 16384, length, dtype)
        for kind in ("gelu", "rms_norm", "layer_norm", "softmax")
        for dtype, length in (("float16", 8192), ("float32", 4096))
    ),
)
