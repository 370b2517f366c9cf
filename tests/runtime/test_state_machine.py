"""A compiled graph against a plain model of what it should be: any calls, in any order.

What a rule does to the graph it does to `Expected` too, in a few lines of NumPy; then all that can
be read has to be equal. Later features add rules and what they expect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import fastgraph as fg
from fastgraph import ops
from tests.runtime.models import compiled

ROWS, WIDTH, TABLE = 4, 4, 3
NAMES = ("acc", "square", "cache", "step")
SHAPES = {"acc": (WIDTH,), "square": (WIDTH, WIDTH), "cache": (ROWS, WIDTH), "step": (1,)}
# What may be fed into which handle, and what tells the row.
FEEDS = {
    "acc": (("sum", None),),
    "square": (("product", None), ("copy", None)),
    "cache": (("row", "pos"), ("row", "step"), ("moved", None)),
    "step": (("following", None),),
}


def graph() -> fg.Graph:
    """A sum that can be in place, a product that cannot, rows at a position, a row of a table."""
    g = fg.Graph("state")
    acc, square = g.input("acc", SHAPES["acc"]), g.input("square", SHAPES["square"])
    cache, step = g.input("cache", SHAPES["cache"]), g.input("step", SHAPES["step"], "int64")
    index, by = g.input("index", (1,), "int64"), g.scalar("by", "float32", 1.0)
    g.scalar("pos", "int32", 0)
    picked = ops.take(g.param("table", (TABLE, WIDTH)), index, axis=0)
    g.output(acc + picked.reshape(WIDTH) * by, "sum")
    g.output(square @ square * 0.25 + acc, "product")
    g.output(square + 0.5, "copy")
    g.output(picked + by, "row")
    g.output(cache + picked, "moved")
    g.output(step + 1, "following")
    g.output(ops.sum(cache, axis=0), "total")
    return g


OUTPUTS = ("sum", "product", "copy", "row", "moved", "following", "total")


def reference(arrays: dict[str, Any], table: Any, index: int, by: float) -> dict[str, Any]:
    """The graph in NumPy."""
    picked = table[index][None]
    return {
        "sum": arrays["acc"] + picked[0] * np.float32(by),
        "product": arrays["square"] @ arrays["square"] * np.float32(0.25) + arrays["acc"],
        "copy": arrays["square"] + np.float32(0.5),
        "row": picked + np.float32(by),
        "moved": arrays["cache"] + picked,
        "following": arrays["step"] + 1,
        "total": arrays["cache"].sum(0),
    }


@dataclass
class Cell:
    """Memory that handles lie in; several may. A run that failed may have written anything."""

    array: Any
    known: bool = True


@dataclass
class Expected:
    """What one model is, and what each handle and feed of it."""

    model: Any
    table: Any = None
    handles: dict[str, Cell] = field(default_factory=dict)
    gpu: set[str] = field(default_factory=set)
    feeds: dict[str, tuple[str, str | None, bool]] = field(default_factory=dict)
    # Fed in place by a run that failed; which ones are is the model's own affair.
    doubtful: set[str] = field(default_factory=set)


def array_of(name: str, value: int) -> Any:
    dtype = "int64" if name == "step" else "float32"
    if name == "step":
        return np.full(SHAPES[name], value % ROWS, dtype)
    return (np.arange(int(np.prod(SHAPES[name]))).reshape(SHAPES[name]) % 3 * 0.25 + value).astype(
        dtype
    )


names = st.sampled_from(NAMES)
values = st.integers(-3, 3)
METHODS = ("run", "raw", "slots", "typed", "step", "out", "profile", "feed once")


class Machine(RuleBasedStateMachine):
    """The rules; `models` are graphs and their clones, `buffers` memory of the device."""

    models = Bundle("models")
    buffers = Bundle("buffers")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Expected] = []

    def teardown(self) -> None:
        for expected in self.all:
            expected.model.close()

    # ---- things

    @initialize(target=models, bare=st.integers(0, 3))
    def compile(self, bare: int) -> Expected:
        expected = Expected(compiled(graph()))
        self.all.append(expected)
        # Much would be refused otherwise: most rules find something to work on.
        self.table(expected, 1)
        for name in NAMES[: 4 - bare]:
            expected.model.bind_handle(name, array_of(name, 1))
            self.bound(expected, name, Cell(array_of(name, 1)), gpu=False)
            output, at = FEEDS[name][0]
            expected.model.set_gpu_handle_feed(name, output, at=at)
            expected.feeds[name] = (output, at, False)
        return expected

    @rule(target=models, expected=models)
    def clone(self, expected: Expected) -> Any:
        if len(self.all) > 3:
            return multiple()
        other = Expected(
            expected.model.clone(),
            expected.table,
            {name: Cell(cell.array.copy(), cell.known) for name, cell in expected.handles.items()},
            set(expected.gpu),
            dict(expected.feeds),
            set(expected.doubtful),
        )
        self.all.append(other)
        return other

    @rule(target=buffers, expected=models, name=names, value=values)
    def allocate(self, expected: Expected, name: str, value: int) -> tuple[str, Any, Cell]:
        array = array_of(name, value)
        return name, expected.model.context.to_device(array), Cell(array.copy())

    @rule(expected=models, value=values)
    def set_param(self, expected: Expected, value: int) -> None:
        self.table(expected, value)

    def table(self, expected: Expected, value: int) -> None:
        expected.table = (np.arange(TABLE * WIDTH).reshape(TABLE, WIDTH) % 5 + value).astype("f4")
        expected.model.set_param("table", expected.table)

    # ---- handles

    def bound(self, expected: Expected, name: str, cell: Cell, gpu: bool) -> None:
        expected.handles[name] = cell
        expected.doubtful.discard(name)
        (expected.gpu.add if gpu else expected.gpu.discard)(name)

    @rule(expected=models, name=names, value=values, gpu=st.booleans())
    def bind_array(self, expected: Expected, name: str, value: int, gpu: bool) -> None:
        array = array_of(name, value)
        bind = expected.model.bind_gpu_handle if gpu else expected.model.bind_handle
        bind(name, array)
        array[...] = 99
        self.bound(expected, name, Cell(array_of(name, value)), gpu)

    @rule(expected=models, buffer=buffers, gpu=st.booleans())
    def bind_buffer(self, expected: Expected, buffer: tuple[str, Any, Cell], gpu: bool) -> None:
        name, held, cell = buffer
        bind = expected.model.bind_gpu_handle if gpu else expected.model.bind_handle
        bind(name, held)
        self.bound(expected, name, cell, gpu)

    @rule(buffer=buffers, value=values)
    def write_buffer(self, buffer: tuple[str, Any, Cell], value: int) -> None:
        name, held, cell = buffer
        held.copy_from(array_of(name, value))
        cell.array[...] = array_of(name, value)
        cell.known = True

    @rule(expected=models, name=names)
    def unbind(self, expected: Expected, name: str) -> None:
        if name not in expected.handles:
            with pytest.raises(fg.InputError, match="no handle is bound"):
                expected.model.unbind_handle(name)
            return
        expected.model.unbind_handle(name)
        del expected.handles[name]
        expected.feeds.pop(name, None)
        expected.gpu.discard(name)
        expected.doubtful.discard(name)

    @rule(expected=models, name=names, which=st.integers(0, 2), ring=st.booleans())
    def feed(self, expected: Expected, name: str, which: int, ring: bool) -> None:
        output, at = FEEDS[name][which % len(FEEDS[name])]
        ring = ring and at is not None
        if name not in expected.handles:
            with pytest.raises(fg.InputError, match="no handle is bound"):
                expected.model.set_gpu_handle_feed(name, output, at=at, ring=ring)
            return
        if name in expected.doubtful:
            return
        expected.model.set_gpu_handle_feed(name, output, at=at, ring=ring)
        expected.feeds[name] = (output, at, ring)

    # ---- runs

    @rule(
        expected=models,
        method=st.sampled_from(METHODS),
        left=st.sets(names),
        value=values,
        index=st.sampled_from([0, 1, 2, 0, 1, 2, 0, 1, 2, TABLE]),
        pos=st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, -1, ROWS]),
        by=st.sampled_from([None, 0.5, 2.0]),
    )
    def run(self, expected, method, left, value, index, pos, by) -> None:
        """Any way to run, good data or bad, some inputs given and some left to handles."""
        given = {name for name in NAMES if name not in left or name not in expected.handles}
        if value == 3:
            given = set(NAMES) - left  # perhaps too few
        arrays = {name: array_of(name, value) for name in NAMES if name in given}
        arrays["index"] = np.int64([index])
        scalars = {"pos": pos} | ({} if by is None else {"by": by})
        call = {
            "run": lambda: expected.model.run(arrays, **scalars),
            "raw": lambda: [o.array() for o in expected.model.run_raw(arrays, **scalars)],
            "slots": lambda: self.slots(expected.model, arrays, scalars),
            "typed": lambda: self.typed(expected.model, arrays, scalars),
            "step": lambda: self.step(expected.model, arrays, scalars),
            "out": lambda: self.out(expected.model, arrays, scalars),
            "profile": lambda: expected.model.profile(arrays, n=1, **scalars) and None,
            "feed once": lambda: self.feed_once(expected, arrays, scalars),
        }[method]
        missing = [name for name in NAMES if name not in given and name not in expected.handles]
        doubtful = {name for name in NAMES if name not in given} & expected.doubtful
        if expected.table is None or missing:
            with pytest.raises(fg.InputError):
                call()
            return
        if doubtful or (method == "feed once" and expected.doubtful):
            return
        if not all(expected.handles[name].known for name in NAMES if name not in given):
            return
        read = {
            name: arrays[name] if name in given else expected.handles[name].array.copy()
            for name in NAMES
        }
        rows = self.rows(expected, read, pos)
        if rows is None or index == TABLE:
            with pytest.raises(fg.InputError):
                call()
            self.failed(expected, rows is not None and index == TABLE, rows is None)
            return
        wanted = reference(read, expected.table, index, 1.0 if by is None else by)
        if method == "feed once" and "square" in expected.handles:
            rows["square"] = ("copy", None)
        found = call()
        for name, (output, at) in rows.items():
            cell = expected.handles[name]
            if at is None:
                cell.array[...] = wanted[output]
                cell.known = True
            else:
                cell.array[at % ROWS] = wanted[output][0]
        if found is not None:
            for name, array in zip(OUTPUTS, found, strict=True):
                np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-5)

    def rows(self, expected: Expected, read: Any, pos: int) -> dict[str, Any] | None:
        """What goes where; None where a position is out of range."""
        found: dict[str, Any] = {}
        for name, (output, at, ring) in expected.feeds.items():
            row = None
            if at is not None:
                row = pos if at == "pos" else int(read["step"][0])
                if row < 0 or (row >= ROWS and not ring):
                    return None
            found[name] = (output, row)
        return found

    def failed(self, expected: Expected, by_data: bool, by_position: bool) -> None:
        """What was fed whole may be spoiled; all else is as it was."""
        if by_data or (by_position and expected.model.device != "cpu"):
            whole = [name for name, (_, at, _) in expected.feeds.items() if at is None]
            for name in whole:
                try:
                    expected.model.read_handle(name)
                except fg.InputError as error:
                    assert "is not valid" in str(error)
                    expected.doubtful.add(name)
                    expected.handles[name].known = False

    @staticmethod
    def slots(model: Any, arrays: Any, scalars: Any) -> Any:
        model.run_slots([arrays.get(info.name) for info in model.inputs], **scalars)
        return [model.output_view(i).copy() for i in range(len(OUTPUTS))]

    @staticmethod
    def typed(model: Any, arrays: Any, scalars: Any) -> Any:
        given = [(name, array.tobytes(), array.dtype.name) for name, array in arrays.items()]
        found = model.run_typed(given, **scalars)
        return [
            np.frombuffer(data, dtype).reshape(info.shape)
            for (data, dtype), info in zip(found, model.outputs, strict=True)
        ]

    @staticmethod
    def step(model: Any, arrays: Any, scalars: Any) -> Any:
        out = {info.name: np.empty(info.shape, info.dtype) for info in model.outputs}
        model.bind(arrays, out)(**scalars)
        return list(out.values())

    @staticmethod
    def out(model: Any, arrays: Any, scalars: Any) -> Any:
        out = [np.empty(info.shape, info.dtype) for info in model.outputs]
        model.run(arrays, out=out, **scalars)
        return out

    @staticmethod
    def feed_once(expected: Expected, arrays: Any, scalars: Any) -> Any:
        if "square" not in expected.handles:
            return expected.model.run(arrays, **scalars)
        expected.model.run_feed_gpu_handle(arrays, "square", "copy", **scalars)
        return None

    # ---- what can be read

    @invariant()
    def all_is_as_expected(self) -> None:
        for expected in self.all:
            model = expected.model
            for name in NAMES:
                assert model.has_gpu_handle(name) == (name in expected.gpu)
                if name not in expected.handles:
                    with pytest.raises(fg.InputError, match="no handle is bound"):
                        model.read_handle(name)
                elif name in expected.doubtful:
                    with pytest.raises(fg.InputError, match="is not valid"):
                        model.read_handle(name)
                elif expected.handles[name].known:
                    np.testing.assert_allclose(
                        model.read_handle(name), expected.handles[name].array, rtol=1e-5, atol=1e-5
                    )


def test_any_calls_in_any_order(device: str) -> None:
    few = settings(max_examples=25 if device == "cpu" else 8, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(Machine, settings=few)
