"""Kernels with a body for each device, and declared accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastgraph.device.function import NativeKernel, parse_signature
from fastgraph.errors import GraphError, InputError, UnsupportedError

__all__ = ["Declared", "In", "InOut", "Kernel", "Out", "body_of"]


class Kernel:
    """A kernel under one name with a body for each device.

    Parameters
    ----------
    name : str
    cuda : object, optional
        The body for cuda devices: CUDA C++ source text that holds a kernel called `name` (as C++
        names it: ``"inc"``, ``"axpy<float>"``), an image (a cubin, a fat binary or PTX) that holds
        it, a function of ``DeviceContext.compile_function`` or ``load_function``, a ``Kernel`` or
        ``ObjectCode`` of cuda.core, or a kernel of numba-cuda with one compiled signature.
    cpu : NativeKernel or callable, optional
        The body for cpu. A Python callable is called as ``f(grid, block, *args)``: two 3-tuples,
        then for each argument a writable NumPy array over the buffer, or the number. It is called
        in the thread that replays, one call at a time, and what it raises comes out of the replay.
    signature : str, optional
        The parameters of the cuda body as in C, ``"float *out, const float *a, int n"``, for a
        body that does not tell its types: source tells them, an image often does not.

    Raises
    ------
    GraphError
        There is no body at all, `cpu` is neither of the two, or `signature` has unknown types or
        stands without a cuda body.

    Notes
    -----
    What a Python callable does to a buffer is known only if `In`, `Out` or `InOut` says so. Where
    nothing is said, ``check="known"`` leaves that argument out of the hazard check.

    Examples
    --------
    >>> import fastgraph as fg
    >>> def inc(grid, block, x, delta):
    ...     x += delta
    >>> kernel = fg.Kernel("inc", cpu=inc)
    >>> ctx = fg.DeviceContext("cpu")
    >>> x = ctx.create_buffer(3)
    >>> def build(b):
    ...     b.add_function(kernel, fg.InOut(x), 2.0)
    >>> graph = fg.DeviceGraph.create(ctx, build)
    >>> graph.replay()
    >>> x.numpy()
    array([2., 2., 2.], dtype=float32)
    """

    __slots__ = ("_loaded", "cpu", "cuda", "name", "signature")

    def __init__(
        self,
        name: str,
        cuda: object = None,
        cpu: NativeKernel | Callable[..., object] | None = None,
        signature: str | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise GraphError(f"the name of a kernel is a string, not {name!r}")
        if cuda is None and cpu is None:
            raise GraphError(f"kernel {name!r} has no body: give cuda=, cpu= or both")
        if cpu is not None and not isinstance(cpu, NativeKernel) and not callable(cpu):
            raise GraphError(
                f"kernel {name!r}: cpu is a NativeKernel or a callable, not {type(cpu).__name__}"
            )
        if signature is not None:
            if cuda is None:
                raise GraphError(
                    f"kernel {name!r}: signature says the types of a cuda body; there is none"
                )
            parse_signature(name, signature)
        self.name = name
        self.cuda = cuda
        self.cpu = cpu
        self.signature = signature
        # What the cuda body became on each device.
        self._loaded: dict[Any, Any] = {}

    def __repr__(self) -> str:
        bodies = [api for api in ("cuda", "cpu") if getattr(self, api) is not None]
        return f"<Kernel {self.name!r} for {', '.join(bodies)}>"


def body_of(f: Any, api: str) -> tuple[str, Any]:
    """Return (name, body) of a function on a device; UnsupportedError where there is none."""
    if isinstance(f, NativeKernel):
        return f.name, f
    if not isinstance(f, Kernel):
        raise UnsupportedError(
            f"the {api} runs NativeKernel and Kernel functions, not {type(f).__name__}; "
            "a Python callable goes into Kernel(name, cpu=f)"
        )
    body = getattr(f, api)
    if body is None:
        raise UnsupportedError(f"kernel {f.name!r} has no body for {api}: Kernel(…, {api}=…)")
    return f.name, body


class Declared:
    """An argument and what the function does to it; made as `In`, `Out` or `InOut`."""

    __slots__ = ("value",)
    reads = True
    writes = True

    def __init__(self, value: Any) -> None:
        if isinstance(value, Declared):
            raise InputError(f"{value!r} says its access already")
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class In(Declared):
    """A kernel argument that the kernel only reads.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.In(fg.DeviceContext("cpu").create_buffer(4)).reads
    True
    """

    __slots__ = ()
    writes = False


class Out(Declared):
    """A kernel argument that the kernel only writes.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.Out(fg.DeviceContext("cpu").create_buffer(4)).reads
    False
    """

    __slots__ = ()
    reads = False


class InOut(Declared):
    """A kernel argument that the kernel reads and writes.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.InOut(fg.DeviceContext("cpu").create_buffer(4)).writes
    True
    """

    __slots__ = ()
