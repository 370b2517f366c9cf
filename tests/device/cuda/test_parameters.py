"""Which source of types counts, and what happens when sources disagree."""

from __future__ import annotations

import pytest

import fastgraph as fg
from fastgraph.device.cuda.parameters import resolve_parameters
from fastgraph.device.function import parse_signature
from tests.device.cuda.test_mangled import shown


def layout(*sizes):
    return [(8 * i, size) for i, size in enumerate(sizes)]


PTX = ".version 9.0\n.entry k(.param .u64 a, .param .u32 b, .param .f32 c) { ret; }"
PROBE = "_Z1pIPFvPfjfEEvv"


def test_order():
    sources = {
        "signature": "const double *a, unsigned b, float c",
        "known": parse_signature("k", "long *a, int b, float c"),
        "mangled_name": "_Z1kPKfif",
        "probe": PROBE,
        "ptx_text": PTX,
    }
    want = {
        "signature": ["const *f8", "u4", "f4"],
        "known": ["*i8", "i4", "f4"],
        "mangled_name": ["const *f4", "i4", "f4"],
        "probe": ["*f4", "u4", "f4"],
    }
    for name, types in want.items():
        assert shown(resolve_parameters("k", layout(8, 4, 4), **sources)) == types
        del sources[name]
    found = resolve_parameters("k", layout(8, 4, 4), **sources)
    assert shown(found) == ["?", "?", "f4"]
    assert found[1].is_integer
    found = resolve_parameters("k", layout(8, 4, 4))
    assert shown(found) == ["?", "?", "?"]
    assert [p.size for p in found] == [8, 4, 4]
    assert [p.text for p in found] == ["8 bytes", "4 bytes", "4 bytes"]


def test_sizes_of_structures_come_from_the_driver():
    found = resolve_parameters("k", layout(12, 8), mangled_name="_Z1k1SPS_")
    assert [(p.text, p.size) for p in found] == [("S", 12), ("S *", 8)]


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("float *a", r"signature 'float \*a' has 1 parameters, the compiled function 2"),
        (
            "float *a, double b",
            r"parameter 1 \(double b\) has 8 bytes, the compiled function that it has 4",
        ),
        ("float *a, thing b", "no known type"),
        (b"float *a, int b", "a signature is a string"),
    ],
)
def test_a_signature_that_disagrees(signature, message):
    with pytest.raises(fg.GraphError, match=message):
        resolve_parameters("k", layout(8, 4), signature=signature, mangled_name="_Z1kPfi")


def test_a_declaration_that_disagrees():
    with pytest.raises(fg.GraphError, match="its own declaration has 2 parameters"):
        resolve_parameters("k", layout(8), known=parse_signature("k", "float *a, int b"))


@pytest.mark.parametrize("mangled", ["_Z1kPf", "_Z1kPfd", "_Z1k%", "k"])
def test_names_that_disagree_are_left_aside(mangled):
    """They only looked mangled: no reason to refuse the kernel."""
    assert shown(resolve_parameters("k", layout(8, 4), mangled_name=mangled)) == ["?", "?"]
