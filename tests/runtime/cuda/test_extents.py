"""Active extents on cuda: refused by name, with everything as it was."""

from __future__ import annotations

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops

pytestmark = pytest.mark.cuda


def test_operators_that_cannot_follow_are_named():
    graph = fg.Graph("rows")
    graph.output(ops.softmax(graph.input("x", (6, 4))), "y")
    model = fg.Session("cuda").compile(graph)
    x = np.zeros((6, 4), "f4")
    model.run({"x": x})
    with pytest.raises(fg.UnsupportedError, match=r"softmax \(softmax, test_extents.py:\d+\)"):
        model.set_active_extent((2, 6))
    assert model.active_extents == {}
    assert model.run({"x": x})[0].shape == (6, 4)
    with pytest.raises(fg.InputError, match="0 to 6"):
        model.set_active_extent((7, 6))
    model.set_active_extent(None)
