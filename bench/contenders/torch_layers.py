"""The workloads as torch modules, for torch itself and for ExecuTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bench.contenders.torch_decode import Decoder
from bench.contenders.torch_encoder import encoder_of
from bench.decode_case import Step
from bench.encoder import Sentence
from bench.workloads import Layers

__all__ = ["module_and_input", "module_of"]


def module_and_input(spec: dict[str, Any]) -> tuple[torch.nn.Module, np.ndarray[Any, Any]]:
    """The module of a workload, and an array that its input lies in."""
    if spec["workload"] == "encoder":
        sentence = Sentence.of(spec)
        return encoder_of(sentence), np.zeros((1, sentence.tokens), np.int64)
    if spec["workload"] == "decode":
        return Decoder(Step.of(spec), spec["how"] == "compiled").eval(), np.zeros(1, np.int64)
    layers = Layers.of(spec)
    return module_of(layers), np.zeros((layers.rows, layers.sizes[0]), np.float32)


def module_of(layers: Layers) -> torch.nn.Module:
    """`layers` with their weights, ready for inference."""
    parts: list[torch.nn.Module] = []
    for i, (w, b) in enumerate(layers.weights()):
        linear = torch.nn.Linear(*w.shape, bias=b is not None)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w.T.copy()))
            if b is not None:
                linear.bias.copy_(torch.from_numpy(b))
        parts.append(linear)
        if i < layers.gelu_layers:
            parts.append(torch.nn.GELU())
    return torch.nn.Sequential(*parts).eval().requires_grad_(False)
