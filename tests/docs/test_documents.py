"""Every example in the documents and in the docstrings of the package runs."""

from __future__ import annotations

import builtins
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fastgraph
from tests.docs import operators

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|#)([^)#]+)")

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fastgraph.__path__, "fastgraph.")
    if not module.name.endswith("__main__")
)


def failures_of(test: doctest.DocTest) -> str:
    """Run one doctest and return what it has to complain about."""
    complaints: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=complaints.append, clear_globs=False)
    builtins.__dict__.pop("_", None)  # where the last example's result would live on
    return "".join(complaints)


def run_document(text: str, name: str) -> str:
    """Run the blocks of a document in order, in one namespace; return the complaints."""
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        kind, code = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        if kind == "python":
            exec(compile("\n" * line + code, name, "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(code, namespace, name, name, line)
        if complaints := failures_of(test):
            return complaints
        namespace.update(test.globs)
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_of_document(path):
    assert run_document(path.read_text("utf-8"), path.name) == ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_document(path):
    targets = LINK.findall(path.read_text("utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name):
    if name.startswith("fastgraph.interop."):
        pytest.importorskip(name.rpartition(".")[2])
    module = importlib.import_module(name)
    tests = doctest.DocTestFinder(exclude_empty=True).find(module, name)
    assert "".join(failures_of(test) for test in tests if test.examples) == ""


def test_operator_table_is_up_to_date():
    assert operators.DOCUMENT.read_text("utf-8") == operators.markdown()


def test_a_wrong_example_is_found():
    assert "Expected" in run_document("```pycon\n>>> 1 + 1\n3\n```\n", "sample")
    with pytest.raises(ZeroDivisionError):
        run_document("```python\n1 / 0\n```\n", "sample")
    carried = "```python\nx = 2\n```\ntext\n```pycon\n>>> x\n2\n```\n"
    assert run_document(carried, "sample") == ""
