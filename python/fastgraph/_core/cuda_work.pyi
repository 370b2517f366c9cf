from collections.abc import Sequence
from typing import Any

import numpy as np

from fastgraph._core.buffer import Buffer
from fastgraph._core.device_memory import Staging
from fastgraph._core.record import Launch, RecordNode
from fastgraph._core.stream import Stream

def copy(
    stream: Stream, pairs: list[tuple[Buffer, Any]], producers: tuple[int, ...] = ()
) -> None: ...
def fill(stream: Stream, dst: Buffer, value: int, element: int) -> None: ...
def launch(stream: Stream, call: Launch, addresses: list[int]) -> None: ...
def perform(
    stream: Stream,
    node: RecordNode,
    addresses: list[int],
    values: dict[tuple[int, int], bytes],
) -> None: ...
def upload(
    stream: Stream,
    staging: Staging,
    pieces: Sequence[tuple[Buffer, np.ndarray[Any, np.dtype[Any]]]],
) -> None: ...
