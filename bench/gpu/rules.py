"""What the driver takes and refuses, call by call: the rules that a fake driver keeps.

A finding's name says in its own words what was tried. `PLACES` turns it into the call and the case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CALLS", "placed", "rules"]

# The lists of the document, and which calls each tells about.
CALLS = {
    "rules_build": "building",
    "rules_instantiate": "instantiating",
    "rules_update": "updating",
    "rules_launch": "launching and copying",
    "rules_host": "in a host node",
    "rules_poisoned": "after an illegal address",
    "rules_forked": "in a forked child",
}

BUILD, INSTANTIATE, UPDATE, LAUNCH, HOST, POISONED, FORKED = CALLS.values()
PARAMS, ATTRIBUTE = "cuGraphExecNodeSetParams", "cuGraphKernelNodeSetAttribute"
RUN = "cuGraphLaunch"

# Probe, pattern of the finding's name, list, call, case; the first that matches counts. Without a
# list the finding is no rule: it says that something worked which is told elsewhere.
PLACES: tuple[tuple[str, str, str | None, str, str], ...] = (
    (r"batched_copies", r"8 x .*", None, "", ""),
    (r"\w+", r".*: run", None, "", ""),
    (r"programmatic_edges", r"(.*->.*): add", BUILD, "cuGraphAddNode", r"programmatic edge \1"),
    (r"programmatic_edges", r"(.*->.*): instantiate", INSTANTIATE, "", r"programmatic edge \1"),
    (r"attributes", r"(.*): instantiate", INSTANTIATE, "", r"\1"),
    (r"\w+", r"(.*): add", BUILD, "cuGraphAddNode", r"\1"),
    (r"\w+", r"(.*): instantiate", INSTANTIATE, "", r"\1"),
    (r"\w+", r"(.*): attribute", BUILD, ATTRIBUTE, r"\1"),
    (
        r"conditional_rules",
        r"(.*): second live instantiation",
        INSTANTIATE,
        "",
        r"\1: while its first executable lives",
    ),
    (r"conditional_rules", r"(.*): instantiation (.*)", INSTANTIATE, "", r"\1: \2"),
    (r"conditional_rules", r"(.*): instantiate (.*)", INSTANTIATE, "", r"\1: \2"),
    (r"conditional_rules", r"(.*): (GraphClone)", BUILD, r"cu\2", r"\1"),
    (r"conditional_rules", r"(.*): (GraphDestroy) (.*)", BUILD, r"cu\2", r"\1: \3"),
    (r"conditional_rules", r"(GraphDestroyNode) of (.*)", BUILD, r"cu\1", r"\2"),
    (r"conditional_rules", r"(.*): ExecUpdate (.*)", UPDATE, "cuGraphExecUpdate", r"\1: \2"),
    (r"conditional_rules", r"(.*): launch (.*)", LAUNCH, RUN, r"\1: \2"),
    (r"conditional_rules", r"(.*): child node, (.*)", BUILD, "cuGraphAddNode", r"\1: child, \2"),
    (
        r"conditional_rules",
        r"(.*): moved a second time",
        BUILD,
        "cuGraphAddNode",
        r"\1: child, moved a second time",
    ),
    (r"conditional_rules", r"(an edge .*)", BUILD, "cuGraphAddNode", r"\1"),
    (r"dependency_rules", r"(Add\w+), (.*)", BUILD, r"cuGraph\1", r"\2"),
    (r"launch_rules", r"AddNode, (.*)", BUILD, "cuGraphAddNode", r"\1"),
    (r"launch_rules", r"launch (?:on|of) (.*)", LAUNCH, RUN, r"\1"),
    (
        r"launch_rules|batched_copies",
        r"(\w+) ((?:\w+ )?(?:on|of|after) .*)",
        LAUNCH,
        r"cu\1",
        r"\2",
    ),
    (r"update_rules", r"NodeSetEnabled off: (.*)", UPDATE, "cuGraphNodeSetEnabled", r"off: \1"),
    (r"update_rules", r"(.*)", UPDATE, PARAMS, r"\1"),
    (r"attributes", r"(.*): KernelNodeSetAttribute (.*)", UPDATE, ATTRIBUTE, r"\1: \2"),
    (r"attributes", r"(.*): ExecUpdate,? (.*)", UPDATE, "cuGraphExecUpdate", r"\1: \2"),
    (r"attributes", r"(.*): (\w+)((?: \w+)?)", UPDATE, r"cuGraph\2", r"\1:\3"),
    (r"body_updates", r"(GraphNodeSetParams) (.*)", UPDATE, r"cu\1", r"\2"),
    (r"body_updates", r"(\w+),? (.*)", UPDATE, r"cuGraph\1", r"in a body: \2"),
    (r"body_updates", r"(\w+)", UPDATE, r"cuGraph\1", r"in a body"),
    (r"host_nodes", r"in a host node: (\w+)", HOST, r"cu\1", ""),
    (r"host_nodes", r"the stream after .*", None, "", ""),
    (r"poisoned_context", r"launch of the faulty graph", None, "", ""),
    (r"poisoned_context", r"poisoned: the (\w+) that finds it", POISONED, r"cu\1", "finds it"),
    (r"poisoned_context", r"poisoned: (\w+)", POISONED, r"cu\1", ""),
    (r"forked_child", r"forked child: (\w+)", FORKED, r"cu\1", ""),
    (r"forked_child", r"the parent's launch.*", None, "", ""),
)


@dataclass(frozen=True)
class Rule:
    """A call in a certain case, of one of the lists; no list where it is no rule."""

    list: str | None
    call: str
    case: str


def placed(probe: str, name: str) -> Rule:
    """The rule that a finding is.

    Raises
    ------
    KeyError
        No pattern knows the name: `PLACES` is behind the probes.
    """
    for of_probe, pattern, list_, call, case in PLACES:
        if re.fullmatch(of_probe, probe) and (match := re.fullmatch(pattern, name)):
            spelt = match.expand(call) or "cuGraphInstantiate"
            return Rule(list_, spelt, match.expand(case).strip(" :"))
    raise KeyError(f"{probe}: no call is known for the finding {name!r}")


def _all(records: Mapping[str, Any]) -> Iterator[tuple[Rule, Mapping[str, Any]]]:
    for probe, record in records.items():
        for finding in record["findings"]:
            if finding["unit"] == "accepted":
                yield placed(probe, finding["name"]), finding


def rules(
    title: str, records: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], str]
) -> dict[str, Any]:
    """The list of that title: a row for each refusal, and below what was taken, call by call."""
    refused: dict[tuple[str, str], list[str]] = {}
    taken: dict[str, list[str]] = {}
    for rule, finding in _all(records):
        if rule.list != title:
            continue
        if finding["value"]:
            taken.setdefault(rule.call, []).append(rule.case)
        else:
            refused.setdefault((rule.case, answer(finding)), []).append(f"`{rule.call}`")
    rows = [[", ".join(calls), case, word] for (case, word), calls in refused.items()]
    rows.sort(key=lambda row: row[0])
    notes = [
        f"taken: `{call}`" + (f" – {'; '.join(_paired(cases))}" if any(cases) else "")
        for call, cases in sorted(taken.items())
    ]
    head = ["call", "case", "answer"]
    return {"head": head, "left": 3, "cells": rows, "goals": [], "notes": notes}


def _paired(cases: list[str]) -> list[str]:
    """The cases, with what holds both in a body and outside told once."""
    inside, outside = ", in a body", ", outside"
    both = {case.removesuffix(inside) for case in cases if case.endswith(inside)}
    both &= {case.removesuffix(outside) for case in cases if case.endswith(outside)}
    told = []
    for case in cases:
        name = case.removesuffix(inside)
        if name in both:
            told.append(f"{name}, in a body and outside")
        elif case.removesuffix(outside) not in both:
            told.append(case)
    return told
