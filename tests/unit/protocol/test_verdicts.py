"""The table of verdicts line by line, and rules for every row, change and state of S3."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import ABSENT, Change, Origin, State, StateKind
from intake_ledger.protocol.row import STORED_STATUSES, Retention, Row, Status
from intake_ledger.protocol.verdict import Policy, Ruling, Verdict, judge_row, judge_state
from tests.settings import CONSUMER
from tests.unit.support import (
    DAY,
    KEY,
    RETENTION,
    audited,
    created,
    deleted,
    eventbridge,
    marked,
    one_change,
    redriven,
    reprocess,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_795_000_000_000
ME = "me"
POLICY = Policy(max_attempts=3, retention_ms=RETENTION, deletes=True)
DEAF = replace(POLICY, deletes=False)
V1 = State(StateKind.OBJECT, "1", "e1", 1, NOW - DAY)
V2 = State(StateKind.OBJECT, "2", "e2", 2, NOW)
OLD = replace(V1, created_at=NOW - RETENTION - 1)
EXPIRED_REMOVAL = deleted(V1, at=NOW - RETENTION - 1)
MARKER = State(StateKind.MARKER, "m", created_at=NOW)
OLD_MARKER = replace(MARKER, created_at=NOW - RETENTION - 1)
A1, A2, A3 = "01KA0000000000000000000001", "01KA0000000000000000000002", "01KA0000000000000000000003"


def row(status: Status, state: State = V1, committed: State | None = None, **more: object) -> Row:
    """A row whose last claim was on `state`."""
    identity = (committed or (state if status is Status.PROCESSED else None)) and (committed or state).identity
    base = Row(
        status, 7, version_id=state.version_id, etag=state.etag, kind=state.kind, committed_state=identity or None
    )
    return replace(base, **more)  # type: ignore[arg-type]


def live(state: State = V1, *, owner: str = "other", committed: State | None = None) -> Row:
    return row(Status.PROCESSING, state, committed, lease_until=NOW + 1, lease_owner=owner)


def dead(state: State = V1, *, attempts: int = 1, committed: State | None = None) -> Row:
    return row(Status.PROCESSING, state, committed, lease_until=NOW, lease_owner="other", attempts=attempts)


DONE = row(Status.PROCESSED)
REJECTED = row(Status.REJECTED, rejected_fence=7)
ASKED = replace(REJECTED, reprocess_id=A2)
WAITING = row(Status.FAILED, attempts=2, retry_at=NOW + 1)
LAST_TRY = row(Status.FAILED, MARKER, attempts=3)
MARKER_2 = replace(MARKER, version_id="m2")
TOLD, TOLD_TWICE, TOLD_ABSENT = (row(Status.PROCESSED, one) for one in (MARKER, MARKER_2, ABSENT))
UNSEEN = replace(TOLD, settled_as="removed_unseen", attempts=0)
KEPT = replace(TOLD, settled_as="removal", kept_state="v#1", kept_fence=5, committed_fence=5, attempts=0)
NOT_BEGUN = replace(
    UNSEEN, settled_as="removed_unprocessed", unprocessed_state="v#1", reason_code="removed_unprocessed"
)
REMOVED = (ABSENT, MARKER, State(StateKind.MARKER), State(StateKind.DELETED, "1"))


def judge(
    found: Row | None,
    change: Change,
    state: State,
    policy: Policy = POLICY,
    *,
    all_rows_since: int | None = None,
    complete: bool = False,
) -> Verdict:
    """Both steps, as the ledger takes them."""
    ruling = judge_row(found, change, owner=ME, now=NOW) or judge_state(
        found, change, state, now=NOW, policy=policy, all_rows_since=all_rows_since, complete=complete
    )
    return ruling.verdict


class TestRowAlone:
    """The first table: verdicts without a look at S3."""

    @pytest.mark.parametrize(
        ("found", "change", "verdict"),
        [
            pytest.param(None, created(V1), None, id="no row: look"),
            pytest.param(live(owner=ME), created(V1), Verdict.ACCEPTED, id="F02 own claim"),
            pytest.param(live(), created(V1), Verdict.BUSY, id="F18 live"),
            pytest.param(live(), created(V2), Verdict.BUSY, id="live, another state"),
            pytest.param(live(committed=V1), created(V1), Verdict.BUSY, id="live over its own commit"),
            pytest.param(live(), reprocess(A1), Verdict.BUSY, id="live, reprocess"),
            pytest.param(live(), redriven(created(V1), 7), Verdict.BUSY, id="live, redrive"),
            pytest.param(DONE, created(V1), Verdict.DUPLICATE, id="committed"),
            pytest.param(DONE, audited(V1), Verdict.DUPLICATE, id="committed, audit"),
            pytest.param(DONE, redriven(created(V1), 3), Verdict.DUPLICATE, id="committed, redrive"),
            pytest.param(DONE, created(V2), None, id="another state"),
            pytest.param(DONE, deleted(V1), None, id="F49 a deletion is not its version's creation"),
            pytest.param(dead(committed=V1), created(V1), None, id="F73 committed, not settled"),
            pytest.param(dead(V2, committed=V1), created(V1), None, id="F80 committed, another claim died"),
            pytest.param(row(Status.FAILED), created(V1), None, id="failed"),
            pytest.param(REJECTED, created(V1), None, id="rejected: S3 first"),
            pytest.param(DONE, reprocess(A1), None, id="reprocess"),
            pytest.param(DONE, reprocess(A1, state=V1), None, id="reprocess of the committed state"),
            pytest.param(replace(DONE, served_reprocess_id=A2), reprocess(A2), Verdict.DUPLICATE, id="F78 served"),
            pytest.param(
                replace(DONE, served_reprocess_id=A2), reprocess(A1), Verdict.DUPLICATE, id="F78 a later one served"
            ),
            pytest.param(replace(DONE, served_reprocess_id=A2), reprocess(A3), None, id="F78 newer"),
            pytest.param(replace(DONE, reprocess_id=A2), reprocess(A2), None, id="F78 asked for, not served"),
        ],
    )
    def test_the_row_alone_gives_this_verdict(self, found: Row | None, change: Change, verdict: Verdict | None) -> None:
        """None stands for: S3 has to be looked at."""
        ruling = judge_row(found, change, owner=ME, now=NOW)
        assert (ruling and ruling.verdict) == verdict


class TestLook:
    """The second table: the first line that fits."""

    @pytest.mark.parametrize(
        ("found", "change", "state", "verdict"),
        [
            pytest.param(None, created(V1), ABSENT, Verdict.STALE, id="nothing, no row"),
            pytest.param(None, audited(V1), ABSENT, Verdict.STALE, id="nothing, no row, audit"),
            pytest.param(None, deleted(V1), ABSENT, Verdict.ACCEPTED, id="F94 nothing, no row, a removal is reported"),
            pytest.param(None, EXPIRED_REMOVAL, ABSENT, Verdict.STALE, id="F104 nothing, no row, reported long ago"),
            pytest.param(None, reprocess(A1), ABSENT, Verdict.STALE, id="nothing, no row, reprocess"),
            pytest.param(DONE, reprocess(A1), V1, Verdict.ACCEPTED, id="reprocess"),
            pytest.param(
                replace(DONE, served_reprocess_id=A1), reprocess(A2), V1, Verdict.ACCEPTED, id="F78 a newer one"
            ),
            pytest.param(replace(DONE, attempts=3), reprocess(A1), V1, Verdict.ACCEPTED, id="F84 at the last attempt"),
            pytest.param(DONE, created(V2), V1, Verdict.STALE, id="settled, another's message"),
            pytest.param(DONE, deleted(V2), V1, Verdict.STALE, id="F50 settled, a deletion"),
            pytest.param(None, created(V1, at=NOW - RETENTION - 1), OLD, Verdict.STALE, id="F65 forgotten"),
            pytest.param(None, created(V1, at=NOW - RETENTION), OLD, Verdict.ACCEPTED, id="F95 new by its event"),
            pytest.param(None, created(V2), OLD, Verdict.STALE, id="F95 the event is about another state"),
            pytest.param(None, replace(created(V1), event_time=None), OLD, Verdict.STALE, id="F95 without a time"),
            pytest.param(None, deleted(V2), OLD, Verdict.STALE, id="F75 forgotten, a deletion"),
            pytest.param(None, audited(V1), OLD, Verdict.STALE, id="forgotten, audit"),
            pytest.param(None, reprocess(A1), OLD, Verdict.ACCEPTED, id="F87 forgotten, reprocess"),
            pytest.param(None, redriven(created(V1), 7), OLD, Verdict.ACCEPTED, id="forgotten, marked redrive"),
            pytest.param(None, created(V1), replace(OLD, created_at=None), Verdict.ACCEPTED, id="of unknown age"),
            pytest.param(
                None, created(V1), replace(OLD, created_at=NOW - RETENTION), Verdict.ACCEPTED, id="exactly as old"
            ),
            pytest.param(REJECTED, created(V1), V1, Verdict.REJECTED, id="F76 rejected"),
            pytest.param(REJECTED, audited(V1), V1, Verdict.REJECTED, id="F76 rejected, audit"),
            pytest.param(REJECTED, created(V2), V1, Verdict.REJECTED, id="F77 rejected, a dead version's message"),
            pytest.param(REJECTED, redriven(created(V1), 6), V1, Verdict.REJECTED, id="F64 an older copy"),
            pytest.param(REJECTED, redriven(created(V1), 8), V1, Verdict.REJECTED, id="a copy from elsewhere"),
            pytest.param(REJECTED, redriven(created(V1), 7), V1, Verdict.ACCEPTED, id="F63 its copy"),
            pytest.param(REJECTED, redriven(created(V2), 7), V1, Verdict.ACCEPTED, id="F63 its copy, woken by another"),
            pytest.param(REJECTED, reprocess(A1), V1, Verdict.ACCEPTED, id="rejected, reprocess"),
            pytest.param(REJECTED, created(V2), V2, Verdict.ACCEPTED, id="rejected, a newer state"),
            pytest.param(
                row(Status.REJECTED, V2, V1, rejected_fence=7),
                created(V2),
                V1,
                Verdict.ACCEPTED,
                id="rejected, rolled back",
            ),
            pytest.param(dead(attempts=2), created(V1), V1, Verdict.ACCEPTED, id="died, one left"),
            pytest.param(dead(attempts=3), created(V1), V1, Verdict.EXHAUSTED, id="died, none left"),
            pytest.param(dead(attempts=4), audited(V1), V1, Verdict.EXHAUSTED, id="F44 the audit found it"),
            pytest.param(dead(attempts=3), created(V1), V2, Verdict.ACCEPTED, id="died, S3 has moved on"),
            pytest.param(row(Status.FAILED, attempts=3), created(V1), V1, Verdict.EXHAUSTED, id="failed, none left"),
            pytest.param(row(Status.FAILED, attempts=2), created(V1), V1, Verdict.ACCEPTED, id="failed, one left"),
            pytest.param(WAITING, created(V1), V1, Verdict.BUSY, id="F23 failed, not due"),
            pytest.param(WAITING, audited(V1), V1, Verdict.BUSY, id="F23 not due, audit"),
            pytest.param(WAITING, created(V2), V1, Verdict.BUSY, id="F23 not due, woken by another"),
            pytest.param(replace(WAITING, attempts=3), created(V1), V1, Verdict.BUSY, id="F23 not due, none left"),
            pytest.param(replace(WAITING, retry_at=NOW), created(V1), V1, Verdict.ACCEPTED, id="F23 due now"),
            pytest.param(WAITING, reprocess(A1), V1, Verdict.ACCEPTED, id="F78 not due, but a person asks"),
            pytest.param(WAITING, redriven(created(V1), 3), V1, Verdict.ACCEPTED, id="F63 not due, redrive"),
            pytest.param(WAITING, created(V2), V2, Verdict.ACCEPTED, id="F05 not due, S3 has moved on"),
            pytest.param(replace(WAITING, status=Status.PROCESSING), created(V1), V1, Verdict.ACCEPTED, id="F44 dead"),
            pytest.param(ASKED, reprocess(A2), V1, Verdict.REJECTED, id="F76 this request had its round"),
            pytest.param(ASKED, reprocess(A1), V1, Verdict.REJECTED, id="F76 a later request had its round"),
            pytest.param(ASKED, reprocess(A3), V1, Verdict.ACCEPTED, id="F78 a newer request"),
            pytest.param(ASKED, redriven(reprocess(A2), 7), V1, Verdict.ACCEPTED, id="F63 the request's own copy"),
            pytest.param(ASKED, redriven(reprocess(A2), 6), V1, Verdict.REJECTED, id="F64 the request's older copy"),
            pytest.param(ASKED, reprocess(A2), V2, Verdict.ACCEPTED, id="the rejection was of another state"),
            pytest.param(dead(committed=V1), created(V1), V1, Verdict.ACCEPTED, id="F73 back, over its own dead claim"),
            pytest.param(dead(V2, committed=V1), deleted(V2), V1, Verdict.ACCEPTED, id="F73 back, downstream unknown"),
            pytest.param(DONE, deleted(V1), ABSENT, Verdict.ACCEPTED, id="F51 removed"),
            pytest.param(DONE, marked(MARKER), MARKER, Verdict.ACCEPTED, id="marker"),
            pytest.param(row(Status.PROCESSED, MARKER), deleted(MARKER), V1, Verdict.ACCEPTED, id="F49 un-deleted"),
            pytest.param(row(Status.PROCESSED, V2), deleted(V2), V1, Verdict.ACCEPTED, id="F51 rolled back"),
            pytest.param(None, audited(V1), V1, Verdict.ACCEPTED, id="F32 unknown, audit"),
            pytest.param(row(Status.PROCESSED, ABSENT), deleted(V1), ABSENT, Verdict.STALE, id="removal committed"),
            pytest.param(replace(DONE, attempts=99), reprocess(A1), V1, Verdict.ACCEPTED, id="F84 settled attempts"),
            pytest.param(replace(DONE, attempts=99), created(V2), V2, Verdict.ACCEPTED, id="F84 another state"),
            pytest.param(replace(DONE, served_reprocess_id=A1), reprocess(A1), V1, Verdict.DUPLICATE, id="F88 served"),
            pytest.param(replace(DONE, expires_at=1), created(V1), V1, Verdict.DUPLICATE, id="F08 past its expiry"),
        ],
    )
    def test_row_and_state_give_this_verdict(
        self, found: Row | None, change: Change, state: State, verdict: Verdict
    ) -> None:
        """S3's state decides, not the state in the message."""
        assert judge(found, change, state) is verdict

    @pytest.mark.parametrize(
        ("since", "change", "state", "verdict"),
        [
            pytest.param(0, deleted(V1), ABSENT, Verdict.STALE, id="F94 nothing was ever there"),
            pytest.param(NOW - DAY, deleted(V1), ABSENT, Verdict.ACCEPTED, id="F94 it may be older than the pipeline"),
            pytest.param(0, audited(V1), OLD, Verdict.ACCEPTED, id="F95 an object of any age"),
            pytest.param(0, deleted(V2), OLD, Verdict.ACCEPTED, id="F95 an object of any age, a deletion"),
            pytest.param(OLD.created_at, audited(V1), OLD, Verdict.ACCEPTED, id="F95 as old as the pipeline"),
            pytest.param(NOW - RETENTION, audited(V1), OLD, Verdict.STALE, id="F41 older than the pipeline"),
            pytest.param(0, audited(MARKER), OLD_MARKER, Verdict.STALE, id="F94 a removal's row expires in any case"),
        ],
    )
    def test_a_complete_ledger_knows_what_it_does_not_find(
        self, since: int, change: Change, state: State, verdict: Verdict
    ) -> None:
        """Without a row it never processed the object."""
        assert judge(None, change, state, all_rows_since=since, complete=since == 0) is verdict

    @pytest.mark.failure_mode("F787")
    @pytest.mark.parametrize(
        ("deletes", "complete", "change", "verdict"),
        [
            pytest.param(True, True, deleted(V1), Verdict.SETTLED, id="nothing was ever there"),
            pytest.param(True, False, deleted(V1), Verdict.ACCEPTED, id="it may be older than the pipeline"),
            pytest.param(False, False, deleted(V1), Verdict.SETTLED, id="no processor is told of removals"),
            pytest.param(
                True, True, replace(deleted(V1), event_time=NOW - RETENTION - 1), Verdict.STALE, id="an old event"
            ),
            pytest.param(True, True, audited(ABSENT), Verdict.STALE, id="no event of a removal"),
        ],
    )
    @pytest.mark.parametrize(
        "settings",
        [
            pytest.param({"processor_function": "function"}, id="another function"),
            pytest.param({"max_per_call": 2}, id="a call of several"),
        ],
    )
    def test_an_upload_starts_no_processor_after_its_removal(
        self, settings: dict[str, Any], deletes: bool, complete: bool, change: Change, verdict: Verdict
    ) -> None:
        """The row of the removal is what its upload's event meets, which would be inserted without a look."""
        policy = Policy.of(replace(CONSUMER, deletes=deletes, retention_seconds=RETENTION // 1000, **settings))
        assert judge(None, change, ABSENT, policy, all_rows_since=0, complete=complete) is verdict
        opens = replace(policy, unopened=False)
        if verdict is Verdict.SETTLED:
            assert judge(None, change, ABSENT, opens, all_rows_since=0, complete=complete) is Verdict.STALE

    @pytest.mark.failure_mode("F600")
    @pytest.mark.parametrize(
        ("found", "change", "state", "verdict"),
        [
            pytest.param(TOLD, marked(MARKER_2), MARKER_2, Verdict.SETTLED, id="a DELETE is repeated"),
            pytest.param(TOLD, deleted(MARKER), ABSENT, Verdict.SETTLED, id="S3 clears the expired marker"),
            pytest.param(TOLD, deleted(V1), ABSENT, Verdict.SETTLED, id="and the version below it"),
            pytest.param(TOLD_TWICE, deleted(MARKER_2), MARKER, Verdict.SETTLED, id="one of two markers goes"),
            pytest.param(TOLD_ABSENT, deleted(V1), MARKER, Verdict.SETTLED, id="a marker after an absent object"),
            pytest.param(TOLD, audited(ABSENT), ABSENT, Verdict.SETTLED, id="by the audit"),
            pytest.param(TOLD, redriven(created(V1), 3), ABSENT, Verdict.SETTLED, id="a copy of an older rejection"),
            pytest.param(TOLD, reprocess(A1), ABSENT, Verdict.ACCEPTED, id="a request"),
            pytest.param(
                replace(TOLD, served_reprocess_id=A2), reprocess(A3), ABSENT, Verdict.ACCEPTED, id="a newer request"
            ),
            pytest.param(TOLD, created(V1), V1, Verdict.ACCEPTED, id="an object"),
            pytest.param(
                replace(TOLD, settled_as="removal"), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="it was not told"
            ),
            pytest.param(
                replace(TOLD, late_writes=frozenset({"v#1"})), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED,
                id="a late worker may have brought the object back",
            ),
            pytest.param(
                replace(TOLD, late_writes=frozenset({"v#m"})), marked(MARKER_2), MARKER_2, Verdict.SETTLED,
                id="a late worker has told it again",
            ),
            pytest.param(dead(V2, committed=MARKER), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="an upload died"),
            pytest.param(
                row(Status.FAILED, V2, MARKER), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="an upload failed"
            ),
            pytest.param(
                row(Status.REJECTED, V2, MARKER), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="it was rejected"
            ),
            pytest.param(dead(MARKER), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="the removal died"),
            pytest.param(DONE, deleted(V1), ABSENT, Verdict.ACCEPTED, id="the object was processed"),
        ],
    )  # fmt: skip
    def test_a_removal_is_told_once_per_time_that_the_downstream_may_have_the_object(
        self, found: Row, change: Change, state: State, verdict: Verdict
    ) -> None:
        """The row says what the processor was told, also of a ledger that may lack rows."""
        for complete in (False, True):
            assert judge(found, change, state, complete=complete) is verdict

    @pytest.mark.failure_mode("F603", "F604")
    @pytest.mark.parametrize(
        ("found", "change", "state", "undone"),
        [
            pytest.param(KEPT, deleted(MARKER), V1, True, id="its marker is removed"),
            pytest.param(KEPT, created(V1), V1, True, id="by a late duplicate of its upload"),
            pytest.param(KEPT, audited(V1), V1, True, id="by the audit"),
            pytest.param(KEPT, redriven(created(V1), 3), V1, True, id="by a copy of an older rejection"),
            pytest.param(KEPT, deleted(MARKER), V2, False, id="another version"),
            pytest.param(KEPT, reprocess(A1), V1, False, id="a person asks"),
            pytest.param(replace(KEPT, served_reprocess_id=A2), reprocess(A3), V1, False, id="a newer request"),
            pytest.param(replace(KEPT, kept_state=None), deleted(MARKER), V1, False, id="it is not known"),
            pytest.param(
                replace(KEPT, late_writes=frozenset({"v#2"})), deleted(MARKER), V1, False, id="another one written late"
            ),
            pytest.param(
                replace(KEPT, late_writes=frozenset({"v#1"})), deleted(MARKER), V1, True, id="the same written late"
            ),
            pytest.param(
                replace(KEPT, committed_fence=9), deleted(MARKER), V1, False, id="an older release has written since"
            ),
        ],
    )  # fmt: skip
    def test_a_version_that_the_downstream_still_has_is_not_processed_again(
        self, found: Row, change: Change, state: State, undone: bool
    ) -> None:
        """The row says whether the removal was told, and not the setting."""
        for policy in (POLICY, DEAF):
            ruling = judge_state(found, change, state, now=NOW, policy=policy)
            assert ruling.undone is undone
            wanted = Verdict.DUPLICATE if change.identity == state.identity else Verdict.STALE
            assert ruling.verdict is (wanted if undone else Verdict.ACCEPTED)

    @pytest.mark.failure_mode("F604")
    @pytest.mark.parametrize(
        ("found", "change", "kept"),
        [
            pytest.param(DONE, marked(MARKER), "v#1", id="committed"),
            pytest.param(KEPT, marked(MARKER_2), "v#1", id="removed again"),
            pytest.param(DONE, reprocess(A1), None, id="it serves a request"),
            pytest.param(KEPT, reprocess(A1), None, id="a later one serves a request"),
            pytest.param(replace(DONE, late_writes=frozenset({"v#2"})), marked(MARKER), None, id="another one late"),
            pytest.param(replace(DONE, late_writes=frozenset({"v#1"})), marked(MARKER), "v#1", id="the same late"),
            pytest.param(dead(V2, committed=V1), marked(MARKER), None, id="an attempt has begun"),
            pytest.param(dead(V1, committed=V1), marked(MARKER), None, id="an attempt on the same state"),
            pytest.param(row(Status.FAILED, V2, V1), marked(MARKER), None, id="an attempt has failed"),
            pytest.param(row(Status.REJECTED, V2, V1), marked(MARKER), None, id="an attempt was rejected"),
            pytest.param(UNSEEN, marked(MARKER_2), None, id="unseen"),
            pytest.param(replace(DONE, version_id=None, committed_state="e#e1"), marked(MARKER), None, id="no version"),
            pytest.param(None, marked(MARKER), None, id="no row"),
        ],
    )  # fmt: skip
    def test_a_removal_that_is_not_told_keeps_what_the_downstream_has(
        self, found: Row | None, change: Change, kept: str | None
    ) -> None:
        after = row_changes.removal_recorded(
            found, change, MARKER_2, now=NOW, retention=Retention(DAY), partition="p#removed"
        )
        assert after.kept_state == kept
        assert after.identity == after.committed_state == MARKER_2.identity
        again = row_changes.claimed(after, change, V1, owner=ME, now=NOW, lease_until=NOW + 1)
        assert again.kept_state is None
        assert row_changes.released(again, after).kept_state == kept
        of_version = row_changes.removal_recorded(
            found, change, MARKER_2, now=NOW, retention=Retention(DAY), partition="p#removed", of_version=True
        )
        assert of_version.kept_state is None

    @pytest.mark.failure_mode("F601")
    @pytest.mark.parametrize(
        ("found", "change", "state", "verdict"),
        [
            pytest.param(None, marked(MARKER), MARKER, Verdict.SETTLED, id="a key that never was"),
            pytest.param(None, audited(MARKER), MARKER, Verdict.SETTLED, id="by the audit"),
            pytest.param(None, created(V1), MARKER, Verdict.SETTLED, id="its upload comes late"),
            pytest.param(None, reprocess(A1), MARKER, Verdict.ACCEPTED, id="a person asks"),
            pytest.param(None, redriven(created(V1), 7), MARKER, Verdict.ACCEPTED, id="a person redrives"),
            pytest.param(UNSEEN, marked(MARKER_2), MARKER_2, Verdict.SETTLED, id="a second marker"),
            pytest.param(UNSEEN, deleted(MARKER), ABSENT, Verdict.SETTLED, id="the marker goes"),
            pytest.param(UNSEEN, created(V1), MARKER, Verdict.SETTLED, id="the upload comes later"),
            pytest.param(UNSEEN, created(V1), V1, Verdict.ACCEPTED, id="the object comes back"),
            pytest.param(UNSEEN, reprocess(A1), MARKER, Verdict.ACCEPTED, id="unseen, a person asks"),
            pytest.param(UNSEEN, redriven(created(V1), 7), MARKER, Verdict.ACCEPTED, id="unseen, a person redrives"),
            pytest.param(UNSEEN, reprocess(A1), MARKER_2, Verdict.ACCEPTED, id="another marker, a person asks"),
            pytest.param(NOT_BEGUN, marked(MARKER_2), MARKER_2, Verdict.SETTLED, id="an untold upload"),
            pytest.param(
                replace(NOT_BEGUN, attempts=1), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="an attempt had begun"
            ),
            pytest.param(
                replace(NOT_BEGUN, reason_code="not_yet"), marked(MARKER_2), MARKER_2, Verdict.ACCEPTED, id="it waited"
            ),
        ],
    )  # fmt: skip
    def test_a_complete_ledger_tells_no_removal_of_an_object_that_nobody_was_told_of(
        self, found: Row | None, change: Change, state: State, verdict: Verdict
    ) -> None:
        """Any other ledger may lack the row of the object, so it tells the removal."""
        assert judge(found, change, state, complete=True, all_rows_since=0) is verdict
        told = judge(found, change, state)
        assert told is (verdict if state in (V1, MARKER) and found is not None else Verdict.ACCEPTED)

    @pytest.mark.failure_mode("F89", "F94")
    @pytest.mark.parametrize(
        ("found", "change", "state", "with_deletes", "without"),
        [
            (None, deleted(V1), ABSENT, Verdict.ACCEPTED, Verdict.STALE),
            (DONE, created(V2), V2, Verdict.ACCEPTED, Verdict.ACCEPTED),
            *((DONE, deleted(V2), gone, Verdict.ACCEPTED, Verdict.SETTLED) for gone in REMOVED),
            *(
                (row(Status.PROCESSED, gone), reprocess(A1), gone, Verdict.ACCEPTED, Verdict.SETTLED)
                for gone in REMOVED
            ),
            (LAST_TRY, marked(MARKER), MARKER, Verdict.EXHAUSTED, Verdict.SETTLED),
            (replace(LAST_TRY, status=Status.PROCESSING), marked(MARKER), MARKER, Verdict.EXHAUSTED, Verdict.SETTLED),
            (dead(attempts=3), created(V1), V1, Verdict.EXHAUSTED, Verdict.EXHAUSTED),
        ],
    )
    def test_without_deletes_a_removal_is_settled_and_not_processed(
        self, found: Row | None, change: Change, state: State, with_deletes: Verdict, without: Verdict
    ) -> None:
        assert judge(found, change, state) is with_deletes
        assert judge(found, change, state, DEAF) is without

    def test_a_settled_state_that_the_message_names_is_a_duplicate(self) -> None:
        """For the log: another worker committed between the read of the row and the look."""
        ruling = judge_state(DONE, created(V1), V1, now=NOW, policy=POLICY)
        assert ruling == Ruling(Verdict.DUPLICATE, "the current state is committed")


STATES = st.sampled_from([V1, V2, MARKER, ABSENT, State(StateKind.OBJECT, None, "e1"), State(StateKind.DELETED, "1")])
SEQUENCERS = st.none() | st.sampled_from(["617F08299329D189", "0055AED6DCD90281E5", "00", "F" * 18])


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Any change from any sender."""
    state = draw(STATES)
    makers: list[Callable[[State], Change]] = [audited]
    if state.kind is StateKind.OBJECT:
        makers += [created, deleted, lambda one: one_change(eventbridge(KEY, one))]
    elif state.kind is StateKind.MARKER:
        makers += [marked, deleted]
    if draw(st.integers(0, 3)):
        change = draw(st.sampled_from(makers))(state)
    else:
        change = reprocess(draw(st.sampled_from([A1, A2, A3])))
    if draw(st.booleans()):
        change = replace(change, rejected_fence=draw(st.integers(6, 8)))
    return replace(change, sequencer=draw(SEQUENCERS))


@st.composite
def rows_(draw: st.DrawFn) -> Row:
    """Any row that the protocol can leave behind, and many that it cannot."""
    state, committed = draw(STATES), draw(st.none() | STATES)
    status = draw(st.sampled_from(STORED_STATUSES))
    return Row(
        status,
        draw(st.integers(6, 8)),
        version_id=state.version_id,
        etag=state.etag,
        kind=state.kind,
        sequencer=draw(SEQUENCERS),
        attempts=draw(st.integers(0, 4)),
        retry_at=draw(st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1])),
        redrive_count=draw(st.integers(0, 2)),
        lease_until=draw(st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1])),
        lease_owner=draw(st.none() | st.sampled_from([ME, "other"])),
        committed_state=committed.identity if committed else None,
        rejected_fence=draw(st.none() | st.integers(6, 8)),
        reprocess_id=draw(st.none() | st.sampled_from([A1, A2])),
        served_reprocess_id=draw(st.none() | st.sampled_from([A1, A2])),
        expires_at=draw(st.none() | st.sampled_from([0, 1, NOW // 1000 + 1])),
    )


ROWS, CHANGES, POLICIES = rows_(), changes(), st.sampled_from([POLICY, DEAF])


@pytest.mark.failure_mode("F18")
@given(ROWS, CHANGES, STATES, POLICIES)
def test_busy_whenever_somebody_else_holds_the_row(found: Row, change: Change, state: State, policy: Policy) -> None:
    """And otherwise only while the state that failed is not due."""
    held = found.status is Status.PROCESSING and (found.lease_until or 0) > NOW
    verdict = judge(found, change, state, policy)
    if held:
        assert (verdict is Verdict.BUSY) is (found.lease_owner != ME)
    else:
        waits = found.status is Status.FAILED and found.identity == state.identity and (found.retry_at or 0) > NOW
        assert (verdict is Verdict.BUSY) <= waits


@pytest.mark.failure_mode("F23")
@given(ROWS, CHANGES, STATES, POLICIES, st.sampled_from([None, NOW - 1, NOW, NOW + 1]))
def test_nobody_but_a_person_tries_a_failed_state_before_its_time(
    found: Row, change: Change, state: State, policy: Policy, retry_at: int | None
) -> None:
    """A duplicate would use the budget up twice as fast; and the time belongs to that state and status alone."""
    failed = replace(
        found,
        status=Status.FAILED,
        version_id=state.version_id,
        etag=state.etag,
        kind=state.kind,
        retry_at=retry_at,
        served_reprocess_id=None,
    )
    ignored = state.removed and not policy.deletes
    waits = retry_at == NOW + 1 and not change.asked_for and not ignored
    assert (judge(failed, change, state, policy) is Verdict.BUSY) is waits
    if change.asked_for:
        due = replace(failed, retry_at=None)
        assert judge(failed, change, state, policy) is judge(due, change, state, policy)


@given(ROWS, CHANGES, STATES, POLICIES)
def test_g3_a_settled_state_runs_only_for_a_newer_request(
    found: Row, change: Change, state: State, policy: Policy
) -> None:
    """Exactly once: a committed and settled state is ACCEPTED only for a newer reprocess request."""
    found = replace(found, status=Status.PROCESSED, committed_state=state.identity)
    verdict = judge(found, change, state, policy)
    newer = change.reprocess_id is not None and change.reprocess_id > (found.served_reprocess_id or "")
    assert (verdict in (Verdict.ACCEPTED, Verdict.SETTLED)) is newer
    if not newer:
        assert verdict in (Verdict.DUPLICATE, Verdict.STALE)


@given(ROWS, CHANGES, STATES, POLICIES)
def test_g4_what_is_not_settled_is_acknowledged_for_a_reason_only(
    found: Row, change: Change, state: State, policy: Policy
) -> None:
    """Complete: a message is acknowledged while its key's state is not committed only for a rejection or as a
    duplicate. In the second case the current state has another message, or the audit finds it.
    """
    assume(not (found.settled and found.committed_state == state.identity))
    verdict = judge(found, change, state, policy)
    if verdict in (Verdict.DUPLICATE, Verdict.STALE):
        named = found.settled and found.committed_state == change.identity
        served = change.reprocess_id is not None and change.reprocess_id <= (found.served_reprocess_id or "")
        assert named or served
    if verdict is Verdict.REJECTED:
        assert found.status is Status.REJECTED
        assert found.identity == state.identity


@pytest.mark.failure_mode("F56", "F471")
@given(ROWS | st.none(), CHANGES, STATES, POLICIES, st.lists(SEQUENCERS, min_size=3, max_size=3))
def test_no_decision_depends_on_sequencers(
    found: Row | None, change: Change, state: State, policy: Policy, sequencers: list[str | None]
) -> None:
    """For other, equal and missing sequencers and names of events, in any order."""
    mixed = found and replace(found, sequencer=sequencers[0], event_id=sequencers[1])
    other = replace(change, sequencer=sequencers[2], event_id=sequencers[0])
    assert judge(mixed, other, state, policy) is judge(found, change, state, policy)


@pytest.mark.failure_mode("F62")
@given(ROWS, CHANGES, STATES, POLICIES, st.integers(0, 2**42))
def test_no_decision_on_a_row_depends_on_event_times(
    found: Row, change: Change, state: State, policy: Policy, time: int
) -> None:
    """Seconds or milliseconds: order is S3's to say."""
    assert judge(found, replace(change, event_time=time), state, policy) is judge(found, change, state, policy)


@pytest.mark.failure_mode("F08")
@given(ROWS, CHANGES, STATES, POLICIES, st.none() | st.integers(0, 2**40))
def test_no_decision_depends_on_expiry(
    found: Row, change: Change, state: State, policy: Policy, expires_at: int | None
) -> None:
    """The sweep comes days late."""
    assert judge(replace(found, expires_at=expires_at), change, state, policy) is judge(found, change, state, policy)


@pytest.mark.failure_mode("F76")
@given(ROWS, CHANGES, STATES, POLICIES)
def test_a_round_is_opened_by_a_person_only(found: Row, change: Change, state: State, policy: Policy) -> None:
    """F63, F76: by a reprocess that has not had its round, or by the very copy of this rejection."""
    found = replace(
        found, status=Status.REJECTED, version_id=state.version_id, etag=state.etag, kind=state.kind, lease_until=None
    )
    opened = judge(found, change, state, policy) in (Verdict.ACCEPTED, Verdict.SETTLED)
    its_copy = change.rejected_fence is not None and change.rejected_fence == found.rejected_fence
    if change.reprocess_id is None:
        assert opened is its_copy
    else:
        served = change.reprocess_id <= (found.served_reprocess_id or "")
        had_its_round = change.reprocess_id <= (found.reprocess_id or "")
        assert opened is (not served and (its_copy or not had_its_round))


@pytest.mark.failure_mode("F89")
@given(ROWS | st.none(), CHANGES, STATES)
def test_deletes_off_changes_nothing_but_who_hears_of_it(found: Row | None, change: Change, state: State) -> None:
    """ACCEPTED, EXHAUSTED and BUSY before the next attempt become SETTLED for removals, and every other verdict
    stays. Of an object that may have been forgotten there is nothing to record.
    """
    assume(found is not None or state.kind is not StateKind.ABSENT)
    told, deaf = judge(found, change, state, POLICY), judge(found, change, state, DEAF)
    live = found is not None and found.is_live(NOW)
    own = live and found is not None and found.lease_owner == ME
    runs = (told in (Verdict.ACCEPTED, Verdict.EXHAUSTED) and not own) or (told is Verdict.BUSY and not live)
    assert deaf is (Verdict.SETTLED if runs and state.removed else told)


@given(ROWS, CHANGES, STATES)
def test_exhausted_only_at_the_budget_of_the_state_that_is_current(found: Row, change: Change, state: State) -> None:
    """And not for a settled or rejected row."""
    if judge(found, change, state) is Verdict.EXHAUSTED:
        assert found.attempts >= POLICY.max_attempts
        assert found.identity == state.identity
        assert found.status in (Status.PROCESSING, Status.FAILED)


@given(CHANGES, STATES)
def test_without_a_row_nothing_is_busy_rejected_or_exhausted(change: Change, state: State) -> None:
    """No other worker holds a claim, and nothing has failed."""
    assert judge(None, change, state) in (Verdict.ACCEPTED, Verdict.STALE)


def test_every_ruling_says_why() -> None:
    """It is what an operator finds in the log."""
    for found in (None, DONE, REJECTED, live(), live(owner=ME), dead(attempts=3)):
        for change in (created(V1), reprocess(A1)):
            ruling = judge_row(found, change, owner=ME, now=NOW) or judge_state(
                found, change, V1, now=NOW, policy=POLICY
            )
            assert len(ruling.why) > 10


def test_origins_are_told_apart_by_what_they_ask_for_only() -> None:
    """An audit's message and S3's own get the same answers."""
    for found in (None, DONE, REJECTED, live(), dead(), dead(attempts=3)):
        assert judge(found, created(V1), V1) is judge(found, replace(created(V1), origin=Origin.AUDIT), V1)
