"""The rules of the layout. Each takes sources and gives a list of complaints: empty is good."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from itertools import chain

from tests.layout.sources import (
    c_code,
    cython_imports,
    enclosing,
    python_code,
    python_imports,
    statements,
)

# A module of the core imports only rooms of a lower number, and names to its left in its own.
ROOMS = (
    ("types", "counters", "isa", "driver_base", "driver", "driver_virtual", "blas"),
    ("codes", "sizes", "key", "keys", "contributions", "order", "arena", "record", "checks"),
    (
        *("buffer", "reserve", "dlpack", "pool", "waiting", "stream", "device_memory"),
        *("cuda_module", "cuda_work", "cuda_reserve"),
        *("params", "lock", "pending", "calls", "scalars"),
    ),
    (
        *("executable", "host_program", "host_graph", "host_worker"),
        *("cuda_host", "cuda_nodes", "cuda_build", "cuda_retired"),
        *("cuda_cells", "cuda_values", "cuda_capture", "cuda_bound", "cuda_graph", "cuda_eager"),
    ),
    (
        *("feeds", "runner", "host_runner", "cuda_resident", "cuda_finish", "cuda_runner"),
        *("staging", "dispatch", "raw", "step", "shelf", "lanes"),
    ),
)
CORE_ORDER = tuple(chain.from_iterable(ROOMS))

# A sub-package imports only names to its left. `fastgraph` itself gathers all up to interop.
ARROWS = (
    *("errors", "_core", "device", "ir", "passes", "lower", "runtime"),
    *("onnx", "interop", "cli", "testing"),
)
USES_FACADE = frozenset({"cli", "testing"})

HOT_MODULES = frozenset({"dispatch", "lanes", "host_graph", "host_runner", "cuda_runner"})
MAX_CODE_LINES = 450
KERNEL_HEADERS = frozenset({"stdint.h", "stddef.h", "string.h", "math.h"})
INTRINSIC_HEADERS = frozenset({"immintrin.h", "arm_neon.h"})


def core_rooms(name: str, text: str) -> list[str]:
    """A ``.pyx`` or ``.pxd`` of the core imports only what lies before it."""
    if name not in CORE_ORDER:
        return [f"{name} has no room in the core"]
    allowed = CORE_ORDER[: CORE_ORDER.index(name)]
    bad = []
    for number, target in cython_imports(text):
        parts = target.split(".")
        if parts[0] == "":
            bad.append(f"{name}:{number} imports {target} relatively")
        elif parts[0] != "fastgraph" or target in ("fastgraph", "fastgraph._core"):
            continue
        elif parts[1] == "_core":
            if parts[2] not in (*allowed, name):
                bad.append(f"{name}:{number} imports {parts[2]}, which does not lie before it")
        elif parts[1] != "errors":
            bad.append(f"{name}:{number} imports {target}; the core knows only fastgraph.errors")
    return bad


def core_headers(name: str, text: str) -> list[str]:
    """A header of a core module is taken only by that module and by what lies behind it."""
    found = re.compile(r'\s*(?:#\s*include|cdef\s+extern\s+from)\s+"([^"]+)"')
    behind = CORE_ORDER[CORE_ORDER.index(name) + 1 :] if name in CORE_ORDER else ()
    return [
        f"{name}:{number} takes {match[1]}, which does not lie before it"
        for number, line in enumerate(text.split("\n"), 1)
        if (match := found.match(line)) and match[1].rsplit("/", 1)[-1].split(".")[0] in behind
    ]


def arrow_line(module: str, text: str, is_package: bool = False) -> list[str]:
    """A Python module imports only sub-packages to the left of its own, or its own."""
    parts = module.split(".")
    if len(parts) == 1 or module == "fastgraph.__main__":
        return []
    if parts[1] not in ARROWS:
        return [f"{module} has no place in the arrow line"]
    allowed = ARROWS[: ARROWS.index(parts[1]) + 1]
    bad = []
    for number, target in python_imports(text, module, is_package):
        top, *rest = target.split(".")
        if top != "fastgraph" or (rest and rest[0] in allowed):
            continue
        if rest and rest[0] in ARROWS:
            bad.append(f"{module}:{number} imports {rest[0]}, which is not to its left")
        elif parts[1] not in USES_FACADE:
            bad.append(f"{module}:{number} imports the façade that gathers it ({target})")
    return bad


def import_cycles(sources: Mapping[str, str], packages: Iterable[str] = ()) -> list[str]:
    """No module of a sub-package reaches itself through imports that happen at run time."""
    packages = frozenset(packages)
    edges: dict[str, set[str]] = {}
    for module, text in sources.items():
        targets = edges.setdefault(module, set())
        for _, target in python_imports(text, module, module in packages, typing=False):
            # `from package import module` names the module; `from module import name` does not.
            known = target if target in sources else target.rpartition(".")[0]
            if known in sources and known != module:
                targets.add(known)
    bad: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            bad.append(" → ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for target in sorted(edges[module]):
                visit(target, (*path, module))
            done.add(module)

    for module in sorted(edges):
        visit(module, ())
    return bad


def cydriver_only_in_driver(name: str, text: str) -> list[str]:
    """The driver's raw binding is named in the modules of its verbs alone."""
    if name in ("driver_base", "driver", "driver_virtual") or not re.search(
        r"\bcydriver\b", python_code(text)
    ):
        return []
    return [f"{name} names cydriver"]


def no_except_star_nogil(name: str, text: str) -> list[str]:
    """``except *`` on a function without the GIL takes the GIL on every call."""
    lines = list(statements(python_code(text)))
    bad = []
    for position, (number, _, line) in enumerate(lines):
        if re.search(r"\bexcept\s*\*", line) and (
            re.search(r"\bnogil\b", line)
            or any(re.match(r"cdef\b.*\bnogil\s*:", h) for h in enclosing(lines, position))
        ):
            bad.append(f"{name}:{number} has `except *` on a nogil function")
    return bad


def no_release_in_loop(name: str, text: str) -> list[str]:
    """A hot module gives the GIL up at most once a run: never inside a loop."""
    if name not in HOT_MODULES:
        return []
    lines = list(statements(python_code(text)))
    return [
        f"{name}:{number} has `with nogil` inside a loop"
        for position, (number, _, line) in enumerate(lines)
        if re.match(r"with\s+nogil\b", line)
        and any(re.match(r"(?:for|while)\b", header) for header in enclosing(lines, position))
    ]


def no_textual_include(name: str, text: str) -> list[str]:
    """Cython's ``include`` pastes text; modules are cimported."""
    return [
        f"{name}:{number} includes text"
        for number, _, line in statements(python_code(text))
        if re.match(r'include\s*""', line)
    ]


def no_nested_import_cython(name: str, text: str) -> list[str]:
    """No import inside a function of Cython source."""
    lines = list(statements(python_code(text)))
    return [
        f"{name}:{number} imports inside a function"
        for position, (number, indent, line) in enumerate(lines)
        if indent
        and re.match(r"(?:from\s+\S+\s+)?c?import\b", line)
        and any(re.match(r"(?:async\s+)?c?p?def\b.*\(", h) for h in enclosing(lines, position))
    ]


def no_nested_import(name: str, text: str) -> list[str]:
    """No import inside a function of Python source."""
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    numbers = {
        inner.lineno
        for function in functions
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    return [f"{name}:{number} imports inside a function" for number in sorted(numbers)]


def no_environment(name: str, text: str, code: str | None = None) -> list[str]:
    """Nothing in the package is steered by environment variables."""
    lines = (python_code(text) if code is None else code).split("\n")
    pattern = re.compile(r"\b(?:environb?|(?:secure_)?getenvb?)\b")
    return [
        f"{name}:{number} reads the environment"
        for number, line in enumerate(lines, 1)
        if pattern.search(line)
    ]


def not_too_long(name: str, code: str, limit: int = MAX_CODE_LINES) -> list[str]:
    """A module's lines of code, without blanks, comments and prose, stay under the limit."""
    count = sum(line.strip() not in ("", '""') for line in code.split("\n"))
    return [f"{name} has {count} lines of code, over {limit}"] if count > limit else []


def stubs_match(names: Iterable[str], stubs: Iterable[str]) -> list[str]:
    """Every Cython module has its stub, and every stub its module."""
    names, stubs = set(names), set(stubs)
    bad = [f"{name} has no stub" for name in sorted(names - stubs)]
    return bad + [f"stub {name} has no module" for name in sorted(stubs - names)]


def is_built(names: Iterable[str], cmake: str) -> list[str]:
    """Every module and every kernel source stands in the CMake list."""
    cmake = re.sub(r"#[^\n]*", "", cmake)
    return [
        f"{name} is not in the CMake list"
        for name in sorted(names)
        if not re.search(rf"(?<![\w./-]){re.escape(name)}(?:\.pyx)?(?![\w./-])", cmake)
    ]


def lowered_ops(sources: Iterable[str]) -> set[str]:
    """Operators that the functions decorated with ``@lowers(…)`` in these sources lower."""
    found: set[str] = set()
    for text in sources:
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "lowers":
                    found |= {arg.value for arg in call.args if isinstance(arg, ast.Constant)}
    return found


def same_ops(by_device: Mapping[str, set[str]]) -> list[str]:
    """Every device lowers the same operators."""
    everything = set().union(*by_device.values())
    return [
        f"{device} does not lower {op}"
        for device, ops in sorted(by_device.items())
        for op in sorted(everything - ops)
    ]


def kernel_headers(name: str, text: str, beside: Iterable[str]) -> list[str]:
    """Host kernels take four C headers, their own, and intrinsics only behind a condition."""
    own = set(beside)
    bad, depth = [], 0
    # The outermost condition of a header is its include guard.
    guard = name.endswith(".h") and "#pragma once" not in text
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        elif match := re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line):
            kind, header = match.groups()
            conditional = depth > guard
            if kind == '"':
                good = header in own
            else:
                good = header in KERNEL_HEADERS or (header in INTRINSIC_HEADERS and conditional)
            if not good:
                bad.append(f"{name}:{number} includes {header}")
    return bad


def kernel_namespace(name: str, text: str) -> list[str]:
    """All code of a host kernel lies inside ``namespace FG_NS``.

    One source is compiled several times for different instruction sets: a name outside would be
    one name for all of them, and the linker would keep the copy of any one.
    """
    bad, depth, outside = [], 0, ""
    for char in c_code(text):
        if char == "{":
            if depth == 0:
                if outside.split() != ["namespace", "FG_NS"]:
                    bad.append(f"{name} has `{' '.join(outside.split())}` outside FG_NS")
                outside = ""
            depth += 1
        elif char == "}":
            depth -= 1
            if depth < 0:
                return [*bad, f"{name} closes more braces than it opens"]
        elif depth == 0:
            outside += char
    if depth:
        bad.append(f"{name} leaves a brace open")
    if outside.strip():
        bad.append(f"{name} has `{' '.join(outside.split())}` outside FG_NS")
    return bad


def kernel_words(name: str, text: str) -> list[str]:
    """Host kernels neither allocate nor raise, and take nothing from the standard library."""
    words = re.findall(
        r"\bstd::\w+|\b(?:malloc|calloc|realloc|free|new|delete|throw)\b", c_code(text)
    )
    return [f"{name} uses {word}" for word in sorted(set(words))]


def no_machine_path(name: str, text: str) -> list[str]:
    """No file names a place that exists on one machine alone."""
    pattern = re.compile(r"(?<![\w.}$*~])/(?:home|root|tmp|work|mnt|Users)/\w|\b[A-Z]:\\{1,2}Users")
    return [
        f"{name}:{number} names a path of one machine"
        for number, line in enumerate(text.split("\n"), 1)
        if pattern.search(line)
    ]
