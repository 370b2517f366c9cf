"""Choices and loops in models: what is done, what is not, and where values lie meanwhile."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import arena, isa
from fastgraph._core.order import Order
from fastgraph.ir import reference
from fastgraph.lower.cpu import Target as HostTarget
from fastgraph.lower.cpu.recorder import HostRecorder
from fastgraph.lower.cuda.recorder import CudaRecorder
from fastgraph.lower.program import lower
from fastgraph.passes import optimise
from tests.ops.composed import PROGRAMS, follow
from tests.runtime.models import compiled, data_for
from tests.runtime.test_memory import HOPPER

f4 = np.float32


def built(function, *arrays, params=()):
    """A graph of a function of inputs like `arrays`, then parameters of these shapes."""
    graph = fg.Graph("case")
    values = [graph.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    values += [graph.param(f"w{i}", shape) for i, shape in enumerate(params)]
    found = function(*values)
    for i, value in enumerate(found if isinstance(found, tuple) else (found,)):
        graph.output(value, f"y{i}")
    return graph


def run(function, *arrays, **options):
    """Outputs as lists, equal to the reference's."""
    graph = built(function, *arrays)
    inputs = {f"x{i}": array for i, array in enumerate(arrays)}
    found = compiled(graph, **options).run(inputs)
    wanted = reference.evaluate(graph, inputs)
    for one, right in zip(found, wanted.values(), strict=True):
        assert (one.shape, one.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(one, right, rtol=2e-5, atol=1e-6)
    return [one.tolist() for one in found]


# ---- scenarios B 7


@pytest.mark.parametrize(("flag", "wanted"), [(1, [0, 0, 2]), (0, [-10, 0, 20])])
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8"])
def test_one_branch_or_the_other(flag, wanted, dtype):
    def choose(x, flag):
        return ops.cond(flag, ops.relu, lambda x: x * 10, x)

    assert run(choose, f4([-1, 0, 2]), np.array(flag, dtype)) == [wanted]


def test_three_squarings():
    def squared(x, n):
        return ops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * x), np.int32(0), x)

    assert run(squared, f4([2, 3]), np.int32(3)) == [3, [256, 6561]]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_no_turn_and_several(n):
    def fibonacci(a, b, n):
        return ops.while_loop(lambda a, b, i: i > 0, lambda a, b, i: (b, a + b, i - 1), a, b, n)

    assert run(fibonacci, np.int64(0), np.int64(1), np.int8(n))[0] == [0, 1, 1, 2, 3, 5][n]


# ---- what is done


def test_only_the_branch_taken_runs():
    """The other one would meet bad data, which is named where it is met."""

    def pick(x, index, flag):
        return ops.cond(flag, lambda: ops.take(x, index), lambda: x[:1] * 2)

    model = compiled(built(pick, f4([1, 2, 3]), np.int64([0]), np.bool_(0)))
    inputs = {"x0": f4([1, 2, 3]), "x1": np.int64([7])}
    assert model.run({**inputs, "x2": np.bool_(0)})[0].tolist() == [2]
    with pytest.raises(fg.InputError, match=r"node 'cond/take' \(take, test_control.py:\d+\) met"):
        model.run({**inputs, "x2": np.bool_(1)})
    assert model.run({**inputs, "x2": np.bool_(0)})[0].tolist() == [2]


def test_bad_data_in_a_loop_within_a_branch_is_named():
    def follow(table, at, flag):
        def chase(at, n):
            return ops.take(table, at), n - 1

        return ops.cond(
            flag,
            lambda: ops.while_loop(lambda at, n: n > 0, chase, at, np.int32(4))[0],
            lambda: at,
        )

    table, at = np.int64([1, 2, 9, 0]), np.int64([0])
    model = compiled(built(follow, table, at, np.bool_(1)))
    with pytest.raises(fg.InputError, match="node 'cond/while_loop/take'"):
        model.run({"x0": table, "x1": at, "x2": np.bool_(1)})
    table[2] = 3
    assert model.run({"x0": table, "x1": at, "x2": np.bool_(1)})[0].tolist() == [0]


def kinds_of(model):
    return [node.kind for node in model.graph.nodes]


def test_what_is_known_leaves_one_branch():
    graph = fg.Graph("known")
    x = graph.input("x", (2,))
    three = graph.constant(np.int32(3))
    y = ops.cond(three > 2, lambda x: x + 1, lambda x: ops.cond(False, ops.exp, ops.log, x), x)
    graph.output(ops.cond(False, ops.exp, lambda y: y * 2, y), "y")
    model = compiled(graph)
    assert "if" not in kinds_of(model)
    assert model.run({"x": f4([1, 2])})[0].tolist() == [4, 6]


def test_loops_that_are_known_are_gone():
    graph = fg.Graph("known")
    x = graph.input("x", (2,))
    kept = ops.while_loop(lambda x: np.bool_(False), lambda x: x * 2, x)
    ten, _ = ops.while_loop(
        lambda i, s: s < 10, lambda i, s: (i + 1, s + i), np.int32(0), graph.constant(np.int32(0))
    )
    graph.output(kept + ten.astype("float32"), "y")
    model = compiled(graph)
    assert "while" not in kinds_of(model)
    assert model.run({"x": f4([1, 2])})[0].tolist() == [6, 7]


def test_weights_in_bodies_belong_to_the_set_program():
    """A run reads them as packed as elsewhere, once for all that use them."""

    def layers(x, n, w):
        def turn(i, y):
            return i + 1, ops.cond(i > 0, lambda: y @ w.T, lambda: ops.relu(y @ w.T))

        return ops.while_loop(lambda i, y: i < n, turn, np.int32(0), x)[1] + x @ w.T

    x, w = np.eye(4, 16, dtype="f4"), np.eye(16, dtype="f4") * 2
    model = compiled(built(layers, x, np.int32(0), params=[(16, 16)]))
    setup = model._compilation.program.setup
    assert len(setup.results) <= 1
    assert len(setup.record.nodes) <= 1
    for k in (2, 3):
        model.set_param("w0", np.eye(16, dtype="f4") * k)
        found = model.run({"x0": x, "x1": np.int32(2)})[0]
        np.testing.assert_array_equal(found, x * k * k + x * k)
    assert w[0, 0] == 2


def test_parameters_declared_in_branches():
    graph = fg.Graph("inside")
    x = graph.input("x", (2,))
    y = ops.cond(
        ops.sum(x) > 0,
        lambda: x + graph.param("b", (2,)),
        lambda: x * graph.scalar("s", "float32", 3.0),
    )
    graph.output(y, "y")
    model = compiled(graph)
    assert [info.name for info in model.params] == ["b"]
    model.set_param("b", f4([10, 20]))
    assert model.run({"x": f4([1, 1])})[0].tolist() == [11, 21]
    assert model.run({"x": f4([-1, -1])})[0].tolist() == [-3, -3]
    assert model.run({"x": f4([-1, -1])}, s=5.0)[0].tolist() == [-5, -5]


def test_what_a_branch_hands_through():
    """Inputs, parameters, constants, one value twice, and views."""

    def choose(x, flag, w):
        return ops.cond(
            flag,
            lambda: (x, w, np.arange(4, dtype="f4"), x[:2], x.reshape(2, 2)),
            lambda: (w, w, w + 1, w[2:], ops.exp(x).reshape(2, 2)),
        )

    graph = built(choose, np.ones(4, "f4"), np.bool_(0), params=[(4,)])
    model = compiled(graph)
    data = data_for(model.inputs), data_for(model.params)
    model.set_params(data[1])
    for flag in (True, False):
        data[0]["x1"] = np.bool_(flag)
        wanted = reference.evaluate(graph, *data)
        for one, right in zip(model.run(data[0]), wanted.values(), strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-6)


def test_carried_values_change_places():
    def turn(a, b, c, n):
        return b, c, a, n - 1

    def rotate(a, b, c, n):
        return ops.while_loop(lambda a, b, c, n: n > 0, turn, a, b, c, n)[:3]

    a, b, c = (np.full(5, i, "f4") for i in range(3))
    for n in range(5):
        found = run(rotate, a, b, c, np.int32(n))
        assert [y[0] for y in found] == [(0 + n) % 3, (1 + n) % 3, (2 + n) % 3]


def test_many_turns_take_no_memory():
    def count(n, x):
        return ops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x + 1), np.int64(0), x)

    model = compiled(built(count, np.int64(0), np.zeros(3, "f4")))
    for n in (0, 10, 300):
        found = model.run({"x0": np.int64(n), "x1": np.zeros(3, "f4")})
        assert [y.tolist() for y in found] == [n, [n] * 3]
    assert model.arena_nbytes <= 1024


def test_clones_run_side_by_side():
    def count(n):
        return ops.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), n * 0, n * 0)[1]

    model = compiled(built(count, np.int64(0)))
    other = model.clone()
    assert model.run({"x0": np.int64(5)})[0] == 10
    assert other.run({"x0": np.int64(7)})[0] == 21
    assert model.run({"x0": np.int64(5)})[0] == 10


def test_a_state_that_turns_and_choices_make():
    """Read by a loop and by a branch, and fed with what either gives."""

    def both(state, n):
        added = ops.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + 1), n * 0, state)[1]
        return added, ops.cond(n > 1, lambda: state * 2, lambda: state - 1)

    graph = built(both, np.ones(4, "f4"), np.int32(0))
    for output, step in ((0, lambda s, n: s + n), (1, lambda s, n: s * 2 if n > 1 else s - 1)):
        model = compiled(graph)
        state = 3
        model.bind_handle("x0", np.full(4, state, "f4"))
        model.set_gpu_handle_feed("x0", output)
        for n in (0, 3, 1, 2):
            added, chosen = model.run({"x1": np.int32(n)})
            assert added.tolist() == [state + n] * 4
            assert chosen.tolist() == [state * 2 if n > 1 else state - 1] * 4
            state = step(state, n)
            assert model.read_handle("x0").tolist() == [state] * 4
        model.close()


@pytest.mark.parametrize(
    "op", ["cond", "while_loop", pytest.param("kernel", marks=pytest.mark.host)]
)
def test_an_active_extent_is_refused_by_name(op):
    """Unless what follows it goes past the functions."""

    def use(x):
        if op == "cond":
            return ops.cond(ops.sum(x) > 0, lambda: x * 2, lambda: x)
        if op == "while_loop":
            return ops.while_loop(lambda v: ops.sum(v) < 9, lambda v: v * 2, x)
        return ops.kernel(lambda grid, block, y, x: np.copyto(y, x), [x], x.shape, x.dtype)

    x = np.ones((4, 2), "f4")
    model = compiled(built(use, x))
    with pytest.raises(fg.UnsupportedError, match=rf"{op} \({op}, test_control.*cannot follow"):
        model.set_active_extent((3, 4))
    wanted = {"cond": 2, "while_loop": 2, "kernel": 1}[op]
    assert model.run({"x0": x})[0].tolist() == [[wanted, wanted]] * 4
    apart = compiled(built(lambda x, y: (ops.sum(x, axis=0), use(y)), x, np.ones((3, 2), "f4")))
    apart.set_active_extent((2, 4))
    assert apart.run({"x0": x, "x1": x[:3]})[0].tolist() == [2, 2]


@pytest.mark.host
def test_a_loop_without_end_can_be_interrupted():
    def endless(x):
        return ops.while_loop(lambda y: ops.sum(y) > 0, lambda y: ops.maximum(y * 0.5, 1), x)

    model = compiled(built(endless, np.ones(3, "f4")))

    def ring(*args):
        raise TimeoutError("rung")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="rung"):
            model.run({"x0": np.ones(3, "f4")})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert model.run({"x0": np.zeros(3, "f4")})[0].tolist() == [0] * 3


def test_inside_another_graph(device):
    """Bad data in a body is named there too."""

    def pick(x, index, flag):
        return ops.cond(flag, lambda: ops.take(x, index), lambda: x[:1] * 2)

    model = compiled(built(pick, f4([1, 2, 3]), np.int64([0]), np.bool_(0)))
    ctx = fg.DeviceContext(device)
    x, flag = ctx.to_device(f4([1, 2, 3])), ctx.to_device(np.bool_(1))
    index = ctx.to_device(np.int64([2]))
    out = ctx.create_buffer(1)

    def build(b):
        node = b.add_child_graph(model, inputs={"x0": x, "x1": index, "x2": flag})
        b.add_copy(out, node.outputs[0], dependencies=[node])

    graph = fg.DeviceGraph.create(ctx, build)
    graph.run()
    assert out.numpy().tolist() == [3]
    flag.copy_from(np.bool_(0))
    graph.run()
    assert out.numpy().tolist() == [2]
    flag.copy_from(np.bool_(1))
    index.copy_from(np.int64([5]))
    with pytest.raises(fg.InputError, match="node 'cond/take'"):
        graph.run()
    graph.close()


def test_what_is_in_a_body_tells_compiles_apart(device):
    def choose(k):
        return built(lambda x, w: ops.cond(x[0] > 0, lambda: x @ w, lambda: x * k),
                     np.ones(2, "f4"), params=[(2, 2)])  # fmt: skip

    cache = fg.CompileCache(device)
    models = [cache.compile(choose(k)) for k in (2.0, 3.0, 2.0)]
    assert cache.stats[:3] == (1, 2, 2)
    for model, k in zip(models, (2, 3, 2), strict=True):
        model.set_param("w0", np.eye(2, dtype="f4") * 5)
        assert model.run({"x0": f4([-1, 1])})[0].tolist() == [-k, k]
        assert model.run({"x0": f4([1, 1])})[0].tolist() == [5, 5]


# ---- where values lie


def test_a_plan_that_forgets_the_loop_is_refused():
    """A value from before a loop that its first half reads is read again in the next turn."""

    def turns(x, n):
        before = ops.softmax(x)

        def turn(i, y):
            return i + 1, ops.softmax(ops.softmax(y + before, 0), 1)

        return ops.while_loop(lambda i, y: i < n, turn, np.int32(0), x)[1]

    plan = compiled(built(turns, np.ones((4, 16), "f4"), np.int32(1)))._compilation.program.plan
    rest = (plan.dependencies, plan.sizes, plan.writers, plan.users)
    found = (plan.offsets, plan.total, plan.pinned, plan.inplace)
    arena.verify(*rest, *found, loops=plan.loops)
    loose = arena.plan(Order(plan.dependencies), *rest[1:], plan.pinned, plan.inplace)
    arena.verify(*rest, *loose, plan.pinned, plan.inplace)
    with pytest.raises(fg.GraphError, match="share bytes"):
        arena.verify(*rest, *loose, plan.pinned, plan.inplace, loops=plan.loops)


@given(PROGRAMS)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_plans_of_random_programs(device, steps):
    graph = fg.Graph("program")
    x, n, w = graph.input("x", (3, 8)), graph.input("n", (), "int64"), graph.param("w", (8, 8))
    for i, value in enumerate(follow([*steps, ("loop", 2, steps)], ops.softmax(x), x, w, n)):
        graph.output(value, f"y{i}")
    optimised = optimise(graph, pack=device == "cpu")
    recorder = HostRecorder(HostTarget(1, isa.chosen()))
    if device != "cpu":
        recorder = CudaRecorder(HOPPER, lambda code: None)
    plan = lower(optimised.graph, optimised.is_set, recorder).plan
    arena.verify(
        plan.dependencies, plan.sizes, plan.writers, plan.users, plan.offsets, plan.total,
        plan.pinned, plan.inplace, loops=plan.loops,
    )  # fmt: skip
