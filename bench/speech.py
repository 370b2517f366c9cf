"""A step of Silero VAD: what is computed, the same for every contender."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import fastgraph as fg
from examples import vad
from fastgraph.ir import reference

__all__ = ["DIMS", "NAMES", "OUTPUTS", "Step", "joined"]

Array = np.ndarray[Any, Any]

DIMS = {"sequence_length": 1}
NAMES, OUTPUTS = ("input", "h", "c"), ("speech_probs", "hn", "cn")


@cache
def frames() -> list[Array]:
    """Frames of a voice that is made up."""
    return list(vad.frames(vad.made_up(1.0)))


@cache
def graph() -> fg.Graph:
    """The model as it was read."""
    return fg.onnx.load(vad.model_file(), dims=DIMS)


def joined(results: Any) -> Array:
    """Probability and state as one array."""
    return np.concatenate([np.ravel(one) for one in results])


class Step:
    """One step of one stream: a frame and the state before it."""

    def spec(self, **more: Any) -> dict[str, Any]:
        """What a contender is told."""
        return {"workload": "speech", **more}

    def inputs(self, seed: int) -> list[Array]:
        """A frame of a voice, and a state as the model has them; others for every seed."""
        random = np.random.default_rng(seed)
        states = [np.tanh(random.normal(size=vad.STATE)).astype("f4") for _ in "hc"]
        return [frames()[3 + seed % 20].copy(), *states]

    def reference(self, inputs: list[Array]) -> Array:
        """Probability and state in plain NumPy, sums in double precision."""
        found = reference.evaluate(graph(), dict(zip(NAMES, inputs, strict=True)))
        return joined([found[name] for name in OUTPUTS])
