"""What the tests of recorded graphs share."""

from __future__ import annotations

import pytest

import fastgraph as fg


# Of the module, since pytest keeps a test's own fixtures alive while leaks are looked for.
@pytest.fixture(scope="module")
def ctx(device: str) -> fg.DeviceContext:
    """A context on the device under test."""
    return fg.DeviceContext(device)


@pytest.fixture
def host() -> fg.DeviceContext:
    """The cpu, for what no other device has: Python kernels, plain C functions."""
    return fg.DeviceContext("cpu")
