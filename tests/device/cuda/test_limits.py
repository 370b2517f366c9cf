"""A launch against the limits of function and device: each refusal names thing, found and limit."""

from __future__ import annotations

import pytest

import fastgraph as fg
from fastgraph.device.cuda.function import CudaFunction
from fastgraph.device.cuda.limits import DeviceLimits, check_launch
from tests.device.cuda.loaders import FakeLoader

LOADER = FakeLoader()
NUMBERS = {
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "max_grid_dim_x": 2**31 - 1,
    "max_grid_dim_y": 65535,
    "max_grid_dim_z": 65535,
    "max_block_dim_x": 1024,
    "max_block_dim_y": 1024,
    "max_block_dim_z": 64,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block_optin": 232448,
    "cooperative_launch": 1,
}
LIMITS = DeviceLimits.read("cuda:0", NUMBERS.__getitem__)
F = CudaFunction("k", (), 1000, LOADER, None)  # 1024 static bytes, 512 threads
ONE = (1, 1, 1)


def check(grid=ONE, block=ONE, limits=LIMITS, **options):
    check_launch(limits, "k", F, grid, block, **options)


def test_limits_of_a_device():
    assert LIMITS.grid == (2**31 - 1, 65535, 65535)
    assert LIMITS.capability == (9, 0)
    assert LIMITS.cooperative is True


@pytest.mark.parametrize(
    "options",
    [
        {"grid": (2**31 - 1, 65535, 65535)},
        {"block": (512, 1, 1)},
        {"block": (2, 4, 64)},
        {"shared_bytes": 232448 - 1024},
        {"grid": (6, 4, 1), "cluster": (2, 4, 1)},
        {"grid": (8, 1, 1), "cooperative": True, "residency": lambda threads, shared: 8},
        {"grid": (8, 1, 1), "cooperative": True},
    ],
)
def test_what_is_possible(options):
    check(**options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"grid": (1, 65536, 1)}, fg.GraphError, "grid_dim.y is 65536; cuda:0 allows 1 to 65535"),
        ({"grid": (1, 1, 70000)}, fg.GraphError, "grid_dim.z is 70000"),
        ({"block": (1, 1, 65)}, fg.GraphError, "block_dim.z is 65; cuda:0 allows 1 to 64"),
        ({"block": (2048, 1, 1)}, fg.GraphError, "block_dim.x is 2048; cuda:0 allows 1 to 1024"),
        ({"block": (64, 32, 1)}, fg.GraphError, "2048 threads; cuda:0 allows 1024 in a block"),
        ({"block": (513, 1, 1)}, fg.GraphError, "513 threads; the kernel was compiled for at most"),
        (
            {"shared_bytes": 232448},
            fg.UnsupportedError,
            "shared_mem_bytes is 232448; cuda:0 has 232448 .* takes 1024: at most 231424",
        ),
        ({"shared_bytes": -1}, fg.GraphError, "shared_mem_bytes is -1"),
        ({"shared_bytes": True}, fg.GraphError, "shared_mem_bytes is True"),
        ({"shared_bytes": 1.0}, fg.GraphError, "shared_mem_bytes is 1.0"),
        ({"shared_bytes": None}, fg.GraphError, "shared_mem_bytes is None"),
        ({"cluster": (16, 1, 1), "grid": (16, 1, 1)}, fg.GraphError, "16 blocks; 8 are possible"),
        (
            {"cluster": (1, 2, 1), "grid": (4, 3, 1)},
            fg.GraphError,
            "grid_dim.y is 3, no multiple of cluster_dim.y, which is 2",
        ),
        (
            {"cluster": ONE, "limits": LIMITS._replace(capability=(8, 9))},
            fg.UnsupportedError,
            "compute capability 9.0; cuda:0 has 8.9",
        ),
        (
            {"cooperative": True, "limits": LIMITS._replace(cooperative=False)},
            fg.UnsupportedError,
            "no cooperative launches",
        ),
        (
            {
                "grid": (3, 3, 1),
                "block": (64, 2, 1),
                "shared_bytes": 10,
                "cooperative": True,
                "residency": lambda threads, shared: 8,
            },
            fg.GraphError,
            "cooperative grid of 9 blocks; cuda:0 holds 8 blocks of 128 threads and 10 bytes",
        ),
    ],
)
def test_what_is_not(options, error, message):
    with pytest.raises(error, match=message):
        check(**options)
