"""torch in inference mode on the cpu, eager or compiled with constant folding."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config

from bench.contenders.torch_layers import module_and_input
from bench.timing import Call

__all__ = ["build"]


def build(spec: dict[str, Any]) -> Call:
    """The module called (``how: eager``), or what ``torch.compile`` makes of it."""
    torch.set_num_threads(spec["threads"])
    module, x = module_and_input(spec)
    tensor = torch.from_numpy(x)
    # For as long as the call lives, as a server has it.
    mode = torch.inference_mode()
    mode.__enter__()
    # Frozen: weights are constants, which may be laid out anew.
    with config.patch(freezing=True):
        if spec["how"] == "compiled":
            module = torch.compile(module)
        module(tensor)
    kept: list[torch.Tensor] = []
    names = {"call": module, "x": tensor, "kept": kept, "mode": mode}
    return Call("kept[:] = (call(x),)", names, [x], lambda: kept[0].numpy())
