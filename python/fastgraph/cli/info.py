"""``fastgraph info``: what this build holds and what this machine offers."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re

import numpy as np

from fastgraph._core import isa
from fastgraph.cli.report import columns
from fastgraph.errors import DriverError, UnsupportedError

__all__ = ["command", "version"]

DISTRIBUTION = "fastgraph-runtime"


def version() -> str:
    """The installed version."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def command(arguments: argparse.Namespace) -> None:
    """Print it."""
    print(f"fastgraph {version()}")
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"{platform.system()} {platform.machine()}"
    )
    print(f"instruction set: {isa.chosen()}")
    print(f"  this machine offers: {', '.join(isa.offered())}")
    print(f"  this build holds:    {', '.join(isa.compiled())}")
    print(f"cores this process may use: {len(os.sched_getaffinity(0))}")
    for line in _cuda():
        print(line)
    print("extras")
    print(columns([_extra_row(name, needed) for name, needed in _extras().items()]))


def _cuda() -> list[str]:
    """Whether the cuda modules are in the build, and what the driver says."""
    if importlib.util.find_spec("fastgraph._core.driver") is None:
        return [
            "cuda modules: not in this build",
            "  cuda.bindings 13 or cuda.h was not found when it was built, or they were turned off",
        ]
    lines = ["cuda modules: in this build"]
    try:
        driver = importlib.import_module("fastgraph._core.driver")
        lines.append("  driver: CUDA {}.{}".format(*driver.version()))
        for ordinal, (name, capability, nbytes) in enumerate(driver.devices()):
            sm = "sm_{}{}".format(*capability)
            lines.append(f"  cuda:{ordinal}: {name}, {sm}, {nbytes / 2**30:.1f} GiB")
    except ImportError as error:
        lines.append(f'  {error}: pip install "{DISTRIBUTION}[cuda]"')
    except (UnsupportedError, DriverError) as error:
        lines.append(f"  {error}")
    return lines


def _extras() -> dict[str, list[str]]:
    """The distributions that each extra of this package asks for, but for the tests'."""
    extras: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    for requirement in requirements:
        found = re.match(r"""([\w.-]+).*\bextra\s*==\s*['"]([\w-]+)['"]""", requirement)
        if found and found[2] != "test":
            extras.setdefault(found[2], []).append(found[1])
    return extras or {"none": []}


def _extra_row(name: str, needed: list[str]) -> tuple[str, str]:
    found, missing = [], []
    for distribution in needed:
        try:
            found.append(f"{distribution} {importlib.metadata.version(distribution)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(distribution)
    if missing:
        return name, f'missing {", ".join(missing)}: pip install "{DISTRIBUTION}[{name}]"'
    return name, ", ".join(found)
