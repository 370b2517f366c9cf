from collections.abc import Callable
from typing import Any, TypeVar

from fastgraph._core.scalars import ScalarTable

_T = TypeVar("_T")

class Executable:
    @property
    def active(self) -> bool: ...
    def locked(self, work: Callable[..., _T], *args: Any) -> _T: ...
    def check_held(self) -> None: ...

class Cell:
    def __init__(
        self, plain: Executable | None = None, scalars: ScalarTable | None = None
    ) -> None: ...
    def set(self, plain: Executable | None) -> None: ...

class Handle:
    cell: Cell
    _context: Any
    _state: Any
    _model: Any
    @property
    def _token(self) -> object: ...
    def _share(self, cell: Cell) -> None: ...
    def replay(self, *live: Any, stream: Any = None, **scalars: Any) -> None: ...
