"""The tag of a committed version (`after_commit`): set once the commit is written, repeated until S3 has taken it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from moto import mock_aws

from cdk_intake_ledger.testing import LocalPipeline, LocalSets
from intake_ledger import Unprocessable
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.commit_tag import CommitTag, tag_problem
from intake_ledger.protocol.row import Ordering, Status, row_key
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from intake_ledger_testing.memory_s3 import s3_error
from tests.known import known
from tests.unit.support import DAY, MINUTE

PAGE = (Path(__file__).parents[3] / "docs" / "options.md").read_text()
TAG = ("intake", "done")
SET = dict([TAG])
KEY = row_key("local", Ordering.LATEST, "local-bucket", "a", None)


def pipeline(process: Callable[[Any], Any] = lambda _: None, **options: Any) -> LocalPipeline:
    return LocalPipeline(process, after_commit=TAG, **options)


class Refusals:
    """S3 refuses requests about tags of a version while it is in `versions`."""

    def __init__(
        self, local: LocalPipeline, *versions: str | None, code: str = "AccessDenied", status: int = 403
    ) -> None:
        self.versions, self.code, self.status = set(versions), code, status
        self.asked = 0
        self._ask = local.s3.get_object_tagging
        local.s3.get_object_tagging = self.request  # type: ignore[method-assign]

    def request(self, **request: Any) -> dict[str, Any]:
        self.asked += 1
        if request["VersionId"] in self.versions:
            raise s3_error("GetObjectTagging", self.status, self.code)
        return self._ask(**request)


@pytest.mark.failure_mode("F545")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_the_version_is_tagged_after_its_commit_and_never_before(ordering: Ordering) -> None:
    seen: list[dict[str, str]] = []
    local = pipeline(lambda change: seen.append(local.tags(change.key)), ordering=ordering)
    version = local.put("a", "1")
    local.run()
    row = known(local.row("a"))
    assert (seen, local.tags("a", version)) == ([{}], SET)
    assert (row.tags_pending, row.tagged_at is not None, row.expires_at is not None) == (None, True, True)


def test_what_is_not_committed_gets_no_tag() -> None:
    def refuse(_: Any) -> None:
        raise Unprocessable("no invoice")

    local = pipeline(refuse)
    local.put("a", "1")
    local.run()
    assert local.tags("a") == {}


def test_other_tags_stay() -> None:
    local = pipeline()
    version = local.put("a", "1")
    local.s3.tags["a", version] = {"team": "sales", "intake": "new"}
    local.run()
    assert local.tags("a") == {"team": "sales", "intake": "done"}


@pytest.mark.failure_mode("F546")
def test_a_version_with_ten_tags_keeps_them_and_its_row_says_so() -> None:
    local = pipeline()
    full = {f"t{number}": "" for number in range(10)}
    version = local.put("a", "1")
    local.s3.tags["a", version] = dict(full)
    local.run(hours=1)
    row = known(local.row("a"))
    assert (row.status, row.reason_code, local.tags("a")) == (Status.PROCESSED, "tags_full", full)
    del local.s3.tags["a", version]["t0"]
    local.run()
    row = known(local.row("a"))
    assert (row.reason, row.tags_pending, local.tags("a")["intake"]) == (None, None, "done")
    assert len(local.calls) == 1


@pytest.mark.failure_mode("F546")
def test_a_refused_tag_is_tried_again_and_the_processor_is_not_called_again() -> None:
    local = pipeline()
    version = local.put("a", "1")
    refusals = Refusals(local, version)
    local.run(hours=2)
    row = known(local.row("a"))
    assert (row.status, row.reason_code, row.tags_pending, row.expires_at) == (
        Status.PROCESSED, "tag_refused", version, None,
    )  # fmt: skip
    assert "AccessDenied" in (row.reason or "")
    refusals.versions.clear()
    local.run()
    assert (local.tags("a"), len(local.calls)) == (SET, 1)


@pytest.mark.failure_mode("F546")
def test_waits_for_a_refused_tag_grow_and_end_in_the_hands_of_the_audit() -> None:
    """The message is acknowledged before its queue deletes it. Each run of the audit then sends one."""
    local = pipeline()
    version = local.put("a", "1")
    refusals = Refusals(local, version)
    local.run(hours=20 * 24)
    assert (local.waiting, local.expired, local._sqs.dead_letters) == (0, 0, [])
    assert refusals.asked < 200
    assert known(local.row("a")).tags_pending == version
    local.clock.advance(DAY)
    assert local.run_audit() == ["a"]
    local.run(hours=1)
    refusals.versions.clear()
    local.run()
    assert (local.tags("a"), len(local.calls)) == (SET, 1)
    local.clock.advance(DAY)
    assert local.run_audit() == []


@pytest.mark.failure_mode("F547")
@pytest.mark.parametrize("kind", ["deleted", "marked"])
def test_a_version_that_is_gone_needs_no_tag(kind: str) -> None:
    local = pipeline()
    version = known(local.put("a", "1"))
    refusals = Refusals(local, version)
    local.run(hours=1)
    if kind == "deleted":
        local.delete_version("a", version)
    else:
        local.delete("a")
    refusals.versions.clear()
    local.run()
    row = known(local.row("a"))
    assert (row.status, row.tags_pending) == (Status.PROCESSED, None)
    assert row.expires_at is not None


@pytest.mark.failure_mode("F547")
def test_the_row_of_a_version_that_is_gone_still_expires() -> None:
    """The deletion lets a row expire that would stay as long as its version. The clear must not undo that."""
    local = pipeline(deletes=True, ordering=Ordering.EVERY_VERSION)
    version = known(local.put("a", "1"))
    refusals = Refusals(local, version)
    local.run(hours=1)
    local.delete_version("a", version)
    local.run(hours=1)
    row = known(local.row("a", version))
    assert (row.tags_pending, row.expires_at is not None) == (version, True)
    refusals.versions.clear()
    local.run()
    row = known(local.row("a", version))
    assert (row.tags_pending, row.expires_at is not None) == (None, True)


@pytest.mark.failure_mode("F548")
def test_a_newer_commit_does_not_lose_the_tag_of_an_older_version() -> None:
    """The row names both versions, and either message tags both."""
    local = pipeline()
    first = local.put("a", "1")
    refusals = Refusals(local, first)
    local.run(hours=1)
    local._sqs.purge()
    second = local.put("a", "2")
    local.run(hours=1)
    row = known(local.row("a"))
    assert (row.tags_pending, local.tags("a", second)) == (first, SET)
    refusals.versions.clear()
    local.run()
    assert local.tags("a", first) == SET
    assert len(local.calls) == 2


def test_the_row_tells_when_its_version_was_tagged_while_an_older_one_waits() -> None:
    local = pipeline()
    refusals = Refusals(local, local.put("a", "1"))
    local.run(hours=1)
    local.put("a", "2")
    local.run(hours=1)
    tagged_at = known(known(local.row("a")).tagged_at)
    refusals.versions.clear()
    local.run()
    row = known(local.row("a"))
    assert (row.tags_pending, row.tagged_at) == (None, tagged_at)


def with_refused_tag() -> tuple[LocalPipeline, str, Refusals]:
    """A pipeline that rejects all but the first version of `a`, this version, and the refusals of its tag."""

    def process(change: Any) -> None:
        if change.version_id != first:
            raise Unprocessable("no invoice")

    first = ""
    local = pipeline(process)
    first = str(local.put("a", "1"))
    refusals = Refusals(local, first)
    local.run(hours=1)
    local._sqs.purge()
    return local, first, refusals


@pytest.mark.failure_mode("F548")
def test_the_tag_of_an_older_version_survives_the_rejection_of_a_newer_one() -> None:
    local, first, refusals = with_refused_tag()
    local.put("a", "2")
    local.run()
    assert known(local.row("a")).tags_pending == first
    refusals.versions.clear()
    local.clock.advance(DAY)
    assert local.run_audit() == ["a"]
    local.run()
    row = known(local.row("a"))
    assert (row.status, row.tags_pending, row.expires_at) == (Status.REJECTED, None, None)
    assert (local.tags("a", first), local.tags("a")) == (SET, {})


@pytest.mark.failure_mode("F545")
@pytest.mark.parametrize("options", [{"commit_together": True}, {"max_per_call": 5}, {}], ids=str)
def test_versions_of_a_batch_are_tagged_however_they_are_committed(options: dict[str, Any]) -> None:
    together = "max_per_call" in options

    def process(given: Any) -> object:
        return {one.idempotency_key: None for one in given} if together else None

    local = pipeline(process, **options)
    for turn in "ab":
        for number in range(6):
            local.put(f"{turn}{number}", "1")
        local.run()
    keys = [f"{turn}{number}" for turn in "ab" for number in range(6)]
    assert [local.tags(key) for key in keys] == [SET] * 12
    assert not any(known(local.row(key)).tags_pending for key in keys)


def test_a_refused_tag_of_a_held_commit_brings_its_message_back() -> None:
    local = pipeline(commit_together=True)
    local.put("warm", "1")
    local.run()
    versions = [local.put(f"a{number}", "1") for number in range(5)]
    refusals = Refusals(local, versions[3])
    local.turn()
    assert local.waiting == 1
    refusals.versions.clear()
    local.run()
    assert local.tags("a3") == SET


def test_a_reprocess_tags_again_and_changes_nothing() -> None:
    local = pipeline()
    local.put("a", "1")
    local.run()
    writes: list[Any] = []
    put = local.s3.put_object_tagging

    def write(**request: Any) -> dict[str, Any]:
        writes.append(request)
        return put(**request)

    local.s3.put_object_tagging = write  # type: ignore[method-assign]
    local.clock.advance(MINUTE)
    local.reprocess("a")
    local.run()
    assert (len(local.calls), writes) == (2, [])
    row = known(local.row("a"))
    assert row.tags_pending is None


def test_a_removal_gets_no_tag() -> None:
    local = pipeline(deletes=True)
    local.put("a", "1")
    local.run()
    local.delete("a")
    local.run()
    row = known(local.row("a"))
    assert (row.tags_pending, len(local.calls)) == (None, 2)


@pytest.mark.failure_mode("F549")
def test_a_late_write_keeps_a_tagged_row_from_expiring() -> None:
    """The late write comes between the commit and the write that clears the tag."""
    local = pipeline()
    version = local.put("a", "1")
    Refusals(local, version)
    local.run(hours=1)
    row = known(local.row("a"))
    key = row_key("local", Ordering.LATEST, "local-bucket", "a", None)
    local._table.report_late_write(key, _older(row))
    local.new_worker().services.ledger.tagged(key, row, [str(version)])
    after = known(local.row("a"))
    assert (after.tags_pending, after.expires_at, bool(after.late_writes)) == (None, None, True)


@pytest.mark.failure_mode("F539")
@pytest.mark.failure_mode("F549")
def test_a_late_write_of_the_committed_state_lets_a_tagged_row_expire() -> None:
    """It leaves nothing to repair. Without a tag, the row expires too."""

    def process(_: Any) -> None:
        row = known(local.row("a"))
        local._table.report_late_write(KEY, replace(row, fence=row.fence - 1))

    local = pipeline(process)
    local.put("a", "1")
    local.run()
    row = known(local.row("a"))
    assert (len(row.late_writes), row.settled, row.tags_pending) == (1, True, None)
    assert row.expires_at is not None


@pytest.mark.failure_mode("F549")
def test_a_claimed_row_keeps_its_versions_until_its_commit() -> None:
    """Otherwise a claim that is released would leave a row that never expires."""
    local = pipeline()
    version = local.put("a", "1")
    Refusals(local, version)
    local.run(hours=1)
    local._sqs.purge()
    seen = known(local.row("a"))
    key = row_key("local", Ordering.LATEST, "local-bucket", "a", None)
    local.put("a", "2")
    worker = local.new_worker()
    [message] = [one.parsed[0] for one in worker.kind.read(_event(local)).messages]
    claim = worker.services.ledger.claim(message, lease_ms=MINUTE)  # type: ignore[arg-type]
    assert isinstance(claim, Claim)
    worker.services.ledger.tagged(key, seen, [str(version)])
    assert known(local.row("a")).tags_pending == version
    worker.services.ledger.release(claim)
    worker.services.ledger.tagged(key, seen, [str(version)])
    after = known(local.row("a"))
    assert (after.tags_pending, after.expires_at is not None) == (None, True)


@pytest.mark.failure_mode("F549")
def test_a_row_whose_tag_is_cleared_before_a_claim_does_not_expire_as_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker clears the names that a claim has read, and lets the row expire, before the claim is written."""
    local, first, refusals = with_refused_tag()
    seen = known(local.row("a"))
    refusals.versions.clear()
    local.put("a", "2")
    other, update, left = local.new_worker().services.ledger, LedgerTable.update, [True]

    def cleared_before(*arguments: Any) -> None:
        if left and left.pop():
            other.tagged(row_key("local", Ordering.LATEST, "local-bucket", "a", None), seen, [first])
        update(*arguments)

    monkeypatch.setattr(LedgerTable, "update", cleared_before)
    local.run()
    after = known(local.row("a"))
    assert (left, after.status, after.tags_pending, after.expires_at) == ([], Status.REJECTED, None, None)


def _event(local: LocalPipeline) -> dict[str, Any]:
    return {"Records": [{"messageId": "1", "body": local._sqs.messages[0].body, "attributes": {}}]}


@pytest.mark.failure_mode("F546")
def test_a_refused_tag_of_a_part_does_not_hold_back_its_set() -> None:
    sets = LocalSets(lambda _: None, manifest="**/manifest.json")
    sets.parts._environment |= environment_of(ConsumerSettings, after_commit=json.dumps(TAG))
    sets.put("d/manifest.json", '["a"]')
    sets.run(hours=0.01)
    part = sets.put("d/a", "1")
    Refusals(sets.parts, part)
    sets.run(hours=0.001)
    row = known(sets.row("d/manifest.json"))
    assert row.status is Status.PROCESSED
    assert sets.parts.tags("d/a") == {}


@contextmanager
def code_of_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of the code in docs/options.md, with its two buckets."""
    section = PAGE.split("\n### Move to another bucket\n", 1)[1]
    [code] = re.findall(r"```python\n(.*?)```", section.split("\n### ", 1)[0], flags=re.DOTALL)
    names: dict[str, Any] = {"load": lambda _: None}
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        exec(compile(code, "docs/options.md", "exec"), names)
        s3 = names["s3"]
        for bucket in ("uploads", "archive"):
            s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        s3.put_bucket_versioning(Bucket="uploads", VersioningConfiguration={"Status": "Enabled"})
        yield names


def test_a_late_copy_of_the_page_replaces_no_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/options.md, called for the newer version, for the older one, and again."""
    with code_of_page(monkeypatch) as names:
        s3 = names["s3"]
        versions = [s3.put_object(Bucket="uploads", Key="a", Body=body)["VersionId"] for body in (b"1", b"2")]
        for version in (versions[1], versions[0], versions[1]):
            names["process"](SimpleNamespace(bucket="uploads", key="a", version_id=version))
        found = [one["Key"] for one in s3.list_objects_v2(Bucket="archive")["Contents"]]
        assert sorted(found) == sorted(f"a/{version}" for version in versions)
        contents = [s3.get_object(Bucket="archive", Key=f"a/{version}")["Body"].read() for version in versions]
        assert contents == [b"1", b"2"]


@pytest.mark.failure_mode("F665")
@pytest.mark.parametrize("size", [1_000, 9_000_000])
def test_the_copy_of_the_page_is_whole_at_any_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """boto3's `copy` makes parts from 8 MB on, which have no tags, and with older releases no metadata."""
    with code_of_page(monkeypatch) as names:
        s3 = names["s3"]
        described = {"Metadata": {"sender": "acme"}, "ContentType": "text/csv", "ContentEncoding": "gzip"}
        version = s3.put_object(Bucket="uploads", Key="a", Body=b"x" * size, Tagging="class=secret", **described)
        names["process"](SimpleNamespace(bucket="uploads", key="a", version_id=version["VersionId"]))
        place = {"Bucket": "archive", "Key": f"a/{version['VersionId']}"}
        copied = s3.head_object(**place)
        assert {name: copied.get(name) for name in described} == described
        assert s3.get_object_tagging(**place)["TagSet"] == [{"Key": "class", "Value": "secret"}]


def _older(row: Any) -> Any:
    return replace(row, fence=row.fence - 1, version_id="version-0")


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("intake", "done", None),
        ("k" * 128, "v" * 256, None),
        ("ключ", "", None),
        ("", "x", "its key"),
        ("k" * 129, "x", "its key"),
        ("k", "v" * 257, "its value"),
        ("a&b", "x", "letters"),
        ("k", "done\n", "letters"),
        ("k", "a\tb", "letters"),
        ("k", "a\u00a0b", None),
        ("AWS:x", "x", "aws:"),
    ],
)
def test_what_s3_refuses_is_a_problem_of_the_tag(key: str, value: str, problem: str | None) -> None:
    found = tag_problem(key, value)
    assert found is None if problem is None else problem in (found or "")


def test_a_bucket_without_versions_is_refused() -> None:
    with pytest.raises(ValueError, match="a request about a key may reach a newer object"):
        LocalPipeline(lambda _: None, after_commit=TAG, versioned=False)


def test_a_tag_that_is_there_needs_no_write() -> None:
    assert CommitTag(*TAG).set_among(SET) is None


@pytest.mark.parametrize("reported", [True, False])
def test_an_expired_object_is_done_and_not_lost(reported: bool) -> None:
    """A lifecycle rule makes a delete marker. If its event is lost, one message of the audit records it."""
    local = pipeline()
    local.put("a", "1")
    local.run()
    local.clock.advance(30 * DAY)
    local.delete("a")
    if not reported:
        local._sqs.purge()
    local.run()
    local.clock.advance(DAY)
    assert local.run_audit() == ([] if reported else ["a"])
    local.run()
    local.clock.advance(DAY)
    assert local.run_audit() == []
    row = known(local.row("a"))
    assert (row.settled_as, len(local.calls), local._sqs.dead_letters) == ("removal", 1, [])
