"""Compiled code of these tests stays out of the user's cache."""

from __future__ import annotations

import importlib.util

import pytest

from fastgraph.device.cuda import compile as compiling
from fastgraph.device.cuda import disk


@pytest.fixture
def nvrtc(tmp_path, monkeypatch):
    """NVRTC, with nothing kept from before; the directory is where compiled code goes."""
    for module in ("cuda", "cuda.core", "cuda.bindings"):
        if importlib.util.find_spec(module) is None:
            pytest.skip("cuda-core is not installed")
    monkeypatch.setattr(disk, "_place", tmp_path / "kept")
    monkeypatch.setattr(disk, "_is_set", True)
    monkeypatch.setattr(compiling, "_kept", type(compiling._kept)())
    return tmp_path / "kept"
