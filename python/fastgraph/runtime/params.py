"""Parameters of a compiled graph: checked, copied, and put through the set program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from fastgraph._core.buffer import Block
from fastgraph._core.checks import as_array, describe
from fastgraph._core.key import Key
from fastgraph._core.params import ParamBlocks
from fastgraph.device.backend import named
from fastgraph.errors import CompileError, InputError, OutOfMemoryError
from fastgraph.ir.graph import Value
from fastgraph.lower.storage import nbytes_of
from fastgraph.runtime.identity import key_of_value
from fastgraph.runtime.side import Code

__all__ = ["ParamSet", "SetUp"]


class SetUp:
    """The set program made ready, shared by a model and its clones; holds no parameter.

    A parameter whose bytes no run reads, and which no set result shares with another parameter, is
    not kept once its results are made: `transient`. `fixed` says of names why they are no
    parameters; `kept` names those that programs for extents may read themselves. `known` are blocks
    of others, by `key_of_value`: those of the same constants are shared.
    """

    def __init__(
        self,
        code: Code,
        fixed: Mapping[str, str] | None = None,
        known: Mapping[Key, Block] | None = None,
        kept: Collection[str] = (),
    ) -> None:
        self.code = code
        self.program = program = code.program
        setup = program.setup
        self.fixed = dict(fixed or {})
        self.params = list(program.graph.params)
        self.by_name = {value.name: i for i, value in enumerate(self.params)}
        self.slots = list(dict.fromkeys((*self.params, *program.blocks, *setup.leaves)))
        self.slot_of = {value: i for i, value in enumerate(self.slots)}
        joint = [need for need in setup.needs.values() if len(need) > 1]
        shared = frozenset().union(*joint)
        self.transient = {
            value
            for value in self.params
            if value not in program.blocks and value not in shared and value.name not in kept
        }
        self.constant_blocks = self._make_constants(known or {})

    @cached_property
    def keys(self) -> list[Key]:
        """list of Key: by slot, what tells its bytes from others for each choice of parameters."""
        return [key_of_value(value) for value in self.slots]

    @cached_property
    def needs(self) -> list[tuple[str, ...]]:
        """list of tuple of str: by slot, the parameters that its bytes depend on."""
        needs = self.program.setup.needs
        return [
            (value.name,)
            if value.node.op == "param"
            else tuple(sorted(need.name for need in needs.get(value, ())))
            for value in self.slots
        ]

    def _make_constants(self, known: Mapping[Key, Block]) -> dict[int, Block]:
        """The blocks of constants and of what depends on them alone, as far as they stay needed."""
        setup = self.program.setup
        shared = {i: known[key] for i, key in enumerate(self.keys) if key in known} if known else {}
        blocks = {
            self.slot_of[value]: shared.get(self.slot_of[value])
            or _block_of(
                self.code,
                f"constant {value.name!r}",
                np.ascontiguousarray(value.node.attrs["value"]),
            )
            for value in self.slots
            if value.node.op == "constant"
        }
        fixed = [result for result, need in setup.needs.items() if not need]
        made = {
            self.slot_of[value]: shared[self.slot_of[value]]
            for value in fixed
            if self.slot_of[value] in shared
        }
        missing = [value for value in fixed if self.slot_of[value] not in made]
        made |= self.run(missing, lambda value: blocks[self.slot_of[value]], ())
        if len(fixed) == len(setup.needs):
            blocks = {i: b for i, b in blocks.items() if self.slots[i] in self.program.blocks}
        return {**blocks, **made}

    def run(self, results: list[Value], leaf: Any, given: Collection[Value]) -> dict[int, Block]:
        """Compute `results` into new blocks, see `_run`; OutOfMemoryError says what they are."""
        try:
            return self._run(results, leaf, given)
        except OutOfMemoryError as error:
            names = ", ".join(repr(value.name) for value in given)
            of = f"parameter{'s' if len(given) > 1 else ''} {names}" if given else "the constants"
            raise named(error, f"what is computed of {of}") from None

    def _run(self, results: list[Value], leaf: Any, given: Collection[Value]) -> dict[int, Block]:
        """Compute `results` into new blocks; `leaf(value)` gives the block of a leaf.

        Raises
        ------
        InputError
            A node met bad data in or by the parameters `given`; nothing is kept.
        CompileError
            The same in constants alone.
        """
        setup = self.program.setup
        if not results:
            return {}
        allocate = self.code.allocate
        made = {value: allocate(nbytes_of(value)) for value in results}
        bindings: dict[int, Block] = {0: allocate(setup.arena_nbytes)}
        nodes = sorted({i for value in results for i in setup.nodes[value]})
        used = {op.memory for i in nodes for op in setup.record.nodes[i].operands}
        for value, memory in setup.leaves.items():
            if memory in used:
                bindings[memory] = leaf(value)
        for value, memory in setup.results.items():
            if memory in used:
                # A result that another result is computed from is made anew beside it.
                bindings[memory] = made[value] if value in made else allocate(nbytes_of(value))
        faulty = self.code.run_set(setup, bindings, nodes)
        if faulty is not None:
            self._raise_fault(faulty, results, given)
        return {self.slot_of[value]: block for value, block in made.items()}

    def _raise_fault(
        self, faulty: int, results: Sequence[Value], given: Collection[Value]
    ) -> NoReturn:
        """Tell of the node that met bad data, and by what."""
        setup = self.program.setup
        node = setup.record.nodes[faulty]
        where = f"node {node.name!r} ({node.label or node.kind})"
        needs = [setup.needs[r] for r in results if faulty in setup.nodes[r]]
        concerned = [value for value in given if any(value in need for need in needs)]
        if not concerned:
            raise CompileError(
                f"{where} meets an index out of range in the graph's constants"
            ) from None
        names = ", ".join(repr(value.name) for value in concerned)
        raise InputError(
            f"parameter{'s' if len(concerned) > 1 else ''} {names}: {where} "
            "met an index out of range while they were set; no parameter has changed"
        ) from None


def _block_of(code: Code, what: str, array: np.ndarray[Any, Any], lent: bool = False) -> Block:
    try:
        return code.lend(array) if lent else code.block_of(array)
    except OutOfMemoryError as error:
        raise named(error, what) from None


def _in_host(code: Code, value: Value, source: np.ndarray[Any, Any] | Block) -> Block:
    try:
        return code.in_host(source)
    except OutOfMemoryError as error:
        what = f"a copy in pinned memory of {value.name or value.node.name!r}"
        raise named(error, what) from None


class ParamSet:
    """The parameters of one model: what is set, and the blocks that a run reads. Never changed."""

    def __init__(
        self,
        setup: SetUp,
        blocks: ParamBlocks | None = None,
        is_set: set[Value] | None = None,
        in_host: frozenset[int] = frozenset(),
    ) -> None:
        self.setup = setup
        self.is_set: set[Value] = set() if is_set is None else is_set
        # Slots whose blocks are in memory of the host that the device reaches.
        self.in_host = in_host
        if blocks is None:
            blocks = ParamBlocks(len(setup.slots))
            blocks.replace(setup.constant_blocks)
        self.blocks = blocks

    @property
    def unset(self) -> list[str]:
        """list of str: parameters without a value, in declared order."""
        return [value.name for value in self.setup.params if value not in self.is_set]

    def block(self, value: Value) -> Block | None:
        """Return the block of a parameter, constant or set result, None where none was set."""
        return self.blocks.get(self.setup.slot_of[value])

    def check(self, arrays: Mapping[str, Any]) -> dict[Value, np.ndarray[Any, Any]]:
        """Return dense arrays by parameter, or raise InputError; nothing is kept."""
        checked = {}
        setup = self.setup
        for name, array in arrays.items():
            if name not in setup.by_name:
                raise InputError(self._no_parameter(name))
            value = setup.params[setup.by_name[name]]
            what = f"parameter {name!r}"
            found = as_array(what, setup.code.to_host(what, array), value.shape, value.dtype)
            if found.dtype != value.dtype or found.shape != value.shape:
                raise InputError(
                    f"parameter {name!r} was given {describe(found.shape, found.dtype)}; it is "
                    f"declared {describe(value.shape, value.dtype)}; nothing is cast or broadcast"
                )
            checked[value] = np.require(found, requirements=["C"])
        return checked

    def _no_parameter(self, name: Any) -> str:
        setup = self.setup
        if name in setup.fixed:
            return f"{name!r} {setup.fixed[name]}"
        graph = setup.program.graph
        has = f"the parameters are {list(setup.by_name)}"
        if any(name == value.name for value in graph.inputs):
            return f"{name!r} is an input, which every run is given; {has}"
        if any(name == value.name for value in graph.scalars):
            return f"{name!r} is a scalar, which runs take by keyword; {has}"
        return f"the graph has no parameter {name!r}; it has {list(setup.by_name)}"

    def replaced(
        self,
        arrays: Mapping[Value, np.ndarray[Any, Any] | None],
        common: Mapping[int, Block] | None = None,
    ) -> tuple[ParamSet, dict[int, Block]]:
        """Return the set that has these parameters too, and its new blocks by slot.

        Results whose parameters are not all set are left out. This set stays as it was. What is in
        `common`, by slot, is taken from there: a parameter that is needs no array.
        """
        setup = self.setup
        needs = setup.program.setup.needs
        common = common or {}

        def given(value: Value) -> Block:
            found = common.get(setup.slot_of[value])
            if found is not None:
                return found
            array = arrays[value]
            if array is None:
                raise InputError(
                    f"parameter {value.name!r} is not kept as it was given; set it again"
                )
            if setup.slot_of[value] in self.in_host:
                return _in_host(setup.code, value, array)
            # Kernels read whole elements, which in a file may begin anywhere.
            lent = value in setup.transient and array.flags.aligned
            return _block_of(setup.code, f"parameter {value.name!r}", array, lent)

        kept = {value: given(value) for value in arrays if value not in setup.transient}
        known = self.is_set | set(arrays)
        results = [r for r, need in needs.items() if need & set(arrays) and need <= known]
        made = {
            setup.slot_of[r]: common[setup.slot_of[r]]
            for r in results
            if setup.slot_of[r] in common
        }

        def leaf(value: Value) -> Block:
            if value in kept:
                return kept[value]
            if value in arrays:
                kept[value] = given(value)
                return kept[value]
            block = self.block(value)
            assert block is not None
            return block

        missing = [r for r in results if setup.slot_of[r] not in made]
        made |= setup.run(missing, leaf, arrays)
        made.update(
            {setup.slot_of[v]: block for v, block in kept.items() if v not in setup.transient}
        )
        for slot in self.in_host & made.keys():
            made[slot] = _in_host(setup.code, setup.slots[slot], made[slot])
        other = ParamSet(setup, self.blocks.share(), known, self.in_host)
        other.blocks.replace(made)
        return other, made

    def moved_to_host(self, values: Collection[Value]) -> tuple[ParamSet, dict[int, Block]]:
        """Return the set with the blocks of these in memory of the host, and these by slot."""
        setup = self.setup
        made = {}
        for value in values:
            slot, block = setup.slot_of[value], self.block(value)
            if slot not in self.in_host and block is not None:
                made[slot] = _in_host(setup.code, value, block)
        in_host = self.in_host | {setup.slot_of[value] for value in values}
        other = ParamSet(setup, self.blocks.share(), self.is_set, in_host)
        other.blocks.replace(made)
        return other, made
