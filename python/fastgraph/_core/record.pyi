from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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
    bodies: tuple[tuple[RecordNode, ...], ...] = ()
    call: PythonCall | Launch | Foreign | None = None
    enabled: bool = True

class PythonCall(NamedTuple):
    function: Callable[..., object]
    arguments: tuple[tuple[Any, ...], ...]

class Launch(NamedTuple):
    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[tuple[Any, ...], ...]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    priority: int | None = None
    programmatic: bool = False

class Foreign(NamedTuple):
    handle: int
    owner: object
    again: Callable[[], Foreign] | None = None

def accesses_of(node: RecordNode) -> list[Operand]: ...

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
        bodies: Iterable[Record] = (),
        call: PythonCall | Launch | Foreign | None = None,
    ) -> int: ...
    def body(self) -> Record: ...
    def replace_node(self, index: int, node: RecordNode) -> None: ...
    def copy(self) -> Record: ...
    def dependencies(self) -> list[tuple[int, ...]]: ...
    def edges(self) -> list[tuple[int, int]]: ...
    def check_hazards(self) -> None: ...
