"""Small helpers that record the scenarios' kernels over N = 1024 floats."""

from __future__ import annotations

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
