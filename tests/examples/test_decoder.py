"""The decoder from `examples`: character by character as plain NumPy computes it."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from bench.decode_case import Plain, seeded_weights
from examples import decoder
from examples.decoder import CONTEXT, HEAD, KV_HEADS

TOLERANCE = 2e-4


def whole(weights, ids, device="cpu"):
    """The logits of all characters, by one graph with empty caches."""
    model = fg.Session(device).compile(decoder.build(weights, len(ids), every=True))
    model.set_params({info.name: weights.arrays[info.name] for info in model.params})
    empty = np.zeros((CONTEXT, KV_HEADS, HEAD), "f4")
    inputs = {info.name: empty for info in model.inputs}
    return model.run(inputs | {"ids": ids, "past": np.array(0)})[-1]


@pytest.mark.parametrize("experts", [False, True])
def test_all_at_once_is_one_by_one(experts):
    weights = seeded_weights(experts)
    ids = np.random.default_rng(3).integers(0, len(weights.alphabet), 24)
    plain = Plain(weights)
    wanted = [plain.read(i) for i in ids]
    np.testing.assert_allclose(whole(weights, ids), wanted, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("experts", [False, True])
def test_every_step_over_the_caches(device, experts):
    weights, plain = seeded_weights(experts), Plain(seeded_weights(experts))
    made = decoder.Decoder(weights, device)
    chance = np.random.default_rng(5)
    # A prompt that needs padding, one that fits, single characters.
    for count in (5, 8, 1, 1, 1, 11, 1) if device == "cpu" else (3, 1, 1):
        ids = chance.integers(0, len(weights.alphabet), count)
        found = made.read(ids)
        wanted = [plain.read(i) for i in ids][-1]
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("experts", [False, True])
def test_it_is_trained(experts):
    made = decoder.Decoder(decoder.load(experts))
    train, held_out = decoder.texts()
    assert made.perplexity(held_out) < 0.7 * decoder.trigram(train, held_out)


def test_it_writes():
    made = decoder.Decoder(decoder.load(experts=False))
    plain = Plain(made.weights)
    prompt = "The statement is used "
    logits = [plain.read(i) for i in decoder.encode(prompt, made.weights.alphabet)][-1]
    for character in made.write(prompt, 40):
        number = int(logits.argmax())
        assert character == made.weights.alphabet[number]
        logits = plain.read(number)


def test_it_goes_on_past_its_context():
    made = decoder.Decoder(decoder.load(experts=False))
    text = "".join(made.write("x" * (CONTEXT - 3), CONTEXT // 2 + 10, temperature=0.8, seed=1))
    assert len(text) == CONTEXT // 2 + 10
    assert 0 < made.past < CONTEXT
