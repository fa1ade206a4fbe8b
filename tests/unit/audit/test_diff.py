"""The audit's one rule: which keys are resubmitted, and which are left alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.audit.diff import Finding, Mark, Window, is_marked, judge
from intake_ledger.protocol.change import ABSENT, State, StateKind, real_version
from intake_ledger.protocol.row import STORED_STATUSES, Row, Status
from tests.unit.support import DAY, HOUR, SECOND

NOW = 1_795_000_000_000
WINDOW = Window(settled_before=NOW - HOUR, known_since=NOW - 14 * DAY)
V1 = State(StateKind.OBJECT, "1", "e1", 1, NOW - DAY)
V2 = State(StateKind.OBJECT, "2", "e2", 1, NOW - DAY)
MARKER = State(StateKind.MARKER, "m", created_at=NOW - DAY)
AGED = NOW - DAY


def row(status: Status, state: State = V1, committed: State | None = None, **more: object) -> Row:
    """A row whose last claim, a day ago, was on `state`."""
    done = committed or (state if status is Status.PROCESSED else None)
    base = Row(
        status,
        7,
        version_id=state.version_id,
        etag=state.etag,
        kind=state.kind,
        committed_state=done.identity if done else None,
        updated_at=AGED,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def finding(found: Row | None, state: State, *, deletes: bool = True, window: Window = WINDOW) -> Finding | None:
    verdict = judge(found, state, window, now=NOW, deletes=deletes)
    return verdict if isinstance(verdict, Finding) else None


def aged(created_at: int) -> State:
    """A version of this time. Multipart uploads have the time of their beginning."""
    return replace(V1, created_at=created_at)


ANCIENT = aged(NOW - 400 * DAY)
SECOND_BEFORE = WINDOW.settled_before // 1000 * 1000
NO_VERSION = row(Status.PROCESSED, State(StateKind.OBJECT, None, "e1"))
NEW_BYTES = State(StateKind.OBJECT, None, "e2", created_at=AGED)


@pytest.mark.failure_mode("F31", "F33", "F34", "F35", "F36", "F37", "F38", "F48", "F51", "F86")
@pytest.mark.parametrize(
    ("found", "state", "expected"),
    [
        pytest.param(None, V1, Finding.MISSING, id="F46 never heard of"),
        pytest.param(None, MARKER, Finding.MISSING, id="F39 a removal that nobody reported, of an unknown key"),
        pytest.param(None, ABSENT, None, id="nothing, and nothing known"),
        pytest.param(row(Status.PROCESSED), V1, None, id="committed"),
        pytest.param(row(Status.PROCESSED), V2, Finding.OVERTAKEN, id="F74 the second version's event was lost"),
        pytest.param(row(Status.PROCESSED), MARKER, Finding.REMOVED, id="F39 a marker that nobody reported"),
        pytest.param(row(Status.PROCESSED), ABSENT, Finding.REMOVED, id="F39 gone from the listing"),
        pytest.param(row(Status.PROCESSED, MARKER), MARKER, None, id="marker committed"),
        pytest.param(row(Status.PROCESSED, MARKER), V1, Finding.OVERTAKEN, id="F49 un-deleted"),
        pytest.param(row(Status.PROCESSED, ABSENT), ABSENT, None, id="removal committed"),
        pytest.param(row(Status.PROCESSED, V2), V1, Finding.OVERTAKEN, id="F51 rolled back"),
        pytest.param(row(Status.FAILED), V1, Finding.UNSETTLED, id="failed, and no message left"),
        pytest.param(row(Status.FAILED, V1, V1), V1, Finding.UNSETTLED, id="F73 committed once, not settled"),
        pytest.param(row(Status.FAILED, V2, V1), V1, Finding.OVERTAKEN, id="F73 rolled back over a failure"),
        pytest.param(row(Status.PROCESSING, lease_until=NOW), V1, Finding.UNSETTLED, id="F44 its worker died"),
        pytest.param(row(Status.PROCESSING), V1, Finding.UNSETTLED, id="released over a dead claim"),
        pytest.param(row(Status.PROCESSING, lease_until=NOW + 1), V1, None, id="live"),
        pytest.param(row(Status.PROCESSING, lease_until=NOW + 1), V2, None, id="live, on another state"),
        pytest.param(row(Status.REJECTED), V1, None, id="F43 rejected"),
        pytest.param(row(Status.REJECTED, needs_review="p#dismissed"), V1, None, id="F176 dismissed"),
        pytest.param(
            row(Status.REJECTED, needs_review="p#dismissed"), V2, Finding.OVERTAKEN, id="F176 a newer version"
        ),
        pytest.param(row(Status.REJECTED), V2, Finding.OVERTAKEN, id="F74 rejected, and the next version's event lost"),
        pytest.param(row(Status.REJECTED), MARKER, Finding.REMOVED, id="rejected, then removed"),
        pytest.param(row(Status.REJECTED, V2, V1), V1, Finding.OVERTAKEN, id="rejected, then rolled back"),
        *(
            pytest.param(found, replace(state, created_at=at), expected, id=f"F31 {name}, a {state.kind}")
            for state in (V1, MARKER)
            for found, at, expected, name in (
                (None, NOW - HOUR + SECOND, None, "fresh"),
                (row(Status.PROCESSED, V2), NOW - HOUR + SECOND, None, "fresh, over a commit"),
                (None, NOW - HOUR, Finding.MISSING, "not fresh any more"),
            )
        ),
        *(
            pytest.param(row(status, V2, updated_at=at), V1, expected, id=f"F33 {name}, {status}")
            for status in (Status.FAILED, Status.PROCESSED, Status.PROCESSING)
            for at, expected, name in (
                (NOW - HOUR + 1, None, "a row that was touched a moment ago"),
                (NOW - HOUR, Finding.OVERTAKEN, "a row that was touched an hour ago"),
            )
        ),
        pytest.param(row(Status.PROCESSED, updated_at=NOW), ABSENT, None, id="a fresh row, and a state of unknown age"),
        pytest.param(None, aged(WINDOW.known_since - 1), None, id="F38 older than the rows that are known"),
        pytest.param(None, aged(WINDOW.known_since), Finding.MISSING, id="F38 exactly as old"),
        pytest.param(None, aged(NOW - 10 * DAY), Finding.MISSING, id="F34 a multipart upload begun ten days ago"),
        pytest.param(row(Status.PROCESSED, V2), ANCIENT, Finding.OVERTAKEN, id="F51 rolled back to an old version"),
        pytest.param(row(Status.FAILED, updated_at=1), ANCIENT, Finding.UNSETTLED, id="F86 half done, however old"),
        pytest.param(None, aged(SECOND_BEFORE), Finding.MISSING, id="F35 of the last second, as each other key"),
        *(
            pytest.param(NO_VERSION, replace(V1, version_id=real_version(none)), None, id=f"F36 no version is {none!r}")
            for none in (None, "", "null")
        ),
        pytest.param(NO_VERSION, NEW_BYTES, Finding.OVERTAKEN, id="F37 new bytes without a version"),
        pytest.param(
            row(Status.PROCESSED),
            replace(V1, version_id="2"),
            Finding.OVERTAKEN,
            id="F48 the same bytes, a new version",
        ),
    ],
)
def test_each_status_has_its_finding(found: Row | None, state: State, expected: Finding | None) -> None:
    """The rule for each status: resubmitted unless leased, committed and settled, or rejected in this state."""
    assert finding(found, state) is expected


def test_a_pipeline_without_deletes() -> None:
    """The removal of an unknown key is no loss. That of a known one is recorded: an un-delete would look committed."""
    assert finding(None, MARKER, deletes=False) is None
    assert finding(None, V1, deletes=False) is Finding.MISSING
    assert finding(row(Status.PROCESSED), MARKER, deletes=False) is Finding.REMOVED


class TestMarks:
    """Two runs do not resubmit the same twice."""

    @pytest.mark.failure_mode("F31")
    def test_a_fresh_mark_of_this_state_holds(self) -> None:
        """Its message may still be on its way."""
        assert is_marked(Mark(V1.identity, NOW - HOUR + 1), V1, WINDOW)

    @pytest.mark.failure_mode("F91")
    def test_a_mark_lapses(self) -> None:
        """The run that wrote it may have died before its send."""
        assert not is_marked(Mark(V1.identity, NOW - HOUR), V1, WINDOW)

    def test_a_mark_of_another_state_says_nothing(self) -> None:
        """The key has moved on."""
        assert not is_marked(Mark(V2.identity, NOW), V1, WINDOW)
        assert not is_marked(None, V1, WINDOW)


STATES = st.sampled_from([V1, V2, MARKER, ABSENT, State(StateKind.OBJECT, None, "e1", 1, AGED)])


@given(
    st.sampled_from(STORED_STATUSES),
    STATES,
    st.none() | STATES,
    st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]),
    STATES,
    st.booleans(),
)
def test_the_rule_as_one_sentence(
    status: Status, claimed: State, committed: State | None, lease: int | None, current: State, deletes: bool
) -> None:
    """F74: for rows and states that are not fresh: resubmitted iff there is no live claim, its committed state is not
    the current one or the row is not settled, and the current state is not the rejected one.
    """
    stored = row(status, claimed, lease_until=lease)
    stored = replace(stored, committed_state=committed.identity if committed else None)
    held = status is Status.PROCESSING and lease is not None and lease > NOW
    done = status is Status.PROCESSED and committed is not None and committed.identity == current.identity
    rejected = status is Status.REJECTED and claimed.identity == current.identity
    assert (finding(stored, current, deletes=deletes) is not None) == (not (held or done or rejected))
