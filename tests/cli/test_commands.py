"""The commands, called in this process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fastgraph.cli import demo, info, main, peers, report, run
from tests.onnx.build import in_bytes, model, node

DIGITS = str(files("fastgraph") / "data" / "digits.onnx")


@pytest.fixture
def images(tmp_path: Path) -> str:
    with np.load(files("fastgraph") / "data" / "digits_test.npz") as held_out:
        pixels = held_out["images"][:3].reshape(3, 64)
    np.save(tmp_path / "images.npy", pixels.astype("f4"))
    return str(tmp_path / "images.npy")


def refused(capsys: pytest.CaptureFixture[str], code: int, *argv: str) -> str:
    """The command ends with `code` and says why on stderr alone; returns that."""
    assert main(argv) == code
    found = capsys.readouterr()
    assert found.err.startswith("fastgraph: ")
    assert "Traceback" not in found.err
    return found.err.removeprefix("fastgraph: ").rstrip("\n")


class TestDemo:
    def test_prints_accuracy_confusion_latency_memory_and_nodes(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(demo, "ROUNDS", 1)
        assert main(["demo"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (accuracy,) = [line for line in lines if re.fullmatch(r"accuracy 0\.9\d\d", line)]
        assert float(accuracy.split()[1]) >= 0.97
        assert any(
            re.fullmatch(r"worst confusion: \d taken for \d, \d+ of \d+ times; .*", line)
            for line in lines
        )
        timed = [line.strip() for line in lines if re.search(r"\d\.\d\d +\d+\.\d\d$", line)]
        for name in ("fastgraph run ", "fastgraph run_slots ", "fastgraph bind ", "NumPy "):
            assert any(line.startswith(name) for line in timed), name
        assert any(line.startswith("ONNX Runtime ") for line in timed) == peers.has_onnx_runtime()
        assert any(re.match(r"arena [\d,]+ bytes for [\d,]+ bytes of tensors", x) for x in lines)
        nodes = lines[lines.index("the five slowest nodes") + 2 :]
        assert 1 <= len(nodes) <= 5

    def test_without_onnx_runtime_it_says_so(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(demo, "ROUNDS", 1)
        monkeypatch.setattr(peers, "onnxruntime", None)
        assert main(["demo", "--threads", "2"]) == 0
        out = capsys.readouterr().out
        assert "latency of one image, 2 threads" in out
        assert "ONNX Runtime is not installed" in out

    @pytest.mark.cuda
    def test_on_cuda(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Times of the fake driver would say nothing, and take long.
        monkeypatch.setattr(demo, "measure", lambda calls, items, rounds: {})
        monkeypatch.setattr(demo, "PROFILED_RUNS", 2)
        assert main(["demo", "--device", "cuda"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"^accuracy 0\.9[789]\d$", out, re.MULTILINE)
        assert "latency of one image, fastgraph on cuda:0, others 1 thread\n" in out

    def test_a_peer_that_answers_otherwise_is_an_error(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(demo, "numpy_digits", lambda _: lambda image: np.full((1, 10), 0.1))
        assert "differs by" in refused(capsys, 1, "demo")


class TestRun:
    def test_runs_writes_and_times(
        self, capsys: pytest.CaptureFixture[str], images: str, tmp_path: Path
    ) -> None:
        argv = ["run", DIGITS, "--input", f"image={images}", "--repeat", "3"]
        assert main([*argv, "--output", str(tmp_path / "new" / "out"), "--threads", "1"]) == 0
        out = capsys.readouterr().out
        assert "output probabilities: float32[3, 10], from " in out
        assert "latency of one run, 1 thread\n" in out
        assert "arena " in out
        written = np.load(tmp_path / "new" / "out" / "probabilities.npy")
        np.testing.assert_allclose(written.sum(axis=1), 1, rtol=1e-5)
        with np.load(files("fastgraph") / "data" / "digits_test.npz") as held_out:
            np.testing.assert_array_equal(written.argmax(axis=1), held_out["labels"][:3])

    def test_dims_that_no_file_tells(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        built = model([node("Add", "x x", "../y")], {"x": ("N", 2)}, outputs=("../y",))
        (tmp_path / "m.onnx").write_bytes(in_bytes(built))
        np.save(tmp_path / "x.npy", np.ones((4, 2), "f4"))
        argv = ["run", str(tmp_path / "m.onnx"), "--input", f"x={tmp_path / 'x.npy'}"]
        assert main([*argv, "--dim", "N=4", "--output", str(tmp_path / "o"), "--repeat", "1"]) == 0
        # A tensor's name does not choose the folder.
        assert [path.name for path in (tmp_path / "o").iterdir()] == ["_y.npy"]
        assert "bound to 5" in refused(capsys, 2, *argv, "--dim", "N=5")
        assert "'M', which is no dimension" in refused(capsys, 2, *argv, "--dim", "M=1")
        assert "twice by --dim" in refused(capsys, 2, *argv, "--dim", "N=4", "--dim", "N=4")

    def test_without_inputs_it_says_which_it_needs(
        self, capsys: pytest.CaptureFixture[str], images: str
    ) -> None:
        needs = f"{DIGITS} needs\n  --input image=FILE.npy  float32 (N, 64)"
        found = refused(capsys, 2, "run", DIGITS)
        assert found == f"no --input given for 'image'; {needs}"
        found = refused(capsys, 2, "run", DIGITS, "--input", f"pixels={images}")
        assert found == f"'pixels' is no input of the model; {needs}"
        twice = ["--input", f"image={images}"] * 2
        assert refused(capsys, 2, "run", DIGITS, *twice) == "input 'image' is given twice"

    def test_files_that_cannot_be_used(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def asked(file: Path, code: int = 2) -> str:
            found = refused(capsys, code, "run", DIGITS, "--input", f"image={file}")
            assert "\n" not in found
            return found

        assert "cannot be read: No such file" in asked(tmp_path / "none.npy")
        (tmp_path / "text.npy").write_text("hello")
        assert asked(tmp_path / "text.npy") == (
            f"input 'image': {tmp_path / 'text.npy'} is no .npy file of numbers"
        )
        for name, data in (("zip", b"PK\x03\x04nothing"), ("cut", b"\x93NUMPY\x01\x00v\x00{'d")):
            (tmp_path / f"{name}.npy").write_bytes(data)
            assert asked(tmp_path / f"{name}.npy").endswith("is no .npy file of numbers")
        (tmp_path / "empty.npy").write_bytes(b"")
        assert "is no .npy file" in asked(tmp_path / "empty.npy")
        np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
        assert "is no .npy file" in asked(tmp_path / "objects.npy")
        np.savez(tmp_path / "several.npy", a=np.zeros(1))
        assert "holds several arrays" in asked(tmp_path / "several.npy.npz")
        np.save(tmp_path / "flat.npy", np.zeros(64, "f4"))
        needs = "but the model needs float32 (N, 64)"
        assert asked(tmp_path / "flat.npy").endswith(f"flat.npy holds float32[64], {needs}")
        for array, held in (
            (np.zeros((1, 64)), "float64[1, 64]"),
            (np.zeros((1, 64), ">f4"), ">f4[1, 64]"),
            (np.zeros((1, 63), "f4"), "float32[1, 63]"),
            (np.array("text"), "<U4[]"),
        ):
            np.save(tmp_path / "other.npy", array)
            assert asked(tmp_path / "other.npy").endswith(f"other.npy holds {held}, {needs}")

    def test_an_output_folder_that_cannot_be_is_noticed_first(
        self, capsys: pytest.CaptureFixture[str], images: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        file.write_text("")
        read_only = tmp_path / "read_only"
        read_only.mkdir(mode=0o500)
        refusals = {file: f"{file} is a file, not a folder"}
        refusals[file / "below" / "it"] = refusals[file]
        if os.geteuid():  # all may be written to by root
            refusals[read_only / "new"] = f"{read_only} cannot be written to"
        refusals[tmp_path / ("x" * 1000)] = "File name too long"
        for folder, message in refusals.items():
            # The model is not even looked for.
            found = refused(capsys, 2, "run", "none.onnx", "--output", str(folder))
            assert found == f"--output {folder}: {message}"

    def test_an_output_that_cannot_be_written(
        self, capsys: pytest.CaptureFixture[str], images: str, tmp_path: Path
    ) -> None:
        (tmp_path / "probabilities.npy").mkdir()
        argv = ["run", DIGITS, "--input", f"image={images}", "--output", str(tmp_path)]
        assert main(argv) == 2
        assert capsys.readouterr().err == f"fastgraph: --output {tmp_path}: Is a directory\n"

    def test_models_that_cannot_be_used(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert "cannot be read" in refused(capsys, 2, "run", str(tmp_path / "none.onnx"))
        (tmp_path / "bad.onnx").write_bytes(b"nonsense")
        assert "is not an ONNX model" in refused(capsys, 2, "run", str(tmp_path / "bad.onnx"))
        built = model([node("NonZero", "x", "y")], {})
        (tmp_path / "odd.onnx").write_bytes(in_bytes(built))
        assert "'x', which nothing makes" in refused(capsys, 2, "run", str(tmp_path / "odd.onnx"))
        assert "tpu" in refused(capsys, 2, "run", DIGITS, "--device", "tpu")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run"], "the following arguments are required: MODEL.onnx"),
        (["run", "m", "--input", "x"], "NAME=FILE.npy is needed, not 'x'"),
        (["run", "m", "--dim", "N=x"], "NAME=SIZE is needed, not 'N=x'"),
        (["run", "m", "--repeat", "0"], "a number of 1 or more is needed, not '0'"),
        (["demo", "--threads", "-1"], "a number of 1 or more is needed, not '-1'"),
        (["demo", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_arguments_are_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    found = refused(capsys, 2, *argv)
    assert message in found
    assert "\n" not in found


def test_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ['onnx>=1.17; extra == "onnx"', "absent>=1; extra == 'other'", "x; extra == 'test'"]
    monkeypatch.setattr(info.importlib.metadata, "requires", lambda _: ["numpy", *wanted])
    assert main(["info"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == f"fastgraph {info.version()}"
    chosen = next(x for x in lines if x.startswith("instruction set: ")).rpartition(" ")[2]
    assert chosen in next(x for x in lines if x.startswith("this machine offers:"))
    assert f"cores this process may use: {len(os.sched_getaffinity(0))}" in lines
    assert any(re.fullmatch(r"cuda modules: (not )?in this build", x) for x in lines)
    assert any(re.fullmatch(r"onnx +onnx [\d.]+\S*", x) for x in lines)
    assert any(
        re.fullmatch(r'other +missing absent: pip install "fastgraph-runtime\[other\]"', x)
        for x in lines
    )
    assert not any(x.startswith("test") for x in lines)


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  matmul +NumPy 2 +float int uint bool$", out, re.MULTILINE)
    assert re.search(r"^  Gelu +20 to \d+$", out, re.MULTILINE)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["run", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
    assert info.version() in capsys.readouterr().out


def test_as_a_module_and_into_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "fastgraph", "ops"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "functions of fastgraph.ops" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_measure_times_every_call_on_every_item() -> None:
    seen: list[tuple[str, int]] = []
    calls = {name: lambda item, name=name: seen.append((name, item)) for name in "ab"}
    measured = report.measure(calls, [1, 2], rounds=3)
    assert [m.calls for m in measured.values()] == [6, 6]
    assert seen[4:8] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert all(0 < m.median_us <= m.p99_us for m in measured.values())


def test_difference_of_outputs_treats_equal_infinities_and_nans_as_equal() -> None:
    ours = np.float32([1, np.inf, np.nan, -np.inf])
    assert run._difference(ours, ours.copy()) == 0
    assert run._difference(ours, np.float32([1.5, np.inf, np.nan, -np.inf])) == 0.5
    assert run._difference(np.zeros((0, 2)), np.zeros((0, 2))) == 0
