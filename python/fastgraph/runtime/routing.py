"""What one model was told of its experts, and where its kernels note which they use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastgraph._core.buffer import Block
from fastgraph.device.backend import named
from fastgraph.errors import InputError, OutOfMemoryError, UnsupportedError
from fastgraph.lower.program import TapPlace
from fastgraph.lower.taps import WORD, counts_nbytes, indices_nbytes
from fastgraph.runtime.side import Code

if TYPE_CHECKING:
    from fastgraph.runtime.moe import Routed
    from fastgraph.runtime.params import ParamSet

__all__ = ["ResidencyStats", "Routing"]

_Array = np.ndarray[Any, np.dtype[Any]]
Masks = tuple[_Array, ...]


class ResidencyStats(NamedTuple):
    """What runs have used of their experts, resident ones (gpu) and others (cpu).

    A product of a run counts each expert that it has rows for as one call, and these rows as
    tokens.
    """

    gpu_expert_calls: int
    cpu_expert_calls: int
    gpu_tokens: int
    cpu_tokens: int


@dataclass
class Note:
    """A tap to which a model listens, and what was in it when that was read last."""

    place: TapPlace
    block: Block
    read: Callable[[], _Array]
    seen: _Array


class Routing:
    """The masks of one model, its counters, and the indices that it captures.

    What changes anything is called with the model's lock.
    """

    def __init__(self, code: Code, title: str) -> None:
        self.code = code
        self.title = title
        self.masks: Masks | None = None
        self.number: int | None = None
        self._residence: Any = None
        self._counters: list[Note] = []
        self._routers: list[Note] = []
        self._totals = np.zeros((2, 2), np.int64)

    @property
    def told(self) -> tuple[Masks | None, int | None]:
        """The masks, by product, and whose `top_k` are captured."""
        return self.masks, self.number

    # ---- masks

    def check_mask(self, mask: Any) -> Masks:
        """Return one mask by product, or raise; nothing has changed."""
        found = _as_mask("the mask", mask)
        return tuple([_fitting("the mask", found, place) for place in self._products()])

    def check_masks(self, masks: Any) -> Masks:
        """Return masks given by layer by product, or raise; nothing has changed."""
        products = self._products()
        count = 1 + max(place.tap.layer for place in products)
        if isinstance(masks, str | bytes) or not hasattr(masks, "__len__"):
            raise InputError(
                f"masks are {type(masks).__name__}; a sequence of {count} masks is needed, one a "
                "layer"
            )
        if len(masks) != count:
            raise InputError(
                f"{len(masks)} masks were given; {self.title} has layers numbered up to "
                f"{count - 1}, so {count} are needed"
            )
        used = {place.tap.layer for place in products}
        found: dict[int, _Array] = {}
        for layer, mask in enumerate(masks):
            what = f"the mask of layer {layer}"
            if layer in used:
                found[layer] = _as_mask(what, mask)
            elif mask is not None:
                raise InputError(
                    f"{what}: {self.title} has no grouped_matmul of that layer; give None for it"
                )
        return tuple([
            _fitting(f"the mask of layer {place.tap.layer}", found[place.tap.layer], place)
            for place in products
        ])  # fmt: skip

    def set_masks(self, model: Routed, masks: Masks) -> None:
        """Let later runs go by these masks, and what earlier ones counted by theirs."""
        if self.masks is None:
            self._begin(model, masks)
            return
        move = None
        if self._residence is not None:
            move = self._residence.prepare(model._params, masks)
        _settle(model)
        self._count()
        self.follow(model, move)
        self.masks = masks

    def _begin(self, model: Routed, masks: Masks) -> None:
        """Count from now on; on a device, let experts be where the masks say."""
        products = self._products()
        notes = [self._note(place, counts_nbytes(place.tap.experts)) for place in products]
        residence = self.code.residence(products, self.title)
        params, places = model._params, []
        if residence is not None:
            params, moved = params.moved_to_host(residence.values)
            move = residence.prepare(params, masks, frozenset(residence.values.values()))
            residence.make(move)
            residence.stream.synchronize()
            slots, blocks = params.setup.slots, self.code.program.blocks
            places = [(blocks[slots[slot]], block) for slot, block in moved.items()]
            places += residence.places
        model._adopt(params, [*places, *_bound(notes)], params.unset)
        self._counters, self._residence, self.masks = notes, residence, masks

    def prepare(self, params: ParamSet, made: Mapping[int, Block]) -> Any:
        """Return what `follow` does once a model has these parameters, of which `made` are new."""
        if self._residence is None or self.masks is None:
            return None
        slots, values = params.setup.slots, self._residence.values
        changed = frozenset(values[slots[slot]] for slot in made if slots[slot] in values)
        return self._residence.prepare(params, self.masks, changed) if changed else None

    def follow(self, model: Routed, move: Any) -> None:
        """Move experts; no run is under way, and the next one comes after that."""
        if move is None:
            return
        self._residence.make(move)
        # Behind the model's own stream is every run, also of an executable that is yet to be made.
        model.stream.wait_for(self._residence.stream)
        model.stream.mark()
        if model.executable is not None:
            model.executable.begin(model.stream)

    def take_stats(self, model: Routed) -> ResidencyStats | None:
        """Return what was counted since this was last called."""
        if self.masks is None:
            return None
        _settle(model)
        self._count()
        if not self._totals.any():
            return None
        (gpu_calls, gpu_tokens), (cpu_calls, cpu_tokens) = self._totals.tolist()
        self._totals[...] = 0
        return ResidencyStats(gpu_calls, cpu_calls, gpu_tokens, cpu_tokens)

    def _count(self) -> None:
        """Add to the totals what the taps have counted since they were read."""
        for note, mask in zip(self._counters, self.masks or (), strict=True):
            words = note.read()
            new = (words - note.seen)[2:].reshape(2, -1).astype(np.int64)
            note.seen = words
            resident = new @ mask
            self._totals += (resident, new.sum(1) - resident)

    def _products(self) -> list[TapPlace]:
        places = [place for place in self.code.program.taps if place.tap.kind == "counts"]
        if not places:
            raise UnsupportedError(
                f"{self.title} has no grouped_matmul that a run computes, so no experts"
            )
        self.code.check_experts(places)
        for place in places:
            if place.weight is None:
                raise UnsupportedError(
                    f"the experts of {_where(place)} are no parameters: a run is given or computes "
                    "them, so none can be resident"
                )
        return places

    # ---- routers

    def check_routers(self, number: Any) -> list[TapPlace]:
        """Return what chooses among so many, by layer, or raise."""
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise InputError(f"num_experts is {number!r}; a whole number from 1 on is needed")
        routers = [place for place in self.code.program.taps if place.tap.kind == "indices"]
        found = [place for place in routers if place.tap.experts == number]
        if not found:
            sizes = sorted({place.tap.experts for place in routers})
            raise UnsupportedError(
                f"{self.title} has no top_k over an axis of {number} elements; "
                + (f"it has some over {sizes}" if sizes else "it has none")
            )
        return sorted(found, key=lambda place: place.tap.layer)

    def capture(self, model: Routed, number: int, places: Sequence[TapPlace]) -> None:
        """Let later runs keep the indices of these."""
        if number == self.number:
            return
        notes = [
            self._note(place, indices_nbytes(place.tap.node.outputs[1].size)) for place in places
        ]
        quiet = [(note.place.memory, self.code.nothing) for note in self._routers]
        listening = dict([*quiet, *_bound(notes)])
        model._adopt(model._params, list(listening.items()), model._params.unset)
        self._routers = notes
        self.number = number

    def take_indices(self, model: Routed) -> tuple[_Array, ...] | None:
        """Return what the routers of the last run have chosen, once."""
        found, new = [], False
        if self._routers:
            _settle(model)
        for note in self._routers:
            words = note.read()
            new = new or words[1] != note.seen[1]
            note.seen = words
            node = note.place.tap.node
            shape = model._shape_in_run(node.name, 1, node.outputs[1].shape)
            indices = words[2:].view(np.uint32)[: math.prod(shape)]
            found.append(indices.reshape(shape).copy())
        return tuple(found) if new else None

    # ---- taps

    @property
    def places(self) -> list[tuple[int, Block]]:
        """list of (int, Block): where the taps lie that are more than nothing."""
        tables = [] if self._residence is None else self._residence.places
        return [*tables, *_bound([*self._counters, *self._routers])]

    def _note(self, place: TapPlace, nbytes: int) -> Note:
        try:
            block = self.code.tap(nbytes)
        except OutOfMemoryError as error:
            raise named(error, f"the {place.tap.title} in", self.title) from None
        return Note(place, block, self.code.reader(block), np.zeros(nbytes // WORD, np.uint64))


def _settle(model: Routed) -> None:
    """Let all runs that were handed in be over; raises what they met."""
    model._adopt(model._params, [], model._params.unset)


def _bound(notes: Sequence[Note]) -> list[tuple[int, Block]]:
    return [(note.place.memory, note.block) for note in notes]


def _where(place: TapPlace) -> str:
    return f"{place.tap.node.name!r} ({place.tap.node.site})"


def _as_mask(what: str, mask: Any) -> _Array:
    try:
        found = np.array(mask)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is no sequence of bools: {error}") from None
    if found.ndim != 1 or found.dtype != np.bool_:
        raise InputError(
            f"{what} is {found.dtype.name}{list(found.shape)}; bools in one axis are needed, True "
            "for each expert that is resident"
        )
    return found


def _fitting(what: str, mask: _Array, place: TapPlace) -> _Array:
    if len(mask) != place.tap.experts:
        raise InputError(
            f"{what} is of {len(mask)} experts; {_where(place)}, layer {place.tap.layer}, has "
            f"{place.tap.experts}"
        )
    return mask
