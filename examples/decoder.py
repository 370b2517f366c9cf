"""A small decoder with a cache of keys and values: text, one character and one launch at a time.

Three layers of a Llama-shaped decoder (rotary angles, grouped heads, gated perceptron, RMS norms),
trained by ``examples/train_decoder.py`` on the language reference of Python; with ``--experts`` the
perceptrons are eight experts each, of which two see a character. Its keys and values are handles:
they stay where the model runs, and a feed puts the rows of each step behind those of the last, in
the run itself. A prompt goes through graphs for 8, 16, 32 … characters, each compiled once.

    python -m examples.decoder [--device cuda] [--experts] [--prompt TEXT] [--characters N]
"""

from __future__ import annotations

import argparse
import lzma
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import fastgraph as fg

FOLDER = Path(__file__).parent
WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 128, 3, 4, 2, 32, 256
EXPERTS, TOP, EXPERT_INNER = 8, 2, 96
CONTEXT = 256
EPS = 1e-5
# How many characters go through a graph at once.
SIZES = (1, 8, 16, 32, 64, 128, CONTEXT)
TOPICS_HELD_OUT = 10  # one in so many


def texts() -> tuple[str, str]:
    """What the decoder is trained on, and whole topics that it has not seen."""
    packed = (FOLDER / "text" / "python_reference.txt.xz").read_bytes()
    topics = lzma.decompress(packed).decode().split("\f")
    held_out = topics[TOPICS_HELD_OUT // 2 :: TOPICS_HELD_OUT]
    return "\n\n".join(t for t in topics if t not in held_out), "\n\n".join(held_out)


def alphabet(text: str) -> str:
    """The characters of `text` that are more than chance; the last stands for all others."""
    return (
        "".join(sorted(c for c, n in Counter(text).items() if n >= 10 and c != "\ufffd")) + "\ufffd"
    )


def encode(text: str, alphabet: str) -> np.ndarray:
    """The places of characters in the alphabet."""
    numbers = {c: i for i, c in enumerate(alphabet)}
    return np.array([numbers.get(c, len(alphabet) - 1) for c in text], np.int64)


def trigram(text: str, held_out: str) -> float:
    """Perplexity of a 3-gram model, each order mixed with the next (Witten and Bell 1991)."""
    known = alphabet(text)
    train, test = encode(text, known).tolist(), encode(held_out, known).tolist()
    counts: list[dict[tuple[int, ...], Counter[int]]] = [{} for _ in range(3)]
    for i in range(2, len(train)):
        for order in range(3):
            counts[order].setdefault(tuple(train[i - order : i]), Counter())[train[i]] += 1
    total = 0.0
    for i in range(2, len(test)):
        p = 1 / len(known)
        for order in range(3):
            seen = counts[order].get(tuple(test[i - order : i]))
            if seen:
                n = sum(seen.values())
                p = (seen[test[i]] + len(seen) * p) / (n + len(seen))
        total -= math.log(p)
    return math.exp(total / (len(test) - 2))


def rotations() -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the angles of every place, for half a head."""
    angles = np.arange(CONTEXT)[:, None] * 10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def weights_of(experts: bool) -> Path:
    """The file of trained weights."""
    return FOLDER / ("decoder_experts.npz" if experts else "decoder.npz")


@dataclass(frozen=True)
class Weights:
    """The trained parameters by name, and the characters that they are about."""

    arrays: Mapping[str, np.ndarray]
    alphabet: str
    experts: bool


def load(experts: bool) -> Weights:
    """Read the trained weights."""
    with np.load(weights_of(experts)) as file:
        arrays = {name: file[name] for name in file.files}
    known = str(arrays.pop("alphabet"))
    return Weights({k: v.astype(np.float32) for k, v in arrays.items()}, known, experts)


def build(weights: Weights, tokens: int, every: bool = False) -> fg.Graph:
    """The graph that takes `tokens` characters behind those that its caches hold.

    Parameters
    ----------
    weights : Weights
        Only names and shapes are read.
    tokens : int
    every : bool
        Whether the output has a row for each character, or one for the last.
    """
    ops = fg.ops
    g = fg.Graph("decoder")
    ids = g.input("ids", (tokens,), "int64")
    # How many characters are in the caches: the place of the first new one.
    past = g.input("past", (), "int64")
    # Behind the last character of a prompt that is shorter than the graph nothing counts.
    last = None if every else g.input("last", (1,), "int64")
    place = past + np.arange(tokens)
    seen = np.arange(CONTEXT) <= place.reshape(tokens, 1)
    cos, sin = rotations()

    def weight(name: str) -> fg.Value:
        return g.param(name, weights.arrays[name].shape)

    def heads(x: fg.Value) -> fg.Value:
        return x.reshape(1, tokens, -1, HEAD).transpose(0, 2, 1, 3)

    embedding = weight("embedding")
    x = ops.take(embedding, ids, axis=0)
    for i in range(LAYERS):
        own = f"layer.{i}"
        n = ops.rms_norm(x, weight(f"{own}.attention_norm"), eps=EPS)
        q, k = (
            ops.rotary_embedding(heads(n @ weight(f"{own}.{part}")), cos, sin, place.reshape(1, -1))
            for part in ("query", "key")
        )
        v = heads(n @ weight(f"{own}.value"))
        both = []
        for part, new in (("keys", k), ("values", v)):
            rows = new.transpose(0, 2, 1, 3).reshape(tokens, KV_HEADS, HEAD)
            cache = g.input(f"{part}.{i}", (CONTEXT, KV_HEADS, HEAD))
            # Fed to the cache, this is computed where the cache is: only new rows are written.
            cache = g.output(
                ops.scatter_nd(cache, place.reshape(tokens, 1), rows), f"next {part}.{i}"
            )
            both.append(cache.transpose(1, 0, 2).reshape(1, KV_HEADS, CONTEXT, HEAD))
        mixed = ops.attention(q, *both, seen).transpose(0, 2, 1, 3).reshape(tokens, HEADS * HEAD)
        x = x + mixed @ weight(f"{own}.output")
        n = ops.rms_norm(x, weight(f"{own}.mlp_norm"), eps=EPS)
        x = x + (experts if weights.experts else perceptron)(n, own, weight)
    if last is not None:
        x = ops.take(x, last, axis=0)
    x = ops.rms_norm(x, weight("norm"), eps=EPS)
    g.output(x @ embedding.T, "logits")
    return g


def perceptron(x: fg.Value, own: str, weight: Callable[[str], fg.Value]) -> fg.Value:
    """Gate and widen, then narrow."""
    inner = fg.ops.silu(x @ weight(f"{own}.gate")) * (x @ weight(f"{own}.up"))
    return inner @ weight(f"{own}.down")


def experts(x: fg.Value, own: str, weight: Callable[[str], fg.Value]) -> fg.Value:
    """The same by the `TOP` experts that the router picks for each character."""
    ops, tokens = fg.ops, x.shape[0]
    scores = ops.softmax(x @ weight(f"{own}.router"))
    best, ids = ops.top_k(scores, TOP)
    share = best / ops.sum(best, axis=1, keepdims=True)
    rows = ops.broadcast_to(x.reshape(tokens, 1, WIDTH), (tokens, TOP, WIDTH)).reshape(-1, WIDTH)
    each = ids.reshape(-1)
    gate, up = (ops.grouped_matmul(rows, weight(f"{own}.{part}"), each) for part in ("gate", "up"))
    out = ops.grouped_matmul(ops.silu(gate) * up, weight(f"{own}.down"), each)
    return ops.sum(out.reshape(tokens, TOP, WIDTH) * share.reshape(tokens, TOP, 1), axis=1)


class Decoder:
    """The model on a device: caches, and a compiled graph for each number of characters at once."""

    def __init__(self, weights: Weights, device: str = "cpu", threads: int | None = None) -> None:
        self.weights = weights
        self.session = fg.Session(device, threads=threads)
        # Parameters are held once for all of them.
        self.graphs = fg.BucketedCompileCache(device, sizes=SIZES, threads=threads)
        self.graphs.set_params(weights.arrays)
        shape = (CONTEXT, KV_HEADS, HEAD)
        self.caches = {
            f"{part}.{i}": self.session.context.create_buffer(shape, "float32")
            for part in ("keys", "values")
            for i in range(LAYERS)
        }
        self.models: dict[int, fg.CompiledGraph] = {}
        self.past = 0

    def model(self, tokens: int) -> fg.CompiledGraph:
        """The graph for so many characters, one of `SIZES`, over the caches that all share."""
        if tokens not in self.models:
            _, model = self.graphs.get_or_compile(tokens, partial(build, self.weights))
            for name, cache in self.caches.items():
                model.bind_gpu_handle(name, cache)
                model.set_gpu_handle_feed(name, f"next {name}")
            self.models[tokens] = model
        return self.models[tokens]

    def read(self, ids: np.ndarray) -> np.ndarray:
        """Take characters behind those read before; the logits of the one that follows."""
        while len(ids):
            left = CONTEXT - self.past
            if not left:
                raise ValueError(f"the context of {CONTEXT} characters is full")
            fitting = [size for size in SIZES if size <= left]
            size = next((size for size in fitting if size >= len(ids)), fitting[-1])
            now, ids = ids[:size], ids[size:]
            padded = np.zeros(size, np.int64)
            padded[: len(now)] = now
            # What padding leaves in the caches is behind their end, and overwritten next.
            model = self.model(size)
            model.run_slots([padded, np.array(self.past), np.array([len(now) - 1])])
            self.past += len(now)
        return model.output_view(len(model.outputs) - 1)[0].copy()

    def write(
        self, prompt: str, characters: int, temperature: float = 0.0, seed: int = 0
    ) -> Iterator[str]:
        """Characters that follow a prompt; the likeliest ones at temperature 0."""
        chance = np.random.default_rng(seed)
        alphabet = self.weights.alphabet
        text = encode(prompt, alphabet)[-CONTEXT // 2 :].tolist()
        self.past = 0
        logits = self.read(np.array(text))
        for _ in range(characters):
            if temperature:
                p = np.exp((logits - logits.max()).astype(np.float64) / temperature)
                number = int(chance.choice(len(p), p=p / p.sum()))
            else:
                number = int(logits.argmax())
            yield alphabet[number]
            text.append(number)
            if self.past == CONTEXT:
                # Begin again with what was last.
                self.past, text = 0, text[-CONTEXT // 2 :]
                logits = self.read(np.array(text))
            else:
                logits = self.read(np.array([number]))

    def perplexity(self, text: str) -> float:
        """How many characters the model wavers between, in windows of the context."""
        ids = encode(text, self.weights.alphabet)
        model = self.session.compile(build(self.weights, CONTEXT, every=True))
        model.set_params({info.name: self.weights.arrays[info.name] for info in model.params})
        empty = {name: np.zeros((CONTEXT, KV_HEADS, HEAD), np.float32) for name in self.caches}
        total, windows = 0.0, (len(ids) - 1) // CONTEXT
        for start in range(0, windows * CONTEXT, CONTEXT):
            now, wanted = ids[start : start + CONTEXT], ids[start + 1 : start + CONTEXT + 1]
            *_, logits = model.run({"ids": now, "past": np.array(0), **empty})
            wide = logits.astype(np.float64)
            wide -= wide.max(axis=1, keepdims=True)
            chosen = wide[np.arange(CONTEXT), wanted]
            total += float(np.sum(np.log(np.sum(np.exp(wide), axis=1)) - chosen))
        return math.exp(total / (windows * CONTEXT))


def main() -> None:
    """Say how good the model is, and let it write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--prompt", default='The "for" statement is used to ')
    parser.add_argument("--characters", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.5)
    given = parser.parse_args()
    decoder = Decoder(load(given.experts), given.device)
    train, held_out = texts()
    print(f"held-out perplexity {decoder.perplexity(held_out):.3f}", end="")
    print(f" ({trigram(train, held_out):.3f} for a 3-gram model)")
    print(given.prompt, end="", flush=True)
    began, count = time.perf_counter(), 0
    for character in decoder.write(given.prompt, given.characters, given.temperature):
        print(character, end="", flush=True)
        count += 1
    print(f"\n{count / (time.perf_counter() - began):.0f} characters a second")


if __name__ == "__main__":
    main()
