"""A layer of a mixture of experts as a graph and in NumPy."""

from __future__ import annotations

import numpy as np

import fastgraph as fg
from fastgraph import ops

__all__ = ["SIZES", "chosen", "mixture", "mixture_reference", "mixture_weights"]

# Tokens, width, hidden width, experts, experts a token.
SIZES = (6, 8, 16, 4, 2)


def mixture(layers: int = 1, sizes: tuple[int, ...] = SIZES, dtype: str = "float32") -> fg.Graph:
    """Layers of: router (softmax, top_k), gate, up and down of each chosen expert, combination."""
    tokens, width, hidden, experts, k = sizes
    graph = fg.Graph("mixture")
    x = graph.input("x", (tokens, width), dtype)
    for layer in range(layers):

        def weight(name: str, *shape: int, layer: int = layer) -> fg.Value:
            return graph.param(f"{name}{layer}", shape, dtype)

        scores = ops.softmax(x @ weight("router", width, experts))
        share, ids = ops.top_k(scores, k, layer=layer)
        ids = ids.reshape(tokens * k)
        rows = ops.broadcast_to(x.reshape(tokens, 1, width), (tokens, k, width))
        rows = rows.reshape(tokens * k, width)
        gate = ops.grouped_matmul(rows, weight("gate", experts, width, hidden), ids, layer=layer)
        up = ops.grouped_matmul(rows, weight("up", experts, width, hidden), ids, layer=layer)
        down = weight("down", experts, hidden, width)
        y = ops.grouped_matmul(ops.silu(gate) * up, down, ids, layer=layer)
        share = share / ops.sum(share, axis=-1, keepdims=True)
        y = ops.sum(y.reshape(tokens, k, width) * share.reshape(tokens, k, 1), axis=1)
        x = x + y
    graph.output(x, "y")
    return graph


def mixture_weights(
    layers: int = 1, sizes: tuple[int, ...] = SIZES, dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Parameters of `mixture`."""
    _, width, hidden, experts, _ = sizes
    random = np.random.default_rng(5)
    shapes = {
        "router": (width, experts),
        "gate": (experts, width, hidden),
        "up": (experts, width, hidden),
        "down": (experts, hidden, width),
    }
    return {
        f"{name}{layer}": (random.normal(size=shape) / np.sqrt(shape[-2])).astype(dtype)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def chosen(x: np.ndarray, router: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The experts of each token, best first, and their shares."""
    scores = np.exp(x @ router - (x @ router).max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, -1)


def mixture_reference(
    x: np.ndarray, weights: dict[str, np.ndarray], layers: int = 1, k: int = SIZES[-1]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What `mixture` gives, in float64, and the experts that each layer chooses."""
    x = x.astype("f8")
    choices = []
    for layer in range(layers):
        router, gate, up, down = (
            weights[f"{name}{layer}"].astype("f8") for name in ("router", "gate", "up", "down")
        )
        ids, share = chosen(x, router, k)
        share = share / share.sum(-1, keepdims=True)
        choices.append(ids)
        y = np.zeros_like(x)
        for token, row in enumerate(x):
            for expert, part in zip(ids[token], share[token], strict=True):
                h = row @ gate[expert]
                y[token] += part * ((h / (1 + np.exp(-h)) * (row @ up[expert])) @ down[expert])
        x = x + y
    return x, choices
