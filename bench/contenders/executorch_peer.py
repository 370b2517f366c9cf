"""ExecuTorch with its XNNPACK back end."""

from __future__ import annotations

from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib
from executorch.runtime import Runtime

from bench.contenders.torch_layers import module_and_input
from bench.timing import Call

__all__ = ["build"]


def build(spec: dict[str, Any]) -> Call:
    """A method exported, lowered and loaded."""
    portable_lib._unsafe_reset_threadpool(spec["threads"])
    module, x = module_and_input(spec)
    tensor = torch.from_numpy(x)
    exported = torch.export.export(module, (tensor,))
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = Runtime.get().load_program(lowered.to_executorch().buffer)
    method = program.load_method("forward")
    kept: list[torch.Tensor] = []
    names = {"execute": method.execute, "inputs": (tensor,), "kept": kept, "owner": program}
    note = f"{portable_lib._threadpool_get_thread_count()} threads"
    return Call("kept[:] = execute(inputs)", names, [x], lambda: kept[0].numpy(), note)
