"""Which experts are resident, what became of that, and which ones routers choose."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph import ops
from tests.runtime.moe_models import SIZES, mixture, mixture_reference, mixture_weights

f4 = np.float32
TOKENS, WIDTH, HIDDEN, EXPERTS, K = SIZES
LAYERS = 2
WEIGHTS = mixture_weights(LAYERS)
X = np.random.default_rng(2).normal(size=(TOKENS, WIDTH)).astype("f4")
Y, CHOSEN = mixture_reference(X, WEIGHTS, LAYERS)
MASKS = [
    [False] * EXPERTS,
    [True] * EXPERTS,
    [True, False, False, True],
    [False, True, False, False],
]


def mixed(device, **options):
    model = fg.Session(device, **options).compile(mixture(LAYERS))
    model.set_params(WEIGHTS)
    return model


def products(layers, device, rows=4, experts=3):
    """One product after the other, of layers with these numbers; x and the experts are 1."""
    graph = fg.Graph("products")
    x = graph.input("x", (rows, 2))
    ids = graph.input("ids", (rows,), "int32")
    for number, layer in enumerate(layers):
        weight = graph.param(f"w{number}", (experts, 2, 2))
        x = ops.grouped_matmul(x, weight, ids, layer=layer)
    graph.output(x, "y")
    model = fg.Session(device).compile(graph)
    model.set_params({f"w{n}": np.ones((experts, 2, 2), "f4") for n in range(len(layers))})
    return model


def given_ids(ids):
    return {"x": np.ones((len(ids), 2), "f4"), "ids": np.array(ids, "i4")}


def counted(ids, mask, times=1):
    """What runs with these ids count."""
    experts = np.unique(ids)
    on = np.array(mask)
    hits = [int(on[experts].sum()), int((~on)[experts].sum())]
    rows = [int(on[ids].sum()), int((~on)[ids].sum())]
    return tuple(times * n for n in (*hits, *rows))


def test_a_mixture_gives_what_numpy_gives_under_every_mask(device):
    model = mixed(device)
    (plain,) = model.run({"x": X})
    np.testing.assert_allclose(plain, Y, rtol=1e-5, atol=1e-5)
    for mask in MASKS:
        model.set_moe_resident_experts(mask)
        (y,) = model.run({"x": X})
        assert y.tobytes() == plain.tobytes()
        expected = np.sum([counted(ids.ravel(), mask, 3) for ids in CHOSEN], axis=0)
        assert model.take_moe_residency_stats() == tuple(expected)


@pytest.mark.parametrize("mask", [[True, False, True], [False, False, False], [True] * 3])
def test_counts(device, mask):
    model = products([None], device)
    model.run(given_ids([0, 1, 1, 2]))
    assert model.take_moe_residency_stats() is None  # no mask yet
    model.set_moe_resident_experts(mask)
    assert model.take_moe_residency_stats() is None  # no run yet
    model.run(given_ids([0, 1, 1, 2]))
    model.run(given_ids([2, 2, 2, 2]))
    stats = model.take_moe_residency_stats()
    expected = np.add(counted([0, 1, 1, 2], mask), counted([2, 2, 2, 2], mask))
    assert stats == tuple(expected)
    assert stats.gpu_expert_calls + stats.cpu_expert_calls == 4
    assert stats.gpu_tokens + stats.cpu_tokens == 8
    assert model.take_moe_residency_stats() is None


def test_runs_count_by_the_mask_that_they_had(device):
    model = products([None], device)
    model.set_moe_resident_experts([True, False, False])
    model.run(given_ids([0, 1, 1, 2]))
    model.set_moe_resident_experts([False, True, False])
    model.run(given_ids([0, 1, 1, 2]))
    # One expert with one row and two without, then one with two.
    assert model.take_moe_residency_stats() == (1 + 1, 2 + 2, 1 + 2, 3 + 2)


def test_any_ids(device):
    rows, experts = 7, 5
    model = products([None], device, rows, experts)
    weights = np.random.default_rng(0).integers(-4, 4, (experts, 2, 2)).astype("f4")
    model.set_param("w0", weights)
    x = np.arange(2 * rows, dtype="f4").reshape(rows, 2)

    @given(
        st.lists(st.integers(0, experts - 1), min_size=rows, max_size=rows),
        st.lists(st.booleans(), min_size=experts, max_size=experts),
    )
    @settings(max_examples=30)
    def check(ids, mask):
        model.set_moe_resident_experts(mask)
        (y,) = model.run({"x": x, "ids": np.array(ids, "i4")})
        assert (y == np.einsum("mk,mkn->mn", x, weights[ids])).all()
        assert model.take_moe_residency_stats() == counted(ids, mask)

    check()


def test_every_way_to_run_counts(device):
    model = products([None], device)
    mask = [True, False, False]
    model.set_moe_resident_experts(mask)
    arrays = given_ids([0, 1, 1, 2])
    one = counted([0, 1, 1, 2], mask)
    step = model.bind(arrays)
    ways = {
        "run": lambda: model.run(arrays),
        "out": lambda: model.run(arrays, out=[np.empty((4, 2), "f4")]),
        "run_raw": lambda: model.run_raw(arrays),
        "run_slots": lambda: model.run_slots(list(arrays.values())),
        "run_typed": lambda: model.run_typed(
            [(name, a.tobytes(), a.dtype.name) for name, a in arrays.items()]
        ),
        "bind": step,
        "profile": lambda: model.profile(arrays, n=1),
    }
    for name, way in ways.items():
        way()
        assert model.take_moe_residency_stats() == one, name


def test_a_model_without_rows_for_an_expert_that_is_not_there(device):
    model = products([None], device)
    model.set_moe_resident_experts([True, True, False])
    with pytest.raises(fg.InputError):
        model.run(given_ids([0, 3, -1, 2]))
    assert model.take_moe_residency_stats() == (1, 1, 1, 1)  # those that there are


def test_layers(device):
    model = products([2, 0, 2], device)
    masks = [[True, False, False], None, [False, True, True]]
    model.set_moe_resident_experts_per_layer(masks)
    model.run(given_ids([0, 1, 1, 2]))
    expected = sum(np.array(counted([0, 1, 1, 2], masks[layer])) for layer in (2, 0, 2))
    assert model.take_moe_residency_stats() == tuple(expected)


@pytest.mark.host
def test_layers_are_counted_in_the_order_written():
    graph = fg.Graph("layers")
    x, ids = graph.input("x", (4, 3)), graph.input("ids", (4,), "int32")
    weight = graph.param("w", (3, 3, 3))
    for layer in (None, None, 5, None, 1, None):
        x = ops.grouped_matmul(x, weight, ids, layer=layer)
        ops.top_k(x, 2)
    found = [node.attrs["layer"] for node in graph.nodes if node.op == "grouped_matmul"]
    assert found == [0, 1, 5, 6, 1, 2]
    found = [node.attrs["layer"] for node in graph.nodes if node.op == "top_k"]
    assert found == [0, 1, 2, 3, 4, 5]


@pytest.mark.host
@pytest.mark.parametrize("layer", [-1, 1 << 16, 1.5, True])
def test_a_layer_that_cannot_be(layer):
    graph = fg.Graph("layers")
    with pytest.raises(fg.GraphError, match="layer"):
        ops.top_k(graph.input("x", (4, 3)), 2, layer=layer)


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        ([True, False], "the mask is of 2 experts; 'grouped_matmul' .*layer 0.* has 3"),
        ([1, 0, 1], "the mask is int64.3.; bools in one axis are needed"),
        ([[True, False, True]], "bool.1, 3."),
        ("101", "bools in one axis"),
        (None, "bools in one axis"),
        (True, "bools in one axis"),
        ([True, [False]], "no sequence of bools"),
    ],
)
def test_masks_that_do_not_fit(device, mask, told):
    model = products([None], device)
    model.set_moe_resident_experts([True, False, False])
    with pytest.raises(fg.InputError, match=told):
        model.set_moe_resident_experts(mask)
    model.run(given_ids([0, 1, 1, 2]))
    assert model.take_moe_residency_stats() == counted([0, 1, 1, 2], [True, False, False])


@pytest.mark.parametrize(
    ("masks", "told"),
    [
        ([[True] * 3], "1 masks were given; .* numbered up to 2, so 3 are needed"),
        ([[True] * 3] * 4, "4 masks were given"),
        ([[True] * 3, None, [True] * 2], "the mask of layer 2 is of 2 experts"),
        ([[True] * 3, [True] * 3, [True] * 3], "the mask of layer 1: .* give None"),
        ([None, None, [True] * 3], "the mask of layer 0"),
        (7, "a sequence of 3 masks is needed"),
        ("abc", "a sequence of 3 masks is needed"),
    ],
)
def test_masks_of_layers_that_do_not_fit(device, masks, told):
    model = products([2, 0], device)
    with pytest.raises(fg.InputError, match=told):
        model.set_moe_resident_experts_per_layer(masks)
    model.run(given_ids([0, 1, 1, 2]))
    assert model.take_moe_residency_stats() is None


def test_models_without_experts(device):
    graph = fg.Graph("plain")
    graph.output(graph.input("x", (2,)) + 1.0, "y")
    model = fg.Session(device).compile(graph)
    for call in (
        lambda: model.set_moe_resident_experts([True]),
        lambda: model.set_moe_resident_experts_per_layer([[True]]),
    ):
        with pytest.raises(fg.UnsupportedError, match="no grouped_matmul"):
            call()
    with pytest.raises(fg.UnsupportedError, match="no top_k over an axis of 4"):
        model.enable_moe_topk_capture(4)
    assert model.take_moe_residency_stats() is None
    assert model.take_moe_topk_capture() is None


def test_experts_that_a_run_is_given(device):
    graph = fg.Graph("given")
    x, w, ids = graph.input("x", (2, 2)), graph.input("w", (3, 2, 2)), graph.input("i", (2,), "i4")
    graph.output(ops.grouped_matmul(x, w, ids), "y")
    model = fg.Session(device).compile(graph)
    with pytest.raises(fg.UnsupportedError, match="are no parameters"):
        model.set_moe_resident_experts([True, False, True])


def test_products_that_no_run_computes(device):
    """They belong to the set program: their taps are of no run."""
    graph = fg.Graph("set")
    ids = graph.constant(np.int32([1, 0]))
    w = graph.param("w", (2, 2, 2))
    fixed = ops.grouped_matmul(graph.param("v", (2, 2)), w, ids)
    _, best = ops.top_k(fixed, 1)
    graph.output(fixed + graph.input("x", (2, 2)), "y")
    graph.output(best + graph.input("n", (), "int64"), "best")
    model = fg.Session(device).compile(graph)
    model.set_params(
        {"w": np.stack([np.eye(2), 2 * np.eye(2)]).astype("f4"), "v": f4([[1, 2], [4, 3]])}
    )
    y, best = model.run({"x": np.zeros((2, 2), "f4"), "n": np.int64(0)})
    assert y.tolist() == [[2, 4], [4, 3]]
    assert best.tolist() == [[1], [0]]
    with pytest.raises(fg.UnsupportedError):
        model.set_moe_resident_experts([True, False])
    with pytest.raises(fg.UnsupportedError):
        model.enable_moe_topk_capture(2)


def test_masks_before_parameters(device):
    graph = fg.Graph("late")
    x, ids = graph.input("x", (4, 2)), graph.input("ids", (4,), "int32")
    graph.output(ops.grouped_matmul(x, graph.param("w", (3, 2, 2)), ids), "y")
    model = fg.Session(device).compile(graph)
    model.set_moe_resident_experts([True, False, False])
    model.set_param("w", np.ones((3, 2, 2), "f4"))
    model.run(given_ids([0, 1, 1, 2]))
    assert model.take_moe_residency_stats() == counted([0, 1, 1, 2], [True, False, False])


def test_a_closed_model(device):
    model = products([None], device)
    model.set_moe_resident_experts([True, False, False])
    model.close()
    for call in (
        lambda: model.set_moe_resident_experts([True, False, False]),
        lambda: model.set_moe_resident_experts_per_layer([[True, False, False]]),
        lambda: model.enable_moe_topk_capture(3),
        model.take_moe_residency_stats,
        model.take_moe_topk_capture,
    ):
        with pytest.raises(fg.GraphError, match="closed"):
            call()


def test_clones_count_by_themselves(device):
    model = products([None], device)
    mask = [True, False, False]
    model.set_moe_resident_experts(mask)
    model.run(given_ids([0, 1, 1, 2]))
    other = model.clone()
    assert other.take_moe_residency_stats() is None
    other.run(given_ids([0, 0, 0, 0]))
    other.set_moe_resident_experts([False] * 3)
    assert other.take_moe_residency_stats() == counted([0, 0, 0, 0], mask)
    assert model.take_moe_residency_stats() == counted([0, 1, 1, 2], mask)
    model.run(given_ids([1, 1, 1, 1]))
    assert model.take_moe_residency_stats() == counted([1, 1, 1, 1], mask)
    assert other.take_moe_residency_stats() is None


def test_threads_on_clones_count_by_themselves(device):
    model = products([None], device)
    model.set_moe_resident_experts([True, False, False])
    clones = [model.clone() for _ in range(4)]
    wrong = []

    def work(number):
        for _ in range(10 * (number + 1)):
            clones[number].run(given_ids([0, 1, 1, 2]))
        expected = counted([0, 1, 1, 2], [True, False, False], 10 * (number + 1))
        if clones[number].take_moe_residency_stats() != expected:
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert model.take_moe_residency_stats() is None


def test_routers_tell_what_they_chose(device):
    model = mixed(device)
    model.run({"x": X})
    assert model.take_moe_topk_capture() is None
    model.enable_moe_topk_capture(EXPERTS)
    assert model.take_moe_topk_capture() is None
    model.run({"x": np.zeros_like(X)})
    model.run({"x": X})
    found = model.take_moe_topk_capture()
    assert [a.dtype.name for a in found] == ["uint32"] * LAYERS
    assert [a.tolist() for a in found] == [ids.tolist() for ids in CHOSEN]
    assert model.take_moe_topk_capture() is None
    found[0][...] = 9
    model.enable_moe_topk_capture(np.int64(EXPERTS))
    model.run({"x": X})
    assert [a.tolist() for a in model.take_moe_topk_capture()] == [i.tolist() for i in CHOSEN]
    other = model.clone()
    assert other.take_moe_topk_capture() is None
    other.run({"x": X})
    assert [a.tolist() for a in other.take_moe_topk_capture()] == [i.tolist() for i in CHOSEN]
    assert model.take_moe_topk_capture() is None


def routers(device, threads=None):
    """Several top_k, over different axes and of different kinds, with their layers."""
    graph = fg.Graph("routers")
    cases = [
        ((3, 4), 2, -1, True, 3),
        ((4, 5), 3, 0, False, 0),
        ((2, 4, 3), 4, 1, True, 2),
        ((3, 6), 2, -1, True, 1),
    ]
    for number, (shape, k, axis, largest, layer) in enumerate(cases):
        x = graph.input(f"x{number}", shape, "float16" if number == 2 else "float32")
        values, ids = ops.top_k(x, k, axis, largest=largest, layer=layer)
        graph.output(ids, f"ids{number}")
        graph.output(values, f"values{number}")
    return fg.Session(device, threads=threads).compile(graph)


def test_routers_come_in_the_order_of_their_layers(device):
    model = routers(device)
    random = np.random.default_rng(0)
    arrays = {info.name: random.permutation(np.prod(info.shape)).reshape(info.shape)
              .astype(info.dtype) for info in model.inputs}  # fmt: skip
    model.enable_moe_topk_capture(4)
    ids = model.run(arrays)[::2]
    assert [a.tolist() for a in model.take_moe_topk_capture()] == [
        ids[number].tolist() for number in (1, 2, 0)
    ]
    model.enable_moe_topk_capture(6)
    assert model.take_moe_topk_capture() is None
    model.run(arrays)
    (found,) = model.take_moe_topk_capture()
    assert found.tolist() == ids[3].tolist()
    with pytest.raises(fg.UnsupportedError, match=r"no top_k over an axis of 5.*\[4, 6\]"):
        model.enable_moe_topk_capture(5)
    model.run(arrays)
    assert model.take_moe_topk_capture()[0].tolist() == ids[3].tolist()


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "4", None])
def test_a_number_of_experts_that_cannot_be(device, number):
    with pytest.raises(fg.InputError, match="num_experts"):
        mixed(device).enable_moe_topk_capture(number)


@pytest.mark.parametrize(("lines", "count", "k"), [(3, 4000, 4), (2, 4000, 1500), (4000, 8, 2)])
def test_long_routers(device, lines, count, k):
    graph = fg.Graph("long")
    _, ids = ops.top_k(graph.input("x", (lines, count)), k)
    graph.output(ids, "ids")
    model = fg.Session(device).compile(graph)
    model.enable_moe_topk_capture(count)
    x = np.random.default_rng(0).normal(size=(lines, count)).astype("f4")
    (ids,) = model.run({"x": x})
    (found,) = model.take_moe_topk_capture()
    assert (found == ids).all()


def test_experts_in_a_loop_and_a_choice(device):
    """Every turn counts; of routers the last turn tells."""
    graph = fg.Graph("turns")
    x, w = graph.input("x", (4, 3)), graph.param("w", (3, 3, 3))
    turns = graph.input("turns", (), "int32")

    def body(left, x):
        _, ids = ops.top_k(x, 1)
        return left - 1, ops.grouped_matmul(x, w, ids.reshape(4))

    _, x = ops.while_loop(lambda left, x: left > 0, body, turns, x)
    graph.output(ops.cond(turns > 2, lambda x: ops.grouped_matmul(x, w, ops.top_k(x, 1)[1][:, 0]),
                          lambda x: x, x), "y")  # fmt: skip
    model = fg.Session(device).compile(graph)
    # Each expert hands its rows to the next one.
    model.set_param("w", np.stack([np.eye(3)[[1, 2, 0]]] * 3).astype("f4"))
    model.set_moe_resident_experts_per_layer([[True, False, False], [False, False, True]])
    model.enable_moe_topk_capture(3)
    x = np.eye(3, dtype="f4")[[0, 0, 1, 2]]
    model.run({"x": x, "turns": np.int32(2)})
    # Turn 1: rows 2, 1, 1; turn 2: rows 1, 2, 1.
    assert model.take_moe_residency_stats() == (2, 4, 3, 5)
    turn, choice = model.take_moe_topk_capture()
    assert turn.ravel().tolist() == [1, 1, 2, 0]
    assert not choice.any()
    (y,) = model.run({"x": x, "turns": np.int32(3)})
    assert (y == np.eye(3)[[1, 1, 2, 0]]).all()
    # The loop's third turn: rows 1, 1, 2; then the other layer: rows 2, 1, 1.
    assert model.take_moe_residency_stats() == (2 + 1 + 1, 4 + 2 + 2, 3 + 1 + 1, 5 + 3 + 3)


def test_a_model_as_a_part_counts_nothing(device):
    model = products([None], device)
    model.set_moe_resident_experts([True, False, False])
    context = fg.DeviceContext(device)
    arrays = given_ids([0, 1, 1, 2])
    buffers = {name: context.to_device(array) for name, array in arrays.items()}
    out = context.create_buffer((4, 2), "f4")

    def build(b):
        node = b.add_child_graph(model, inputs=buffers)
        b.add_copy(out, node.outputs[0], dependencies=[node])

    graph = fg.DeviceGraph.create(context, build)
    graph.replay()
    context.synchronize()
    assert out.numpy().tolist() == [[2, 2]] * 4
    assert model.take_moe_residency_stats() is None


def test_experts_of_fewer_rows(device):
    """Rows beyond the extent are neither counted nor captured."""
    graph = fg.Graph("rows")
    x = graph.input("x", (fg.dim("rows", 6), 3))
    _, ids = ops.top_k(x, 2)
    graph.output(ops.grouped_matmul(x, graph.param("w", (3, 3, 3)), ids[:, 0]), "y")
    model = fg.Session(device).compile(graph)
    model.set_param("w", np.stack([np.eye(3)] * 3).astype("f4"))
    model.set_moe_resident_experts([True, False, False])
    x = np.eye(3, dtype="f4")[[0, 1, 1, 2, 0, 0]]
    for when in ("before", "after"):
        model.set_active_extent((4, 6), dim="rows")
        model.enable_moe_topk_capture(3)
        model.run({"x": x})
        assert model.take_moe_residency_stats() == (1, 2, 1, 3), when
        (found,) = model.take_moe_topk_capture()
        assert found.tolist() == [[0, 1], [1, 0], [1, 0], [2, 0]]
        other = model.clone()
        other.run({"x": x})
        assert other.take_moe_residency_stats() == (1, 2, 1, 3)
        assert other.take_moe_topk_capture()[0].shape == (4, 2)
        model.set_active_extent(None)
        model.run({"x": x})
        assert model.take_moe_residency_stats() == (1, 2, 3, 3)
        assert model.take_moe_topk_capture()[0][:, 0].tolist() == [0, 1, 1, 2, 0, 0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_runs_in_flight(device, when):
    """Runs go by the mask that they were handed in with, and all are counted."""
    model = products([None], device)
    arrays, few = given_ids([0, 1, 1, 2]), given_ids([2, 2, 2, 2])
    if when == "after":
        model.run_pipelined([arrays] * 5)  # lanes are there already
    model.set_moe_resident_experts([True, False, False])
    model.run_pipelined([arrays] * 5)
    assert model.take_moe_residency_stats() == counted([0, 1, 1, 2], [True, False, False], 5)
    for _ in range(4):
        model.commit_no_wait(arrays)
    model.set_moe_resident_experts([False, False, True])
    futures = [model.submit(few) for _ in range(3)]
    first, second = (
        np.array(counted([0, 1, 1, 2], [True, False, False], 4)),
        np.array(counted([2, 2, 2, 2], [False, False, True], 3)),
    )
    assert model.take_moe_residency_stats() == tuple(first + second)
    assert all(future.result()[0].tolist() == [[2, 2]] * 4 for future in futures)
    model.sync_pending()


def test_routers_of_runs_in_flight_tell_of_the_last(device):
    graph = fg.Graph("router")
    _, ids = ops.top_k(graph.input("x", (5, 4)), 2)
    graph.output(ids, "ids")
    model = fg.Session(device).compile(graph)
    sets = [{"x": np.random.default_rng(s).normal(size=(5, 4)).astype("f4")} for s in range(9)]
    model.run_pipelined(sets)
    model.enable_moe_topk_capture(4)
    for turn in range(3):
        outputs = model.run_pipelined(sets[turn:])
        (found,) = model.take_moe_topk_capture()
        assert (found == outputs[-1][0]).all()
        model.commit_no_wait(sets[turn])
        (found,) = model.take_moe_topk_capture()
        assert (found == outputs[0][0]).all()
    model.sync_pending()
