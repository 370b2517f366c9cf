"""The same work done by others: NumPy, and ONNX Runtime where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

__all__ = ["OnnxRuntimeModel", "has_onnx_runtime", "numpy_digits", "onnx_runtime_version"]

Array = np.ndarray[Any, Any]


def has_onnx_runtime() -> bool:
    """Whether ONNX Runtime is installed."""
    return onnxruntime is not None


def onnx_runtime_version() -> str:
    """ONNX Runtime's version."""
    return str(onnxruntime.__version__)


class OnnxRuntimeModel:
    """A model in ONNX Runtime with inputs and outputs bound to fixed arrays, as it runs fastest.

    Attributes
    ----------
    inputs, outputs : list of numpy.ndarray
        What `run` reads and fills.
    """

    def __init__(
        self,
        model: bytes | str,
        threads: int,
        inputs: Mapping[str, Array],
        outputs: Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]],
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what it would say is not about what is measured
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        self.inputs = [np.ascontiguousarray(array).copy() for array in inputs.values()]
        self.outputs = [np.empty(shape, dtype) for _, shape, dtype in outputs]
        # These values lie in the arrays' own memory.
        as_value = onnxruntime.OrtValue.ortvalue_from_numpy
        for name, array in zip(inputs, self.inputs, strict=True):
            self._binding.bind_ortvalue_input(name, as_value(array))
        for (name, _, _), array in zip(outputs, self.outputs, strict=True):
            self._binding.bind_ortvalue_output(name, as_value(array))

    def run(self) -> None:
        """Fill the outputs from the inputs."""
        self._session.run_with_iobinding(self._binding)


def numpy_digits(params: Mapping[str, Array]) -> Callable[[Array], Array]:
    """The digit classifier as one writes it in NumPy: an image in, probabilities out."""
    n_layers = len(params) // 2
    weights = [np.ascontiguousarray(params[f"fc{i}.weight"].T) for i in range(n_layers)]
    biases = [params[f"fc{i}.bias"] for i in range(n_layers)]

    def classify(image: Array) -> Array:
        x = image * np.float32(1 / 16)
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = x @ weight
            x += bias
            if layer + 1 < n_layers:
                x = _gelu(x)
        x -= x.max(axis=-1, keepdims=True)
        np.exp(x, out=x)
        x /= x.sum(axis=-1, keepdims=True)
        return x

    return classify


def _gelu(x: Array) -> Array:
    """Exact GELU; NumPy has no erf, so by Abramowitz and Stegun 7.1.26 (1.5e-7)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = t * np.float32(1.061405429)
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(term)
        tail *= t
    tail *= np.exp(-z * z)
    gelu: Array = 0.5 * x * (1 + np.copysign(1 - tail, x))
    return gelu
