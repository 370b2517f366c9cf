"""The declarations that the package ships are good for a module of someone else's."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import fastgraph as fg
from fastgraph._core.order import Order

HERE = Path(__file__).parent
INSTALLED = Path(fg.__file__).parent / "_core"
SOURCES = HERE.parents[1] / "src" / "_core"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory):
    """``outside.pyx``, compiled against the shipped ``.pxd`` files and imported."""
    pytest.importorskip("Cython")
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.fail("this test needs a C++ compiler")
    folder = tmp_path_factory.mktemp("cython")
    # In a source tree the declarations lie beside the sources, not in the package.
    package = folder / "fastgraph"
    package.mkdir()
    (package / "__init__.pxd").touch()
    found = INSTALLED if (INSTALLED / "buffer.pxd").exists() else SOURCES
    (package / "_core").symlink_to(found, target_is_directory=True)
    generated = folder / "outside.cpp"
    cython = [sys.executable, "-m", "cython", "-3", "-Werror", "--cplus", "-I", str(folder)]
    subprocess.run(
        [*cython, "--module-name", "outside", str(HERE / "outside.pyx"), "-o", str(generated)],
        check=True,
    )
    library = folder / ("outside" + sysconfig.get_config_var("EXT_SUFFIX"))
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", include, str(generated), "-o", str(library)],
        check=True,
    )
    spec = importlib.util.spec_from_file_location("outside", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_buffers(outside):
    x = fg.DeviceContext("cpu").to_device(np.array([7, 8, 9], "u1"))
    assert [outside.first_byte(x[i:]) for i in range(3)] == [7, 8, 9]
    with pytest.raises(TypeError):
        outside.first_byte(None)


def test_blocks_are_counted(outside):
    # The leak check of every test sees the block come and go.
    assert outside.new_block(100).nbytes == 100
    assert outside.unchanged() == 0


def test_order(outside):
    assert outside.pairs(Order([[], [0], [0], [1, 2]])) == 5
