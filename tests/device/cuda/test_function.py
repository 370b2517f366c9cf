"""Loading kernels, and everything that is accepted as one."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import fastgraph as fg
from fastgraph.device.cuda.accepted import as_cuda_function
from fastgraph.device.cuda.function import CudaFunction, compile_function, load_function
from tests.device.cuda.loaders import FakeLoader
from tests.device.cuda.test_mangled import shown

PTX = """.version 9.0
.entry inc(.param .u64 a, .param .f32 b, .param .u32 c) { ret; }
.entry _Z4axpyPfPKf(.param .u64 a, .param .u64 b) { ret; }
"""
SIZES = {"inc": [8, 4, 4], "_Z4axpyPfPKf": [8, 8]}
SOURCE = """
extern "C" __global__ void inc(float *x, float d, int n) { x[n] += d; }
template <class T> __global__ void axpy(T *y, const T *x) { *y += *x; }
"""


@pytest.fixture
def loader():
    return FakeLoader(SIZES)


def test_a_function(loader):
    f = load_function(loader, PTX, "inc")
    assert (f.name, f.device, f.handle) == ("inc", "cuda:0", 1000)
    assert f.static_shared_bytes == 1024
    assert f.max_threads_per_block == 512
    assert f.max_dynamic_shared_bytes == 48 << 10
    assert shown(f.parameters) == ["?", "f4", "?"]
    assert repr(f) == "<CudaFunction inc(.u64, .f32, .u32) on cuda:0>"
    assert shown(load_function(loader, PTX, "_Z4axpyPfPKf").parameters) == ["*f4", "const *f4"]
    declared = load_function(loader, PTX, "inc", "float *x, float d, int n")
    assert shown(declared.parameters) == ["*f4", "f4", "i4"]


def test_one_image_is_loaded_once(loader):
    f = load_function(loader, PTX, "inc")
    assert load_function(loader, PTX.encode(), "inc") is f
    g = load_function(loader, PTX, "_Z4axpyPfPKf")
    assert g.owner is f.owner
    assert len(loader.images) == loader.live == 1
    other = FakeLoader(SIZES, device="cuda:1")
    assert load_function(other, PTX, "inc").device == "cuda:1"
    assert len(other.images) == 1


def test_code_lives_as_long_as_its_functions(loader):
    f, g = load_function(loader, PTX, "inc"), load_function(loader, PTX, "_Z4axpyPfPKf")
    del f
    gc.collect()
    assert loader.live == 1
    del g
    gc.collect()
    assert loader.live == 0
    load_function(loader, PTX, "inc")
    assert len(loader.images) == 2


def test_loaders_are_not_kept():
    loader = FakeLoader(SIZES)
    load_function(loader, PTX, "inc")
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None


def test_threads_load_once(loader):
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: load_function(loader, PTX, "inc"), range(32)))
    assert len(found) == len(loader.images) == 1


@pytest.mark.parametrize(
    ("image", "name", "message"),
    [
        (PTX, "dec", r"has no kernel 'dec'; it has inc, _Z4axpyPfPKf"),
        (PTX.replace("ret", ".bad"), "inc", "line 3; error: .bad"),
        (b"nothing", "inc", "a cubin, a fat binary or PTX"),
        (PTX, "", "the name of a kernel"),
        (PTX, None, "the name of a kernel"),
    ],
)
def test_what_cannot_be_loaded(loader, image, name, message):
    with pytest.raises(fg.GraphError, match=message):
        load_function(loader, image, name)


def test_a_signature_that_is_wrong(loader):
    with pytest.raises(fg.GraphError, match="has 1 parameters, the compiled function 3"):
        load_function(loader, PTX, "inc", "float *x")
    gc.collect()
    assert loader.live == 0


def test_names_that_only_the_driver_knows(loader, nvrtc):
    loader.sizes.clear()
    with pytest.raises(fg.GraphError, match=r"has no kernel 'inc'; C\+\+ mangles names"):
        compile_function(loader, SOURCE, "inc")
    loader.function = lambda *_: (_ for _ in ()).throw(fg.DriverError("lost", code=700))
    with pytest.raises(fg.DriverError, match="lost"):
        compile_function(loader, SOURCE, "inc")


def test_compiled(loader, nvrtc):
    f = compile_function(loader, SOURCE, "inc")
    assert shown(f.parameters) == ["*f4", "f4", "i4"]
    assert [p.text for p in f.parameters] == ["float *", "float", "int"]
    loader.sizes["_Z4axpyIdEvPT_PKS0_"] = [8, 8]
    g = compile_function(loader, SOURCE, "axpy<double>")
    assert (g.name, shown(g.parameters)) == ("axpy<double>", ["*f8", "const *f8"])
    with pytest.raises(fg.GraphError, match="does not compile"):
        compile_function(loader, SOURCE, "dec")


def test_kernels(loader, nvrtc):
    kernel = fg.Kernel("inc", cuda=SOURCE)
    name, f = as_cuda_function(kernel, loader)
    assert (name, shown(f.parameters)) == ("inc", ["*f4", "f4", "i4"])
    assert as_cuda_function(kernel, loader)[1] is f
    other = FakeLoader(SIZES, device="cuda:1")
    assert as_cuda_function(kernel, other)[1].device == "cuda:1"
    # The same function under a name of its own.
    assert as_cuda_function(fg.Kernel("mine", cuda=f), loader) == ("mine", f)
    assert as_cuda_function(f, loader) == ("inc", f)
    with pytest.raises(fg.InputError, match="is not on cuda:1"):
        as_cuda_function(f, other)


@pytest.mark.parametrize("body", [PTX, PTX.encode(), SOURCE])
def test_signatures_of_kernels(loader, nvrtc, body):
    kernel = fg.Kernel("inc", cuda=body, signature="const float *x, float d, unsigned n")
    _, f = as_cuda_function(kernel, loader)
    assert shown(f.parameters) == ["const *f4", "f4", "u4"]
    wrong = fg.Kernel("inc", cuda=body, signature="const float *x, float d")
    with pytest.raises(fg.GraphError, match="has 2 parameters"):
        as_cuda_function(wrong, loader)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuda": SOURCE, "signature": "thing x"}, "no known type"),
        ({"cuda": SOURCE, "signature": 5}, "a signature is a string"),
        ({"cpu": print, "signature": "int n"}, "there is none"),
    ],
)
def test_kernels_with_bad_signatures(options, message):
    with pytest.raises(fg.GraphError, match=message):
        fg.Kernel("inc", **options)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (fg.NativeKernel(4096, "int n", name="n"), "<NativeKernel n.*which is for the cpu"),
        (fg.Kernel("inc", cpu=print), "has no body for cuda"),
        (fg.Kernel("inc", cuda=5), "a body for cuda is source text.*not int"),
        (fg.Kernel("inc", cuda=print), "a body for cuda is source text"),
        (SOURCE, "source or image"),
        (b"x", "source or image"),
        (print, "not builtin_function_or_method"),
        (None, "not NoneType"),
    ],
)
def test_what_is_no_function(loader, f, message):
    with pytest.raises(fg.UnsupportedError, match=message):
        as_cuda_function(f, loader)


def core_class(kind, **members):
    """An object that looks as one of cuda.core."""
    return type(kind, (), {"__module__": "cuda.core._module", **members})()


def test_kernels_of_cuda_core():
    loader = FakeLoader(SIZES, kernels={7: "_Z4axpyPfPKf"})
    kernel = core_class("Kernel", handle=7)
    name, f = as_cuda_function(kernel, loader)
    assert (name, shown(f.parameters)) == ("_Z4axpyPfPKf", ["*f4", "const *f4"])
    assert f.owner is kernel
    assert loader.images == []
    named = fg.Kernel("axpy", cuda=kernel, signature="float *y, float *x")
    name, f = as_cuda_function(named, loader)
    assert (name, f.name, shown(f.parameters)) == ("axpy", "axpy", ["*f4", "*f4"])


def test_object_code_of_cuda_core(loader):
    code = core_class(
        "ObjectCode", code_type="ptx", code=PTX.encode(), symbol_mapping={"axpy": b"_Z4axpyPfPKf"}
    )
    for name, types in (("axpy", ["*f4", "const *f4"]), ("inc", ["?", "f4", "?"])):
        _, f = as_cuda_function(fg.Kernel(name, cuda=code), loader)
        assert (f.name, shown(f.parameters)) == (name, types)
    with pytest.raises(fg.UnsupportedError, match="holds kernels by name"):
        as_cuda_function(code, loader)
    other = core_class("ObjectCode", code_type="ltoir", code=b"", symbol_mapping={})
    with pytest.raises(fg.UnsupportedError, match="compile it to a cubin"):
        as_cuda_function(fg.Kernel("k", cuda=other), loader)


def test_the_real_object_code(loader, nvrtc):
    core = pytest.importorskip("cuda.core")
    options = core.ProgramOptions(arch="sm_90")
    program = core.Program(SOURCE, "c++", options)
    code = program.compile("cubin", name_expressions=("axpy<float>",))
    loader.sizes["_Z4axpyIfEvPT_PKS0_"] = [8, 8]
    _, f = as_cuda_function(fg.Kernel("axpy<float>", cuda=code), loader)
    assert shown(f.parameters) == ["*f4", "const *f4"]


class Type:
    """A type of numba, as far as it is looked at."""

    def __init__(self, text, **members):
        self.text = text
        self.__dict__.update(members)

    def __str__(self):
        return self.text


class CPointer(Type):
    pass


def array(dtype, ndim, layout="C", mutable=True):
    text = f"array({dtype}, {ndim}d, {layout})"
    return Type(text, dtype=Type(dtype), ndim=ndim, layout=layout, mutable=mutable)


def dispatcher(types, symbol="inc", library=True, count=1, extensions=()):
    members = {"entry_name": symbol, "argument_types": types, "extensions": extensions}
    if library:
        asked = []

        def get_cubin(cc):
            asked.append(cc)
            return SimpleNamespace(code=PTX.encode()) if library == "object" else PTX.encode()

        members["_codelibrary"] = SimpleNamespace(get_cubin=get_cubin, asked=asked)
    else:
        members["inspect_asm"] = lambda cc: PTX
    kernel = SimpleNamespace(**members)
    return SimpleNamespace(
        overloads=dict.fromkeys(range(count), kernel), py_func=print, __name__="mine"
    )


@pytest.mark.parametrize("library", [True, "object", False])
def test_kernels_of_numba(library):
    types = [
        array("float32", 1),
        array("int64", 2, "A", mutable=False),
        Type("float32"),
        Type("int32"),
        Type("bool"),
        CPointer("float64*", dtype=Type("float64")),
        array("Record(x[type=int32])", 1),
    ]
    sizes = [*[8] * 7, *[8] * 9, 4, 4, 1, 8, *[8] * 7]
    loader = FakeLoader({"inc": sizes})
    made = dispatcher(types, library=library)
    name, f = as_cuda_function(made, loader)
    assert name == "mine"
    assert shown(f.parameters) == ["*f4", "const *i8", "f4", "i4", "b1", "*f8", "*?"]
    assert f.array_ndims == (1, 2, None, None, None, None, 1)
    assert isinstance(f, CudaFunction)
    if library:
        assert made.overloads[0]._codelibrary.asked == [(9, 0)]
    with pytest.raises(fg.GraphError, match="says its types itself"):
        as_cuda_function(fg.Kernel("k", cuda=made, signature="int n"), loader)
    loader.sizes["inc"] = sizes[1:]
    with pytest.raises(fg.GraphError, match="its types mean parameters of"):
        as_cuda_function(made, loader)


def test_numba_names_architectures_by_two_numbers():
    for arch, want in (("sm_80", (8, 0)), ("sm_100", (10, 0)), ("sm_90a", (9, 0))):
        made = dispatcher([Type("int32")])
        as_cuda_function(made, FakeLoader({"inc": [4]}, arch=arch))
        assert made.overloads[0]._codelibrary.asked == [want]


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (dispatcher([], count=0), fg.GraphError, "has 0 compiled signatures, one is needed"),
        (dispatcher([], count=2), fg.GraphError, "has 2 compiled signatures"),
        (dispatcher([], extensions=[1]), fg.UnsupportedError, "uses extensions"),
        (dispatcher([Type("complex64")]), fg.UnsupportedError, r"argument 0 \(complex64\)"),
        (dispatcher([array("int8", 2, "F")]), fg.UnsupportedError, "row order"),
    ],
)
def test_kernels_of_numba_that_do_not_fit(loader, made, error, message):
    with pytest.raises(error, match=message):
        as_cuda_function(made, loader)


def test_columns_of_one_axis_are_rows():
    made = dispatcher([array("int8", 1, "F")])
    _, f = as_cuda_function(made, FakeLoader({"inc": [8] * 7}))
    assert f.parameters[0].dtype == np.int8
