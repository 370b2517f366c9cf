from collections.abc import Iterable, Sequence

from fastgraph._core.order import Order

ALIGNMENT: int

def plan(
    order: Order,
    sizes: Sequence[int],
    writers: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    pinned: Iterable[int] = (),
    inplace: Iterable[tuple[int, int]] = (),
    alignment: int = ...,
) -> tuple[list[int], int]: ...
def verify(
    dependencies: Sequence[Iterable[int]],
    sizes: Sequence[int],
    writers: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    offsets: Sequence[int],
    total: int,
    pinned: Iterable[int] = (),
    inplace: Iterable[tuple[int, int]] = (),
    alignment: int = ...,
    loops: Iterable[tuple[int, int]] = (),
) -> None: ...
