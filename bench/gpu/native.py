"""The native side of the GPU measurements: building it, and running its probes one by one.

Each probe runs in a process of its own, so that one that crashes, hangs or poisons its context
takes no other with it. Probes print lines; `Finding` is one of them.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "Built",
    "Finding",
    "Outcome",
    "Smoke",
    "build",
    "build_host_kernels",
    "build_twin",
    "environment",
    "gpu_problem",
    "run",
    "run_child",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DRIVER = "libcuda.so.1"
MARK = "@"
ARCHITECTURE = "sm_90"


@dataclass(frozen=True)
class Built:
    """What the compiler made: the probes and their device code."""

    library: Path
    cubin: Path


@dataclass(frozen=True)
class Smoke:
    """Another driver than the system's: for looking whether probes work, not for measuring."""

    driver: Path


@dataclass(frozen=True)
class Finding:
    """One line of a probe. `value` is None where there is no number."""

    name: str
    value: float | None
    unit: str
    code: int
    note: str


@dataclass
class Outcome:
    """All that one probe found; `problem` says why it ended early, if it did."""

    probe: str
    findings: list[Finding]
    seconds: float
    problem: str | None

    def record(self) -> dict[str, Any]:
        """The outcome as JSON takes it, with the driver's names beside its numbers."""
        rows = [{**asdict(f), "result": code_name(f.code)} for f in self.findings]
        return {"seconds": round(self.seconds, 2), "problem": self.problem, "findings": rows}


def driver() -> ctypes.CDLL:
    """The driver's library, with its names visible to the probes that are loaded after it."""
    return ctypes.CDLL(DRIVER, mode=ctypes.RTLD_GLOBAL)


def gpu_problem() -> str | None:
    """Why nothing can be measured here, or None."""
    try:
        library = driver()
    except OSError as error:
        return str(error)
    count = ctypes.c_int(0)
    if code := library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return f"the driver answers with error {code}"
    return None if count.value else "the driver sees no device"


def architecture() -> str:
    """The device's own architecture, as the compiler calls it."""
    if gpu_problem():
        return ARCHITECTURE
    major, minor = (_attribute(number) for number in (75, 76))
    return f"sm_{major}{minor}"


def build(folder: Path) -> Built:
    """Compile the probes into `folder`.

    Raises
    ------
    RuntimeError
        There is no ``nvcc``, or it refuses a source; the message holds what it said.
    """
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise RuntimeError("nvcc is not on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    built = Built(folder / "probes.so", folder / "kernels.cubin")
    sources = sorted(str(path) for path in HERE.glob("*.cpp"))
    # The driver's functions stay undefined: a machine that only compiles has no such library.
    link = ["-shared", "--cudart", "none", "-Xcompiler", "-fPIC,-pthread"]
    compile_ = ["-c", "-std=c++17", "-O2", "-Xcompiler", "-fPIC,-Wall,-Wextra"]
    # The sources take seconds each: one compiler a file, side by side.
    objects = [folder / f"{Path(source).stem}.o" for source in sources]
    device = [compiler, f"-arch={architecture()}", "-cubin", "-o", str(built.cubin)]
    commands = [[*device, str(HERE / "kernels.cu")]]
    for source, target in zip(sources, objects, strict=True):
        commands.append([compiler, *compile_, "-o", str(target), source])
    _all(commands)
    _all([[compiler, *link, "-o", str(built.library), *map(str, objects)]])
    return built


def build_twin(folder: Path) -> Path:
    """Compile the twins of the device alone, also without ``nvcc``: `Smoke` needs no more."""
    target, source = folder / "twin.so", HERE / "device_twin.cpp"
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise RuntimeError("a C++ compiler is needed: c++, g++ or clang++")
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-I", str(_headers())]
    _all([[compiler, *flags, "-o", str(target), str(source)]])
    return target


def build_host_kernels(folder: Path) -> Path:
    """Compile the kernels that the tests' driver runs."""
    target, source = folder / "host_kernels.so", HERE / "host_kernels.c"
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("a C compiler is needed: cc, gcc or clang")
    _all([[compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(source)]])
    return target


def _headers() -> Path:
    """Where ``cuda.h`` lies: in a wheel of the runtime, or in a toolkit."""
    for entry in (*sys.path, "/usr/local/cuda"):
        for folder in (Path(entry) / "nvidia/cu13/include", Path(entry) / "include"):
            if (folder / "cuda.h").is_file():
                return folder
    raise RuntimeError("cuda.h was not found; nvidia-cuda-runtime has it")


def _all(commands: list[list[str]]) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = [(command, subprocess.Popen(command, **pipes)) for command in commands]
    problems = []
    for command, process in running:
        said, _ = process.communicate()
        if process.returncode:
            problems.append(f"{' '.join(command)}\n{said}")
    if problems:
        raise RuntimeError("\n".join(problems))


def load(built: Built, *, keep_gil: bool = False) -> ctypes.CDLL:
    """The probes as a library whose calls keep the GIL or let it go."""
    driver()
    return (ctypes.PyDLL if keep_gil else ctypes.CDLL)(str(built.library))


def open_device(library: ctypes.CDLL, built: Built) -> None:
    """Make the probes' context, stream and memory."""
    if library.probe_open(str(built.cubin).encode()):
        raise RuntimeError("the device could not be opened")


def say(name: str, value: float, unit: str, code: int = 0, note: str = "") -> None:
    """Print one finding, in the form of the native probes."""
    print(MARK, name, f"{value:.9g}", unit, code, note, sep="\t", flush=True)


def parsed(lines: Iterable[str]) -> list[Finding]:
    """The findings among `lines`."""
    found = []
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 6 or fields[0] != MARK:
            continue
        value = float(fields[2])
        number = value if math.isfinite(value) else None
        found.append(Finding(fields[1], number, fields[3], int(fields[4]), fields[5]))
    return found


def run(probe: str, built: Built, limit: float) -> Outcome:
    """Run one probe of the driver in a process of its own, for at most `limit` seconds."""
    return run_child("bench.gpu.child", probe, [str(built.library), str(built.cubin)], limit)


def run_child(module: str, probe: str, arguments: list[str], limit: float) -> Outcome:
    """Run `module` on one probe in a process of its own, for at most `limit` seconds."""
    command = [sys.executable, "-m", module, probe, *arguments]
    started = time.monotonic()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        problem = None
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            problem = f"stopped after {limit:.0f} s"
    findings = parsed(out.splitlines())
    failures = [f.note for f in findings if f.name == "failed"]
    if problem is None and failures:
        problem = "; ".join(failures)
    elif problem is None and process.returncode:
        last = err.strip().splitlines()[-1:] or [""]
        problem = f"exit status {process.returncode} {last[0]}".rstrip()
    findings = [f for f in findings if f.name != "failed"]
    if problem is None and not findings:
        problem = "it found nothing"
    return Outcome(probe, findings, time.monotonic() - started, problem)


def code_name(code: int) -> str:
    """The driver's name of a CUresult."""
    if code == 0:
        return "CUDA_SUCCESS"
    name = ctypes.c_char_p()
    try:
        if driver().cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value:
            return name.value.decode()
    except OSError:
        pass
    return str(code)


def environment() -> dict[str, Any]:
    """The device, the driver and the compiler, as far as they can be told."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "python": sys.version.split()[0],
        "nvcc": _first_of(["nvcc", "--version"], "release"),
    }
    if gpu_problem():
        return found
    version, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    driver().cuDriverGetVersion(ctypes.byref(version))
    driver().cuDeviceGetName(name, 128, 0)
    total = ctypes.c_size_t()
    driver().cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    found |= {
        "device": name.value.decode(),
        "architecture": architecture(),
        "memory": total.value,
        "multiprocessors": _attribute(16),
        "clock_khz": _attribute(13),
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
    }
    query = "driver_version,clocks.sm,clocks.mem,persistence_mode,compute_mode"
    found["nvidia_smi"] = _first_of(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    try:
        models = [s for s in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in s]
        found["processor"] = models[0].split(":", 1)[1].strip() if models else None
    except OSError:
        found["processor"] = None
    return found


def _attribute(number: int) -> int:
    value = ctypes.c_int()
    driver().cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    return value.value


def _first_of(command: list[str], word: str = "") -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next((line.strip() for line in done.stdout.splitlines() if word in line), None)
