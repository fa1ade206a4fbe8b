"""The protocol page and the glossary: their conditions and verdicts are the code's."""

from pathlib import Path

import pytest

from intake_ledger.ledger.conditions import (
    NO_ROW,
    Condition,
    late_write_may_harm,
    lease_owned,
    no_other_late_writes,
    row_unchanged,
)
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.verdict import Verdict

DOCS = Path(__file__).parents[2] / "docs"
ROW = Row(Status.PROCESSING, fence=1, lease_owner="a worker")


def words(text: str) -> str:
    """Join the lines of a text with single spaces, without Markdown's marks of code."""
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize(
    "condition",
    [NO_ROW, row_unchanged(ROW, now=0), lease_owned(ROW), no_other_late_writes(ROW, "v#1"), late_write_may_harm(ROW)],
    ids=["insert", "swap", "outcome", "commit", "late write"],
)
def test_a_condition_on_the_page_is_that_of_the_code(condition: Condition) -> None:
    """A commit's condition is that of every outcome and one more part, which the page shows apart."""
    outcome, _, late = condition.expression.partition(" AND (attribute_not_exists(#late_writes)")
    page = words((DOCS / "protocol.md").read_text())
    assert words(outcome) in page
    assert words(late.removesuffix(")")) in page


def test_each_verdict_is_explained() -> None:
    """A verdict in a log line is a word that an operator looks up. The glossary leads to this page."""
    text = (DOCS / "protocol.md").read_text()
    assert [verdict for verdict in Verdict if verdict.value not in text] == []
