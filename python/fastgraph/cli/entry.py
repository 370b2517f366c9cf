"""Arguments in, exit code out: 0 done, 1 a run failed, 2 what was asked cannot be done."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fastgraph.cli import demo, info, operators, run
from fastgraph.cli.failure import Failure
from fastgraph.errors import FastGraphError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``fastgraph``.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the command's name; by default those of the process.

    Returns
    -------
    int
        The exit code: 0, or 1 if a run failed, or 2 if the arguments or the model do not fit.

    Examples
    --------
    >>> from fastgraph.cli import main
    >>> main(["run"])
    2
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.command(arguments)
        # None: the process was started without one, so there is nobody to print to.
        if sys.stdout is not None:
            sys.stdout.flush()
    except Failure as failure:
        return _report(str(failure), failure.code)
    except (FastGraphError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader has had enough; keep the interpreter from complaining at exit as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return _report(str(error), 2)
    except KeyboardInterrupt:
        return _report("interrupted", 130)
    return 0


def _report(message: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"fastgraph: {message}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, with one line for an error instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise Failure(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fastgraph", description="Record a graph of work once, replay it fast.")
    parser.add_argument("--version", action="version", version=f"fastgraph {info.version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    shown = commands.add_parser("demo", help="classify digits with a trained model, and time it")
    shown.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 …; default: cpu")
    shown.add_argument("--threads", type=_count, default=1, metavar="N", help="default: 1")
    shown.set_defaults(command=demo.command)

    ran = commands.add_parser("run", help="run an ONNX model on arrays from .npy files")
    ran.add_argument("model", type=Path, metavar="MODEL.onnx")
    ran.add_argument(
        "--input", action="append", default=[], type=_input, metavar="NAME=FILE.npy", dest="inputs"
    )
    ran.add_argument(
        "--dim", action="append", default=[], type=_dim, metavar="NAME=SIZE", dest="dims",
        help="size of a symbolic dimension that no input file tells",
    )  # fmt: skip
    ran.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 …; default: cpu")
    ran.add_argument("--threads", type=_count, metavar="N", help="default: all usable cores")
    ran.add_argument(
        "--repeat", type=_count, metavar="N", help="timed calls; default: about a second of them"
    )
    ran.add_argument(
        "--output", type=Path, metavar="DIR",
        help="write every output there as NAME.npy; in NAME every run of characters other than "
        "letters, digits, '_', '.' and '-' becomes '_'",
    )  # fmt: skip
    ran.set_defaults(command=run.command)

    told = commands.add_parser("info", help="what this build holds and this machine offers")
    told.set_defaults(command=info.command)

    listed = commands.add_parser("ops", help="the operators, and those read from ONNX")
    listed.set_defaults(command=operators.command)
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of 1 or more is needed, not {text!r}")
    return int(text)


def _input(text: str) -> tuple[str, Path]:
    # Names of tensors may hold "=", file names seldom do.
    name, equals, file = text.rpartition("=")
    if not (name and equals and file):
        raise argparse.ArgumentTypeError(f"NAME=FILE.npy is needed, not {text!r}")
    return name, Path(file)


def _dim(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isascii() or not size.isdigit():
        raise argparse.ArgumentTypeError(f"NAME=SIZE is needed, not {text!r}")
    return name, int(size)
