"""Train the character decoder of ``examples/decoder.py``, dense or with experts.

The text is the language reference of Python 3.11 (as `pydoc` shows it; PSF licence, see
``examples/text``), one topic after another. Whole topics are held out. Adam with a cosine of the
rate, dropout, and the weights of the step that was best on the held-out text.

    python examples/train_decoder.py [--experts] [--steps N] [--output FILE]

Needs ``numpy torch``. A decoder of these sizes is trained in minutes on two cores of a CPU. Other
versions or another number of threads add in another order and end on other weights of the same
quality (the files beside this one: torch 2.14.1, 2 threads).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

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
)

SEED = 20261130
BATCH = 6
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.1
DROPOUT = 0.1
WARM_UP = 100
EVERY = 100


class Layer(nn.Module):
    """Attention and a gated perceptron, or experts, each behind a norm."""

    def __init__(self, experts: bool) -> None:
        super().__init__()
        self.attention_norm = nn.Parameter(torch.ones(WIDTH))
        self.mlp_norm = nn.Parameter(torch.ones(WIDTH))
        self.query = weight(WIDTH, HEADS * HEAD)
        self.key = weight(WIDTH, KV_HEADS * HEAD)
        self.value = weight(WIDTH, KV_HEADS * HEAD)
        self.output = weight(HEADS * HEAD, WIDTH, LAYERS)
        if experts:
            self.router = weight(WIDTH, EXPERTS)
            self.gate = weight((EXPERTS, WIDTH), EXPERT_INNER)
            self.up = weight((EXPERTS, WIDTH), EXPERT_INNER)
            self.down = weight((EXPERTS, EXPERT_INNER), WIDTH, LAYERS)
        else:
            self.gate = weight(WIDTH, INNER)
            self.up = weight(WIDTH, INNER)
            self.down = weight(INNER, WIDTH, LAYERS)
        self.balance = torch.zeros(())

    def attend(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            (x @ w).view(batch, tokens, -1, HEAD).transpose(1, 2)
            for w in (self.query, self.key, self.value)
        )
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        groups = HEADS // KV_HEADS
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, tokens, -1) @ self.output

    def think(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate.ndim == 2:
            return (F.silu(x @ self.gate) * (x @ self.up)) @ self.down
        scores = torch.softmax(x @ self.router, -1)
        best, ids = torch.topk(scores, TOP)
        best = best / best.sum(-1, keepdim=True)
        # Every expert on every token: few and small as they are, that is quicker than sorting.
        share = torch.zeros_like(scores).scatter(-1, ids, best)
        # Keeps the router from favouring a few (Shazeer et al. 2017).
        used = torch.zeros_like(scores).scatter(-1, ids, 1.0).mean((0, 1))
        self.balance = EXPERTS / TOP * (used * scores.mean((0, 1))).sum()
        inner = F.silu(torch.einsum("btw,ewi->btei", x, self.gate))
        inner = inner * torch.einsum("btw,ewi->btei", x, self.up)
        return torch.einsum("btei,eiw,bte->btw", inner, self.down, share)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        drop = DROPOUT if self.training else 0.0
        x = x + F.dropout(self.attend(norm(x, self.attention_norm), cos, sin), drop)
        return x + F.dropout(self.think(norm(x, self.mlp_norm)), drop)


class Model(nn.Module):
    """The decoder; its parameters are named as `decoder.build` names them."""

    def __init__(self, characters: int, experts: bool) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(characters, WIDTH) * 0.05)
        self.layer = nn.ModuleList(Layer(experts) for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        cos, sin = decoder.rotations()
        self.register_buffer("cos", torch.from_numpy(cos), persistent=False)
        self.register_buffer("sin", torch.from_numpy(sin), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = ids.shape[1]
        x = self.embedding[ids]
        for layer in self.layer:
            x = layer(x, self.cos[:tokens], self.sin[:tokens])
        return norm(x, self.norm) @ self.embedding.T


def weight(inputs: int | tuple[int, int], outputs: int, depth: int = 0) -> nn.Parameter:
    """A matrix, or one for each expert; smaller where it adds to what passes all layers."""
    shape = (*inputs, outputs) if isinstance(inputs, tuple) else (inputs, outputs)
    scale = 1 / math.sqrt(shape[-2]) / (math.sqrt(2 * depth) if depth else 1)
    return nn.Parameter(torch.randn(shape) * scale)


def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (WIDTH,), gain, EPS)


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of a head by the angle of its place (Su et al. 2021)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@torch.no_grad()
def loss_of(model: Model, ids: torch.Tensor) -> float:
    """Mean of the negative logarithms of a text's probability, in windows of the context."""
    model.eval()
    count = (len(ids) - 1) // CONTEXT
    x, y = ids[: count * CONTEXT].view(count, -1), ids[1 : count * CONTEXT + 1].view(count, -1)
    sums = [
        F.cross_entropy(
            model(x[i : i + 32]).flatten(0, 1), y[i : i + 32].flatten(), reduction="sum"
        )
        for i in range(0, count, 32)
    ]
    model.train()
    return float(sum(sums)) / (count * CONTEXT)


def train(steps: int, experts: bool) -> dict[str, np.ndarray]:
    """Return the parameters that were best on the held-out text."""
    torch.manual_seed(SEED)
    text, held_out = decoder.texts()
    alphabet = decoder.alphabet(text)
    ids, test = (torch.from_numpy(decoder.encode(t, alphabet)) for t in (text, held_out))
    model = Model(len(alphabet), experts)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim == 1]
    optimiser = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": WEIGHT_DECAY},
            {"params": gains, "weight_decay": 0.0},
        ],
        LEARNING_RATE,
        betas=(0.9, 0.95),
    )
    best, kept = math.inf, {}
    for step in range(steps + 1):
        rate = min(1.0, (step + 1) / WARM_UP) * (
            0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps))
        )
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * rate
        starts = torch.randint(len(ids) - CONTEXT - 1, (BATCH,))
        rows = torch.stack([ids[s : s + CONTEXT + 1] for s in starts])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        balance = sum(layer.balance for layer in model.layer) / LAYERS
        optimiser.zero_grad()
        (loss + 0.01 * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % EVERY == 0:
            found = loss_of(model, test)
            print(f"{step:5d}  train {loss.item():.3f}  held out {math.exp(found):.3f}", flush=True)
            if found < best:
                best = found
                kept = {k: v.detach().numpy().copy() for k, v in model.named_parameters()}
    print(f"held-out perplexity {math.exp(best):.3f}, 3-gram {decoder.trigram(text, held_out):.3f}")
    return {"alphabet": np.array(alphabet), **{k: v.astype(np.float16) for k, v in kept.items()}}


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    output = given.output or decoder.weights_of(given.experts)
    np.savez_compressed(output, **train(given.steps, given.experts))


if __name__ == "__main__":
    main()
