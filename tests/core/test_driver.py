"""The driver's verbs: what they say when there is none, an old one, a fork, a lost device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastgraph as fg

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(600)  # the first test waits for the fake's compiler

FAKE = "from tests import fake_cuda\nfake = fake_cuda.load()\n"
IMPORTS = """
import os, gc
import fastgraph as fg
from fastgraph._core import buffer, counters, device_memory, driver, stream

def fault(device):
    "Read what lies behind a block: the device is lost."
    block = device_memory.allocate(device, 64)
    beyond = device_memory.borrow(device, block.ptr, 1 << 20, block)
    try:
        buffer.view(beyond, 0, (1 << 20,), "u1", repr(device)).numpy()
    except fg.ContextPoisonedError as error:
        return block, error
    raise AssertionError("nothing was lost")

def refusal(f, *args):
    try:
        f(*args)
    except fg.FastGraphError as error:
        return error
    raise AssertionError("taken")
"""


def run(script: str, preload: str = FAKE) -> str:
    """What a process of its own prints; it must end well and say nothing besides."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", preload + IMPORTS + script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_version_and_devices(gpu, driver):
    assert driver.version() >= (13, 0)
    for name, capability, nbytes in driver.devices():
        assert name
        assert capability >= (8, 0)
        assert nbytes > 1 << 20


def test_no_driver(fake):
    error = run("print(refusal(driver.version))", preload="")
    assert error.startswith("no CUDA driver: ")
    assert "580 or newer" in error
    assert "libcuda.so.1" in error


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("version=12080", "too old: it is of CUDA 12.8, and fastgraph needs driver 580 or newer"),
        ("devices=0", "sees no device"),
        ("cc=(7, 5)", "has compute capability 7.5; fastgraph needs 8.0 or newer"),
    ],
)
def test_unfit_drivers(fake, what, words):
    out = run(f"fake.driver({what})\nprint(repr(refusal(stream.cuda_device, 0)))")
    assert out.startswith("UnsupportedError(")
    assert words in out


def test_a_driver_that_does_not_start_may_do_so_later(fake):
    out = run(
        """
fake.fail("cuInit", 999)
error = refusal(driver.version)
print(type(error).__name__, error.code, error.name)
print(driver.version())
"""
    )
    assert out.split("\n")[:2] == ["DriverError 999 CUDA_ERROR_UNKNOWN", "(13, 0)"]


def test_no_such_device(gpu, streams):
    with pytest.raises(fg.InputError, match=r"no device cuda:99; the driver sees cuda:0"):
        streams.cuda_device(99)


def test_errors_name_call_code_and_device(fake, gpu, memory, streams):
    fake.fail("cuStreamCreateWithPriority", 304)
    with pytest.raises(fg.DriverError, match=r"making a stream on cuda:0: CUDA_ERROR_") as caught:
        streams.Stream(gpu)
    assert (caught.value.code, caught.value.name) == (304, "CUDA_ERROR_OPERATING_SYSTEM")
    fake.fail("cuMemAlloc", 2)
    with pytest.raises(fg.OutOfMemoryError, match=r"123 bytes were asked of cuda:0; ") as caught:
        memory.allocate(gpu, 123)
    assert caught.value.asked == 123
    assert 0 < caught.value.available <= gpu.memory_info[1]
    fake.fail("cuMemHostAlloc", 800)
    with pytest.raises(fg.GraphError, match=r"host function .* must not use the device") as caught:
        memory.allocate_pinned(gpu, 1)
    assert isinstance(caught.value, fg.DriverError)
    assert caught.value.code == 800


def test_the_current_context_stays(fake, gpu, memory, streams):
    binding = pytest.importorskip("cuda.bindings.driver")
    other = streams.cuda_device(1)
    for context in (other.context, gpu.context, 0):
        binding.cuCtxSetCurrent(context)
        memory.allocate(gpu, 100)
        fake.fail("cuMemAlloc", 1)
        with pytest.raises(fg.DriverError):
            memory.allocate(gpu, 100)
        assert int(binding.cuCtxGetCurrent()[1]) == context


def test_attributes_have_the_drivers_names_and_numbers(gpu, streams):
    binding = pytest.importorskip("cuda.bindings.driver")
    kinds = binding.CUdevice_attribute.__members__
    for name, value in gpu.attributes.items():
        kind = kinds[f"CU_DEVICE_ATTRIBUTE_{name.upper()}"]
        assert binding.cuDeviceGetAttribute(kind, gpu.ordinal)[1] == value, name
    assert gpu.attribute("warp_size") == 32
    with pytest.raises(fg.InputError, match="there is no attribute 'warp'"):
        gpu.attribute("warp")


# ---- a lost device


def test_a_lost_device_fails_fast_and_its_objects_go_quietly(fake):
    out = run(
        """
device, other = stream.cuda_device(0), stream.cuda_device(1)
queue = stream.Stream(device)
queue.mark()
event = stream.Event(device, queue)
event.record()
held = stream.Stream(other)
block, error = fault(device)
print(device.poisoned, other.poisoned, error.code, error.name)
print(error)
calls = [
    lambda: device_memory.allocate(device, 4), lambda: device_memory.allocate_pinned(device, 4),
    lambda: stream.Stream(device), queue.query, queue.synchronize, event.query, event.synchronize,
    event.record, device.synchronize, lambda: device.memory_info,
    lambda: held.wait_for(queue),
]
before = fake.calls("cuEventQuery"), fake.calls("cuMemAlloc"), fake.calls("cuEventRecord")
for call in calls:
    error = refusal(call)
    assert type(error) is fg.ContextPoisonedError, error
    assert "was lost to an earlier fault, CUDA_ERROR_ILLEGAL_ADDRESS (700)" in str(error), error
    assert "cuda:0" in str(error)
after = fake.calls("cuEventQuery"), fake.calls("cuMemAlloc"), fake.calls("cuEventRecord")
print(before == after)
x = buffer.view(device_memory.allocate(other, 8), 0, (2,), "f4", "cuda:1")
print(x.numpy())
del block, queue, event, calls, call
gc.collect()
print({name: n for name, n in counters.snapshot().items() if n and name != "blocks"})
"""
    )
    lines = out.splitlines()
    assert lines[0] == "True False 700 CUDA_ERROR_ILLEGAL_ADDRESS"
    assert lines[1].startswith("cuda:0 is lost: ")
    assert lines[2:4] == ["True", "[0. 0.]"]
    left = "{'block_bytes': 0, 'buffers': 1, 'streams': 1, 'device_bytes': 8}"
    assert lines[4] == left.replace("'block_bytes': 0, ", "")


# ---- forks


def test_a_forked_child_is_told_and_ends_quietly(fake):
    out = run(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
device = stream.cuda_device(0)
queue = stream.Stream(device)
queue.mark()
x = buffer.view(device_memory.allocate(device, 8), 0, (2,), "f4", "cuda:0")
pid = os.fork()
if not pid:
    for call in (lambda: device_memory.allocate(device, 4), queue.query, queue.synchronize,
                 x.numpy, device.synchronize, driver.version, lambda: stream.cuda_device(1)):
        error = refusal(call)
        assert type(error) is fg.DriverError, error
        assert error.code == 3, error
        assert "forked" in str(error) and "'spawn'" in str(error), error
    del queue, x, call
    gc.collect()
    print("child", flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
queue.synchronize()
print(x.numpy())
"""
    )
    assert out.splitlines() == ["child", "0", "[0. 0.]"]


def test_a_child_forked_before_the_first_use_may_use_it(fake):
    out = run(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
pid = os.fork()
if not pid:
    queue = stream.Stream(stream.cuda_device(0))
    queue.synchronize()
    print("child", flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
    )
    assert out.splitlines() == ["child", "0"]


def test_the_end_of_the_interpreter_is_quiet(fake):
    run(
        """
device = stream.cuda_device(0)
kept = [stream.Stream(device), stream.Event(device), device_memory.allocate(device, 8)]
kept[0].mark()
kept.append(kept)
fg.kept = kept
fake.hold(True)
"""
    )


# ---- what users see


def test_info_tells_of_the_driver(fake):
    out = run("from fastgraph.cli import main\nmain(['info'])")
    assert "cuda modules: in this build\n  driver: CUDA 13.0\n  cuda:0: Fake GPU 0, sm_90, " in out
    out = run("from fastgraph.cli import main\nmain(['info'])", preload="")
    assert "cuda modules: in this build\n  no CUDA driver: " in out


def test_the_build_finds_what_it_needs_or_says_what_is_missing():
    script = str(ROOT / "tools" / "cuda_paths.py")
    ask = [sys.executable, script], [sys.executable, "-I", "-S", script]
    found, bare = (subprocess.check_output(command, text=True).splitlines() for command in ask)
    if not found[0].startswith("!"):
        pxd, include = map(Path, found)
        assert (pxd / "cuda" / "bindings" / "cydriver.pxd").is_file()
        assert (include / "cuda.h").is_file()
    assert bare == ["!cuda.bindings is not installed (pip install cuda-bindings)"]
