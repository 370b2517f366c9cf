"""Operator cases: for every function of fg.ops a strategy of calls, with data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

from fastgraph.errors import GraphError
from fastgraph.ir import Graph, Value, ops
from fastgraph.ir.ops.registry import FUNCTIONS
from fastgraph.ir.types import FLOATS as FLOAT_TYPES
from fastgraph.ir.types import INTEGERS, SUPPORTED, is_float
from fastgraph.ir.types import dtypes_of as dtypes_of_groups

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Value], list[Array]]
"""A call of one operator on values, and the arrays that they stand for."""

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38,
    1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.7, 88.73, -87.4, -103.0, -104.0, 1e-5, 9.1, -9.1,
    2147483648.0, -2147483648.0, 2147483520.0, 9.223372e18, -9.223372e18, 16777217.0, 1e30,
]  # fmt: skip
FLOATS = st.sampled_from(SPECIAL).map(np.float32) | st.floats(-8, 8, width=32)
DOUBLES = [
    1e300,
    -1e-300,
    5e-324,
    1e19,
    1.8446744073709552e19,
    65519.99,
    65520.0,
    1 + 2**-11 + 2**-40,
]
TAME = st.integers(-16, 16).map(lambda n: np.float32(n / 4))
SIDES = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7, 9, 17, 33])


def elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype == np.float64:
        return FLOATS | st.sampled_from(DOUBLES)
    if is_float(dtype):
        return FLOATS
    if dtype.kind == "b":
        return st.booleans()
    info = np.iinfo(dtype)
    ends = st.sampled_from([info.min, info.min + 1, info.max - 1, info.max, 0, 1])
    low = max(info.min, -9)
    return ends | st.integers(low, 9) | st.integers(int(info.min), int(info.max))


def shapes(rank: int | None = None, least: int = 0, most: int = 3) -> st.SearchStrategy[Any]:
    """Draw shapes whose elements are not too many for NumPy's loops in Python."""
    ranks = st.integers(least, most) if rank is None else st.just(rank)
    return ranks.flatmap(lambda n: st.tuples(*[SIDES] * n)).filter(lambda s: np.prod(s) <= 2000)


def filled(draw: Any, shape: tuple[int, ...], dtype: Any, values: Any = None) -> Array:
    """Draw an array; large ones take the drawn values again and again, at random."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape))
    values = elements(dtype) if values is None else values
    with np.errstate(all="ignore"):
        pool = np.array(draw(st.lists(values, min_size=1, max_size=12))).astype(dtype)
    if size <= len(pool):
        return pool[:size].reshape(shape)
    random = np.random.default_rng(draw(st.integers(0, 9)))
    return pool[random.integers(0, len(pool), size)].reshape(shape)


DTYPES = tuple(dtype.name for dtype in SUPPORTED)
FLOAT_DTYPES = st.sampled_from([dtype.name for dtype in FLOAT_TYPES])


def taken(name: str, dtypes: tuple[str, ...]) -> bool:
    """Whether the function takes values of these dtypes."""
    graph = Graph()
    values = [graph.input(f"x{i}", (1,), dtype) for i, dtype in enumerate(dtypes)]
    try:
        getattr(ops, name)(*values)
    except GraphError:
        return False
    return True


def dtypes_of(name: str) -> list[str]:
    return [dtype.name for dtype in dtypes_of_groups(FUNCTIONS[name].dtypes)]


@cache
def accepted(name: str, count: int) -> list[tuple[str, ...]]:
    """Tuples of dtypes that the function takes."""
    return [dtypes for dtypes in product(DTYPES, repeat=count) if taken(name, dtypes)]


def elementwise(name: str, count: int) -> st.SearchStrategy[Case]:
    choices = accepted(name, count)
    assert {dtype for dtypes in choices for dtype in dtypes} >= set(dtypes_of(name))

    @st.composite
    def case(draw: Any) -> Case:
        whole = draw(shapes())
        dtypes = draw(st.sampled_from(choices))
        arrays = []
        for dtype in dtypes:
            cut = [1 if draw(st.integers(0, 3)) == 0 else dim for dim in whole]
            drop = draw(st.sampled_from([0, 0, 0, 1, len(cut)]))
            arrays.append(filled(draw, tuple(cut[drop:]), dtype))
        return getattr(ops, name), arrays

    return case()


@st.composite
def weak_numbers(draw: Any, name: str) -> Case:
    """A Python number beside an array."""
    x = filled(draw, draw(shapes()), draw(st.sampled_from(dtypes_of(name))))
    number: Any = draw(
        st.sampled_from([0, 1, 2, 3, 0.5, -2.0, 0.0] if is_float(x.dtype) else [0, 1, 2, 3])
    )
    first = draw(st.booleans())
    return (lambda v: getattr(ops, name)(*((number, v) if first else (v, number)))), [x]


@st.composite
def reductions(draw: Any, name: str) -> Case:
    shape = draw(shapes())
    nonempty = name in ("max", "min", "argmax", "argmin")
    if nonempty:
        shape = tuple(max(dim, 1) for dim in shape)
    dtype = np.dtype(draw(st.sampled_from(dtypes_of(name))))
    values = None
    if name not in ("max", "min", "argmax", "argmin", "any", "all"):
        # What overflows or cancels half-way depends on the order, which is ours to choose.
        if is_float(dtype):
            values = st.sampled_from([1.0, -1.0, 0.5, 2.0]) if name == "prod" else TAME
        elif name not in ("sum", "prod", "reduce_l1", "reduce_sum_square"):
            values = st.integers(0, 9)
        if is_float(dtype) and name != "reduce_log_sum" and draw(st.integers(0, 2)) == 0:
            values |= st.sampled_from([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45])
    x = filled(draw, shape, dtype, values)
    rank = len(shape)
    axes: list[Any] = [None, *range(-rank, rank)]
    if not name.startswith("arg"):
        axes += [
            (),
            *[(i,) for i in range(rank)],
            *[(0, rank - 1)] * (rank > 1),
            tuple(range(rank)),
        ]
    axis, keepdims = draw(st.sampled_from(axes)), draw(st.booleans())
    return (lambda v: getattr(ops, name)(v, axis=axis, keepdims=keepdims)), [x]


@st.composite
def softmaxes(draw: Any) -> Case:
    shape = draw(shapes(least=1))
    values = FLOATS if draw(st.booleans()) else TAME
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return (lambda v: ops.softmax(v, axis=axis)), [filled(draw, shape, draw(FLOAT_DTYPES), values)]


@st.composite
def norms(draw: Any, name: str) -> Case:
    shape = draw(shapes())
    rank = len(shape)
    axes = [(), *[(i,) for i in range(rank)], *[(0, rank - 1)] * (rank > 1), tuple(range(rank))]
    axis = draw(st.sampled_from([axis for axis in axes if all(shape[i] for i in axis)]))
    # Only what varies: the normalised value of equal elements is rounding, magnified.
    random = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(FLOAT_DTYPES)
    spread = draw(st.sampled_from([1, 1e-3, 40]))
    arrays = [np.asarray(random.normal(size=shape) * spread).astype(kind)]
    inner = tuple(shape[i] for i in axis)
    for _ in range(draw(st.integers(0, 2 if name == "layer_norm" else 1))):
        arrays.append(np.asarray(random.normal(size=inner)).astype(kind))
    eps = draw(st.sampled_from([1e-5, 1e-6, 0.1]))
    return (lambda *v: getattr(ops, name)(*v, axis=axis, eps=eps)), arrays


@st.composite
def products(draw: Any) -> Case:
    m, k, n = (draw(SIDES) for _ in range(3))
    batch = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=0, max_side=3)
    )
    a, b = (
        (*part, *inner) for part, inner in zip(batch.input_shapes, ((m, k), (k, n)), strict=True)
    )
    if draw(st.integers(0, 4)) == 0:
        a = (k,)
    if draw(st.integers(0, 4)) == 0:
        b = (k,)
    some = (
        TAME
        if draw(st.integers(0, 3))
        else st.sampled_from([1.0, -2.0, 0.0, np.inf, -np.inf, np.nan])
    )
    kinds = [
        np.dtype(kind)
        for kind in draw(st.just(("float32", "float32")) | st.sampled_from(accepted("matmul", 2)))
    ]
    return ops.matmul, [
        filled(draw, shape, kind, some if is_float(kind) else few(kind, kinds))
        for shape, kind in zip((a, b), kinds, strict=True)
    ]


def few(kind: np.dtype[Any], kinds: list[np.dtype[Any]]) -> st.SearchStrategy[Any] | None:
    """Small numbers where integers become floats, whose sums may be rounded; else any."""
    if kind.kind == "b" or not is_float(np.result_type(*kinds)):
        return None
    return st.integers(0 if kind.kind == "u" else -9, 9)


ANY_DTYPE = st.sampled_from(DTYPES)


@st.composite
def movements(draw: Any, name: str) -> Case:
    shape = draw(shapes(most=4))
    rank = len(shape)
    x = filled(draw, shape, draw(ANY_DTYPE))
    if name == "transpose":
        axes = draw(st.none() | st.permutations(range(rank)).map(tuple))
        return (lambda v: ops.transpose(v, axes)), [x]
    if name == "reshape":
        wanted: Any = (-1,) if x.size else (0, 3)
        if rank and draw(st.booleans()):
            wanted = (1, *shape[::-1], 1)
        return (lambda v: ops.reshape(v, wanted)), [x]
    if name == "broadcast_to":
        x = filled(draw, tuple(1 if draw(st.booleans()) else dim for dim in shape), x.dtype)
        wanted = (draw(st.integers(0, 3)), *shape)
        return (lambda v: ops.broadcast_to(v, wanted)), [x]
    if name == "expand_dims":
        return (lambda v: ops.expand_dims(v, (0, -1))), [x]
    if name == "squeeze":
        return ops.squeeze, [x]
    if name == "getitem":
        key = draw(hnp.basic_indices(shape, allow_newaxis=True))
        return (lambda v: ops.getitem(v, key)), [x]
    assert name == "slice"
    cuts = [draw(st.slices(dim)).indices(dim) for dim in shape]
    starts, ends, steps = ([cut[i] for cut in cuts] for i in range(3))
    # A negative end is counted from the back: one before the start is written as far below.
    ends = [-dim - 1 if end < 0 else end for dim, end in zip(shape, ends, strict=True)]
    return (lambda v: ops.slice(v, starts, ends, list(range(rank)), steps)), [x]


@st.composite
def concats(draw: Any) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    dtype = draw(ANY_DTYPE)
    arrays = []
    for _ in range(draw(st.integers(1, 4))):
        dims = list(shape)
        if axis is not None:
            dims[axis] = draw(SIDES.filter(lambda n: n < 9))
        arrays.append(filled(draw, tuple(dims), dtype))
    return (lambda *v: ops.concat(list(v), axis=axis)), arrays


@st.composite
def takes(draw: Any) -> Case:
    shape = tuple(max(dim, 1) for dim in draw(shapes()))
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1)) if shape else None
    x = filled(draw, shape, draw(ANY_DTYPE))
    length = x.size if axis is None else shape[axis]
    where = draw(shapes(most=2).filter(lambda s: np.prod(s) < 50))
    kinds = [kind for kind in INTEGERS if np.iinfo(kind).max >= length]
    kind = draw(st.sampled_from(kinds))
    low = 0 if kind.kind == "u" else -length
    index = filled(draw, where, kind, st.integers(low, length - 1))
    return (lambda v, i: ops.take(v, i, axis=axis)), [x, index]


@st.composite
def clips(draw: Any) -> Case:
    x = filled(draw, draw(shapes()), draw(st.sampled_from(dtypes_of("clip"))))
    low, high = draw(st.none() | st.integers(-3, 0)), draw(st.none() | st.integers(0, 6))
    low = None if low is None or x.dtype.kind == "u" else low
    if low is None and high is None:
        low = 0
    return (lambda v: ops.clip(v, low, high)), [x]


@st.composite
def casts(draw: Any) -> Case:
    x = filled(draw, draw(shapes()), draw(ANY_DTYPE))
    dtype = draw(ANY_DTYPE)
    return (lambda v: ops.astype(v, dtype)), [x]


@st.composite
def gelus(draw: Any) -> Case:
    how = draw(st.sampled_from(["none", "tanh"]))
    x = filled(draw, draw(shapes()), draw(FLOAT_DTYPES))
    return (lambda v: ops.gelu(v, approximate=how)), [x]


@st.composite
def prelus(draw: Any) -> Case:
    kinds = draw(st.sampled_from(accepted("prelu", 2)))
    shape = draw(shapes())
    cut = tuple(1 if draw(st.booleans()) else dim for dim in shape)
    arrays = [filled(draw, part, kind) for part, kind in zip((shape, cut), kinds, strict=True)]
    return ops.prelu, arrays


@st.composite
def wheres(draw: Any) -> Case:
    choices = accepted("where", 3)
    whole = draw(shapes())
    arrays = []
    for dtype in draw(st.sampled_from(choices)):
        cut = tuple(1 if draw(st.integers(0, 3)) == 0 else dim for dim in whole)
        arrays.append(filled(draw, cut, dtype))
    return ops.where, arrays


BINARY = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power",
    "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift",
]  # fmt: skip
UNARY = [
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "ceil", "celu", "cos",
    "cosh", "elu", "erf", "exp", "exp2", "expm1", "floor", "hard_sigmoid", "hard_swish", "invert",
    "isfinite", "isinf", "isnan", "leaky_relu", "log", "log1p", "log2", "logical_not", "mish",
    "negative", "reciprocal", "relu", "round", "rsqrt", "selu", "sigmoid", "sign", "silu", "sin",
    "sinh", "softplus", "softsign", "sqrt", "square", "tan", "tanh", "thresholded_relu", "trunc",
]  # fmt: skip
REDUCTIONS = [
    "sum", "prod", "mean", "max", "min", "argmax", "argmin", "any", "all", "var", "std",
    "reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "reduce_sum_square",
]  # fmt: skip
MOVEMENTS = ["transpose", "reshape", "broadcast_to", "expand_dims", "squeeze", "getitem", "slice"]

CASES: dict[str, st.SearchStrategy[Case]] = {
    **{name: elementwise(name, 2) | weak_numbers(name) for name in BINARY},
    **{name: elementwise(name, 1) for name in UNARY},
    **{name: reductions(name) for name in REDUCTIONS},
    **{name: movements(name) for name in MOVEMENTS},
    "layer_norm": norms("layer_norm"),
    "rms_norm": norms("rms_norm"),
    "softmax": softmaxes(),
    "matmul": products(),
    "concat": concats(),
    "take": takes(),
    "clip": clips(),
    "astype": casts(),
    "gelu": gelus(),
    "prelu": prelus(),
    "where": wheres(),
}


@st.composite
def restrided(draw: Any, array: Array) -> Array:
    """Draw an array with the same elements and other strides."""
    kind = draw(st.sampled_from(["dense", "dense", "reversed", "fortran", "stepped", "unaligned"]))
    if not array.ndim or kind == "dense":
        return array
    if kind == "reversed":
        flip = (slice(None, None, -1),) * array.ndim
        return np.ascontiguousarray(array[flip])[flip]
    if kind == "fortran":
        return np.asfortranarray(array)
    if kind == "stepped":
        home = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
    else:
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        home = raw.view(array.dtype).reshape(array.shape)
    home[...] = array
    return home
