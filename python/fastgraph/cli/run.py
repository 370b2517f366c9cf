"""``fastgraph run``: a user's own ONNX model on arrays from files."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fastgraph.cli.failure import Failure, running
from fastgraph.cli.peers import OnnxRuntimeModel, has_onnx_runtime, onnx_runtime_version
from fastgraph.cli.report import latency_rows, measure, memory_line, place, slowest_rows
from fastgraph.onnx.importer import DeclaredInput, declared_inputs, from_read
from fastgraph.onnx.proto import read_model
from fastgraph.onnx.registry import SUPPORTED_NAMES
from fastgraph.runtime.compiled import CompiledGraph
from fastgraph.runtime.session import Session

__all__ = ["command"]

Array = np.ndarray[Any, Any]

TIMED_SECONDS = 1.0
MOST_CALLS = 1000
PROFILED_RUNS = 20


def command(arguments: argparse.Namespace) -> None:
    """Load, run once, write, time."""
    path: Path = arguments.model
    if arguments.output is not None:
        _check_folder(arguments.output)
    session = Session(arguments.device, threads=arguments.threads)
    parsed = read_model(path)
    declared = declared_inputs(parsed.message)
    arrays = _read_inputs(arguments.inputs, declared, path)
    shapes = {
        want.name: arrays[want.name].shape
        for want in declared
        if want.dims is None or not all(isinstance(dim, int) for dim in want.dims)
    }
    graph = from_read(parsed, _dims(arguments.dims), shapes, title=f"the model '{path}'")
    model = session.compile(graph)
    with running():
        start = perf_counter()
        outputs = model.run(arrays)
        seconds = perf_counter() - start
    print(repr(model))
    for info, array in zip(model.outputs, outputs, strict=True):
        print(f"output {info}{_range(array)}")
    if arguments.output is not None:
        _write(arguments.output, [info.name for info in model.outputs], outputs)
    repeat = arguments.repeat or min(max(int(TIMED_SECONDS / max(seconds, 1e-9)), 10), MOST_CALLS)
    with running():
        _print_times(model, path, arrays, outputs, repeat)


def _dims(given: list[tuple[str, int]]) -> dict[str, int]:
    dims = dict(given)
    if len(dims) < len(given):
        raise Failure("a dimension is given twice by --dim")
    return dims


def _read_inputs(
    given: list[tuple[str, Path]], declared: list[DeclaredInput], model: Path
) -> dict[str, Array]:
    names = [name for name, _ in given]
    wanted = [want.name for want in declared]
    needs = f"{model} needs" + "".join(
        f"\n  --input {want.name}=FILE.npy  {want}" for want in declared
    )
    for name in names:
        if name not in wanted:
            raise Failure(f"{name!r} is no input of the model; {needs}")
        if names.count(name) > 1:
            raise Failure(f"input {name!r} is given twice")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise Failure(f"no --input given for {', '.join(map(repr, missing))}; {needs}")
    files = dict(given)
    return {want.name: _read_array(want, files[want.name]) for want in declared}


def _read_array(want: DeclaredInput, file: Path) -> Array:
    name = want.name
    try:
        with file.open("rb") as opened:  # which NumPy leaves open where it fails
            array = np.load(opened, allow_pickle=False)
    except OSError as error:
        raise Failure(f"input {name!r}: {file} cannot be read: {error.strerror}") from error
    # NumPy takes what it does not know for a pickle, and its message advises to load that.
    except (ValueError, EOFError, MemoryError, BadZipFile) as error:
        raise Failure(f"input {name!r}: {file} is no .npy file of numbers") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise Failure(f"input {name!r}: {file} holds several arrays; save one with numpy.save")
    if not _fits(array, want):
        held = f"{array.dtype}{list(array.shape)}"
        raise Failure(f"input {name!r}: {file} holds {held}, but the model needs {want}")
    return array


def _fits(array: Array, want: DeclaredInput) -> bool:
    """Whether the array has the dtype, the rank and the sizes that the model declares."""
    # An input of any other dtype is refused with the model, for a better reason.
    if want.dtype in SUPPORTED_NAMES and array.dtype != np.dtype(want.dtype):
        return False
    return want.dims is None or (
        len(want.dims) == array.ndim
        and all(
            not isinstance(dim, int) or dim == size
            for dim, size in zip(want.dims, array.shape, strict=True)
        )
    )


def _range(array: Array) -> str:
    if array.size == 0:
        return ", empty"
    low, high = array.min(), array.max()
    return f", from {low:.6g} to {high:.6g}" if array.dtype.kind == "f" else f", {low} to {high}"


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be made or written to before time is spent; makes nothing."""
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise Failure(f"--output {folder}: {error.strerror}") from error
    if not there.is_dir():
        raise Failure(f"--output {folder}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Failure(f"--output {folder}: {there} cannot be written to")


def _write(folder: Path, names: list[str], outputs: tuple[Array, ...]) -> None:
    try:
        _save(folder, names, outputs)
    except OSError as error:
        raise Failure(f"--output {folder}: {error.strerror or error}") from error


def _save(folder: Path, names: list[str], outputs: tuple[Array, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for index, (name, array) in enumerate(zip(names, outputs, strict=True)):
        # A tensor's name may hold "/" or "..": it must not choose the folder.
        stem = re.sub(r"[^\w.-]+", "_", name).strip(".") or f"output{index}"
        if stem in taken:
            stem = f"{stem}_{index}"
        taken.add(stem)
        np.save(folder / f"{stem}.npy", array)
        print(f"wrote {folder / stem}.npy")


def _print_times(
    model: CompiledGraph,
    path: Path,
    arrays: Mapping[str, Array],
    outputs: tuple[Array, ...],
    repeat: int,
) -> None:
    dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    filled = {info.name: np.empty(info.shape, info.dtype) for info in model.outputs}
    step, in_order = model.bind(dense, filled), list(dense.values())
    calls = {
        "fastgraph run": lambda _: model.run(arrays),
        "fastgraph run_slots": lambda _: model.run_slots(in_order),
        "fastgraph bind": lambda _: step(),
    }
    note = "(ONNX Runtime is not installed: pip install onnxruntime)"
    if has_onnx_runtime():
        try:
            wanted = [(info.name, info.shape, info.dtype) for info in model.outputs]
            # The file itself is read again, so that external data are found beside it.
            other = OnnxRuntimeModel(str(path), model.threads, dense, wanted)
            other.run()
        except Exception as error:  # its exceptions share no base class
            note = f"(ONNX Runtime does not run this model: {str(error).splitlines()[0]})"
        else:
            calls[f"ONNX Runtime {onnx_runtime_version()}, bound"] = lambda _: other.run()
            differences = [_difference(a, b) for a, b in zip(outputs, other.outputs, strict=True)]
            note = f"largest difference from ONNX Runtime: {max(differences, default=0):.1e}"
    rounds = min(repeat, 10)
    measured = measure(calls, range(-(-repeat // rounds)), rounds)
    print(f"\nlatency of one run, {place(model, model.threads)}")
    print(latency_rows(measured))
    print(f"  {note}")
    print(f"\n{memory_line(model)}")
    print("\nthe five slowest nodes")
    print(slowest_rows(model, arrays, min(repeat, PROFILED_RUNS)))


def _difference(ours: Array, theirs: Array) -> float:
    if ours.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    return float(np.where(same, 0.0, apart).max())
