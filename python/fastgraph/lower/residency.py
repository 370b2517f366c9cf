"""What a run keeps in memory of its own from one to the next: handles on inputs, and feeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["NOTHING", "FeedSpec", "Residency"]


@dataclass(frozen=True)
class FeedSpec:
    """One output on its way into the handle of one input.

    Attributes
    ----------
    handle, output : int
        Numbers of the input and of the output.
    in_place : bool
        The output is computed where the handle lies.
    scalar, input : int or None
        The number of the scalar or input that tells the first row; None where all rows are written.
    ring : bool
        Rows past the last are the first ones.
    """

    handle: int
    output: int
    in_place: bool = False
    scalar: int | None = None
    input: int | None = None
    ring: bool = False

    @property
    def is_located(self) -> bool:
        """bool: a run tells the first row."""
        return self.scalar is not None or self.input is not None


@dataclass(frozen=True)
class Residency:
    """Which inputs a run reads where they lie on the device, and what it feeds into handles."""

    inputs: frozenset[int] = frozenset()
    feeds: tuple[FeedSpec, ...] = ()

    def copying(self, pairs: set[tuple[int, int]]) -> Residency:
        """Return the same where feeds of these (handle, output) are not in place."""
        feeds = [
            replace(feed, in_place=feed.in_place and (feed.handle, feed.output) not in pairs)
            for feed in self.feeds
        ]
        return Residency(self.inputs, tuple(feeds))


NOTHING = Residency()
