from collections.abc import Callable, Iterable
from typing import Any

from fastgraph._core.key import Key
from fastgraph._core.keys import KeyWriter

def write_function(writer: KeyWriter, function: Callable[..., object]) -> None: ...
def write_inputs(
    writer: KeyWriter,
    inputs: Iterable[object],
    arrays: frozenset[type],
    convert: Callable[[Any], object],
) -> None: ...
def compose(
    build: Callable[..., object],
    inputs: tuple[object, ...],
    settings: tuple[object, ...],
    arrays: frozenset[type],
    convert: Callable[[Any], object],
) -> Key: ...
