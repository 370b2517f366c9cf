"""Fit the polynomials of src/_core/kernels/vmath.h and print them as C literals.

Minimax by Lawson's reweighting: least squares on Chebyshev nodes in double precision, weights grown
where the relative error is largest. Rational approximations are linearised about the denominator of
the round before. Run: python tools/fit_vmath.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def chebyshev(low: float, high: float, count: int = 3000) -> Array:
    """Chebyshev nodes of an interval."""
    angle = np.pi * (np.arange(count) + 0.5) / count
    return (low + high) / 2 + (high - low) / 2 * np.cos(angle)


def minimax(basis: Array, wanted: Array, weight: Array, rounds: int = 400) -> tuple[float, Array]:
    """Make the largest ``weight * |basis @ c - wanted|`` small: that error, and c."""
    share = np.full(len(wanted), 1 / len(wanted))
    best: tuple[float, Array] = (math.inf, np.zeros(basis.shape[1]))
    for _ in range(rounds):
        scale = np.sqrt(share) * weight
        found = np.linalg.lstsq(basis * scale[:, None], wanted * scale, rcond=None)[0]
        error = np.abs(weight * (basis @ found - wanted))
        if error.max() < best[0]:
            best = (float(error.max()), found)
        share *= error / error.max() + 1e-3
        share /= share.sum()
    return best


def rational(
    function: Callable[[Array], Array], bound: float, p: int, q: int
) -> tuple[float, Array, Array]:
    """Fit ``x P(x^2) / Q(x^2)`` to an odd function on [0, bound], with Q(0) = 1."""
    x = chebyshev(0, bound, 4000)
    x = x[x > 1e-3]
    ratio, scaled = function(x) / x, (x / bound) ** 2
    upper = np.stack([scaled**i for i in range(p + 1)], 1)
    lower = np.stack([scaled**i for i in range(1, q + 1)], 1)
    below = np.ones_like(x)
    best: tuple[float, Array] = (math.inf, np.zeros(p + q + 1))
    for _ in range(60):
        basis = np.concatenate([upper, -ratio[:, None] * lower], 1)
        _, found = minimax(basis, ratio, 1 / (below * ratio), 40)
        below = 1 + lower @ found[p + 1 :]
        error = float(np.abs(upper @ found[: p + 1] / below / ratio - 1).max())
        if error < best[0]:
            best = (error, found)
    square = bound * bound
    above = best[1][: p + 1] / square ** np.arange(p + 1)
    under = np.append(1.0, best[1][p + 1 :] / square ** np.arange(1, q + 1))
    return best[0], above, under


def show(name: str, error: float, coefficients: Array) -> None:
    """Print coefficients as float literals, lowest degree first."""
    literals = ", ".join(float(np.float32(one)).hex() + "f" for one in coefficients)
    print(f"{name} (relative error {error:.1e} before rounding)\n    {literals}")


def main() -> None:
    """Fit exp, log, erf and tanh."""
    r = chebyshev(-0.3467, 0.3467)
    basis = np.stack([r ** (k + 2) for k in range(5)], 1)
    show("exp: 1 + r + r^2 q(r)", *minimax(basis, np.expm1(r) - r, np.exp(-r)))
    f = chebyshev(math.sqrt(0.5) - 1, math.sqrt(2) - 1)
    basis = np.stack([f ** (k + 3) for k in range(9)], 1)
    wide = f.astype(np.longdouble)
    rest = (np.log1p(wide) - wide + wide * wide / 2).astype(np.float64)
    show("log: f - f^2/2 + f^3 p(f)", *minimax(basis, rest, 1 / np.abs(np.log1p(f))))
    for name, function, bound, p, q in (
        ("erf", np.vectorize(math.erf), 3.925, 5, 5),
        ("tanh", np.tanh, 9.02, 4, 4),
    ):
        error, above, below = rational(function, bound, p, q)
        show(f"{name}: P", error, above)
        show(f"{name}: Q", error, below)


if __name__ == "__main__":
    main()
