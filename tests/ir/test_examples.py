"""Every example in the docstrings of the IR runs, and every public function has one."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fastgraph.ir
import fastgraph.passes
from fastgraph.ir.ops.registry import FUNCTIONS

MODULES = [
    name
    for package in (fastgraph.ir, fastgraph.passes)
    for _, name, _ in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
]


@pytest.mark.parametrize("name", ["fastgraph.ir", "fastgraph.passes", *MODULES])
def test_examples_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_documented(name):
    text = FUNCTIONS[name].build.__doc__
    for heading in ("Parameters", "Returns", "Raises", "Examples"):
        assert heading in text
    assert ">>> reference." in text
