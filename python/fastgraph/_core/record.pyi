from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, final

class Memory(NamedTuple):
    kind: str
    name: str
    nbytes: int

@final
class Operand:
    def __init__(
        self, memory: int, offset: int, nbytes: int, reads: bool, writes: bool
    ) -> None: ...
    @property
    def memory(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def reads(self) -> bool: ...
    @property
    def writes(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _replace(self, **changes: Any) -> Operand: ...

@final
class RecordNode:
    def __init__(
        self,
        name: str,
        kind: str,
        kernel: str | None,
        operands: tuple[Operand, ...],
        params: tuple[int, ...],
        parts: int,
        cost_ns: float,
        dependencies: tuple[int, ...],
        label: str,
        keep: object,
        bodies: tuple[tuple[RecordNode, ...], ...] = (),
        call: PythonCall | Launch | Foreign | None = None,
        enabled: bool = True,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def operands(self) -> tuple[Operand, ...]: ...
    @property
    def params(self) -> tuple[int, ...]: ...
    @property
    def parts(self) -> int: ...
    @property
    def cost_ns(self) -> float: ...
    @property
    def dependencies(self) -> tuple[int, ...]: ...
    @property
    def label(self) -> str: ...
    @property
    def keep(self) -> object: ...
    @property
    def bodies(self) -> tuple[tuple[RecordNode, ...], ...]: ...
    @property
    def call(self) -> PythonCall | Launch | Foreign | None: ...
    @property
    def enabled(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def _replace(self, **changes: Any) -> RecordNode: ...

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
    again: Callable[[tuple[int, ...]], Foreign] | None = None
    enqueue: Callable[[Any, tuple[int, ...]], None] | None = None
    @property
    def arguments(self) -> tuple[()]: ...

def accesses_of(node: RecordNode) -> list[Operand]: ...
def flat_nodes(nodes: Iterable[RecordNode]) -> list[RecordNode]: ...

KINDS: frozenset[str]

@final
class Record:
    @property
    def memories(self) -> list[Memory]: ...
    @property
    def nodes(self) -> list[RecordNode]: ...
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
