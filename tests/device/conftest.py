"""What the tests of recorded graphs share."""

from __future__ import annotations

import pytest

import fastgraph as fg


@pytest.fixture
def ctx(device: str) -> fg.DeviceContext:
    """A context on the device under test."""
    return fg.DeviceContext(device)


@pytest.fixture
def kernels(device: str, native_kernels):
    """The kernels ``add scaled fill inc dims`` for the device under test."""
    return native_kernels
