from collections.abc import Callable
from typing import Any

import numpy as np

class ScalarTable:
    def __init__(
        self,
        scalars: dict[str, tuple[tuple[int, int], np.dtype[Any]]],
        pattern: Callable[[Any, np.dtype[Any]], np.ndarray[Any, Any]],
    ) -> None: ...
    def read(self, given: dict[str, Any]) -> dict[tuple[int, int], bytes] | None: ...
