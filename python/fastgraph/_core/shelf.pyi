from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from fastgraph._core.executable import Handle
from fastgraph._core.key import Key

_H = TypeVar("_H", bound=Handle)

class Shelf:
    _held: OrderedDict[Key, Any]
    @property
    def _hits(self) -> int: ...
    @property
    def _misses(self) -> int: ...
    def _find(self, key: Key) -> Any: ...

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
