"""Reading sources: finding the project's files, dropping comments and strings, finding imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "_core"
KERNELS = CORE / "kernels"
PACKAGE = ROOT / "python" / "fastgraph"

# The same names as in .gitignore; a test compares the two.
IGNORED_DIRECTORIES = frozenset(
    {"build", "dist", "wheelhouse", "__pycache__", ".hypothesis", ".pytest_cache"}
    | {".mypy_cache", ".ruff_cache"}
)
IGNORED_NAMES = re.compile(r".*\.(?:so|py[cod])|.*\.egg-info|\.venv.*|\.git")

_LEXEMES = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?P<string>(?:\b[A-Za-z]{1,2})?
      (?:\"{3}.*?(?<!\\)\"{3} | '{3}.*?(?<!\\)'{3}
       | \"(?:\\.|[^\"\\\n])*\" | '(?:\\.|[^'\\\n])*'))
    """,
    re.VERBOSE | re.DOTALL,
)
_C_LEXEMES = re.compile(
    r"""
    (?P<comment>/\*.*?\*/ | //[^\n]*)
  | (?P<string>\"(?:\\.|[^\"\\\n])*\" | '(?:\\.|[^'\\\n])*')
    """,
    re.VERBOSE | re.DOTALL,
)
_PREPROCESSOR = re.compile(r"^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*$", re.MULTILINE)


def project_files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of the project that version control does not ignore."""
    for path in sorted(root.iterdir()):
        if path.name in IGNORED_DIRECTORIES or IGNORED_NAMES.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from project_files(path)
        else:
            yield path


def _blank(match: re.Match[str]) -> str:
    """A comment vanishes, a string becomes an empty one; both keep their line breaks."""
    breaks = "\n" * match.group().count("\n")
    return breaks if match.lastgroup == "comment" else '""' + breaks


def python_code(text: str) -> str:
    """Python or Cython without comments and without what its strings hold."""
    return _LEXEMES.sub(_blank, text)


def c_code(text: str) -> str:
    """C or C++ without comments, preprocessor lines and what its strings hold."""
    return _PREPROCESSOR.sub("", _C_LEXEMES.sub(_blank, text))


def statements(code: str) -> Iterator[tuple[int, int, str]]:
    """Line number, indentation and text of each statement, continued lines joined into one."""
    pending, start, depth = "", 0, 0
    for number, line in enumerate(code.split("\n"), 1):
        if not pending:
            start = number
        pending += line
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if line.endswith("\\"):
            pending = pending[:-1]
            continue
        if depth > 0:
            pending += " "
            continue
        if pending.strip():
            yield start, len(pending) - len(pending.lstrip()), pending.strip()
        pending, depth = "", 0


def enclosing(lines: list[tuple[int, int, str]], position: int) -> Iterator[str]:
    """Headers of the blocks round the statement at `position`, innermost first."""
    indent = lines[position][1]
    for _, other, text in reversed(lines[:position]):
        if other < indent:
            indent = other
            yield text


def cython_imports(text: str) -> Iterator[tuple[int, str]]:
    """Line and full name of each module, or name in one, that a ``.pyx`` or ``.pxd`` imports."""
    for number, _, line in statements(python_code(text)):
        if match := re.match(r"from\s+([.\w]+)\s+c?import\s+(.*)", line):
            base, names = match.groups()
            for name in names.strip("() ").split(","):
                if name.strip():
                    yield number, f"{base}.{name.split()[0]}"
        elif match := re.match(r"c?import\s+(.*)", line):
            for name in match.group(1).split(","):
                yield number, name.split()[0]


def _all_nodes(tree: ast.AST, typing: bool) -> Iterator[ast.AST]:
    """Every node of the tree; those under ``if TYPE_CHECKING:`` only if `typing`."""
    for child in ast.iter_child_nodes(tree):
        guard = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
        if typing or not guard:
            yield child
            yield from _all_nodes(child, typing)


def python_imports(
    text: str, module: str, is_package: bool, typing: bool = True
) -> Iterator[tuple[int, str]]:
    """Line and full name of each module, or name in a module, that Python source imports.

    Imports for type checkers alone count only if `typing`.
    """
    for node in _all_nodes(ast.parse(text), typing):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + is_package
                base = ".".join([*parts[:kept], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def module_name(path: Path, package: Path = PACKAGE) -> str:
    """``python/fastgraph/ir/graph.py`` → ``fastgraph.ir.graph``."""
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
