"""Parameter blocks are shared until one side sets."""

from __future__ import annotations

import numpy as np
import pytest

from fastgraph._core import counters
from fastgraph._core.buffer import view
from fastgraph._core.params import ParamBlocks, block_of
from fastgraph.errors import GraphError


def test_copies_the_elements():
    array = np.arange(6, dtype="f4").reshape(2, 3)
    block = block_of(array)
    array[:] = 0
    assert view(block, 0, (2, 3), "f4", "cpu").numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert block_of(np.empty(0)).nbytes == 0


def test_needs_dense_elements():
    before = counters.snapshot()
    with pytest.raises(ValueError, match="contiguous"):
        block_of(np.zeros((4, 4))[:, ::2])
    assert counters.snapshot() == before


def test_sharing():
    mine = ParamBlocks(2)
    first, second = block_of(np.ones(2)), block_of(np.zeros(3))
    mine.replace({0: first})
    theirs = mine.share()
    theirs.replace({0: second, 1: second})
    assert (mine.get(0), mine.get(1)) == (first, None)
    assert (theirs.get(0), theirs.get(1)) == (second, second)
    assert (mine.nbytes, len(mine)) == (16, 2)


@pytest.mark.parametrize("index", [-1, 2, 10])
def test_unknown_number_changes_nothing(index):
    blocks = ParamBlocks(2)
    with pytest.raises(GraphError, match=f"no parameter block has number {index}"):
        blocks.replace({0: block_of(np.ones(1)), index: block_of(np.ones(1))})
    assert blocks.get(0) is None
