"""Work of other libraries in graphs of ours; each is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["torch"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
