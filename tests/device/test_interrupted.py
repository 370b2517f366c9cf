"""What an interrupt between two steps leaves behind."""

from __future__ import annotations

import pytest

import fastgraph as fg


class Interrupted(dict):
    """Takes an entry, and is interrupted right after, once."""

    def setdefault(self, key, value):
        found = super().setdefault(key, value)
        if not self.__dict__.setdefault("done", False):
            self.done = True
            raise KeyboardInterrupt
        return found


def test_a_build_that_never_began_leaves_its_key_free(ctx):
    x, cache = ctx.create_buffer(4), fg.DeviceGraphCache()
    cache._flights = Interrupted()

    def build(b):
        b.add_memset(x, 1.0)

    with pytest.raises(KeyboardInterrupt):
        fg.DeviceGraph.create(ctx, build, cache=cache)
    fg.DeviceGraph.create(ctx, build, cache=cache).replay()
    assert x.numpy()[0] == 1
    assert cache.stats.live_graphs == 1
