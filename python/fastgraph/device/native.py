"""Functions on the cpu: what a node of one does, from the arguments of its launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastgraph._core.record import PythonCall
from fastgraph.device.arguments import bind_arguments, take_arguments
from fastgraph.device.backend import LaunchOptions, LaunchSpec, PlaceMaker
from fastgraph.device.function import NativeKernel
from fastgraph.device.kernel import Declared, body_of
from fastgraph.device.pending import Access, Scalar, Work
from fastgraph.device.values import check_dims, word
from fastgraph.errors import InputError, UnsupportedError

__all__ = ["function_work"]

# What of a launch's options counts on the cpu.
SIZES = ("grid_dim", "block_dim")


def function_work(place: PlaceMaker, f: Any, args: tuple[Any, ...], options: LaunchOptions) -> Work:
    """The call of a function."""
    if (
        options.cluster_dim is not None
        or options.shared_mem_bytes
        or options.cooperative
        or options.constant_memory
    ):
        raise UnsupportedError(
            "the cpu has no clusters, shared memory, constant memory or cooperative launches"
        )
    name, body = body_of(f, "cpu")
    grid = check_dims("grid_dim", options.grid_dim)
    block = check_dims("block_dim", options.block_dim)
    spec = LaunchSpec(f, args, options, SIZES)
    if type(body) is NativeKernel and body.convention == "array":
        plain = body.plan.array_call(args, "cpu", place, grid, block)
        if plain is not None:
            return Work(name, "function", "call_native", *plain, (f, body), None, spec)
    declared = [arg if isinstance(arg, Declared) else None for arg in args]
    bare = tuple(arg.value if isinstance(arg, Declared) else arg for arg in args)
    if isinstance(body, NativeKernel):
        return _native(place, name, body, bare, declared, (*grid, *block), (f, body), spec)
    return _python(place, name, body, bare, declared, (grid, block), spec)


def _native(
    place: PlaceMaker,
    name: str,
    f: NativeKernel,
    args: tuple[Any, ...],
    declared: list[Declared | None],
    dims: tuple[int, ...],
    keep: object,
    spec: LaunchSpec,
) -> Work:
    taken = take_arguments(name, f.parameters, args, declared, place)
    values = f.check_arguments(tuple(taken))
    accesses, bound = bind_arguments(place, name, f.parameters, values, declared)
    sources = [(b.kind, b.access if b.value is None else word(b.value)) for b in bound]
    if f.convention == "c":
        kernel, params = "call_c", _c_params(f, values, sources)
    else:
        kernel, params = "call_native", _array_params(f, dims, sources)
    return Work(name, "function", kernel, accesses, params, keep, None, spec)


def _array_params(
    f: NativeKernel, dims: tuple[int, ...], sources: list[tuple[str, int]]
) -> tuple[int, ...]:
    """The words of ``call_native``: for each argument where its value lies."""
    words = [low | high << 32 for low, high in zip(dims[::2], dims[1::2], strict=True)]
    params = [f.pointer, len(sources), *words]
    first_value = len(params) + len(sources)
    stored: list[int] = []
    for kind, number in sources:
        if kind == "value":
            params.append(first_value + len(stored))
            stored.append(number)
        else:
            params.append(-1 if kind == "pointer" else -2)
    return (*params, *stored)


def _c_params(
    f: NativeKernel, values: list[Any], sources: list[tuple[str, int]]
) -> tuple[int, ...]:
    """The words of ``call_c``: integers and pointers first, each as (source, word)."""
    ints: list[int] = []
    floats: list[int] = []
    for parameter, value, (kind, number) in zip(f.parameters, values, sources, strict=True):
        words = floats if parameter.is_floating else ints
        if kind == "pointer":
            words += (1, number)
        elif kind == "scalar":
            signed = value.dtype.kind == "i"
            words += ((16 if signed else 32) + value.dtype.itemsize, number)
        else:
            # A small integer fills its register, as its sign says.
            words += (0, int(value) if value.dtype.kind in "iub" else number)
    wrapped = [w - (1 << 64) if w >= 1 << 63 else w for w in (*ints, *floats)]
    return (f.pointer, len(ints) // 2, len(floats) // 2, *wrapped)


def _python(
    place: PlaceMaker,
    name: str,
    f: Callable[..., object],
    args: tuple[Any, ...],
    declared: list[Declared | None],
    dims: tuple[tuple[int, int, int], tuple[int, int, int]],
    spec: LaunchSpec,
) -> Work:
    arguments: list[tuple[Any, ...]] = [("value", dims[0]), ("value", dims[1])]
    accesses: list[Access] = []
    for i, (value, said) in enumerate(zip(args, declared, strict=True)):
        if isinstance(value, Scalar) and value.where == "node" and said is None:
            arguments.append(("scalar", len(accesses), value.dtype))
            accesses.append(Access(value, True, False))
        elif isinstance(value, bool | int | float | np.generic) and said is None:
            arguments.append(("value", value))
        else:
            known = said is not None or isinstance(value, Scalar)
            reads, writes = True, not isinstance(value, Scalar)
            if said is not None:
                reads, writes = said.reads, said.writes
            try:
                found = place(value, writes)
            except InputError as error:
                raise InputError(f"kernel {name!r}, argument {i}: {error}") from None
            arguments.append(("array", len(accesses), found.shape, found.dtype))
            accesses.append(Access(found, reads, writes, known))
    call = PythonCall(f, tuple(arguments))
    return Work(name, "function", None, tuple(accesses), (), f, call, spec)
