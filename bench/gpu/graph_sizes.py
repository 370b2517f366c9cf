"""How long the chains of the probes are."""

from __future__ import annotations

__all__ = ["CHAINS", "LARGE"]

CHAINS = (1, 10, 100, 1000)
LARGE = 1000
