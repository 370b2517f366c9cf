"""Tables in the documents come from the records, and only from them."""

from __future__ import annotations

import pytest

from bench.outcome import Goal, Outcome, markdown, text
from bench.report import DOCUMENTS, filled, newest


def outcome():
    made = Outcome("sample", "A sample", ["what", "µs"])
    made.cells.append(["a | b", "1.50"])
    made.goals += [Goal("time", 1, 1.5), Goal("share", 0.7, 0.9, least=True)]
    return made


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_are_up_to_date(path):
    document = path.read_text("utf-8")
    assert filled(document, newest()) == document, "python -m bench.report writes them"


def test_a_block_is_filled_and_nothing_else():
    before = "a\n<!-- bench:sample -->\nold\n<!-- /bench -->\nz\n"
    after = filled(before, {"sample": outcome().record()})
    assert after.startswith("a\n<!-- bench:sample -->\n| what | µs |\n| --- | ---: |\n")
    assert "| a \\| b | 1.50 |" in after
    assert after.endswith("<!-- /bench -->\nz\n")
    assert filled(after, {"sample": outcome().record()}) == after
    with pytest.raises(KeyError, match="other"):
        filled(before, {"other": outcome().record()})


def test_a_missed_goal_is_shown():
    record = outcome().record()
    for shown in (text(record), markdown(record)):
        assert "NOT reached: time 1.5 (≤ 1)" in shown
        assert "reached: share 0.9 (≥ 0.7)" in shown
