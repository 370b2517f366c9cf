"""Parameter types from the ``.entry`` of a kernel in PTX text."""

from __future__ import annotations

import re

import numpy as np

from fastgraph.device.arguments import Parameter

__all__ = ["entry_names", "parameters_of"]

_NAME = r"[A-Za-z_$%][\w$]*"
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY = re.compile(rf"\.entry\s+({_NAME})\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(
    rf"""\s*\.param \s+
    (?:\.align\s+\d+\s+)?
    (\.(?:[bus](?:8|16|32|64)|b128|f16|f16x2|bf16|bf16x2|f32|f64)) \s+
    (\.ptr \s+ (?:\.(?:const|global|local|shared|param)\s+)? (?:\.align\s+\d+\s+)?)?
    {_NAME} \s*
    (?:\[\s*(\d+)\s*\])? \s*""",
    re.VERBOSE,
)
_EXACT = {".f32": "f4", ".f64": "f8", ".f16": "f2"}


def entry_names(text: str) -> tuple[str, ...]:
    """Return the names of all kernels in a text."""
    return tuple(match[1] for match in _ENTRY.finditer(_COMMENT.sub(" ", text)))


def parameters_of(text: str, name: str) -> tuple[Parameter, ...] | None:
    """Return the parameters of one kernel, None if it is not there or written in an unknown way.

    Notes
    -----
    Compilers write ``.u32`` for integers of either sign, ``.u64`` for pointers as well and ``.b32``
    for floats as well. So the first is an integer of unknown sign, and of the others only the size
    is known. Whether a pointer is only read cannot be told.
    """
    for match in _ENTRY.finditer(_COMMENT.sub(" ", text)):
        if match[1] == name:
            return _parameters(match[2] or "")
    return None


def _parameters(text: str) -> tuple[Parameter, ...] | None:
    if not text.strip():
        return ()
    parameters = []
    for part in text.split(","):
        match = _PARAMETER.fullmatch(part)
        if match is None:
            return None
        kind, pointer, count = match.groups()
        if pointer and kind not in (".u64", ".b64", ".s64"):
            return None
        parameters.append(_parameter(kind, bool(pointer), count))
    return tuple(parameters)


def _parameter(kind: str, pointer: bool, count: str | None) -> Parameter:
    digits = re.findall(r"\d+", kind)
    nbytes = int(digits[0]) // 8 * (int(digits[1]) if len(digits) > 1 else 1)
    if count is not None:
        return Parameter(None, False, False, f"{kind}[{count}]", nbytes * int(count))
    if pointer:
        return Parameter(None, True, False, f"{kind} .ptr")
    if kind in _EXACT:
        return Parameter(np.dtype(_EXACT[kind]), False, False, kind)
    if kind.startswith(".s"):
        return Parameter(np.dtype(f"i{nbytes}"), False, False, kind)
    # 64 bits without a sign may be an address.
    is_integer = kind.startswith(".u") and nbytes < 8
    return Parameter(None, False, False, kind, nbytes, is_integer)
