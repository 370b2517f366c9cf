"""A step of the decoder as a torch module."""

from __future__ import annotations

import torch
from torch.nn import functional

from bench.decode_case import Step, caches, seeded_weights
from examples import decoder
from examples.decoder import CONTEXT, EPS, HEAD, HEADS, KV_HEADS, LAYERS, WIDTH

__all__ = ["Decoder"]


class Decoder(torch.nn.Module):
    """Logits of the character behind `past` others, whose keys and values buffers hold.

    `fixed`: attention is over the whole buffers with a mask, so that no shape depends on the
    place; else over as much of them as there is.
    """

    def __init__(self, step: Step, fixed: bool) -> None:
        super().__init__()
        self.past, self.fixed = step.past, fixed
        for name, array in seeded_weights(step.experts).arrays.items():
            self.register_buffer(name.replace(".", "_"), torch.from_numpy(array.copy()))
        for i, both in enumerate(caches(step.past)):
            for part, array in zip(("keys", "values"), both, strict=True):
                rows = torch.from_numpy(array.transpose(1, 0, 2)[None].copy())
                self.register_buffer(f"{part}_{i}", rows)
        cos, sin = (torch.from_numpy(angles) for angles in decoder.rotations())
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("place", torch.tensor([step.past]))
        self.register_buffer("places", torch.arange(CONTEXT))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        w = self.get_buffer
        x = self.embedding[ids]
        cos, sin = self.cos[self.place], self.sin[self.place]
        seen = (self.places <= self.place)[None, None, None] if self.fixed else None

        def turn(x: torch.Tensor) -> torch.Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return functional.rms_norm(x, (WIDTH,), w(name), EPS)

        for i in range(LAYERS):
            own = f"layer_{i}"
            n = norm(x, f"{own}_attention_norm")
            q = turn((n @ w(f"{own}_query")).view(1, HEADS, 1, HEAD))
            k = turn((n @ w(f"{own}_key")).view(1, KV_HEADS, 1, HEAD))
            v = (n @ w(f"{own}_value")).view(1, KV_HEADS, 1, HEAD)
            keys, values = w(f"keys_{i}"), w(f"values_{i}")
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            if not self.fixed:
                keys, values = keys[:, :, : self.past + 1], values[:, :, : self.past + 1]
            mixed = functional.scaled_dot_product_attention(
                q, keys, values, seen, enable_gqa=True
            ).view(1, HEADS * HEAD)
            x = x + mixed @ w(f"{own}_output")
            n = norm(x, f"{own}_mlp_norm")
            inner = functional.silu(n @ w(f"{own}_gate")) * (n @ w(f"{own}_up"))
            x = x + inner @ w(f"{own}_down")
        return norm(x, "norm") @ self.embedding.T
