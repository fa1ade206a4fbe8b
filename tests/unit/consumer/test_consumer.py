"""The real consumer over the real ledger, with queues, processor and telemetry in the test's hand."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from intake_ledger import Commit, ObjectChange, Unprocessable
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import NotDone, Queues
from intake_ledger.consumer.consumer import BUSY_JITTER_SECONDS
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import PATIENCE, own_message, read_batch
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Change, Origin, State
from intake_ledger.protocol.errors import CopyRefused, ObjectGone
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Ordering, Row, RowCounts, Settlement, Status
from intake_ledger.protocol.settings import ConsumerSettings, KeyFilter, Reasons
from intake_ledger.protocol.ulids import ulid
from intake_ledger.protocol.verdict import Ruling, Verdict
from intake_ledger_testing.consumers import object_consumer
from intake_ledger_testing.events import cloudtrail_event
from tests.unit.support import (
    BUCKET,
    KEY,
    LATE_AFTER,
    LEASE,
    MAX_ATTEMPTS,
    MINUTE,
    PIPELINE,
    RETENTION,
    SECOND,
    START,
    Clock,
    MakeWorld,
    World,
    created,
    eventbridge,
    marked,
    notification,
    record,
    sns,
)

TIMEOUT = 60
"""Seconds that the processor has."""
FULL_TIME = 70_000
"""Milliseconds that the function starts with: enough for one record that takes its whole time."""
SKEW = 120
ULID, LATER_ULID = ulid(START - 1, 0), ulid(START, 0)
EXITS = (
    SystemExit(1),
    SystemExit(0),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseExceptionGroup("all", [SystemExit()]),
)
"""Exceptions that end a program or a task, unless code catches them."""
OUTAGE = ClientError({"Error": {"Code": "InternalServerError"}}, "PutItem")


@dataclass(slots=True)
class Context:
    """Lambda's context, counting down with the test's clock."""

    clock: Clock
    deadline: int

    def get_remaining_time_in_millis(self) -> int:
        return max(self.deadline - self.clock(), 0)


@dataclass(slots=True)
class FakeQueues:
    """Records the requests to SQS, in order."""

    delays: dict[str, float] = field(default_factory=dict)
    copies: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    delayed: list[Mapping[str, Any]] = field(default_factory=list)
    invisible: int = 0
    """The number of messages in flight."""
    deleted: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    broken: Exception | None = None
    on_copy: Callable[[], object] = lambda: None

    def in_flight(self) -> int:
        return self.invisible

    def send_copies(
        self, entries: Sequence[Mapping[str, Any]], *, in_time: Callable[[], bool] = lambda: True
    ) -> tuple[set[int], Exception | None]:
        if self.broken is not None or not in_time():
            return set(), self.broken
        self.delayed += entries
        return {*range(len(entries))}, None

    def deliver_later(self, delays: Sequence[tuple[str, float]], *, in_time: Callable[[], bool] = lambda: True) -> None:
        if self.broken is not None:
            raise self.broken
        if in_time():
            self.delays |= dict(delays)

    def delete(self, receipt_handles: Sequence[str], *, in_time: Callable[[], bool] = lambda: True) -> None:
        if in_time():
            self.deleted.extend(receipt_handles)

    def wake(self, body: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.woken.append(body)

    def dead_letter(self, body: str, attributes: Mapping[str, Any], group: str = "") -> None:
        self.on_copy()
        if self.broken is not None:
            raise self.broken
        self.copies.append((body, attributes))


@dataclass(slots=True)
class FakeTelemetry:
    """Records the reports of the consumer."""

    verdicts: list[Verdict] = field(default_factory=list)
    outcomes: list[OutcomeKind] = field(default_factory=list)
    late_writes: list[str] = field(default_factory=list)
    removed: list[Row | None] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)
    filtered: list[str] = field(default_factory=list)
    ignored_: list[str] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Reports of the circuit breaker."""
    flushed: int = 0
    on_unparseable: Callable[[], object] = lambda: None

    def decided(self, change: Change, answer: Claim | Ruling, *, now: int) -> None:
        self.verdicts.append(answer.verdict)

    def ended(self, claim: Claim, outcome: OutcomeKind, reason: Reason | None = None, *, duration_ms: int) -> None:
        self.outcomes.append(outcome)

    def rejected_rows(self, claim: Claim, counts: RowCounts) -> None: ...

    def late_write(self, claim: Claim) -> None:
        self.late_writes.append(claim.state.identity)

    def removed_unprocessed(self, change: Change, row: Row | None) -> None:
        self.removed.append(row)

    def exhausted(self, change: Change, row: Row) -> None:
        self.outcomes.append(OutcomeKind.REJECTED)

    def unparseable(self, reason: Reason, message_id: str) -> None:
        self.on_unparseable()
        self.unparsed.append(reason.text)

    def filtered_out(self, change: Change) -> None:
        self.filtered.append(change.key)

    def ignored(self, why: str) -> None:
        self.ignored_.append(why)

    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        self.troubles.append(error)

    def downstream_out(self, reason: Reason | None, *, pause_ms: int) -> None:
        self.said.append("out")

    def downstream_back(self) -> None:
        self.said.append("back")

    def waits_as_copy(self, age_ms: int) -> None: ...

    def held_back(self) -> None:
        self.said.append("held back")

    def process_ends(self, keys: Sequence[str]) -> None:
        self.said.append("end of process")

    def flush(self) -> None:
        self.flushed += 1


Act = Callable[[ObjectChange], Any]


@dataclass(slots=True)
class Bench:
    """A consumer and its environment. The processor runs `acts` at its next calls, and succeeds after them."""

    world: World
    queues: FakeQueues = field(default_factory=FakeQueues)
    telemetry: FakeTelemetry = field(default_factory=FakeTelemetry)
    acts: list[Act] = field(default_factory=list)
    seen: list[ObjectChange] = field(default_factory=list)
    jitter: float = 0.0
    timeout: int = TIMEOUT
    full_time: int = FULL_TIME
    processor_function: str | None = None
    runner: Any = None
    threads: int = 1
    commit_together: bool = False
    reasons: Reasons = Reasons.TYPES
    max_hold_seconds: int = 3 * 86_400
    filters: tuple[KeyFilter, ...] = ()

    def settings(self) -> ConsumerSettings:
        return ConsumerSettings(
            pipeline=PIPELINE,
            bucket=BUCKET,
            bucket_owner=None,
            table="ledger",
            queue_url="queue",
            ordering=self.world.ordering,
            deletes=self.world.deletes,
            retention_seconds=RETENTION // SECOND,
            clock_skew_seconds=SKEW,
            dlq_url="dlq",
            processor="unused:process",
            processing_timeout_seconds=self.timeout,
            max_attempts=MAX_ATTEMPTS,
            min_backoff_seconds=15,
            max_backoff_seconds=900,
            max_event_age_seconds=LATE_AFTER // SECOND,
            processor_function=self.processor_function,
            threads=self.threads,
            commit_together=self.commit_together,
            reasons=self.reasons,
            max_hold_seconds=self.max_hold_seconds,
            filters=self.filters,
        )

    def services(self) -> Services:
        return Services(
            self.settings(),
            self.world.ledger,
            cast("Bucket", self.world.s3),
            cast("Queues", self.queues),
            telemetry=cast("Any", self.telemetry),
            clock=self.world.clock,
            jitter=lambda: self.jitter,
        )

    def process(self, change: ObjectChange) -> Any:
        self.seen.append(change)
        return self.acts.pop(0)(change) if self.acts else None

    def handle(self, *messages: Mapping[str, Any], remaining: int | None = None) -> list[str]:
        """The names of the messages that the answer gives back; the answer's exact shape is checked each time."""
        consumer = object_consumer(self.services(), self.process, runner=self.runner)
        time_left = self.full_time if remaining is None else remaining
        answer = consumer.handle({"Records": messages}, Context(self.world.clock, self.world.clock() + time_left))
        assert set(answer) == {"batchItemFailures"}
        assert all(set(one) == {"itemIdentifier"} for one in answer["batchItemFailures"])
        given_back = [one["itemIdentifier"] for one in answer["batchItemFailures"]]
        assert set(given_back) <= {message["messageId"] for message in messages}
        assert len(set(given_back)) == len(given_back)
        return given_back

    def row(self, state: State, key: str = KEY) -> Row:
        return self.world.known(created(state, key=key))

    def wait(self, name: str = "m1") -> None:
        """Until SQS delivers the message again."""
        self.world.clock.advance(int(self.queues.delays[f"handle-{name}"] * SECOND))


@pytest.fixture
def bench(world: World) -> Bench:
    """The default ordering over a versioned bucket."""
    return Bench(world)


SENT_AT = 1_795_000_000_000


def message(
    body: str,
    name: str = "m1",
    *,
    receives: int = 1,
    rejected_fence: int | str | None = None,
    sent_at: int = SENT_AT,
) -> dict[str, Any]:
    """An SQS message as Lambda hands it over."""
    attributes = (
        {} if rejected_fence is None else {"rejected_fence": {"stringValue": str(rejected_fence), "dataType": "Number"}}
    )
    return {
        "messageId": name,
        "receiptHandle": f"handle-{name}",
        "body": body,
        "attributes": {"ApproximateReceiveCount": str(receives), "SentTimestamp": str(sent_at)},
        "messageAttributes": attributes,
        "eventSource": "aws:sqs",
    }


def put(bench: Bench, data: str = "1", key: str = KEY) -> tuple[State, str]:
    """Upload; the state and the notification's body."""
    state = bench.world.s3.put(key, data)
    return state, notification(record(key, state, at=bench.world.clock()))


def throw(error: BaseException, *_: object) -> None:
    raise error


def raising(error: BaseException) -> Act:
    return partial(throw, error)


def raising_now(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def reading_twice(bench: Bench, between: Callable[[], object]) -> Act:
    """A processor that opens its object again after `between` has run."""

    def act(change: ObjectChange) -> None:
        assert change.open().read()
        between()
        change.open()

    return act


class TestAnswer:
    """SQS deletes the messages that the response to Lambda does not name."""

    @pytest.mark.failure_mode("F21")
    def test_failures_are_named_by_message_id(self, bench: Bench) -> None:
        """The response names failed messages only. Success is an empty list, never None and never a misspelling."""
        bench.acts = [raising(ValueError("no"))]
        _, one = put(bench, key="a")
        _, two = put(bench, key="b")
        assert bench.handle() == []
        assert bench.handle(message(one, "m1"), message(two, "m2")) == ["m1"]
        assert bench.handle(message(two, "m2")) == []
        assert bench.telemetry.flushed == 3

    @pytest.mark.failure_mode("F20")
    @pytest.mark.parametrize(
        ("receives", "order"),
        [
            pytest.param({"a": 7, "b": 1, "c": 2, "d": 1, "e": PATIENCE}, "bdeca", id="one that failed comes last"),
            pytest.param({"a": PATIENCE, "b": PATIENCE + 1, "c": 1}, "bca", id="one without time left keeps its place"),
            pytest.param({"a": 1, "b": PATIENCE + 1}, "ba", id="one without time left comes before a new one"),
        ],
    )
    def test_the_order_of_a_batch(self, bench: Bench, receives: dict[str, int], order: str) -> None:
        """A failing message must not take the time of new ones, which keep their order."""
        bodies = {key: put(bench, key=key)[1] for key in receives}
        bench.handle(*(message(bodies[key], key, receives=number) for key, number in receives.items()))
        assert "".join(change.key for change in bench.seen) == order

    @pytest.mark.failure_mode("F198")
    @pytest.mark.parametrize("receives", [2, PATIENCE + 1])
    @pytest.mark.parametrize("size", [2, 3, 10])
    def test_each_message_that_failed_before_comes_first_once(self, size: int, receives: int) -> None:
        """The queue may deliver the same batch in the same order each time."""
        first = set()
        for delivery in range(size):
            bodies = (message("{}", f"m{n}", receives=receives + delivery) for n in range(size))
            first.add(read_batch({"Records": list(bodies)})[0].id)
        assert first == {f"m{n}" for n in range(size)}

    @pytest.mark.failure_mode("F198")
    def test_a_file_that_ends_its_worker_does_not_starve_its_neighbours(self, bench: Bench) -> None:
        """Each time it ends the whole batch, and all messages return together."""
        bodies = {key: put(bench, key=key)[1] for key in ("killer", "b", "c")}
        bench.acts = [lambda change: throw(KeyboardInterrupt()) if change.key == "killer" else None] * 9
        for delivery in range(2):
            batch = (message(body, key, receives=1 + delivery) for key, body in bodies.items())
            with contextlib.suppress(KeyboardInterrupt):
                bench.handle(*batch)
            bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
        assert {change.key for change in bench.seen} == {"killer", "b", "c"}
        assert bench.queues.copies == []

    @pytest.mark.failure_mode("F20")
    def test_messages_returned_unclaimed_do_not_starve(self, bench: Bench) -> None:
        """One slow record fills each batch, and a fresh one arrives with every delivery: an innocent that always
        waited behind them would be dead-lettered by SQS at its hundredth receive.
        """
        _, old = put(bench, key="old")
        bench.acts = [lambda _: bench.world.clock.advance(8 * SECOND)] * 40
        for n in range(20):
            _, fresh = put(bench, key=f"fresh{n}")
            bench.handle(message(old, "old", receives=n + 2), message(fresh, "fresh"))
        assert "old" in {change.key for change in bench.seen}
        assert bench.queues.copies == []

    def test_a_change_of_visibility_that_fails_loses_nothing(self, bench: Bench) -> None:
        """The message comes back after the queue's own visibility."""
        bench.acts = [raising(ValueError("no"))]
        bench.queues.broken = OUTAGE
        _, body = put(bench)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.troubles == [OUTAGE]


class TestProcessor:
    """The argument of the processor, and the handling of its return value."""

    def test_the_processor_gets_the_claimed_state(self, bench: Bench) -> None:
        """Everything about it, and exactly its bytes."""
        content: list[bytes] = []
        bench.acts = [lambda change: content.append(change.open().read())]
        state, body = put(bench, "content")
        bench.handle(message(body))
        [change] = bench.seen
        assert content == [b"content"]
        assert (change.bucket, change.key, change.kind) == (BUCKET, KEY, "created")
        assert (change.version_id, change.etag, change.size) == (state.version_id, state.etag, 7)
        assert (change.attempt, change.event_name) == (1, "ObjectCreated:Put")
        assert change.fence == bench.row(state).committed_fence
        assert change.remaining_seconds == TIMEOUT

    @pytest.mark.failure_mode("F52")
    def test_the_processor_reads_the_claimed_version_after_a_newer_upload(self, bench: Bench) -> None:
        """A read without a version id would be version 2 under version 1's name."""
        content: list[bytes] = []

        def act(change: ObjectChange) -> None:
            bench.world.s3.put(KEY, "2")
            content.append(change.open().read())

        bench.acts = [act]
        _, body = put(bench, "1")
        bench.handle(message(body))
        assert content == [b"1"]

    @pytest.mark.failure_mode("F60")
    def test_s3_and_eventbridge_give_the_same_key(self, bench: Bench) -> None:
        """Form-encoded in S3's notification, raw in EventBridge's event."""
        keys = ["a+b.csv", "a%2Bb.csv", "a b.csv", "ä.csv"]
        for n, key in enumerate(keys):
            state, body = put(bench, key=key)
            bench.handle(message(body), message(eventbridge(key, state), f"e{n}"))
        assert [change.key for change in bench.seen] == keys

    @pytest.mark.failure_mode("F561")
    @pytest.mark.parametrize(
        ("returned", "kept"),
        [
            (None, None),
            ("a", "a"),
            (Commit("b"), "b"),
            (Commit(), None),
            ("é" * 8_192, "é" * 8_192),
            ("é" * 8_193, None),
        ],
        ids=["nothing", "text", "commit", "empty", "longest", "too long"],
    )
    def test_the_commit_identity_is_kept(self, bench: Bench, returned: object, kept: str | None) -> None:
        """A Commit, a text or nothing. The row says if it is too long."""
        bench.acts = [lambda _: returned]
        state, body = put(bench)
        assert bench.handle(message(body)) == []
        row = bench.row(state)
        assert (row.status, row.commit_id) == (Status.PROCESSED, kept)
        assert (row.reason_code == "result_not_kept") == (isinstance(returned, str) and kept is None)

    @pytest.mark.failure_mode("F101")
    @pytest.mark.parametrize(
        ("returned", "named"),
        [(42, "42 (int)"), ({"statusCode": 200}, "dict"), (Commit(7), "a Commit whose identity is 7 (int)")],  # type: ignore[arg-type]
    )
    def test_a_wrong_return_value_is_rejected_at_once(self, bench: Bench, returned: object, named: str) -> None:
        """The effect has happened, so it happens once. The reason has the returned and the expected type."""
        bench.acts = [lambda _: returned] * 12
        state, body = put(bench)
        assert bench.handle(message(body)) == []
        row = bench.row(state)
        assert row.status is Status.REJECTED
        assert f"returned {named}, expected a Commit, a text or None" in str(row.reason)
        assert [(one["reason"], one["reason_code"]) for _, one in bench.queues.copies] == [(row.reason, "wrong_return")]
        assert bench.handle(message(body)) == []
        assert len(bench.seen) == 1

    @pytest.mark.failure_mode("F20")
    @pytest.mark.parametrize("trouble", [KeyError("detail"), SystemExit(1)])
    @pytest.mark.parametrize("kind", [ValueError, Unprocessable])
    def test_an_error_whose_text_fails_is_described_by_its_type(
        self, bench: Bench, kind: type[Exception], trouble: BaseException
    ) -> None:
        """The row has a reason, and need not wait for the end of its lease."""

        def tell(_: object) -> str:
            raise trouble

        bench.reasons = Reasons.FULL
        bench.acts = [raising(type("Odd", (kind,), {"__str__": tell})())]
        state, body = put(bench)
        bench.handle(message(body))
        row = bench.row(state)
        assert row.status is (Status.REJECTED if kind is Unprocessable else Status.FAILED)
        assert "Odd, which cannot tell what it is about" in str(row.reason)

    @pytest.mark.failure_mode("F114")
    def test_messages_of_exceptions_are_kept_with_full_reasons_only(self, bench: Bench) -> None:
        """The type and the position are always there, and `retry --reason` looks for them."""
        for reasons in Reasons:
            bench.reasons, bench.acts = reasons, [raising(ValueError("card 4111111111111111"))]
            state, body = put(bench, reasons.value)
            assert bench.handle(message(body)) == ["m1"]
            said = str(bench.row(state).reason)
            assert said.startswith("ValueError")
            assert f" at {__name__}:" in said
            assert ("4111111111111111" in said) is (reasons is Reasons.FULL)

    @pytest.mark.failure_mode("F20")
    @pytest.mark.parametrize("exits", [ValueError("no"), *EXITS, MemoryError(), OSError("disk")])
    def test_an_exception_or_base_exception_fails_its_own_attempt_only(
        self, bench: Bench, exits: BaseException
    ) -> None:
        """The neighbours are done, and the failing one is rejected when its budget is used up. The row has the type."""
        bodies = {key: put(bench, key=key)[1] for key in ("sick", "b", "c")}
        bench.acts = [raising(exits)]
        assert bench.handle(*(message(body, key) for key, body in bodies.items())) == ["sick"]
        failed = bench.row(bench.world.s3.look("sick"), "sick")
        assert (failed.status, str(failed.reason).startswith(type(exits).__name__)) == (Status.FAILED, True)
        for receives in range(2, MAX_ATTEMPTS + 1):
            bench.wait("sick")
            bench.acts = [raising(exits)]
            given_back = bench.handle(message(bodies["sick"], "sick", receives=receives))
        assert given_back == []
        rows = {key: bench.row(bench.world.s3.look(key), key) for key in bodies}
        assert (rows["sick"].status, rows["sick"].attempts) == (Status.REJECTED, MAX_ATTEMPTS)
        assert [rows[key].settled for key in "bc"] == [True, True]
        assert [attributes["key"] for _, attributes in bench.queues.copies] == ["sick"]

    @pytest.mark.failure_mode("F20")
    def test_an_overrun_inside_a_task_group_is_a_timeout(self, bench: Bench) -> None:
        """Asyncio wraps an exception that a task raises."""

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(interrupted())

        async def interrupted() -> None:
            raise Overrun

        bench.acts = [lambda _: asyncio.run(work())]
        state, body = put(bench)
        assert bench.handle(message(body)) == ["m1"]
        assert f"ran longer than its limit of {TIMEOUT} s" in str(bench.row(state).reason)

    def test_backoff_grows_and_is_bounded(self, bench: Bench) -> None:
        """F23: exponential by the ledger's attempts, from half to the whole of a step, in whole seconds."""
        delays = []
        for jitter in (0.0, 1.0):
            bench.jitter = jitter
            bench.acts = [raising(ValueError("no"))] * 2
            _, body = put(bench, key=f"k{jitter}")
            for _ in range(2):
                bench.handle(message(body))
                delays.append(bench.queues.delays["handle-m1"])
                bench.wait()
        assert delays == [8, 15, 15, 30]

    @pytest.mark.failure_mode("F81")
    @pytest.mark.parametrize(
        ("ordering", "marked", "kinds"),
        [
            pytest.param(Ordering.LATEST, True, ["removed"], id="a marker, and then the version under it"),
            pytest.param(Ordering.LATEST, False, ["removed"], id="the last version of a key"),
            pytest.param(Ordering.EVERY_VERSION, True, ["removed", "deleted"], id="a marker, and one version"),
        ],
    )
    def test_the_kind_of_a_removal(
        self, make_world: MakeWorld, ordering: Ordering, kinds: list[str], *, marked: bool
    ) -> None:
        """`deleted` is about one version, `removed` about the key. There is nothing to open."""
        bench = Bench(make_world(ordering))
        state, body = put(bench)
        bench.handle(message(body))
        if marked:
            marker = bench.world.s3.mark_deleted(KEY)
            bench.handle(message(notification(record(KEY, marker, "ObjectRemoved:DeleteMarkerCreated"))))
            assert bench.seen[1].version_id == marker.version_id
        bench.world.s3.delete_version(KEY, state)
        bench.handle(message(notification(record(KEY, state, "ObjectRemoved:Delete"))))
        assert [change.kind for change in bench.seen] == ["created", *kinds]

    @pytest.mark.failure_mode("F72")
    def test_a_death_between_effect_and_commit_repeats_the_idempotency_key_with_a_higher_fence(
        self, bench: Bench
    ) -> None:
        """Documented, and all that a downstream needs to notice."""
        bench.acts = [raising(KeyboardInterrupt())]
        _, body = put(bench)
        with pytest.raises(KeyboardInterrupt):  # the process ends here
            bench.handle(message(body))
        bench.world.clock.advance(FULL_TIME + SKEW * SECOND + 1)
        assert bench.handle(message(body, receives=2)) == []
        first, second = bench.seen
        assert first.idempotency_key == second.idempotency_key
        assert second.fence > first.fence
        assert (first.attempt, second.attempt) == (1, 2)


class TestBusy:
    """Another attempt holds the key."""

    @pytest.mark.failure_mode("F18")
    def test_busy_is_never_acknowledged(self, bench: Bench) -> None:
        """The second copy goes back for the rest of the lease and some jitter; it may be the only one left."""
        state, body = put(bench)
        bench.world.accept(created(state), lease=MINUTE)
        bench.world.clock.advance(20 * SECOND)
        bench.jitter = 0.5
        assert bench.handle(message(body)) == ["m1"]
        assert bench.queues.delays == {"handle-m1": 40 + 2.5}
        assert bench.telemetry.verdicts == [Verdict.BUSY]

    @pytest.mark.failure_mode("F19")
    def test_copies_of_a_busy_message_use_up_no_attempts(self, bench: Bench) -> None:
        """Fifty redeliveries of a long job, and it still succeeds at its first attempt."""
        state, body = put(bench)
        claim = bench.world.accept(created(state))
        for receives in range(1, 51):
            assert bench.handle(message(body, receives=receives)) == ["m1"]
        bench.world.ledger.commit(claim)
        assert bench.handle(message(body, receives=51)) == []
        assert bench.queues.copies == []
        assert bench.row(state).attempts == 1
        assert bench.seen == []

    @pytest.mark.failure_mode("F22")
    def test_the_same_message_twice_in_one_batch_is_processed_once(self, bench: Bench) -> None:
        """No deadlock, one effect."""
        _, body = put(bench)
        assert bench.handle(message(body, "m1"), message(body, "m2")) == []
        assert len(bench.seen) == 1
        assert bench.telemetry.verdicts == [Verdict.ACCEPTED, Verdict.DUPLICATE]

    @pytest.mark.failure_mode("F22")
    def test_two_changes_of_one_key_in_one_batch_end_with_the_newest(self, bench: Bench) -> None:
        """In any order of the batch, the downstream gets the newest state last."""
        _, one = put(bench, "1")
        two, body = put(bench, "2")
        assert bench.handle(message(one, "m1"), message(body, "m2")) == []
        assert bench.seen[-1].version_id == two.version_id
        assert bench.row(two).committed_state == two.identity
        three, later = put(bench, "3")
        _, fourth = put(bench, "4")
        assert bench.handle(message(fourth, "m4"), message(later, "m3")) == []
        assert three.version_id not in [change.version_id for change in bench.seen]

    @pytest.mark.failure_mode("F16")
    def test_a_key_that_is_overwritten_while_it_is_processed_ends_with_the_newest(self, bench: Bench) -> None:
        """One write for each notification that finds the key busy, and they come back after the lease, not before;
        afterwards the newest state is processed, once, and the rest is put to rest.
        """
        first, body = put(bench, "0")
        claim = bench.world.accept(created(first))
        batch = [message(put(bench, str(n))[1], f"m{n}") for n in range(1, 61)]
        bench.world.wire.requests.clear()
        assert len(bench.handle(*batch)) == 60
        assert bench.world.wire.requests == ["put_item"] * 60
        assert bench.world.s3.looks == []
        assert min(bench.queues.delays.values()) >= LEASE / SECOND
        bench.world.ledger.commit(claim)
        bench.world.wire.requests.clear()
        assert bench.handle(*batch, message(body)) == []
        assert [change.size for change in bench.seen] == [2]
        assert bench.seen[0].version_id == bench.world.s3.look(KEY).version_id
        assert len(bench.world.wire.requests) <= 2 * 61 + 1


class TestTime:
    """A processor gets its whole time or none."""

    @pytest.mark.failure_mode("F20")
    def test_messages_without_time_are_returned_unclaimed(self, bench: Bench) -> None:
        """At once, with no attempt spent, and nothing was written for them."""
        bench.acts = [lambda _: bench.world.clock.advance(30 * SECOND)]
        bodies = [put(bench, key=f"k{n}") for n in range(3)]
        names = bench.handle(*(message(body, f"m{n}") for n, (_, body) in enumerate(bodies)))
        assert names == ["m1", "m2"]
        assert len(bench.seen) == 1
        assert bench.queues.delays == {"handle-m1": 0, "handle-m2": 0}
        for n, (state, _) in enumerate(bodies):
            assert (bench.world.row(created(state, key=f"k{n}")) is None) == (n > 0)

    @pytest.mark.failure_mode("F20")
    def test_records_committed_before_a_crash_are_duplicates_afterwards(self, bench: Bench) -> None:
        """Record 3 kills the function; records 1 and 2 come back, and no innocent is dead-lettered."""
        bodies = [put(bench, key=f"k{n}")[1] for n in range(3)]
        batch = [message(body, f"m{n}") for n, body in enumerate(bodies)]
        bench.acts = [lambda _: None, lambda _: None, raising(KeyboardInterrupt())]
        with pytest.raises(KeyboardInterrupt):
            bench.handle(*batch)
        bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
        assert bench.handle(*batch) == []
        assert [change.key for change in bench.seen] == ["k0", "k1", "k2", "k2"]
        assert bench.queues.copies == []

    @pytest.mark.failure_mode("F92")
    def test_a_crash_spends_the_attempt_of_its_own_record_alone(self, bench: Bench) -> None:
        """Each record is claimed just before it is processed, none in a group: those behind it are untouched."""
        bodies = [put(bench, key=f"k{n}") for n in range(3)]
        bench.acts = [raising(KeyboardInterrupt())]
        with pytest.raises(KeyboardInterrupt):
            bench.handle(*(message(body, f"m{n}") for n, (_, body) in enumerate(bodies)))
        rows = [bench.world.row(created(state, key=f"k{n}")) for n, (state, _) in enumerate(bodies)]
        assert [row and row.attempts for row in rows] == [1, None, None]

    @pytest.mark.failure_mode("F11")
    @pytest.mark.parametrize("remaining", [0, 1, TIMEOUT * SECOND])
    def test_without_time_left_the_lease_is_short(self, bench: Bench, remaining: int) -> None:
        """Nothing is claimed at all."""
        state, body = put(bench)
        assert bench.handle(message(body), remaining=remaining) == ["m1"]
        assert bench.world.row(created(state)) is None
        assert bench.world.wire.requests.count("put_item") == 0

    @pytest.mark.failure_mode("F12", "F13")
    def test_the_lease_is_the_remaining_time_and_the_margin_for_clocks(self, bench: Bench) -> None:
        """A worker that is killed at its timeout, and a clock that is ahead, stay within it."""
        leases: list[int | None] = []
        state, body = put(bench)
        bench.acts = [lambda _: leases.append(bench.row(state).lease_until)]
        start = bench.world.clock()
        bench.handle(message(body))
        assert leases == [start + FULL_TIME + SKEW * SECOND]

    @pytest.mark.failure_mode("F20")
    def test_a_claim_that_took_too_long_is_released_unstarted(self, bench: Bench) -> None:
        """Retries of a slow table have eaten the time: the attempt does not count."""
        state, _ = put(bench, "1")
        bench.world.process(created(state))
        two, body = put(bench, "2")
        bench.world.s3.after_look.append(lambda: bench.world.clock.advance(9 * SECOND))
        before = bench.row(state)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.seen == []
        assert bench.row(two) == replace(before, fence=bench.row(two).fence)
        assert bench.queues.delays == {"handle-m1": 0}
        assert bench.handle(message(body)) == []
        assert bench.seen[0].attempt == 1

    def test_an_overrun_is_interrupted_and_the_rest_of_the_batch_goes_on(self, bench: Bench) -> None:
        """The row says so, and the next message is processed in the same process."""

        def hang(_change: ObjectChange) -> None:
            until = time.monotonic() + 5  # not for ever, or this test could not fail
            while time.monotonic() < until:
                time.sleep(0.01)

        bench.timeout, bench.acts = 1, [hang]
        slow, body = put(bench, key="slow")
        _, good = put(bench, key="good")
        assert bench.handle(message(body, "m1"), message(good, "m2")) == ["m1"]
        assert bench.row(slow, "slow").status is Status.FAILED
        assert "longer than its limit of 1 s" in str(bench.row(slow, "slow").reason)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


class TestRejection:
    """The dead-letter queue holds a copy and the ledger the reason."""

    def test_unprocessable_goes_to_the_dead_letter_queue_at_once(self, bench: Bench) -> None:
        """After one attempt. The message is acknowledged, and the copy has the attributes that an operator needs."""
        bench.acts = [raising(Unprocessable("not a CSV"))]
        state, body = put(bench)
        assert bench.handle(message(body)) == []
        row = bench.row(state)
        assert (row.status, row.reason, row.reason_code) == (Status.REJECTED, "not a CSV", "unprocessable")
        [(copy, attributes)] = bench.queues.copies
        assert copy == body
        assert attributes == {
            "reason": "not a CSV",
            "reason_code": "unprocessable",
            "pipeline": PIPELINE,
            "bucket": BUCKET,
            "key": "in/a%20b%2B%C3%A4.csv",
            "version_id": state.version_id,
            "attempts": 1,
            "first_claimed_at": row.first_claimed_at,
            "rejected_fence": row.fence,
        }
        assert unquote(str(attributes["key"])) == KEY

    def test_a_rejection_without_a_reason_says_that(self, bench: Bench) -> None:
        """An empty attribute would be refused by SQS."""
        bench.acts = [raising(Unprocessable())]
        state, body = put(bench)
        bench.handle(message(body))
        assert bench.row(state).reason == "the processor gave no reason"

    @pytest.mark.failure_mode("F85")
    def test_the_copy_is_sent_before_the_row_says_rejected(self, bench: Bench) -> None:
        """A death in between leaves a copy, and the message comes again: two copies, never none."""
        statuses: list[Status] = []
        state, body = put(bench)
        bench.queues.on_copy = lambda: statuses.append(bench.row(state).status)
        bench.acts = [raising(Unprocessable("no"))]
        bench.handle(message(body))
        assert statuses == [Status.PROCESSING]

    @pytest.mark.failure_mode("F85")
    def test_when_the_copy_cannot_be_sent_nothing_is_rejected(self, bench: Bench) -> None:
        """And nothing is acknowledged."""
        bench.queues.broken = OUTAGE
        bench.acts = [raising(Unprocessable("no"))]
        state, body = put(bench)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.row(state).status is Status.PROCESSING

    @pytest.mark.failure_mode("F85")
    def test_when_the_row_cannot_be_written_the_message_comes_again(self, bench: Bench) -> None:
        """The copy is there, the row still says PROCESSING, and a second copy follows."""
        state, body = put(bench)

        def cut_the_line() -> None:
            bench.world.wire.down = OUTAGE

        bench.queues.on_copy = cut_the_line
        bench.acts = [raising(Unprocessable("no"))] * 2
        assert bench.handle(message(body)) == ["m1"]
        bench.world.wire.down = None
        bench.queues.on_copy = lambda: None
        bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
        assert bench.handle(message(body)) == []
        assert len(bench.queues.copies) == 2
        assert bench.row(state).status is Status.REJECTED

    def test_the_last_failure_rejects_with_its_own_reason(self, bench: Bench) -> None:
        """The last error is the reason."""
        bench.acts = [raising(error) for error in (ValueError(), KeyError(), Overrun())]
        state, body = put(bench)
        for n in range(MAX_ATTEMPTS):
            assert bench.handle(message(body, receives=n + 1)) == (["m1"] if n < MAX_ATTEMPTS - 1 else [])
            bench.wait()
        row = bench.row(state)
        assert (row.status, row.attempts) == (Status.REJECTED, MAX_ATTEMPTS)
        assert str(row.reason).startswith("the processor ran longer than ")
        [(_, attributes)] = bench.queues.copies
        assert attributes["reason_code"] == row.reason_code == "processor_timeout"
        assert (attributes["attempts"], attributes["rejected_fence"]) == (MAX_ATTEMPTS, row.rejected_fence)

    @pytest.mark.failure_mode("F44")
    def test_attempts_without_an_outcome_are_rejected_as_exhausted(self, bench: Bench) -> None:
        """The verdict is EXHAUSTED. The copy is sent before the row is written, and names the row's fence."""
        state, body = put(bench)
        for _ in range(MAX_ATTEMPTS):
            bench.world.die(created(state))
        statuses: list[Status] = []
        bench.queues.on_copy = lambda: statuses.append(bench.row(state).status)
        assert bench.handle(message(body)) == []
        row = bench.row(state)
        [(copy, attributes)] = bench.queues.copies
        assert statuses == [Status.PROCESSING]
        assert (row.status, copy) == (Status.REJECTED, body)
        assert attributes["rejected_fence"] == row.rejected_fence == row.fence
        assert "died or timed out" in attributes["reason"]
        assert attributes["reason_code"] == row.reason_code == "attempts_exhausted"
        assert bench.telemetry.verdicts[-1] is Verdict.EXHAUSTED
        assert bench.seen == []

    def test_an_exhausted_row_that_another_attempt_claimed_is_judged_again(self, bench: Bench) -> None:
        """The copy went out for nothing; the message comes back at once."""
        state, body = put(bench)
        for _ in range(MAX_ATTEMPTS):
            bench.world.die(created(state))
        bench.queues.on_copy = lambda: (bench.world.s3.put(KEY, "2"), bench.world.accept(created(state)))
        assert bench.handle(message(body)) == ["m1"]
        assert bench.queues.delays == {"handle-m1": 0}
        assert bench.row(state).status is Status.PROCESSING

    @pytest.mark.parametrize("attribute", ["", "x", "-1", "1.5", "²", "\uff11", "9" * 5_000])
    def test_a_malformed_rejected_fence_is_ignored(self, bench: Bench, attribute: str) -> None:
        """The message is an ordinary one then."""
        _, body = put(bench)
        assert bench.handle(message(body, rejected_fence=attribute)) == []
        assert len(bench.seen) == 1

    @pytest.mark.failure_mode("F17")
    def test_a_long_reason_is_truncated(self, bench: Bench) -> None:
        """In the row and in the attributes of the copy."""
        bench.acts = [raising(Unprocessable("x" * 300_000))]
        state, body = put(bench)
        bench.handle(message(body))
        assert len(str(bench.row(state).reason).encode()) <= 256
        assert len(bench.queues.copies[0][1]["reason"]) <= 1024

    @pytest.mark.failure_mode("F64")
    def test_a_bad_file_and_a_file_of_an_outage_are_redriven_together(self, bench: Bench) -> None:
        """The poison is rejected again with its round counted, the other succeeds."""
        bench.acts = [raising(Unprocessable("poison")), *[raising(OSError("out"))] * MAX_ATTEMPTS]
        poison, bad = put(bench, key="poison")
        fine, good = put(bench, key="fine")
        bench.handle(message(bad, "p"))
        for _ in range(MAX_ATTEMPTS):
            bench.handle(message(good, "f"))
            bench.wait("f")
        assert len(bench.queues.copies) == 2
        bench.acts = [raising(Unprocessable("poison"))]
        copies = list(bench.queues.copies)
        assert (
            bench.handle(*(message(c, str(n), rejected_fence=a["rejected_fence"]) for n, (c, a) in enumerate(copies)))
            == []
        )
        assert (bench.row(poison, "poison").redrive_count, bench.row(poison, "poison").status) == (1, Status.REJECTED)
        assert (bench.row(fine, "fine").redrive_count, bench.row(fine, "fine").settled) == (1, True)


class TestVanishedBefore:
    """The claimed version is gone when the consumer opens it, before the processor starts: nothing was begun."""

    def test_the_object_is_opened_before_the_processor_starts_and_closed_after_it(self, bench: Bench) -> None:
        """One request to S3, whether the processor opens the object or not."""
        begun: list[int] = []

        def act(change: ObjectChange) -> None:
            begun.append(len(bench.world.s3.streams))
            assert change.open().read() == b"content"

        _, body = put(bench, "content")
        bench.acts = [act]
        bench.handle(message(body))
        _, body = put(bench, "unread", key="other")
        bench.handle(message(body))
        assert begun == [1]
        assert [stream.closed for stream in bench.world.s3.streams] == [True, True]

    def test_streams_are_closed_when_the_processor_fails(self, bench: Bench) -> None:
        """All of them, or the connections of a busy function would run out."""

        def act(change: ObjectChange) -> None:
            change.open()
            change.open()
            raise ValueError("no")

        _, body = put(bench)
        bench.acts = [act]
        bench.handle(message(body))
        assert [stream.closed for stream in bench.world.s3.streams] == [True, True]

    def test_a_removal_is_not_opened(self, bench: Bench) -> None:
        """A removal has nothing to open."""
        _, body = put(bench)
        bench.handle(message(body))
        marker = bench.world.s3.mark_deleted(KEY)
        bench.world.s3.before_open.append(lambda: pytest.fail("opened"))
        assert bench.handle(message(notification(record(KEY, marker, "ObjectRemoved:DeleteMarkerCreated")))) == []
        assert bench.seen[-1].kind == "removed"

    @pytest.mark.failure_mode("F90")
    def test_a_committed_state_does_not_run_again_when_its_successor_vanished(self, bench: Bench) -> None:
        """Version 2 was looked at, claimed, and was gone: version 1 stays committed and is not run again."""
        one, first = put(bench, "1")
        bench.handle(message(first))
        before = bench.row(one)
        two, body = put(bench, "2")
        bench.world.s3.after_look.append(lambda: bench.world.s3.delete_version(KEY, two))
        assert bench.handle(message(body)) == []
        assert [change.version_id for change in bench.seen] == [one.version_id]
        assert bench.row(one) == replace(before, fence=bench.row(one).fence)
        assert bench.telemetry.outcomes == [OutcomeKind.COMMITTED, OutcomeKind.GONE]
        assert bench.telemetry.verdicts[-1] is Verdict.STALE

    @pytest.mark.failure_mode("F90")
    def test_a_key_that_was_never_processed_is_not_reported_as_removed(self, bench: Bench) -> None:
        """Uploaded and deleted for good before its event was read: the processor hears nothing, no row stays."""
        state, body = put(bench)
        bench.world.s3.delete_version(KEY, state)
        assert bench.handle(message(body)) == []
        assert bench.seen == []
        assert bench.world.row(created(state)) is None
        assert bench.telemetry.verdicts == [Verdict.ACCEPTED, Verdict.STALE]
        assert bench.queues.copies == []

    @pytest.mark.failure_mode("F53")
    def test_the_message_of_a_vanished_version_only_wakes_the_key_afterwards(self, bench: Bench) -> None:
        """The version is not claimed again without a HEAD. The state that S3 shows is processed at once."""
        one, body = put(bench, "1")
        two, _ = put(bench, "2")
        bench.world.s3.delete_version(KEY, one)
        assert bench.handle(message(body)) == []
        assert [change.version_id for change in bench.seen] == [two.version_id]
        assert bench.seen[0].attempt == 1
        assert bench.row(two).committed_state == two.identity

    @pytest.mark.failure_mode("F53")
    def test_an_overwrite_in_a_bucket_without_versioning_is_processed(self, make_world: MakeWorld) -> None:
        """The bytes are gone, the new ones are processed, and only they."""
        bench = Bench(make_world(versioned=False))
        content: list[bytes] = []
        _, body = put(bench, "A")
        bench.world.s3.before_open.append(lambda: bench.world.s3.put(KEY, "B"))
        bench.acts = [lambda change: content.append(change.open().read())] * 2
        assert bench.handle(message(body)) == []
        assert content == [b"B"]

    def test_what_s3_refuses_for_good_ends_with_its_reason(self, bench: Bench) -> None:
        """G4: an archived object is not tried for ever without a row or a reason."""
        refused = ClientError(
            {"Error": {"Code": "InvalidObjectState"}, "ResponseMetadata": {"HTTPStatusCode": 403}},  # type: ignore[typeddict-item]
            "GetObject",
        )
        bench.world.s3.before_open.extend([raising_now(refused)] * MAX_ATTEMPTS)
        state, body = put(bench)
        while bench.handle(message(body)):
            bench.wait()
        row = bench.row(state)
        assert (row.status, row.attempts) == (Status.REJECTED, MAX_ATTEMPTS)
        assert "InvalidObjectState" in str(row.reason)
        assert len(bench.queues.copies) == 1

    @pytest.mark.failure_mode("F44")
    def test_what_s3_does_not_even_show_ends_with_its_reason(self, bench: Bench) -> None:
        """A policy withholds the object (a scanner has tagged it, say): its GET is refused, and so is the HEAD
        before each further attempt.
        """
        state, body = put(bench)
        withheld = ClientError(
            {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}},  # type: ignore[typeddict-item]
            "HeadObject",
        )
        listed = {"Key": KEY, "VersionId": state.version_id, "ETag": "e", "Size": 1, "LastModified": datetime.now(UTC)}

        class Withheld:
            head_object = get_object = staticmethod(lambda **_: throw(withheld))
            list_object_versions = staticmethod(lambda **_: {"Versions": [listed]})

        bench.world.s3 = cast("Any", Bucket(cast("Any", Withheld), BUCKET))
        for _ in range(MAX_ATTEMPTS + 1):
            if not bench.handle(message(body)):
                break
            bench.wait()
        row = bench.row(state)
        assert (row.status, row.attempts) == (Status.REJECTED, MAX_ATTEMPTS)
        assert "AccessDenied" in str(row.reason)
        assert bench.telemetry.troubles == []

    def test_opening_a_removed_object_is_an_error_of_the_processor(self, make_world: MakeWorld) -> None:
        """In EVERY_VERSION too, where a version that is gone would be settled: it is retried and then rejected."""
        for ordering in Ordering:
            bench = Bench(make_world(ordering))
            marker = bench.world.s3.mark_deleted(KEY)
            bench.acts = [lambda change: change.open()]
            body = notification(record(KEY, marker, "ObjectRemoved:DeleteMarkerCreated"))
            assert bench.handle(message(body)) == ["m1"]
            assert "ValueError at " in str(bench.world.known(marked(marker)).reason)

    def test_a_stream_that_cannot_be_closed_does_not_fail_the_attempt(self, bench: Bench) -> None:
        """The content was read completely, so the effect is not repeated."""

        opened = []

        def open_badly(change: ObjectChange) -> None:
            stream = change.open()
            opened.append(stream)
            stream.close = raising_now(OSError("reset by peer"))  # type: ignore[method-assign]

        bench.acts = [open_badly]
        _, body = put(bench)
        assert bench.handle(message(body)) == []
        del opened[0].close

    @pytest.mark.failure_mode("F77")
    def test_a_rejection_stays_when_its_successor_vanished(self, bench: Bench) -> None:
        """No request asks for another attempt on version 1, and its reason is still stored."""
        bench.acts = [raising(Unprocessable("not a CSV"))]
        one, body = put(bench, "1")
        bench.handle(message(body))
        before = bench.row(one)
        two, body = put(bench, "2")
        bench.world.s3.after_look.append(lambda: bench.world.s3.delete_version(KEY, two))
        assert bench.handle(message(body)) == []
        assert len(bench.seen) == 1
        assert bench.row(one) == replace(before, fence=bench.row(one).fence)
        assert bench.telemetry.verdicts[-1] is Verdict.REJECTED

    @pytest.mark.failure_mode("F53")
    def test_a_key_that_keeps_vanishing_returns_to_the_queue(self, make_world: MakeWorld) -> None:
        """No endless loop within one delivery, and no attempt spent."""
        bench = Bench(make_world(versioned=False))
        bench.world.s3.before_open.extend([partial(bench.world.s3.put, KEY, str(n)) for n in range(9)])
        state, body = put(bench, "start")
        assert bench.handle(message(body)) == ["m1"]
        assert len(bench.world.s3.before_open) == 7
        assert bench.queues.delays == {"handle-m1": 7.5}
        assert bench.seen == []
        assert bench.world.row(created(state)) is None

    @pytest.mark.parametrize("error", [OUTAGE, EndpointConnectionError(endpoint_url="https://s3"), Overrun()])
    def test_an_outage_of_s3_counts_no_attempt(self, bench: Bench, error: BaseException) -> None:
        """The claim is released and the message given back; a retry finds the same attempt, and the row as it was."""
        bench.acts = [raising(ValueError("no"))]
        state, body = put(bench)
        bench.handle(message(body))
        bench.wait()
        before = bench.row(state)
        for receives in range(2, 20):
            bench.world.s3.before_open.append(partial(throw, error))
            assert bench.handle(message(body, receives=receives)) == ["m1"]
        assert bench.row(state) == replace(before, fence=bench.row(state).fence)
        assert bench.queues.delays["handle-m1"] == 450, "as an outage of the ledger: by receives"
        assert bench.handle(message(body, receives=20)) == []
        assert [change.attempt for change in bench.seen] == [1, 2]
        assert len(bench.telemetry.troubles) == 18
        assert bench.queues.copies == []

    @pytest.mark.failure_mode("F04")
    def test_a_release_past_the_lease_is_fenced(self, bench: Bench) -> None:
        """S3 took so long that another attempt claimed the row. That claim stays."""
        state, body = put(bench)
        successors: list[Claim] = []

        def outlive() -> None:
            bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
            successors.append(bench.world.accept(created(state)))
            raise OUTAGE

        bench.world.s3.before_open.append(outlive)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.outcomes == [OutcomeKind.FENCED]
        assert bench.row(state) == successors[0].row


class TestVanishedInside:
    """The version vanishes while the processor runs. The processor may have written something by then."""

    @pytest.mark.failure_mode("F53")
    def test_the_current_state_is_processed_in_the_same_delivery(self, bench: Bench) -> None:
        """No poison, no wait; the row is unsettled, so that the committed version 0 is brought about."""
        zero, first = put(bench, "0")
        bench.handle(message(first))
        one, body = put(bench, "1")
        bench.acts = [reading_twice(bench, lambda: bench.world.s3.delete_version(KEY, one))]
        assert bench.handle(message(body)) == []
        assert [change.version_id for change in bench.seen] == [zero.version_id, one.version_id, zero.version_id]
        assert bench.telemetry.outcomes == [OutcomeKind.COMMITTED, OutcomeKind.GONE, OutcomeKind.COMMITTED]
        assert bench.row(zero).committed_state == zero.identity

    @pytest.mark.failure_mode("F53")
    def test_a_processor_that_raises_object_gone_is_judged_again(self, bench: Bench) -> None:
        """A processor that reads with another client may do this."""
        one, body = put(bench, "1")

        def act(_change: ObjectChange) -> None:
            bench.world.s3.delete_version(KEY, one)
            raise ObjectGone("mine")

        bench.acts = [act]
        statuses: list[tuple[Status, str | None, int | None]] = []

        def look() -> None:
            row = bench.row(one)
            statuses.append((row.status, row.reason, row.retry_at))

        bench.world.s3.after_look.append(look)
        assert bench.handle(message(body)) == []
        assert statuses == [(Status.FAILED, f"S3 no longer holds {one.identity}", None)], "no wait"
        assert [change.kind for change in bench.seen] == ["created", "removed"]

    @pytest.mark.failure_mode("F53")
    def test_a_vanishing_version_uses_up_its_attempts(self, bench: Bench) -> None:
        """A processor that says so of a version that is there is not called for ever."""
        state, body = put(bench)
        bench.acts = [raising(ObjectGone("it is not"))] * 9
        assert bench.handle(message(body)) == ["m1"]
        assert bench.handle(message(body)) == []
        assert len(bench.seen) == MAX_ATTEMPTS
        assert bench.row(state).status is Status.REJECTED
        assert bench.row(state).reason == f"S3 no longer holds {state.identity}"
        assert len(bench.queues.copies) == 1


class TestVanishedEveryVersion:
    """In EVERY_VERSION the message is about one version and about nothing else."""

    @pytest.fixture
    def every(self, make_world: MakeWorld) -> Bench:
        return Bench(make_world(Ordering.EVERY_VERSION))

    @pytest.mark.failure_mode("F53")
    def test_a_new_version_that_is_gone_leaves_nothing_behind(self, every: Bench) -> None:
        """Acknowledged, and the processor never heard of it."""
        state, body = put(every)
        every.world.s3.delete_version(KEY, state)
        assert every.handle(message(body)) == []
        assert every.seen == []
        assert every.telemetry.outcomes == [OutcomeKind.GONE]
        assert every.world.row(created(state)) is None

    @pytest.mark.failure_mode("F78")
    def test_a_reprocess_of_a_version_that_is_gone_keeps_what_was_committed(self, every: Bench) -> None:
        """The row is put back: settled, with the downstream's name for the effect."""
        state, body = put(every)
        every.acts = [lambda _: "invoice-17"]
        every.handle(message(body))
        before = every.row(state)
        every.world.s3.delete_version(KEY, state)
        again = own_message(Origin.REPROCESS, BUCKET, KEY, state, reprocess_id=ULID)
        assert every.handle(message(again)) == []
        assert len(every.seen) == 1
        assert every.row(state) == replace(before, fence=every.row(state).fence)

    @pytest.mark.failure_mode("F77")
    def test_a_rejected_version_that_is_gone_keeps_its_reason(self, every: Bench) -> None:
        """Also when its copy is moved back. The copy stays, because it cannot run."""
        every.acts = [raising(Unprocessable("not a CSV"))]
        state, body = put(every)
        every.handle(message(body))
        before = every.row(state)
        every.world.s3.delete_version(KEY, state)
        [(copy, attributes)] = every.queues.copies
        assert every.handle(message(copy, "r", rejected_fence=attributes["rejected_fence"])) == []
        assert len(every.seen) == 1
        row = every.row(state)
        assert (row.settled, row.settled_as) == (True, Settlement.REMOVED_UNPROCESSED)
        assert (row.reason, row.attempts, row.rejected_fence) == (before.reason, 1, before.rejected_fence)
        assert [sent["rejected_fence"] for _, sent in every.queues.copies] == [before.rejected_fence] * 2

    @pytest.mark.failure_mode("F53")
    def test_a_version_that_vanishes_inside_the_processor_is_settled(self, every: Bench) -> None:
        """It never comes back: acknowledged, settled, nothing committed, and the row says why."""
        state, body = put(every)
        every.acts = [reading_twice(every, lambda: every.world.s3.delete_version(KEY, state))]
        assert every.handle(message(body)) == []
        row = every.row(state)
        assert row.settled
        assert (row.committed_state, row.committed_fence, row.commit_id) == (None, None, None)
        assert "no longer holds" in str(row.reason)
        assert row.expires_at is not None
        assert every.telemetry.outcomes == [OutcomeKind.GONE]

    @pytest.mark.failure_mode("F53")
    @pytest.mark.parametrize("earlier", ["fail", "die"])
    def test_an_unsettled_version_that_is_gone_is_settled(self, every: Bench, earlier: str) -> None:
        """An unsettled row would cause retries of a version that cannot be read."""
        state, body = put(every)
        getattr(every.world, earlier)(created(state))
        every.world.s3.delete_version(KEY, state)
        assert every.handle(message(body)) == []
        row = every.row(state)
        assert (row.settled, row.committed_state, row.retry_at) == (True, None, None)
        assert row.settled_as == Settlement.REMOVED_UNPROCESSED
        if earlier == "die":
            assert "no longer holds" in str(row.reason)
        else:
            assert row.reason == "downstream is out", "the first reason stays"
        assert every.seen == []


class TestRetryAt:
    """A state that failed waits, and every message for it waits with it."""

    @pytest.mark.failure_mode("F23")
    def test_the_delay_is_whole_seconds_and_the_rows_time(self, bench: Bench) -> None:
        """So that the message itself never comes before its time."""
        bench.jitter, bench.acts = 0.3, [raising(ValueError("no"))]
        state, body = put(bench)
        bench.handle(message(body))
        assert bench.queues.delays == {"handle-m1": 10}, "9.75 seconds, rounded up"
        assert bench.row(state).retry_at == bench.world.clock() + 10 * SECOND

    @pytest.mark.failure_mode("F23")
    def test_a_duplicate_does_not_use_the_budget_up(self, bench: Bench) -> None:
        """F23, F19: it is BUSY until then. It was sent after the message that waits, so it is given back."""
        bench.acts = [raising(ValueError("no"))] * 9
        state, body = put(bench)
        bench.handle(message(body))
        for n in range(20):
            assert bench.handle(message(body, f"d{n}", sent_at=SENT_AT + 1)) == [f"d{n}"]
            assert bench.queues.delays[f"handle-d{n}"] == 8
        assert bench.telemetry.verdicts[1:] == [Verdict.BUSY] * 20
        assert bench.row(state).attempts == len(bench.seen) == 1
        bench.jitter = 1.0
        bench.world.clock.advance(7 * SECOND)
        bench.handle(message(body, "late", sent_at=SENT_AT + 1))
        assert bench.queues.delays["handle-late"] == 1 + BUSY_JITTER_SECONDS
        bench.world.clock.advance(SECOND)
        assert bench.handle(message(body)) == ["m1"]
        assert bench.row(state).attempts == 2


class TestFenced:
    """Another attempt claimed the row while the processor ran."""

    @pytest.mark.failure_mode("F03", "F04")
    @pytest.mark.parametrize("act", [lambda _: None, raising(ValueError("no")), raising(Unprocessable("no"))])
    def test_a_worker_past_its_lease_acknowledges_nothing(self, bench: Bench, act: Act) -> None:
        """Its commit, failure or rejection is refused; the message is given back."""
        state, body = put(bench)
        successors: list[Claim] = []

        def outlive(change: ObjectChange) -> Any:
            bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
            successors.append(bench.world.accept(created(state)))
            return act(change)

        bench.acts = [outlive]
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.outcomes == [OutcomeKind.FENCED]
        assert bench.row(state) == replace(successors[0].row, late_writes=frozenset({state.identity}))


class TestBadMessages:
    """A bad message does not affect the rest of the batch."""

    GARBAGE = (
        "",
        "not json",
        "[]",
        "null",
        "17",
        '"text"',
        "{}",
        '{"Records": 1}',
        '{"Records": [null]}',
        '{"Records": [{"eventSource": "aws:sns"}]}',
        '{"intakeLedger": 5}',
        '{"source": "aws.s3"}',
        "x" * 262_144,
        "[" * 100_000,
        '{"a": ' + "9" * 5_000 + "}",
    )

    @pytest.mark.failure_mode("F27")
    @pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
    def test_an_unparseable_message_does_not_affect_a_good_one(self, bench: Bench, garbage: str) -> None:
        """To the dead-letter queue with a reason, at once; the good ones before and behind it are processed."""
        bodies = [put(bench, key=key)[1] for key in "ab"]
        assert bench.handle(message(bodies[0], "a"), message(garbage, "g"), message(bodies[1], "b")) == []
        assert [change.key for change in bench.seen] == ["a", "b"]
        [(copy, attributes)] = bench.queues.copies
        assert copy == garbage
        assert attributes["pipeline"] == PIPELINE
        assert attributes["reason"]
        assert len(bench.telemetry.unparsed) == 1

    @pytest.mark.failure_mode("F27")
    def test_when_the_dead_letter_queue_is_down_garbage_is_not_acknowledged(self, bench: Bench) -> None:
        """Never a silent drop."""
        bench.queues.broken = OUTAGE
        assert bench.handle(message("garbage")) == ["m1"]

    @pytest.mark.failure_mode("F28")
    def test_the_test_event_is_acknowledged(self, bench: Bench) -> None:
        """No copy, no alarm, no processor."""
        body = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET, "RequestId": "x"})
        assert bench.handle(message(body)) == []
        assert bench.queues.copies == []
        assert len(bench.telemetry.ignored_) == 1
        assert bench.telemetry.unparsed == []

    @pytest.mark.failure_mode("F29")
    @pytest.mark.parametrize("shape", ["s3", "eventbridge", "own", "sns"])
    def test_another_bucket_is_refused(self, bench: Bench, shape: str) -> None:
        """In every shape, with both names; the ledger is not asked."""
        state = bench.world.s3.put(KEY, "1")
        theirs = notification(record(KEY, state, bucket="theirs"))
        body = {
            "s3": theirs,
            "eventbridge": eventbridge(KEY, state, bucket="theirs"),
            "own": own_message(Origin.AUDIT, "theirs", KEY, state),
            "sns": sns(theirs),
        }[shape]
        assert bench.handle(message(body)) == []
        [(_, attributes)] = bench.queues.copies
        assert "'theirs'" in attributes["reason"]
        assert f"'{BUCKET}'" in attributes["reason"]
        assert bench.world.wire.requests == []

    @pytest.mark.failure_mode("F26")
    def test_two_records_in_one_body_the_second_fails(self, bench: Bench) -> None:
        """The message comes back; the first is not processed twice, the second not lost."""
        states = {key: bench.world.s3.put(key, key) for key in "ab"}
        body = notification(*(record(key, state) for key, state in states.items()))
        bench.acts = [lambda _: None, raising(ValueError("no"))]
        assert bench.handle(message(body)) == ["m1"]
        bench.wait()
        assert bench.handle(message(body, receives=2)) == []
        assert [change.key for change in bench.seen] == ["a", "b", "b"]

    @pytest.mark.failure_mode("F26")
    def test_the_first_fails_and_the_second_is_processed(self, bench: Bench) -> None:
        """One record does not hold up the next; the message waits no longer than the sooner of the two."""
        states = {key: bench.world.s3.put(key, key) for key in "abc"}
        bench.world.accept(created(states["c"], key="c"))
        body = notification(*(record(key, state) for key, state in states.items()))
        bench.acts = [raising(ValueError("no"))]
        assert bench.handle(message(body)) == ["m1"]
        assert [change.key for change in bench.seen] == ["a", "b"]
        assert bench.queues.delays == {"handle-m1": 8}

    @pytest.mark.failure_mode("F26")
    def test_a_rejected_record_is_copied_alone(self, bench: Bench) -> None:
        """So that moving the copy back does not repeat the others."""
        states = {key: bench.world.s3.put(key, key) for key in "ab"}
        body = notification(*(record(key, state) for key, state in states.items()))
        bench.acts = [lambda _: None, raising(Unprocessable("no"))]
        assert bench.handle(message(body)) == []
        [(copy, _)] = bench.queues.copies
        assert json.loads(copy) == {"Records": [record("b", states["b"])]}

    @pytest.mark.failure_mode("F26", "F27")
    @pytest.mark.parametrize("place", [0, 1])
    @pytest.mark.parametrize("bad", ["version 3.0", "another bucket"])
    def test_a_bad_record_is_copied_once_however_often_its_neighbour_comes_back(
        self, bench: Bench, bad: str, place: int
    ) -> None:
        """When all else that the message says is done, wherever in it the bad one stands."""
        good = record(KEY, bench.world.s3.put(KEY, "1"))
        wrong = (
            good | {"eventVersion": "3.0"}
            if bad == "version 3.0"
            else record(KEY, bench.world.s3.look(KEY), bucket="theirs")
        )
        records = [good, wrong] if place else [wrong, good]
        bench.acts = [raising(ValueError("no"))] * 2
        for receives in (1, 2, 3):
            assert bench.queues.copies == []
            assert bench.handle(message(notification(*records), receives=receives)) == (["m1"] if receives < 3 else [])
            if receives < 3:
                bench.wait()
        [(copy, _)] = bench.queues.copies
        assert json.loads(copy) == {"Records": [wrong]}
        assert len(bench.telemetry.unparsed) == 1

    @pytest.mark.failure_mode("F26", "F85")
    @pytest.mark.parametrize("death", ["processor", "before the copy", "after the copy"])
    def test_a_death_costs_a_second_copy_of_a_bad_record_and_never_the_only_one(self, bench: Bench, death: str) -> None:
        """Wherever the worker dies, the message comes back whole."""
        state = bench.world.s3.put(KEY, "1")
        body = notification(record(KEY, state, version="3.0"), record(KEY, state))
        if death == "processor":
            bench.acts = [raising(KeyboardInterrupt())]
        elif death == "before the copy":
            bench.queues.on_copy = raising_now(KeyboardInterrupt())
        else:
            bench.telemetry.on_unparseable = raising_now(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            bench.handle(message(body))
        bench.queues.on_copy = bench.telemetry.on_unparseable = lambda: None
        bench.world.clock.advance(FULL_TIME + SKEW * SECOND + 1)
        assert bench.handle(message(body, receives=2)) == []
        assert bench.row(state).settled
        assert len(bench.queues.copies) == (2 if death == "after the copy" else 1)

    @pytest.mark.failure_mode("F26")
    def test_a_bad_record_whose_copy_fails_brings_back_the_message_alone(self, bench: Bench) -> None:
        """The good one is not processed twice, and the bad one not lost."""
        state = bench.world.s3.put(KEY, "1")
        body = notification(record(KEY, state, version="3.0"), record(KEY, state))
        bench.queues.broken = OUTAGE
        assert bench.handle(message(body)) == ["m1"]
        bench.queues.broken = None
        assert bench.handle(message(body, receives=2)) == []
        assert (len(bench.seen), len(bench.queues.copies)) == (1, 1)

    @pytest.mark.failure_mode("F27")
    @pytest.mark.parametrize(
        ("field", "value", "why"),
        [
            ("size", True, "size is bool"),
            ("versionId", "\ud800", "versionId is not valid Unicode"),
            ("eTag", "\ud800", "eTag is not valid Unicode"),
            ("eTag", "e" * 100_000, "eTag has 100000 bytes"),
        ],
    )
    def test_values_that_dynamodb_would_refuse_are_unparseable(
        self, bench: Bench, field: str, value: object, why: str
    ) -> None:
        """They go to the dead-letter queue with a reason. Otherwise the message would return without end."""
        bad = record(KEY, bench.world.s3.put(KEY, "1"))
        bad["s3"]["object"][field] = value
        assert bench.handle(message(notification(bad))) == []
        assert bench.telemetry.troubles == []
        [(_, attributes)] = bench.queues.copies
        assert why in attributes["reason"]
        assert bench.seen == []

    @pytest.mark.failure_mode("F81")
    def test_in_every_version_a_request_that_names_no_version_is_refused(self, make_world: MakeWorld) -> None:
        """Acknowledged as STALE, the request would be lost. The reason explains the fix."""
        bench = Bench(make_world(Ordering.EVERY_VERSION))
        state, body = put(bench)
        bench.handle(message(body))
        again = own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=ULID)
        assert bench.handle(message(again)) == []
        [(copy, attributes)] = bench.queues.copies
        assert copy == again
        assert "EVERY_VERSION" in attributes["reason"]
        assert len(bench.telemetry.unparsed) == 1
        named = own_message(Origin.REPROCESS, BUCKET, KEY, state, reprocess_id=ULID)
        assert bench.handle(message(named)) == []
        assert len(bench.seen) == 2

    @pytest.mark.failure_mode("F105")
    @pytest.mark.parametrize("ordering", Ordering)
    def test_a_key_outside_of_the_filters_is_dropped_for_each_sender(
        self, make_world: MakeWorld, ordering: Ordering
    ) -> None:
        """Acknowledged and counted, with no row, no copy and no call of the processor."""
        bench = Bench(make_world(ordering), filters=(KeyFilter("in/", ".csv"), KeyFilter("docs/")))
        for key in ("secret.csv", "in/a.txt"):
            state, body = put(bench, key=key)
            bodies = [
                body,
                eventbridge(key, state),
                notification(record(key, state, "ObjectRemoved:Delete")),
                own_message(Origin.AUDIT, BUCKET, key, state),
                own_message(Origin.REPROCESS, BUCKET, key, state, reprocess_id=ULID),
                cloudtrail_event(BUCKET, "PutObject", {"key": key}),
            ]
            messages = [message(one, f"m{n}") for n, one in enumerate(bodies)]
            messages.append(message(body, "redriven", rejected_fence=START))
            messages.append(message(body, "again", receives=2))
            assert bench.handle(*messages) == []
            assert bench.telemetry.filtered == [key] * len(messages)
            assert bench.world.row(created(state, key=key)) is None
            bench.telemetry.filtered.clear()
        assert (bench.seen, bench.queues.copies, bench.telemetry.troubles) == ([], [], [])
        _, inside = put(bench, key="docs/a.txt")
        assert bench.handle(message(inside)) == []
        assert [change.key for change in bench.seen] == ["docs/a.txt"]

    @pytest.mark.failure_mode("F105")
    def test_other_records_of_the_message_are_processed(self, bench: Bench) -> None:
        """A message may report several keys."""
        bench.filters = (KeyFilter("in/"),)
        records = [record(key, bench.world.s3.put(key, "1")) for key in ("in/a", "out/b", "in/c")]
        assert bench.handle(message(notification(*records))) == []
        assert [change.key for change in bench.seen] == ["in/a", "in/c"]
        assert bench.telemetry.filtered == ["out/b"]

    @pytest.mark.failure_mode("F106")
    @pytest.mark.parametrize("bad", ["~~~", "9" * 26, "01ka" + "0" * 22, "01KA" + "0" * 21 + "L", "01KA"])
    def test_a_reprocess_id_that_is_not_a_ulid_is_refused(self, bench: Bench, bad: str) -> None:
        """As text it would be greater than every later request's, which would all count as served."""
        state, body = put(bench)
        bench.handle(message(body))
        for named in (None, state):
            again = own_message(Origin.REPROCESS, BUCKET, KEY, named, reprocess_id=bad)
            assert bench.handle(message(again)) == []
            copy, attributes = bench.queues.copies.pop()
            assert (copy, bad in attributes["reason"]) == (again, True)
        assert bench.handle(message(own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=ULID))) == []
        assert (len(bench.seen), bench.row(state).served_reprocess_id) == (2, ULID)

    @pytest.mark.failure_mode("F106")
    def test_a_reprocess_id_from_the_future_is_refused(self, bench: Bench) -> None:
        """Clocks may differ by `clock_skew` and no more. Later requests are served."""
        state, body = put(bench)
        bench.handle(message(body))
        last, ahead = (ulid(START + SKEW * SECOND + more, 0) for more in (0, 1))
        again = message(own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=ahead))
        assert bench.handle(again) == []
        [(_, attributes)] = bench.queues.copies
        assert "in the future" in attributes["reason"]
        assert bench.row(state).served_reprocess_id is None
        assert bench.handle(message(own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=last))) == []
        assert bench.row(state).served_reprocess_id == last

    def test_an_sns_envelope_is_opened(self, bench: Bench) -> None:
        """And a rejected copy is the event without the envelope, which can be sent again as it is."""
        bench.acts = [raising(Unprocessable("no"))]
        _, body = put(bench)
        assert bench.handle(message(sns(body))) == []
        assert bench.queues.copies[0][0] == body


class TestOutage:
    """AWS does not answer."""

    @pytest.mark.parametrize("error", [OUTAGE, EndpointConnectionError(endpoint_url="https://dynamodb")])
    def test_dynamodb_down_acknowledges_nothing(self, bench: Bench, error: Exception) -> None:
        """Every message goes back with a backoff by its receives, and nothing is processed or dead-lettered."""
        bench.world.wire.down = error
        bodies = [put(bench, key=key)[1] for key in "ab"]
        assert bench.handle(message(bodies[0], "a"), message(bodies[1], "b", receives=3)) == ["a", "b"]
        assert bench.queues.delays == {"handle-a": 7.5, "handle-b": 30}
        assert bench.seen == []
        assert bench.queues.copies == []
        assert bench.telemetry.troubles == [error, error]

    @pytest.mark.failure_mode("F72")
    def test_dynamodb_down_at_the_commit_acknowledges_nothing(self, bench: Bench) -> None:
        """The effect is done and cannot be recorded: the message comes back and waits for the lease."""

        def cut_the_line(_change: ObjectChange) -> None:
            bench.world.wire.down = OUTAGE

        bench.acts = [cut_the_line]
        state, body = put(bench)
        assert bench.handle(message(body)) == ["m1"]
        bench.world.wire.down = None
        assert bench.handle(message(body)) == ["m1"]
        assert bench.telemetry.verdicts[-1] is Verdict.BUSY
        bench.world.clock.advance(FULL_TIME + SKEW * SECOND)
        assert bench.handle(message(body)) == []
        assert bench.seen[0].idempotency_key == bench.seen[1].idempotency_key
        assert bench.row(state).settled

    def test_s3_down_acknowledges_nothing(self, bench: Bench) -> None:
        """Without a HEAD there is no verdict."""
        state, _ = put(bench, "1")
        bench.world.process(created(state))
        _, body = put(bench, "2")

        def fail() -> None:
            raise OUTAGE

        bench.world.s3.after_look.append(fail)
        assert bench.handle(message(body)) == ["m1"]

    @pytest.mark.failure_mode("F23")
    def test_after_an_outage_everything_is_processed_and_nothing_dead_lettered(self, bench: Bench) -> None:
        """The ledger's outage costs no attempt; the downstream's costs attempts that are spread by backoff."""
        bodies = [put(bench, key=f"k{n}")[1] for n in range(5)]
        bench.world.wire.down = OUTAGE
        for receives in range(1, 20):
            batch = [message(body, f"m{n}", receives=receives) for n, body in enumerate(bodies)]
            assert len(bench.handle(*batch)) == 5
        bench.world.wire.down = None
        assert bench.handle(*batch) == []
        assert len(bench.seen) == 5
        assert bench.queues.copies == []


class TestReplay:
    """Messages that come back later."""

    @pytest.mark.failure_mode("F30")
    def test_identity_is_not_in_message_or_request_ids(self, bench: Bench) -> None:
        """One request id over many keys, other message ids for one change."""
        bodies = [put(bench, key=key)[1] for key in "abc"]  # all with the same x-amz-request-id
        assert bench.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert len(bench.seen) == 3
        assert bench.handle(*(message(body, f"new-{n}") for n, body in enumerate(bodies))) == []
        assert len(bench.seen) == 3


class TestTelemetry:
    """The real voice: structured lines and embedded metrics on the standard output."""

    @pytest.fixture(autouse=True)
    def _named(self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        # Powertools keeps a logger for each service, with the output of the test that made it.
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", request.node.name)
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")

    def test_one_line_and_one_metric_per_decision(
        self, bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what an operator looks for, and none of the object's content."""
        bench.telemetry = cast("FakeTelemetry", PowertoolsTelemetry())
        state, body = put(bench, "secret content")
        bench.acts = [raising(ValueError("no")), lambda _: None]
        bench.handle(message(body), message(body, "m2"), message("garbage", "m3"))
        bench.wait()
        bench.handle(message(body))
        bench.handle(message(body))
        out = capsys.readouterr().out
        lines = [json.loads(line) for line in out.splitlines()]
        metrics = {
            metric["Name"]
            for line in lines
            for one in line.get("_aws", {}).get("CloudWatchMetrics", ())
            for metric in one["Metrics"]
        }
        assert metrics == {
            *("Accepted", "Retries", "Failed", "Busy", "Committed", "CommitLag", "Duplicates", "DuplicateAge"),
            "UnreadableMessages",
        }
        said = [line["message"] for line in lines if "message" in line]
        assert said == [
            *("failed", "verdict", "unparseable"),
            *("verdict", "committed"),
            "verdict",
        ]
        first = next(line for line in lines if line.get("message") == "failed")
        assert (first["bucket"], first["key"], first["version_id"]) == (BUCKET, KEY, state.version_id)
        assert (first["verdict"], first["attempt"], first["event_age_ms"]) == ("ACCEPTED", 1, 0)
        assert {"fence", "sequencer", "why"} <= set(first)
        verdicts = [line["verdict"] for line in lines if "verdict" in line]
        assert verdicts == ["ACCEPTED", "BUSY", "ACCEPTED", "DUPLICATE"], "each is in one line"
        assert "secret content" not in out

    @pytest.mark.parametrize("together", [False, True], ids=["each alone", "committed together"])
    def test_a_batch_of_new_objects_has_one_line_for_each(
        self, bench: Bench, capsys: pytest.CaptureFixture[str], *, together: bool
    ) -> None:
        """Each tells its claim and its commit."""
        bench.telemetry, bench.commit_together = cast("FakeTelemetry", PowertoolsTelemetry()), together
        keys = [f"in/{number}" for number in range(5)]
        bench.handle(*(message(put(bench, key=key)[1], f"m-{key}") for key in keys))
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        told = [(line["message"], line["verdict"], line["key"]) for line in lines if "message" in line]
        assert told == [("committed", "ACCEPTED", key) for key in keys]

    def test_an_error_of_aws_leaves_a_line_with_the_key(
        self, bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line about the error has the message only."""
        bench.telemetry = cast("FakeTelemetry", PowertoolsTelemetry())
        monkeypatch.setattr(type(bench.world.ledger), "commit", raising(ConnectionError("DynamoDB")))
        bench.handle(message(put(bench)[1]))
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        claimed = [(line["message"], line["verdict"], line["key"]) for line in lines if "verdict" in line]
        assert claimed == [("verdict", "ACCEPTED", KEY)]


class TestQueues:
    """The requests to SQS."""

    class _Sqs:
        def __init__(self) -> None:
            self.calls: list[tuple[str, dict[str, Any]]] = []
            self.refuse: list[str] = []
            self.failing: dict[str, list[str]] = {}
            """Lists SQS's next answers for each handle. An empty text is a success."""
            self.down: list[Exception] = []
            """Raised by the next batch requests, the last one first."""

        def change_message_visibility_batch(self, **arguments: Any) -> dict[str, Any]:
            return self._batch("visibility", arguments)

        def delete_message_batch(self, **arguments: Any) -> dict[str, Any]:
            return self._batch("delete", arguments)

        def _batch(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            """Behave as SQS: at most ten entries with different IDs, and a result for each."""
            self.calls.append((name, arguments))
            entries = arguments["Entries"]
            if self.down:
                raise self.down.pop()
            if not 1 <= len(entries) <= 10 or len({one["Id"] for one in entries}) < len(entries):
                raise ClientError({"Error": {"Code": "TooManyEntriesInBatchRequest"}}, name)
            failing = [one for one in entries if one["ReceiptHandle"] in self.failing]
            answers = {one["Id"]: self.failing[one["ReceiptHandle"]].pop(0) for one in failing}
            codes = {number: code for number, code in answers.items() if code}
            return {
                "Successful": [{"Id": one["Id"]} for one in entries if one["Id"] not in codes],
                "Failed": [
                    {"Id": number, "Code": code, "SenderFault": code != "InternalError"}
                    for number, code in codes.items()
                ],
            }

        def handles(self) -> list[list[str]]:
            """The handles of each request."""
            return [[one["ReceiptHandle"] for one in arguments["Entries"]] for _, arguments in self.calls]

        def send_message(self, **arguments: Any) -> None:
            self.calls.append(("send", arguments))
            if self.refuse:
                raise ClientError({"Error": {"Code": self.refuse.pop()}}, "SendMessage")

    @pytest.mark.parametrize(
        ("seconds", "asked"), [(0, 0), (-5, 0), (14.2, 15), (1e9, 12 * 3600 - 900), (float(10**12), 42_300)]
    )
    def test_visibility_stays_within_what_sqs_allows(self, seconds: float, asked: int) -> None:
        """Whole seconds, never too early, twelve hours at most from the receive on."""
        sqs = self._Sqs()
        Queues(lambda: cast("Any", sqs), "q", "d").deliver_later([("handle", seconds)])
        entry = {"Id": "0", "ReceiptHandle": "handle", "VisibilityTimeout": asked}
        assert sqs.calls == [("visibility", {"QueueUrl": "q", "Entries": [entry]})]

    @pytest.mark.failure_mode("F109", "F124")
    @pytest.mark.parametrize("name", ["visibility", "delete"])
    @pytest.mark.parametrize("number", [1, 10, 11, 25])
    def test_messages_are_sent_in_requests_of_ten(self, name: str, number: int) -> None:
        """SQS refuses a request with more than ten."""
        sqs, handles = self._Sqs(), [f"handle {n}" for n in range(number)]
        self._ask(sqs, name, handles)
        assert sqs.handles() == [handles[n : n + 10] for n in range(0, number, 10)]
        assert {asked for asked, _ in sqs.calls} == {name}

    @pytest.mark.failure_mode("F109")
    @pytest.mark.parametrize("name", ["visibility", "delete"])
    def test_entries_that_sqs_itself_fails_are_sent_again_once(self, name: str) -> None:
        """A batch request may fail in part. Entries that may pass are sent again, without the others."""
        sqs, handles = self._Sqs(), [f"handle {n}" for n in range(12)]
        sqs.failing = {"handle 3": ["InternalError", ""], "handle 5": ["InternalError", ""]}
        self._ask(sqs, name, handles)
        assert sqs.handles() == [handles[:10], ["handle 3", "handle 5"], handles[10:]]

    @pytest.mark.failure_mode("F109")
    @pytest.mark.parametrize("name", ["visibility", "delete"])
    def test_failed_entries_are_counted_and_do_not_affect_the_others(self, name: str) -> None:
        """An unknown handle, a handle that fails twice, a missing handle, and ten handles without an answer."""
        sqs, handles = self._Sqs(), [f"handle {n}" for n in range(25)]
        sqs.failing = {"handle 3": ["ReceiptHandleIsInvalid"], "handle 15": ["InternalError", "InternalError"]}
        with pytest.raises(NotDone, match="failed for 3 of 26 messages, first: no receipt handle"):
            self._ask(sqs, name, [*handles, ""])
        assert sqs.handles() == [handles[:10], handles[10:20], ["handle 15"], handles[20:]]
        sqs.calls.clear()
        sqs.failing.clear()
        sqs.down = [OUTAGE]
        with pytest.raises(NotDone, match=r"failed for 10 of 25 messages, first: .*InternalServerError"):
            self._ask(sqs, name, handles)
        assert sqs.handles() == [handles[:10], handles[10:20], handles[20:]]

    @pytest.mark.failure_mode("F109")
    @pytest.mark.parametrize("name", ["visibility", "delete"])
    def test_sqs_gets_requests_while_there_is_time(self, name: str) -> None:
        """The answer to Lambda must not wait for that."""
        sqs, handles = self._Sqs(), [f"handle {n}" for n in range(10_000)]
        with pytest.raises(NotDone, match="failed for 9930 of 10000 messages, first: no time was left"):
            self._ask(sqs, name, handles, in_time=lambda: len(sqs.calls) < 7)
        assert sqs.handles() == [handles[n : n + 10] for n in range(0, 70, 10)]

    def _ask(self, sqs: _Sqs, name: str, handles: list[str], **options: Any) -> None:
        queues = Queues(lambda: cast("Any", sqs), "q", "d")
        if name == "delete":
            queues.delete(handles, **options)
        else:
            queues.deliver_later([(handle, 5) for handle in handles], **options)

    def test_attributes_are_typed_and_of_characters_that_sqs_takes(self) -> None:
        """Empty ones are left out; what XML does not know is replaced."""
        sqs = self._Sqs()
        Queues(lambda: cast("Any", sqs), "q", "d").dead_letter(
            "body", {"reason": "a\x00b\ud800", "attempts": 0, "version_id": None, "x": ""}
        )
        [(_, arguments)] = sqs.calls
        assert arguments["QueueUrl"] == "d"
        assert arguments["MessageAttributes"] == {
            "reason": {"DataType": "String", "StringValue": "a\ufffdb\ufffd"},
            "attempts": {"DataType": "Number", "StringValue": "0"},
        }

    @pytest.mark.failure_mode("F27")
    def test_a_body_without_room_for_attributes_is_sent_without_them(self) -> None:
        """256 KB of garbage are kept as they are; the log has the reason."""
        sqs = self._Sqs()
        sqs.refuse = ["InvalidParameterValue"]
        Queues(lambda: cast("Any", sqs), "q", "d").dead_letter("x" * 262_144, {"reason": "garbage"})
        assert [set(arguments) for _, arguments in sqs.calls] == [
            {"QueueUrl", "MessageBody", "MessageAttributes"},
            {"QueueUrl", "MessageBody"},
        ]

    def test_any_other_refusal_is_an_error(self) -> None:
        """The caller must not acknowledge."""
        sqs = self._Sqs()
        sqs.refuse = ["AccessDenied"]
        with pytest.raises(CopyRefused, match="AccessDenied"):
            Queues(lambda: cast("Any", sqs), "q", "d").dead_letter("x", {})


def test_the_stream_of_a_claim_is_read_once(bench: Bench) -> None:
    """A second `open()` starts a new stream. The first call takes the stream that is open already."""
    content: list[bytes] = []
    bench.acts = [lambda change: content.extend([change.open().read(), change.open().read()])]
    _, body = put(bench, "1")
    bench.handle(message(body))
    assert content == [b"1", b"1"]
    assert len(bench.world.s3.streams) == 2
