"""What a host function raises comes out of the next call that waits."""

from __future__ import annotations

import numpy as np
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


ACTS = {
    "synchronize": lambda ctx, x, event: ctx.synchronize(),
    "stream": lambda ctx, x, event: ctx.stream.synchronize(),
    "query": lambda ctx, x, event: ctx.stream.query(),
    "event": lambda ctx, x, event: event.record(),
    "memset": lambda ctx, x, event: ctx.memset(x, 1.0),
    "copy": lambda ctx, x, event: ctx.copy(x, np.ones(4, "f4")),
    "allocate": lambda ctx, x, event: ctx.create_buffer(4),
    "pinned": lambda ctx, x, event: ctx.create_host_buffer(4),
    "make": lambda ctx, x, event: ctx.create_stream(),
}


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ACTS)
def test_a_host_function_that_uses_the_device_is_told_in_plain_words(kind):
    ctx = fg.DeviceContext("cuda")
    x, event = ctx.create_buffer(4), ctx.create_event()
    ctx.copy(x, np.zeros(4, "f4"))
    ctx.synchronize()
    graph = fg.DeviceGraph.create(
        ctx, lambda b: b.add_host_function(lambda: ACTS[kind](ctx, x, event))
    )
    graph.replay()
    with pytest.raises(
        fg.GraphError, match=r"a host function of a graph .*must not use the device"
    ):
        ctx.synchronize()
    graph.close()
