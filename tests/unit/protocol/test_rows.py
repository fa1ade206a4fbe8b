"""The key of a change's row, the transitions of a row, and its cost."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import ABSENT, Change, State, StateKind
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import (
    STORED_STATUSES,
    Ordering,
    Retention,
    Row,
    RowKey,
    Status,
    removed_partition,
    row_attributes,
    row_from_attributes,
    row_key,
    truncate,
)
from intake_ledger.protocol.verdict import Policy, Verdict, judge_state
from tests.known import known
from tests.unit.support import (
    BUCKET,
    DAY,
    KEY,
    LEASE,
    PIPELINE,
    START,
    created,
    deleted,
    make_reason,
    marked,
    redriven,
    reprocess,
)

if TYPE_CHECKING:
    from collections.abc import Callable

RETENTION_SECONDS = 35 * 86_400
KEPT = Retention(RETENTION_SECONDS)
REMOVED = removed_partition(PIPELINE)
ONE = State(StateKind.OBJECT, "v" * 32, "e" * 32, 5_497_558_138_879, START)
TWO = replace(ONE, version_id="w" * 32)
ULID_1, ULID_2 = "01KA0000000000000000000001", "01KA0000000000000000000002"


def claimed(seen: Row | None, change: Change, state: State = ONE, *, now: int = START, owner: str = "0" * 16) -> Row:
    return row_changes.claimed(seen, change, state, owner=owner, now=now, lease_until=now + LEASE)


def abandoned(row: Row, reason: Reason, *, now: int, retention: Retention) -> Row:
    return row_changes.abandoned(row, reason, seen=row, now=now, retention=retention, partition=REMOVED)


def removal_recorded(
    seen: Row | None, change: Change, state: State, *, now: int = START, retention: Retention = KEPT
) -> Row:
    return row_changes.removal_recorded(seen, change, state, now=now, retention=retention, partition=REMOVED)


def committed(row: Row, commit: str | None = None, *, now: int = START) -> Row:
    return row_changes.committed(row, commit, now=now, retention=Retention(RETENTION_SECONDS))


def failed(row: Row, reason: str = "no", *, now: int = START) -> Row:
    return row_changes.failed(row, make_reason(reason), review_partition=PIPELINE, now=now)


def rejected(row: Row, reason: str = "no", *, now: int = START) -> Row:
    return row_changes.rejected(row, make_reason(reason), review_partition=PIPELINE, now=now)


def item_size(key: RowKey, row: Row) -> int:
    """Bytes, by DynamoDB's rule: names and texts as UTF-8, a number one byte and one for every two digits."""
    total = 0
    for name, value in {"pk": key.pk, "sk": key.sk, **row_attributes(row)}.items():
        digits = len(str(abs(value)).rstrip("0")) if isinstance(value, int) else 0
        total += len(name.encode()) + (1 + (digits + 1) // 2 if isinstance(value, int) else len(value.encode()))
    return total


class TestKeys:
    """Where a change is kept."""

    def test_latest_has_one_row_per_key(self) -> None:
        """The pipeline's name keeps two pipelines apart that share bucket and table."""
        assert row_key("P", Ordering.LATEST, "b", "k", "v#1") == RowKey("b/k", "P@latest")
        assert row_key("P", Ordering.LATEST, "b", "k", "v#2") == RowKey("b/k", "P@latest")
        assert row_key("Q", Ordering.LATEST, "b", "k", "v#1") != row_key("P", Ordering.LATEST, "b", "k", "v#1")

    @pytest.mark.parametrize("identity", ["v#1", "e#abc", "d#1"])
    def test_every_version_has_one_row_per_state(self, identity: str) -> None:
        """A permanent deletion is a separate state."""
        assert row_key("P", Ordering.EVERY_VERSION, "b", "k", identity) == RowKey("b/k", f"P@{identity}")

    @pytest.mark.failure_mode("F14")
    def test_what_passes_1024_bytes_is_hashed(self) -> None:
        """A version id may have 1,024 bytes itself; the longest that fits is kept readable."""
        room = 1024 - len(f"{PIPELINE}@v#")
        fits = row_key(PIPELINE, Ordering.EVERY_VERSION, BUCKET, KEY, "v#" + "x" * room)
        hashed = row_key(PIPELINE, Ordering.EVERY_VERSION, BUCKET, KEY, "v#" + "x" * (room + 1))
        assert len(fits.sk) == 1024
        assert hashed.sk.startswith(f"{PIPELINE}@h#")
        assert len(hashed.sk) < 200
        assert hashed != row_key(PIPELINE, Ordering.EVERY_VERSION, BUCKET, KEY, "v#" + "x" * room + "y")
        assert hashed != row_key(PIPELINE, Ordering.EVERY_VERSION, BUCKET, KEY, "d#" + "x" * (room + 1))

    @pytest.mark.failure_mode("F14")
    def test_bytes_count_and_not_characters(self) -> None:
        """Multi-byte characters."""
        key = row_key("P" * 64, Ordering.EVERY_VERSION, "b" * 63, "€" * 341, "v#" + "€" * 341)
        assert len(key.sk.encode()) <= 1024
        assert len(key.pk.encode()) <= 1088

    @pytest.mark.failure_mode("F15")
    @given(
        st.text("abPQ-", min_size=1),
        st.text("abPQ-", min_size=1),
        st.text(max_size=20),
        st.text(max_size=20),
        st.sampled_from(Ordering),
    )
    def test_no_two_changes_share_a_row(
        self, pipeline: str, other_pipeline: str, key: str, other_key: str, ordering: Ordering
    ) -> None:
        """Separators, `@latest` and `v#1` in keys are just characters."""
        one = row_key(pipeline, ordering, "b", key, "v#1")
        other = row_key(other_pipeline, ordering, "b", other_key, "v#1")
        assert (one == other) is ((pipeline, key) == (other_pipeline, other_key))

    @pytest.mark.failure_mode("F15")
    def test_a_bucket_and_its_keys_are_told_apart(self) -> None:
        """A bucket's name has no slash, so the first one separates."""
        assert row_key("P", Ordering.LATEST, "a", "b/c", None) != row_key("P", Ordering.LATEST, "ab", "/c", None)
        assert row_key("P", Ordering.LATEST, "a", "/b", None).pk == "a//b"


class TestTransitions:
    """The effect of each step on a row."""

    def test_the_first_claim(self) -> None:
        """F79: the fence starts from the clock."""
        row = claimed(None, created(ONE))
        assert row == Row(
            Status.PROCESSING,
            fence=START,
            version_id=ONE.version_id,
            etag=ONE.etag,
            size=ONE.size,
            sequencer="0055AED6DCD90281E5",
            event_name="ObjectCreated:Put",
            event_id="79104EXAMPLEB723",
            lease_until=START + LEASE,
            lease_owner="0" * 16,
            first_claimed_at=START,
            updated_at=START,
        )

    @pytest.mark.parametrize("state", [ONE, State(StateKind.OBJECT, None, "e"), State(StateKind.MARKER, "m"), ABSENT])
    @pytest.mark.parametrize(
        "change",
        [created(ONE), replace(created(ONE), state=None), marked(TWO), redriven(created(ONE), 3), reprocess(ULID_1)],
        ids=["an event", "a wake", "a marker", "a redrive", "a reprocess"],
    )
    @pytest.mark.parametrize("now", [START, 0])
    def test_the_first_claim_is_a_claim_over_a_row_that_says_nothing(
        self, change: Change, state: State, now: int
    ) -> None:
        """It is made in another way."""
        nothing = Row(Status.PROCESSED, fence=0, attempts=0)
        assert claimed(None, change, state, now=now) == claimed(nothing, change, state, now=now)

    @pytest.mark.failure_mode("F23")
    def test_a_failure_says_when_its_next_attempt_is_due(self) -> None:
        """No other row has this time."""
        claim = claimed(None, created(ONE))
        out = row_changes.failed(claim, make_reason("no"), review_partition=PIPELINE, now=START, retry_at=START + 8_000)
        assert out.retry_at == START + 8_000
        assert failed(claim).retry_at is None
        again = claimed(out, created(ONE))
        marker = State(StateKind.MARKER, "m")
        for row in (
            again,
            committed(again),
            rejected(again),
            row_changes.exhausted(out, created(ONE), review_partition=PIPELINE, now=START),
            removal_recorded(out, marked(marker), marker, now=START, retention=Retention(1)),
            abandoned(again, make_reason("gone"), now=START, retention=Retention(1)),
            claimed(out, created(TWO), TWO),
        ):
            assert row.retry_at is None
        assert row_changes.released(again, out).retry_at == out.retry_at, "as if it had never been claimed"

    @pytest.mark.parametrize("status", Status)
    def test_unsettled_is_what_may_be_half_done(self, status: Status) -> None:
        """A rejected row has its reason, a processed one its commit."""
        assert Row(status, 1).unfinished is (status in (Status.PROCESSING, Status.FAILED))

    def test_a_message_that_wakes_for_another_state_brings_no_sequencer(self) -> None:
        """It would be the wrong one."""
        assert claimed(None, created(ONE), TWO).sequencer is None
        assert claimed(None, deleted(ONE), ONE).sequencer is None

    def test_exhausted_is_a_rejection_with_the_next_fence(self) -> None:
        """A worker that still runs is fenced off."""
        dead = claimed(None, created(ONE))
        row = row_changes.exhausted(dead, created(ONE), review_partition=PIPELINE, now=START)
        assert (row.status, row.fence, row.rejected_fence) == (Status.REJECTED, dead.fence + 1, dead.fence + 1)
        assert row.reason == "the worker died or timed out at every attempt"
        again = row_changes.exhausted(failed(dead, "why"), created(ONE), review_partition=PIPELINE, now=START)
        assert again.reason == "why"

    @pytest.mark.failure_mode("F611")
    def test_an_exhausted_row_is_about_the_content_of_its_copy(self) -> None:
        """The message of another content with the same identity may be the one that sees the end."""
        dead = claimed(None, created(ONE))
        other = created(replace(ONE, etag="f" * 32))
        row = row_changes.exhausted(dead, other, review_partition=PIPELINE, now=START)
        assert (dead.etag, row.etag) == (ONE.etag, "f" * 32)
        later = created(replace(ONE, version_id="w" * 32, etag="f" * 32))
        assert row_changes.exhausted(dead, later, review_partition=PIPELINE, now=START).etag == ONE.etag

    def test_a_settled_removal_is_claimed_and_committed_in_one(self) -> None:
        """With the next fence, no attempt and an expiry."""
        done = committed(claimed(None, created(ONE)), "first")
        row = removal_recorded(done, marked(TWO), ABSENT, now=START, retention=Retention(RETENTION_SECONDS))
        assert (row.status, row.fence, row.attempts, row.committed_state) == (
            Status.PROCESSED,
            done.fence + 1,
            0,
            "absent",
        )
        assert (row.lease_owner, row.lease_until) == (None, None)
        assert (row.kept_state, row.commit_id, row.committed_fence) == (done.identity, "first", done.fence)
        assert row.expires_at is not None

    @pytest.mark.failure_mode("F07")
    @given(st.lists(st.sampled_from(["claim", "other", "commit", "fail", "reject", "settle", "exhaust"]), max_size=12))
    def test_the_fence_never_goes_back(self, steps: list[str]) -> None:
        """Every claim has a higher fence than the claim before."""
        row = claimed(None, created(ONE))
        for step in steps:
            before = row
            if step in ("commit", "fail", "reject") and row.status is not Status.PROCESSING:
                continue
            moves: dict[str, Callable[[Row], Row]] = {
                "claim": lambda r: claimed(r, created(ONE)),
                "other": lambda r: claimed(r, created(TWO), TWO),
                "commit": committed,
                "fail": failed,
                "reject": rejected,
                "settle": lambda r: removal_recorded(r, deleted(ONE), ABSENT, now=START, retention=Retention(1)),
                "exhaust": lambda r: row_changes.exhausted(r, created(ONE), review_partition=PIPELINE, now=START),
            }
            row = moves[step](row)
            assert row.fence == before.fence + (step in ("claim", "other", "settle", "exhaust"))
            if step == "exhaust":
                break  # only ever a dead claim, which is the end until a person asks
            assert (row.expires_at is not None) == (row.status is Status.PROCESSED)
            assert (row.lease_until is not None) == (row.status is Status.PROCESSING)


class TestLease:
    """Who holds a row."""

    @pytest.mark.failure_mode("F13")
    def test_a_lease_holds_up_to_its_last_millisecond(self) -> None:
        """Margin and lease are one number; the comparison adds nothing."""
        row = claimed(None, created(ONE))
        assert row.is_live(START + LEASE - 1)
        assert not row.is_live(START + LEASE)

    @pytest.mark.parametrize("status", [Status.PROCESSED, Status.FAILED, Status.REJECTED])
    def test_only_processing_is_live(self, status: Status) -> None:
        """An old lease in another row has no effect."""
        assert not Row(status, 1, lease_until=START).is_live(0)
        assert not Row(Status.PROCESSING, 1).is_live(0)


class TestFormat:
    """The attributes in DynamoDB."""

    @given(
        st.builds(
            Row,
            status=st.sampled_from(STORED_STATUSES),
            fence=st.integers(0, 2**60),
            version_id=st.none() | st.text(min_size=1),
            etag=st.none() | st.text(min_size=1),
            size=st.none() | st.integers(0, 2**50),
            kind=st.sampled_from(StateKind),
            attempts=st.integers(0, 9),
            lease_until=st.none() | st.integers(0, 2**50),
            reason=st.none() | st.text(),
            retry_at=st.none() | st.integers(0, 2**50),
            expires_at=st.none() | st.integers(0, 2**40),
        )
    )
    def test_a_row_survives(self, row: Row) -> None:
        """Attributes with the value None are not stored."""
        stored = row_attributes(row)
        assert None not in stored.values()
        assert row_from_attributes(stored) == row

    @pytest.mark.failure_mode("F69")
    def test_a_row_of_an_older_release(self) -> None:
        """It lacks attributes; the rest has defaults."""
        row = row_from_attributes({"status": "PROCESSED", "fence": 7, "committed_state": "v#1"})
        assert row == Row(Status.PROCESSED, 7, committed_state="v#1")
        assert row_from_attributes({"status": "FAILED"}) == Row(Status.FAILED, 0)

    @pytest.mark.failure_mode("F69")
    def test_a_failed_row_of_a_release_without_times_is_due(self) -> None:
        """Releases before `retry_at` did not write it; a message need not wait."""
        stored = row_attributes(failed(claimed(None, created(ONE))))
        assert "retry_at" not in stored
        row = known(row_from_attributes(stored))
        policy = Policy(max_attempts=2, retention_ms=RETENTION_SECONDS * 1000, deletes=True)
        assert judge_state(row, created(ONE), ONE, now=START, policy=policy).verdict is Verdict.ACCEPTED

    @pytest.mark.failure_mode("F69")
    def test_a_row_of_a_newer_release(self) -> None:
        """It has attributes that this one does not know."""
        found = {"pk": "b/k", "sk": "P@latest", "status": "PROCESSED", "fence": 7, "kind": "marker", "tomorrow": "x"}
        assert row_from_attributes(found) == Row(Status.PROCESSED, 7, kind=StateKind.MARKER)

    @pytest.mark.failure_mode("F09")
    def test_times_by_their_magnitude(self) -> None:
        """Everything in milliseconds but the TTL, which DynamoDB wants in seconds."""
        stored = row_attributes(committed(claimed(None, created(ONE))))
        assert isinstance(stored["expires_at"], int)
        assert 10**9 < stored["expires_at"] < 10**10
        for name in ("first_claimed_at", "updated_at", "fence"):
            assert 10**12 < stored[name] < 10**13

    @pytest.mark.failure_mode("F190")
    def test_a_commit_records_the_version_of_the_processor(self) -> None:
        """A commit whose version is unknown removes the former one. A version that is gone in S3 keeps it."""
        first = row_changes.committed(
            claimed(None, created(ONE)), None, now=START, retention=Retention(1), processor_version="0123456789ab"
        )
        assert first.processor_version == "0123456789ab"
        again = claimed(first, created(TWO))
        assert again.processor_version == "0123456789ab"
        gone = abandoned(again, make_reason("gone"), now=START, retention=Retention(1))
        assert (gone.processor_version, committed(again).processor_version) == ("0123456789ab", None)

    def test_the_names_are_the_documented_ones(self) -> None:
        """The CLI, the dashboard and other releases read them."""
        assert {field.name for field in fields(Row)} >= {
            "status", "version_id", "etag", "size", "sequencer", "event_name", "fence", "attempts", "redrive_count",
            "lease_until", "lease_owner", "committed_state", "committed_fence", "commit_id", "reason", "format",
            "retry_at", "rejected_fence", "reprocess_id", "served_reprocess_id", "first_claimed_at",
            "updated_at", "expires_at", "needs_review",
        }  # fmt: skip


class TestSize:
    """The cost of a row."""

    @pytest.mark.failure_mode("F17")
    @pytest.mark.parametrize("character", ["x", "é", "€", "🙂"])
    def test_reasons_are_cut(self, character: str) -> None:
        """A 300 KB stack trace would make every duplicate cost 300 units; bytes count, not characters."""
        claim, long = claimed(None, created(ONE)), character * 300_000
        for text in (
            failed(claim, long).reason,
            rejected(claim, long).reason,
            abandoned(claim, make_reason(long), now=START, retention=Retention(1)).reason,
            committed(claim, long).reason,
        ):
            assert text is not None
            assert len(text.encode()) <= 256
            assert text.endswith((character + "…", "return that key"))
        assert committed(claim, long).commit_id is None

    @pytest.mark.failure_mode("F17")
    @pytest.mark.parametrize(
        ("text", "short"),
        [
            ("", ""),
            ("abcde", "abcde"),
            ("abcdef", "ab…"),
            ("ééé", "é…"),
            ("éé", "éé"),
            ("a€b", "a€b"),
            ("ab€b", "ab…"),
            ("🙂🙂", "…"),
            (None, None),
        ],
    )
    def test_what_fits_is_not_cut(self, text: str | None, short: str | None) -> None:
        """To the last byte, and never through a character."""
        assert truncate(text, 5) == short

    @pytest.mark.failure_mode("F17")
    @given(st.text(st.characters(codec="utf-8"), max_size=40), st.integers(3, 30))
    def test_a_cut_text_is_within_the_limit_and_begins_as_the_whole(self, text: str, limit: int) -> None:
        """For any characters."""
        short = known(truncate(text, limit))
        assert len(short.encode()) <= limit
        assert text.startswith(short.removesuffix("…"))
        assert (short == text) is (len(text.encode()) <= limit)

    @pytest.mark.failure_mode("F17")
    def test_an_accepted_change_costs_one_write_unit(self) -> None:
        """Claims and commits of a key of 256 bytes, with the longest names of pipeline and bucket, all at once:
        overwritten, retried, reprocessed, with a commit identity of the length of a UUID.
        """
        key = row_key("P" * 64, Ordering.LATEST, "b" * 63, "k" * 256, None)
        change = replace(created(ONE, sequencer="A" * 18), event_name="ObjectCreated:CompleteMultipartUpload")
        uuid = "c" * 36
        first = claimed(None, change)
        done = committed(first, uuid)
        second = claimed(done, replace(change, state=TWO, reprocess_id=ULID_1), TWO)
        again = claimed(second, replace(change, state=TWO, reprocess_id=ULID_2), TWO)
        done_again = committed(again, uuid)
        reprocessed = committed(claimed(done_again, replace(change, state=TWO, reprocess_id=ULID_2), TWO), uuid)
        marker = State(StateKind.MARKER, "m" * 32)
        settled = removal_recorded(
            reprocessed, marked(marker), marker, now=START, retention=Retention(RETENTION_SECONDS)
        )
        released = row_changes.released(second, done)
        untagged = replace(reprocessed, tags_pending="v" * 32, tagged_at=None, expires_at=None)
        for row in (first, done, second, again, done_again, reprocessed, settled, released, untagged):
            assert item_size(key, row) <= 1024

    @pytest.mark.failure_mode("F17")
    @pytest.mark.parametrize("text", ["x", "é", "€"])
    def test_a_failed_or_rejected_row_costs_at_most_two(self, text: str) -> None:
        """With everything at its longest, in any script."""
        key = row_key("P" * 64, Ordering.LATEST, "b" * 63, "k" * 256, None)
        name = truncate(text * 300, 256)
        claim = claimed(committed(claimed(None, created(ONE)), name), reprocess(ULID_1), TWO)
        reason = Reason(max(ReasonCode, key=len), text * 400)
        failure = row_changes.failed(claim, reason, review_partition="P" * 64, now=START, retry_at=START + DAY + 1)
        for row in (
            failure,
            row_changes.rejected(claim, reason, review_partition="P" * 64, now=START),
            row_changes.exhausted(failure, created(ONE), review_partition="P" * 64, now=START),
            abandoned(claim, reason, now=START, retention=Retention(RETENTION_SECONDS)),
        ):
            assert item_size(key, row) <= 2048
