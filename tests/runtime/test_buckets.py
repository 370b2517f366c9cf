"""Buckets: which range, one compile each, one set of parameters, and rows that stay apart."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastgraph as fg
from fastgraph import ops
from tests.runtime.test_threads import run_all

f4 = np.float32
LADDER = ((1, 9), (9, 17), (17, 33))


def layer(rows, width=4):
    graph = fg.Graph("layer")
    x, w = graph.input("x", (rows, width)), graph.param("w", (width, width))
    graph.output(ops.relu(x @ w), "y")
    graph.output(ops.sum(x, axis=1), "sums")
    return graph


def rows_of(count, width=4, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(count, width)).astype(f4)}


def ready(device, ranges=LADDER, **options):
    cache = fg.BucketedCompileCache(device, ranges, **options)
    cache.set_param("w", np.eye(4, dtype="f4"))
    return cache


@pytest.mark.host
@pytest.mark.parametrize(
    ("lo", "hi", "uppers"),
    [
        (8, 64, [8, 16, 32, 64]), (16, 32, [16, 32]), (10, 64, [16, 32, 64]), (8, 20, [8, 16, 32]),
        (16, 16, [16]), (1, 4, [1, 2, 4]), (9, 9, [16]),
    ],
)  # fmt: skip
def test_ladders(lo, hi, uppers):
    ranges = fg.power_of_two_ladder(lo, hi)
    assert [end - 1 for _, end in ranges] == uppers
    assert ranges[0][0] == 1
    assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]


@pytest.mark.host
@pytest.mark.parametrize("bounds", [(0, 8), (32, 8), (-1, 8), (8.0, 16), (True, 8), ("8", 16)])
def test_ladders_refused(bounds):
    with pytest.raises(fg.InputError):
        fg.power_of_two_ladder(*bounds)


REFUSED = {
    "overlap": ([(1, 5), (4, 9)], "overlap"),
    "overlap, not in order": ([(4, 9), (1, 5)], "overlap"),
    "twice": ([(1, 5), (1, 5)], "overlap"),
    "empty": ([(4, 4)], "is empty"),
    "backwards": ([(8, 4)], "is empty"),
    "zero": ([(0, 4)], "one row at least"),
    "none": ([], "no ranges"),
    "numbers": ([4, 8], "pair of integers"),
    "floats": ([(1.0, 4)], "pair of integers"),
    "three": ([(1, 2, 3)], "pair of integers"),
}


@pytest.mark.host
@pytest.mark.parametrize("name", REFUSED)
def test_ranges_refused(name):
    ranges, match = REFUSED[name]
    with pytest.raises(fg.InputError, match=match):
        fg.BucketedCompileCache("cpu", ranges)


@pytest.mark.host
@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"ranges": [(1, 4)], "sizes": [4]}, {"sizes": [4, 4]}, {"sizes": [8, 4]},
        {"sizes": [0]}, {"sizes": []}, {"sizes": [4.0]}, {"sizes": [4], "max_padding": 0.5},
        {"sizes": [4], "max_padding": "2"}, {"sizes": [4], "max_exact": 0},
        {"sizes": [4], "threads": 0},
    ],
)  # fmt: skip
def test_arguments_refused(arguments):
    with pytest.raises(fg.InputError):
        fg.BucketedCompileCache("cpu", **arguments)


def test_which_bucket(device):
    """SCENARIOS B 17: (1, 4) and (4, 16)."""
    cache = ready(device, [(4, 16), (1, 4)])
    built = []

    def build(rows):
        built.append(rows)
        return layer(rows)

    assert cache.ranges == [(1, 4), (4, 16)]
    upper, model = cache.get_or_compile(2, build)
    assert upper == 3
    assert cache.get_or_compile(3, build) == (3, model)
    assert cache.get_or_compile(np.int64(1), build) == (3, model)
    assert built == [3]
    for outside in (0, 16, 100, -1):
        assert cache.get_or_compile(outside, build) is None
        with pytest.raises(fg.InputError, match=rf"{outside} rows lie in none .*half-open"):
            cache.run_padded(outside, build, rows_of(max(outside, 0)))
    assert cache.get_or_compile(15, build)[0] == 15
    assert built == [3, 15]
    assert cache.stats.compiles == cache.stats.live_models == 2
    assert (cache.stats.hits, cache.stats.misses) == (2, 10)
    for wrong in (2.0, "2", None, True):
        with pytest.raises(fg.InputError, match="an integer is needed"):
            cache.get_or_compile(wrong, build)


def test_run_padded(device):
    """10 then 5 rows in the bucket (1, 16): 10 and 5 rows out, one compile."""
    cache = ready(device, [(1, 16)])
    for rows in (10, 5, 15, 1):
        inputs = rows_of(rows, seed=rows)
        y, sums = cache.run_padded(rows, layer, inputs)
        np.testing.assert_array_equal(y, np.maximum(inputs["x"], 0))
        np.testing.assert_allclose(sums, inputs["x"].sum(1), rtol=1e-5)
    assert cache.stats == (3, 1, 1, 1, 31, 29)


def test_bits_are_those_of_the_whole_run(device):
    """Filled rows change nothing: as if all the rows had been given."""
    cache = ready(device)
    whole = rows_of(16)
    expected = cache.run_padded(16, layer, whole)
    for rows in (9, 12, 15):
        found = cache.run_padded(rows, layer, {"x": whole["x"][:rows]})
        for part, all_ in zip(found, expected, strict=True):
            assert part.tobytes() == all_[:rows].tobytes()


def test_other_axes_and_inputs_without_rows(device):
    def build(rows):
        graph = fg.Graph()
        x, w = graph.input("x", (rows, 3)), graph.input("w", (3, 2))
        ids, by = graph.input("ids", (rows,), "int64"), graph.scalar("by", "float32", 1.0)
        graph.output((x @ w).T * by, "turned")
        graph.output(w + 1, "apart")
        graph.output(ops.take(w, ids, axis=0), "picked")
        return graph

    cache = fg.BucketedCompileCache(device, sizes=[8])
    x, w = rows_of(5, 3)["x"], rows_of(3, 2, seed=1)["x"]
    ids = np.int64([2, 1, 0, 1, 2])
    turned, apart, picked = cache.run_padded(5, build, {"x": x, "w": w, "ids": ids}, by=2.0)
    np.testing.assert_allclose(turned, 2 * (x @ w).T, rtol=1e-5)
    np.testing.assert_array_equal(apart, w + 1)
    np.testing.assert_array_equal(picked, w[ids])


def test_filled_rows_meet_no_bad_data(device):
    """They are copies: no index, division or infinity is in them that was not given."""

    def build(rows):
        graph = fg.Graph()
        ids, table = graph.input("ids", (rows,), "int64"), graph.param("table", (3, 2))
        graph.output(ops.take(table, ids - 5, axis=0), "y")
        return graph

    cache = fg.BucketedCompileCache(device, sizes=[8])
    table = np.arange(6, dtype="f4").reshape(3, 2)
    cache.set_param("table", table)
    (y,) = cache.run_padded(3, build, {"ids": np.int64([5, 6, 7])})
    np.testing.assert_array_equal(y, table)
    with pytest.raises(fg.InputError, match="out of range"):
        cache.run_padded(3, build, {"ids": np.int64([5, 6, 9])})
    (y,) = cache.run_padded(1, build, {"ids": np.int64([7])})
    np.testing.assert_array_equal(y, table[2:])


@pytest.mark.parametrize("op", ["sum", "softmax", "attention", "cumulative_sum"])
def test_rows_that_mix(device, op):
    """Nothing is filled in: an extent is set, or the operator is refused by name."""
    works = {
        "sum": lambda x: ops.sum(x, axis=0),
        "softmax": lambda x: ops.softmax(x, axis=0),
        "attention": lambda x: ops.attention(*[x.reshape(1, 1, *x.shape)] * 3)[0, 0],
        "cumulative_sum": lambda x: ops.cumulative_sum(x, axis=0, reverse=True),
    }

    def build(rows):
        graph = fg.Graph()
        graph.output(works[op](graph.input("x", (rows, 4))), "y")
        return graph

    cache = fg.BucketedCompileCache(device, sizes=[8])
    for rows in (5, 7, 5):
        (found,) = cache.run_padded(rows, build, rows_of(rows))
        (wanted,) = fg.Session("cpu").compile(build(rows)).run(rows_of(rows))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert cache.stats[4:] == (17, 0)
    with pytest.raises(fg.InputError, match=r"not .5, 4., for 5 rows"):
        cache.run_padded(5, build, rows_of(8))
    model = fg.Session(device).compile(build(8))
    inputs = rows_of(8)
    assert cache.run_padded(8, build, inputs)[0].tobytes() == model.run(inputs)[0].tobytes()
    exact = fg.BucketedCompileCache(device, sizes=[8], max_padding=1)
    (found,) = exact.run_padded(5, build, rows_of(5))
    model = fg.Session(device).compile(build(5))
    assert found.tobytes() == model.run(rows_of(5))[0].tobytes()


def test_causal_attention_may_be_filled(device):
    def build(rows):
        graph = fg.Graph()
        x = graph.input("x", (rows, 8))
        heads = x.reshape(1, rows, 2, 4).transpose((0, 2, 1, 3))
        y = ops.attention(heads, heads, heads, is_causal=True)
        graph.output(y.transpose((0, 2, 1, 3)).reshape(rows, 8), "y")
        return graph

    cache = fg.BucketedCompileCache(device, sizes=[16])
    inputs = rows_of(11, 8)
    (found,) = cache.run_padded(11, build, inputs)
    (expected,) = fg.Session(device).compile(build(11)).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


BAD_INPUTS = {
    "rows": ({"x": np.ones((4, 4), "f4")}, r"shape \(4, 4\), not \(5, 4\), for 5 rows"),
    "upper rows": ({"x": np.ones((8, 4), "f4")}, r"shape \(8, 4\), not \(5, 4\)"),
    "width": ({"x": np.ones((5, 3), "f4")}, r"shape \(5, 3\), not \(5, 4\)"),
    "number": ({"x": np.float32(1)}, r"shape \(\), not"),
    "dtype": ({"x": np.ones((5, 4))}, "float64"),
    "list": ({"x": [[1.0] * 4] * 5}, "'x' is a list"),
    "missing": ({}, "'x' .* was not given"),
    "unknown": ({"x": np.ones((5, 4), "f4"), "z": 1}, "'z'"),
    "no mapping": ([np.ones((5, 4), "f4")], "takes a mapping"),
}


@pytest.mark.host
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_inputs(name):
    cache = ready("cpu")
    inputs, match = BAD_INPUTS[name]
    with pytest.raises(fg.InputError, match=match):
        cache.run_padded(5, layer, inputs)
    assert cache.run_padded(5, layer, rows_of(5))[0].shape == (5, 4)
    assert cache.stats.rows == 5


# ---- parameters


def test_parameters_of_all_buckets(device):
    """Set before any compile, between and after; on every bucket the newest."""
    cache = ready(device)
    w = np.eye(4, dtype="f4")
    for step, rows in enumerate((3, 12, 2, 20, 12, 3, 30)):
        inputs = {"x": np.abs(rows_of(rows)["x"])}
        y, _ = cache.run_padded(rows, layer, inputs)
        np.testing.assert_allclose(y, inputs["x"] @ w, rtol=1e-5)
        w = np.eye(4, dtype="f4") * f4(step + 2)
        given = w.copy()
        cache.set_params({"w": given})
        given[...] = -1
    assert cache.stats.compiles == 3


def test_bad_parameters_change_nothing(device):
    cache = ready(device)
    inputs = {"x": np.abs(rows_of(3)["x"])}
    cache.run_padded(3, layer, inputs)
    for arrays, match in (
        ({"w": np.zeros((3, 3), "f4")}, r"8 rows: parameter 'w' was given float32\[3, 3\]"),
        ({"v": np.zeros((4, 4), "f4")}, "no parameter 'v'"),
        ({"w": np.zeros((4, 4), "f4"), "v": 1}, "no parameter 'v'"),
        ([], "a mapping"),
    ):
        with pytest.raises(fg.InputError, match=match):
            cache.set_params(arrays)
    np.testing.assert_array_equal(cache.run_padded(3, layer, inputs)[0], inputs["x"])


def test_early_parameters_are_checked_by_the_compile(device):
    cache = fg.BucketedCompileCache(device, LADDER)
    with pytest.raises(fg.InputError, match="'w' is a list"):
        cache.set_param("w", [1])
    cache.set_param("w", np.zeros((3, 3), "f4"))
    for _ in range(2):
        with pytest.raises(fg.InputError, match=r"8 rows: parameter 'w' was given float32\[3, 3\]"):
            cache.get_or_compile(3, layer)
    assert cache.stats.live_models == 0
    cache.set_param("w", np.eye(4, dtype="f4"))
    assert cache.run_padded(3, layer, rows_of(3))[0].shape == (3, 4)


def test_a_parameter_that_a_later_bucket_lacks(device):
    cache = ready(device)
    cache.get_or_compile(3, layer)
    with pytest.raises(fg.InputError, match=r"'w' was set to float32\[4, 4\].*16 rows takes"):
        cache.get_or_compile(12, lambda rows: layer(rows, 5))
    assert cache.stats.live_models == 1
    assert cache.get_or_compile(12, layer)[0] == 16


def two_weights(rows):
    """One that products read packed, one that runs read as it is, a joint product, constants."""
    graph = fg.Graph()
    x = graph.input("x", (rows, 64))
    w, b, c = graph.param("w", (64, 64)), graph.param("b", (64,)), graph.param("c", (64, 64))
    table = graph.constant(np.random.default_rng(5).normal(size=(64, 64)).astype(f4))
    graph.output(ops.relu(x @ w + b), "y")
    graph.output(x @ (w * c), "joint")
    graph.output(x @ table, "fixed")
    return graph


def two_arrays(seed=0):
    random = np.random.default_rng(seed)
    return {
        "w": random.normal(size=(64, 64)).astype(f4), "b": random.normal(size=64).astype(f4),
        "c": random.normal(size=(64, 64)).astype(f4),
    }  # fmt: skip


def test_blocks_are_shared(device):
    """However many buckets there are, parameters are held once; each has the right ones."""
    # All sizes are large, so that no bucket wants another form of a weight.
    sizes = [64, 96, 128, 160]
    cache = fg.BucketedCompileCache(device, sizes=sizes)
    cache.set_params(two_arrays())
    cache.get_or_compile(64, two_weights)
    alone = cache.param_nbytes
    cache.prepare(two_weights).result()
    assert cache.param_nbytes <= alone
    single = fg.Session(device).compile(two_weights(64))
    single.set_params(two_arrays())
    # Nothing is kept as it was given once all are compiled.
    assert cache.param_nbytes == single._params.blocks.nbytes
    for step in range(3):
        arrays = two_arrays(step)
        cache.set_params(arrays if step != 1 else {"w": arrays["w"]})
        single.set_params(arrays if step != 1 else {"w": arrays["w"]})
        assert cache.param_nbytes == single._params.blocks.nbytes
        inputs = rows_of(64, 64, seed=step)
        expected = single.run(inputs)
        for size in sizes:
            whole = {"x": np.resize(inputs["x"], (size, 64))}
            found = cache.run_padded(size, two_weights, whole)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one[:64], other, rtol=2e-5, atol=2e-5)


def test_half_weights(device):
    """Which are converted for the cpu, once for all buckets."""

    def build(rows):
        graph = fg.Graph()
        x, w = graph.input("x", (rows, 64), "float16"), graph.param("w", (64, 64), "float16")
        graph.output(x @ w, "y")
        return graph

    cache = fg.BucketedCompileCache(device, sizes=[64, 96])
    cache.set_param("w", np.eye(64, dtype="f2"))
    cache.get_or_compile(64, build)
    alone = cache.param_nbytes
    cache.prepare(build)
    assert cache.param_nbytes <= alone
    x = np.arange(70 * 64, dtype="f2").reshape(70, 64)
    assert cache.run_padded(70, build, {"x": x})[0].tobytes() == x.tobytes()


def test_other_forms_of_a_weight(device):
    """Buckets of few rows may want weights in another form: right all the same."""
    cache = fg.BucketedCompileCache(device, sizes=[1, 4, 64])
    arrays = two_arrays()
    for step, rows in enumerate((4, 64, 1, 3, 64)):
        cache.set_params(two_arrays(step))
        arrays = two_arrays(step)
        x = rows_of(rows, 64)["x"]
        y, joint, _ = cache.run_padded(rows, two_weights, {"x": x})
        np.testing.assert_allclose(y, np.maximum(x @ arrays["w"] + arrays["b"], 0), atol=1e-4)
        np.testing.assert_allclose(joint, x @ (arrays["w"] * arrays["c"]), atol=1e-4)


def with_initial(rows, value=2.0):
    graph = fg.Graph()
    x = graph.input("x", (rows, 64))
    w = graph.param("w", (64, 64), initial=np.full((64, 64), value, "f4"))
    graph.output(x @ w, "y")
    return graph


def test_parameters_that_graphs_bring(device):
    cache = fg.BucketedCompileCache(device, sizes=[64, 96])
    x = np.ones((64, 64), "f4")
    assert cache.run_padded(64, with_initial, {"x": x})[0][0, 0] == 128
    alone = cache.param_nbytes
    assert cache.run_padded(70, with_initial, {"x": np.ones((70, 64), "f4")})[0][0, 0] == 128
    assert cache.param_nbytes == alone
    other = fg.BucketedCompileCache(device, sizes=[64, 96])
    other.run_padded(64, with_initial, {"x": x})
    found = other.run_padded(96, lambda n: with_initial(n, 3.0), {"x": np.ones((96, 64), "f4")})
    assert found[0][0, 0] == 192
    assert other.run_padded(64, with_initial, {"x": x})[0][0, 0] == 128
    other.set_param("w", np.ones((64, 64), "f4"))
    assert other.run_padded(64, with_initial, {"x": x})[0][0, 0] == 64
    assert other.param_nbytes == alone


def test_what_a_user_sets_on_one_model_stays_there(device):
    cache = ready(device, [(1, 9), (9, 17)])
    _, small = cache.get_or_compile(8, layer)
    small.set_param("w", np.eye(4, dtype="f4") * 5)
    x = np.ones((8, 4), "f4")
    assert cache.run_padded(8, layer, {"x": x})[0].tolist() == [[5] * 4] * 8
    assert cache.run_padded(16, layer, {"x": np.ones((16, 4), "f4")})[0].tolist() == [[1] * 4] * 16
    cache.set_param("w", np.eye(4, dtype="f4") * 7)
    assert cache.run_padded(8, layer, {"x": x})[0].tolist() == [[7] * 4] * 8


def test_a_closed_model_is_compiled_anew(device):
    cache = ready(device)
    _, model = cache.get_or_compile(8, layer)
    model.close()
    x = np.ones((8, 4), "f4")
    assert cache.run_padded(8, layer, {"x": x})[0].tolist() == [[1] * 4] * 8
    assert cache.stats.compiles == 2


@pytest.mark.host
def test_no_memory_for_all_means_none(monkeypatch):
    """A set that fails half way has changed no model."""
    cache = ready("cpu")
    for rows in (3, 12, 20):
        cache.get_or_compile(rows, layer)
    x = np.ones((8, 4), "f4")
    real, calls = fg.CompiledGraph._take, []

    def failing(self, params, made):
        calls.append(self)
        if len(calls) == 3:
            raise fg.OutOfMemoryError("no room")
        return real(self, params, made)

    monkeypatch.setattr(fg.CompiledGraph, "_take", failing)
    with pytest.raises(fg.OutOfMemoryError, match="no room"):
        cache.set_param("w", np.zeros((4, 4), "f4"))
    monkeypatch.undo()
    assert len(calls) == 5
    for size in (8, 16, 32):
        (y, _) = cache.run_padded(size, layer, {"x": np.ones((size, 4), "f4")})
        assert y.tolist() == [[1] * 4] * size
    cache.set_param("w", np.eye(4, dtype="f4") * 2)
    assert cache.run_padded(8, layer, {"x": x})[0].tolist() == [[2] * 4] * 8


# ---- compiles


def test_exact_compiles(device):
    """Where filling would more than double the work; the latest two are kept."""
    cache = ready(device, [(1, 17), (17, 33)], max_padding=2, max_exact=2)
    built = []

    def build(rows):
        built.append(rows)
        return layer(rows)

    for rows in (8, 7, 16, 3, 7, 5, 3, 7, 17):
        assert cache.run_padded(rows, build, rows_of(rows))[0].shape == (rows, 4)
    assert built == [16, 7, 3, 5, 3, 7, 32]
    assert cache.stats.live_models == 4
    assert cache.get_or_compile(3, build)[0] == 3
    cache.set_param("w", np.zeros((4, 4), "f4"))
    for rows in (3, 7, 9, 30):
        assert not cache.run_padded(rows, build, rows_of(rows))[0].any()


def test_one_compile_for_many_threads(device):
    cache = ready(device)
    started, found = threading.Event(), []
    built = []

    def build(rows):
        built.append(rows)
        started.wait(10)
        return layer(rows)

    threads = [
        threading.Thread(target=lambda: found.append(cache.get_or_compile(3, build)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    assert built == [8]
    assert len(found) == 6
    assert len({id(model) for _, model in found}) == 1


def test_a_failed_build_reaches_all_and_leaves_nothing(device):
    cache = ready(device)
    started, wrong = threading.Event(), []

    def build(rows):
        started.wait(10)
        raise KeyError(f"no graph for {rows}")

    def work():
        try:
            cache.get_or_compile(3, build)
        except KeyError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    assert wrong == ["'no graph for 8'"] * 4
    assert cache.stats.live_models == 0
    assert cache.get_or_compile(3, layer)[0] == 8
    with pytest.raises(fg.InputError, match="a function of the number of rows"):
        cache.get_or_compile(12, layer(16))
    with pytest.raises(fg.InputError, match="takes a Graph"):
        cache.get_or_compile(12, lambda rows: None)
    with pytest.raises(fg.CompileError, match="no input whose first axis has 16"):
        cache.get_or_compile(12, lambda rows: layer(3))


def test_a_build_that_asks_for_itself(device):
    cache = ready(device)

    def build(rows):
        cache.get_or_compile(rows, build)
        return layer(rows)

    with pytest.raises(fg.GraphError, match="under way in this thread"):
        cache.get_or_compile(3, build)


def test_prepare(device):
    cache = ready(device)
    built = []

    def build(rows):
        built.append(rows)
        return layer(rows)

    assert cache.prepare(build).done()
    assert built == [32, 16, 8]
    later = ready(device)
    done = later.prepare(build, background=True)
    assert later.run_padded(12, build, rows_of(12))[0].shape == (12, 4)
    assert done.result(60) is None
    assert later.stats.compiles == 3
    assert sorted(built) == [8, 8, 16, 16, 32, 32]

    def failing(rows):
        if rows == 16:
            raise KeyError("sixteen")
        return layer(rows)

    third = ready(device)
    with pytest.raises(KeyError, match="sixteen"):
        third.prepare(failing, background=True).result(60)
    assert third.stats.live_models == 1
    with pytest.raises(KeyError, match="sixteen"):
        third.prepare(failing)


def test_threads_that_run_and_set(device):
    """Every answer is by one value of the parameter, whichever it is."""
    cache = ready(device)
    cache.prepare(layer).result()
    eye = np.eye(4, dtype="f4")
    stop, wrong = threading.Event(), []

    def run(rows):
        x = np.ones((rows, 4), "f4")
        while not stop.is_set():
            y, _ = cache.run_padded(rows, layer, {"x": x})
            if len(set(y.ravel().tolist())) != 1:
                wrong.append(y)

    def change():
        for step in range(30):
            cache.set_param("w", eye * f4(step))
        stop.set()

    run_all(
        [threading.Thread(target=run, args=(rows,)) for rows in (3, 12)]
        + [threading.Thread(target=change)]
    )
    assert not wrong


def test_an_extent_of_a_shared_model_is_not_run_padded():
    buckets = fg.BucketedCompileCache("cpu", [(1, 9)])
    buckets.set_param("w", np.eye(4, dtype="f4"))
    x = rows_of(5)
    _, model = buckets.get_or_compile(5, layer)
    model.set_active_extent((3, 8))
    with pytest.raises(fg.InputError, match=r"active extents.*set_active_extent"):
        buckets.run_padded(5, layer, x)
    model.set_active_extent(None)
    assert buckets.run_padded(5, layer, x)[0].shape == (5, 4)


def sequence(tokens):
    g = fg.Graph("sequence")
    x = g.input("x", (2, fg.dim("seq", tokens), 4))
    w = g.param("w", (4, 4))
    h = x @ w
    g.output(ops.softmax(h @ h.transpose(0, 2, 1)) @ h, "y")
    g.output(ops.mean(h, axis=1), "mean")
    return g


def test_rows_along_a_named_dimension(device):
    buckets = fg.BucketedCompileCache(device, sizes=[8, 16], dim="seq")
    random = np.random.default_rng(4)
    for w in (np.eye(4, dtype="f4"), random.standard_normal((4, 4), dtype="f4")):
        buckets.set_param("w", w)
        for tokens in (3, 8, 11, 16, 1):
            x = random.standard_normal((2, tokens, 4), dtype="f4")
            exact = fg.Session("cpu").compile(sequence(tokens))
            exact.set_param("w", w)
            found = buckets.run_padded(tokens, sequence, {"x": x})
            for one, wanted in zip(found, exact.run({"x": x}), strict=True):
                np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)
    assert buckets.stats.compiles == 2
    with pytest.raises(fg.InputError, match="handles"):
        _, model = buckets.get_or_compile(3, sequence)
        model.bind_handle("x", np.zeros((2, 8, 4), "f4"))
        buckets.set_param("w", np.eye(4, dtype="f4"))
        buckets.run_padded(3, sequence, {"x": np.zeros((2, 3, 4), "f4")})


def test_a_dimension_that_is_not_there(device):
    for dim in ("rows", "seq"):
        buckets = fg.BucketedCompileCache(device, sizes=[8], dim=dim)
        with pytest.raises(fg.CompileError, match=rf"no input of dimension '{dim}'.*fg.dim"):
            buckets.get_or_compile(3, layer if dim == "seq" else sequence)
    for wrong in ("", 5):
        with pytest.raises(fg.InputError, match="the name of a dimension"):
            fg.BucketedCompileCache(device, sizes=[8], dim=wrong)


def test_threads_share_a_model_by_extents(device, monkeypatch):
    set_extent = fg.CompiledGraph.set_active_extent

    def then_others(self, *args, **options):
        set_extent(self, *args, **options)
        time.sleep(1e-4)  # Lets the other threads set theirs, if they can.

    monkeypatch.setattr(fg.CompiledGraph, "set_active_extent", then_others)
    buckets = fg.BucketedCompileCache(device, sizes=[16], dim="seq")
    buckets.set_param("w", np.eye(4, dtype="f4"))

    def work(tokens):
        x = np.full((2, tokens, 4), tokens, "f4")
        for _ in range(30):
            y, mean = buckets.run_padded(tokens, sequence, {"x": x})
            np.testing.assert_allclose(y, x, rtol=1e-5)
            np.testing.assert_allclose(mean, x[:, 0], rtol=1e-5)

    with ThreadPoolExecutor(4) as workers:
        assert list(workers.map(work, (1, 5, 16, 9))) == [None] * 4
