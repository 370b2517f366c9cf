"""Cases of the operators that are built from many steps: attention and its like."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

from fastgraph.ir import ops
from tests.ops.cases import Case


@st.composite
def attentions(draw: Any) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    batch, key_heads, group = (draw(st.integers(1, 2)) for _ in range(3))
    queries = draw(st.sampled_from([1, 2, 5, 13, 40]))
    keys = draw(st.sampled_from([0, 1, 3, 16, 21, 70, 130]))
    length = draw(st.sampled_from([1, 3, 8, 32, 70]))
    value_length = draw(st.sampled_from([length, 1, 16, 21]))
    heads = key_heads * group
    arrays = [
        random.normal(size=(batch, heads, queries, length)).astype("f4"),
        random.normal(size=(batch, key_heads, keys, length)).astype("f4"),
        random.normal(size=(batch, key_heads, keys, value_length)).astype("f4"),
    ]
    mask = draw(st.sampled_from(["none", "none", "bool", "bias"]))
    if mask != "none":
        whole = [batch, heads, queries, keys]
        shape = tuple(n if draw(st.booleans()) else 1 for n in whole)[draw(st.integers(0, 3)) :]
        some = random.normal(size=shape)
        bias = np.where(some < -1, -np.inf, some * 3).astype("f4")
        arrays.append(some > -0.5 if mask == "bool" else bias)
    options = {
        "is_causal": draw(st.booleans()),
        "window": draw(st.sampled_from([None, None, 1, 4, 33])),
        "scale": draw(st.sampled_from([None, 0.0, 1.0, -0.5])),
        "softcap": draw(st.sampled_from([None, None, 2.0])),
    }
    return (lambda *values: ops.attention(*values, **options)), arrays


CASES = {
    "attention": attentions(),
}
