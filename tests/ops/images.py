"""Cases of the operators that slide windows over images, and of recurrent layers."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from fastgraph.ir import ops
from fastgraph.ir.types import is_float
from tests.ops.cases import DTYPES, FLOAT_DTYPES, Case

NUMBER = st.sampled_from([one for one in DTYPES if one != "bool"])
LENGTHS = {1: [1, 4, 5, 17, 40, 90], 2: [1, 3, 7, 12], 3: [1, 2, 4, 6]}


def windows(draw: Any, axes: int) -> dict[str, tuple[int, ...]]:
    """Draw the sizes of an image, and windows that fit on it."""
    found: dict[str, list[int]] = {n: [] for n in ("size", "kernel", "stride", "dilation", "pads")}
    ends = []
    for _ in range(axes):
        kernel, dilation = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 1, 2, 3]))
        begin, end = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
        size = draw(st.sampled_from(LENGTHS[axes]))
        found["size"].append(max(size, (kernel - 1) * dilation + 1 - begin - end))
        found["kernel"].append(kernel)
        found["stride"].append(draw(st.sampled_from([1, 1, 2, 3, 5])))
        found["dilation"].append(dilation)
        found["pads"].append(begin)
        ends.append(end)
    found["pads"] += ends
    return {name: tuple(numbers) for name, numbers in found.items()}


def normal(draw: Any, *shapes: tuple[int, ...], dtype: Any) -> list[Any]:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


@st.composite
def convs(draw: Any, transposed: bool) -> Case:
    found = windows(draw, draw(st.integers(1, 3)))
    group = draw(st.sampled_from([1, 1, 1, 2, 3]))
    ins, outs = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5, 7, 13]))
    batch = draw(st.integers(1, 2))
    weight = (group * ins, outs) if transposed else (group * outs, ins)
    shapes = [(batch, group * ins, *found["size"]), (*weight, *found["kernel"])]
    if draw(st.booleans()):
        shapes.append((group * outs,))
    options: dict[str, Any] = {
        "strides": found["stride"],
        "pads": found["pads"],
        "dilations": found["dilation"],
        "group": group,
    }
    if transposed:
        options["output_padding"] = draw(st.integers(0, 2))
        options["pads"] = tuple(
            min(p, (n - 1) * s // 2) for p, n, s in zip(
                found["pads"], found["size"] * 2, found["stride"] * 2, strict=True
            )
        )  # fmt: skip
    function = ops.conv_transpose if transposed else ops.conv
    arrays = normal(draw, *shapes, dtype=draw(FLOAT_DTYPES))
    return (lambda *values: function(*values, **options)), arrays


@st.composite
def pools(draw: Any, name: str) -> Case:
    found = windows(draw, draw(st.integers(1, 3)))
    dtype = np.dtype(draw(NUMBER if name == "max_pool" else FLOAT_DTYPES))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *found["size"])
    (x,) = normal(draw, shape, dtype=np.float64)
    if is_float(dtype):
        x.ravel()[:1] = draw(st.sampled_from([1.0, np.inf, np.nan]))
    x = x.astype(dtype) if is_float(dtype) else np.abs(x * 40).astype(dtype)
    options: dict[str, Any] = {
        "strides": found["stride"],
        "pads": found["pads"],
        "dilations": found["dilation"],
        "ceil_mode": draw(st.booleans()),
    }
    if name == "average_pool":
        options["count_include_pad"] = draw(st.booleans())
    function, kernel = getattr(ops, name), found["kernel"]
    return (lambda value: function(value, kernel, **options)), [x]


@st.composite
def resizes(draw: Any) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    mode = draw(st.sampled_from(["nearest", "nearest", "linear", "cubic"]))
    dtype = np.dtype(draw(st.sampled_from(DTYPES) if mode == "nearest" else FLOAT_DTYPES))
    (x,) = normal(draw, shape, dtype=np.float64)
    x = x.astype(dtype) if is_float(dtype) else (x > 0).astype(dtype)
    count = draw(st.integers(1, len(shape)))
    places = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
    rounds = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
    options: dict[str, Any] = {
        "axis": tuple(draw(st.permutations(range(len(shape)))))[:count],
        "mode": mode,
        "coordinate_transformation_mode": draw(st.sampled_from(places)),
        "nearest_mode": draw(st.sampled_from(rounds)),
        "antialias": draw(st.booleans()),
    }
    if draw(st.booleans()):
        options["sizes"] = draw(st.tuples(*[st.integers(1, 9)] * count))
    else:
        options["scales"] = draw(st.tuples(*[st.sampled_from([1.0, 1.5, 2.0, 3.3])] * count))
    return (lambda value: ops.resize(value, **options)), [x]


@st.composite
def recurrences(draw: Any, name: str) -> Case:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    steps, batch = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 2, 3, 9, 14]))
    size, hidden = draw(st.integers(1, 5)), draw(st.sampled_from([1, 3, 16, 21, 40]))
    shapes = {
        "x": (steps, batch, size),
        "w": (ways, gates * hidden, size),
        "r": (ways, gates * hidden, hidden),
    }
    more = {"b": (ways, 2 * gates * hidden), "initial_h": (ways, batch, hidden)}
    if name == "lstm":
        more |= {"initial_c": (ways, batch, hidden), "p": (ways, 3 * hidden)}
    shapes |= {key: shape for key, shape in more.items() if draw(st.booleans())}
    arrays = normal(draw, *shapes.values(), dtype=draw(FLOAT_DTYPES))
    arrays[2] = (arrays[2] / np.sqrt(hidden)).astype(arrays[2].dtype)
    keys = list(shapes)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["int32", "int64"]))
        arrays.append(np.array(draw(st.tuples(*[st.integers(0, steps)] * batch)), kind))
        keys.append("sequence_lens")
    options: dict[str, Any] = {"direction": direction}
    if draw(st.integers(0, 3)) == 0:
        options["clip"] = 0.5
    if draw(st.integers(0, 3)) == 0:
        # A gate without a bound makes rounding errors grow with every step, unless it is clipped.
        inner = st.sampled_from(["sigmoid", "tanh", "relu"])
        gate = inner if "clip" in options else st.sampled_from(["sigmoid", "tanh"])
        kinds = {"lstm": (gate, inner, inner), "gru": (gate, inner), "rnn": (inner,)}[name]
        options["activations"] = draw(st.tuples(*kinds * ways))
    if name == "lstm":
        options["input_forget"] = draw(st.booleans())
    if name == "gru":
        options["linear_before_reset"] = draw(st.booleans())
    function = getattr(ops, name)
    which = draw(st.integers(0, 2 if name == "lstm" else 1))

    def call(*values: Any) -> Any:
        return function(**dict(zip(keys, values, strict=True)), **options)[which]

    return call, arrays


CASES = {
    "average_pool": pools("average_pool"),
    "conv": convs(transposed=False),
    "conv_transpose": convs(transposed=True),
    "gru": recurrences("gru"),
    "lstm": recurrences("lstm"),
    "max_pool": pools("max_pool"),
    "resize": resizes(),
    "rnn": recurrences("rnn"),
}
