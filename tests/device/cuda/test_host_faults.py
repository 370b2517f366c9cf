"""What a host function raises comes out of the next call that waits."""

from __future__ import annotations

import pytest

import fastgraph as fg


@pytest.mark.cuda
def test_it_comes_out_of_synchronize():
    ctx = fg.DeviceContext("cuda")

    def fails():
        raise ZeroDivisionError("mine")

    graph = fg.DeviceGraph.create(ctx, lambda b: b.add_host_function(fails))
    graph.replay()
    with pytest.raises(ZeroDivisionError, match="mine"):
        ctx.synchronize()
    ctx.synchronize()
    graph.replay()
    with pytest.raises(ZeroDivisionError, match="mine"):
        graph.run()
    graph.close()
