"""OpenVINO with its latency hint, run on tensors that share the arrays' memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino

from bench.encoder import WIDTH, Sentence
from bench.encoder_models import encoder_model
from bench.onnx_models import layers_model
from bench.timing import Call
from bench.workloads import Layers

__all__ = ["build"]


def build(spec: dict[str, Any]) -> Call:
    """A compiled model's infer request on fixed tensors."""
    core = openvino.Core()
    if spec["workload"] == "encoder":
        sentence = Sentence.of(spec)
        model = encoder_model(sentence)
        x = np.zeros((1, sentence.tokens), np.int64)
        y = np.zeros((1, WIDTH), np.float32)
    else:
        layers = Layers.of(spec)
        model = layers_model(layers)
        x = np.zeros((layers.rows, layers.sizes[0]), np.float32)
        y = np.zeros((layers.rows, layers.sizes[-1]), np.float32)
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": spec["threads"],
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    request.set_output_tensor(openvino.Tensor(y, shared_memory=True))

    def run() -> None:
        request.start_async()
        request.wait()

    return Call("run()", {"run": run}, [x], lambda: y)
