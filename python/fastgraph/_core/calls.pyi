from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from fastgraph._core.buffer import Buffer
from fastgraph._core.pending import Access

def plain_word(value: Any, dtype: np.dtype[Any]) -> int | None: ...
def fill(twins: list[Buffer], arrays: list[Buffer | np.ndarray[Any, Any]]) -> None: ...

@final
class CallPlan:
    def __init__(self, pointer: int, parameters: Sequence[Any], own: frozenset[type]) -> None: ...
    def array_call(
        self,
        args: tuple[Any, ...],
        device: str,
        place: Callable[[Any, bool], Any],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> tuple[tuple[Access, ...], tuple[int, ...]] | None: ...
    def launch_call(
        self, args: tuple[Any, ...], device: str, place: Callable[[Any, bool], Any]
    ) -> tuple[tuple[Access, ...], tuple[tuple[Any, ...], ...]] | None: ...
