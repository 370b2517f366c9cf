"""Which types a kernel's parameters have, from the best source that tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastgraph.device.arguments import Parameter
from fastgraph.device.cuda import mangled, ptx
from fastgraph.device.function import parse_signature
from fastgraph.errors import GraphError

__all__ = ["resolve_parameters"]

# Offset and size of each parameter, as the driver knows them.
Layout = Sequence[tuple[int, int]]


def resolve_parameters(
    name: str,
    layout: Layout,
    *,
    signature: str | None = None,
    known: Sequence[Parameter] | None = None,
    mangled_name: str | None = None,
    probe: str | None = None,
    ptx_text: str | None = None,
) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel, each with its size.

    Parameters
    ----------
    name : str
        For messages.
    layout : sequence of (int, int)
        Offset and size of each parameter, as the driver tells them.
    signature : str, optional
        The parameters as in C; comes first.
    known : sequence of Parameter, optional
        What the kernel object itself says; comes second.
    mangled_name : str, optional
        The function's name in its image; comes third if it is a mangled one.
    probe : str, optional
        The mangled name of a template instantiated with the function's type; comes fourth.
    ptx_text : str, optional
        The text that holds the function as `mangled_name`; comes fifth.

    Raises
    ------
    GraphError
        `signature` has an unknown type, or it or `known` disagrees with the driver about number or
        sizes.

    Notes
    -----
    What was only inferred from a name or a text is left aside if it disagrees with the driver. If
    nothing tells, each parameter is of unknown type and of the driver's size.
    """
    sizes = [size for _, size in layout]
    if signature is not None:
        declared = parse_signature(name, signature)
        _check(name, f"signature {signature!r}", declared, sizes)
        return _with_sizes(declared, sizes)
    if known is not None:
        _check(name, "its own declaration", known, sizes)
        return _with_sizes(known, sizes)
    sources: tuple[Callable[[], Sequence[Parameter] | None], ...] = (
        lambda: mangled.parameters_of(mangled_name) if mangled_name else None,
        lambda: mangled.parameters_of_probe(probe) if probe else None,
        lambda: ptx.parameters_of(ptx_text, mangled_name or name) if ptx_text else None,
    )
    for source in sources:
        found = source()
        if found is not None and not _difference(found, sizes):
            return _with_sizes(found, sizes)
    return tuple(Parameter(None, False, False, f"{size} bytes", size) for size in sizes)


def _check(name: str, what: str, parameters: Sequence[Parameter], sizes: list[int]) -> None:
    difference = _difference(parameters, sizes)
    if difference:
        raise GraphError(f"kernel {name!r}: {what} {difference}")


def _difference(parameters: Sequence[Parameter], sizes: list[int]) -> str:
    if len(parameters) != len(sizes):
        return f"has {len(parameters)} parameters, the compiled function {len(sizes)}"
    for i, (parameter, size) in enumerate(zip(parameters, sizes, strict=True)):
        if parameter.size not in (None, size):
            return (
                f"says that parameter {i} ({parameter.text}) has {parameter.size} bytes, "
                f"the compiled function that it has {size}"
            )
    return ""


def _with_sizes(parameters: Sequence[Parameter], sizes: list[int]) -> tuple[Parameter, ...]:
    """The parameters, with the driver's size where the type is unknown."""
    return tuple(
        parameter._replace(nbytes=size) if parameter.is_opaque else parameter
        for parameter, size in zip(parameters, sizes, strict=True)
    )
