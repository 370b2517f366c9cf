"""Every function of fg.ops against NumPy: shapes, dtypes and values, and the corner cases."""

from __future__ import annotations

import math
import warnings

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fastgraph.errors import GraphError, InputError
from fastgraph.ir import Graph, ops, reference
from fastgraph.ir.ops.numerics import convert
from fastgraph.ir.ops.registry import CORNER_CASES, FUNCTIONS, OPS, corner_cases, table
from fastgraph.ir.types import HALVES, SUPPORTED, is_float

BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "power",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "fmod",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]
UNARY = [
    "negative",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "exp",
    "log",
    "sqrt",
    "reciprocal",
    "tanh",
    "logical_not",
    "round",
    "trunc",
    "invert",
    "isnan",
    "isinf",
    "isfinite",
    "exp2",
    "expm1",
    "log1p",
    "log2",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "arcsinh",
    "arccosh",
    "arctanh",
]
REDUCTIONS = ["sum", "prod", "max", "min", "mean", "argmax", "argmin", "any", "all", "var", "std"]
# Bounds of what float dtypes may differ by where NumPy computes in them and we in a wider one.
RELATIVE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12}
BROADCASTABLE = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=4)


def array(draw, shape, dtype):
    """Draw a small array whose results stay in range."""
    if is_float(dtype):
        elements = st.integers(-8, 8).map(lambda n: n / 2)
        return np.asarray(draw(hnp.arrays("f4", shape, elements=elements))).astype(dtype)
    few = st.booleans() if dtype.kind == "b" else st.integers(-4 if dtype.kind == "i" else 0, 4)
    return np.asarray(draw(hnp.arrays(dtype, shape, elements=few)))


@st.composite
def pairs(draw):
    """Draw two arrays that broadcast, of any supported dtypes."""
    shapes = draw(BROADCASTABLE).input_shapes
    return [array(draw, shape, draw(st.sampled_from(SUPPORTED))) for shape in shapes]


@st.composite
def arrays(draw):
    """Draw one array of any supported dtype."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    return array(draw, shape, draw(st.sampled_from(SUPPORTED)))


def in_numpy(name, *args, **kwargs):
    """Return NumPy's result, or None where there is none that graphs could hold."""
    halves = [x.dtype for x in args if getattr(x, "dtype", None) in HALVES]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = np.asarray(getattr(np, name)(*args, **kwargs))
    except (TypeError, ValueError, OverflowError):
        return None
    if halves and found.dtype in HALVES:
        # Not every NumPy function computes half types in float32, as ours do.
        wide = [x.astype("f4") if getattr(x, "dtype", None) in HALVES else x for x in args]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = convert(np.asarray(getattr(np, name)(*wide, **kwargs)), found.dtype)
    return found if found.dtype in SUPPORTED else None


def agree(name, wanted, *args, **kwargs):
    """Assert that our function gives `wanted`, or refuses where that is None."""
    if wanted is None:
        with pytest.raises(GraphError):
            reference.apply(getattr(ops, name), *args, **kwargs)
        return
    found = reference.apply(getattr(ops, name), *args, **kwargs)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    relative = RELATIVE.get(wanted.dtype.name, 0)
    if relative:
        found, wanted = found.astype("f8"), wanted.astype("f8")
    np.testing.assert_allclose(found, wanted, rtol=relative, atol=relative / 10)


def refused(name, pair):
    """Assert that a pair with bfloat16 that has no common dtype is refused; say whether."""
    try:
        np.result_type(*(x.dtype for x in pair))
    except np.exceptions.DTypePromotionError:
        if name.startswith("logical"):
            return True  # Truths are compared, so any two dtypes will do.
        with pytest.raises(GraphError, match="no common dtype"):
            reference.apply(getattr(ops, name), *pair)
        return True
    return False


@pytest.mark.parametrize("name", BINARY)
@given(pairs())
@settings(max_examples=40)
def test_binary(name, pair):
    if name == "power" and pair[1].dtype.kind == "i":
        pair[1] = np.abs(pair[1])  # NumPy has no rule for negative ones: see the corner cases.
    if "bfloat16" in (x.dtype.name for x in pair) and refused(name, pair):
        return
    agree(name, in_numpy(name, *pair), *pair)


@pytest.mark.parametrize("name", UNARY)
@given(arrays())
@settings(max_examples=40)
def test_unary(name, x):
    # NumPy computes 1 // x for integers; we refuse all but floats.
    wanted = None if name == "reciprocal" and not is_float(x.dtype) else in_numpy(name, x)
    agree(name, wanted, x)


@pytest.mark.parametrize("number", [True, 3, -2, 0.5, np.float32(0.5), np.int32(3), np.bool_(True)])
@pytest.mark.parametrize("name", ["add", "maximum", "less", "multiply"])
@pytest.mark.parametrize("dtype", SUPPORTED, ids=str)
def test_numbers_are_weak_as_in_numpy(name, number, dtype):
    x = np.array([[0, 1, 1]], dtype)
    wanted = in_numpy(name, x, number)
    if dtype.name == "bfloat16" and isinstance(number, np.int32):
        wanted = None  # They have no common dtype, though some functions of NumPy know a way.
    if dtype.name == "bfloat16" and not isinstance(number, np.generic):
        # NumPy itself takes a Python float beside it for a float64.
        wanted = wanted if wanted.dtype == bool else wanted.astype(dtype)
    if name == "less" and dtype.kind == "u" and number == -2:
        wanted = None  # NumPy compares, we want numbers of the dtype.
    agree(name, wanted, x, number)


@pytest.mark.parametrize("name", REDUCTIONS)
@given(arrays(), st.data())
@settings(max_examples=40)
def test_reductions(name, x, data):
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1) if x.ndim else st.none())
    if not name.startswith("arg") and x.ndim > 1:
        axis = data.draw(st.just(axis) | st.just((0, -1)) | st.just(()))
    keepdims = data.draw(st.booleans())
    wanted = in_numpy(name, x, axis=axis, keepdims=keepdims)
    if wanted is None and name in ("max", "min", "argmax", "argmin") and x.size == 0 and x.ndim:
        # NumPy refuses some empty results that we can give.
        try:
            found = reference.apply(getattr(ops, name), x, axis=axis, keepdims=keepdims)
        except GraphError:
            return
        assert found.size == 0
        return
    agree(name, wanted, x, axis=axis, keepdims=keepdims)


@given(pairs(), st.data())
@settings(max_examples=40)
def test_where(pair, data):
    chosen = data.draw(hnp.arrays(bool, np.broadcast_shapes(*(x.shape for x in pair))))
    agree("where", in_numpy("where", chosen, *pair), chosen, *pair)


@given(arrays(), st.data())
@settings(max_examples=40)
def test_movement(x, data):
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    agree("transpose", np.transpose(x, order), x, order)
    agree("reshape", x.reshape(-1) if x.size else x.reshape(0), x, (-1,) if x.size else (0,))
    agree("broadcast_to", np.broadcast_to(x, (2, *x.shape)), x, (2, *x.shape))
    agree("expand_dims", np.expand_dims(x, (0, -1)), x, (0, -1))
    agree("squeeze", np.squeeze(x), x)
    if x.ndim:
        key = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True))
        agree("getitem", np.asarray(x[key]), x, key)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1)) if x.ndim and x.size else None
    if x.size:
        length = x.size if axis is None else x.shape[axis]
        index = data.draw(hnp.arrays(np.int64, (2, 2), elements=st.integers(-length, length - 1)))
        agree("take", np.take(x, index, axis=axis), x, index, axis=axis)


@given(pairs())
@settings(max_examples=40)
def test_concat(pair):
    a, b = (x.reshape(-1) for x in pair)
    wanted = in_numpy("concatenate", [a, b])
    agree_on_lists(wanted, a, b)


def agree_on_lists(wanted, a, b):
    def concat(x, y):
        return ops.concat([x, y])

    if wanted is None:
        with pytest.raises(GraphError):
            reference.apply(concat, a, b)
    else:
        found = reference.apply(concat, a, b)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_empty_slices_start_within_the_axis():
    node = Graph().input("x", (3, 2))[5:1].node
    assert node.attrs == {"starts": (0, 0), "sizes": (0, 2), "steps": (1, 1)}


def test_concat_flattens_without_an_axis():
    found = reference.apply(lambda x: ops.concat([x, x.T], axis=None), np.arange(4).reshape(2, 2))
    assert found.tolist() == [0, 1, 2, 3, 0, 2, 1, 3]


@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2)),
     ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((1, 1), (1, 1))],
)  # fmt: skip
def test_matmul(a, b):
    random = np.random.default_rng(0)
    x, y = random.normal(size=a).astype("f4"), random.normal(size=b).astype("f4")
    agree("matmul", np.asarray(np.matmul(x, y)), x, y)


def test_ndarrays_come_in_on_either_side():
    graph = Graph()
    x = graph.input("x", (2, 2))
    a = np.float32([[1, 2], [3, 4]])
    for i, value in enumerate((a + x, a - x, a @ x, a / x, x @ a, a > x, 2**x, 7 // x, 7 % x)):
        graph.output(value, f"y{i}")
    given_ = np.float32([[1, 2], [4, 8]])
    wanted = [a + given_, a - given_, a @ given_, a / given_, given_ @ a, a > given_]
    wanted += [2**given_, 7 // given_, 7 % given_]
    for found, one in zip(reference.evaluate(graph, {"x": given_}).values(), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-6)


def test_scenario_figures():
    f4 = np.float32
    y = reference.apply(ops.gelu, f4([1.5, -0.5, 0, 0.5]))
    np.testing.assert_allclose(y, [1.39979, -0.15427, 0, 0.34573], atol=1e-5)
    y = reference.apply(ops.softmax, f4([1, 2, 3]))
    np.testing.assert_allclose(y, [0.09003, 0.24473, 0.66524], atol=1e-5)
    y = reference.apply(ops.layer_norm, f4([1, 2, 3, 4]))
    assert abs(y.mean()) < 1e-6
    assert abs(y.var() - 1) < 1e-4
    assert reference.apply(ops.argmax, f4([0.1, 0.5, 0.2, 0.9, 0.3])) == 3
    assert reference.apply(ops.argmax, f4([1, 3, 3])) == 1
    assert reference.apply(ops.relu, f4([-2, -0.5, 0, 1, 3])).tolist() == [0, 0, 0, 1, 3]


def test_activations_against_formulas():
    x = np.linspace(-6, 6, 49, dtype="f4")
    wide = x.astype(np.float64)
    erf = np.array([math.erf(one) for one in wide])
    logistic = 1 / (1 + np.exp(-wide))
    cube = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    for found, wanted in (
        (reference.apply(ops.erf, x), erf),
        (reference.apply(ops.gelu, x), wide * (1 + np.vectorize(math.erf)(wide / 2**0.5)) / 2),
        (reference.apply(ops.gelu, x, approximate="tanh"), wide / 2 * (1 + np.tanh(cube))),
        (reference.apply(ops.sigmoid, x), logistic),
        (reference.apply(ops.silu, x), wide * logistic),
        (reference.apply(ops.rsqrt, np.abs(x) + 1), 1 / np.sqrt(np.abs(wide) + 1)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), (1, 2), ()])
def test_norms_against_formulas(axis):
    random = np.random.default_rng(1)
    x = random.normal(size=(2, 3, 4)).astype("f4")
    axes = tuple(one % 3 for one in (axis if isinstance(axis, tuple) else (axis,)))
    inner = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    w, b = (random.normal(size=[x.shape[i] for i in axes]).astype("f4") for _ in range(2))
    whole = inner if axes else ()
    mean = x.mean(axis=axes, keepdims=True)
    var = x.var(axis=axes, keepdims=True)
    wanted = (x - mean) / np.sqrt(var + 1e-5) * w.reshape(whole) + b.reshape(whole)
    np.testing.assert_allclose(
        reference.apply(ops.layer_norm, x, w, b, axis=axis), wanted, rtol=1e-4, atol=1e-5
    )
    power = (x * x).mean(axis=axes, keepdims=True) if axes else x * x
    wanted = x / np.sqrt(power + 1e-6) * w.reshape(whole)
    np.testing.assert_allclose(
        reference.apply(ops.rms_norm, x, w, axis=axis), wanted, rtol=1e-4, atol=1e-5
    )


NAN, INF = np.float32("nan"), np.float32("inf")


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: reference.apply(ops.floor_divide, np.int32([5, -(2**31)]), np.int32([0, -1])),
         [0, -(2**31)]),
        (lambda: reference.apply(ops.remainder, np.int32([5, -(2**31)]), np.int32([0, -1])),
         [0, 0]),
        (lambda: reference.apply(ops.divide, np.float32([1, -1, 0]), 0), [INF, -INF, NAN]),
        (lambda: reference.apply(ops.add, np.int32([2**31 - 1]), 1), [-(2**31)]),
        (lambda: reference.apply(ops.multiply, np.ones(1, "bfloat16"), -(2**80)), [-(2.0**80)]),
        (lambda: reference.apply(ops.power, np.int64([1, -1, -1, 2]), -np.int64([2, 2, 3, 1])),
         [1, 1, -1, 0]),
        (lambda: reference.apply(ops.astype, np.float32([NAN, INF, -INF, 3e9, -1.9]), "int32"),
         [0, 2**31 - 1, -(2**31), 2**31 - 1, -1]),
        (lambda: reference.apply(ops.astype, np.float32([NAN, INF, -INF, 1e19]), "int64"),
         [0, 2**63 - 1, -(2**63), 2**63 - 1]),
        (lambda: reference.apply(ops.astype, np.float32([NAN, 0, 0.1]), "bool"), [1, 0, 1]),
        (lambda: reference.apply(ops.maximum, np.float32([NAN, 1]), np.float32([1, NAN])),
         [NAN, NAN]),
        (lambda: reference.apply(ops.relu, np.float32([NAN, -1])), [NAN, 0]),
        (lambda: reference.apply(ops.clip, np.float32([NAN, -1, 9]), 0, 6), [NAN, 0, 6]),
        (lambda: reference.apply(ops.max, np.float32([[NAN, 1]]), axis=1), [NAN]),
        (lambda: reference.apply(ops.argmax, np.float32([[1, NAN, NAN]]), axis=1), [1]),
        (lambda: reference.apply(ops.sum, np.zeros((2, 0), "f4"), axis=1), [0, 0]),
        (lambda: reference.apply(ops.prod, np.zeros((2, 0), "i8"), axis=1), [1, 1]),
        (lambda: reference.apply(ops.mean, np.zeros((1, 0), "f4"), axis=1), [NAN]),
        (lambda: reference.apply(ops.softmax, np.float32([-INF, -INF])), [NAN, NAN]),
        (lambda: reference.apply(ops.sign, np.float32([NAN, -2])), [NAN, -1]),
        (lambda: reference.apply(ops.log, np.float32([0, -1])), [-INF, NAN]),
        (lambda: reference.apply(ops.rsqrt, np.float32([0, -1])), [INF, NAN]),
        (lambda: reference.apply(ops.take, np.float32([1, 2]), np.array([-1, -2])), [2, 1]),
    ],
)  # fmt: skip
def test_corner_cases(call, wanted):
    found = call()
    np.testing.assert_array_equal(found, np.array(wanted, dtype=found.dtype))


def test_an_index_out_of_range_is_named():
    with pytest.raises(InputError, match=r"index 2 is out of range.*-2 to 1"):
        reference.apply(ops.take, np.float32([1, 2]), np.array([0, 2]))


def test_integers_are_exact_past_floats():
    big = np.int64([2**53 + 1, -(2**62) - 1])
    np.testing.assert_array_equal(reference.apply(ops.add, big, 1), big + 1)
    np.testing.assert_array_equal(reference.apply(ops.maximum, big, 0), np.maximum(big, 0))


def test_tables():
    lines = table().splitlines()
    assert len(lines) == len(FUNCTIONS) + 1
    for name in FUNCTIONS:
        assert any(line.split()[0] == name for line in lines)
    assert set(ops.__all__) == set(FUNCTIONS)
    assert len(corner_cases().splitlines()) == len(CORNER_CASES) + 1


def test_every_operator_is_reached():
    """What passes make and what functions are written out in alone have no public function."""
    direct = set(OPS) & set(FUNCTIONS)
    assert set(OPS) - direct == {
        "attention_step",
        "fold",
        "patches",
        "pool",
        "recurrence",
        "region",
        "pack_weight",
        "fused_matmul",
        "fused_attention",
        "normed_matmul",
        "row_product",
        "scatter",
        "scatter_pair",
    }
