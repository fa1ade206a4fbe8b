"""The testing kit: the local pipeline, the events and the context."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_intake_ledger.testing import (
    Fault,
    LambdaContext,
    LocalMessages,
    LocalPipeline,
    LocalRunner,
    LocalSets,
    MemoryDynamoDB,
    events,
)
from intake_ledger import Commit, ObjectChange, Unprocessable
from intake_ledger.aws.bucket import Bucket
from intake_ledger.events.parser import Ignored, parse_message
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.protocol.change import Change, StateKind
from intake_ledger.protocol.errors import ObjectGone
from intake_ledger.protocol.row import Ordering
from intake_ledger_testing.memory_s3 import MemoryS3
from tests.known import known

Downstream = dict[str, tuple[int, str]]


class Shop:
    """A correct processor, whose writes are conditional on the fence."""

    def __init__(self) -> None:
        self.rows: Downstream = {}
        self.writes = 0

    def process(self, change: ObjectChange) -> Commit:
        if change.kind != "created":
            self.write(change, "gone")
            return Commit("removed")
        with change.open() as stream:
            text = stream.read().decode()
        if text == "poison":
            raise Unprocessable("no order in it")
        self.write(change, text)
        return Commit(text)

    def write(self, change: ObjectChange, text: str) -> None:
        fence, _ = self.rows.get(change.key, (0, ""))
        if change.fence >= fence:
            self.rows[change.key] = (change.fence, text)
            self.writes += 1

    def shown(self) -> dict[str, str]:
        return {key: text for key, (_, text) in self.rows.items()}


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_processor_is_tested_in_ten_lines(shop: Shop) -> None:
    """Duplicates, wrong order, a dead worker, a timeout, a late worker and a malformed file, without AWS."""
    pipeline = LocalPipeline(shop.process)
    pipeline.put("a.csv", "one")
    pipeline.put("a.csv", "two")
    pipeline.put("poison.csv", "poison")
    pipeline.duplicate()
    pipeline.reverse()
    pipeline.next(Fault.KILLED_AFTER_EFFECT, Fault.TIMED_OUT, Fault.OVERTAKEN, Fault.KILLED_BEFORE_EFFECT)
    pipeline.run()
    assert shop.shown() == {"a.csv": "two"}
    assert [one.reason for one in pipeline.dead_letters] == ["no order in it"]
    row = known(pipeline.row("a.csv"))
    assert (row.status, row.commit_id) == ("PROCESSED", "two")
    assert pipeline.waiting == 0


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        (Fault.KILLED_BEFORE_EFFECT, 1),
        (Fault.KILLED_AFTER_EFFECT, 2),
        (Fault.TIMED_OUT, 2),
        (Fault.OVERTAKEN, 2),
    ],
)
def test_each_fault_is_what_its_name_says(shop: Shop, fault: Fault, calls: int) -> None:
    """The processor is called again for the same change if its work was not committed."""
    pipeline = LocalPipeline(shop.process)
    pipeline.put("a", "one")
    pipeline.next(fault)
    pipeline.run()
    assert len(pipeline.calls) == calls
    assert len({one.idempotency_key for one in pipeline.calls}) == 1
    assert shop.shown() == {"a": "one"}
    row = known(pipeline.row("a"))
    assert row.status == "PROCESSED"


def test_the_overtaken_worker_has_the_lower_fence(shop: Shop) -> None:
    """The late effect comes last, and only a fence can detect it."""
    pipeline = LocalPipeline(shop.process)
    pipeline.put("a", "one")
    pipeline.next(Fault.OVERTAKEN)
    pipeline.run()
    first, last = pipeline.calls
    assert first.fence > last.fence
    assert pipeline.outcomes == {"Committed": 1, "Fenced": 1}


def test_a_processor_that_ignores_fence_and_key_is_caught() -> None:
    """The kit shows the difference: a naive counter fails and a careful one does not."""
    counted: list[str] = []
    pipeline = LocalPipeline(lambda change: counted.append(change.key))
    pipeline.put("a", "one")
    pipeline.next(Fault.KILLED_AFTER_EFFECT)
    pipeline.run()
    assert counted == ["a", "a"]


def test_a_processor_that_hangs_is_interrupted(shop: Shop) -> None:
    """The timeout runs in real time, as in Lambda."""
    hung: list[int] = []

    def process(change: ObjectChange) -> None:
        while not hung:
            try:
                while True:
                    pass
            finally:
                hung.append(change.attempt)

    pipeline = LocalPipeline(process, processing_timeout=0.05)
    pipeline.put("a", "one")
    pipeline.run()
    assert hung == [1]
    assert pipeline.outcomes == {"Failed": 1, "Committed": 1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_attempts": 1}, "max_attempts is '1', expected a whole number of at least 2"),
        ({"max_wait": 0}, "max_wait is '0', expected a whole number of at least 1"),
        ({"max_rate": 401}, r"max_rate is '401': the rate is 401\.0: it must be a number of starts per second"),
        ({"max_rate": 1, "max_burst": 0}, "max_burst is '0'"),
        ({"after_commit": ("", "b")}, r"after_commit is '\[\"\", \"b\"\]'"),
        ({"exclusive_by": "a/"}, "exclusive_by is 'a/'"),
        ({"after_commit": ("a", "b"), "versioned": False}, "a bucket with versions"),
    ],
)
def test_what_the_function_refuses_is_refused_in_its_words(options: Any, text: str) -> None:
    """The text names the option instead of the variable."""
    with pytest.raises(ValueError, match=text):
        LocalPipeline(lambda _: None, **options)


def test_an_unknown_option_is_refused() -> None:
    wrong: Any = {"max_rates": 1}
    with pytest.raises(TypeError, match="LocalPipeline got an unexpected option 'max_rates': did you mean 'max_rate'"):
        LocalPipeline(lambda _: None, **wrong)
    with pytest.raises(TypeError, match="LocalMessages got an unexpected option 'after_commit'"):
        LocalMessages(lambda _: None, key="k", identity="i", after_commit=("a", "b"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="LocalSets got an unexpected option 'max_wait'"):
        LocalSets(lambda _: None, manifest="*", max_wait=1)  # type: ignore[call-arg]


def test_a_burst_needs_a_rate() -> None:
    """The construct refuses it too. The function ignores it."""
    with pytest.raises(ValueError, match="max_burst is 3 and max_rate is not set: set max_rate, or omit max_burst"):
        LocalPipeline(lambda _: None, max_burst=3)


def test_a_tag_may_be_a_list() -> None:
    wrong: Any = {"after_commit": ["state", "done"]}
    pipeline = LocalPipeline(lambda _: None, **wrong)
    pipeline.put("a", "one")
    pipeline.run()
    assert pipeline.tags("a") == {"state": "done"}


def test_a_refused_form_or_expression_is_told_in_options() -> None:
    """A test knows neither the variables of the function nor the names in their JSON."""
    with pytest.raises(ValueError, match="the form of the sets: a quiet folder needs quiet_seconds of at least 1"):
        LocalSets(lambda _: None, quiet_folder="a/*/", quiet_seconds=0)
    with pytest.raises(ValueError, match="identity is empty: pass a JMESPath expression"):
        LocalMessages(lambda _: None, key="k", identity="")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_time(seconds: float) -> None:
    """A timer of 0 seconds never ends."""
    with pytest.raises(ValueError, match="above 0"):
        LocalPipeline(lambda _: None, processing_timeout=seconds)


def test_an_outage_is_waited_out_in_no_time() -> None:
    """Backoff takes hours of the pipeline's time. With too few attempts, the message becomes a dead-letter message."""
    tries: list[int] = []

    def process(change: ObjectChange) -> None:
        tries.append(change.attempt)
        if len(tries) < 6:
            raise ConnectionError("the database is down")

    pipeline = LocalPipeline(process)
    pipeline.put("a", "one")
    pipeline.run()
    assert tries == [1, 2, 3, 4, 5, 6]
    assert not pipeline.dead_letters
    tries.clear()
    pipeline = LocalPipeline(process, max_attempts=3)
    pipeline.put("a", "one")
    pipeline.run()
    assert [one.attributes["attempts"] for one in pipeline.dead_letters] == [3]
    pipeline.redrive()
    pipeline.run()
    assert tries == [1, 2, 3, 1, 2, 3], "moved back, it has its attempts again"


def test_removals_and_what_comes_back(shop: Shop) -> None:
    """Tests a delete, an un-delete and a rollback of a versioned object."""
    pipeline = LocalPipeline(shop.process, deletes=True)
    pipeline.put("a", "one")
    newer = pipeline.put("a", "two")
    pipeline.run()
    marker = pipeline.delete("a")
    pipeline.run()
    assert shop.shown() == {"a": "gone"}
    assert marker
    assert newer
    pipeline.delete_version("a", marker)
    pipeline.run()
    assert shop.shown() == {"a": "two"}
    pipeline.delete_version("a", newer)
    pipeline.run()
    assert shop.shown() == {"a": "one"}


def test_a_bucket_without_versions(shop: Shop) -> None:
    """Without versions, the ETag names the state."""
    pipeline = LocalPipeline(shop.process, deletes=True, versioned=False)
    assert pipeline.put("a", b"one") is None
    pipeline.put("a", "two")
    pipeline.run()
    assert shop.shown() == {"a": "two"}
    row = known(pipeline.row("a"))
    assert row.commit_id == "two"
    assert pipeline.delete("a") is None
    pipeline.run()
    assert shop.shown() == {"a": "gone"}


def test_what_was_lost_is_found(shop: Shop) -> None:
    """The audit's message has the effect of the lost event, for uploads and for removals."""
    pipeline = LocalPipeline(shop.process, deletes=True)
    pipeline.put("a", "one")
    pipeline.lose()
    pipeline.run()
    assert not pipeline.calls
    pipeline.audit("a")
    pipeline.run()
    assert shop.shown() == {"a": "one"}
    pipeline.delete("a")
    pipeline.lose()
    pipeline.audit("a")
    pipeline.run()
    assert shop.shown() == {"a": "gone"}


@pytest.mark.parametrize("kept", [True, False])
def test_the_audit_of_a_pipeline_that_keeps_its_rows_looks_back_further(*, kept: bool) -> None:
    """As on AWS: without a row, an old object was never processed."""
    pipeline = LocalPipeline(lambda _: None, deletes=kept)
    pipeline.put("a", "1")
    pipeline.run()
    pipeline.put("lost", "2")
    pipeline.lose()
    pipeline.clock.advance(20 * 86_400_000)
    assert pipeline.run_audit() == (["lost"] if kept else [])


@pytest.mark.parametrize("markers", [True, False])
def test_the_audit_finds_directory_markers_if_they_are_processed(*, markers: bool) -> None:
    """It has the settings of its pipeline."""
    pipeline = LocalPipeline(lambda _: None, directory_markers=markers)
    pipeline.put("in/", "")
    pipeline.lose()
    pipeline.clock.advance(2 * 3_600_000)
    assert pipeline.run_audit() == (["in/"] if markers else [])


def test_each_version_has_its_turn(shop: Shop) -> None:
    """In EVERY_VERSION each version is processed once, in any order, and has a row."""
    pipeline = LocalPipeline(shop.process, ordering=Ordering.EVERY_VERSION)
    older, newer = pipeline.put("a", "one"), pipeline.put("a", "two")
    pipeline.reverse()
    pipeline.duplicate()
    pipeline.run()
    assert sorted(str(one.version_id) for one in pipeline.calls) == [older, newer]
    rows = [pipeline.row("a", older), pipeline.row("a")]
    assert [row.commit_id for row in rows if row] == ["one", "two"]


def test_garbage_goes_to_the_dead_letter_queue(shop: Shop) -> None:
    """The dead-letter message has a reason, and other files are processed."""
    pipeline = LocalPipeline(shop.process)
    pipeline.put("a", "one")
    pipeline.send("{")
    pipeline.send(events.s3_notification("another-bucket", "a", etag="x"))
    pipeline.send(events.s3_test_event("local-bucket"))
    pipeline.run()
    assert shop.shown() == {"a": "one"}
    reasons = [one.reason for one in pipeline.dead_letters]
    assert reasons[0].startswith("not JSON")
    assert "another-bucket" in reasons[1]


@pytest.mark.failure_mode("F72")
@pytest.mark.parametrize(("together", "calls"), [(False, ["a", "b", "c", "c"]), (True, ["a", "b", "c", "b", "c", "a"])])
def test_a_death_repeats_what_was_to_be_committed_together(shop: Shop, together: bool, calls: list[str]) -> None:
    """With `commit_together`, an effect may be repeated once with the same idempotency key."""
    pipeline = LocalPipeline(shop.process, commit_together=together)
    for key in "abc":
        pipeline.put(key, "one")
    pipeline.next(None, None, Fault.KILLED_AFTER_EFFECT)
    pipeline.run()
    assert [one.key for one in pipeline.calls] == calls
    assert len({one.idempotency_key for one in pipeline.calls}) == 3
    assert [getattr(pipeline.row(key), "status", None) for key in "abc"] == ["PROCESSED"] * 3


def test_what_is_committed_together_is_committed_after_the_batch() -> None:
    """The first commit is held while the second change is processed."""
    seen = []

    def process(change: ObjectChange) -> None:
        seen.append([getattr(pipeline.row(key), "status", None) for key in "ab"])

    pipeline = LocalPipeline(process, commit_together=True)
    for key in "ab":
        pipeline.put(key, "one")
    pipeline.run()
    assert seen == [["PROCESSING", "PROCESSING"]] * 2
    assert pipeline.outcomes == {"Committed": 2}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_chaos_changes_nothing(shop: Shop, seed: int, together: bool) -> None:
    """For each seed, the downstream has the state of the bucket."""
    pipeline = LocalPipeline(shop.process, deletes=True, commit_together=together)
    for number in range(12):
        pipeline.put(f"key-{number % 4}", f"{number}")
    pipeline.delete("key-3")
    pipeline.run(seed=seed)
    # No processor is told of a removal if it was told of no upload.
    assert {"key-3": "gone"} | shop.shown() == {"key-0": "8", "key-1": "9", "key-2": "10", "key-3": "gone"}
    assert not pipeline.dead_letters


def test_the_same_seed_does_the_same(shop: Shop) -> None:
    """The seed repeats a run, so that a failure can be debugged."""

    def verdicts() -> object:
        pipeline = LocalPipeline(shop.process)
        for number in range(9):
            pipeline.put(f"key-{number % 3}", f"{number}")
        pipeline.run(seed=5)
        return pipeline.verdicts, pipeline.outcomes

    assert verdicts() == verdicts()


def test_a_mistake_in_the_store_is_not_swallowed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that the in-memory table does not support fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("a new request")

    monkeypatch.setattr(MemoryDynamoDB, "put_item", refuse)
    pipeline = LocalPipeline(shop.process)
    pipeline.put("a", "one")
    with pytest.raises(NotImplementedError):
        pipeline.run()


Build = Callable[..., str]
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("build", "event"),
    [(events.s3_notification, "ObjectCreated:Put"), (events.eventbridge_event, "ObjectCreated:PutObject")],
)
def test_events_say_what_they_were_told(build: Build, event: str) -> None:
    """Tests both formats, with keys that the formats encode differently."""
    body = build("b", "in/a b+ä.csv", event=event, version_id="v", etag="e", size=3, sequencer="0A", time=AT)
    [change] = parse_message(body)
    assert isinstance(change, Change)
    assert change.state is not None
    assert (change.bucket, change.key, change.event_name) == ("b", "in/a b+ä.csv", event)
    assert (change.state.version_id, change.state.etag, change.state.size) == ("v", "e", 3)
    assert (change.sequencer, change.event_time) == ("0A", int(AT.timestamp()) * 1000)


@pytest.mark.parametrize("build", [events.s3_notification, events.eventbridge_event])
@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("ObjectRemoved:Delete", StateKind.DELETED),
        ("ObjectRemoved:DeleteMarkerCreated", StateKind.MARKER),
        ("LifecycleExpiration:Delete", StateKind.DELETED),
        ("LifecycleExpiration:DeleteMarkerCreated", StateKind.MARKER),
    ],
)
def test_events_of_removal(build: Build, event: str, kind: StateKind) -> None:
    """Tests each kind of removal in both formats."""
    [change] = parse_message(build("b", "k", event=event, version_id="v"))
    assert isinstance(change, Change)
    assert change.state is not None
    assert (change.state.kind, change.event_name) == (kind, event)


def test_the_kit_makes_the_messages_of_the_pipeline() -> None:
    """Tests the message of the audit and the request of a person."""
    [found] = parse_message(events.audit_message("b", "k", version_id="v", time=AT))
    [gone] = parse_message(events.audit_message("b", "k"))
    [asked] = parse_message(events.reprocess_message("b", "k", reprocess_id=f"{1:026}", version_id="v"))
    assert isinstance(found, Change)
    assert isinstance(gone, Change)
    assert isinstance(asked, Change)
    assert (found.identity, gone.identity) == ("v#v", "absent")
    assert (asked.identity, asked.reprocess_id) == ("v#v", f"{1:026}")
    assert isinstance(parse_message(events.s3_test_event("b"))[0], Ignored)


def test_a_batch_as_lambda_is_given_it() -> None:
    """Takes bodies and records, and gives each a unique ID."""
    record = events.sqs_record("{}", receives=3, attributes={"rejected_fence": 7, "reason": "why"})
    event = events.sqs_event("[]", record)
    assert [one["body"] for one in event["Records"]] == ["[]", "{}"]
    assert event["Records"][1]["attributes"] == {"ApproximateReceiveCount": "3"}
    assert event["Records"][1]["messageAttributes"]["rejected_fence"] == {"stringValue": "7", "dataType": "Number"}
    assert len({one["messageId"] for one in event["Records"]}) == 2
    assert json.dumps(event)


def test_a_context_runs_out() -> None:
    """The time follows the given clock, and is never negative."""
    now = [100.0]
    context = LambdaContext(30, clock=lambda: now[0])
    assert context.get_remaining_time_in_millis() == 30_000
    now[0] += 29.5
    assert context.get_remaining_time_in_millis() == 500
    now[0] += 9
    assert context.get_remaining_time_in_millis() == 0


def test_the_bucket_in_memory_answers_as_s3() -> None:
    """The runtime's bucket reads versions, delete markers and missing objects from it."""
    memory = MemoryS3(clock=lambda: 1_000_500)
    bucket = Bucket(lambda: memory, "b")  # type: ignore[arg-type, return-value] # the part of a client that is called
    assert bucket.look("k").kind is StateKind.ABSENT
    older, newer = memory.put("k", b"one"), memory.put("k", b"two")
    state = bucket.look("k")
    assert (state.version_id, state.size, state.created_at) == (newer.version_id, 3, 1_000_000)
    assert bucket.open("k", state).read() == b"two"
    marker = known(memory.delete("k"))
    shown = bucket.look("k")
    assert (shown.kind, shown.version_id) == (StateKind.MARKER, marker.version_id)
    assert bucket.created_at("k", shown) == 1_000_000
    assert newer.version_id
    memory.delete_version("k", newer.version_id)
    with pytest.raises(ObjectGone):
        bucket.open("k", state)
    assert older.etag == "f97c5d29941bfb1b2fdab0874906ab82"


def test_what_is_committed_in_a_transaction_is_written_once() -> None:
    """For each fault, the processor's writes are visible exactly if its claim is committed."""

    def process(change: ObjectChange) -> Commit:
        return Commit(transact=[{"Put": {"TableName": "orders", "Item": {"id": {"S": change.key}}}}])

    pipeline = LocalPipeline(process)
    for number in range(20):
        pipeline.put(f"{number}", "1")
    pipeline.next(*Fault)
    pipeline.run(seed=1)
    assert sorted(int(one["Put"]["Item"]["id"]["S"]) for one in pipeline.transacted) == list(range(20))
    assert len(pipeline.calls) > 20


class TestOtherKinds:
    """The runners, workers and deaths that `LocalMessages`, `LocalSets` and `LocalPipeline` share."""

    @pytest.mark.parametrize("source", ["fifo", "kinesis"])
    def test_an_intake_of_messages(self, source: str) -> None:
        booked: dict[str, int] = {}

        def book(message: KeyedMessage) -> str:
            booked[message.identity] = message.body["pieces"]
            return message.identity

        intake = LocalMessages(book, key="article", identity="order_id", source=source)
        for order in (1, 1, 2):
            intake.send({"article": "a", "order_id": order, "pieces": order})
        intake.next(Fault.KILLED_AFTER_EFFECT)
        intake.run()
        assert booked == {"1": 1, "2": 2}
        assert [call.identity for call in intake.calls] == ["1", "1", "2"]
        row = known(intake.row("a", "1"))
        assert (row.commit_id, intake.waiting, intake.expired) == ("1", 0, 0)
        assert intake.check_rows() == []

    @pytest.mark.parametrize("runner", [LocalRunner.FUNCTION, LocalRunner.STATE_MACHINE])
    @pytest.mark.parametrize("worker", [False, True])
    def test_another_function_or_a_state_machine(self, runner: LocalRunner, *, worker: bool) -> None:
        """They have JSON, and each request of a worker may be its last one."""
        for number in range(1, 99):
            keys: set[str] = set()

            def process(request: dict[str, Any], keys: set[str] = keys) -> dict[str, Any]:
                keys.add(request["idempotencyKey"])
                return {"commit": request["key"]}

            pipeline = LocalPipeline(process, runner=runner, worker=worker)  # type: ignore[arg-type]
            pipeline.put("a.csv", "1")
            pipeline.kill(number)
            pipeline.run()
            row = known(pipeline.row("a.csv"))
            assert (row.commit_id, len(keys)) == ("a.csv", 1)
            if pipeline.will_die:
                assert number > 3
                return
        raise AssertionError

    def test_a_lost_event_is_found_by_the_audit(self) -> None:
        pipeline = LocalPipeline(lambda _: None)
        pipeline.put("a.csv", "1")
        pipeline._sqs.purge()
        pipeline.clock.advance(2 * 3_600_000)
        assert pipeline.run_audit() == ["a.csv"]
        pipeline.run()
        assert len(pipeline.calls) == 1

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"source": "eventbridge"}, "source is eventbridge: use"),
            ({"source": "fifo", "runner": LocalRunner.STATE_MACHINE}, "Use the source sqs"),
            ({"source": "kinesis", "worker": True}, "a worker receives from SQS only"),
        ],
    )
    def test_a_cell_that_does_not_exist_is_refused(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            LocalMessages(lambda _: None, key="k", identity="i", **options)
