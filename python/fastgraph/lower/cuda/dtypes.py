"""Dtypes on cuda: what kernels call them, and what they are computed in."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fastgraph.ir.graph import Value

__all__ = ["COMPUTED", "NAMES", "ctype", "elements", "is_half", "itemsize"]

DType = np.dtype[Any]

NAMES: dict[str, str] = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "b8",
}  # fmt: skip
"""The type in ``common.cuh`` that an element of a dtype is stored as."""

COMPUTED: dict[str, str] = {"f16": "f32", "bf16": "f32", "b8": "bool"}
"""The type that it is computed in, where that is another."""


def ctype(dtype: DType) -> str:
    """Return what kernels store an element as."""
    return NAMES[dtype.name]


def is_half(dtype: DType) -> bool:
    """Whether `dtype` is float16 or bfloat16."""
    return dtype.name in ("float16", "bfloat16")


def itemsize(value: Value) -> int:
    """Return the bytes of an element."""
    return value.dtype.itemsize


def elements(value: Value) -> int:
    """Return the number of elements."""
    return prod(value.shape)
