"""Parameter types from PTX text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastgraph.device.cuda.ptx import entry_names, parameters_of
from tests.device.cuda.test_mangled import shown

TEXT = """
//
// .visible .entry not_this(.param .u32 a)
.version 9.0
.target sm_90
.address_size 64
.visible .func helper(.param .b32 x);
.visible .entry inc(
	.param .u64 inc_param_0, /* the
	buffer */
	.param .align 4 .b8 inc_param_1[12],
	.param .u64 .ptr .global .align 16 inc_param_2,
	.param .u64 .ptr .align 1 inc_param_3,
	.param .f32 inc_param_4, // .param .f64 no
	.param .u32 inc_param_5,
	.param .s32 inc_param_6,
	.param .b32 inc_param_7,
	.param .f64 inc_param_8,
	.param .f16 inc_param_9,
	.param .b16 inc_param_10,
	.param .u8 inc_param_11,
	.param .s64 inc_param_12
)
.maxntid 1024, 1, 1
{ ret; }
.entry none { ret; }
.weak .entry empty$1()
{ ret; }
.entry odd(.param .texref t) { ret; }
.entry pointed(.param .u32 .ptr p) { ret; }
"""


def test_types():
    found = parameters_of(TEXT, "inc")
    assert shown(found) == [
        "?", "?", "*?", "*?", "f4", "?", "i4", "?", "f8", "f2", "?", "?", "i8",
    ]  # fmt: skip
    sizes = [p.size for p in found]
    assert sizes == [8, 12, 8, 8, 4, 4, 4, 4, 8, 2, 2, 1, 8]
    assert [i for i, p in enumerate(found) if p.is_integer] == [5, 11]
    assert not any(p.const for p in found)


def test_entries():
    assert entry_names(TEXT) == ("inc", "none", "empty$1", "odd", "pointed")
    assert parameters_of(TEXT, "none") == parameters_of(TEXT, "empty$1") == ()
    for name in ("not_this", "helper", "in", "odd", "pointed"):
        assert parameters_of(TEXT, name) is None


@given(st.lists(st.sampled_from([("f32", 4), ("u32", 4), ("u64", 8), ("f64", 8), ("b8", 1)])))
def test_sizes(kinds):
    text = ",".join(f"\n.param .{kind} p_{i}" for i, (kind, _) in enumerate(kinds))
    found = parameters_of(f".entry k({text})", "k")
    assert [p.size for p in found] == [size for _, size in kinds]


@given(st.text(alphabet=".param u32b8[1],()k_ \n", max_size=60))
def test_any_text_is_read_or_refused(text):
    found = parameters_of(f".entry k({text}) {{}}", "k")
    assert found is None or isinstance(found, tuple)


@pytest.mark.parametrize("count", [0, 1, 4096])
def test_bytes(count):
    (found,) = parameters_of(f".entry k(.param .align 8 .b8 p[{count}])", "k")
    assert found.size == count
    assert found.is_opaque
