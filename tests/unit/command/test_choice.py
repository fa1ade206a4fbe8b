"""What `retry` decides about random rows and queues."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.act.choice import Act, Asked, choose
from tests.unit.support import HOUR, MINUTE, START

NOW = START + HOUR
TIMES = st.sampled_from([NOW - HOUR, NOW - MINUTE, NOW, NOW + MINUTE])
ROWS = st.builds(
    Row,
    st.sampled_from(list(Status)),
    st.integers(1, 9),
    version_id=st.sampled_from(["v1", "v2"]),
    committed_state=st.sampled_from([None, "v#v1"]),
    lease_until=st.none() | TIMES,
    lease_owner=st.sampled_from([None, "w"]),
    retry_at=st.none() | TIMES,
    waiting_since=st.none() | TIMES,
    updated_at=TIMES,
    attempts=st.integers(0, 3),
    needs_review=st.sampled_from([None, "Intake#dismissed", "Intake#waiting", "Intake#1"]),
    late_writes=st.sampled_from([frozenset[str](), frozenset({"v#v0"})]),
)
ASKED = st.builds(
    Asked,
    now=st.just(NOW),
    again=st.booleans(),
    in_bucket=st.booleans(),
    unread=st.sampled_from(["", "2 messages were hidden"]),
    restored_at=st.none() | TIMES,
)


@pytest.mark.failure_mode("F721")
@given(row=ROWS, has_letter=st.booleans(), asked=ASKED)
def test_no_committed_effect_is_repeated_without_again(row: Row, has_letter: bool, asked: Asked) -> None:
    """A redriven letter opens a rejected row only, and the ledger acknowledges it for a committed one."""
    act = choose(row, has_letter=has_letter, asked=replace(asked, again=False)).act
    opens = act in (Act.REDRIVE, Act.REOPEN) and row.status is Status.REJECTED
    assert act is not Act.AGAIN
    assert not (opens and row.committed_state == row.identity)


@pytest.mark.failure_mode("F721")
@given(row=ROWS, has_letter=st.booleans(), asked=ASKED)
def test_no_claim_of_a_live_worker_is_taken(row: Row, has_letter: bool, asked: Asked) -> None:
    if row.is_live(NOW):
        choice = choose(row, has_letter=has_letter, asked=asked)
        assert choice.act is Act.LEAVE
        assert "release" in choice.why


@pytest.mark.failure_mode("F721")
@given(row=st.none() | ROWS, has_letter=st.booleans(), asked=ASKED)
def test_each_row_gets_an_answer(row: Row | None, has_letter: bool, asked: Asked) -> None:
    """Nothing that is unfinished is skipped, except a row whose own message comes in seconds."""
    choice = choose(row, has_letter=has_letter, asked=asked)
    assert choice.why
    if row is None or row.status in (Status.PROCESSING, Status.REJECTED, Status.LATER_FORMAT):
        assert choice.act is not Act.SKIP
    if not asked.in_bucket:
        assert choice.act is not Act.AGAIN, "S3 has no content of a message"
        assert choice.act is not Act.REOPEN or (row is not None and row.dismissed), "its source has it"


@pytest.mark.failure_mode("F722")
@given(row=ROWS, asked=ASKED)
def test_a_rejection_without_a_letter_is_opened_only_if_none_can_exist(row: Row, asked: Asked) -> None:
    row = replace(row, status=Status.REJECTED)
    choice = choose(row, has_letter=False, asked=replace(asked, again=False))
    if choice.act is Act.REOPEN:
        assert asked.restored_at is None or row.updated_at > asked.restored_at
        assert not asked.unread
    else:
        assert choice.act is Act.LEAVE
