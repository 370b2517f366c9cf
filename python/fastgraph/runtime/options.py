"""How graphs are compiled."""

from __future__ import annotations

from dataclasses import dataclass

from fastgraph.errors import InputError

__all__ = ["CompileOptions"]


@dataclass(frozen=True)
class CompileOptions:
    """How a graph is compiled.

    Parameters
    ----------
    fuse : bool, default True
        Whether operators are fused; without it every operator is a node of its own.
    isa : str, optional
        The instruction set whose host kernels are used, one of ``fastgraph info``'s; the best that
        the machine runs by default. For the cpu alone.
    tf32 : bool, default False
        Whether products of float32 on cuda may be computed with ten bits of their operands'
        fractions, which is faster. The cpu computes them in float32 either way.
    cublas : bool, default True
        Whether large products on cuda may be left to cuBLASLt, where it is installed and expected
        to be faster; `CompiledGraph.summary` names it where it does one.

    Examples
    --------
    >>> import fastgraph as fg
    >>> fg.CompileOptions(fuse=False).isa is None
    True
    """

    fuse: bool = True
    isa: str | None = None
    tf32: bool = False
    cublas: bool = True

    def check(self) -> None:
        """Raise InputError where a field is of another type."""
        for name in ("fuse", "tf32", "cublas"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {getattr(self, name)!r}; True or False is possible")
