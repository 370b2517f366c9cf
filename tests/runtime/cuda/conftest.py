"""These tests are about cuda alone."""

from __future__ import annotations

import pytest

import fastgraph as fg


@pytest.fixture(scope="session")
def device() -> str:
    """In the place of the fixture of all devices."""
    return "cuda"


# Once for a module: pytest keeps a test's own fixtures alive while leaks are looked for.
@pytest.fixture(scope="module")
def ctx() -> fg.DeviceContext:
    """A context on the device."""
    return fg.DeviceContext("cuda")
