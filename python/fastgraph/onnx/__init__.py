"""ONNX models as graphs: ``load`` reads a file or bytes into an `fastgraph.Graph`.

Needs the ``onnx`` extra (``pip install "fastgraph-runtime[onnx]"``); importing this does not.
"""

from fastgraph.onnx.importer import from_model, load
from fastgraph.onnx.proto import has_onnx
from fastgraph.onnx.registry import known_operators

__all__ = ["from_model", "has_onnx", "known_operators", "load"]
