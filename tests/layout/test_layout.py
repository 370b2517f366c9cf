"""The project's sources against the rules of its layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.layout import rules
from tests.layout.sources import (
    CORE,
    IGNORED_DIRECTORIES,
    KERNELS,
    PACKAGE,
    ROOT,
    c_code,
    module_name,
    project_files,
    python_code,
)

CYTHON = sorted([*CORE.glob("*.pyx"), *CORE.glob("*.pxd")])
CORE_CPP = sorted([*CORE.glob("*.hpp"), *CORE.glob("*.h"), *CORE.glob("*.cpp")])
KERNEL_FILES = sorted([*KERNELS.glob("*.cpp"), *KERNELS.glob("*.h")])
PYTHON = sorted(PACKAGE.rglob("*.py"))

# The calling convention itself, and the one file that gathers the namespaces.
OUTSIDE_NAMESPACE = {"fg_kernel.h", "table.cpp", "table.h", "table.hpp"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules() -> dict[str, str]:
    return {module_name(path): path.read_text("utf-8") for path in PYTHON}


def lowerings(device: str) -> list[str]:
    return [path.read_text("utf-8") for path in sorted((PACKAGE / "lower" / device).glob("*.py"))]


@pytest.mark.parametrize("path", CYTHON, ids=name_of)
@pytest.mark.parametrize(
    "rule",
    [
        rules.core_rooms,
        rules.core_headers,
        rules.cydriver_only_in_driver,
        rules.no_except_star_nogil,
        rules.no_release_in_loop,
        rules.no_textual_include,
        rules.no_nested_import_cython,
        rules.no_environment,
    ],
)
def test_cython_source(rule, path):
    assert rule(path.stem, path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", CORE_CPP, ids=name_of)
def test_core_header_order(path):
    text = path.read_text("utf-8")
    assert rules.core_headers(path.stem, text) == []
    assert rules.no_environment(path.name, text, c_code(text)) == []


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_python_source(path):
    text = path.read_text("utf-8")
    name = module_name(path)
    assert rules.arrow_line(name, text, is_package=path.stem == "__init__") == []
    assert rules.no_nested_import(name, text) == []
    assert rules.no_environment(name, text) == []
    assert rules.cydriver_only_in_driver(name, text) == []


def test_no_import_cycle_inside_a_subpackage():
    packages = {module_name(path) for path in PYTHON if path.stem == "__init__"}
    everything = modules()
    tops = {name.split(".")[1] for name in everything if "." in name}
    for top in tops:
        inside = {name: text for name, text in everything.items() if name.split(".")[1:2] == [top]}
        assert rules.import_cycles(inside, packages) == []


@pytest.mark.parametrize("path", [*PYTHON, *CYTHON], ids=name_of)
def test_python_module_length(path):
    assert rules.not_too_long(name_of(path), python_code(path.read_text("utf-8"))) == []


@pytest.mark.parametrize("path", [*CORE_CPP, *KERNEL_FILES], ids=name_of)
def test_cpp_module_length(path):
    assert rules.not_too_long(name_of(path), c_code(path.read_text("utf-8"))) == []


def test_every_module_has_a_stub():
    names = {path.stem for path in CORE.glob("*.pyx")}
    stubs = {path.stem for path in (PACKAGE / "_core").glob("*.pyi")} - {"__init__"}
    assert names, "no Cython module found"
    assert rules.stubs_match(names, stubs) == []


def test_everything_is_built():
    modules = {path.stem for path in CORE.glob("*.pyx")}
    kernels = {path.name for path in KERNELS.glob("*.cpp")}
    assert modules, "no Cython module found"
    assert kernels, "no kernel found"
    cmake = (ROOT / "CMakeLists.txt").read_text("utf-8")
    assert rules.is_built(modules | kernels, cmake) == []


# What only passes for one device make.
ONE_DEVICE = {"attention_step", "normed_matmul", "pack_weight", "row_product", "scatter_pair"}


def test_every_device_lowers_the_same_operators():
    devices = {path.name for path in (PACKAGE / "lower").iterdir() if path.is_dir()}
    by_device = {
        device: rules.lowered_ops(lowerings(device)) - ONE_DEVICE
        for device in devices & {"cpu", "cuda"}
    }
    assert by_device["cpu"], "no lowering found"
    assert rules.same_ops(by_device) == []


@pytest.mark.parametrize("path", KERNEL_FILES, ids=name_of)
def test_kernel_source(path):
    text = path.read_text("utf-8")
    own = {other.name for other in KERNEL_FILES}
    assert rules.kernel_words(path.name, text) == []
    if path.name not in OUTSIDE_NAMESPACE:
        assert rules.kernel_headers(path.name, text, own) == []
        assert rules.kernel_namespace(path.name, text) == []


def test_no_file_names_a_path_of_one_machine():
    bad = []
    for path in project_files():
        bad += rules.no_machine_path(name_of(path), path.read_bytes().decode("latin-1"))
    assert bad == []


def test_ignored_names_are_those_of_gitignore():
    lines = (ROOT / ".gitignore").read_text("utf-8").split()
    entries = {line.strip("/") for line in lines if "/" in line}
    assert entries - {"*.egg-info", ".venv*"} == IGNORED_DIRECTORIES


def test_readme_shows_the_two_commands():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert [block.strip() for block in blocks[:2]] == [
        'pip install ".[onnx]" && python -m fastgraph demo',
        'pip install ".[test]" && pytest -n 2 --dist loadfile',
    ]
