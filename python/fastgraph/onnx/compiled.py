"""From an ONNX file to a compiled graph in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastgraph.onnx import importer
from fastgraph.runtime.compiled import CompiledGraph
from fastgraph.runtime.session import CompileOptions, Session

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["load"]


def load(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview,
    device: str = "cpu",
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    threads: int | None = None,
    options: CompileOptions | None = None,
) -> CompiledGraph:
    """Read an ONNX model and compile it.

    Parameters
    ----------
    model : path or bytes
        An ``.onnx`` file or its contents; external data are found beside a file.
    device : str, default "cpu"
        As `DeviceContext` takes it.
    dims : mapping of str to int, optional
        Sizes of the model's symbolic dimensions. `CompiledGraph.set_active_extent` knows them by
        these names.
    shapes : mapping of str to tuple of int, optional
        Whole shapes of inputs, by name.
    values : mapping of str to array or number, optional
        Of inputs that are the same in every run, by name: they become constants, and what depends
        on them alone is computed now. Arrays have the declared dtype; numbers fit it.
    threads : int, optional
        As `Session` takes it.
    options : CompileOptions, optional
        As `Session.compile` takes it.

    Returns
    -------
    CompiledGraph
        Its parameters are the model's initialisers, set, under their own names; those that a
        shape, axis or bound needs are constants.

    Raises
    ------
    CompileError
        The file is damaged, or holds what is not supported: every such operator, dtype and
        unbound dimension is listed.
    InputError
        `model` is neither a path nor bytes, `dims`, `shapes` or `values` do not fit the model, or
        `threads` is no possible number.
    UnsupportedError
        The ``onnx`` package is not installed, or the device is not in this build.

    Examples
    --------
    >>> from importlib.resources import files
    >>> import numpy as np
    >>> import fastgraph as fg
    >>> data = files("fastgraph") / "data"
    >>> model = fg.load((data / "digits.onnx").read_bytes(), dims={"N": 1})
    >>> with np.load(data / "digits_test.npz") as held_out:
    ...     image, label = held_out["images"][0], held_out["labels"][0]
    >>> (probabilities,) = model.run({"image": image.reshape(1, 64).astype("f4")})
    >>> bool(probabilities.argmax() == label)
    True
    """
    # Refuse a device or a number of threads before the time is spent on reading.
    session = Session(device, threads=threads)
    graph = importer.load(model, dims, shapes, values)
    graph.spent = True  # Nobody else knows it.
    return session.compile(graph, options)
