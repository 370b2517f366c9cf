"""Cases of the operators that models are made of, beside arithmetic: attention and its like."""

from __future__ import annotations

import ctypes
from typing import Any

import hypothesis.strategies as st
import numpy as np

import fastgraph as fg
from fastgraph.ir import ops
from fastgraph.ir.types import is_float
from tests.ops.cases import ANY_DTYPE, DTYPES, FLOAT_DTYPES, TAME, Case, filled, shapes

NUMBER = st.sampled_from([one for one in DTYPES if one != "bool"])


@st.composite
def attentions(draw: Any) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    batch, key_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    queries = draw(st.sampled_from([1, 2, 5, 13, 40]))
    keys = draw(st.sampled_from([0, 1, 3, 16, 21, 70, 130]))
    length = draw(st.sampled_from([1, 3, 8, 32, 70]))
    value_length = draw(st.sampled_from([length, 1, 16, 21]))
    heads, dtype = key_heads * group, draw(FLOAT_DTYPES)
    arrays = [
        random.normal(size=(batch, heads, queries, length)).astype(dtype),
        random.normal(size=(batch, key_heads, keys, length)).astype(dtype),
        random.normal(size=(batch, key_heads, keys, value_length)).astype(dtype),
    ]
    mask = draw(st.sampled_from(["none", "none", "bool", "bias"]))
    if mask != "none":
        whole = [batch, heads, queries, keys]
        shape = tuple(n if draw(st.booleans()) else 1 for n in whole)[draw(st.integers(0, 3)) :]
        some = random.normal(size=shape)
        bias = np.where(some < -1, -np.inf, some * 3).astype(dtype)
        arrays.append(some > -0.5 if mask == "bool" else bias)
    options = {
        "is_causal": draw(st.booleans()),
        "window": draw(st.sampled_from([None, None, 1, 4, 33])),
        "scale": draw(st.sampled_from([None, 0.0, 1.0, -0.5])),
        "softcap": draw(st.sampled_from([None, None, 2.0])),
    }
    return (lambda *values: ops.attention(*values, **options)), arrays


@st.composite
def rotations(draw: Any) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    batch, heads, count = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 5))
    length = 2 * draw(st.integers(0, 9))
    total = length + draw(st.sampled_from([0, 0, 1, 5]))
    dtype = draw(FLOAT_DTYPES)
    x = random.normal(size=(batch, heads, count, total)).astype(dtype)
    some = draw(st.sampled_from([1, batch]))
    lead = (7,) if draw(st.booleans()) else (some, count)
    arrays = [x, *(random.normal(size=(*lead, length // 2)).astype(dtype) for _ in range(2))]
    if len(lead) == 1:
        kind = draw(st.sampled_from(["int32", "int64"]))
        arrays.append(random.integers(0, 7, (some, count)).astype(kind))
    interleaved = draw(st.booleans())
    return (
        lambda *v: ops.rotary_embedding(*v, interleaved=interleaved, rotary_embedding_dim=length)
    ), arrays


@st.composite
def grouped(draw: Any) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    rows, k, n = (draw(st.sampled_from([1, 2, 4, 5, 8, 17, 40, 70])) for _ in range(3))
    experts = draw(st.integers(1, 5))
    ids = random.integers(0, experts, rows).astype(draw(st.sampled_from(["int32", "int64"])))
    if draw(st.booleans()):
        ids = np.sort(ids)
    x, w = random.normal(size=(rows, k)), random.normal(size=(experts, k, n))
    dtype = draw(FLOAT_DTYPES)
    return ops.grouped_matmul, [x.astype(dtype), w.astype(dtype), ids]


@st.composite
def running_sums(draw: Any) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = filled(draw, shape, draw(ANY_DTYPE))
    if is_float(x.dtype):  # What cancels depends on the order, which is ours to choose.
        x = filled(draw, shape, x.dtype, TAME)
    options = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return (lambda v: ops.cumulative_sum(v, axis, **options)), [x]


@st.composite
def top_ks(draw: Any) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    k = draw(st.integers(0, shape[axis]))
    part, largest = draw(st.integers(0, 1)), draw(st.booleans())
    x = filled(draw, shape, draw(NUMBER))
    return (lambda v: ops.top_k(v, k, axis, largest=largest)[part]), [x]


@st.composite
def element_places(draw: Any, name: str) -> Case:
    shape = tuple(max(dim, 1) for dim in draw(shapes(least=1)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    x = filled(draw, shape, draw(NUMBER if name != "take_along_axis" else ANY_DTYPE))
    if is_float(x.dtype) and name != "take_along_axis":
        x = filled(draw, shape, x.dtype, TAME)
    kind = draw(st.sampled_from(["int32", "int64"]))
    dims = list(shape)
    dims[axis] = draw(st.integers(0, 6))
    indices = st.integers(-shape[axis], shape[axis] - 1)
    if name == "take_along_axis":
        dims = [1 if i != axis % len(shape) and draw(st.booleans()) else n
                for i, n in enumerate(dims)]  # fmt: skip
        return (lambda v, i: ops.take_along_axis(v, i, axis)), [
            x,
            filled(draw, tuple(dims), kind, indices),
        ]
    dims = [min(n, draw(st.integers(1, 9))) if i != axis % len(shape) else n
            for i, n in enumerate(dims)]  # fmt: skip
    at = filled(draw, tuple(dims), kind, indices)
    new = filled(draw, tuple(dims), x.dtype, TAME if is_float(x.dtype) else None)
    if name == "scatter_add":
        return (lambda *v: ops.scatter_add(*v, axis)), [x, at, new]
    how = draw(st.sampled_from(["none", "add", "maximum", "minimum"]))
    return (lambda *v: ops.scatter_elements(*v, axis, how)), [x, at, new]


@st.composite
def tuple_places(draw: Any, name: str) -> Case:
    shape = tuple(max(dim, 1) for dim in draw(shapes(least=1)))
    batch = draw(st.integers(0, len(shape) - 1)) if name == "gather_nd" else 0
    depth = draw(st.integers(0, len(shape) - batch))
    count = draw(st.sampled_from([0, 1, 3, 7]))
    kind = draw(st.sampled_from(["int32", "int64"]))
    x = filled(draw, shape, draw(NUMBER))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    dims = np.array(shape[batch : batch + depth], np.int64)
    lead = (*shape[:batch], count)
    at = (random.integers(-dims, dims, (*lead, depth)) if depth else np.zeros((*lead, 0))).astype(
        kind
    )
    if name == "gather_nd":
        return (lambda v, i: ops.gather_nd(v, i, batch)), [x, at]
    new = filled(draw, (count, *shape[depth:]), x.dtype)
    how = draw(st.sampled_from(["none", "maximum", "minimum"]))
    return (lambda *v: ops.scatter_nd(*v, how)), [x, at, new]


@st.composite
def pads(draw: Any) -> Case:
    shape = tuple(max(dim, 1) for dim in draw(shapes(least=1)))
    widths = [(draw(st.integers(0, 5)), draw(st.integers(0, 12))) for _ in shape]
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    return (lambda v: ops.pad(v, widths, mode)), [filled(draw, shape, draw(ANY_DTYPE))]


@st.composite
def rearranged(draw: Any, name: str) -> Case:
    shape = draw(shapes(least=2 if name in ("tril", "triu") else 1))
    x = filled(draw, shape, draw(ANY_DTYPE))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    if name in ("tril", "triu"):
        k = draw(st.integers(-4, 4))
        return (lambda v: getattr(ops, name)(v, k)), [x]
    if name == "stack":
        return (lambda *v: ops.stack(list(v), axis)), [x, x[::-1]]
    if name == "tile":
        reps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
        return (lambda v: ops.tile(v, reps)), [x]
    assert name == "split"
    cuts = draw(st.lists(st.integers(-3, 9), max_size=3))
    part = draw(st.integers(0, len(cuts)))
    return (lambda v: ops.split(v, cuts, axis)[part]), [x]


@st.composite
def one_hots(draw: Any) -> Case:
    shape = draw(shapes())
    x = filled(draw, shape, draw(st.sampled_from(["int32", "int64"])), st.integers(-2, 6))
    axis, dtype = draw(st.integers(-len(shape) - 1, len(shape))), draw(ANY_DTYPE)
    return (lambda v: ops.one_hot(v, 4, axis, dtype)), [x]


@st.composite
def log_softmaxes(draw: Any) -> Case:
    shape = draw(shapes(least=1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return (lambda v: ops.log_softmax(v, axis)), [filled(draw, shape, draw(FLOAT_DTYPES), TAME)]


@st.composite
def group_norms(draw: Any) -> Case:
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rest = draw(st.sampled_from([(), (5,), (3, 4)]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    channels = groups * each
    dtype = draw(FLOAT_DTYPES)
    arrays = [random.normal(size=(draw(st.integers(1, 2)), channels, *rest)).astype(dtype)]
    for _ in range(draw(st.integers(0, 2))):
        arrays.append(random.normal(size=channels).astype(dtype))
    return (lambda *v: ops.group_norm(v[0], groups, *v[1:], eps=0.01)), arrays


@st.composite
def quantizations(draw: Any, back: bool) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis, size = draw(st.integers(-len(shape), len(shape) - 1)), 0
    kind = draw(st.sampled_from(["whole", "one", "axis", "block"]))
    scales: tuple[int, ...] = {"whole": (), "one": (1,)}.get(kind, (shape[axis],))
    if kind == "block":
        size = draw(st.integers(1, 6))
        blocks = list(shape)
        blocks[axis] = -(-shape[axis] // size)
        scales = tuple(blocks)
    stored = draw(st.sampled_from(["int8", "uint8", "int16", "uint16"]))
    dtype = draw(FLOAT_DTYPES)
    limits = np.iinfo(stored)
    # Powers of two, so that no quotient lies beside what the reference has.
    scale = np.exp2(random.integers(-2, 3, scales)).astype(dtype)
    if back:
        x = random.integers(limits.min, limits.max, shape, stored, endpoint=True)
    else:
        x = (random.normal(size=shape) * 300).astype(dtype)
    arrays = [x, scale]
    if draw(st.booleans()):
        arrays.append(random.integers(limits.min, limits.max, scales, stored, endpoint=True))
    options: dict[str, Any] = {"axis": axis, "block_size": size}
    if not back and len(arrays) == 2:
        options["dtype"] = stored
    function = ops.dequantize if back else ops.quantize
    return (lambda *values: function(*values, **options)), arrays


LIBC = ctypes.CDLL(None)
COPY = """extern "C" __global__ void copy_bytes(void *to, const void *from, size_t n) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) ((char *)to)[i] = ((const char *)from)[i];
}"""


def copy_kernel() -> fg.Kernel:
    # Anew each time: a kernel keeps what was loaded for it.
    return fg.Kernel(
        "copy_bytes",
        cuda=COPY,
        cpu=fg.NativeKernel(
            ctypes.cast(LIBC.memcpy, ctypes.c_void_p).value or 0,
            "void *to, const void *from, size_t n",
            name="memcpy",
            owner=LIBC,
            convention="c",
        ),
    )


@st.composite
def user_kernels(draw: Any) -> Case:
    x = filled(draw, draw(shapes()), draw(ANY_DTYPE))

    def call(x: Any) -> Any:
        return ops.kernel(copy_kernel(), [x], x.shape, x.dtype, scalars=[x.nbytes], block_dim=64)

    return call, [x]


STEPS = st.sampled_from(["add", "swap", "softmax", "tanh", "split", "matmul", "take", "keep"])
PROGRAMS = st.recursive(
    st.lists(STEPS, max_size=4),
    lambda inner: st.lists(
        STEPS
        | st.tuples(st.just("cond"), inner, inner)
        | st.tuples(st.just("loop"), st.integers(0, 3), inner),
        max_size=4,
    ),
    max_leaves=5,
)


def follow(steps: Any, a: Any, b: Any, w: Any, n: Any) -> tuple[Any, Any]:
    """Do the steps of a program on two values; a choice and a loop do programs."""
    for step in steps:
        if step == "add":
            a = a + b
        elif step == "swap":
            a, b = b, a
        elif step == "softmax":
            b = ops.softmax(a)
        elif step == "tanh":
            a = ops.tanh(a)
        elif step == "split":
            a = ops.concat([b[1:], a[:1]], 0)
        elif step == "matmul":
            a = ops.softmax(a @ w)
        elif step == "take":
            b = ops.take(a, (n + np.arange(3)) % 3, axis=0)
        elif step[0] == "cond":
            a, b = ops.cond(
                (n + len(step[1])) % 2 == 0,
                lambda a, b, step=step: follow(step[1], a, b, w, n),
                lambda a, b, step=step: follow(step[2], a, b, w, n + 1),
                a,
                b,
            )
        elif step[0] == "loop":
            turns = n * 0 + np.int64(step[1])
            a, b, *_ = ops.while_loop(
                lambda a, b, i: i > 0,
                lambda a, b, i, step=step: (*follow(step[2], a, b, w, i), i - 1),
                a,
                b,
                turns,
            )
    return a, b


@st.composite
def programs(draw: Any) -> Case:
    steps = draw(PROGRAMS)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x, w = random.normal(size=(3, 8)).astype("f4"), random.normal(size=(8, 8)).astype("f4")

    def call(x: Any, w: Any, n: Any) -> Any:
        a, b = follow([*steps, ("cond", ["tanh"], steps), ("loop", 2, steps)], x, x * 2, w, n)
        return ops.concat([a, b], 0)

    return call, [x, w, np.array(draw(st.integers(-1, 2)))]


CASES = {
    "cond": programs(),
    "while_loop": programs(),
    "attention": attentions(),
    "cumulative_sum": running_sums(),
    "group_norm": group_norms(),
    "dequantize": quantizations(back=True),
    "kernel": user_kernels(),
    "quantize": quantizations(back=False),
    "grouped_matmul": grouped(),
    "log_softmax": log_softmaxes(),
    "one_hot": one_hots(),
    "pad": pads(),
    "rotary_embedding": rotations(),
    "top_k": top_ks(),
    **{name: rearranged(name) for name in ("split", "stack", "tile", "tril", "triu")},
    **{
        name: element_places(name)
        for name in ("take_along_axis", "scatter_elements", "scatter_add")
    },
    **{name: tuple_places(name) for name in ("gather_nd", "scatter_nd")},
}
