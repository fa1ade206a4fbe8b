"""A copy in place is not processed again (`same_content`): which content counts, and the histories that end it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, override

import pytest

from cdk_intake_ledger.testing import Fault, LocalPipeline, LocalRunner, LocalSets
from intake_ledger import Commit, NotYet, Unprocessable
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.ledger.conditions import Condition
from intake_ledger.ledger.ledger import break_claim
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status, row_key
from intake_ledger.protocol.same_content import content_rule
from intake_ledger_testing.local_settings import BUCKET, PIPELINE
from intake_ledger_testing.memory_s3 import s3_error, sha256_of
from intake_ledger_testing.outcome_counter import OutcomeCounter

_ANY = Condition("attribute_exists(#pk)", ("pk",), {})
DAY = 86_400
HOUR_MS = 3_600_000


def pipeline(process: Callable[[Any], Any] = lambda _: None, **options: Any) -> LocalPipeline:
    local = LocalPipeline(process, **{"same_content": (30 * DAY, None), **options})
    local._make_telemetry = lambda: Quiet(local)  # type: ignore[method-assign]
    return local


class Quiet(OutcomeCounter):
    """Lets requests be refused."""

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        pass


def row_of(local: LocalPipeline) -> Row:
    row = local.row("a")
    assert row is not None
    return row


def put(local: LocalPipeline, *contents: str) -> None:
    """Upload contents of a key, and let each one come to an end."""
    for content in contents:
        local.put("a", content, sha256=True)
        local.run()


def heads_of(local: LocalPipeline) -> list[dict[str, Any]]:
    """The HEADs for checksums, from now on."""
    asked: list[dict[str, Any]] = []
    head = local.s3.head_object

    def watched(**request: Any) -> Any:
        if "ChecksumMode" in request:
            asked.append(request)
        return head(**request)

    local.s3.head_object = watched  # type: ignore[method-assign]
    return asked


@pytest.mark.failure_mode("F788")
def test_a_copy_in_place_is_committed_without_a_call() -> None:
    local = pipeline(lambda _: "load 1")
    asked = heads_of(local)
    put(local, "1")
    first = row_of(local)
    version = local.copy("a")
    local.run()
    row = row_of(local)
    assert (row.status, row.version_id, row.committed_state) == (Status.PROCESSED, version, f"v#{version}")
    assert (row.reason_code, row.reason) == ("same_content", f"same content as version {first.version_id}")
    assert (row.commit_id, row.attempts, len(local.calls)) == ("load 1", 1, 1)
    assert row.committed_fence == row.fence > first.fence
    assert [one["VersionId"] for one in asked] == [first.version_id, version]
    local.duplicate()
    local.run()
    assert len(local.calls) == 1
    assert not local.run_audit()


@pytest.mark.failure_mode("F788")
def test_copies_of_copies_and_equal_uploads_are_known() -> None:
    local = pipeline()
    put(local, "1", "1")
    local.copy("a")
    local.copy("a")
    local.run()
    assert len(local.calls) == 1


@pytest.mark.failure_mode("F789")
def test_only_the_content_that_is_committed_now_counts() -> None:
    """A, B, A is three contents."""
    local = pipeline()
    put(local, "A", "B", "A")
    assert len(local.calls) == 3


@pytest.mark.failure_mode("F789")
def test_a_commit_without_a_known_content_counts_too() -> None:
    local = pipeline()
    put(local, "A")
    local.put("a", "B")
    local.run()
    put(local, "A")
    assert len(local.calls) == 3


@pytest.mark.failure_mode("F789")
def test_a_version_that_was_skipped_does_not_matter() -> None:
    """B was never processed, so the downstream still has A. The event of B comes after that of the second A."""
    local = pipeline()
    put(local, "A")
    local.put("a", "B", sha256=True)
    local.put("a", "A", sha256=True)
    local._sqs.messages.reverse()
    local.run()
    assert (len(local.calls), row_of(local).reason_code) == (1, "same_content")


@pytest.mark.failure_mode("F789")
@pytest.mark.parametrize("end", ["failed", "rejected", "killed", "waits", "taken"])
def test_an_attempt_that_may_have_written_another_content_ends_it(end: str) -> None:
    ends: list[str] = []

    def process(change: Any) -> None:
        match ends.pop() if ends else "":
            case "failed":
                raise OSError("in the middle")
            case "rejected":
                raise Unprocessable("in the middle")
            case "waits":
                raise NotYet("in the middle", retry_in=9 * 3_600)

    local = pipeline(process)
    put(local, "A")
    local.put("a", "B", sha256=True)
    if end in ("killed", "taken"):
        local.next(Fault.KILLED_AFTER_EFFECT)
    else:
        ends.append(end)
    local.turn()
    row = row_of(local)
    dead = end in ("killed", "taken")
    assert row.status is (Status.PROCESSING if dead else Status.REJECTED if end == "rejected" else Status.FAILED)
    if end == "taken":
        key = row_key(PIPELINE, Ordering.LATEST, BUCKET, "a", None)
        break_claim(local._table, PIPELINE, key, row, Reason(ReasonCode.LOCK_BROKEN, "dead"), now=local.now)
    calls = len(local.calls)
    put(local, "A")
    assert (row_of(local).status, row_of(local).reason_code) == (Status.PROCESSED, None)
    assert len(local.calls) > calls


@pytest.mark.failure_mode("F790")
def test_a_late_write_ends_it() -> None:
    """A worker of B stands still until A was committed again. Its effect lands then, and the copy repairs it."""
    effects: list[str] = []

    def process(change: Any) -> None:
        effects.append(change.read(max_bytes=9).decode())

    local = pipeline(process)
    put(local, "A")
    local.put("a", "B", sha256=True)
    local.next(Fault.OVERTAKEN)
    local.put("a", "A", sha256=True)
    local.run()
    assert effects[-1] == "A"
    assert row_of(local).settled


@pytest.mark.failure_mode("F790")
@pytest.mark.parametrize("when", ["before the claim", "before the commit", "while it waits"])
def test_a_reported_late_write_is_repaired_by_the_copy(when: str) -> None:
    local = pipeline(ready_when=("scan", ["clean"]))
    put(local, "A")
    local.put_tag("a", "scan", "clean")
    local.run()
    key = row_key(PIPELINE, Ordering.LATEST, BUCKET, "a", None)
    head = local.s3.head_object

    def late() -> None:
        local._table.mark(key, {"late_writes": frozenset({"v#late"})}, _ANY)

    def watched(**request: Any) -> Any:
        if "ChecksumMode" in request and when == "before the commit":
            local.s3.head_object = head  # type: ignore[method-assign]
            late()
        return head(**request)

    local.s3.head_object = watched  # type: ignore[method-assign]
    if when == "before the claim":
        late()
    version = local.copy("a")
    if when == "while it waits":
        local.s3.tags["a", version] = {}
        local.turn()
        assert row_of(local).reason_code == "tag_missing"
        late()
        local.put_tag("a", "scan", "clean")
    local.run()
    row = row_of(local)
    assert (row.status, row.reason_code, row.late_writes, len(local.calls)) == (Status.PROCESSED, None, frozenset(), 2)


@pytest.mark.failure_mode("F790")
def test_a_late_write_that_was_read_by_a_claim_that_waits_is_not_forgotten() -> None:
    """The claim takes the late write off the row, and ends before its processor begins."""
    local = pipeline(ready_when=("scan", ["clean"]))
    put(local, "A")
    local.put_tag("a", "scan", "clean")
    local.run()
    key = row_key(PIPELINE, Ordering.LATEST, BUCKET, "a", None)
    local._table.mark(key, {"late_writes": frozenset({"v#late"})}, _ANY)
    version = local.copy("a")
    local.s3.tags["a", version] = {}
    local.turn()
    assert (row_of(local).reason_code, row_of(local).late_writes) == ("tag_missing", frozenset())
    local.put_tag("a", "scan", "clean")
    local.run()
    assert (row_of(local).reason_code, len(local.calls)) == (None, 2)


@pytest.mark.failure_mode("F788")
def test_a_copy_that_has_waited_for_its_tag_is_known() -> None:
    local = pipeline(ready_when=("scan", ["clean"]))
    put(local, "A")
    local.put_tag("a", "scan", "clean")
    local.run()
    asked = heads_of(local)
    version = local.copy("a")
    local.s3.tags["a", version] = {}
    local.run(hours=9)
    assert (row_of(local).reason_code, asked) == ("tag_missing", [])
    local.put_tag("a", "scan", "clean")
    local.run()
    assert (row_of(local).reason_code, len(local.calls)) == ("same_content", 1)


@pytest.mark.failure_mode("F788")
def test_a_copy_takes_no_start_of_max_rate() -> None:
    local = pipeline(max_rate=0.001, max_burst=2)
    put(local, "A")
    for _ in range(5):
        local.copy("a")
        local.run()
    assert (len(local.calls), row_of(local).reason_code) == (1, "same_content")


@pytest.mark.failure_mode("F788")
def test_a_claim_that_is_given_back_ends_nothing() -> None:
    """S3 does not answer, so the row is put back."""
    local = pipeline()
    put(local, "A")
    head = local.s3.head_object

    def watched(**request: Any) -> Any:
        if "ChecksumMode" in request:
            local.s3.head_object = head  # type: ignore[method-assign]
            raise s3_error("HeadObject", 503, "SlowDown")
        return head(**request)

    local.s3.head_object = watched  # type: ignore[method-assign]
    fence = row_of(local).fence
    local.copy("a")
    local.turn()
    assert (row_of(local).status, row_of(local).committed_state) == (Status.PROCESSED, "v#version-1")
    assert row_of(local).fence > fence
    local.run()
    assert (row_of(local).reason_code, len(local.calls)) == ("same_content", 1)


@pytest.mark.failure_mode("F789")
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("undelete", [False, True])
def test_a_removal_ends_it(deletes: bool, undelete: bool) -> None:
    local = pipeline(deletes=deletes)
    put(local, "A")
    marker = local.delete("a")
    local.run()
    calls = len(local.calls)
    if undelete:
        assert marker
        local.delete_version("a", marker)
    else:
        local.put("a", "A", sha256=True)
    local.run()
    assert row_of(local).status is Status.PROCESSED
    assert len(local.calls) == calls + (deletes or not undelete)


@pytest.mark.failure_mode("F789")
def test_a_delete_marker_that_was_never_told_ends_nothing() -> None:
    local = pipeline(deletes=True)
    put(local, "A")
    local.delete("a")
    local.put("a", "A", sha256=True)
    local._sqs.messages.reverse()
    local.run()
    assert (len(local.calls), row_of(local).reason_code) == (1, "same_content")


@pytest.mark.failure_mode("F791")
@pytest.mark.parametrize("deletes", [False, True])
def test_a_row_of_a_restored_table_does_not_count(deletes: bool) -> None:
    """A and B were committed, and the backup has A."""
    local = pipeline(deletes=deletes)
    put(local, "A")
    backup = dict(local._dynamodb.items)
    put(local, "B")
    local._dynamodb.items.update(backup)
    restored_to = local.now
    summary = {"RestoreSummary": {"RestoreDateTime": datetime.fromtimestamp(restored_to / 1000, UTC)}}
    local._dynamodb.describe_table = lambda **_: {"Table": summary}  # type: ignore[method-assign]
    local.clock.advance(HOUR_MS)
    put(local, "A")
    assert [one.version_id for one in local.calls] == ["version-1", "version-2", "version-3"]
    local.copy("a")
    local.run()
    assert (len(local.calls), row_of(local).reason_code) == (3, "same_content")


@pytest.mark.failure_mode("F791")
def test_the_table_is_described_at_most_once_a_minute() -> None:
    local = pipeline()
    put(local, "A")
    local._dynamodb.requests.clear()
    worker = local.new_worker()
    for _ in range(9):
        local.copy("a")
        local.turn(worker)
    assert 0 < local._dynamodb.requests.count("DescribeTable") <= 2


@pytest.mark.failure_mode("F791")
def test_a_table_that_is_not_described_lets_copies_be_processed() -> None:
    local = pipeline()
    put(local, "A")

    def refuse(**_: Any) -> Any:
        raise s3_error("DescribeTable", 400, "AccessDeniedException")

    local._dynamodb.describe_table = refuse  # type: ignore[method-assign]
    local.copy("a")
    local.run()
    assert (row_of(local).status, len(local.calls)) == (Status.PROCESSED, 2)


@pytest.mark.failure_mode("F791")
def test_an_older_release_leaves_no_content_that_counts() -> None:
    """It commits B, and leaves the column."""
    local = pipeline()
    put(local, "A")
    rule = local._environment.pop("INTAKE_SAME_CONTENT")
    key = row_key(PIPELINE, Ordering.LATEST, BUCKET, "a", None)
    left = row_of(local).content
    put(local, "B")
    assert row_of(local).content is None
    local._table.mark(key, {"content": left}, _ANY)
    local._environment["INTAKE_SAME_CONTENT"] = rule
    put(local, "A")
    assert (row_of(local).reason_code, len(local.calls)) == (None, 3)


@pytest.mark.failure_mode("F788")
def test_after_its_time_a_content_is_processed_again() -> None:
    """Copies do not extend it."""
    local = pipeline(same_content=(2 * DAY, None))
    put(local, "A")
    for _ in range(3):
        local.clock.advance(DAY * 999)
        local.copy("a")
        local.run()
    assert len(local.calls) == 2
    local.copy("a")
    local.run()
    assert len(local.calls) == 2


@pytest.mark.failure_mode("F792")
@pytest.mark.parametrize("how", ["reprocess", "redrive of the copy", "redrive of another version"])
def test_a_person_is_always_heard(how: str) -> None:
    rejecting: list[bool] = []

    def process(_: Any) -> None:
        if rejecting:
            raise Unprocessable("no")

    local = pipeline(process)
    put(local, "A")
    if how != "reprocess":
        rejecting.append(True)
        put(local, "B")
        rejecting.clear()
    if how == "redrive of another version":
        put(local, "A")
        assert row_of(local).content
    local.copy("a")
    local.reprocess("a") if how == "reprocess" else local.redrive()
    local._sqs.messages.reverse()
    calls = len(local.calls)
    local.run()
    assert (len(local.calls), local.calls[-1].version_id) == (calls + 1, row_of(local).version_id)
    assert row_of(local).reason_code is None


@pytest.mark.failure_mode("F792")
def test_a_request_that_was_claimed_before_is_still_served() -> None:
    """Its worker has died. The message of the copy goes on with the row."""
    local = pipeline(ready_when=("scan", ["clean"]))
    put(local, "A")
    local.put_tag("a", "scan", "clean")
    local.run()
    version = local.copy("a")
    local.s3.tags["a", version] = {}
    local.reprocess("a")
    local.run(hours=1)
    assert row_of(local).reprocess_id
    local.put_tag("a", "scan", "clean")
    local.turn()
    assert (row_of(local).status, len(local.calls)) == (Status.PROCESSED, 2)


@pytest.mark.failure_mode("F793")
@pytest.mark.parametrize(
    "checksum",
    [
        {},
        {"ChecksumCRC64NVME": "x", "ChecksumType": "FULL_OBJECT"},
        {"ChecksumSHA256": "x-3", "ChecksumType": "COMPOSITE"},
        {"ChecksumSHA256": "x"},
        {"ChecksumSHA1": "x", "ChecksumType": "FULL_OBJECT"},
    ],
)
def test_other_checksums_name_no_content(checksum: dict[str, str]) -> None:
    local = pipeline()
    for _ in range(2):
        version = local.s3.put("a", b"1", None, checksum)
        local._notify("a", "ObjectCreated:Put", version.version_id, version)
        local.run()
    assert (len(local.calls), row_of(local).content) == (2, None)


@pytest.mark.failure_mode("F793")
def test_an_empty_file_and_another_size_name_no_content() -> None:
    local = pipeline()
    put(local, "", "")
    assert len(local.calls) == 2
    for content in (b"1", b"22"):
        version = local.s3.put("a", content, None, sha256_of(b"1"))
        local._notify("a", "ObjectCreated:Put", version.version_id, version)
        local.run()
    assert len(local.calls) == 4


@pytest.mark.failure_mode("F793")
def test_a_field_of_metadata_may_name_the_content() -> None:
    local = pipeline(same_content=(DAY, "digest"))
    for digest, calls in (
        ({"Digest": "1"}, 1),
        ({"Digest": "1"}, 1),
        ({"Digest": "2"}, 2),
        ({}, 3),
        ({"digest": ""}, 4),
    ):
        local.put("a", "x", metadata=digest, sha256=True)
        local.run()
        assert len(local.calls) == calls
    local.put("a", "x", metadata={"digest": ""})
    local.run()
    assert len(local.calls) == 5


@pytest.mark.failure_mode("F793")
def test_another_rule_does_not_know_the_contents_of_the_last_one() -> None:
    local = pipeline(same_content=(DAY, "digest"))
    name = sha256_of(b"x")["ChecksumSHA256"]
    local.put("a", "x", metadata={"digest": name})
    local.run()
    local._environment["INTAKE_SAME_CONTENT"] = "[86400, null]"
    put(local, "x")
    assert len(local.calls) == 2


@pytest.mark.failure_mode("F793")
def test_the_content_is_that_of_exactly_the_claimed_version() -> None:
    """B comes between the claim of a copy and the question about its content."""
    local = pipeline()
    put(local, "A")
    head, copied = local.s3.head_object, local.copy("a")

    def watched(**request: Any) -> Any:
        if "ChecksumMode" in request:
            local.s3.head_object = head  # type: ignore[method-assign]
            local.put("a", "B", sha256=True)
        return head(**request)

    local.s3.head_object = watched  # type: ignore[method-assign]
    local.turn()
    assert row_of(local).committed_state == f"v#{copied}"
    local.run()
    assert [one.version_id for one in local.calls] == ["version-1", "version-3"]


@pytest.mark.failure_mode("F793")
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_a_refused_question_loses_no_file(status: int) -> None:
    local = pipeline()
    head, left = local.s3.head_object, [status]

    def watched(**request: Any) -> Any:
        if "ChecksumMode" in request and left:
            if left.pop() == 404:
                local.s3.delete_version("a", "version-1")
            raise s3_error("HeadObject", status, "no")
        return head(**request)

    local.s3.head_object = watched  # type: ignore[method-assign]
    put(local, "A")
    assert len(local.calls) == (status != 404)
    put(local, "A")
    assert row_of(local).status is Status.PROCESSED
    assert len(local.calls) == {400: 2, 403: 2, 404: 1, 500: 1}[status]


@pytest.mark.failure_mode("F794")
def test_the_tag_and_the_result_are_those_of_a_commit() -> None:
    local = pipeline(lambda _: Commit("load 1"), after_commit=("intake", "done"))
    put(local, "A")
    version = local.copy("a")
    local.s3.tags["a", version] = {}
    local.run()
    row = row_of(local)
    assert (local.tags("a"), row.tagged_at is not None, row.commit_id) == ({"intake": "done"}, True, "load 1")
    assert len(local.calls) == 1


@pytest.mark.failure_mode("F794")
def test_a_refused_tag_of_a_copy_has_its_reason() -> None:
    local = pipeline(after_commit=("intake", "done"))
    put(local, "A")

    def refuse(**_: Any) -> Any:
        raise s3_error("PutObjectTagging", 403, "AccessDenied")

    version = local.copy("a")
    local.s3.tags["a", version] = {}
    local.s3.put_object_tagging = refuse  # type: ignore[method-assign]
    local.turn()
    assert row_of(local).reason_code == "tag_refused"


@pytest.mark.failure_mode("F794")
@pytest.mark.parametrize("options", [{}, {"max_per_call": 3, "after_commit": ("intake", "done")}])
def test_a_copy_says_nothing_about_the_downstream(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool | None] = []
    ended = Downstream.ended

    def watched(self: Downstream, key: str, healthy: bool | None, *others: Any) -> None:
        told.append(healthy)
        ended(self, key, healthy, *others)

    monkeypatch.setattr(Downstream, "ended", watched)
    local = pipeline(lambda many: {one.idempotency_key: "" for one in many} if options else None, **options)
    for copied in (False, True):
        for key in "abc":
            local.copy(key) if copied else local.put(key, key, sha256=True)
        local.run()
    assert told == [True, True, True, None, None, None]


@pytest.mark.failure_mode("F788")
def test_a_call_has_no_copies() -> None:
    given: list[list[str]] = []

    def process(changes: Any) -> dict[str, str]:
        given.append([one.key for one in changes])
        return {one.idempotency_key: f"of {one.key}" for one in changes}

    local = pipeline(process, max_per_call=3, after_commit=("intake", "done"))
    for key in "abc":
        local.put(key, key, sha256=True)
    local.run()
    assert given == [["a", "b", "c"]]
    for key in "ab":
        local.s3.tags[key, local.copy(key)] = {}
    local.put("c", "other", sha256=True)
    local.run()
    assert given[1:] == [["c"]]
    for key, code in (("a", "same_content"), ("b", "same_content"), ("c", None)):
        row = local.row(key)
        assert row is not None
        assert (row.status, row.reason_code, row.commit_id) == (Status.PROCESSED, code, f"of {key}")
        assert local.tags(key) == {"intake": "done"}
    local.copy("c")
    local.run()
    assert len(given) == 2


@pytest.mark.failure_mode("F788")
@pytest.mark.parametrize("options", [{"commit_together": True}, {"runner": LocalRunner.FUNCTION}, {"worker": True}])
def test_contents_are_recorded_by_each_way_of_a_commit(options: dict[str, Any]) -> None:
    local = pipeline(lambda _: {"commit": "x"} if "runner" in options else "x", **options)
    for key in "abc":
        local.put(key, key, sha256=True)
    local.run()
    for key in "abc":
        local.copy(key)
    local.run()
    assert len(local.calls) == 3
    rows = [local.row(key) for key in "abc"]
    assert [(one.reason_code, one.commit_id) for one in rows if one] == [("same_content", "x")] * 3


@pytest.mark.failure_mode("F788")
def test_rejected_rows_stay_with_their_copy() -> None:
    local = pipeline(keep_rejects=True)
    local.put("a", "n\n1\n", sha256=True)
    local.run()
    key = row_key(PIPELINE, Ordering.LATEST, BUCKET, "a", None)
    local._table.mark(key, {"read_rows": 3, "rejected_rows": 1}, _ANY)
    local.copy("a")
    local.run()
    row = row_of(local)
    assert (row.reason_code, row.rejected_rows, row.expires_at, row.needs_review) == (
        "same_content", 1, None, f"{PIPELINE}#rejected_rows",
    )  # fmt: skip


def test_what_cannot_know_copies_is_refused() -> None:
    with pytest.raises(ValueError, match="same_content needs a bucket with versions"):
        pipeline(versioned=False)
    for option in ({"ordering": Ordering.EVERY_VERSION}, {"runner": LocalRunner.STATE_MACHINE}):
        with pytest.raises(ValueError, match="each version is processed there, so omit same_content"):
            pipeline(**option)
    with pytest.raises(TypeError, match="unexpected option 'same_content'"):
        LocalSets(lambda _: None, same_content=(1, None))  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["1", "[1]", "[0, null]", '[1, "X-Y"]', '["1", null]', "[true, null]", "{", '[1, ""]'])
def test_a_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^X is "):
        content_rule("X", text)


def test_a_setting_is_read() -> None:
    assert content_rule("X", "") is None
    assert content_rule("X", '[5, "sha256"]') == (5, "sha256")
