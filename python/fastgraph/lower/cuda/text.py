"""The texts of the package's kernels, joined to what the compiler is given: it opens no files."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["source"]

COMMON = "common.cuh"


@cache
def source(*families: str) -> str:
    """Return the common header and after it the texts of these families of kernels.

    ``source("softmax")`` is the text of ``common.cuh`` and of ``softmax.cu``; a name with an ending
    of its own is taken as it is.
    """
    names = [name if "." in name else f"{name}.cu" for name in families]
    return "\n".join(_text(name) for name in (COMMON, *names))


@cache
def _text(name: str) -> str:
    return (resources.files(__package__) / "sources" / name).read_text("utf-8")
