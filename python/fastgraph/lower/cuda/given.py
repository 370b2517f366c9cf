"""Sizes of kernels that follow extents: the text has names for them, and launches their values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from fastgraph._core.sizes import ActiveSize
from fastgraph.errors import UnsupportedError
from fastgraph.lower.cuda.call import Argument

__all__ = ["Given", "Words", "constant", "refuse", "words"]


@dataclass(frozen=True)
class Words:
    """Bytes of an argument, worked out again for each extent.

    Attributes
    ----------
    form : str
        As `struct` has it.
    numbers : tuple
        Of which some follow extents.
    """

    form: str
    numbers: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """int: how many they are."""
        return struct.calcsize(self.form)


def words(form: str, *numbers: Any) -> Argument:
    r"""Return numbers, packed as `struct` has it, as one argument.

    Examples
    --------
    >>> words("<2i", 1, 2)
    ('value', b'\x01\x00\x00\x00\x02\x00\x00\x00')
    """
    if any(isinstance(number, ActiveSize) for number in numbers):
        return "sized", Words(form, numbers)
    return "value", struct.pack(form, *numbers)


def refuse(what: str, *sizes: int) -> None:
    """Raise UnsupportedError where one of the sizes follows extents."""
    if any(isinstance(size, ActiveSize) for size in sizes):
        raise UnsupportedError(f"{what} on cuda")


def constant(size: int) -> str:
    """Return a size as a template argument: ``GIVEN`` where each launch tells it.

    >>> constant(12)
    '12'
    """
    return "GIVEN" if isinstance(size, ActiveSize) else str(size)


class Given:
    """The sizes that launches tell of a kernel whose text is written for it.

    Parameters
    ----------
    ctype : str
        The type of such sizes: ``"u32"`` or ``"i64"``.

    Examples
    --------
    >>> from fastgraph._core.sizes import activated, dimension
    >>> n = activated(dimension("n", 64), [("n", 64)])
    >>> given = Given("u32")
    >>> given(12), given(n * 4), given(n), given(n * 4)
    ('12', 'g0', 'g1', 'g0')
    >>> given.parameters
    ['u32 g0', 'u32 g1']
    """

    def __init__(self, ctype: str) -> None:
        self.ctype = ctype
        self._names: dict[int, str] = {}

    def __call__(self, size: int) -> str:
        """Return how the text says a size."""
        if not isinstance(size, ActiveSize):
            return str(size)
        return self._names.setdefault(size, f"g{len(self._names)}")

    @property
    def parameters(self) -> list[str]:
        """list of str: how the kernel declares them."""
        return [f"{self.ctype} {name}" for name in self._names.values()]

    @property
    def arguments(self) -> list[Argument]:
        """list of Argument: what launches tell."""
        form = "<I" if self.ctype == "u32" else "<q"
        return [words(form, size) for size in self._names]
