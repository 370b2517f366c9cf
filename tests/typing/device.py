"""Recording and replaying."""

from typing import Any, assert_type

import numpy as np

import fastgraph as fg

Array = np.ndarray[Any, np.dtype[Any]]

ctx = fg.DeviceContext("cpu")
a = ctx.create_buffer((1024,), "float32")
b = ctx.to_device(np.zeros(1024, "f4"))
assert_type(a, fg.Buffer)
assert_type(b, fg.Buffer)
assert_type(a[0:4], fg.Buffer)
assert_type(a.shape, tuple[int, ...])
assert_type(a.ptr, int)
assert_type(a.numpy(), Array)
assert_type(ctx.capabilities, frozenset[str])


def build(builder: fg.DeviceGraphBuilder) -> None:
    """Record two nodes."""
    cleared = builder.add_memset(a, 5.0)
    builder.add_copy(b, a, dependencies=[cleared], name="copy")


graph = fg.DeviceGraph.create(ctx, build)
assert_type(graph, fg.DeviceGraph)
graph.replay()
assert_type(graph.run(), tuple[Array, ...])
assert_type(graph.clone(), fg.DeviceGraph)
graph.close()

error = fg.DriverError("no memory", code=2, name="OUT_OF_MEMORY")
assert_type(error.code, int)
assert_type(error.node, str | None)

# What is ignored must be an error: an unused ignore is one itself.
fg.DeviceGraph.create(ctx)  # type: ignore[call-arg]
fg.DeviceGraph.create(ctx, lambda: None)  # type: ignore[arg-type,misc]
