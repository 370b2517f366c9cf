from typing import Any, Literal

from fastgraph._core.buffer import Block
from fastgraph._core.cuda_finish import Finish
from fastgraph._core.record import Record
from fastgraph._core.runner import Runner
from fastgraph._core.stream import CudaDevice, Stream

class CudaRunner(Runner):
    @property
    def blocks(self) -> list[tuple[Block, int] | None]: ...
    @property
    def owner(self) -> Any: ...
    def retake(
        self,
        owner: Any,
        record: Record,
        blocks: list[tuple[Block, int] | None],
        arena: Block,
        residents: list[bool],
        kept: list[tuple[int, int]],
        ready: bool,
    ) -> None: ...

def cuda_runner(
    device: CudaDevice,
    stream: Stream,
    owner: Any,
    record: Record,
    blocks: list[tuple[Block, int] | None],
    arena: Block,
    staged: Block,
    outputs: Block,
    fault: Block,
    inputs: list[tuple[int, int, int]],
    results: list[tuple[int, int, int]],
    scalar_memory: int,
    ready: bool,
    helpers: Any,
    policy: Literal["auto"] | bool = "auto",
    expect_long: bool = False,
    finish: Finish | None = None,
    threads: int = 1,
) -> CudaRunner: ...
