"""Keys: no two lists of contributions give one key, and what counts in a build function."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import struct
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgraph._core import codes
from fastgraph._core.contributions import compose, write_function, write_inputs
from fastgraph._core.key import Key, key_bytes
from fastgraph._core.keys import KeyWriter
from fastgraph.errors import InputError, ScopeError

ARRAYS = frozenset((np.ndarray,))
SCALE = 1.0
TABLE: dict[str, int] = {}


def key(*contributions: tuple[str, Any]) -> Key:
    writer = KeyWriter()
    for method, value in contributions:
        getattr(writer, method)(value)
    return writer.take_key()


def object_key(value: object) -> Key:
    return key(("write_object", value))


def function_key(function: Callable[..., object]) -> Key:
    writer = KeyWriter()
    write_function(writer, function)
    return writer.take_key()


def input_key(*inputs: object) -> Key:
    def refuse(x: object) -> object:
        return x

    return compose(int, inputs, (), ARRAYS, refuse)


class Reader:
    """Reads a key's tokens back: that this is possible is what makes keys differ."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, nbytes: int) -> bytes:
        assert self.at + nbytes <= len(self.data)
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def word(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def blob(self) -> bytes:
        return self.take(self.word())

    def token(self) -> Any:
        tag = self.take(1).decode()
        match tag:
            case "i":
                return struct.unpack("<q", self.take(8))[0]
            case "n":
                return int.from_bytes(self.blob(), "little", signed=True)
            case "b":
                return self.blob()
            case "u":
                return self.blob().decode("utf-8", "surrogatepass")
            case "s":
                return ("shape", tuple(self.word() for _ in range(self.word())))
            case "a":
                return ("address", self.word())
            case "d":
                kind, size, order = struct.unpack("cBc", self.take(3))
                return np.dtype(f"{order.decode()}{kind.decode()}{size}")
            case "f":
                return ("float", self.blob())
            case "c":
                return ("complex", self.blob())
            case "N" | "E" | "T" | "F":
                return {"N": None, "E": Ellipsis, "T": ("bool", 1), "F": ("bool", 0)}[tag]
            case "t":
                return ("tuple", tuple(self.token() for _ in range(self.word())))
            case "z":
                return ("set", frozenset(self.token() for _ in range(self.word())))
            case "g":
                return ("scalar", self.token(), self.token())
            case "O":
                return ("object", self.word())
        raise AssertionError(f"unknown tag {tag!r} at {self.at}")

    def all(self) -> list[Any]:
        result = []
        while self.at < len(self.data):
            result.append(self.token())
        return result


def meaning(value: Any) -> Any:
    """A value as `Reader` gives it back."""
    if isinstance(value, bool):
        return ("bool", int(value))
    if isinstance(value, np.generic):
        return ("scalar", value.dtype, value.tobytes())
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, complex):
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if isinstance(value, tuple):
        return ("tuple", tuple(meaning(item) for item in value))
    if isinstance(value, frozenset):
        return ("set", frozenset(meaning(item) for item in value))
    return value


numbers = st.integers() | st.integers(-(2**65), 2**65) | st.sampled_from([0, 2**63, -(2**63)])
texts = st.text(st.characters(codec=None), max_size=8)
sizes = st.lists(st.integers(0, 2**63 - 1), max_size=4).map(tuple)
dtypes = st.sampled_from([np.dtype(c) for c in "?bBhHiIlLqQefdgFDG"] + [np.dtype(">f4")])
scalars = st.sampled_from([np.float32(1), np.float64(1), np.int64(1), np.int8(1), np.bool_(True)])
leaves = (st.none() | st.booleans() | numbers | st.floats() | st.complex_numbers() | texts) | (
    st.binary(max_size=8) | st.just(...) | dtypes | scalars
)
plain = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=12,
)
contributions = st.lists(
    st.tuples(st.just("write_int"), numbers)
    | st.tuples(st.just("write_bytes"), st.binary(max_size=400))
    | st.tuples(st.just("write_str"), texts)
    | st.tuples(st.just("write_dtype"), dtypes)
    | st.tuples(st.just("write_shape"), sizes)
    | st.tuples(st.just("write_address"), st.integers(0, 2**64 - 1))
    | st.tuples(st.just("write_object"), plain),
    max_size=8,
)


@settings(max_examples=300)
@given(contributions)
def test_a_key_can_be_read_back(items: list[tuple[str, Any]]) -> None:
    wanted = []
    for method, value in items:
        if method in ("write_shape", "write_address"):
            wanted.append((method.removeprefix("write_"), value))
        else:
            wanted.append(meaning(value) if method == "write_object" else value)
    found = key(*items)
    assert Reader(key_bytes(found)).all() == wanted
    assert found == key(*items)
    assert hash(found) == hash(key(*items))


@given(plain, plain)
def test_plain_values_count_by_type_and_value(a: Any, b: Any) -> None:
    assert (object_key(a) == object_key(b)) == (meaning(a) == meaning(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 23), (12, 3)),
        ((1, 23), (123,)),
        ((), (0,)),
        ((0,), (0, 0)),
        ((2**64,), (0, 1)),
    ],
)
def test_numbers_are_framed(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert key(*(("write_int", n) for n in a)) != key(*(("write_int", n) for n in b))


def test_types_are_told_apart() -> None:
    values: list[object] = [1, 1.0, True, 1 + 0j, "1", b"1", (1,), frozenset({1}), np.int64(1)]
    values += [np.float64(1), np.dtype("i8"), None, ..., 0.0, -0.0, 0, False, (), frozenset()]
    assert len({object_key(value) for value in values}) == len(values)


def test_nan_is_nan() -> None:
    assert object_key(float("nan")) == object_key(float("nan"))
    assert object_key(np.float32("nan")) == object_key(np.float32("nan"))
    assert object_key(0.0) != object_key(-0.0)


def test_equal_dtypes_count_as_one() -> None:
    pairs: list[tuple[Any, Any]] = [("l", "q"), (">f4", np.dtype("f4").newbyteorder(">"))]
    # The machine's own order, said.
    pairs.append(("f4", np.dtype("f4").newbyteorder("<" if sys.byteorder == "little" else ">")))
    pairs += [("M8[ns]", "M8[ns]"), ([("a", "f4"), ("b", "i2")], [("a", "f4"), ("b", "i2")])]
    for a, b in pairs:
        assert key(("write_dtype", a)) == key(("write_dtype", b))
    names: list[Any] = ["f4", ">f4", "f8", "i4", "u4", "?", "i1", "M8[ns]", "M8[us]", "m8[ns]"]
    names += ["S3", "U3", "V8", [("a", "f4")], [("b", "f4")], ("f4", (2,)), "O", "c8"]
    assert len({key(("write_dtype", name)) for name in names}) == len(names)


def test_dtypes_of_another_library() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, "f2", "i2", "V2"]
    assert len({key(("write_dtype", name)) for name in names}) == len(names)
    assert key(("write_dtype", "bfloat16")) == key(("write_dtype", ml_dtypes.bfloat16))
    one, two = ml_dtypes.bfloat16(1), ml_dtypes.bfloat16(2)
    assert object_key(one) == object_key(ml_dtypes.bfloat16(1)) != object_key(two)


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("write_int", "1"),
        ("write_int", 1.0),
        ("write_int", True),
        ("write_int", None),
        ("write_bytes", "text"),
        ("write_bytes", np.zeros(2)),
        ("write_bytes", 3),
        ("write_str", b"bytes"),
        ("write_str", 1),
        ("write_dtype", None),
        ("write_dtype", "no such"),
        ("write_dtype", 3),
        ("write_shape", (1, -1)),
        ("write_shape", (1, 2.0)),
        ("write_shape", (1, True)),
        ("write_shape", (2**63,)),
        ("write_shape", 3.0),
        ("write_shape", None),
        ("write_address", -1),
        ("write_address", 2**64),
        ("write_address", "0"),
    ],
)
def test_wrong_types_raise_and_write_nothing(method: str, value: object) -> None:
    writer = KeyWriter()
    writer.write_int(7)
    with pytest.raises(InputError):
        getattr(writer, method)(value)
    assert writer.take_key() == key(("write_int", 7))


def test_numpy_integers_are_integers() -> None:
    assert key(("write_int", np.int8(5))) == key(("write_int", 5))
    assert key(("write_shape", 3)) == key(("write_shape", [np.int64(3)]))


def test_a_taken_writer_raises() -> None:
    writer = KeyWriter()
    writer.take_key()
    for call in (
        lambda: writer.write_int(1),
        lambda: writer.write_bytes(b""),
        lambda: writer.write_str(""),
        lambda: writer.write_dtype("f4"),
        lambda: writer.write_shape(()),
        lambda: writer.write_address(0),
        lambda: writer.write_object(1),
        lambda: write_function(writer, print),
        lambda: write_inputs(writer, (), ARRAYS, id),
        writer.take_key,
    ):
        with pytest.raises(ScopeError, match="taken"):
            call()


def test_a_key_is_opaque_and_immutable() -> None:
    a = key(("write_str", "x" * 1000))
    assert a == key(("write_str", "x" * 1000))
    assert a != "x" * 1000
    assert copy.copy(a) is a
    assert copy.deepcopy([a])[0] is a
    assert len(repr(a)) < 60
    with pytest.raises(TypeError):
        pickle.dumps(a)
    with pytest.raises(AttributeError):
        a.data = b""  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Key()


def test_hashes_spread() -> None:
    low = {hash(key(("write_int", n))) & 0xFFFF for n in range(1000)}
    assert len(low) > 980
    tails = {hash(key(("write_bytes", bytes(n)))) for n in range(64)}
    assert len(tails) == 64


def test_equal_hashes_are_not_equal_keys() -> None:
    # The hash forgets what came before a block whose first half is this constant.
    forget = struct.pack("<Q", 0x94D049BB133111EB)
    a, b = (key(("write_bytes", head + forget + b"tail")) for head in (b"1234567", b"7654321"))
    assert hash(a) == hash(b)
    assert a != b


def test_keys_of_many_numbers_all_differ() -> None:
    keys = [key(("write_int", n)) for n in range(400)]
    assert not any(a == b for i, a in enumerate(keys) for b in keys[:i])


def test_keys_find_each_other_in_a_dictionary() -> None:
    table = {object_key((n, str(n))): n for n in range(500)}
    assert [table[object_key((n, str(n)))] for n in range(500)] == list(range(500))


class Thing:
    def __init__(self, value: object = None) -> None:
        self.value = value

    def build(self, builder: object) -> object:
        return self.value

    def __call__(self, builder: object) -> object:
        return SCALE


def test_other_objects_count_by_identity_and_stay_alive() -> None:
    thing = Thing()
    gone = weakref.ref(thing)
    held = object_key((1, thing))
    assert held == object_key((1, thing)) != object_key((1, Thing()))
    del thing
    gc.collect()
    assert gone() is not None
    # An object at the address of one that is gone would be taken for it, so none is gone.
    assert all(object_key((1, Thing())) != held for _ in range(100))
    del held
    gc.collect()
    assert gone() is None


def test_a_list_counts_by_identity() -> None:
    values = [1]
    assert object_key(values) == object_key(values) != object_key([1])


def test_subclasses_of_plain_types_count_by_identity() -> None:
    class Number(int):
        pass

    one = Number(1)
    assert object_key(one) == object_key(one)
    assert object_key(one) not in (object_key(Number(1)), object_key(1))


def test_deep_tuples_end() -> None:
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)
    assert object_key(deep) == object_key(deep)
    while deep:
        (deep,) = deep


def test_sets_with_functions() -> None:
    both = frozenset({lambda: 1, lambda: 2})
    assert object_key(both) == object_key(both)


# ---- build functions -----------------------------------------------------------------------------


def make(value: object) -> Callable[[Any], object]:
    def build(builder: Any) -> object:
        return builder.use(value)

    return build


def test_closures_of_one_factory_differ_by_what_they_capture() -> None:
    assert function_key(make(1)) == function_key(make(1))
    values: list[object] = [1, 2, 1.0, True, "1", None, []]
    assert len({function_key(make(value)) for value in values}) == 7


def test_another_function_is_another_key() -> None:
    # Not within the assertion: rewritten, both would have one place in the text and be one code.
    one, two = (lambda b: 1), (lambda b: 1)
    assert function_key(one) != function_key(two)
    assert function_key(make) != function_key(make(make))


def test_defaults_count() -> None:
    def factory(value: object, other: object) -> Callable[[Any], object]:
        def build(b: Any, v: object = value, *, w: object = other) -> object:
            return v, w

        return build

    keys = {function_key(factory(*v)) for v in [(1, 2), (2, 1), (1, 1), (1, None)]}
    assert len(keys) == 4
    assert function_key(factory(1, 2)) == function_key(factory(1, 2))


def test_named_globals_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Any) -> object:
        return [SCALE for _ in range(2)]

    def other(b: Any) -> object:
        return b.SCALE

    before, unnamed = function_key(build), function_key(other)
    monkeypatch.setattr(f"{__name__}.SCALE", 2.0)
    assert function_key(build) != before
    assert function_key(other) == unnamed
    monkeypatch.setattr(f"{__name__}.SCALE", 1.0)
    assert function_key(build) == before
    monkeypatch.delattr(f"{__name__}.SCALE")
    assert function_key(build) != before


def test_a_builtin_that_is_shadowed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Any) -> object:
        return len(b)

    before = function_key(build)
    monkeypatch.setitem(globals(), "len", max)
    assert function_key(build) != before


def test_self_counts() -> None:
    a, b = Thing(), Thing()
    assert function_key(a.build) == function_key(a.build)
    assert function_key(a.build) != function_key(b.build)
    assert function_key(a) == function_key(a) != function_key(b)
    plain = types.MethodType(make(1), 5)
    assert function_key(plain) == function_key(types.MethodType(make(1), 5))
    assert function_key(plain) != function_key(types.MethodType(make(1), 6))


def test_a_callable_object_is_seen_through_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = Thing()
    before = function_key(thing)
    monkeypatch.setattr(f"{__name__}.SCALE", 3.0)
    assert function_key(thing) != before


def test_partials_are_unfolded() -> None:
    def build(a: object, b: object) -> object:
        return a, b

    def p(*args: object, **keywords: object) -> Key:
        return function_key(functools.partial(build, *args, **keywords))

    assert p(1) == p(1)
    assert p(1, b=2) == p(1, b=2)
    assert len({p(1), p(2), p(a=1), p(b=1), p(1, 2), p(b=[]), p()}) == 7


def test_bound_builtins_are_unfolded() -> None:
    first: list[object] = []
    second: list[object] = []
    assert function_key(first.append) == function_key(first.append)
    assert function_key(first.append) != function_key(second.append)
    assert function_key(first.append) != function_key(first.remove)
    assert function_key(print) == function_key(print) != function_key(repr)


def test_what_the_function_itself_assigns_does_not_count() -> None:
    n = 0
    value = 1

    def build(b: Any) -> object:
        nonlocal n
        n += 1
        return value

    before = function_key(build)
    build(None)
    assert n == 1
    assert function_key(build) == before
    value = 2
    assert function_key(build) != before


def test_assignments_in_inner_functions_do_not_count_either() -> None:
    n = 0

    def build(b: Any) -> object:
        def inner() -> None:
            nonlocal n
            n += 1

        inner()
        return n

    before = function_key(build)
    build(None)
    assert function_key(build) == before


def test_an_inner_variable_of_the_same_name_hides_nothing() -> None:
    def factory(n: int) -> Callable[[Any], object]:
        def build(b: Any) -> object:
            def outer() -> Callable[[], int]:
                m = 0

                def inner() -> int:
                    nonlocal m
                    m += n
                    return m

                return inner

            return outer()

        return build

    assert function_key(factory(1)) != function_key(factory(2))


def test_assigned_globals_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Any) -> None:
        global SCALE
        SCALE += 1

    before = function_key(build)
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    assert function_key(build) == before


def test_attributes_count_unless_the_function_assigns_them() -> None:
    def factory() -> Any:
        def build(b: Any) -> object:
            build.calls = 1 + getattr(build, "calls", 0)  # type: ignore[attr-defined]
            return build.scale  # type: ignore[attr-defined]

        return build

    build = factory()
    build.scale = 1
    before = function_key(build)
    build(None)
    assert function_key(build) == before
    build.scale = 2
    assert function_key(build) != before


def test_empty_cells() -> None:
    def factory(fill: bool) -> Callable[[Any], object]:
        def build(b: Any) -> object:
            return late

        if fill:
            late = None
        return build

    assert function_key(factory(False)) == function_key(factory(False))
    assert function_key(factory(False)) != function_key(factory(True))


def test_which_cell_is_empty_counts() -> None:
    def factory(first: bool) -> Callable[[Any], object]:
        def build(b: Any) -> object:
            return one, two

        if first:
            one = None
        else:
            two = None
        return build

    assert function_key(factory(False)) != function_key(factory(True))


def test_which_global_is_missing_counts() -> None:
    space: dict[str, Any] = {}
    exec("def build(b):\n    return one, two", space)
    space["one"] = 1
    before = function_key(space["build"])
    space["two"] = space.pop("one")
    assert function_key(space["build"]) != before


def recursive(b: Any) -> object:
    return mutual(b)


def mutual(b: Any) -> object:
    return recursive(b), SCALE


def test_recursion_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    before = function_key(recursive)
    assert function_key(recursive) == before != function_key(mutual)
    monkeypatch.setattr(f"{__name__}.SCALE", 9.0)
    assert function_key(recursive) != before

    def factory(value: int) -> Callable[[int], object]:
        def build(n: int) -> object:
            return build(n - 1) if n else value

        return build

    assert function_key(factory(1)) == function_key(factory(1)) != function_key(factory(2))


def test_helpers_count_by_what_they_capture() -> None:
    def factory(value: object) -> Callable[[Any], object]:
        helper = make(value)
        return lambda b: helper(b)

    assert function_key(factory(1)) == function_key(factory(1)) != function_key(factory(2))


def test_which_of_two_helpers_counts() -> None:
    def factory(a: object, b: object) -> Callable[[Any], object]:
        return lambda builder: (a, b)

    one, two = make(1), make(2)
    keys = {function_key(factory(*p)) for p in [(one, two), (two, one), (one, one), (two, two)]}
    assert len(keys) == 4
    assert function_key(factory(one, make(1))) != function_key(factory(one, two))


def test_long_chains_of_functions_end() -> None:
    function = make(0)
    for _ in range(10_000):
        function = make(function)
    assert function_key(function) == function_key(function)


def test_functions_of_another_package_count_by_identity() -> None:
    def factory(value: int) -> Callable[[], int]:
        return lambda: value

    space: dict[str, Any] = {"__name__": "another.module"}
    exec("def build(b):\n    return helper()", space)
    build = space["build"]
    space["helper"] = factory(1)
    before = function_key(build)
    assert function_key(build) == before
    space["helper"] = factory(1)
    assert function_key(build) != before


def test_captured_values_stay_alive() -> None:
    thing = Thing()
    gone = weakref.ref(thing)
    held = function_key(make(thing))
    del thing
    gc.collect()
    assert gone() is not None
    del held
    gc.collect()
    assert gone() is None


def test_code_stays_alive() -> None:
    space: dict[str, Any] = {}
    keys = []
    for _ in range(50):
        exec("def build(b):\n    return 1", space)
        keys.append(function_key(space.pop("build")))
        gc.collect(0)
    assert len(set(keys)) == 50


def test_many_codes_are_forgotten_again() -> None:
    space: dict[str, Any] = {}
    exec("def build(b):\n    return 1", space)
    first = function_key(space["build"])
    code = space["build"].__code__
    for line in range(4200):
        codes.names(code.replace(co_firstlineno=line + 1))
    assert function_key(space["build"]) == first


def test_what_is_not_callable_is_refused() -> None:
    writer = KeyWriter()
    with pytest.raises(InputError, match="not callable"):
        write_function(writer, 3)  # type: ignore[arg-type]
    assert writer.take_key() == KeyWriter().take_key()


def test_names_of_code() -> None:
    def build(b: Any) -> object:
        class Inner:
            value = SCALE

        return Inner, TABLE, b.other

    assert set(codes.names(build.__code__)[0]) >= {"SCALE", "TABLE"}
    assert "other" not in codes.names(build.__code__)[0]
    with pytest.raises(InputError):
        codes.names(build)  # type: ignore[arg-type]


# ---- inputs --------------------------------------------------------------------------------------


class Writes:
    """An input that writes what it is told to."""

    def __init__(self, *items: tuple[str, Any]) -> None:
        self.items = items

    def write_graph_key(self, writer: KeyWriter) -> None:
        for method, value in self.items:
            getattr(writer, method)(value)


class WritesToo(Writes):
    pass


def split(*parts: bytes) -> list[Writes]:
    return [Writes(("write_bytes", part)) for part in parts]


def test_one_input_is_never_two() -> None:
    one, two = (
        Writes(("write_int", 1), ("write_int", 2)),
        [
            Writes(("write_int", 1)),
            Writes(("write_int", 2)),
        ],
    )
    assert input_key(one) != input_key(*two)
    assert input_key(one) == input_key(Writes(("write_int", 1), ("write_int", 2)))
    assert input_key() != input_key(Writes())
    assert input_key(Writes()) != input_key(Writes(), Writes())
    assert input_key(*split(b"1|2")) != input_key(*split(b"1", b"2"))
    assert input_key(*split(b"1\x002")) != input_key(*split(b"1", b"2"))


@given(st.lists(st.binary(max_size=6), max_size=3), st.binary(max_size=40))
def test_no_bytes_of_one_input_equal_two(parts: list[bytes], body: bytes) -> None:
    whole = input_key(*split(*parts))
    if parts != [body]:
        assert input_key(*split(body)) != whole
    # Not even the bytes that two inputs make.
    assert input_key(*split(key_bytes(whole))) != whole


def test_the_type_of_an_input_counts() -> None:
    assert input_key(Writes()) != input_key(WritesToo())


def test_arrays_count_by_shape_and_dtype() -> None:
    a = input_key(np.zeros((2, 3)))
    assert a == input_key(np.ones((3, 2)).T)
    others = [np.zeros((3, 2)), np.zeros(6), np.zeros((2, 3), "f4"), np.zeros((2, 3), ">f8")]
    assert len({a, *map(input_key, others)}) == 5


def test_a_failing_input_writes_nothing() -> None:
    writer = KeyWriter()
    writer.write_int(1)
    with pytest.raises(InputError):
        write_inputs(
            writer, (Writes(("write_int", 2)), Writes(("write_int", "3"))), ARRAYS, lambda x: x
        )
    assert writer.take_key() == key(("write_int", 1))


def test_an_input_that_takes_the_key_is_found() -> None:
    class Thief(Writes):
        def write_graph_key(self, writer: KeyWriter) -> None:
            writer.take_key()

    with pytest.raises(ScopeError):
        input_key(Thief())


def test_compose_holds_settings_inputs_and_build() -> None:
    def compose_with(build: Any, inputs: tuple[Any, ...], *rest: object) -> Key:
        return compose(build, inputs, rest, ARRAYS, lambda x: x)

    x = np.zeros(3)
    keys = {
        compose_with(make(1), (x,), "cpu", None),
        compose_with(make(1), (x,), "cuda", None),
        compose_with(make(1), (x,), "cpu", 1),
        compose_with(make(2), (x,), "cpu", None),
        compose_with(make(1), (x, x), "cpu", None),
        compose_with(make(1), (), "cpu", None),
    }
    assert len(keys) == 6
    assert compose_with(make(1), (x + 1,), "cpu", None) in keys
    with pytest.raises(InputError):
        compose_with(None, ())
