"""The package's own kernels: sources and signatures."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

__all__ = ["ARCHITECTURES", "KERNELS", "PackageKernel", "source_text"]

# What every portable kernel compiles for; others of the same major number run these as well.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


class PackageKernel(NamedTuple):
    """Where a kernel of the package is written, and what it takes."""

    file: str
    signature: str


KERNELS = {
    "fg_set_condition": PackageKernel(
        "control.cu", "unsigned long long handle, const unsigned *value"
    ),
    "fg_fill8": PackageKernel(
        "control.cu", "unsigned long long *dst, unsigned long long value, unsigned long long count"
    ),
}


def source_text(file: str) -> str:
    """Return the text of a source file of the package."""
    return (resources.files(__package__) / "sources" / file).read_text("utf-8")
