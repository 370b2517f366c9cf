"""The layers as a torch module, for torch itself and for ExecuTorch."""

from __future__ import annotations

import torch

from bench.workloads import Layers

__all__ = ["module_of"]


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
