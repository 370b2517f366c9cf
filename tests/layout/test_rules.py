"""Each rule of the layout on a small sample that breaks it, and on one that does not."""

from __future__ import annotations

import pytest

from tests.layout import rules, sdist
from tests.layout.sources import c_code, python_code

# Written apart, so that this file does not itself name a path of one machine.
MACHINE_PATHS = [
    f"see {'/'}home/someone/graph.py",
    f"include {'/'}root/x.h",
    f"open('{'/'}tmp/a')",
    f"C:{chr(92)}Users",
]

BAD = [
    (rules.core_rooms, "counters", "from fastgraph._core.buffer cimport Buffer"),
    (rules.core_rooms, "counters", "from fastgraph._core cimport isa"),
    (rules.core_rooms, "buffer", "from fastgraph._core cimport (\n    types,\n    params,\n)"),
    (rules.core_rooms, "buffer", "cimport fastgraph._core.dispatch as d"),
    (rules.core_rooms, "buffer", "from fastgraph._core import lanes"),
    (rules.core_rooms, "buffer", "from .types cimport Code"),
    (rules.core_rooms, "buffer", "from fastgraph.device.context import DeviceContext"),
    (rules.core_rooms, "helpers", ""),
    (rules.core_headers, "pool", '#include "host_graph.hpp"'),
    (rules.core_headers, "pool", 'cdef extern from "lanes.hpp" nogil:\n    pass'),
    (rules.cydriver_only_in_driver, "buffer", "from cuda.bindings cimport cydriver"),
    (rules.no_except_star_nogil, "buffer", "cdef void f(int x) except * nogil:\n    pass"),
    (rules.no_except_star_nogil, "buffer", "cdef void f(\n    int x,\n) except* nogil"),
    (
        rules.no_except_star_nogil,
        "buffer",
        'cdef extern from "a.h" nogil:\n    void f() except *',
    ),
    (
        rules.no_release_in_loop,
        "dispatch",
        "def run():\n  for i in x:\n    if i:\n      with nogil:\n        f()",
    ),
    (rules.no_release_in_loop, "lanes", "while True:\n    with nogil:\n        f()"),
    (rules.no_textual_include, "buffer", 'include "common.pxi"'),
    (rules.no_nested_import_cython, "buffer", "cdef int f() except -1:\n    import os"),
    (rules.no_nested_import_cython, "buffer", "def f():\n    from a cimport b"),
    (rules.no_nested_import, "m", "def f():\n    import os"),
    (rules.no_nested_import, "m", "class A:\n    async def f(self):\n        from os import path"),
    (rules.no_environment, "m", "import os\nos.environ['A']"),
    (rules.no_environment, "m", "from os import getenv"),
    (rules.arrow_line, "fastgraph.ir.graph", "import fastgraph.lower.call"),
    (rules.arrow_line, "fastgraph.ir.graph", "from fastgraph.passes import optimise"),
    (rules.arrow_line, "fastgraph.ir.graph", "from fastgraph import runtime"),
    (rules.arrow_line, "fastgraph.ir.graph", "from ..passes import fuse"),
    (rules.arrow_line, "fastgraph.ir.graph", "import fastgraph as fg"),
    (rules.arrow_line, "fastgraph.ir.graph", "from fastgraph import Graph"),
    (rules.arrow_line, "fastgraph.errors", "from fastgraph import _core"),
    (rules.arrow_line, "fastgraph.ir.graph", "if TYPE_CHECKING:\n    import fastgraph.runtime"),
    (rules.arrow_line, "fastgraph.helpers", ""),
    (rules.kernel_namespace, "a.cpp", "static int x;\nnamespace FG_NS { }"),
    (rules.kernel_namespace, "a.cpp", "namespace { int x; }"),
    (rules.kernel_namespace, "a.cpp", "namespace FG_NS { int x; "),
    (rules.kernel_namespace, "a.cpp", "namespace FG_NS { } }"),
    (rules.kernel_words, "a.cpp", "float *p = (float *)malloc(4);"),
    (rules.kernel_words, "a.cpp", "auto x = std::max(1, 2);"),
    *[(rules.no_machine_path, "notes.md", text) for text in MACHINE_PATHS],
]

GOOD = [
    (rules.core_rooms, "buffer", "from fastgraph._core.types cimport Code\nimport numpy as np"),
    (rules.core_rooms, "buffer", "from fastgraph.errors import InputError"),
    (rules.core_rooms, "buffer", '"""\nfrom fastgraph._core import lanes\n"""\n# cimport lanes'),
    (rules.core_headers, "host_graph", '#include "pool.hpp"\n#include "host_graph.hpp"'),
    (rules.cydriver_only_in_driver, "driver", "from cuda.bindings cimport cydriver"),
    (rules.cydriver_only_in_driver, "driver_base", "from cuda.bindings cimport cydriver"),
    (rules.cydriver_only_in_driver, "buffer", "# cydriver is for driver alone"),
    (rules.no_except_star_nogil, "buffer", "cdef int f() except -1 nogil:\n    pass"),
    (rules.no_except_star_nogil, "buffer", "cdef void f() except *:\n    pass"),
    (rules.no_release_in_loop, "dispatch", "for i in x:\n    pass\nwith nogil:\n    f()"),
    (rules.no_textual_include, "buffer", "include = 3"),
    (rules.no_nested_import_cython, "buffer", "try:\n    import a\nexcept ImportError:\n    a = 0"),
    (rules.no_nested_import, "m", "if True:\n    import os"),
    (rules.no_environment, "m", "'''os.environ is not read'''"),
    (rules.arrow_line, "fastgraph.passes.fuse", "from fastgraph.ir.graph import Graph"),
    (rules.arrow_line, "fastgraph.passes.fuse", "from . import fold"),
    (rules.arrow_line, "fastgraph.cli.demo", "import fastgraph as fg"),
    (rules.arrow_line, "fastgraph", "from fastgraph.onnx import load"),
    (
        rules.kernel_namespace,
        "a.cpp",
        '#include "vec.h"\n// {\nnamespace FG_NS {\nnamespace { int f() { return 0; } }\n}  // end',
    ),
    (rules.kernel_words, "a.cpp", "// no std::max, no malloc\nint renewed;"),
    (rules.no_machine_path, "notes.md", "#!/usr/bin/env bash, see docs/home/x and $dir/tmp/x"),
]


@pytest.mark.parametrize(("rule", "name", "text"), BAD)
def test_rule_finds(rule, name, text):
    assert len(rule(name, text)) == 1


@pytest.mark.parametrize(("rule", "name", "text"), GOOD)
def test_rule_passes(rule, name, text):
    assert rule(name, text) == []


def test_import_cycle():
    sources = {
        "fastgraph.ir.a": "from fastgraph.ir import b",
        "fastgraph.ir.b": "from fastgraph.ir.c import name",
        "fastgraph.ir.c": "from . import a",
    }
    assert rules.import_cycles(sources) == [
        "fastgraph.ir.a → fastgraph.ir.b → fastgraph.ir.c → fastgraph.ir.a"
    ]
    sources["fastgraph.ir.c"] = "if TYPE_CHECKING:\n    from . import a"
    assert rules.import_cycles(sources) == []


def test_length_counts_code_alone():
    text = '"""Prose\nover\nlines."""\n\n# comment\nx = 1\ny = 2\n'
    assert rules.not_too_long("m", python_code(text), limit=2) == []
    assert rules.not_too_long("m", python_code(text), limit=1) == ["m has 2 lines of code, over 1"]
    assert rules.not_too_long("m", c_code("/* a\nb */\nint x;\n"), limit=0) != []


def test_stubs():
    assert rules.stubs_match({"keys"}, {"keys"}) == []
    assert rules.stubs_match({"keys", "record"}, {"keys", "arena"}) == [
        "record has no stub",
        "stub arena has no module",
    ]


def test_build_list():
    cmake = "fastgraph_module(keys)  # record\nset(SOURCES pack.cpp my_reduce.cpp)\n"
    assert rules.is_built({"keys", "pack.cpp"}, cmake) == []
    assert rules.is_built({"record", "pack", "reduce.cpp"}, cmake) == [
        "pack is not in the CMake list",
        "record is not in the CMake list",
        "reduce.cpp is not in the CMake list",
    ]


def test_lowered_operators():
    cpu = rules.lowered_ops(["@lowers('sum', 'mean')\ndef f(node): ...\n@other('x')\ndef g(): ..."])
    assert cpu == {"sum", "mean"}
    assert rules.same_ops({"cpu": cpu}) == []
    assert rules.same_ops({"cpu": cpu, "cuda": {"sum"}}) == ["cuda does not lower mean"]


def test_kernel_headers():
    def found(name, text):
        return rules.kernel_headers(name, text, {"vec.h"})

    assert found("a.cpp", '#include <math.h>\n#include "vec.h"') == []
    assert found("a.cpp", "#include <vector>") == ["a.cpp:1 includes vector"]
    assert found("a.cpp", '#include "pool.hpp"') == ["a.cpp:1 includes pool.hpp"]
    assert found("a.cpp", "#include <immintrin.h>") != []
    assert found("a.cpp", "#if FG_ISA >= 3\n#include <immintrin.h>\n#endif") == []
    guarded = "#ifndef VEC_H\n#define VEC_H\n#include <immintrin.h>\n#endif"
    assert found("vec.h", guarded) != []


def test_sdist_listing():
    assert sdist.compare({"a.py", "b.pyx"}, {"a.py", "b.pyx"}) == []
    assert sdist.compare({"a.py"}, {"a.py", "b.pyx", "build/x.so"}) == [
        "not in the distribution: b.pyx",
        "not in the distribution: build/x.so",
    ]
    assert sdist.compare({"a.py", "junk"}, {"a.py"}) == ["not in the project: junk"]
