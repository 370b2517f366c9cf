"""A CUDA driver for machines without a GPU: it executes on host memory, and refuses by the rules.

``load()`` builds ``libcuda.so.1`` from the C++ files here and loads it for the whole process, so
that ``dlopen("libcuda.so.1")`` (by `cuda.bindings`, say) finds it. It must come before anything
else that asks for the driver.

    >>> from tests import fake_cuda
    >>> fake = fake_cuda.load()
    >>> from cuda.bindings import driver
    >>> driver.cuInit(0)
    (<CUresult.CUDA_SUCCESS: 0>,)

**What is real.** There are two devices (compute capability 9.0, 132 multiprocessors, 1 GiB each).
Device memory is host memory in a range of addresses of its own, full of garbage when new; freed
addresses are known as freed, and behind each block lies a page that faults. Every stream has a
thread that does its work in order. Graphs run in a legal order that is not the order of adding
(`Fake.seed`). A launch keeps the parameters that it was called with. Refusals, poisoned contexts
and forks are those of ``docs/cuda_facts.md``; a test of ours names each of them.

**Images.** A shared object of the host is taken for a cubin: kernel ``name`` is ``void name(void
*const *args, const int32_t dims[8])`` (grid x, y, z, block x, y, z, bytes of dynamic shared memory,
blocks of a cluster) beside ``const int32_t name_params[]``, the parameters' sizes and −1; its other
global variables are the module's. A real cubin is read for names, parameters and globals; of its
kernels ``fg_set_condition`` and ``fg_fill8`` run here, and launching another is refused with 801.
PTX is the same, unless a line ``// host: PATH`` names a shared object with the bodies.

**Faults.** A kernel with a parameter of eight bytes that points into freed memory, or into another
device's without peer access; one that touches what it must not; a copy or fill outside of live
memory: each poisons the context with 700, as does `Fake.poison_next_kernel`. `Fake.fail` makes one
call fail.

**Where it is stricter.** ``cuMemFree`` does not wait: work under way that touches the memory then
faults.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fake_cuda.build import SONAME, build, header_directory

__all__ = ["Fake", "load", "problem"]

LIVE_KINDS = (
    *("allocations", "bytes", "pinned", "pinned_bytes", "streams", "events", "modules"),
    *("libraries", "graphs", "nodes", "execs", "reservations", "granules"),
)


class Fake:
    """What tests ask of the fake itself. `cuda` is the driver as `ctypes` sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # By its name alone the library is found by whoever asks for the driver after us.
        self.cuda = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name in ("fake_calls", "fake_live", "fake_kernels_run", "fake_steps_left"):
            getattr(self.cuda, name).restype = ctypes.c_long

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, nothing is executed: a call that returns has not waited."""
        self.hold(True)
        try:
            yield
        finally:
            self.hold(False)

    def hold(self, on: bool) -> None:
        """Stop all execution, or let it go on."""
        self.cuda.fake_hold(int(on))

    def step(self, count: int = 1) -> None:
        """While held: let `count` jobs of streams or nodes of graphs pass."""
        self.cuda.fake_step(ctypes.c_long(count))

    def take(self, count: int = 1) -> None:
        """Like `step`, and return when the last of them has begun; so many must be there."""
        self.step(count)
        while self.cuda.fake_steps_left():
            time.sleep(0)

    def wait_for_polls(self, count: int = 100) -> None:
        """Return once events were asked for so often from now on: somebody waits for one."""
        goal = self.calls("cuEventQuery") + count
        while self.calls("cuEventQuery") < goal:
            time.sleep(0)

    def seed(self, value: int) -> None:
        """Choose the order of unordered nodes; 0 is the order of adding."""
        self.cuda.fake_seed(ctypes.c_uint64(value))

    def memory_total(self, nbytes: int) -> None:
        """Set the memory of each device; what does not fit is refused with 2."""
        self.cuda.fake_memory_total(ctypes.c_size_t(nbytes))

    def driver(self, version: int = 13000, devices: int = 2, cc: tuple[int, int] = (9, 0)) -> None:
        """Be another driver, or have other devices."""
        self.cuda.fake_driver(version, devices, *cc)

    def poison_next_kernel(self) -> None:
        """Let the next kernel that runs end in an illegal address."""
        self.cuda.fake_poison_next_kernel()

    def poisoned(self, device: int = 0) -> int:
        """The sticky error of the device's context, or 0."""
        return self.cuda.fake_is_poisoned(device)

    def fail(self, name: str, code: int, count: int = 1) -> None:
        """Let the `count`-th call of ``name`` from now on do nothing and answer `code`."""
        self.cuda.fake_fail(name.encode(), ctypes.c_long(count), code)

    def calls(self, name: str) -> int:
        """How often ``name`` (without ``_v2``) was called since `reset` or `forget_calls`."""
        return self.cuda.fake_calls(name.encode())

    def forget_calls(self) -> None:
        """Count calls from 0 again."""
        self.cuda.fake_forget_calls()

    def kernels_run(self) -> int:
        """How many kernels were run since `reset`."""
        return self.cuda.fake_kernels_run()

    def live(self) -> dict[str, int]:
        """How many things of each kind, and how many bytes, are alive."""
        return {kind: self.cuda.fake_live(kind.encode()) for kind in LIVE_KINDS}

    def settled(self) -> dict[str, int]:
        """As `live`, once what earlier tests left is collected: a count to start from."""
        gc.collect()
        return self.live()

    def reset(self) -> None:
        """Undo all of the above, and heal poisoned contexts. What is alive stays alive."""
        self.cuda.fake_reset()


_loaded: list[Fake] = []


def problem() -> str | None:
    """Why the fake cannot stand for the driver in this process, or None."""
    if _loaded:
        return None
    try:
        header_directory()
    except FileNotFoundError as error:
        return str(error)
    try:
        ctypes.CDLL(SONAME)
    except OSError:
        return None
    return "this machine has a driver of its own"


def load(cache: Path | None = None) -> Fake:
    """The fake driver, built and loaded by the first call."""
    if not _loaded:
        _loaded.append(Fake(build(cache)))
    return _loaded[0]
