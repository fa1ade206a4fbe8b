"""Each cell of the table of effects in docs/outputs.md: rounds of faults, and the contents of the downstream."""

from functools import cache

import pytest
from scripts.effects_page import PAGE, table, written

from tests.effects.downstreams import DOWNSTREAMS
from tests.effects.rounds import ALL, LATE, ROUNDS, Downstream, Happening, count_wrong
from tests.settings import THOROUGH, examples

MORE = range(ROUNDS, 2 * ROUNDS)


@pytest.fixture(scope="module", params=DOWNSTREAMS, ids=lambda one: one.name)
def downstream(request: pytest.FixtureRequest) -> Downstream:
    """Each kind of effect. Only SQL starts the server."""
    kind: type[Downstream] = request.param
    return kind(lambda: request.getfixturevalue("postgres").new_database())


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("happening", Happening, ids=lambda one: one.rstrip("."))
def test_the_page_counts_the_rounds_that_end_wrong(downstream: Downstream, happening: Happening) -> None:
    """Without THOROUGH, a quarter of the rounds. With it, more rounds are played where no round may end wrong."""
    wrong = count_wrong(downstream, happening, range(examples(ROUNDS)))
    counted = written(page())[downstream.name, happening]
    assert (wrong == 0) == (counted == 0) == (happening in downstream.right)
    if THOROUGH:
        assert wrong == counted, "write the page: python -m scripts.effects_page --write"
        assert counted or count_wrong(downstream, happening, MORE) == 0


def test_the_table_has_all_kinds_and_causes() -> None:
    assert table(written(page())) in page()


def test_what_the_documents_recommend_is_right_everywhere_but_for_http_with_late_workers() -> None:
    """The page says what stays open."""
    right = {downstream.name: downstream.right for downstream in DOWNSTREAMS}
    recommended = {name: right.pop(name) for name in list(right)[1::2]}
    assert recommended.pop("HTTP, `Idempotency-Key`") == ALL - LATE
    assert set(recommended.values()) == {ALL}
    assert all(one < ALL for one in right.values())
