"""Small helpers that record the scenarios' kernels over N = 1024 floats."""

from __future__ import annotations

import fastgraph as fg

N = 1024
GRID = {"grid_dim": 4, "block_dim": 256}


def fill(b, kernels, out, value, **options):
    """Every element of `out` becomes `value`."""
    return b.add_function(kernels.fill, out, value, N, **GRID, **options)


def inc(b, kernels, buf, delta, **options):
    """`delta` is added to every element of `buf`."""
    return b.add_function(kernels.inc, buf, delta, N, **GRID, **options)


def add(b, kernels, out, x, y, **options):
    """`out` = `x` + `y`."""
    return b.add_function(kernels.add, out, x, y, N, **GRID, **options)


def scaled(b, kernels, out, x, y, s, **options):
    """`out` = (`x` + `y`) * `s`."""
    return b.add_function(kernels.scaled, out, x, y, s, N, **GRID, **options)


class Sum:
    """A graph whose output is its scalar ``node``, 10, plus its scalar ``memory``, 1."""

    def __init__(self, ctx, kernels, **options):
        self.ctx = ctx
        self.x = ctx.create_buffer(1, "int32")

        def build(b):
            node = b.scalar("node", "int32", 10)
            memory = b.scalar("memory", "int32", 1, where="memory")
            b.add_function(kernels.total, self.x, node, memory, name="total")
            b.add_output(self.x)

        self.graph = fg.DeviceGraph.create(ctx, build, **options)

    def after(self, call, **given):
        """The sum that a call leaves behind."""
        call(**given)
        return int(self.x.numpy()[0])
