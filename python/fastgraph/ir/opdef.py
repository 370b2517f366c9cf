"""What an operator is, and the two tables that hold them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgraph.ir.types import Spec

__all__ = ["FUNCTIONS", "OPS", "Attrs", "Function", "OpDef", "register"]

Attrs = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]
Infer = Callable[[Sequence[Spec], Attrs], list[Spec]]
Reference = Callable[[Sequence[Array], Attrs], list[Array]]


@dataclass(frozen=True)
class OpDef:
    """One operator of the graph: how its results look, and what they are.

    Attributes
    ----------
    name : str
        What `Node.op` says.
    family : str
        ``elementwise``, ``matmul``, ``convolution``, ``pooling``, ``recurrence``, ``reduction``,
        ``normalization``, ``movement``, or ``lowered`` for those that passes alone make.
    infer : callable
        From the inputs' (shape, dtype) and the attributes to those of the outputs. Raises
        GraphError where the operator does not take them.
    reference : callable
        The same for arrays: the oracle, in NumPy.
    """

    name: str
    family: str
    infer: Infer
    reference: Reference


@dataclass(frozen=True)
class Function:
    """One public function of `fastgraph.ops`: where its name is from, which dtypes it takes."""

    name: str
    build: Callable[..., Any]
    source: str
    dtypes: str


OPS: dict[str, OpDef] = {}
FUNCTIONS: dict[str, Function] = {}


def register(name: str, family: str, infer: Infer, reference: Reference) -> None:
    """Enter an operator in `OPS`."""
    if name in OPS:
        raise ValueError(f"operator {name} is registered twice")
    OPS[name] = OpDef(name, family, infer, reference)
