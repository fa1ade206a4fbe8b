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
    ],
)
def test_each_status_has_its_finding(found: Row | None, state: State, expected: Finding | None) -> None:
    """The rule for each status: resubmitted unless leased, committed and settled, or rejected in this state."""
    assert finding(found, state) is expected


class TestSettleTime:
    """The event of a fresh state may still be in transit."""

    @pytest.mark.failure_mode("F31")
    @pytest.mark.parametrize("state", [V1, MARKER])
    def test_a_fresh_state_is_left_alone(self, state: State) -> None:
        """The settle time exceeds the queue's backlog."""
        fresh = replace(state, created_at=NOW - HOUR + SECOND)
        assert finding(None, fresh) is None
        assert finding(row(Status.PROCESSED, V2), fresh) is None
        assert finding(None, replace(state, created_at=NOW - HOUR)) is Finding.MISSING

    @pytest.mark.failure_mode("F31", "F33")
    @pytest.mark.parametrize("status", [Status.FAILED, Status.PROCESSED, Status.PROCESSING])
    def test_a_row_that_was_touched_a_moment_ago_is_left_alone(self, status: Status) -> None:
        """A retry is on its way, or the current state's own event follows."""
        stored = row(status, V2, updated_at=NOW - HOUR + 1)
        assert finding(stored, V1) is None
        assert finding(replace(stored, updated_at=NOW - HOUR), V1) is Finding.OVERTAKEN

    def test_a_state_of_unknown_age_is_judged_by_its_row(self) -> None:
        """An absent key has no date."""
        assert finding(row(Status.PROCESSED), ABSENT) is Finding.REMOVED
        assert finding(row(Status.PROCESSED, updated_at=NOW), ABSENT) is None


class TestLookBack:
    """The limits of dates."""

    @pytest.mark.failure_mode("F38")
    def test_an_old_object_without_a_row_is_not_resubmitted(self) -> None:
        """Its row was settled and has expired."""
        assert finding(None, replace(V1, created_at=WINDOW.known_since - 1)) is None
        assert finding(None, replace(V1, created_at=WINDOW.known_since)) is Finding.MISSING

    @pytest.mark.failure_mode("F34")
    def test_a_multipart_upload_begun_ten_days_ago(self) -> None:
        """Its date is the beginning; the look-back covers it."""
        assert finding(None, replace(V1, created_at=NOW - 10 * DAY)) is Finding.MISSING

    @pytest.mark.failure_mode("F51")
    def test_a_rolled_back_version_is_old_and_still_found(self) -> None:
        """A row vouches where dates do not."""
        ancient = replace(V1, created_at=NOW - 400 * DAY)
        assert finding(row(Status.PROCESSED, V2), ancient) is Finding.OVERTAKEN

    @pytest.mark.failure_mode("F86")
    def test_half_done_work_is_found_however_old(self) -> None:
        """Such rows never expire."""
        ancient = replace(V1, created_at=NOW - 400 * DAY)
        assert finding(row(Status.FAILED, updated_at=NOW - 300 * DAY), ancient) is Finding.UNSETTLED

    @pytest.mark.failure_mode("F35")
    def test_two_objects_of_one_second_are_judged_alike(self) -> None:
        """No checkpoint by time: each key is compared with its own row."""
        same = [replace(V1, created_at=WINDOW.settled_before // 1000 * 1000) for _ in range(2)]
        assert [finding(None, state) for state in same] == [Finding.MISSING] * 2


class TestIdentity:
    """States that count as equal."""

    @pytest.mark.failure_mode("F36")
    @pytest.mark.parametrize("spelling", [None, "", "null"])
    def test_no_version_is_one_thing(self, spelling: str | None) -> None:
        """No resubmission every run."""
        stored = row(Status.PROCESSED, State(StateKind.OBJECT, None, "e1"))
        assert finding(stored, replace(V1, version_id=real_version(spelling))) is None

    @pytest.mark.failure_mode("F37")
    def test_new_bytes_without_a_version_are_a_new_state(self) -> None:
        """A null version overwritten."""
        stored = row(Status.PROCESSED, State(StateKind.OBJECT, None, "e1"))
        assert finding(stored, State(StateKind.OBJECT, None, "e2", created_at=NOW - DAY)) is Finding.OVERTAKEN

    @pytest.mark.failure_mode("F48")
    def test_the_same_bytes_as_a_new_version_are_a_new_state(self) -> None:
        """In a versioned bucket."""
        assert finding(row(Status.PROCESSED), replace(V1, version_id="2")) is Finding.OVERTAKEN


class TestDeletesOff:
    """A pipeline that is not told of removals."""

    def test_removals_of_unknown_keys_are_nobodys_loss(self) -> None:
        """There is nothing to record either."""
        assert finding(None, MARKER, deletes=False) is None
        assert finding(None, V1, deletes=False) is Finding.MISSING

    def test_a_removal_of_a_known_key_is_still_recorded(self) -> None:
        """Or an un-delete would look committed."""
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
