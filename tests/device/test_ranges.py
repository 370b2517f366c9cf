"""What a profiler sees of graphs that run node by node."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import fastgraph as fg
from fastgraph.device.ranges import DOMAIN, named_range


@pytest.fixture
def ranges(monkeypatch):
    """The (name, domain) of every range, as it begins."""
    nvtx = pytest.importorskip("nvtx")
    begun = []

    @contextmanager
    def annotate(name, domain):
        begun.append((name, domain))
        yield

    monkeypatch.setattr(nvtx, "annotate", annotate)
    return begun


def recording(x):
    def build(b):
        first = b.add_memset(x, 1, name="ones")
        b.add_memset(x, 2, name="twos", dependencies=[first])

    return build


def test_nodes_are_ranges_of_their_names(ctx, ranges):
    graph = fg.DeviceGraph.create(ctx, recording(ctx.create_buffer(4)), check=True)
    graph.replay()
    assert ranges == [("ones", DOMAIN), ("twos", DOMAIN)]
    graph.replay()
    assert len(ranges) == 4


def test_a_plain_replay_has_no_ranges(ctx, ranges):
    fg.DeviceGraph.create(ctx, recording(ctx.create_buffer(4))).replay()
    ctx.synchronize()
    assert ranges == []


def test_a_range_ends_with_what_its_node_raises(host, monkeypatch):
    ended = []

    class Range:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            ended.append(error[0])

    nvtx = pytest.importorskip("nvtx")
    monkeypatch.setattr(nvtx, "annotate", lambda name, domain: Range())

    def fail(grid, block):
        raise KeyError("no")

    def build(b):
        b.add_function(fg.Kernel("fail", cpu=fail))

    graph = fg.DeviceGraph.create(host, build, check=True)
    with pytest.raises(KeyError):
        graph.replay()
    assert ended == [KeyError]


def test_without_the_package_there_are_none(monkeypatch):
    monkeypatch.setattr("fastgraph.device.ranges._library", lambda: None)
    with named_range("x") as found:
        assert found is None
