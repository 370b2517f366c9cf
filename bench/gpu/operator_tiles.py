"""The ways in which a product or attention can be cut into tiles, each taken for a while."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.gpu.operator_cases import Attention, Product
from fastgraph.passes.rows import MOST_FLOAT_BYTES

__all__ = ["Way", "ways"]

WARPS = (4, 8, 16)
PARTS = (1, 2, 4, 8)
# What a block of the GPUs that have warp groups can have.
SHARED_BYTES = 227 << 10


@dataclass(frozen=True)
class Way:
    """A way to cut: names of a lowering's module, and what they stand for meanwhile."""

    name: str
    module: Any
    instead: Mapping[str, Any]

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lower in this way."""
        before = {name: getattr(self.module, name) for name in self.instead}
        for name, value in self.instead.items():
            setattr(self.module, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self.module, name, value)


def ways(case: Product | Attention) -> list[Way]:
    """All ways that the tables have for a case, what they would choose among them."""
    matmul: Any = importlib.import_module("fastgraph.lower.cuda.matmul")
    attention: Any = importlib.import_module("fastgraph.lower.cuda.attention")
    if isinstance(case, Attention):
        if case.dtype != "float16" or case.queries == 1:
            return [Way("as chosen", attention, {})]
        limit = next(limit for limit in attention.FLASH if limit >= case.length)
        found = [
            Way(
                str(tuple(tile)),
                attention,
                {
                    "FLASH": {**attention.FLASH, limit: (tile,)},
                    "WHOLE": {},
                    "WARP_GROUPS": {},
                },
            )
            for tile in attention.FLASH[limit]
        ]
        for tile in attention.WARP_GROUPS.get(case.length, ()):
            instead = {"WARP_GROUPS": {case.length: (tile,)}}
            found.append(Way(f"warp groups {tuple(tile)[:-1]}", attention, instead))
        return found
    small = case.dtype != "float32" or 4 * case.k * case.n <= MOST_FLOAT_BYTES
    if case.m == 1 and small:
        return _of_one_row()
    if case.m <= matmul.MAX_ROWS:
        return _of_few_rows(case, matmul)
    if case.dtype == "float32":
        return [Way(str(tuple(tile)[:-2]), matmul, {"SIMT": (tile,)}) for tile in matmul.SIMT]
    found = [
        Way(str(tuple(tile)[:-3]), matmul, {"MMA": (tile,), "WGMMA": ()}) for tile in matmul.MMA
    ]
    if case.k % 8 == case.n % 8 == 0:
        found += [
            Way(f"groups {tuple(tile)}", matmul, {"MMA": (), "WGMMA": (tile,)})
            for tile in matmul.WGMMA
            if tile.fits(case.along, SHARED_BYTES)
        ]
    return found


def _of_few_rows(case: Product, matmul: Any) -> list[Way]:
    found = [Way("as chosen", matmul, {})]
    kinds = [(name, tile) for (name, along), tile in matmul.ROWS.items() if along == case.along]
    for name, tile in kinds:
        if name.startswith("float") != (case.dtype == "float32") or tile.rows[-1] < case.m:
            continue
        if tile.rows[0] > max(8, case.m):
            continue
        for warps in WARPS:
            for parts in PARTS:
                if warps > tile.max_warps or case.k < parts * warps * tile.step:
                    continue
                instead = {
                    "choose_rows": _cut(warps, parts),
                    "ROWS": _only(matmul.ROWS, name, case),
                }
                found.append(Way(f"{tile.reader}, {warps} warps, {parts} parts", matmul, instead))
    return found


def _of_one_row() -> list[Way]:
    tiles: Any = importlib.import_module("fastgraph.lower.cuda.tiles")
    return [
        Way(str(tuple(tile)), tiles, {"ROW": tile})
        for columns, slots in ((8, 2), (8, 1), (4, 4), (4, 2))
        for warps in WARPS
        for late in (False, True)
        for along in (1, warps)
        for tile in [tiles.RowTile(columns, slots, warps, along, late)]
    ]


def _only(table: Mapping[Any, Any], name: str, case: Product) -> dict[Any, Any]:
    """The table with one reader for every kind of operand that lies as the case's w."""
    return {
        key: table[name, case.along] if key[1] == case.along else tile
        for key, tile in table.items()
    }


def _cut(warps: int, parts: int) -> Callable[..., Any]:
    """What stands for the choice: so many warps, so many parts of K."""
    tiles: Any = importlib.import_module("fastgraph.lower.cuda.tiles")

    def choose_rows(tile: Any, shape: Any, multiprocessors: int) -> Any:
        rows = next(rows for rows in tile.rows if rows >= shape.m)
        steps = max(1, -(-shape.k // tile.step))
        part = -(-steps // parts)
        return tiles.RowsChoice(rows, warps, part * tile.step, -(-steps // part))

    return choose_rows
