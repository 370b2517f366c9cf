"""The encoder as a torch module, for torch itself and for ExecuTorch."""

from __future__ import annotations

import torch
from torch.nn import functional

from bench.encoder import EPS, HEADS, INNER, LAYERS, WIDTH, Sentence, seeded_weights

__all__ = ["Encoder", "encoder_of"]


class Layer(torch.nn.Module):
    """One layer: attention and a perceptron, each with its sum and norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (
            torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )
        self.up, self.down = torch.nn.Linear(WIDTH, INNER), torch.nn.Linear(INNER, WIDTH)
        self.norm1, self.norm2 = (torch.nn.LayerNorm(WIDTH, EPS) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            linear(x).view(batch, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).reshape(batch, tokens, WIDTH)
        x = self.norm1(x + self.dense(mixed))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Encoder(torch.nn.Module):
    """Token numbers to a row of length 1."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        w = {name: torch.from_numpy(array) for name, array in seeded_weights().items()}
        self.words = torch.nn.Embedding.from_pretrained(w["embeddings.word_embeddings.weight"])
        places = w["embeddings.position_embeddings.weight"][:tokens]
        kind = w["embeddings.token_type_embeddings.weight"][0]
        self.register_buffer("places", places + kind)
        self.norm = torch.nn.LayerNorm(WIDTH, EPS)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        copy(self.norm, w, "embeddings.LayerNorm")
        for i, layer in enumerate(self.layers):
            name = f"encoder.layer.{i}"
            for part in ("query", "key", "value"):
                copy(getattr(layer, part), w, f"{name}.attention.self.{part}")
            copy(layer.dense, w, f"{name}.attention.output.dense")
            copy(layer.norm1, w, f"{name}.attention.output.LayerNorm")
            copy(layer.up, w, f"{name}.intermediate.dense")
            copy(layer.down, w, f"{name}.output.dense")
            copy(layer.norm2, w, f"{name}.output.LayerNorm")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids) + self.places)
        for layer in self.layers:
            x = layer(x)
        pooled = x.mean(1)
        return pooled / torch.sqrt((pooled * pooled).sum(-1, keepdim=True))


def copy(module: torch.nn.Module, weights: dict[str, torch.Tensor], name: str) -> None:
    """Give `module` its weight and bias."""
    with torch.no_grad():
        module.weight.copy_(weights[f"{name}.weight"])
        module.bias.copy_(weights[f"{name}.bias"])


def encoder_of(sentence: Sentence) -> torch.nn.Module:
    """The encoder with its weights, ready for inference."""
    return Encoder(sentence.tokens).eval().requires_grad_(False)
