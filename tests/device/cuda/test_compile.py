"""CUDA C++ through the compiler itself; no GPU is needed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph.device.cuda import compile as compiling
from fastgraph.device.cuda import disk, image, kernels
from fastgraph.device.cuda.compile import compile_source
from fastgraph.device.cuda.mangled import parameters_of, parameters_of_probe
from fastgraph.device.function import parse_signature
from tests.device.cuda.test_mangled import shown

pytestmark = pytest.mark.usefixtures("nvrtc")

SOURCE = """
template <class T> __global__ void axpy(T *y, const T *x, T a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void inc(float *__restrict__ x, float d, unsigned n) { x[n] += d; }
namespace ns { __global__ void plain(int *x) { x[0] = 1; } }
"""
SPOILT = 'extern "C" __global__ void inc(float *x) { x[0] = nothing; }'


@pytest.mark.parametrize("arch", kernels.ARCHITECTURES)
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_kernels_of_the_package(name, arch):
    kernel = kernels.KERNELS[name]
    compiled = compile_source(kernels.source_text(kernel.file), name, arch)
    assert compiled.symbol == name
    assert image.as_image(name, compiled.image) == compiled.image
    declared = parse_signature(name, kernel.signature)
    assert shown(parameters_of_probe(compiled.probe)) == shown(declared)


def test_names():
    want = {
        "axpy<float>": ["*f4", "const *f4", "f4", "i4"],
        "axpy<double>": ["*f8", "const *f8", "f8", "i4"],
        "inc": ["*f4", "f4", "u4"],
        "ns::plain": ["*i4"],
    }
    for name, types in want.items():
        compiled = compile_source(SOURCE, name, "sm_90")
        assert shown(parameters_of_probe(compiled.probe)) == types
        if name != "inc":
            assert shown(parameters_of(compiled.symbol)) == types
    assert compile_source(SOURCE, "inc", "sm_90").symbol == "inc"


def test_headers():
    source = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    source += "__global__ void k(__half *x, const __nv_bfloat16 *y, __half2 z) { *x = z.x; }"
    found = parameters_of(compile_source(source, "k", "sm_80").symbol)
    assert [p.pointer for p in found] == [True, True, False]
    assert found[0].dtype == "f2"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            SPOILT,
            "inc",
            r"'inc' does not compile for sm_90:\nsource\(1\): error: identifier",
        ),
        (SOURCE, "other", 'identifier "other" is undefined'),
        (SOURCE, "axpy", "cannot determine which instance"),
        ('#include "mine.h"\n', "inc", "cannot open source file"),
        ("", "inc", "the source is a text"),
        (b"x", "inc", "the source is a text"),
        (SOURCE, "", "the name of a kernel"),
        (SOURCE, "inc\n", "the name of a kernel"),
        (SOURCE, None, "the name of a kernel"),
    ],
)
def test_what_does_not_compile(source, name, message):
    with pytest.raises(fg.GraphError, match=message) as caught:
        compile_source(source, name, "sm_90")
    assert "fg_signature_of" not in str(caught.value)


def test_an_unknown_architecture():
    with pytest.raises(fg.UnsupportedError, match="does not know sm_35"):
        compile_source(SOURCE, "inc", "sm_35")


@pytest.mark.parametrize("missing", ["cuda.core", "cuda.bindings.nvrtc"])
def test_no_compiler(monkeypatch, missing):
    real = importlib.import_module

    def without(name, *rest):
        if name == missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(compiling.importlib, "import_module", without)
    with pytest.raises(fg.UnsupportedError, match=r"pip install fastgraph-runtime\[cuda\]"):
        compile_source(SOURCE, "inc", "sm_90")


@pytest.fixture
def runs(monkeypatch):
    """The names that were really compiled."""
    names, real = [], compiling._run

    def run(core, source, given, options):
        names.append(given[0])
        return real(core, source, given, options)

    monkeypatch.setattr(compiling, "_run", run)
    return names


def forget(monkeypatch):
    """As a new process."""
    monkeypatch.setattr(compiling, "_kept", type(compiling._kept)())
    monkeypatch.setattr(disk, "_stores", {})


def test_kept_in_memory_and_on_disk(nvrtc, monkeypatch, runs):
    first = compile_source(SOURCE, "inc", "sm_90")
    assert compile_source(SOURCE, "inc", "sm_90") is first
    forget(monkeypatch)
    assert compile_source(SOURCE, "inc", "sm_90") == first
    assert runs == ["inc"]
    for source, name, arch in (
        (SOURCE + " ", "inc", "sm_90"),
        (SOURCE, "ns::plain", "sm_90"),
        (SOURCE, "inc", "sm_80"),
    ):
        compile_source(source, name, arch)
    assert len(runs) == 4
    assert sum(path.is_file() for path in nvrtc.rglob("*")) == 4


def test_nothing_on_disk(nvrtc, monkeypatch, runs):
    monkeypatch.setattr(disk, "_place", None)
    for _ in range(2):
        compile_source(SOURCE, "inc", "sm_90")
        forget(monkeypatch)
    assert len(runs) == 2
    assert not nvrtc.exists()


def test_a_damaged_file(nvrtc, monkeypatch, runs):
    first = compile_source(SOURCE, "inc", "sm_90")
    (path,) = [path for path in nvrtc.rglob("*") if path.is_file()]
    data = path.read_bytes()
    for spoilt in (b"", data[:-1], data[:-1] + b"x", b"\n", data[10:]):
        path.write_bytes(spoilt)
        forget(monkeypatch)
        assert compile_source(SOURCE, "inc", "sm_90") == first
    assert len(runs) == 6


@pytest.mark.parametrize("why", ["file", "no space"])
def test_a_place_that_cannot_be_written(nvrtc, monkeypatch, runs, why):
    if why == "file":
        nvrtc.write_text("not a directory")
    else:

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
    compile_source(SOURCE, "inc", "sm_90")
    forget(monkeypatch)
    compile_source(SOURCE, "inc", "sm_90")
    assert len(runs) == 2


def test_a_read_only_place(nvrtc, monkeypatch, runs):
    """What is there is found; what is not is compiled and not kept."""
    first = compile_source(SOURCE, "inc", "sm_90")

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk.importlib.import_module("tempfile"), "mkstemp", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    forget(monkeypatch)
    assert compile_source(SOURCE, "inc", "sm_90") == first
    compile_source(SOURCE, "ns::plain", "sm_90")
    assert runs == ["inc", "ns::plain"]


def test_the_place(monkeypatch, tmp_path):
    disk.set_cache_directory(str(tmp_path))
    assert disk.cache_directory() == tmp_path
    disk.set_cache_directory(None)
    assert disk.cache_directory() is None
    for bad in (5, b"x", object()):
        with pytest.raises(fg.InputError):
            disk.set_cache_directory(bad)
    assert disk.cache_directory() is None
    monkeypatch.setattr(disk, "_is_set", False)
    assert disk.cache_directory().parts[-3:] == (".cache", "fastgraph", "cuda")

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(disk.Path, "home", homeless)
    assert disk.cache_directory() is None


def test_memory_has_a_limit(monkeypatch):
    monkeypatch.setattr(compiling, "MAX_KEPT", 2)
    names = ["axpy<int>", "axpy<float>", "axpy<double>"]
    for name in names:
        compile_source(SOURCE, name, "sm_90")
    assert [name for _, name, _ in compiling._kept] == names[1:]
    monkeypatch.setattr(compiling, "MAX_KEPT_BYTES", 1)
    compile_source(SOURCE, "inc", "sm_90")
    assert [name for _, name, _ in compiling._kept] == ["inc"]


def test_threads_wait_for_one_compilation(runs):
    barrier = threading.Barrier(8)

    def work(i):
        barrier.wait()
        return compile_source(SOURCE, "inc" if i % 2 else "ns::plain", "sm_90")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert sorted(runs) == ["inc", "ns::plain"]
    assert all(each is found[i % 2] for i, each in enumerate(found))
    assert not compiling._at_work


def test_threads_that_fail():
    def work(_):
        with pytest.raises(fg.GraphError, match="nothing"):
            compile_source(SPOILT, "inc", "sm_90")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not compiling._at_work


def test_processes_share_a_place(nvrtc, runs):
    """Several at once, each finds or makes the same."""
    program = (
        "import sys\n"
        "from fastgraph.device.cuda import compile, disk\n"
        "disk.set_cache_directory(sys.argv[1])\n"
        "sys.stdout.buffer.write(compile.compile_source(sys.argv[2], 'inc', 'sm_90').image)\n"
    )
    command = [sys.executable, "-c", program, str(nvrtc), SOURCE]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = {process.communicate(timeout=100)[0] for process in started}
    assert outputs == {compile_source(SOURCE, "inc", "sm_90").image}
    assert runs == []


def test_the_first_compilation_in_many_threads(nvrtc):
    """Who comes while the compiler is imported waits for that."""
    program = """
import sys, threading
from fastgraph.device.cuda import compile, disk
disk.set_cache_directory(sys.argv[1])
sys.setswitchinterval(1e-6)
gate, images = threading.Barrier(8), []

def work():
    gate.wait()
    images.append(compile.compile_source(sys.argv[2], "inc", "sm_90").image)

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(images) == 8 and len(set(images)) == 1
"""
    subprocess.run([sys.executable, "-c", program, str(nvrtc), SOURCE], check=True, timeout=100)


TYPES = {
    "float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long long": "i8",
    "unsigned char": "u1", "short": "i2", "bool": "b1", "char": "i1", "float4": "?", "S": "?",
    "ns::Outer<int>::Inner": "?", "Pair<float, S *>": "?", "Color": "?",
}  # fmt: skip
POINTED = [*TYPES, "void"]
DECLARATIONS = """
struct S { int a[3]; };
enum Color { red };
namespace ns { template <class T> struct Outer { struct Inner { T t; }; }; }
template <class A, class B> struct Pair { A a; B b; };
template <int N, class T> struct Many { T t[N]; };
"""
PARAMETERS = st.lists(
    st.one_of(
        st.sampled_from([*TYPES]),
        st.tuples(st.sampled_from(["", "const "]), st.sampled_from(POINTED)).map(
            lambda pair: f"{pair[0]}{pair[1]} *"
        ),
        st.sampled_from(["Many<3, S> *", "const Many<4, Pair<S, int>> *", "float (*)[4]"]),
    ),
    max_size=12,
)


def wanted(kind):
    if kind in TYPES:
        return TYPES[kind]
    base = kind.replace("const ", "").replace("(*)[4]", "*").rstrip("* ")
    return f"{'const ' if 'const' in kind else ''}*{TYPES.get(base, '?')}"


@given(st.lists(PARAMETERS, min_size=8, max_size=8))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_types_agree_with_the_compiler(lists):
    """By name as a function, as a template's instance, and by the probe."""
    core = compiling._toolchain()
    lines, names = [DECLARATIONS, compiling.PROBE], []
    for i, kinds in enumerate(lists):
        unnamed = ", ".join(kinds)
        lines.append(f"__global__ void f{i}({unnamed}) {{}}")
        lines.append(f"namespace ns {{ template <class T, int N> __global__ void t{i}(T, T *")
        lines.append("".join(f", {kind}" for kind in kinds) + ") {} }")
        names += [f"f{i}", f"ns::t{i}<S *, 3>", compiling.PROBE_NAME.format(f"f{i}")]
    options = core.ProgramOptions(name="source", arch="sm_90", std="c++17")
    program = core.Program("\n".join(lines), "c++", options)
    symbols = program.compile("cubin", name_expressions=names).symbol_mapping
    for i, kinds in enumerate(lists):
        types = [wanted(kind) for kind in kinds]
        function, template, probe = (symbols[name].decode() for name in names[3 * i : 3 * i + 3])
        assert shown(parameters_of(function)) == types
        assert shown(parameters_of(template)) == ["*?", "*?", *types]
        assert shown(parameters_of_probe(probe)) == types
