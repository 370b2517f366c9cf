"""Parameter types from mangled names: against the standard's rules, and against the compiler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgraph.device.cuda import dtypes, mangled
from fastgraph.device.cuda.mangled import parameters_of, parameters_of_probe


def shown(parameters):
    """Each parameter as a short text: ``*f4``, ``const *f4``, ``i4``, ``?`` for unknown ones."""
    return [
        ("const " if p.const else "")
        + ("*" if p.pointer else "")
        + ("?" if p.dtype is None else p.dtype.str.lstrip("<|"))
        for p in parameters
    ]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("_Z4axpyIfEvPT_PKS0_S0_i", ["*f4", "const *f4", "f4", "i4"]),
        ("_ZN2ns5plainEPfPKfy", ["*f4", "const *f4", "u8"]),
        ("_ZN2ns4axpyIdEEvPT_PKS1_S1_i", ["*f8", "const *f8", "f8", "i4"]),
        (
            "_Z2ks1SPKS_PS_PvPKvbcasl6float4PFfiE",
            ["?", "const *?", "*?", "*?", "const *?", "b1", "i1", "i1", "i2", "i8", "?", "?"],
        ),
        ("_Z4manyIJiPf1SEEvDpT_", ["i4", "*f4", "?"]),
        ("_Z4manyIJifEEvDpPKT_", ["const *i4", "const *f4"]),
        ("_ZN43_GLOBAL__N__00000000_15_default_program_inc6hiddenEi", ["i4"]),
        ("_ZL1kv", []),
        ("_Z1kv", []),
        ("_Z1kP6__halfPK6__halfS_", ["*f2", "const *f2", "f2"]),
        ("_Z1kPDF16_Dh", ["*f2", "f2"]),
        ("_Z1kPPfPKS_PVKf", ["*?", "const *?", "const *f4"]),
        ("_Z1kPA4_fPA4_Kf", ["*f4", "const *f4"]),
        ("_Z1kILi4ELb1ELj128EfEvPT2_", ["*f4"]),
        ("_Z1kILin4EEvPi", ["*i4"]),
        ("_Z1kN2ns1AIiE1BE", ["?"]),
        ("_Z1kSt4pairIifES_IffE", ["?", "?"]),
        ("_Z1kSt4pairIifES0_Pf", ["?", "?", "*f4"]),
        ("_Z1kI1AEvNT_1BEPS1_", ["?", "*?"]),
        ("_Z1kXXX", None),
        ("_Z1kRfOd", ["?", "?"]),
        ("_Z1kMi1SCf", ["?", "?"]),
        ("_Z1kDv4_fPDv4_f", ["?", "*?"]),
        ("_Z1kU7_Atomici", ["i4"]),
        ("_ZN1AIfE1kEPf", ["*f4"]),
        ("_Z1kB5cxx11i", ["i4"]),
        ("_Z1kIXadL_Z4pluseeEEEvPf", ["*f4"]),
        ("_Z1kIZ4mainvEUlvE_EvT_", ["?"]),
        ("_Z1kwneg", ["i4", "?", "?", "?"]),
        ("_Z1ki.cloned.1", ["i4"]),
        ("_Z1kIiEvT_PN2ns5outerIT_E5innerE", ["i4", "*?"]),
    ],
)
def test_names(name, want):
    found = parameters_of(name)
    assert (None if found is None else shown(found)) == want


def test_the_last_substitution_of_many():
    """S_, S0_ … S9_, SA_ … are counted in base 36."""
    classes = "".join(f"{len(name)}{name}" for name in (f"C{i}" for i in range(37)))
    found = parameters_of(f"_Z1k{classes}PS_PSA_PSZ_PS10_")
    assert [p.text for p in found[-4:]] == ["C0 *", "C11 *", "C36 *", "C0 **"]


def test_texts():
    found = parameters_of("_Z1kPKfPfS1_PPKfj6float4")
    assert [p.text for p in found] == [
        "const float *", "float *", "float *", "const float **", "unsigned int", "float4",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "inc", "_Z", "_Z1", "_Z9inc", "_ZN", "_Z1kS_", "_Z1kT_"])
def test_what_is_no_mangled_name(name):
    assert parameters_of(name) is None
    assert parameters_of_probe(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "_Z1kz",
        "_Z1kIXplLi1ELi2EEEvPf",
        "_Z1kDTfp_E",
        "_ZplPfS_",
        "_Z1k" + "P" * 500 + "f",
        "_Z1kff%",
    ],
)
def test_what_cannot_be_read(name):
    assert parameters_of(name) is None


def test_probe():
    assert shown(parameters_of_probe("_Z15fg_signature_ofIPFvPfPKffiEEvv")) == [
        "*f4", "const *f4", "f4", "i4",
    ]  # fmt: skip
    assert parameters_of_probe("_Z15fg_signature_ofIPFvvEEvv") == ()
    assert parameters_of_probe("_Z15fg_signature_ofIiEvv") is None
    assert parameters_of_probe("_Z4axpyPf") is None


def test_bfloat16(monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    name = "_Z1kP13__nv_bfloat16PKS_S_DF16b"
    assert ml_dtypes.bfloat16 == dtypes.BFLOAT16
    assert [p.dtype for p in parameters_of(name)] == [np.dtype(ml_dtypes.bfloat16)] * 4
    monkeypatch.setitem(mangled._CLASS_DTYPES, "__nv_bfloat16", None)
    assert shown(parameters_of(name))[:3] == ["*?", "const *?", "?"]


@given(st.text(alphabet="_ZNKPSTIEDLJRVfijvb0123456789kA.", max_size=40))
@settings(max_examples=500)
def test_any_text_is_read_or_refused(text):
    for name in (text, "_Z" + text, "_Z1k" + text, "_Z1kI" + text):
        found = parameters_of(name)
        assert found is None or isinstance(found, tuple)
        parameters_of_probe(name)


BUILTINS = {code: text for code, (text, dtype) in mangled._BUILTINS.items() if dtype}


@given(st.lists(st.tuples(st.sampled_from(["", "P", "PK", "PPK"]), st.sampled_from([*BUILTINS]))))
def test_lists_of_builtins(kinds):
    """Each pointer type is written out the first time, and as a substitution after that."""
    known: list[str] = []

    def encode(prefix, code):
        if not prefix:
            return code
        if prefix + code in known:
            number = known.index(prefix + code)
            return "S_" if number == 0 else f"S{np.base_repr(number - 1, 36)}_"
        inner = encode(prefix[1:], code)
        known.append(prefix + code)
        return prefix[0] + inner

    text = "".join(encode(prefix, code) for prefix, code in kinds)
    found = parameters_of("_Z1k" + (text or "v"))
    assert [(p.pointer, p.const) for p in found] == [
        (prefix != "", prefix == "PK") for prefix, _ in kinds
    ]
    for (prefix, code), parameter in zip(kinds, found, strict=True):
        if prefix == "PPK":
            assert parameter.dtype is None
        else:
            assert parameter.dtype == mangled._BUILTINS[code][1]
