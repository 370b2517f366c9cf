"""Which ONNX operators are known, and what a rule sees of the node that it translates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.graph import Graph, Value
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.types import SUPPORTED, is_float, is_integer
from fastgraph.onnx.proto import NEWEST_OPSET, OLDEST_OPSET, element_type_name, tensor_array

__all__ = [
    "DTYPE_ADVICE",
    "SUPPORTED_NAMES",
    "NodeError",
    "OnnxNode",
    "Operand",
    "Rule",
    "Untranslated",
    "find_rule",
    "known_operators",
    "normal_axis",
    "of_kind",
    "onnx_op",
]

SUPPORTED_NAMES = tuple(dtype.name for dtype in SUPPORTED)
DTYPE_ADVICE = (
    f"graphs compute in {', '.join(SUPPORTED_NAMES)}: export the model in one of these, such as "
    "float32"
)

Operand = Value | np.ndarray[Any, Any]
Result = Operand | tuple[Operand | None, ...]


class NodeError(Exception):
    """A node that cannot be translated; the importer adds its name and collects all of them."""


class Untranslated(Exception):
    """A body holds what cannot be translated, which is among the problems already."""


@dataclass
class OnnxNode:
    """One node while it is translated: its attributes by type, and the graph that it goes into."""

    op_type: str
    label: str
    name: str
    opset: int
    attributes: dict[str, Any]
    inputs: Sequence[str]
    outputs: Sequence[str]
    graph: Graph = field(repr=False)
    # Translates the graph that an attribute holds, for inputs in its order, into this one.
    body: Callable[[str, Any, Sequence[Operand]], tuple[Operand, ...]] = field(repr=False)

    def run_body(self, attribute: str, inputs: Sequence[Operand]) -> tuple[Operand, ...]:
        """The outputs of the graph that an attribute holds, translated into this one."""
        return self.body(attribute, self._typed(attribute, None, object, "a graph"), inputs)

    @contextmanager
    def aside(self, what: str) -> Iterator[None]:
        """Name what is written in here for its purpose, so that the node's own name stays free."""
        self.annotate(what)
        yield
        self.annotate()

    def annotate(self, what: str = "") -> None:
        """Name what is written from now on after the node."""
        name = f"{self.name}.{what}" if what else self.name
        self.graph.annotate(name, f"ONNX {self.label}")

    def has(self, name: str) -> bool:
        """Whether the model gives this attribute."""
        return name in self.attributes

    def get_int(self, name: str, default: int | None = None) -> int:
        """An integer attribute; without a default a missing one is a problem."""
        return int(self._typed(name, default, int, "an integer"))

    def flag(self, name: str, default: bool) -> bool:
        """An integer attribute that is 0 or 1."""
        found = self.get_int(name, int(default))
        if found not in (0, 1):
            raise NodeError(f"attribute '{name}' must be 0 or 1, not {found}")
        return bool(found)

    def get_float(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self._typed(name, default, (int, float), "a float"))

    def get_string(self, name: str, default: str) -> str:
        """A string attribute."""
        return str(self._typed(name, default, str, "a string"))

    def get_ints(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or None where it is not given."""
        found = self.attributes.get(name)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(i, int) for i in found):
            raise NodeError(f"attribute '{name}' must be a list of integers, not {found!r}")
        return tuple(found)

    def wants(self, index: int) -> bool:
        """Whether the model uses output `index`."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def axis(self, rank: int, default: int | None = None, *, extra: int = 0) -> int:
        """Attribute ``axis`` counted from the front, within ``rank + extra`` places."""
        return normal_axis(self.get_int("axis", default), rank + extra)

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """A constant of the graph."""
        return self.graph.constant(np.asarray(array, dtype=dtype))

    def tensor(self, name: str) -> np.ndarray[Any, Any]:
        """The contents of a tensor attribute."""
        try:
            return tensor_array(self._typed(name, None, object, "a tensor"))
        except ValueError as error:
            raise NodeError(f"attribute '{name}': {error}") from error

    def convert(self, x: Operand, elem_type: int) -> Operand:
        """`x` in the dtype of an ONNX element type."""
        name = element_type_name(elem_type)
        if isinstance(x, Value):
            if name not in SUPPORTED_NAMES:
                raise NodeError(f"casts to {name}; {DTYPE_ADVICE}")
            return ops.astype(x, name)
        try:
            with np.errstate(all="ignore"):
                return convert(x, np.dtype(name))
        except TypeError as error:
            raise NodeError(f"casts to {name}; {DTYPE_ADVICE}") from error

    def _typed(self, name: str, default: Any, kinds: Any, wanted: str) -> Any:
        found = self.attributes.get(name, default)
        if found is None:
            raise NodeError(f"attribute '{name}' is missing")
        if not isinstance(found, kinds):
            raise NodeError(f"attribute '{name}' must be {wanted}, not {found!r}")
        return found


def of_kind(kinds: str, *values: Value) -> None:
    """Refuse values that are not of one of `kinds`: f, floats; i, integers; b, bools."""
    names = {"f": "floats", "i": "integers", "b": "bool"}
    for value in values:
        kind = "f" if is_float(value.dtype) else "i" if is_integer(value.dtype) else "b"
        if kind not in kinds:
            wanted = " or ".join(names[k] for k in kinds)
            raise NodeError(f"takes {wanted}, found {value.dtype.name}")


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; a problem if it is outside."""
    if not -rank <= axis < rank:
        raise NodeError(f"axis {axis} is outside a tensor of {rank} dimensions")
    return axis % rank


Translation = Callable[..., Result]


@dataclass(frozen=True)
class Rule:
    """How one operator is translated in a range of opsets.

    Attributes
    ----------
    static : tuple of int
        Inputs whose values must be known at import (shapes, axes, bounds); passed as arrays.
    raw : bool
        The function takes known inputs as arrays and may return arrays.
    shape_only : bool
        Only the shapes of the inputs matter, not their values.
    wanted : tuple of int
        Inputs whose values are used at import where the model has them.
    """

    op_type: str
    function: Translation
    since: int
    until: int
    static: tuple[int, ...]
    raw: bool
    shape_only: bool
    wanted: tuple[int, ...]


_RULES: dict[str, list[Rule]] = {}


def onnx_op(
    *op_types: str,
    since: int = OLDEST_OPSET,
    until: int = NEWEST_OPSET,
    static: Iterable[int] = (),
    raw: bool = False,
    shape_only: bool = False,
    wanted: Iterable[int] = (),
) -> Callable[[Translation], Translation]:
    """Register the decorated function as the rule of `op_types` for opsets since..until."""

    def register(function: Translation) -> Translation:
        for op_type in op_types:
            rules = _RULES.setdefault(op_type, [])
            if any(r.since <= until and since <= r.until for r in rules):
                raise ValueError(f"two rules for {op_type} in opsets {since} to {until}")
            rules.append(
                Rule(
                    *(op_type, function, since, until, tuple(static)),
                    *(raw, shape_only, tuple(wanted)),
                )
            )
        return function

    return register


@functools.lru_cache(maxsize=1024)  # files may name anything
def find_rule(op_type: str, opset: int) -> Rule | None:
    """The rule of this operator at this opset, or at the oldest that is known."""
    opset = max(opset, OLDEST_OPSET)
    for rule in _RULES.get(op_type, ()):
        if rule.since <= opset <= rule.until:
            return rule
    return None


def known_operators() -> dict[str, tuple[int, int]]:
    """Return every known ONNX operator with its first and last known opset.

    Returns
    -------
    dict of str to (int, int)
        By name. Models of older opsets are read by the rules of the oldest one.

    Examples
    --------
    >>> import fastgraph as fg
    >>> known = fg.onnx.known_operators()
    >>> "Gemm" in known, "StringConcat" in known
    (True, False)
    """
    return {
        name: (min(r.since for r in rules), max(r.until for r in rules))
        for name, rules in sorted(_RULES.items())
    }
