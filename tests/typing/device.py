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
graph.set(step=2.0)
graph.update("copy", src=a, enabled=True)
assert_type(graph.to_dot(), str)
graph.close()


def build_more(builder: fg.DeviceGraphBuilder, x: fg.Buffer, n: Array) -> None:
    """Record one of everything."""
    kernel = fg.Kernel("double", cpu=lambda grid, block, out, x: None)
    with builder.region() as region:
        builder.add_function(kernel, fg.Out(a), fg.In(x), grid_dim=(4, 1))
        builder.add_host_function(lambda: None)
    assert_type(region.node, fg.Node)
    assert_type(builder.region(build, dependencies=[region.node]), fg.Node)
    builder.add_while(a, lambda inner: inner.add_empty())
    builder.add_switch(a, [build, build])
    builder.add_output(a)
    recording = builder.recording_context()
    recording.memset(recording.create_buffer(4), 1.0)


cache = fg.DeviceGraphCache(max_graphs=2, max_bytes=None)
assert_type(cache.stats.hits, int)
cached = fg.DeviceGraph.create(ctx, build_more, a, fg.HostValue(3), cache=cache, key="k")
assert_type(cached.run(a, fg.HostValue(3), step=1.0), tuple[Array, ...])
assert_type(cache.lookup(cache.make_key(build, a)), fg.DeviceGraph | None)

error = fg.DriverError("no memory", code=2, name="OUT_OF_MEMORY")
assert_type(error.code, int)
assert_type(error.node, str | None)

# What is ignored must be an error: an unused ignore is one itself.
fg.DeviceGraph.create(ctx)  # type: ignore[call-arg]
fg.DeviceGraph.create(ctx, lambda: None)  # type: ignore[arg-type,misc]
