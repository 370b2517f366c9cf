"""Parameters of several models at once: set in all or none, held once where their bytes agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from fastgraph._core.buffer import Block, Buffer
from fastgraph._core.checks import as_array
from fastgraph._core.key import Key
from fastgraph.device.backend import named
from fastgraph.errors import InputError, OutOfMemoryError
from fastgraph.ir.graph import Value
from fastgraph.runtime.compiled import CompiledGraph
from fastgraph.runtime.identity import digest
from fastgraph.runtime.params import ParamSet, SetUp

__all__ = ["Member", "SharedParams"]

Array = np.ndarray[Any, np.dtype[Any]]
# What tells the bytes of a set value: its structure, and which values of its parameters.
Known = dict[tuple[Key, tuple[object, ...]], Block]


class Member:
    """A model whose parameters are set with those of others.

    Attributes
    ----------
    model : CompiledGraph
    title : str
        What messages call it.
    versions : dict of str to object
        For each parameter that has a value, what tells this value from others.
    params : ParamSet
        As they were left here; a model has others once its user has set one by itself.
    """

    def __init__(self, model: CompiledGraph, title: str) -> None:
        self.model = model
        self.title = title
        self.versions: dict[str, object] = {}
        self.params = model._params

    @property
    def setup(self) -> SetUp:
        """SetUp: where blocks belong."""
        return self.params.setup

    def look(self) -> None:
        """See to it that nothing is shared of what the model's user has set by himself."""
        if self.model._params is not self.params:
            self.params = self.model._params
            unset = set(self.params.unset)
            names = [name for name in self.setup.by_name if name not in unset]
            self.versions = {name: object() for name in names}

    def names(self, slot: int, versions: Mapping[str, object]) -> tuple[Key, tuple[object, ...]]:
        """What tells the bytes of a slot; KeyError where a parameter has no value."""
        needs = self.setup.needs[slot]
        return self.setup.keys[slot], tuple([versions[name] for name in needs])

    def found(self, known: Known, versions: Mapping[str, object]) -> dict[int, Block]:
        """The blocks among `known` that belong into slots of this model."""
        blocks = {}
        for slot, needs in enumerate(self.setup.needs):
            # Experts in memory of the host are a model's own: others read theirs on the device.
            if slot in self.params.in_host:
                continue
            if needs and all(name in versions for name in needs):
                block = known.get(self.names(slot, versions))
                if block is not None:
                    blocks[slot] = block
        return blocks

    def note(
        self, known: Known, blocks: Mapping[int, Block], versions: Mapping[str, object]
    ) -> None:
        """Let others find these blocks."""
        for slot, block in blocks.items():
            if slot not in self.params.in_host:
                known[self.names(slot, versions)] = block

    def blocks(self) -> dict[int, Block]:
        """What is held, by slot."""
        held = self.params.blocks
        return {i: block for i in range(len(held)) if (block := held.get(i)) is not None}


class SharedParams:
    """The parameters of a changing number of models. Its user holds a lock around every call.

    Models that are gone are forgotten.
    """

    def __init__(self) -> None:
        self._members: WeakSet[Member] = WeakSet()
        # Set before there was any model: nothing is known of their names and shapes.
        self._early: dict[str, Array] = {}
        self._versions: dict[str, object] = {}
        self._shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        # As they were given, for models to come.
        self._raw: dict[str, Block] = {}

    @property
    def members(self) -> list[Member]:
        """list of Member: those whose model is open."""
        return [member for member in self._members if not member.model.closed]

    @property
    def nbytes(self) -> int:
        """int: bytes of all blocks and arrays held, each counted once."""
        blocks = {id(block): block for block in self._raw.values()}
        for member in self.members:
            member.look()
            blocks.update({id(block): block for block in member.blocks().values()})
        early = sum(array.nbytes for array in self._early.values())
        return early + sum(block.nbytes for block in blocks.values())

    def constants(self) -> dict[Key, Block]:
        """Return what the models hold that depends on no parameter."""
        found = {}
        for member in self.members:
            for slot, block in member.blocks().items():
                if not member.setup.needs[slot]:
                    found[member.setup.keys[slot]] = block
        return found

    def add(self, member: Member, initial: Mapping[str, Array]) -> None:
        """Give a new model the parameters that were set, and for the rest its `initial` ones.

        Raises
        ------
        InputError
            What was set does not fit the model, which is not added then.
        """
        by_name, params = member.setup.by_name, member.setup.params
        arrays: dict[Value, Array | None] = {}
        versions: dict[str, object] = {}
        known: Known = {}
        for other in self.members:
            other.look()
            other.note(known, other.blocks(), other.versions)
        early = checked(member, self._early)
        for name, version in self._versions.items():
            value = params[by_name[name]] if name in by_name else None
            if value is None or (value.shape, value.dtype) != self._shapes[name]:
                shape, dtype = self._shapes[name]
                has = "has no such parameter" if value is None else f"takes {value!r}"
                raise InputError(
                    f"parameter {name!r} was set to {dtype}{list(shape)}, for all models; "
                    f"{member.title} {has}"
                )
            arrays[value], versions[name] = None, version
        for value, array in early.items():
            arrays[value], versions[value.name] = array, object()
        for name, array in initial.items():
            if name not in versions:
                arrays[params[by_name[name]]] = array
                versions[name] = digest(array)
        if arrays:
            common = member.found(known, versions)
            for name, block in self._raw.items():
                common[member.setup.slot_of[params[by_name[name]]]] = block
            raw = self._as_given(member, early)
            common |= {member.setup.slot_of[params[by_name[n]]]: block for n, block in raw.items()}
            found, made = member.params.replaced(arrays, common)
            member.model._locked(lambda: member.model._take(found, made))
            member.params, member.versions = found, versions
            self._note(early, versions, raw)
            self._early = {}
        self._members.add(member)

    def set(self, arrays: Mapping[str, Any], complete: bool) -> None:
        """Set parameters in all models or none; `complete`: no model will be added any more."""
        members = self.members
        if not members:
            self._early |= {name: copied(name, array) for name, array in arrays.items()}
            return
        all_checked = [checked(member, arrays) for member in members]
        raw = {} if complete else self._as_given(members[0], all_checked[0])
        fresh: dict[str, object] = {str(name): object() for name in arrays}
        known: Known = {}
        changes = []
        for member, arrays_of in zip(members, all_checked, strict=True):
            member.look()
            versions = member.versions | fresh
            common = member.found(known, versions)
            for name, block in raw.items():
                common[member.setup.slot_of[member.setup.params[member.setup.by_name[name]]]] = (
                    block
                )
            found, made = member.params.replaced(arrays_of, common)
            member.note(known, made, versions)
            changes.append((member, found, made, versions))
        _together([member for member, *_ in changes], lambda: _take_all(changes))
        self._note(all_checked[0], fresh, raw)

    def complete(self) -> None:
        """Let go of what is kept for models to come."""
        self._raw.clear()

    def _as_given(self, member: Member, arrays: Mapping[Value, Array]) -> dict[str, Block]:
        blocks = {}
        for value, array in arrays.items():
            try:
                blocks[value.name] = member.setup.code.block_of(array)
            except OutOfMemoryError as error:
                raise named(error, f"parameter {value.name!r}") from None
        return blocks

    def _note(
        self, arrays: Iterable[Value], versions: Mapping[str, object], raw: Mapping[str, Block]
    ) -> None:
        for value in arrays:
            self._versions[value.name] = versions[value.name]
            self._shapes[value.name] = value.shape, value.dtype
        self._raw.update(raw)


def copied(name: str, array: Any) -> Array:
    """Return a copy on the host of what is to be set later."""
    if isinstance(array, Buffer):
        return array.numpy()
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise InputError(f"parameter {name!r} is a {type(array).__name__}; an array is needed")
    return np.array(as_array(f"parameter {name!r}", array, array.shape, array.dtype))


def checked(member: Member, arrays: Mapping[str, Any]) -> dict[Value, Array]:
    """Return dense arrays by parameter of a model; InputError names the model too."""
    try:
        return member.model._params.check(arrays)
    except InputError as error:
        raise InputError(f"{member.title}: {error}") from None


def _together(members: list[Member], work: Callable[[], None]) -> None:
    """Call `work` while no model of these runs."""
    if not members:
        return work()
    return members[0].model._locked(lambda: _together(members[1:], work))


Change = tuple[Member, ParamSet, dict[int, Block], dict[str, object]]


def _take_all(changes: list[Change]) -> None:
    """Let models have their new parameters; where one cannot, the others have the old ones."""
    done = []
    try:
        for member, found, made, _ in changes:
            done.append((member, member.blocks()))
            member.model._take(found, made)
    except BaseException:
        for member, before in reversed(done[:-1]):
            member.model._take(member.params, before)
        raise
    for member, found, _, versions in changes:
        member.params, member.versions = found, versions
