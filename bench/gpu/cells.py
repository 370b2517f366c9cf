"""Cells of the document's tables: text in which findings stand in braces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from bench.outcome import microseconds

__all__ = ["FACTS", "Probes", "Table", "answer", "cell", "expanded"]

FACTS = ["fact", "seen", "so"]

# Findings by probe and name.
Probes = Mapping[str, Mapping[str, Mapping[str, Any]]]

PLACE = re.compile(r"\{([^{}]+)\}")
TIME = re.compile(r"([\d.]+) us\b")
CHOICE = re.compile(r"\[([^\[\]]+)\]")
BYTES = {"B": "", "B/node": " a node", "B/executable": " an executable"}


@dataclass(frozen=True)
class Table:
    """A table; names in braces without a probe are of `probe`. Columns after `left` are numbers."""

    probe: str
    head: list[str]
    rows: list[tuple[str, ...]]
    left: int | None = None


def expanded(pattern: str) -> Iterator[str]:
    """The names that a pattern with choices stands for: ``a [1/2]`` is ``a 1`` and ``a 2``."""
    parts = CHOICE.split(pattern)
    for chosen in product(*(part.split("/") for part in parts[1::2])):
        names = zip(parts[::2], [*chosen, ""], strict=True)
        yield "".join(text + choice for text, choice in names)


def cell(template: str, probes: Probes, default: str) -> str:
    """`template` with the findings that its braces name.

    ``{name}`` is a finding of the table's probe, ``{probe|name}`` one of another; ``[a/b]`` in a
    name gives several values, or one answer if all are alike; ``{name ÷ name}`` and
    ``{name − name}`` compute; ``{name!note}`` is the finding's note.

    Raises
    ------
    KeyError
        There is no such finding.
    ValueError
        The driver's answers differ where one is to stand for all.
    """

    def look_up(reference: str) -> list[Mapping[str, Any]]:
        probe, _, pattern = reference.rpartition("|")
        of_probe = probes[probe or default]
        return [of_probe[name] for name in expanded(pattern)]

    def value(match: re.Match[str]) -> str:
        inner = match[1]
        if inner.endswith("!note"):
            (finding,) = look_up(inner.removesuffix("!note"))
            return TIME.sub(lambda time: f"{microseconds(float(time[1]))} µs", finding["note"])
        for sign in "÷−":
            left, found, right = inner.partition(f" {sign} ")
            if found:
                (one,), (other,) = look_up(left), look_up(right)
                return _computed(one, sign, other)
        return _joined(look_up(inner), match[0])

    return PLACE.sub(value, template)


def _computed(one: Mapping[str, Any], sign: str, other: Mapping[str, Any]) -> str:
    if one["unit"] != other["unit"]:
        raise ValueError(f"{one['name']} and {other['name']} have different units")
    if sign == "÷":
        return f"{one['value'] / other['value']:.2f}×"
    return _number(one["value"] - other["value"], one["unit"])


def _joined(found: list[Mapping[str, Any]], place: str) -> str:
    if all(finding["unit"] == "accepted" for finding in found):
        answers = {answer(finding) for finding in found}
        if len(answers) > 1:
            raise ValueError(f"{place} has different answers: {sorted(answers)}")
        return answers.pop()
    units = {finding["unit"] for finding in found}
    if len(units) > 1:
        raise ValueError(f"{place} has different units: {sorted(units)}")
    (unit,) = units
    if unit not in ("us", "GB/s"):
        return " / ".join(_number(finding["value"], unit) for finding in found)
    scale = _scale(unit)
    return " / ".join(scale(finding["value"]) for finding in found) + _suffix(unit)


def answer(finding: Mapping[str, Any]) -> str:
    """What the driver said: ``taken``, or its error by number and name."""
    return "taken" if finding["value"] else f"{finding['code']} `{finding['result']}`"


def _scale(unit: str) -> Any:
    return microseconds if unit == "us" else lambda value: f"{value:.1f}"


def _suffix(unit: str) -> str:
    return " µs" if unit == "us" else f" {unit}"


def _number(value: float, unit: str) -> str:
    if unit in ("us", "GB/s"):
        return _scale(unit)(value) + _suffix(unit)
    if unit in BYTES:
        for size, word in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size:
                return f"{value / size:.3g} {word}{BYTES[unit]}"
        return f"{value:.0f} B{BYTES[unit]}"
    return f"{value:.2f}×" if unit == "ratio" else f"{value:g} {unit}".rstrip()
