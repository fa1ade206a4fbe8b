"""The ledger's verdict on a change, as pure functions of the row, the change and the present state in S3.

`judge_row` needs the row only. If it gives no verdict, the ledger asks S3 for the state and calls `judge_state`.
"""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.change import Change, Origin, State, StateKind, is_directory_marker, is_skipped_marker
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import FORMAT, Ordering, Row, Settlement, Status
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.ulids import made_at

ARCHIVED = "InvalidObjectState"
"""S3's error code for an archived object that was not restored."""
LETTER_MARGIN_MS = 3_600_000
"""A dead letter is sent before its row is written, by a clock that may differ. So it expires earlier than the row says.
"""


class Verdict(StrEnum):
    """The verdict on a change."""

    ACCEPTED = "ACCEPTED"
    """Process it. This attempt has the claim."""
    DUPLICATE = "DUPLICATE"
    """This state, or this request to reprocess or a later one, was processed before."""
    STALE = "STALE"
    """There is nothing to process: the present state was processed, there is none, or its row has expired."""
    BUSY = "BUSY"
    """It cannot be claimed now: another attempt has the claim, the next attempt is not due, or the row changed at each
    try. Do not acknowledge the message."""
    REJECTED = "REJECTED"
    """It is not retried, and the row has the reason."""
    EXHAUSTED = "EXHAUSTED"
    """Its last permitted attempt ended without an outcome. Reject it now."""
    SETTLED = "SETTLED"
    """A removal was recorded, and the processor is not told of it: `deletes` is off, or the downstream has nothing to
    remove. The row says if the object was processed."""
    SKIPPED = "SKIPPED"
    """A directory marker without a row, or its removal. There is nothing to process, and it gets no row."""
    FORGOTTEN = "FORGOTTEN"
    """A person has had its key forgotten since the message was sent. Nothing may be written about it."""
    LATER_FORMAT = "LATER_FORMAT"
    """A later release wrote the row. Try again when it is deployed, and do not acknowledge the message."""


VERDICT_METRICS = {
    Verdict.ACCEPTED: "Accepted",
    Verdict.DUPLICATE: "Duplicates",
    Verdict.STALE: "Stale",
    Verdict.BUSY: "Busy",
    # `Rejected` counts changes that are rejected now. An alarm watches it, so a duplicate of one must not count there.
    Verdict.REJECTED: "AlreadyRejected",
    Verdict.EXHAUSTED: "Exhausted",
    Verdict.SETTLED: "RemovalsRecorded",
    Verdict.SKIPPED: "DirectoryMarkers",
    Verdict.FORGOTTEN: "Forgotten",
    Verdict.LATER_FORMAT: "LaterFormat",
}
"""The metric of each verdict. Each has a row of `intake_ledger.contract.METRICS`."""
IN_TURN = frozenset({Verdict.BUSY, Verdict.EXHAUSTED})
"""Verdicts that count only in the turn of a message. An earlier one of its batch may end the work that they are about.
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that verdicts depend on."""

    max_attempts: int
    """At least 2, because a worker may die before it starts the processor."""
    retention_ms: int
    """The time for which the ledger keeps settled rows, in milliseconds."""
    deletes: bool
    """True if the processor is told of removals."""
    keeps_rows: bool = False
    """True if the row of an object stays as long as the object; see `Retention`."""
    executions: bool = False
    """True if executions of a state machine process the changes. An execution outlives the lease of its claim."""
    unopened: bool = False
    """True if the processor may start after its object is gone. Executions, functions and calls of several open none.
    """
    directory_markers: bool = True
    """False if directory markers without a row are skipped."""
    every_version: bool = False
    """True if each version has another row."""
    tags: bool = False
    """True if a committed version gets a tag after its commit. No verdict depends on it."""

    @classmethod
    def of(cls, settings: ConsumerSettings, *, executions: bool = False) -> "Policy":
        """The policy of a pipeline with these settings."""
        return cls(
            settings.max_attempts,
            settings.retention_seconds * 1000,
            settings.deletes,
            settings.keeps_rows,
            executions,
            unopened=executions or settings.processor_function is not None or settings.max_per_call > 1,
            directory_markers=settings.directory_markers,
            every_version=settings.ordering is Ordering.EVERY_VERSION,
            tags=settings.after_commit is not None,
        )


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict and its reason."""

    verdict: Verdict
    why: str
    """The reason, for logs."""
    row: Row | None = None
    """The row that was judged. None: there was none."""
    unprocessed: bool = False
    """True if this is the first sight of the removal of an object that was not processed."""
    undone: bool = False
    """True if the present state is the one that the downstream still has after a removal that it was not told of. The
    ledger writes its commit back."""
    expired: bool = False
    """True if there is no row, and the state is older than the retention."""
    awaited: bool = False
    """BUSY, and another wake of the set comes again and looks then. This one need not wait."""


_NOT_COMMITTED = "this is the current state and it is not committed"
_NEVER_PROCESSED = "no object of the key was ever processed"


def judge_row(  # noqa: PLR0911 - one return per line of the table
    row: Row | None, change: Change, *, owner: str, now: int, executions: bool = False, ended: int | None = None
) -> Ruling | None:
    """The verdict that the row alone allows. None: ask S3 for the state.

    Args:
        row: the row of the key. None: there is none.
        change: the change of the message.
        owner: the lease owner of this attempt.
        now: epoch milliseconds.
        executions: as in `Policy`.
        ended: the fence of an execution that has ended, or was never started.

    """
    if change.origin is Origin.TAG and not change.asked_for and not _may_wake(row, change):
        # Without a row, the event of the upload or the audit comes, and the attempt reads the tags.
        return Ruling(Verdict.STALE, "no work waits for a tag of this version")
    if row is None:
        return None
    if row.status is Status.LATER_FORMAT:
        return Ruling(Verdict.LATER_FORMAT, f"a later release wrote the row: its format is {row.format}, not {FORMAT}")
    if row.is_live(now):
        if row.lease_owner == owner:
            # The answer to the first write was lost. The SDK repeated it, and the first write refused the second.
            return Ruling(Verdict.ACCEPTED, "our own claim, written before its answer was lost")
        # The message of an execution judges its change again after the end. That of a processor does not.
        return Ruling(
            Verdict.BUSY, "another attempt holds the key", awaited=executions and _awaits_another(row, change)
        )
    asks = row.status is Status.PROCESSING or (row.fence != ended and not row.waits)
    if executions and row.unfinished and asks:
        # The lease of the claim does not tell whether its execution runs. A failed one may have been redriven.
        return Ruling(Verdict.BUSY, "the execution of the last claim decides")
    if change.reprocess_id is not None and change.reprocess_id <= (row.served_reprocess_id or ""):
        return Ruling(Verdict.DUPLICATE, "this reprocess request, or a later one, was served")
    if change.reprocess_id is None and row.has_committed(change.identity):
        return Ruling(Verdict.DUPLICATE, "this state is committed")
    if row.unfinished and is_another_message(change, row):
        # Its effect may have come already, under the idempotency key that both have.
        return Ruling(Verdict.REJECTED, "a message with the same identity and other content is not finished")
    return None


def judge_state(  # noqa: PLR0911 - one return per line of the table
    row: Row | None,
    change: Change,
    state: State,
    *,
    now: int,
    policy: Policy,
    all_rows_since: int | None = None,
    complete: bool = False,
) -> Ruling:
    """The verdict on the present state in S3. The first line that fits decides.

    Args:
        row: the row of the key. None: there is none.
        change: the change of the message. Its state may be an earlier one.
        state: the present state in S3. In EVERY_VERSION, the state in the message.
        now: epoch milliseconds.
        policy: the settings of the pipeline.
        all_rows_since: the time since which every processed object has a row, in epoch milliseconds. 0: always. None:
            rows of objects may be missing.
        complete: the downstream has no object without a row; see `RowHistory.is_complete`.

    """
    if row is None:
        return _judge_without_row(change, state, now, policy, all_rows_since, complete=complete)
    if row.has_committed(state.identity):
        return _judge_committed(row, change, state, now, policy)
    if row.undoes_removal(change, state):
        verdict = Verdict.DUPLICATE if change.identity == state.identity else Verdict.STALE
        return Ruling(verdict, "its removal was undone, and the downstream still has it", undone=True)
    if (gone := _judge_repeated_removal(row, change, state, policy, complete=complete)) is not None:
        return gone
    if row.status is Status.PROCESSED and row.committed_state == state.identity:
        return _accept_or_settle(
            state, policy, "this state is committed, and another one may have been written late over it"
        )
    if row.identity == state.identity:
        if row.status is Status.REJECTED and not _asks_for_retry(change, row):
            return Ruling(Verdict.REJECTED, "this state was rejected, and no request for a retry came")
        ignored = state.removed and not policy.deletes
        woken = (change.origin is Origin.GROUP and row.waits_for_group) or _brings_tag(change, row)
        not_due = row.status is Status.FAILED and (row.retry_at or 0) > now and not woken
        if not_due and not change.asked_for and not ignored:
            why = "this state failed, and its next attempt is not due yet"
            return Ruling(Verdict.BUSY, why, awaited=_awaits_another(row, change))
        uncopied = row.pending_reason_code is not None and not change.asked_for and not woken
        if row.unfinished and (uncopied or row.spent_attempts >= policy.max_attempts) and not ignored:
            spent = f"the last of {policy.max_attempts} attempts did not come back"
            return Ruling(Verdict.EXHAUSTED, "its rejection waits for its copy" if uncopied else spent)
    return _accept_or_settle(state, policy, _NOT_COMMITTED)


def _judge_committed(row: Row, change: Change, state: State, now: int, policy: Policy) -> Ruling:
    """The lines for the committed state, if it is settled."""
    unseen = row.settled_as == Settlement.REMOVED_UNSEEN
    if unseen and change.shows_unprocessed(now - policy.retention_ms):
        why = "its object was removed before it was processed"
        return _accept_or_settle(state, policy, why) if change.asked_for else Ruling(Verdict.SETTLED, why)
    if row.is_newer_request(change):
        return _accept_or_settle(state, policy, "reprocessing was asked for")
    verdict = Verdict.DUPLICATE if change.identity == state.identity else Verdict.STALE
    return Ruling(verdict, "the current state is committed")


def _judge_repeated_removal(row: Row, change: Change, state: State, policy: Policy, *, complete: bool) -> Ruling | None:
    """The lines for a removal that the downstream has nothing for. None: it may have the object, or a person asks."""
    if not state.removed or policy.every_version or row.is_newer_request(change):
        return None
    if row.removal_told:
        return Ruling(Verdict.SETTLED, "the processor was told of a removal, and of no object since")
    if complete and row.never_begun and not change.asked_for:
        return Ruling(Verdict.SETTLED, _NEVER_PROCESSED)
    return None


def sent_at(change: Change) -> int | None:
    """The latest time at which the message was sent first, in epoch milliseconds. None: nothing tells it.

    A fence is never below the time of its claim. So it tells the age of a copy that came back from the dead-letter
    queue, which SQS counts as a new message.
    """
    asked_at = made_at(change.reprocess_id) if change.reprocess_id is not None else None
    known = [time for time in (change.event_time, change.rejected_fence, asked_at) if time is not None]
    return min(known, default=None)


def is_forgotten(change: Change, forgotten_at: int | None, *, unknown: bool) -> bool:
    """True if the change is not handled, because its key was forgotten after its message was sent.

    A message that is sent later is a new use of the key.

    Args:
        change: the change of the message.
        forgotten_at: when its key was forgotten, in epoch milliseconds. None: it was not.
        unknown: the answer if nothing tells the age of the message. True if S3 shows no object and the key has no row:
            then it has nothing to wake. False otherwise: it may be about a new use.

    """
    sent = sent_at(change)
    return forgotten_at is not None and (unknown if sent is None else sent < forgotten_at)


def _judge_without_row(  # noqa: PLR0911 - one return per line of the table
    change: Change, state: State, now: int, policy: Policy, all_rows_since: int | None, *, complete: bool
) -> Ruling:
    """The lines for a key without a row: it never had one, or its row has expired."""
    if state.kind is StateKind.ABSENT:
        if policy.deletes and not complete and change.reports_removal and _is_young(change, now, policy):
            return Ruling(Verdict.ACCEPTED, "it was removed a short time ago, and its row may have expired before")
        if policy.unopened and change.reports_removal and _is_young(change, now, policy):
            # Written, as for a marker below: the upload is inserted without a look, and nothing opens its object.
            return Ruling(Verdict.SETTLED, f"{_NEVER_PROCESSED}, and its upload would start a processor")
        # After a commit that is not older than its event, the object would still have its row.
        marker = not policy.directory_markers and _reports_marker(change)
        uploaded = not marker and change.reports_upload_since(now - policy.retention_ms)
        unprocessed = uploaded or (change.rejected_fence is not None and not policy.deletes)
        return Ruling(Verdict.STALE, "there is neither an object nor a row", unprocessed=unprocessed)
    if not change.asked_for and _skips_marker(change, state, policy, all_rows_since):
        return Ruling(Verdict.SKIPPED, "a directory marker without a row: the pipeline has directory_markers=False")
    if not change.asked_for and _may_have_expired(change, state, now, policy, all_rows_since):
        return Ruling(Verdict.STALE, "older than the retention: its row was settled and has expired", expired=True)
    if complete and state.removed and not policy.every_version and not change.asked_for:
        # Written, since an upload's event that comes after this one would otherwise be inserted without a look.
        return Ruling(Verdict.SETTLED, _NEVER_PROCESSED)
    return _accept_or_settle(state, policy, _NOT_COMMITTED)


def _skips_marker(change: Change, state: State, policy: Policy, all_rows_since: int | None) -> bool:
    """True if the state of a key without a row is a directory marker, or the removal of one, which is skipped."""
    if policy.directory_markers or not is_skipped_marker(change.key, state, every_version=policy.every_version):
        return False
    if not state.removed:
        return True
    # An object with content may have had this key. Its row has expired, or its upload is reported now.
    uploaded = change.state is not None and not change.state.removed and not _reports_marker(change)
    return not uploaded and (not policy.deletes or all_rows_since is not None)


def _reports_marker(change: Change) -> bool:
    """True if the message reports the upload of a directory marker."""
    state = change.state
    return state is not None and not state.removed and is_directory_marker(change.key, state.size)


def keeps_copy(change: Change, row: Row | None, *, unprocessed: bool = False) -> bool:
    """True if the change is the copy of a rejected state whose object was removed. It cannot run, and must not vanish.

    Args:
        change: the change of the message.
        row: the row that was judged. None: there is none.
        unprocessed: True if this message recorded the removal. The row that was judged does not show it then.

    """
    if unprocessed or row is None or not row.removed_unprocessed:
        return unprocessed and change.rejected_fence is not None
    return change.rejected_fence is not None and change.rejected_fence == row.rejected_fence


def content_differs(change: Change, ruling: Ruling) -> bool:
    """True if the change is taken for a copy, but the content of that state was another one.

    The ETag of a message's state is the digest of its content. Two objects with one identity have one ETag.
    """
    return ruling.verdict in (Verdict.DUPLICATE, Verdict.REJECTED) and _has_other_content(ruling.row, change)


def has_content(row: Row | None, change: Change) -> bool:
    """True if the row is known to be about this content. Contents of two fingerprints cannot be compared."""
    return row is not None and row.etag is not None and change.state is not None and row.etag == change.state.etag


def may_be_another(change: Change, row: Row) -> bool:
    """True if the change is a message that is not known to have the content of the row. It speaks for itself only."""
    return change.letter_ms is not None and not has_content(row, change)


def is_late_copy(change: Change, row: Row, now: int) -> bool:
    """True if a message about a rejected identity adds nothing to the dead letter of the rejection.

    Any other one is acknowledged after a dead letter of its own. It does not open the row: earlier attempts may have
    had effects under the same idempotency key, and a sender that stamps each try would start them again and again.
    """
    return has_content(row, change) and now < row.updated_at + (change.letter_ms or 0) - LETTER_MARGIN_MS


def is_another_message(change: Change, row: Row) -> bool:
    """True if the change has the identity of the row and another content, and the content matters: the intake compares
    contents, a person has chosen the content of the row, or the change comes from the dead-letter queue.
    """
    chosen = change.must_equal or row.opened or change.rejected_fence is not None
    return bool(chosen) and _has_other_content(row, change)


def _has_other_content(row: Row | None, change: Change) -> bool:
    state = change.state
    if row is None or state is None or row.identity != state.identity:
        return False
    if row.etag is None or state.etag is None:
        return False
    # A digest of a fingerprint has that of its expression before the dot. Others say nothing about the content.
    alike = row.etag.rpartition(".")[0] == state.etag.rpartition(".")[0]
    return alike and row.etag != state.etag


def _awaits_another(row: Row, change: Change) -> bool:
    """True if both are about a set, and another wake than this one comes again for the row.

    A set has as many wakes as parts. The number of receives does not tell which of them comes again: a worker may pause
    with the first delivery of a message while another worker claims with its second one.
    """
    return bool(row.waiter_id and change.waiter_ids) and row.waiter_id not in change.waiter_ids


def _accept_or_settle(state: State, policy: Policy, why: str) -> Ruling:
    return Ruling(Verdict.SETTLED if state.removed and not policy.deletes else Verdict.ACCEPTED, why)


def _asks_for_retry(change: Change, row: Row) -> bool:
    """True if the change asks for a retry of the rejected state. A late duplicate does not ask for it.

    These changes do: a reprocess request that was not served yet, the copy that this rejection sent to the dead-letter
    queue, the restore of the archived object that S3 refused, a new tag of a version that was rejected without one, and
    a message with the content of a copy that is lost.
    """
    if _makes_readable(change, row) or _brings_tag(change, row):
        return True
    if row.reason_code == ReasonCode.COPY_LOST and has_content(row, change):
        return True
    if change.rejected_fence is not None and change.rejected_fence == row.rejected_fence:
        return True
    return change.reprocess_id is not None and change.reprocess_id > (row.reprocess_id or "")


def _brings_tag(change: Change, row: Row) -> bool:
    """True if the change reports new tags of exactly the version that lacks the one of `ready_when`."""
    return change.origin is Origin.TAG and row.lacks_tag and change.identity == row.identity


def _may_wake(row: Row | None, change: Change) -> bool:
    """True if new tags of the version may matter to the row. An attempt in work may have read the tags before."""
    if row is None or row.status is Status.LATER_FORMAT:
        return row is not None
    return row.identity == change.identity and (row.unfinished or row.lacks_tag)


def _makes_readable(change: Change, row: Row) -> bool:
    """True if the change is the restore of exactly the object that was rejected because it was archived.

    After another attempt with another reason, a duplicate of the restore does not ask for a retry.
    """
    return change.restored and row.s3_error == ARCHIVED and change.identity == row.identity


def _may_have_expired(change: Change, state: State, now: int, policy: Policy, all_rows_since: int | None) -> bool:
    """True if a state without a row may have had a row, which has expired."""
    if change.restored and state.created_at is None:
        # In EVERY_VERSION its age is unknown. An archived object is old.
        return True
    if state.created_at is None or state.created_at >= now - policy.retention_ms:
        return False
    if all_rows_since is not None and not state.removed and state.created_at >= all_rows_since:
        return False
    # A row of the reported state would have been committed after its event, and would stay for the retention.
    # The restore of an archived object is not the event of its creation.
    tells = change.is_event and not change.restored
    return not (tells and change.identity == state.identity and _is_young(change, now, policy))


def _is_young(change: Change, now: int, policy: Policy) -> bool:
    """True if the event is not older than the retention."""
    return change.event_time is not None and change.event_time >= now - policy.retention_ms
