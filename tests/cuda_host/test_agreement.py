"""Every operator as lowered for cuda, on drawn operands, against the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fastgraph.errors import InputError
from tests.cuda_host import compiler
from tests.cuda_host.lowered import Case, Suite
from tests.ops import test_operators as operators
from tests.ops.agreement import EXACT, assert_close

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

# Of each operator: all kernels are built by one run of the compiler.
DRAWN = 3


@dataclass
class Drawn:
    """Cases of one operator."""

    name: str
    cases: list[Case]


def drawn(name: str) -> Drawn:
    """The same cases every time."""
    found = Drawn(name, [])

    @settings(
        max_examples=DRAWN, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(operators.CASES[name])
    def draw(case: tuple) -> None:
        call, arrays = case
        dense = tuple(np.ascontiguousarray(one).reshape(one.shape) for one in arrays)
        found.cases.append(Case(f"{name} {len(found.cases)}", call, dense))

    draw()
    return found


# Attention has tests of its own beside it, with masks of each kind; what holds bodies is no launch,
# and what users write is no kernel of ours: both run with models.
NAMES = sorted(set(operators.CASES) - {"attention", "cond", "kernel", "while_loop"})


@pytest.fixture(scope="module")
def everything() -> dict[str, Drawn]:
    return {name: drawn(name) for name in NAMES}


@pytest.fixture(scope="module")
def suite(everything: dict[str, Drawn]) -> Suite:
    return Suite([case for one in everything.values() for case in one.cases], level="-O0")


@pytest.mark.parametrize("name", NAMES)
def test_operator(suite: Suite, everything: dict[str, Drawn], name: str) -> None:
    assert everything[name].cases
    for case in everything[name].cases:
        found = suite.run(case, seed=1, inplace=True)
        try:
            expected = case.expected()
        except InputError:
            assert suite.fault.array[0], case.name
            continue
        assert not suite.fault.array[0], case.name
        scale = operators.SCALES.get(name, 1.0)
        for one, wanted in zip(found, expected, strict=True):
            assert_close(one, wanted, scale=scale, exact=name in EXACT)
