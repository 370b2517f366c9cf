"""Models with extents beside the same graphs compiled for them, with all other rows poisoned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import fastgraph as fg
from tests.runtime.models import compiled

Array = np.ndarray[Any, Any]
Build = Callable[[fg.Graph, Any], Sequence[fg.Value]]

UNTOUCHED = 77


def graph_of(build: Build, n: Any) -> fg.Graph:
    """The graph that `build` writes for a size `n`."""
    graph = fg.Graph("extents")
    for i, value in enumerate(build(graph, n)):
        graph.output(value, f"y{i}")
    return graph


def active(array: Array, shape: Sequence[int]) -> tuple[slice, ...]:
    """The part of `array` that has this shape."""
    return tuple(slice(0, n) for n in shape)


def random(shape: Sequence[int], dtype: Any, seed: int) -> Array:
    """Numbers for an input or parameter; integers are small enough for any index."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def poison(dtype: Any) -> Any:
    """What must not be read: it spreads, or is out of range."""
    return np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else np.nan


class Pair:
    """One graph compiled for `upper` with an extent, and for each size that is asked for."""

    def __init__(
        self, build: Build, upper: int, dim: str | None = None, threads: int = 2, **options: Any
    ) -> None:
        self.build, self.upper, self.dim = build, upper, dim
        self.how: Mapping[str, Any] = {"threads": threads, **options}
        self.model = compiled(
            graph_of(build, fg.dim(dim, upper) if dim else upper), threads, **options
        )
        self.params = {
            info.name: random(info.shape, info.dtype, i) for i, info in enumerate(self.model.params)
        }
        self.model.set_params(self.params)
        self.inputs = {
            info.name: random(info.shape, info.dtype, 100 + i)
            for i, info in enumerate(self.model.inputs)
        }

    def set(self, actual: int) -> None:
        """Set the extent."""
        self.model.set_active_extent((actual, self.upper), dim=self.dim)

    def exact(self, actual: int) -> tuple[dict[str, Array], tuple[Array, ...]]:
        """Inputs and outputs of the graph compiled for `actual`, on the cpu."""
        session = fg.Session("cpu", threads=self.how["threads"])
        options = {name: value for name, value in self.how.items() if name != "threads"}
        model = session.compile(graph_of(self.build, actual), fg.CompileOptions(**options))
        model.set_params(self.params)
        inputs = {
            info.name: np.ascontiguousarray(self.inputs[info.name][active(None, info.shape)])
            for info in model.inputs
        }
        return inputs, model.run(inputs)

    def poisoned(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays of the full shapes that hold these."""
        found = {}
        for name, array in inputs.items():
            whole = np.full_like(self.inputs[name], poison(array.dtype))
            whole[active(whole, array.shape)] = array
            found[name] = whole
        return found

    def check(self, *extents: int, rtol: float = 2e-5, atol: float = 2e-5) -> None:
        """Every way to run, for each extent, against the compile for it."""
        full = self.model.run(self.inputs)
        places = self.model.arena_ptr, self.model.run_slots(list(self.inputs.values()))
        for actual in extents:
            inputs, wanted = self.exact(actual)
            self.set(actual)
            self.check_runs(inputs, wanted, rtol, atol)
        assert self.model.arena_ptr == places[0]
        assert self.model.run_slots(list(self.inputs.values())) is places[1]
        self.model.set_active_extent(None)
        again = self.model.run(self.inputs)
        assert [a.tobytes() for a in again] == [a.tobytes() for a in full]

    def check_runs(
        self, inputs: dict[str, Array], wanted: Sequence[Array], rtol: float, atol: float
    ) -> None:
        """Every way to run, against what is wanted."""
        model, whole = self.model, self.poisoned(inputs)

        def near(found: Sequence[Array]) -> None:
            for one, right in zip(found, wanted, strict=True):
                assert (one.shape, one.dtype) == (right.shape, right.dtype)
                np.testing.assert_allclose(one, right, rtol=rtol, atol=atol)

        def kept(found: Sequence[Array]) -> None:
            near([one[active(one, right.shape)] for one, right in zip(found, wanted, strict=True)])
            for one, right in zip(found, wanted, strict=True):
                rest = one.copy()
                rest[active(one, right.shape)] = UNTOUCHED
                assert (rest == UNTOUCHED).all()

        found = model.run(whole)
        near(found)
        again = model.run(whole)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in again]
        near(model.run(inputs))
        into = [np.full(info.shape, UNTOUCHED, info.dtype) for info in model.outputs]
        model.run(whole, out=into)
        kept(into)
        # What earlier runs left in the rows beyond stays there, poison or not.
        before = [model.output_view(i).copy() for i in range(len(wanted))]
        model.run_slots(list(whole.values()))
        raw = model.run_raw(whole)
        for i, right in enumerate(wanted):
            for view in (model.output_view(i), raw[i].array()):
                np.testing.assert_allclose(
                    view[active(view, right.shape)], right, rtol=rtol, atol=atol
                )
                rest, old = view.copy(), before[i].copy()
                rest[active(view, right.shape)] = old[active(view, right.shape)] = 0
                assert rest.tobytes() == old.tobytes()
        bound = {info.name: np.full(info.shape, UNTOUCHED, info.dtype) for info in model.outputs}
        model.bind(whole, bound)()
        kept(list(bound.values()))
        for given in (whole, inputs):
            typed = model.run_typed(
                [(name, array.tobytes(), array.dtype.name) for name, array in given.items()]
            )
            near([
                np.frombuffer(data, right.dtype).reshape(right.shape)
                for (data, _), right in zip(typed, wanted, strict=True)
            ])  # fmt: skip
