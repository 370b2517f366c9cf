"""Plans and programs of every model: bytes, order, node counts, compiled functions, leaks."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fastgraph as fg
from fastgraph import ops
from fastgraph._core import arena, counters, isa
from fastgraph.lower.cpu import Target as HostTarget
from fastgraph.lower.cpu.recorder import HostRecorder
from fastgraph.lower.cuda import Target
from fastgraph.lower.cuda.recorder import CudaRecorder
from fastgraph.lower.program import lower
from fastgraph.passes import optimise
from tests.ops.agreement import assert_compiled, is_compiled
from tests.passes.graphs import graphs
from tests.runtime import models
from tests.runtime.models import SUITE, compiled, data_for, ready

f4 = np.float32


def plan_of(model):
    return model._compilation.program.plan


def plans_of(model):
    """The plans of the run program and of the set program."""
    program = model._compilation.program
    return program.plan, program.setup.plan


def live_bound(plan):
    """The largest sum of bytes live at once over the chain; outputs live throughout.

    A value that its writer may put in the place of another one shares that one's bytes, wherever
    the other is read for the last time by that writer. Rounded up as offsets are.
    """
    steps = len(plan.dependencies)
    home = list(range(len(plan.sizes)))
    last = [max([*w, *u]) for w, u in zip(plan.writers, plan.users, strict=True)]
    spans = []
    for v, writes in enumerate(plan.writers):
        spans.append([min(writes), last[v]])
        if v in plan.pinned:
            spans[v] = [0, steps - 1]
    for v, u in plan.inplace:
        root = home[u]
        taken = v in plan.pinned or root in plan.pinned or home[v] != v
        if not taken and spans[root][1] == min(plan.writers[v]):
            home[v] = root
            spans[root][1] = max(spans[root][1], spans[v][1])
    sums = [0] * max(steps, 1)
    for v, size in enumerate(plan.sizes):
        if home[v] == v:
            for step in range(spans[v][0], spans[v][1] + 1):
                sums[step] += (size + 63) // 64 * 64
    return max(sums)


def check_plan(plan):
    arena.verify(
        plan.dependencies, plan.sizes, plan.writers, plan.users, plan.offsets, plan.total,
        plan.pinned, plan.inplace, loops=plan.loops,
    )  # fmt: skip
    # What runs side by side lives together, which the bound of a chain does not count.
    if all(before == (i - 1,) for i, before in enumerate(plan.dependencies) if i):
        assert plan.total <= 1.05 * live_bound(plan)
    assert all(offset % 64 == 0 for offset in plan.offsets)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", SUITE)
def test_plans_are_tight_and_right(name, fuse):
    model = compiled(SUITE[name](), fuse=fuse)
    for plan in plans_of(model):
        check_plan(plan)
    plan = plan_of(model)
    assert model.arena_nbytes == plan.total
    assert model.tensor_nbytes == sum(plan.sizes)


HOPPER = Target("sm_90", (9, 0), 132, 227 << 10, 50 << 20)


@given(graphs())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_plans_of_random_graphs(device, graph):
    for fuse in (True, False):
        optimised = optimise(graph, fuse=fuse, pack=device == "cpu")
        recorder = HostRecorder(HostTarget(1, isa.chosen()))
        if device != "cpu":
            recorder = CudaRecorder(HOPPER, lambda code: None)  # Nothing is compiled for a plan.
        program = lower(optimised.graph, optimised.is_set, recorder)
        check_plan(program.plan)
        check_plan(program.setup.plan)


def test_a_plan_that_trusts_too_much_is_refused():
    """The check above can fail: values that live together at one place, or out of the arena."""
    plan = plan_of(compiled(models.diamond()))
    rest = (plan.dependencies, plan.sizes, plan.writers, plan.users)
    with pytest.raises(fg.GraphError, match="share bytes"):
        arena.verify(*rest, [0] * len(plan.sizes), plan.total, plan.pinned, plan.inplace)
    with pytest.raises(fg.GraphError):
        arena.verify(*rest, plan.offsets, plan.total - 64, plan.pinned, plan.inplace)
    # Without the edges of the chain even the plan itself is not safe.
    loose = [() for _ in plan.dependencies]
    with pytest.raises(fg.GraphError, match="share bytes"):
        arena.verify(loose, *rest[1:], plan.offsets, plan.total, plan.pinned, plan.inplace)


def test_slots_are_used_again():
    short, long = compiled(models.chain(4)), compiled(models.chain(40))
    assert long.arena_nbytes == short.arena_nbytes < long.tensor_nbytes / 5


def test_elementwise_work_goes_in_place():
    graph = fg.Graph("in_place")
    x = ops.softmax(graph.input("x", (64, 64)))
    for _ in range(3):
        x = ops.softmax(ops.relu(x) + 1)
    graph.output(x, "y")
    model = compiled(graph)
    assert model.arena_nbytes <= 3 * 64 * 64 * 4
    inputs = data_for(model.inputs)
    (wanted,) = compiled(graph, fuse=False).run(inputs)
    np.testing.assert_allclose(model.run(inputs)[0], wanted, rtol=1e-5)


NODES = {
    "twice": ["region"],
    "layer": ["fused_matmul"],
    "mlp": ["fused_matmul"] * 3,
    "identities": ["fused_matmul"] * 6,
    "chain": ["softmax"] * 12,
    "residuals": ["fused_matmul", "rms_norm"] * 4,
    "diamond": ["softmax"] * 4 + ["region"],
    "encoder": ["attention"] + ["fused_matmul"] * 4 + ["layer_norm"] * 2,
}  # fmt: skip
# There a single row has products of its own, those of more that share an input stay apart, and a
# norm of their rows takes them in.
ON_CUDA = {
    "mlp": ["row_product"] * 3,
    "identities": ["row_product"] * 6,
    "residuals": ["rms_norm"] * 4,
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_after_fusion(name, device):
    model, inputs, _ = ready(name)
    profiled = model.profile(inputs, 1).nodes
    assert len(model.graph.nodes) == len(profiled)
    # A node may be several launches, which have its name, and what they do beside its operator.
    found = {n.name: n.operator.partition(",")[0] for n in profiled if n.operator != "copy"}
    wanted = NODES | (ON_CUDA if device == "cuda" else {})
    assert sorted(found.values()) == sorted(wanted[name])
    plain = compiled(SUITE[name](), fuse=False)
    assert len(plain.graph.nodes) >= len(profiled)


def test_what_is_seen_elsewhere_is_not_swallowed():
    graph = fg.Graph("guards")
    x, w = graph.input("x", (4, 4)), graph.param("w", (4, 4))
    graph.input("unused", (2,))
    product = x @ w
    graph.output(ops.relu(product), "relu")
    graph.output(product, "product")
    _ = ops.exp(product)  # Dead.
    model = compiled(graph)
    model.set_params(data_for(model.params))
    inputs = data_for(model.inputs)
    relu, product = model.run(inputs)
    np.testing.assert_array_equal(relu, np.maximum(product, 0))
    assert [info.name for info in model.inputs] == ["x", "unused"]
    assert not any("exp" in node.operator for node in model.profile(inputs, 1).nodes)


@pytest.mark.host
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", SUITE)
def test_every_node_is_a_compiled_function(name, fuse):
    model = compiled(SUITE[name](), fuse=fuse)
    assert_compiled(model)
    assert not is_compiled(id(model))


def test_compiling_and_dropping_is_flat(device):
    for name in ("mlp", "encoder", "several_outputs"):
        ready(name)
    gc.collect()
    before = counters.snapshot()
    for i in range(40 if device == "cpu" else 2):
        for name in ("layer", "encoder", "several_outputs", "with_scalars", "gather"):
            model, inputs, scalars = ready(name, threads=1 + i % 2)
            outputs = model.run(inputs, **scalars)
            step = model.bind(
                inputs, dict(zip([o.name for o in model.outputs], outputs, strict=True))
            )
            step(**scalars)
            other = model.clone()
            other.set_params(data_for(model.params, i))
            raw = other.run_raw(inputs, **scalars)
            view = raw[0].array()
    del model, other, step, raw, view, outputs
    gc.collect()
    assert counters.snapshot() == before


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_stays_flat_over_runs_and_settings(device):
    model, inputs, _ = ready("residuals")
    params = data_for(model.params)
    slots = [inputs[info.name] for info in model.inputs]

    def work(times):
        for i in range(times):
            model.run_slots(slots)
            model.run(inputs)
            if i % 10 == 0:
                model.set_params(params)
                model.clone().run_raw(inputs)[0].array()
                model.bind(inputs)()
                with pytest.raises(fg.InputError):
                    model.run({})
                with pytest.raises(fg.InputError):
                    model.run_slots([slots[0][:1]])

    times = 300 if device == "cpu" else 20
    work(times)
    gc.collect()
    start, before = resident(), counters.snapshot()
    work(10 * times)
    gc.collect()
    assert counters.snapshot() == before
    assert resident() - start < 4 << 20


def test_many_inputs_and_long_chains():
    graph = fg.Graph("wide")
    inputs = [graph.input(f"x{i}", (7,)) for i in range(150)]
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    for i in range(400):
        total = ops.relu(total * 0.5) + i % 3
    graph.output(total, "y")
    data = {f"x{i}": np.full(7, i, "f4") for i in range(150)}
    wanted = np.full(7, sum(range(150)), "f4")
    for i in range(400):
        wanted = np.maximum(wanted * f4(0.5), 0) + f4(i % 3)
    for fuse in (True, False):
        model = compiled(graph, fuse=fuse)
        np.testing.assert_array_equal(model.run(data)[0], wanted)
        check_plan(plan_of(model))


@pytest.mark.parametrize("rank", [32, 64])
def test_many_axes(rank):
    graph = fg.Graph("axes")
    shape = (1,) * (rank - 3) + (2, 3, 2)
    x = graph.input("x", shape)
    graph.output(ops.transpose(x + 1), "t")
    graph.output(ops.sum(x, axis=-1, keepdims=True), "s")
    data = data_for(graph.inputs)
    t, s = compiled(graph).run(data)
    np.testing.assert_array_equal(t, (data["x"] + 1).T)
    np.testing.assert_allclose(s, data["x"].sum(axis=-1, keepdims=True), rtol=1e-6)


HUGE = {
    "input": lambda g: g.input("x", (2**45 - 1024,)) + 1,
    "product": lambda g: g.input("x", (2**22, 1)) @ g.input("y", (1, 2**23 - 1)),
    "broadcast": lambda g: ops.broadcast_to(g.input("x", (1,)), (2**45 - 1024,)),
    "reduction": lambda g: ops.sum(
        ops.broadcast_to(g.input("x", (2, 1)), (2, 2**44 - 1024)), axis=1
    ),
    "softmax": lambda g: ops.softmax(g.input("x", (2**22, 2**23 - 1))),
}


@pytest.mark.parametrize("name", HUGE)
def test_what_does_not_fit_is_an_error_of_memory(name):
    """More than a process can address: named, nothing held, no count of parts that overflows."""
    graph = fg.Graph("huge")
    graph.output(HUGE[name](graph), "y")
    gc.collect()
    before = counters.snapshot()
    with pytest.raises(fg.OutOfMemoryError, match="bytes"):
        compiled(graph, threads=2)
    gc.collect()
    assert counters.snapshot() == before


def test_what_cannot_be_addressed_is_refused_where_it_is_written():
    graph = fg.Graph("huge")
    for shape in ((2**60,), (2**31, 2**31), (2**70,), (2**60, 0)):
        with pytest.raises(fg.GraphError, match=r"input 'x'.*limit"):
            graph.input("x", shape)
    a, b = graph.input("a", (2**23, 1)), graph.input("b", (1, 2**24))
    for build in (
        lambda: a @ b,
        lambda: a + b,
        lambda: ops.concat([ops.broadcast_to(a, (2**23, 2**22))] * 2),
    ):
        with pytest.raises(fg.GraphError):
            build()
