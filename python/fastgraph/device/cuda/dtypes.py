"""Element types that NumPy does not have by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BFLOAT16"]

BFLOAT16: np.dtype[Any] | None
try:
    from ml_dtypes import bfloat16
except ImportError:
    BFLOAT16 = None
else:
    BFLOAT16 = np.dtype(bfloat16)
