from collections.abc import Iterable
from typing import NamedTuple

class Memory(NamedTuple):
    kind: str
    name: str
    nbytes: int

class Operand(NamedTuple):
    memory: int
    offset: int
    nbytes: int
    reads: bool
    writes: bool

class RecordNode(NamedTuple):
    name: str
    kind: str
    kernel: str | None
    operands: tuple[Operand, ...]
    params: tuple[int, ...]
    parts: int
    cost_ns: float
    dependencies: tuple[int, ...]
    label: str
    keep: object

KINDS: frozenset[str]

class Record:
    __slots__ = ("memories", "nodes")
    memories: list[Memory]
    nodes: list[RecordNode]
    def __init__(self) -> None: ...
    def add_memory(self, kind: str, name: str, nbytes: int) -> int: ...
    def add_node(
        self,
        name: str,
        kind: str,
        kernel: str | None,
        operands: Iterable[Operand],
        params: Iterable[int] = (),
        parts: int = 1,
        cost_ns: float = 0.0,
        dependencies: Iterable[int] = (),
        label: str = "",
        keep: object = None,
    ) -> int: ...
    def dependencies(self) -> list[tuple[int, ...]]: ...
    def edges(self) -> list[tuple[int, int]]: ...
    def check_hazards(self) -> None: ...
