"""The suite runs on each device that can be tested; what is about one alone says so by a marker."""

from __future__ import annotations

import pytest

from tests.runtime import models


@pytest.fixture(autouse=True)
def models_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `models.compiled` compiles."""
    monkeypatch.setattr(models, "DEVICE", device)
