from collections.abc import Callable
from types import TracebackType

from fastgraph._core.record import Foreign
from fastgraph._core.stream import CudaDevice, Stream

ATTEMPTS: int
SPOILT: str

class CapturedGraph:
    @property
    def node_count(self) -> int: ...

class Capture:
    def __init__(
        self,
        device: CudaDevice,
        keep: object = None,
        again: Callable[[tuple[int, ...]], Foreign] | None = None,
    ) -> None: ...
    @property
    def device(self) -> CudaDevice: ...
    @property
    def stream(self) -> Stream | None: ...
    @property
    def foreign(self) -> Foreign | None: ...
    @property
    def node_count(self) -> int: ...
    def __enter__(self) -> Capture: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def end(self) -> CapturedGraph | None: ...

def capture_call(
    device: CudaDevice,
    f: Callable[[Stream], object],
    keep: object = None,
    again: Callable[[tuple[int, ...]], Foreign] | None = None,
) -> Foreign: ...

class Turn:
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def contents(graph: int) -> tuple[bool, bool]: ...
