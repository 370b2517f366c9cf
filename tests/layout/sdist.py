"""``python -m tests.layout.sdist FILE``: a source distribution's listing against the project."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Collection

from tests.layout.sources import ROOT, project_files

# Written by the build front end.
GENERATED = {"PKG-INFO"}


def compare(packed: Collection[str], wanted: Collection[str]) -> list[str]:
    """What is missing in the distribution, and what it holds too much."""
    packed, wanted = set(packed), set(wanted)
    return [
        *(f"not in the distribution: {name}" for name in sorted(wanted - packed)),
        *(f"not in the project: {name}" for name in sorted(packed - wanted)),
    ]


def main(path: str) -> int:
    """Print the differences; the exit status is their presence."""
    with tarfile.open(path) as archive:
        packed = {
            member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()
        }
    wanted = {file.relative_to(ROOT).as_posix() for file in project_files()}
    differences = compare(packed - GENERATED, wanted)
    print("\n".join(differences) or f"{len(wanted)} files, as in the project")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
