"""Which experts should be resident: those that routers choose most, within a budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fastgraph.errors import InputError

__all__ = ["ExpertPool", "PoolChange"]

POLICIES = ("total", "window", "decay")

_Array = np.ndarray[Any, np.dtype[Any]]


class PoolChange(NamedTuple):
    """What a refresh has changed: experts that have become resident, and that have ceased to be."""

    promotions: list[int]
    demotions: list[int]


class ExpertPool:
    """The experts of one layer that are resident, by how often they were chosen.

    It counts and decides; `mask` is for `CompiledGraph.set_moe_resident_experts`. The same calls
    give the same experts, always. One thread at a time uses a pool.

    Parameters
    ----------
    num_experts : int
    budget : int
        How many of them may be resident.
    period : int, optional
        `step` refreshes in every `period`-th call; without it never.
    policy : {"total", "window", "decay"}
        Which hits a refresh goes by: all of them, those since the last refresh, or all of them
        with those before each refresh halved.
    resident : iterable of int, optional
        What is resident at first, at most `budget`; by default the experts from 0 on.

    Raises
    ------
    InputError
        A number out of range, an unknown policy, or an expert that is not there or named twice.

    Examples
    --------
    >>> import fastgraph as fg
    >>> pool = fg.ExpertPool(8, budget=2)
    >>> pool.record([[6, 7], [7, 0]])
    >>> pool.target()
    [7, 0]
    >>> pool.record([6, 6])
    >>> pool.refresh()
    PoolChange(promotions=[6, 7], demotions=[0, 1])
    >>> pool.mask.tolist()
    [False, False, False, False, False, False, True, True]
    """

    __slots__ = (
        "_hits",
        "_mask",
        "_missed",
        "_reached",
        "_steps",
        "budget",
        "num_experts",
        "period",
        "policy",
    )

    def __init__(
        self,
        num_experts: int,
        budget: int,
        period: int | None = None,
        policy: str = "total",
        resident: Iterable[int] | None = None,
    ) -> None:
        self.num_experts = _whole("num_experts", num_experts, 1)
        self.budget = _whole("budget", budget, 0)
        if self.budget > self.num_experts:
            raise InputError(f"budget is {budget}; there are {num_experts} experts")
        self.period = None if period is None else _whole("period", period, 1)
        if policy not in POLICIES:
            raise InputError(f"policy is {policy!r}; {', '.join(map(repr, POLICIES))} are possible")
        self.policy = policy
        first = self._experts(range(self.budget) if resident is None else list(resident))
        if first.ndim != 1 or len(first) > self.budget or len(np.unique(first)) < len(first):
            raise InputError(
                f"resident is {resident!r}; at most {budget} different experts are needed"
            )
        self._hits = np.zeros(self.num_experts, np.int64)
        self._mask = np.zeros(self.num_experts, np.bool_)
        self._mask[first] = True
        self._steps = self._reached = self._missed = 0

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """ndarray of bool: for each expert whether it is resident; a copy."""
        return self._mask.copy()

    @property
    def resident(self) -> list[int]:
        """list of int: the resident experts, in order."""
        found: list[int] = np.flatnonzero(self._mask).tolist()
        return found

    @property
    def hits(self) -> _Array:
        """ndarray of int64: for each expert the hits that a refresh would go by; a copy."""
        return self._hits.copy()

    @property
    def hit_rate(self) -> float:
        """float: of all choices recorded, the share that met a resident expert; nan before any."""
        total = self._reached + self._missed
        return self._reached / total if total else float("nan")

    def record(self, ids: Any) -> None:
        """Count choices.

        Parameters
        ----------
        ids : array_like of int
            Of any shape: an array of `CompiledGraph.take_moe_topk_capture`, for example.

        Raises
        ------
        InputError
            No integers, or an expert that is not there; nothing was counted.

        Examples
        --------
        >>> import fastgraph as fg
        >>> pool = fg.ExpertPool(4, budget=2)
        >>> pool.record([1, 1, 0, 2])
        >>> pool.target()
        [1, 0]
        """
        counts = np.bincount(self._experts(ids).ravel(), minlength=self.num_experts)
        self.record_hits(counts)

    def record_hits(self, hits: Any) -> None:
        """Count choices that were counted by expert already.

        Parameters
        ----------
        hits : array_like of int
            One number for each expert.

        Raises
        ------
        InputError
            Another number of numbers, or one that is negative or no integer; nothing was counted.

        Examples
        --------
        >>> import fastgraph as fg
        >>> pool = fg.ExpertPool(5, budget=3)
        >>> pool.record_hits([10, 50, 30, 0, 50])
        >>> pool.target()
        [1, 4, 2]
        """
        counts = _integers("hits", hits)
        if counts.shape != (self.num_experts,) or (counts.size and counts.min() < 0):
            raise InputError(
                f"hits has shape {counts.shape}; a count from 0 on is needed for each of "
                f"{self.num_experts} experts"
            )
        self._hits += counts
        self._reached += int(counts[self._mask].sum())
        self._missed += int(counts[~self._mask].sum())

    def target(self) -> list[int]:
        """Return what a refresh would make resident.

        Returns
        -------
        list of int
            Experts with the most hits first, of equal ones the lower. Where fewer than the budget
            have any, resident ones stay, lower ones first.

        Examples
        --------
        >>> import fastgraph as fg
        >>> pool = fg.ExpertPool(4, budget=2, resident=[2, 3])
        >>> pool.record([1])
        >>> pool.target()
        [1, 2]
        """
        # What nobody has chosen comes last, and is not brought in.
        place = np.where(self._hits > 0, -self._hits, np.where(self._mask, 0, 1))
        order = np.argsort(place, kind="stable")
        found: list[int] = order[place[order] <= 0][: self.budget].tolist()
        return found

    def refresh(self) -> PoolChange:
        """Make resident what `target` says.

        Returns
        -------
        PoolChange
            Promotions in the order of `target`, demotions in that of their numbers.

        Examples
        --------
        >>> import fastgraph as fg
        >>> pool = fg.ExpertPool(4, budget=1)
        >>> pool.record([3])
        >>> pool.refresh()
        PoolChange(promotions=[3], demotions=[0])
        >>> pool.refresh()
        PoolChange(promotions=[], demotions=[])
        """
        target = self.target()
        mask = np.zeros_like(self._mask)
        mask[target] = True
        promotions = [expert for expert in target if not self._mask[expert]]
        demotions = np.flatnonzero(self._mask & ~mask).tolist()
        self._mask = mask
        if self.policy == "window":
            self._hits[...] = 0
        elif self.policy == "decay":
            self._hits //= 2
        return PoolChange(promotions, demotions)

    def step(self, ids: Any) -> PoolChange | None:
        """Count choices, and refresh in every `period`-th call.

        Parameters
        ----------
        ids : array_like of int
            As `record` takes them.

        Returns
        -------
        PoolChange or None
            None where it was not time to refresh.

        Raises
        ------
        InputError
            As `record`; the step does not count.

        Examples
        --------
        >>> import fastgraph as fg
        >>> pool = fg.ExpertPool(4, budget=1, period=2)
        >>> pool.step([3]), pool.step([3])
        (None, PoolChange(promotions=[3], demotions=[0]))
        """
        self.record(ids)
        self._steps += 1
        if self.period is None or self._steps % self.period:
            return None
        return self.refresh()

    def __repr__(self) -> str:
        return (
            f"<ExpertPool {self.budget} of {self.num_experts}, {self.policy}: "
            f"resident {self.resident}>"
        )

    def _experts(self, ids: Any) -> _Array:
        found = _integers("ids", ids)
        if ((found < 0) | (found >= self.num_experts)).any():
            wrong = found[(found < 0) | (found >= self.num_experts)].flat[0]
            raise InputError(
                f"expert {wrong} is out of range; there are 0 to {self.num_experts - 1}"
            )
        return found.astype(np.int64)


def _whole(what: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what} is {value!r}; a whole number from {least} on is needed")
    return int(value)


def _integers(what: str, array: Any) -> _Array:
    try:
        found = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is no array: {error}") from None
    if found.size and found.dtype.kind not in "iu":
        raise InputError(f"{what} is of {found.dtype.name}; integers are needed")
    return found if found.size else found.astype(np.int64)
