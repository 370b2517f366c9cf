"""fg.ops.kernel: a kernel of the user's as an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastgraph.device.context import DeviceContext
from fastgraph.device.function import NativeKernel
from fastgraph.device.kernel import In, Kernel, Out
from fastgraph.device.values import check_dims
from fastgraph.errors import GraphError
from fastgraph.ir.graph import Value
from fastgraph.ir.opdef import Attrs, register
from fastgraph.ir.ops.arguments import as_value, owner
from fastgraph.ir.ops.entry import public
from fastgraph.ir.ops.movement import ALL
from fastgraph.ir.types import Spec, check_dtype, check_shape

__all__ = ["UserKernel", "kernel", "with_body"]

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = tuple[int, int, int]


class UserKernel(NamedTuple):
    """What a node of `kernel` does: the attribute of this name."""

    kernel: Any
    scalars: tuple[Any, ...]
    grid_dim: Sizes
    block_dim: Sizes
    shared_mem_bytes: int


def with_body(f: Any) -> Any:
    """Return what a cpu runs: a Python callable becomes the body of a `Kernel`."""
    if isinstance(f, Kernel | NativeKernel) or not callable(f):
        return f
    return Kernel(getattr(f, "__name__", type(f).__name__), cpu=f)


def infer_kernel(inputs: Sequence[Spec], attrs: Attrs) -> list[Spec]:
    """Give what was declared: nobody can know better."""
    return list(attrs["results"])


def kernel_reference(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Run the kernel on the cpu; one without a body there has no reference."""
    user: UserKernel = attrs["user"]
    context = DeviceContext("cpu")
    outs = [context.create_buffer(shape, dtype) for shape, dtype in attrs["results"]]
    context.launch(
        with_body(user.kernel),
        *(Out(out) for out in outs),
        *(In(context.to_device(np.ascontiguousarray(array))) for array in arrays),
        *user.scalars,
        grid_dim=user.grid_dim,
        block_dim=user.block_dim,
        shared_mem_bytes=user.shared_mem_bytes,
    )
    return [out.numpy() for out in outs]


register("kernel", "user", infer_kernel, kernel_reference)


@public("own", ALL)
def kernel(
    kernel: Any,
    inputs: Sequence[Any],
    shape: Any,
    dtype: Any,
    *,
    scalars: Sequence[Any] = (),
    grid_dim: int | Sequence[int] = 1,
    block_dim: int | Sequence[int] = 1,
    shared_mem_bytes: int = 0,
) -> Any:
    """Return what a kernel of yours computes of `inputs`.

    Parameters
    ----------
    kernel : Kernel, NativeKernel, callable or function of a GPU
        Whatever `DeviceGraphBuilder.add_function` takes on the device that the graph is compiled
        for; a Python callable ``f(grid, block, *args)`` may also stand alone, for the cpu.
    inputs : sequence of Value or numpy.ndarray
        At least one Value.
    shape : tuple of int, or list of such tuples
        Of the result, or of each of several.
    dtype : dtype, or list of dtypes
        Of the result; one for all results, or one for each.
    scalars : sequence of numbers
        Passed by value.
    grid_dim, block_dim, shared_mem_bytes
        How it is launched, as for `DeviceGraphBuilder.add_function`.

    Returns
    -------
    Value or tuple of Value
        A tuple where `shape` is a list of tuples.

    Raises
    ------
    GraphError
        For shapes, dtypes or sizes that there are not. What only a device can know, such as the
        types of the parameters, raises CompileError or UnsupportedError when the graph is compiled.

    Notes
    -----
    The arguments are: every output, every input, every scalar, in that order. Arrays are dense, in
    C order. An output holds anything at first, and all of it must be written; inputs must not be.
    A Python callable gets NumPy arrays, inputs read-only, that it may use until it returns. It is
    called in the thread that runs the model, which holds the GIL; what it raises, the run raises.

    The kernel is called once in a run that needs its results, in no run that does not. It must give
    the same for the same inputs; it is never called while a graph is compiled.

    Examples
    --------
    >>> import numpy as np
    >>> from fastgraph.ir import ops, reference
    >>> def scale(grid, block, y, x, by):
    ...     np.multiply(x, by, out=y)
    >>> reference.apply(lambda x: ops.kernel(scale, [x], (3,), "float32", scalars=[2.0]),
    ...                 np.float32([1, 2, 3]))
    array([2., 4., 6.], dtype=float32)
    """
    if not callable(kernel) and not hasattr(kernel, "name"):
        raise GraphError(
            f"kernel: a Kernel, a NativeKernel, a callable or a function of a GPU is needed, found "
            f"{type(kernel).__name__}"
        )
    if not isinstance(inputs, list | tuple):
        raise GraphError(f"kernel: inputs are a list or tuple, found {type(inputs).__name__}")
    several = isinstance(shape, list) and any(isinstance(one, tuple | list) for one in shape)
    shapes = list(shape) if several else [shape]
    dtypes = list(dtype) if isinstance(dtype, list) else [dtype] * len(shapes)
    if len(dtypes) != len(shapes):
        raise GraphError(f"kernel: {len(shapes)} shapes and {len(dtypes)} dtypes")
    results = []
    for dims, kind in zip(shapes, dtypes, strict=True):
        wanted = check_dtype(kind, "kernel")
        results.append((check_shape(dims, "kernel", wanted), wanted))
    for scalar in scalars:
        if not isinstance(scalar, bool | int | float | np.generic):
            raise GraphError(f"kernel: scalars are numbers, found {type(scalar).__name__}")
    (shared,) = check_shape((shared_mem_bytes,), "kernel: shared_mem_bytes")
    user = UserKernel(
        kernel,
        tuple(scalars),
        check_dims("grid_dim", grid_dim),
        check_dims("block_dim", block_dim),
        shared,
    )
    graph = owner("kernel", inputs)
    values = [as_value("kernel", graph, value) for value in inputs]
    attrs = {"user": user, "results": tuple(results)}
    found: tuple[Value, ...] = graph.add_node("kernel", values, attrs).outputs
    return found if several else found[0]
