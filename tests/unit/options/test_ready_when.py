"""Versions wait for a tag (`ready_when`): looks, wakes, refusals, and the races of the two."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner, LocalSets
from intake_ledger import NotYet, Unprocessable
from intake_ledger.protocol.awaited_tag import awaited_tag
from intake_ledger.protocol.errors import LibraryError, SettingsError
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_testing import events
from intake_ledger_testing.local_settings import BUCKET
from intake_ledger_testing.memory_s3 import Version, s3_error

SCAN = ("scan", ["clean", "accepted"], ["infected"])
HOUR = 3_600_000


def pipeline(process: Callable[[Any], Any] = lambda _: None, **options: Any) -> LocalPipeline:
    return LocalPipeline(process, **{"ready_when": SCAN, **options})


def row_of(local: LocalPipeline, key: str = "a", version: str | None = None) -> Row:
    row = local.row(key, version)
    assert row is not None
    return row


def looks_of(local: LocalPipeline) -> list[int]:
    """The times at which tags are read, from now on."""
    times: list[int] = []
    ask = local.s3.get_object_tagging

    def watched(**request: Any) -> Any:
        times.append(local.clock())
        return ask(**request)

    local.s3.get_object_tagging = watched  # type: ignore[method-assign]
    return times


@pytest.mark.failure_mode("F775")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_nothing_is_read_or_processed_before_the_tag_is_there(ordering: Ordering) -> None:
    local = pipeline(lambda change: bool(change.read(max_bytes=9)) and None, ordering=ordering)
    read: list[str] = []
    get = local.s3.get_object

    def watched(**request: Any) -> Any:
        read.append(request["Key"])
        return get(**request)

    local.s3.get_object = watched  # type: ignore[method-assign]
    version = local.put("a", "1234")
    local.run(hours=1)
    row = row_of(local)
    assert (row.status, row.reason_code, row.attempts, local.calls, read) == (Status.FAILED, "tag_missing", 0, [], [])
    assert row.reason == "it has no tag scan"
    local.put_tag("a", "scan", "clean")
    local.turn()
    row = row_of(local)
    assert (row.status, row.version_id, row.size, row.event_name) == (
        Status.PROCESSED, version, 4, "ObjectCreated:Put",
    )  # fmt: skip
    assert (len(local.calls), read) == (1, ["a"])


@pytest.mark.failure_mode("F776")
def test_a_tag_that_came_before_the_message_counts() -> None:
    local = pipeline()
    version = local.put("a", "1")
    local.s3.tags["a", version] = {"scan": "accepted"}
    local.turn()
    assert row_of(local).status is Status.PROCESSED


@pytest.mark.failure_mode("F776")
def test_a_lost_event_is_found_by_few_looks() -> None:
    local = pipeline()
    times = looks_of(local)
    version = local.put("a", "1")
    local.run(hours=10)
    assert len(times) < 12
    local.s3.tags["a", version] = {"scan": "clean"}
    local.run(hours=14)
    assert row_of(local).status is Status.PROCESSED


@pytest.mark.failure_mode("F777")
def test_a_value_of_refusal_rejects_with_its_reason() -> None:
    local = pipeline()
    local.put("a", "1")
    local.run(hours=1)
    local.put_tag("a", "scan", "infected")
    local.turn()
    row = row_of(local)
    assert (row.status, row.reason_code, row.reason) == (Status.REJECTED, "tag_refuses", "its tag scan is infected")
    [letter] = local._sqs.dead_letters
    assert letter.attributes["reason_code"] == "tag_refuses"
    assert local.calls == []


@pytest.mark.failure_mode("F777")
def test_a_person_cannot_process_a_version_that_its_tag_refuses() -> None:
    local = pipeline()
    version = local.put("a", "1")
    local.put_tag("a", "scan", "infected")
    local.run()
    local.reprocess("a")
    local.redrive()
    local.run(hours=1)
    assert (row_of(local).status, local.calls) == (Status.REJECTED, [])
    local.s3.tags["a", version] = {"scan": "clean"}
    local.redrive()
    local.run()
    assert row_of(local).status is Status.PROCESSED


@pytest.mark.failure_mode("F778")
def test_the_last_look_is_at_the_end_of_max_wait_and_a_tag_opens_the_rejection() -> None:
    local = pipeline(max_wait=86_400)
    times = looks_of(local)
    local.put("a", "1")
    local.run(hours=30)
    row = row_of(local)
    assert (row.status, row.reason_code) == (Status.REJECTED, "tag_missing")
    assert "(max_wait): it has no tag scan" in (row.reason or "")
    assert (times[-1] - times[0]) // 1000 in range(86_400, 86_400 + 60)
    local.put_tag("a", "scan", "clean")
    local.turn()
    assert row_of(local).status is Status.PROCESSED


@pytest.mark.failure_mode("F778")
def test_another_tag_does_not_open_a_rejection() -> None:
    """It would wait for `max_wait` once more, and send one more copy."""
    local = pipeline(max_wait=3_600)
    local.put("a", "1")
    local.run(hours=3)
    before = row_of(local)
    local.put_tag("a", "team", "sales")
    local.run(hours=3)
    after = row_of(local)
    assert (after.status, after.rejected_fence, after.needs_review) == (
        Status.REJECTED, before.rejected_fence, before.needs_review,
    )  # fmt: skip
    assert len(local._sqs.dead_letters) == 1
    local.put_tag("a", "scan", "clean")
    local.run()
    assert row_of(local).status is Status.PROCESSED


@pytest.mark.failure_mode("F778")
def test_a_rejection_that_waits_for_its_copy_is_opened_too() -> None:
    local = pipeline(max_wait=3_600)
    local.put("a", "1")
    local._sqs.dead_letter_bytes = 10
    local.run(hours=3)
    row = row_of(local)
    assert (row.reason_code, row.pending_reason_code) == ("dead_letter_refused", "tag_missing")
    local.put_tag("a", "scan", "clean")
    local.turn()
    assert (row_of(local).status, local._sqs.dead_letters) == (Status.PROCESSED, [])


@pytest.mark.failure_mode("F779")
@pytest.mark.parametrize("when", ["before the read", "between read and write", "while it is rejected"])
def test_a_tag_that_comes_while_the_row_is_in_work_is_not_lost(when: str) -> None:
    """Its event finds the row in work, and comes again."""
    local = pipeline(max_wait=60)
    local.put("a", "1")
    if when == "while it is rejected":
        local.turn()
        local.clock.advance(61_000)
    ask, told = local.s3.get_object_tagging, list[str]()

    def watched(**request: Any) -> Any:
        shown = None if when == "before the read" else ask(**request)
        if not told:
            told.append("event")
            local.put_tag("a", "scan", "clean")
            local.turn()  # the event is delivered to another worker
        return shown or ask(**request)

    local.s3.get_object_tagging = watched  # type: ignore[method-assign]
    local.run(hours=1)
    assert (row_of(local).status, len(local.calls)) == (Status.PROCESSED, 1)


@pytest.mark.failure_mode("F780")
def test_events_of_tags_wake_only() -> None:
    """No row, a committed one, another version, and one that failed for another reason."""
    local = pipeline()
    local.s3.put("a", b"1")  # its event is lost
    local.put_tag("a", "scan", "clean")
    local.run()
    assert (local.row("a"), local.waiting) == (None, 0)
    local.clock.advance(24 * HOUR)
    assert local.run_audit() == ["a"]
    local.run()
    first = row_of(local)
    assert first.status is Status.PROCESSED
    local.put_tag("a", "team", "sales")
    local.run()
    assert (row_of(local), len(local.calls)) == (first, 1)
    newer = local.put("a", "2")
    local.run(hours=1)
    local.put_tag("a", "scan", "clean", first.version_id)
    local.run(hours=1)
    row = row_of(local)
    assert (row.status, row.version_id, len(local.calls)) == (Status.FAILED, newer, 1)


@pytest.mark.failure_mode("F780")
def test_an_event_does_not_shorten_the_wait_for_something_else() -> None:
    calls: list[int] = []

    def wait(_: Any) -> None:
        calls.append(local.clock())
        raise NotYet("the customer file is missing", retry_in=3_600)

    local = pipeline(wait)
    local.put("a", "1")
    local.put_tag("a", "scan", "clean")
    local.run(hours=0.2)
    local.put_tag("a", "team", "sales")
    local.run(hours=0.2)
    assert (len(calls), row_of(local).reason_code) == (1, "not_yet")
    local.run(hours=1)
    assert len(calls) == 2


@pytest.mark.failure_mode("F781")
def test_the_message_of_a_tag_goes_on_with_the_work_that_it_has_woken() -> None:
    """The attempt fails. The upload's own message may be hidden for hours."""
    failing = [True]

    def fail_once(_: Any) -> None:
        if failing and failing.pop():
            raise OSError("the database is away")

    local = pipeline(fail_once)
    local.put("a", "1")
    local.run(hours=20)
    local.put_tag("a", "scan", "clean")
    local.run(hours=0.1)
    assert (row_of(local).status, len(local.calls)) == (Status.PROCESSED, 2)


@pytest.mark.failure_mode("F785")
@pytest.mark.parametrize("ordering", list(Ordering))
def test_the_dead_letter_of_a_tags_message_needs_no_option(ordering: Ordering) -> None:
    """The option was omitted, or an older release is deployed, which ignores events of tags."""
    failing = [True]

    def fail(_: Any) -> None:
        if failing:
            raise Unprocessable("bad")

    local = pipeline(fail, ordering=ordering)
    version = local.put("a", "1234")
    local.run(hours=1)
    local.put_tag("a", "scan", "clean")
    local.turn()
    [letter] = local._sqs.dead_letters
    assert ("audit" in letter.body, "Tagging" in letter.body) == (True, False)
    failing.clear()
    del local._environment["INTAKE_READY_WHEN"]
    local.redrive()
    local.turn()
    row = row_of(local, "a", version if ordering is Ordering.EVERY_VERSION else None)
    assert (row.status, row.size, local.calls[-1].size) == (Status.PROCESSED, 4, 4)


@pytest.mark.failure_mode("F785")
def test_the_message_of_a_tag_goes_on_when_the_option_is_gone() -> None:
    """The upload's message was acknowledged when its version was rejected."""
    failing = [True]

    def fail_once(_: Any) -> None:
        if failing and failing.pop():
            raise OSError("the database is away")

    local = pipeline(fail_once, max_wait=HOUR // 1000)
    local.put("a", "1")
    local.run(hours=2)
    local.put_tag("a", "scan", "clean")
    local.turn()
    assert row_of(local).status is Status.FAILED
    del local._environment["INTAKE_READY_WHEN"]
    local.run(hours=1)
    assert (row_of(local).status, local.waiting) == (Status.PROCESSED, 0)


@pytest.mark.failure_mode("F782")
def test_the_tag_of_after_commit_makes_no_loop() -> None:
    local = pipeline(after_commit=("intake", "done"))
    times = looks_of(local)
    version = local.put("a", "1")
    local.s3.tags["a", version] = {"scan": "clean"}
    local.run(hours=24)
    assert (local.tags("a"), len(local.calls), local.waiting) == ({"scan": "clean", "intake": "done"}, 1, 0)
    assert len(times) == 2


@pytest.mark.failure_mode("F783")
def test_a_committed_version_does_not_wait_again() -> None:
    """Such as one from before the option, which a person reprocesses."""
    local = pipeline()
    version = local.put("a", "1")
    local.s3.tags["a", version] = {"scan": "clean"}
    local.run()
    local.s3.tags["a", version] = {}
    local.reprocess("a")
    local.run()
    assert (row_of(local).status, len(local.calls)) == (Status.PROCESSED, 2)


@pytest.mark.failure_mode("F783")
def test_a_person_cannot_process_a_version_without_its_tag() -> None:
    local = pipeline()
    local.put("a", "1")
    local.run(hours=1)
    local.reprocess("a")
    local.run(hours=1)
    assert (row_of(local).reason_code, local.calls) == ("tag_missing", [])
    local.put_tag("a", "scan", "clean")
    local.run()
    assert (row_of(local).served_reprocess_id, len(local.calls)) == ("0" * 25 + "1", 1)


def test_each_version_waits_for_its_own_tag() -> None:
    local = pipeline(ordering=Ordering.EVERY_VERSION)
    older, newer = local.put("a", "1"), local.put("a", "2")
    local.put_tag("a", "scan", "clean")
    local.run(hours=1)
    assert [change.version_id for change in local.calls] == [newer]
    local.put_tag("a", "scan", "clean", older)
    local.run(hours=0.1)
    assert [change.version_id for change in local.calls] == [newer, older]


def test_a_newer_version_does_not_wait_for_the_older_one() -> None:
    local = pipeline()
    local.put("a", "1")
    local.run(hours=1)
    newer = local.put("a", "2")
    local.put_tag("a", "scan", "clean")
    local.run()
    assert [change.version_id for change in local.calls] == [newer]


def test_removals_and_directory_markers_do_not_wait() -> None:
    local = pipeline(deletes=True, directory_markers=True)
    local.put("folder/", "")
    local.put("a", "1")
    local.run(hours=1)
    local.delete("a")
    local.run(hours=1)
    assert [change.key for change in local.calls] == ["folder/", "a"]
    assert local.waiting == 0


def test_a_refused_read_of_tags_is_not_taken_for_a_tag() -> None:
    local = pipeline()
    version = local.put("a", "1")
    local.s3.tags["a", version] = {"scan": "clean"}
    ask, answers = local.s3.get_object_tagging, [(403, "AccessDenied"), (503, "SlowDown")]

    def refuse(**_: Any) -> Any:
        raise s3_error("GetObjectTagging", *answers[0])

    local.s3.get_object_tagging = refuse  # type: ignore[method-assign]
    local.run(hours=0.1)
    row = row_of(local)
    assert (row.reason_code, row.s3_error, local.calls) == ("s3_refused", "AccessDenied", [])
    del answers[0]
    with pytest.raises(LibraryError, match="SlowDown"):
        local.run(hours=1)
    assert row_of(local).attempts == row.attempts
    local.s3.get_object_tagging = ask  # type: ignore[method-assign]
    local.run(hours=1)
    assert row_of(local).status is Status.PROCESSED


def test_a_call_has_the_versions_with_their_tag() -> None:
    local = pipeline(lambda changes: {change.idempotency_key: None for change in changes}, max_per_call=10)
    for number in range(4):
        version = local.put(f"k{number}", str(number))
        local.s3.tags[f"k{number}", version] = {"scan": "clean"} if number % 2 else {}
    local.turn()
    assert [sorted(one.key for one in call) for call in local.calls] == [["k1", "k3"]]  # type: ignore[attr-defined]


def test_without_the_option_events_of_tags_are_ignored() -> None:
    local = LocalPipeline(lambda _: None)
    local.s3.on_tags = local._tagged
    local.put("a", "1")
    local.put_tag("a", "scan", "clean")
    local.run()
    local.send(events.s3_notification("another-bucket", "b", event="ObjectTagging:Put", version_id="v1"))
    local.run()
    assert (len(local.calls), local._sqs.dead_letters) == (1, [])


def test_an_object_without_a_version_is_rejected() -> None:
    """It was uploaded while versioning was suspended."""
    local = pipeline()
    version = local.s3.put("a", b"1")
    local.s3.keys["a"] = [Version(None, version.content, version.modified)]
    local.send(events.s3_notification(BUCKET, "a", version_id="null", etag=version.etag))
    local.run()
    assert (row_of(local).reason_code, local.calls) == ("tag_refuses", [])


@pytest.mark.parametrize("runner", [LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION])
def test_executions_are_refused(runner: LocalRunner) -> None:
    with pytest.raises(ValueError, match="let the work wait for the tag by itself, and omit ready_when"):
        pipeline(runner=runner)


def test_buckets_without_versions_and_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="ready_when needs a bucket with versions"):
        pipeline(versioned=False)
    with pytest.raises(TypeError, match="unexpected option 'ready_when'"):
        LocalSets(lambda _: None, ready_when=SCAN)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (("scan", []), "it has no value with which a version is processed"),
        (("aws:scan", ["clean"]), "AWS keeps the prefix aws:"),
        (("scan", ["clean"], ["clean"]), "'clean' is a value that lets a version be processed, and one that rejects"),
        (("scan", "clean"), "expected a JSON list of the tag's key, a list of values"),
        (("scan",), "expected a JSON list of the tag's key, a list of values"),
        (("scan", ["clean"], ["a"], ["b"]), "expected a JSON list of the tag's key, a list of values"),
        (("scan", [7]), "its value is 7"),
    ],
)
def test_wrong_tags_are_refused_in_the_functions_words(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        pipeline(ready_when=value)
    assert str(refused.value).startswith("ready_when is ")


@pytest.mark.parametrize("text", ["[", "7", "{}", '["a", 7]'])
def test_malformed_settings_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="expected a JSON list"):
        awaited_tag("READY", text)
