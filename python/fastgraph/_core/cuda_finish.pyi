from collections.abc import Callable

from fastgraph._core.buffer import Block
from fastgraph._core.record import Record

FINISH_BYTES: int

class Finish:
    def __init__(self, extend: Callable[[Record], Record], block: Block) -> None: ...
