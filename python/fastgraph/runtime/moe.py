"""Mixtures of experts: which experts are resident, what became of that, which were chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastgraph.runtime.extents import Extended
from fastgraph.runtime.routing import ResidencyStats, Routing

if TYPE_CHECKING:
    from fastgraph.runtime.compiled import Compilation
    from fastgraph.runtime.params import ParamSet

__all__ = ["Routed"]

_Indices = np.ndarray[Any, np.dtype[np.uint32]]


class Routed(Extended):
    """What a compiled graph knows of its experts; models and clones know nothing of each other.

    Residency changes where weights are read from, never a result. The masks may change between
    runs; a run that is under way keeps those that it began with.
    """

    __slots__ = ("_routing",)

    _compilation: Compilation
    _params: ParamSet
    _routing: Routing

    def set_moe_resident_experts(self, mask: Any) -> None:
        """Say which experts are resident, the same ones for every layer.

        From the first call on, runs count what `take_moe_residency_stats` gives.

        Parameters
        ----------
        mask : sequence of bool
            For each expert whether it is resident. Copied.

        Raises
        ------
        InputError
            Not bools in one axis, or not one for each expert of every layer. Nothing has changed.
        UnsupportedError
            The model has no `grouped_matmul`, or one whose matrices are no parameters.
        OutOfMemoryError
            The counters do not fit. Nothing has changed.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("experts")
        >>> x, ids = g.input("x", (3, 2)), g.input("ids", (3,), "int32")
        >>> _ = g.output(fg.ops.grouped_matmul(x, g.param("w", (2, 2, 2)), ids), "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_param("w", np.stack([np.eye(2, dtype="f4"), 2 * np.eye(2, dtype="f4")]))
        >>> model.set_moe_resident_experts([True, False])
        >>> _ = model.run({"x": np.ones((3, 2), "f4"), "ids": np.array([0, 1, 1], "i4")})
        >>> model.take_moe_residency_stats()
        ResidencyStats(gpu_expert_calls=1, cpu_expert_calls=1, gpu_tokens=1, cpu_tokens=2)
        """
        self._check_open()
        masks = self._routing.check_mask(mask)
        self._locked(lambda: self._routing.set_masks(self, masks))

    def set_moe_resident_experts_per_layer(self, masks: Any) -> None:
        """Say which experts are resident, for each layer; else as `set_moe_resident_experts`.

        Parameters
        ----------
        masks : sequence of sequences of bool
            ``masks[layer]`` is for every `grouped_matmul` of that layer; None for a number that no
            layer has.

        Raises
        ------
        InputError
            Another number of masks than the highest layer and one, or a mask that does not fit.
            Nothing has changed.
        UnsupportedError, OutOfMemoryError, GraphError
            As `set_moe_resident_experts`.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("experts")
        >>> x, ids = g.input("x", (1, 2)), g.input("ids", (1,), "int32")
        >>> h = fg.ops.grouped_matmul(x, g.param("up", (2, 2, 2)), ids, layer=0)
        >>> _ = g.output(fg.ops.grouped_matmul(h, g.param("down", (2, 2, 2)), ids, layer=1), "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_params({name: np.ones((2, 2, 2), "f4") for name in ("up", "down")})
        >>> model.set_moe_resident_experts_per_layer([[True, False], [False, True]])
        >>> _ = model.run({"x": np.ones((1, 2), "f4"), "ids": np.array([1], "i4")})
        >>> model.take_moe_residency_stats()
        ResidencyStats(gpu_expert_calls=1, cpu_expert_calls=1, gpu_tokens=1, cpu_tokens=1)
        """
        self._check_open()
        checked = self._routing.check_masks(masks)
        self._locked(lambda: self._routing.set_masks(self, checked))

    def take_moe_residency_stats(self) -> ResidencyStats | None:
        """Return what was counted since the last call, of all runs that were told a mask.

        Returns
        -------
        ResidencyStats or None
            None where no run has counted anything since.

        Raises
        ------
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("experts")
        >>> x, ids = g.input("x", (1, 1)), g.input("ids", (1,), "int32")
        >>> _ = g.output(fg.ops.grouped_matmul(x, g.param("w", (2, 1, 1)), ids), "y")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.set_param("w", np.ones((2, 1, 1), "f4"))
        >>> model.set_moe_resident_experts([False, True])
        >>> _ = model.run({"x": np.ones((1, 1), "f4"), "ids": np.array([1], "i4")})
        >>> model.take_moe_residency_stats().gpu_tokens
        1
        >>> model.take_moe_residency_stats() is None
        True
        """
        self._check_open()
        return self._locked(lambda: self._routing.take_stats(self))

    def enable_moe_topk_capture(self, num_experts: int) -> None:
        """Let every run keep which experts its routers choose; stays on.

        Parameters
        ----------
        num_experts : int
            Every `top_k` over an axis of that many elements is a router.

        Raises
        ------
        InputError
            `num_experts` is no positive int.
        UnsupportedError
            The model has no such `top_k`. Nothing has changed, here as before.
        OutOfMemoryError
            There is no memory for the indices.
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("router")
        >>> _, ids = fg.ops.top_k(g.input("scores", (2, 4)), 2)
        >>> _ = g.output(ids, "ids")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.enable_moe_topk_capture(4)
        >>> _ = model.run({"scores": np.array([[1, 9, 3, 7], [5, 0, 0, 1]], "f4")})
        >>> model.take_moe_topk_capture()
        (array([[1, 3],
               [0, 3]], dtype=uint32),)
        """
        self._check_open()
        places = self._routing.check_routers(num_experts)
        self._locked(lambda: self._routing.capture(self, num_experts, places))

    def take_moe_topk_capture(self) -> tuple[_Indices, ...] | None:
        """Return the indices that the routers of the last run have chosen.

        Returns
        -------
        tuple of numpy.ndarray or None
            For each router, in the order of their layers, its indices as uint32; the caller's own.
            None where no run has been since the last call, or capture is not on.

        Raises
        ------
        GraphError
            The model is closed.

        Examples
        --------
        >>> import fastgraph as fg, numpy as np
        >>> g = fg.Graph("router")
        >>> _, ids = fg.ops.top_k(g.input("scores", (1, 3)), 1)
        >>> _ = g.output(ids, "ids")
        >>> model = fg.Session("cpu").compile(g)
        >>> model.enable_moe_topk_capture(3)
        >>> model.take_moe_topk_capture() is None
        True
        >>> _ = model.run({"scores": np.array([[0, 0, 1]], "f4")})
        >>> (chosen,) = model.take_moe_topk_capture()
        >>> chosen
        array([[2]], dtype=uint32)
        """
        self._check_open()
        return self._locked(lambda: self._routing.take_indices(self))

    def _route_as(self, other: Routed) -> None:
        """Take over what another model of the same compilation was told, and count from zero."""
        masks, number = other._routing.told
        if masks is not None:
            self._locked(lambda: self._routing.set_masks(self, masks))
        if number is not None:
            self.enable_moe_topk_capture(number)
