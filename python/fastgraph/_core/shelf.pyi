from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from fastgraph._core.executable import Handle
from fastgraph._core.key import Key

_S = TypeVar("_S")
_H = TypeVar("_H", bound=Handle)

class Shelf:
    _held: OrderedDict[Key, Any]
    @property
    def _hits(self) -> int: ...
    @property
    def _misses(self) -> int: ...
    @property
    def _builds(self) -> int: ...
    @property
    def _evictions(self) -> int: ...
    @property
    def _nbytes(self) -> int: ...
    def _find(self, key: Key) -> Any: ...
    def _get_or_build(self, key: Key, build: Callable[[], _S]) -> _S: ...
    def _touch(self, key: Key) -> None: ...
    def _put(self, key: Key, state: Any, nbytes: int) -> None: ...
    def _drop(self, key: Key, nbytes: int, evicted: bool = False) -> None: ...

def hit(
    kind: type[_H],
    shelf: object,
    context: object,
    device: str,
    build: object,
    inputs: tuple[Any, ...],
    key: object,
    check: object,
    verify: object,
    arrays: frozenset[type],
    convert: Callable[[Any], object],
) -> _H | Key | None: ...
