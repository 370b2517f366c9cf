"""``fastgraph demo``: a trained classifier over images that it has never seen."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np

from fastgraph import onnx
from fastgraph.cli.failure import Failure, running
from fastgraph.cli.peers import (
    OnnxRuntimeModel,
    has_onnx_runtime,
    numpy_digits,
    onnx_runtime_version,
)
from fastgraph.cli.report import latency_rows, measure, memory_line, place, slowest_rows
from fastgraph.runtime.compiled import CompiledGraph
from fastgraph.runtime.session import Session

__all__ = ["command"]

Array = np.ndarray[Any, Any]

ROUNDS = 20
PROFILED_RUNS = 200
AGREEMENT = 1e-4


def command(arguments: argparse.Namespace) -> None:
    """Classify, compare, time."""
    data = files("fastgraph") / "data"
    file = (data / "digits.onnx").read_bytes()
    with (data / "digits_test.npz").open("rb") as stream, np.load(stream) as held_out:
        pixels, labels = held_out["images"], held_out["labels"]
    images = [image.reshape(1, 64).astype(np.float32) for image in pixels]
    threads: int = arguments.threads

    graph = onnx.load(file, dims={"N": 1})
    model = Session(arguments.device, threads=threads).compile(graph)
    weights = {value.name: value.node.attrs["initial"] for value in graph.params}
    with running():
        found = _classified(model, images)
        print(f"{len(images)} held-out digits, one at a time by run_slots: {model!r}")
        _print_quality(found.argmax(axis=1), labels)
        calls = _own_calls(model, images[0])
        peers = _peer_calls(model, file, weights, threads, images[0])
        for name, (call, result) in peers.items():
            _check_agreement(name, call, result, images, found)
        calls.update({name: call for name, (call, _) in peers.items()})
        measured = measure(calls, images, ROUNDS)
        print(f"\nlatency of one image, {place(model, threads)}")
        print(latency_rows(measured))
        if not has_onnx_runtime():
            print("  (ONNX Runtime is not installed: pip install onnxruntime)")
        print(f"\n{memory_line(model)}")
        print("\nthe five slowest nodes")
        print(slowest_rows(model, {"image": images[0]}, PROFILED_RUNS))


def _classified(model: CompiledGraph, images: list[Array]) -> Array:
    """Probabilities of all images."""
    view = model.output_view(0)
    found = np.empty((len(images), view.shape[-1]), view.dtype)
    for row, image in zip(found, images, strict=True):
        model.run_slots([image])
        row[:] = view[0]
    return found


def _print_quality(predicted: Array, labels: Array) -> None:
    confusion = np.zeros((10, 10), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    right = int(np.trace(confusion))
    print(f"accuracy {right / len(labels):.3f}")
    wrong = confusion - np.diag(np.diag(confusion))
    if wrong.any():
        true, taken = np.unravel_index(int(wrong.argmax()), wrong.shape)
        print(
            f"worst confusion: {true} taken for {taken}, {wrong[true, taken]} of "
            f"{confusion[true].sum()} times; {len(labels) - right} of {len(labels)} wrong in all"
        )
    else:
        print("worst confusion: none")


def _own_calls(model: CompiledGraph, image: Array) -> dict[str, Callable[[Array], object]]:
    fixed, filled = image.copy(), np.empty((1, 10), np.float32)
    step = model.bind({"image": fixed}, {"probabilities": filled})

    def bound(image: Array) -> None:
        fixed[...] = image
        step()

    return {
        "fastgraph run": lambda image: model.run({"image": image}),
        "fastgraph run_slots": lambda image: model.run_slots([image]),
        "fastgraph bind": bound,
    }


def _peer_calls(
    model: CompiledGraph, file: bytes, weights: dict[str, Array], threads: int, image: Array
) -> dict[str, tuple[Callable[[Array], object], Callable[[object], Array]]]:
    """By name: the call to time, and how to read its result."""
    peers: dict[str, tuple[Callable[[Array], object], Callable[[object], Array]]] = {
        f"NumPy {np.__version__}": (numpy_digits(weights), np.asarray)
    }
    if has_onnx_runtime():
        outputs = [(t.name, t.shape, t.dtype) for t in model.outputs]
        other = OnnxRuntimeModel(file, threads, {"image": image}, outputs)

        def bound(image: Array) -> None:
            other.inputs[0][...] = image
            other.run()

        name = f"ONNX Runtime {onnx_runtime_version()}, bound"
        peers[name] = (bound, lambda _: other.outputs[0])
    return peers


def _check_agreement(
    name: str,
    call: Callable[[Array], object],
    result: Callable[[object], Array],
    images: list[Array],
    found: Array,
) -> None:
    """A time counts only if the answers are the same."""
    worst = max(
        float(np.abs(result(call(image)) - row).max())
        for image, row in zip(images, found, strict=True)
    )
    if not worst <= AGREEMENT:
        raise Failure(f"{name} differs by {worst:.2g} in a probability; {AGREEMENT} is allowed", 1)
    print(f"largest difference from {name}: {worst:.1e}")
