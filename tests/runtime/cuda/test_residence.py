"""Where the experts of a model lie on a GPU: in slots of the device, or in pinned memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import counters
from tests import conftest
from tests.runtime.cuda.test_runs import ONE_LAUNCH, enqueued
from tests.runtime.moe_models import SIZES, mixture, mixture_reference, mixture_weights

FAKE = conftest.FAKE
pytestmark = pytest.mark.cuda

EXPERTS, WIDTH = 5, 16
ONE = WIDTH * WIDTH * 4  # bytes of an expert
IDS = np.array([4, 0, 0, 3, 1, 4], "i4")
X = np.random.default_rng(0).integers(-3, 4, (len(IDS), WIDTH)).astype("f4")


def weights(seed=0):
    return np.random.default_rng(seed).integers(-3, 4, (EXPERTS, WIDTH, WIDTH)).astype("f4")


def expected(w, ids=IDS):
    return np.einsum("mk,mkn->mn", X, w[ids])


def product(build=lambda x, w, ids: ops.grouped_matmul(x, w, ids), params=("w",)):
    graph = fg.Graph("product")
    x, ids = graph.input("x", X.shape), graph.input("ids", IDS.shape, "int32")
    given = [graph.param(name, (EXPERTS, WIDTH, WIDTH)) for name in params]
    graph.output(build(x, *given, ids), "y")
    return fg.Session("cuda").compile(graph)


def y_of(model, ids=IDS):
    (y,) = model.run({"x": X, "ids": ids})
    return y


def mask_of(*resident):
    return [expert in resident for expert in range(EXPERTS)]


def device_bytes():
    gc.collect()
    return counters.snapshot()["device_bytes"]


@pytest.fixture
def held(monkeypatch):
    """``held(model)``: from the copies of a model's next mask on nothing is executed."""

    def hold(model):
        residence = model._routing._residence
        make = residence.make

        def held_make(move):
            FAKE.hold(True)
            make(move)

        monkeypatch.setattr(residence, "make", held_make)

    yield hold
    FAKE.hold(False)


def tables(model):
    """For each product which experts the table finds on the device, and the table."""
    residence = model._routing._residence
    found = []
    for part in residence.products:
        words = residence._view(part.table, 0, EXPERTS * 8).numpy().view("u8")
        slots = {block.ptr: expert for expert, block in residence.slots[part.matrices].items()}
        assert all(slots[at] == expert for expert, at in enumerate(words.tolist()) if at in slots)
        found.append([int(at) in slots for at in words])
    return found


def test_bytes_on_the_device_are_those_of_the_budget():
    model = product()
    model.set_param("w", weights())
    all_of_them = device_bytes()
    # A table, counters.
    beside = 8 * EXPERTS + 16 + 2 * 8 * EXPERTS
    for resident in ((), (0,), (1, 2), (0, 1, 2, 3, 4), (3,), ()):
        model.set_moe_resident_experts(mask_of(*resident))
        assert y_of(model).tobytes() == expected(weights()).tobytes()
        found = device_bytes()
        assert found == all_of_them - (EXPERTS - len(resident)) * ONE + beside
        assert tables(model) == [mask_of(*resident)]


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_kernels_read_resident_experts_in_their_slots(kind):
    """What is in a slot and not in the host is what they compute with."""
    graph = fg.Graph("slots")
    x, ids = graph.input("x", X.shape, kind), graph.input("ids", IDS.shape, "int32")
    graph.output(ops.grouped_matmul(x, graph.param("w", (EXPERTS, WIDTH, WIDTH), kind), ids), "y")
    model = fg.Session("cuda").compile(graph)
    w = weights().astype(kind)
    model.set_param("w", w)
    model.set_moe_resident_experts(mask_of(0, 3))
    residence = model._routing._residence
    ((matrices, held),) = residence.slots.items()
    residence._view(held[0], 0, matrices.nbytes).copy_from(np.zeros(matrices.nbytes, "u1"))
    (y,) = model.run({"x": X.astype(kind), "ids": IDS})
    assert (y == expected(w) * (IDS != 0)[:, None]).all()


def test_a_mixture_is_never_built_anew():
    tokens, width, _, experts, _ = SIZES
    given = mixture_weights(2)
    model = fg.Session("cuda").compile(mixture(2))
    model.set_params(given)
    x = np.random.default_rng(1).normal(size=(tokens, width)).astype("f4")
    (plain,) = model.run({"x": x})
    np.testing.assert_allclose(plain, mixture_reference(x, given, 2)[0], rtol=1e-5, atol=1e-5)
    model.set_moe_resident_experts([False] * experts)
    executable = model.executable
    handle = executable.executable_handle
    for number in range(2**experts):
        model.set_moe_resident_experts([bool(number >> e & 1) for e in range(experts)])
        assert model.run({"x": x})[0].tobytes() == plain.tobytes()
    assert model.executable is executable
    assert (executable.rebuilds, executable.executable_handle) == (0, handle)


@pytest.mark.fake
def test_a_run_is_one_launch_under_any_mask():
    model = product()
    model.set_param("w", weights())
    slots = [X, IDS]
    for resident in ((), (0, 2), (0, 3), (1, 2, 3, 4)):
        model.set_moe_resident_experts(mask_of(*resident))
        counts, updates = enqueued(lambda: model.run_slots(slots))
        # Behind the copies, where they are not known to be done.
        assert counts.pop("cuStreamWaitEvent", 0) <= 1
        assert (counts, updates) == (ONE_LAUNCH, 0)
        assert enqueued(lambda: model.run_slots(slots)) == (ONE_LAUNCH, 0)


@pytest.mark.fake
def test_a_mask_copies_what_is_new_and_a_table():
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0, 1))
    before = dict(model._routing._residence.slots)
    FAKE.forget_calls()
    model.set_moe_resident_experts(mask_of(1, 4))
    assert sum(FAKE.calls(name) for name in ("cuMemAlloc", "cuLaunchKernelEx")) == 0
    assert FAKE.calls("cuMemcpyBatchAsync") + FAKE.calls("cuMemcpyAsync") == 1
    ((matrices, held),) = model._routing._residence.slots.items()
    assert held[1] is before[matrices][1]
    assert held[4] is before[matrices][0]
    assert (y_of(model) == expected(weights())).all()


@pytest.mark.fake
def test_the_next_run_waits_for_the_copies_and_nobody_else(held):
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0, 1))
    stream = fg.DeviceContext("cuda").create_stream()
    step = model.bind({"x": X, "ids": IDS}, stream=stream)
    step()
    stream.synchronize()
    held(model)
    model.set_moe_resident_experts(mask_of(3, 4))  # That it returns says that it has not waited.
    assert enqueued(step) == ({**ONE_LAUNCH, "cuStreamWaitEvent": 1}, 0)
    FAKE.hold(False)
    stream.synchronize()
    assert (model.output_view(0) == expected(weights())).all()
    assert enqueued(step) == (ONE_LAUNCH, 0)
    stream.synchronize()


def test_a_run_under_way_keeps_its_mask():
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0, 1))
    stream = fg.DeviceContext("cuda").create_stream()
    step = model.bind({"x": X, "ids": IDS}, stream=stream)
    for resident in ((2,), (3, 4), ()):
        step()
        model.set_moe_resident_experts(mask_of(*resident))
    stats = model.take_moe_residency_stats()
    # Experts 0, 1, 3, 4 of 2, 1, 1, 2 rows; under {0, 1}, {2}, {3, 4}.
    assert stats == (2 + 0 + 2, 2 + 4 + 2, 3 + 0 + 3, 3 + 6 + 3)
    step()
    stream.synchronize()
    assert (model.output_view(0) == expected(weights())).all()


def test_parameters_set_under_a_mask():
    model = product()
    model.set_moe_resident_experts(mask_of(1, 3))
    before = device_bytes()
    for seed in range(3):
        model.set_param("w", weights(seed))
        assert (y_of(model) == expected(weights(seed))).all()
        assert tables(model) == [mask_of(1, 3)]
    # The slots were there before there was anything to put into them.
    assert device_bytes() == before


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_any_masks_and_parameters(kind):
    graph = fg.Graph("any")
    x, ids = graph.input("x", (6, 8), kind), graph.input("ids", (6,), "int64")
    graph.output(ops.grouped_matmul(x, graph.param("w", (4, 8, 16), kind), ids), "y")
    models = [fg.Session("cuda").compile(graph)]
    w = [np.random.default_rng(s).integers(-2, 3, (4, 8, 16)).astype(kind) for s in range(3)]
    models[0].set_param("w", w[0])
    models.append(models[0].clone())
    state = [w[0], w[0]]
    rows = np.arange(48).reshape(6, 8) % 5

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.integers(0, 1), st.lists(st.booleans(), min_size=4, max_size=4)),
                st.tuples(st.integers(0, 1), st.integers(0, 2)),
            ),
            max_size=5,
        ),
        st.lists(st.integers(0, 3), min_size=6, max_size=6),
    )
    @settings(max_examples=12)
    def check(steps, ids):
        for number, what in steps:
            if isinstance(what, list):
                models[number].set_moe_resident_experts(what)
            else:
                models[number].set_param("w", w[what])
                state[number] = w[what]
            for model, current in zip(models, state, strict=True):
                (y,) = model.run({"x": rows.astype(kind), "ids": np.array(ids)})
                wanted = np.einsum("mk,mkn->mn", rows, current[ids].astype("f8"))
                assert (y == wanted).all()

    check()


def test_clones_have_slots_of_their_own_and_one_copy_in_the_host():
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0, 1))
    other = model.clone()
    assert tables(other) == [mask_of(0, 1)]
    values = list(model._routing._residence.values)
    assert model._params.block(values[0]) is other._params.block(values[0])
    other.set_moe_resident_experts(mask_of(4))
    assert tables(model) == [mask_of(0, 1)]
    assert tables(other) == [mask_of(4)]
    other.set_param("w", weights(1))
    assert (y_of(model) == expected(weights())).all()
    assert (y_of(other) == expected(weights(1))).all()


def test_a_clone_from_before_keeps_all_on_the_device():
    model = product()
    model.set_param("w", weights())
    other = model.clone()
    model.set_moe_resident_experts(mask_of())
    assert (y_of(model) == y_of(other)).all()
    assert other._routing._residence is None


def test_products_that_share_experts_share_slots():
    graph = fg.Graph("shared")
    x, ids = graph.input("x", X.shape), graph.input("ids", IDS.shape, "int32")
    w = graph.param("w", (EXPERTS, WIDTH, WIDTH))
    graph.output(ops.grouped_matmul(x, w, ids) + ops.grouped_matmul(x * 2.0, w, ids), "y")
    model = fg.Session("cuda").compile(graph)
    model.set_param("w", weights())
    before = device_bytes()
    model.set_moe_resident_experts_per_layer([mask_of(0), mask_of(0, 1)])
    assert (y_of(model) == 3 * expected(weights())).all()
    # Two tables and two sets of counters.
    assert device_bytes() == before - 3 * ONE + 2 * (8 * EXPERTS + 16 + 2 * 8 * EXPERTS)
    assert len(tables(model)) == 2
    model.set_moe_resident_experts_per_layer([mask_of(3), mask_of()])
    assert (y_of(model) == 3 * expected(weights())).all()
    assert tables(model) == [mask_of(3), mask_of()]


def test_layers_in_one_parameter():
    """Slices of a stack are read where they lie, each with its own mask."""
    graph = fg.Graph("stacked")
    x, ids = graph.input("x", X.shape), graph.input("ids", IDS.shape, "int32")
    w = graph.param("w", (2, EXPERTS, WIDTH, WIDTH))
    for layer in range(2):
        x = ops.grouped_matmul(x, w[layer], ids)
    graph.output(x, "y")
    model = fg.Session("cuda").compile(graph)
    stack = np.stack([weights(0), weights(1)])
    model.set_param("w", stack)
    wanted = np.einsum("mk,mkn->mn", expected(stack[0]), stack[1][IDS])
    for masks in ([mask_of(0), mask_of(1)], [mask_of(), mask_of(0, 1, 2, 3, 4)]):
        model.set_moe_resident_experts_per_layer(masks)
        assert (y_of(model) == wanted).all()
        assert tables(model) == masks


def test_experts_that_are_computed_from_parameters():
    model = product(lambda x, v, w, ids: ops.grouped_matmul(x, v + w, ids), ("v", "w"))
    model.set_params({"v": weights(1), "w": weights(2)})
    model.set_moe_resident_experts(mask_of(4))
    assert (y_of(model) == expected(weights(1) + weights(2))).all()
    model.set_param("v", weights(3))
    assert (y_of(model) == expected(weights(3) + weights(2))).all()
    assert tables(model) == [mask_of(4)]


def test_experts_that_something_else_reads():
    model = product(lambda x, w, ids: ops.grouped_matmul(x, w, ids) + ops.matmul(x, w)[0])
    model.set_param("w", weights())
    y = y_of(model)
    with pytest.raises(fg.UnsupportedError, match=r"are read by node 'matmul.* too"):
        model.set_moe_resident_experts(mask_of(0))
    assert (y_of(model) == y).all()
    assert model.take_moe_residency_stats() is None


def test_a_model_as_a_part_reads_its_experts_in_the_host():
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0))
    ctx = fg.DeviceContext("cuda")
    inputs = {"x": ctx.to_device(X), "ids": ctx.to_device(IDS)}
    out = ctx.create_buffer(X.shape, "f4")

    def build(b):
        node = b.add_child_graph(model, inputs=inputs)
        b.add_copy(out, node.outputs[0], dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build)
    model.set_moe_resident_experts(mask_of(3))
    graph.replay()
    ctx.synchronize()
    assert (out.numpy() == expected(weights())).all()


@pytest.mark.fake
@pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemHostAlloc"])
def test_no_memory_for_experts(call):
    model = product()
    model.set_param("w", weights())
    for turn in range(2):
        for count in range(1, 8):
            FAKE.fail(call, 2, count)
            try:
                model.set_moe_resident_experts(mask_of(*range(turn, 3 + turn)))
            except fg.OutOfMemoryError as error:
                assert "'product'" in str(error) or "'w'" in str(error)
            else:
                break
            finally:
                FAKE.reset()
            assert (y_of(model) == expected(weights())).all()
            assert (model._routing._residence is None) == (turn == 0)
        assert count > 1 or (turn == 1 and call == "cuMemHostAlloc")
        assert tables(model) == [mask_of(*range(turn, 3 + turn))]
        assert (y_of(model) == expected(weights())).all()
        # So that the second turn finds no spare slots.
        model.set_moe_resident_experts(mask_of())


def test_faults_and_closing_leave_nothing():
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0))
    with pytest.raises(fg.InputError):
        y_of(model, IDS + 1)
    assert (y_of(model) == expected(weights())).all()
    model.close()


def test_masks_and_handles():
    """A state between runs needs another program; it has the same experts."""
    graph = fg.Graph("state")
    x, ids = graph.input("x", X.shape), graph.input("ids", IDS.shape, "int32")
    w = graph.param("w", (EXPERTS, WIDTH, WIDTH))
    graph.output(ops.grouped_matmul(x, w, ids), "y")
    model = fg.Session("cuda").compile(graph)
    # Experts that hand their columns on.
    turned = np.stack([np.roll(np.eye(WIDTH), e, 1) for e in range(EXPERTS)]).astype("f4")
    model.set_param("w", turned)
    wanted = X
    for turn, resident in enumerate(((0, 1), (1, 4), (), (0, 1, 2, 3, 4))):
        model.set_moe_resident_experts(mask_of(*resident))
        if turn == 0:
            model.bind_handle("x", X)
            model.set_gpu_handle_feed("x", "y")
        model.run({"ids": IDS})
        wanted = np.einsum("mk,mkn->mn", wanted, turned[IDS])
        assert (model.read_handle("x") == wanted).all()
        stats = model.take_moe_residency_stats()
        assert stats.gpu_expert_calls == len({0, 1, 3, 4} & set(resident))
    other = model.clone()
    other.set_moe_resident_experts(mask_of(3))
    other.run({"ids": IDS})
    assert (other.read_handle("x") == np.einsum("mk,mkn->mn", wanted, turned[IDS])).all()
    assert (model.read_handle("x") == wanted).all()


@pytest.mark.fake
def test_an_executable_that_is_made_after_a_mask_waits_too(held):
    model = product()
    model.set_param("w", weights())
    model.set_moe_resident_experts(mask_of(0, 1))
    ctx = fg.DeviceContext("cuda")
    ids, out = ctx.create_buffer(IDS.shape, "i4"), ctx.create_buffer(X.shape, "f4")
    x, stream = ctx.to_device(X), ctx.create_stream()
    held(model)
    model.set_moe_resident_experts(mask_of(3, 4))
    executable = model.executable
    # An input that is resident has a program of its own.
    model.bind_handle("ids", ids)
    model.run({"x": x}, out=[out], stream=stream)
    assert model.executable is not executable
    FAKE.hold(False)
    assert (out.numpy() == expected(weights(), 0 * IDS)).all()


def test_models_of_several_sizes_share_no_experts_in_the_host():
    def build(rows):
        graph = fg.Graph("rows")
        x, ids = graph.input("x", (rows, WIDTH)), graph.input("ids", (rows,), "int32")
        graph.output(ops.grouped_matmul(x, graph.param("w", (EXPERTS, WIDTH, WIDTH)), ids), "y")
        return graph

    cache = fg.BucketedCompileCache("cuda", ranges=[(1, 5), (5, 9)])
    small, large = (cache.get_or_compile(rows, build)[1] for rows in (3, 7))
    cache.set_param("w", weights())
    small.set_moe_resident_experts(mask_of(1))
    for seed in (0, 1):
        cache.set_param("w", weights(seed))
        (value,) = small._routing._residence.values
        assert small._params.block(value).memory.host_visible
        (value,) = large._params.setup.params
        assert not large._params.block(value).memory.host_visible
        for rows in (3, 7):
            x, ids = X[[0] * rows], IDS[[0] * rows]
            (y,) = cache.run_padded(rows, build, {"x": x, "ids": ids})
            assert (y == np.einsum("mk,mkn->mn", x, weights(seed)[ids])).all()
