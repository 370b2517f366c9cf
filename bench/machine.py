"""What a number was measured on: processor, clocks, caches, versions.

Imported in every contender's process, so it imports none of the contenders.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "caches",
    "clocks",
    "commit",
    "cores",
    "describe",
    "host_class",
    "installed",
    "last_level_cache",
    "resident_bytes",
    "versions",
]

ROOT = Path(__file__).resolve().parents[1]
CPU = Path("/sys/devices/system/cpu")

# By import name: distribution and the name to print.
LIBRARIES = {
    "numpy": ("numpy", "NumPy"),
    "scipy": ("scipy", "SciPy"),
    "onnx": ("onnx", "ONNX"),
    "onnxruntime": ("onnxruntime", "ONNX Runtime"),
    "openvino": ("openvino", "OpenVINO"),
    "torch": ("torch", "torch"),
    "executorch": ("executorch", "ExecuTorch"),
}

DEFAULT_CACHE = 32 << 20


def installed(module: str) -> bool:
    """Whether `module` can be imported; does not import it."""
    return importlib.util.find_spec(module) is not None


def versions() -> dict[str, str]:
    """Versions of all that takes part, by printed name."""
    found = {"Python": platform.python_version()}
    for module, (distribution, name) in LIBRARIES.items():
        found[name] = "not installed"
        if installed(module):
            found[name] = importlib.metadata.version(distribution)
    return found


def cores(count: int) -> list[int]:
    """`count` of the processors that this process may use, on cores of their own where possible."""
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    first: dict[tuple[str, str], int] = {}
    for cpu in allowed:
        topology = CPU / f"cpu{cpu}" / "topology"
        core = (_read(topology / "physical_package_id"), _read(topology / "core_id") or str(cpu))
        first.setdefault(core, cpu)
    chosen = list(first.values())
    chosen += [cpu for cpu in allowed if cpu not in chosen]
    return chosen[:count]


def caches() -> dict[str, int]:
    """Bytes of each cache that one core reaches, as ``L1 data``, ``L2``, ``L3``."""
    sizes = {}
    for index in sorted((CPU / "cpu0" / "cache").glob("index*")):
        kind, level, size = (_read(index / name) for name in ("type", "level", "size"))
        number = re.fullmatch(r"(\d+)([KMG]?)", size)
        if number is None or kind == "Instruction":
            continue
        unit = {"": 0, "K": 10, "M": 20, "G": 30}[number[2]]
        sizes[f"L{level}" + (" data" if kind == "Data" else "")] = int(number[1]) << unit
    return sizes


def last_level_cache() -> int:
    """Bytes of the largest cache, or a guess where the system does not say."""
    return max(caches().values(), default=DEFAULT_CACHE)


def resident_bytes() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def clocks() -> list[float]:
    """The processors' clocks in MHz at this moment; empty where the system does not say."""
    return [float(mhz) for mhz in re.findall(r"cpu MHz\s*:\s*([\d.]+)", _read("/proc/cpuinfo"))]


def describe() -> dict[str, Any]:
    """The machine and its state, without any name that identifies it."""
    mhz = clocks()
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "clock_mhz": [min(mhz), max(mhz)] if mhz else None,
        "caches": caches(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "libc": " ".join(platform.libc_ver()),
        "load_average": round(os.getloadavg()[0], 2),
    }


def host_class() -> str:
    """A short name for machines like this one, good in a file name."""
    words = re.sub(r"\(.*?\)|@.*|\d+-Core|Processor|CPU", " ", _processor())
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or platform.machine()
    return f"{slug}-{len(os.sched_getaffinity(0))}-cores"


def commit() -> str:
    """The commit that is measured, with ``+`` where the sources differ from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "python", "bench/*.py")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _processor() -> str:
    names = re.findall(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    return names[0].strip() if names else platform.machine()


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
