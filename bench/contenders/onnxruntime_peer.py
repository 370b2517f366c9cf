"""ONNX Runtime with what its documentation advises: bound inputs and outputs, all optimisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from bench import speech
from bench.decode_case import Step, caches
from bench.decode_models import caches_of, decode_model
from bench.encoder import Sentence
from bench.encoder_models import encoder_model
from bench.onnx_models import add_model, layers_model
from bench.timing import Call
from bench.workloads import Layers
from examples import vad

__all__ = ["build", "compile_model"]


def session(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session on the cpu."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = True
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def build(spec: dict[str, Any]) -> Call:
    """A session run on bound values (``how: bound``) or by names (``how: run``)."""
    if spec["workload"] == "add":
        model = add_model()
    elif spec["workload"] == "encoder":
        model = encoder_model(Sentence.of(spec), fused=spec["fused"])
    elif spec["workload"] == "speech":
        return step_of(spec)
    elif spec["workload"] == "decode":
        model = decode_model(Step.of(spec), fused=spec["fused"])
    else:
        model = layers_model(Layers.of(spec), spec["gelu"])
    made = session(model, spec["threads"])
    given = made.get_inputs()[0]
    x = np.zeros(given.shape, np.int64 if given.type == "tensor(int64)" else np.float32)
    y = np.zeros(made.get_outputs()[0].shape, np.float32)
    if spec["how"] == "run":
        kept: list[np.ndarray[Any, Any]] = []
        names = {"run": made.run, "names": ["y"], "inputs": {given.name: x}, "kept": kept}
        return Call("kept[:] = run(names, inputs)", names, [x], lambda: kept[0])
    binding = made.io_binding()
    # These values lie in the arrays' own memory.
    binding.bind_ortvalue_input(given.name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(y))
    if spec["workload"] == "decode":
        bind_caches(binding, Step.of(spec), spec["fused"])
    names = {"run": made.run_with_iobinding, "binding": binding}
    return Call("run(binding)", names, [x], lambda: y)


def step_of(spec: dict[str, Any]) -> Call:
    """A step of Silero VAD, which has several inputs and outputs."""
    made = session(vad.model_file().read_bytes(), spec["threads"])
    arrays = speech.Step().inputs(0)
    if spec["how"] == "run":
        kept: list[np.ndarray[Any, Any]] = []
        given = dict(zip(speech.NAMES, arrays, strict=True))
        names = {"run": made.run, "names": speech.OUTPUTS, "inputs": given, "kept": kept}
        line = "kept[:] = run(names, inputs)"
        return Call(line, names, arrays, lambda: speech.joined(kept))
    binding = made.io_binding()
    results = [np.zeros(shape, np.float32) for shape in ((1,), vad.STATE, vad.STATE)]
    for name, array in zip(speech.NAMES, arrays, strict=True):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for name, array in zip(speech.OUTPUTS, results, strict=True):
        binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    names = {"run": made.run_with_iobinding, "binding": binding}
    return Call("run(binding)", names, arrays, lambda: speech.joined(results))


def bind_caches(binding: Any, step: Step, fused: bool) -> None:
    """Let a step read full caches; the fused operator writes them where they are."""
    before, after = caches_of(step, fused=fused)
    for i, both in enumerate(caches(step.past)):
        for part, array in zip(("keys", "values"), both, strict=True):
            old = np.ascontiguousarray(array[:before].transpose(1, 0, 2)[None])
            new = old if fused else np.zeros((1, old.shape[1], after, old.shape[3]), np.float32)
            value = onnxruntime.OrtValue.ortvalue_from_numpy
            binding.bind_ortvalue_input(f"{part}.{i}", value(old))
            binding.bind_ortvalue_output(f"new {part}.{i}", value(new))


def compile_model(model: bytes, x: np.ndarray[Any, Any], threads: int) -> np.ndarray[Any, Any]:
    """Make a session and run it once."""
    return np.array(session(model, threads).run(["y"], {"x": x})[0])
