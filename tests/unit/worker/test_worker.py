"""A worker outside of Lambda: short leases that a heartbeat extends, returned messages, and the way it stops."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import EndpointConnectionError

from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.services import Services
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.ledger import Claim, LedgerOptions
from intake_ledger.processor.object_change import ObjectChange
from intake_ledger.protocol.errors import Fenced, SettingsError
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_worker import WorkerSettings
from intake_ledger.protocol.verdict import Verdict
from intake_ledger.runners.inline import Inline
from intake_ledger.worker import heartbeat as heartbeats
from intake_ledger.worker import worker
from intake_ledger.worker.heartbeat import Extensions, Heartbeat
from intake_ledger.worker.worker import Worker, batch_size, extensions_of, make_host, watched
from intake_ledger_testing.consumers import object_ledger
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, MemorySQS
from tests.unit.consumer.test_consumer import SKEW, FakeTelemetry
from tests.unit.consumer.test_consumer import Bench as ConsumerBench
from tests.unit.consumer.test_groups import new_world
from tests.unit.protocol.test_settings import CONSUMER as CONSUMER_VARIABLES
from tests.unit.support import KEY, LATE_AFTER, PIPELINE, SECOND, World, created, notification, record

HOLD = 60
"""Seconds."""
DOWN = EndpointConnectionError(endpoint_url="https://sqs")


@dataclass
class Bench:
    """A worker, whose heartbeat beats only when the test says so, and its queue."""

    world: World = field(default_factory=new_world)
    acts: list[Callable[[ObjectChange], object]] = field(default_factory=list)
    seen: list[ObjectChange] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sqs = MemorySQS(clock=self.world.clock, visibility_seconds=HOLD)
        self.telemetry = FakeTelemetry()
        settings = WorkerSettings(hold_seconds=HOLD, poll_seconds=0)
        consumer = ConsumerBench(self.world).settings()
        self.host = make_host(settings, consumer)
        self.heartbeat = self.host.heartbeat
        self.ledger = object_ledger(
            self.world.table,
            self.world.s3,
            LedgerOptions(PIPELINE, self.world.ordering, self.world.policy, LATE_AFTER),
            clock=self.world.clock,
            new_owner=self.world.new_owner,
            guards=self.host.guards,
        )
        queues = Queues(lambda: cast("Any", self.sqs), QUEUE_URL, DEAD_LETTER_URL)
        services = Services(
            consumer,
            self.ledger,
            self.world.s3,
            queues,
            telemetry=cast("Any", self.telemetry),
            clock=self.world.clock,
            jitter=lambda: 0.0,
            host=self.host,
        )
        self.heartbeat.extensions = extensions_of(services, self.host)
        kind = Objects(consumer, self.world.s3)
        runner = Inline(watched(self.process, self.heartbeat))
        self.worker = Worker(services, kind, runner, settings, self.heartbeat, make_sqs=lambda: cast("Any", self.sqs))

    def process(self, change: ObjectChange) -> str:
        self.seen.append(change)
        if self.acts:
            self.acts.pop(0)(change)
        return "done"

    def upload(self, key: str = KEY) -> Any:
        state = self.world.s3.put(key, "1")
        self.sqs.send(notification(record(key, state, at=self.world.clock())))
        return created(state, key=key)

    def poll(self) -> None:
        """Handle the messages that are visible."""
        self.worker._handle(self.worker._receive())


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestLease:
    """The lease of a claim is short, and lasts as long as the worker lives."""

    @pytest.mark.failure_mode("F135")
    def test_a_processor_that_runs_for_longer_than_a_lease_is_not_overtaken(self, bench: Bench) -> None:
        change = bench.upload()
        verdicts: list[Verdict] = []

        def work(_: ObjectChange) -> None:
            for _beat in range(10):
                bench.world.clock.advance(HOLD * SECOND // 3)
                bench.heartbeat.beat()
                verdicts.append(bench.world.verdict(change))

        bench.acts = [work]
        bench.poll()

        assert set(verdicts) == {Verdict.BUSY}
        assert bench.world.known(change).status is Status.PROCESSED
        assert len(bench.seen) == 1

    def test_the_work_of_a_worker_that_dies_is_free_after_the_time_of_one_lease(self, bench: Bench) -> None:
        change = bench.upload()

        def die(_: ObjectChange) -> None:
            lease = bench.world.known(change).lease_until
            assert lease == bench.world.clock() + (HOLD + SKEW) * SECOND
            bench.world.clock.advance((HOLD + SKEW) * SECOND)
            assert bench.world.verdict(change) is Verdict.ACCEPTED

        bench.acts = [die]
        bench.poll()

        assert bench.telemetry.outcomes[-1].value == "Fenced"

    @pytest.mark.failure_mode("F136")
    def test_a_heartbeat_leaves_a_row_alone_that_another_worker_has(self, bench: Bench) -> None:
        change = bench.upload()

        def lose(_: ObjectChange) -> None:
            bench.world.clock.advance((HOLD + SKEW) * SECOND)
            bench.world.accept(change)
            theirs = bench.world.item(change)
            bench.heartbeat.beat()
            assert bench.world.item(change) == theirs

        bench.acts = [lose]
        bench.poll()
        assert bench.seen

    def test_a_claim_that_has_ended_is_not_extended(self, bench: Bench) -> None:
        claim = bench.ledger.claim(bench.upload(), lease_ms=0)
        assert isinstance(claim, Claim)
        bench.ledger.commit(claim)

        with pytest.raises(Fenced):
            bench.ledger.extend(claim, lease_ms=HOLD * SECOND)

        assert bench.world.known(claim.change).lease_until is None

    def test_claims_that_were_made_together_are_extended_until_their_turn(self, bench: Bench) -> None:
        for number in range(3):
            bench.upload(f"warm {number}")
        bench.poll()
        first, last = bench.upload("first"), bench.upload("last")
        verdicts: list[Verdict] = []

        def work(_: ObjectChange) -> None:
            for _beat in range(10):
                bench.world.clock.advance(HOLD * SECOND // 3)
                bench.heartbeat.beat()
            verdicts.append(bench.world.verdict(last))

        bench.acts = [work]
        bench.poll()

        assert verdicts == [Verdict.BUSY]
        assert [bench.world.known(change).status for change in (first, last)] == [Status.PROCESSED] * 2

    def test_a_heartbeat_costs_one_write_for_a_claim_and_one_request_for_ten_messages(self, bench: Bench) -> None:
        bench.upload()
        requests: list[str] = []

        def work(_: ObjectChange) -> None:
            bench.world.wire.requests.clear()
            bench.world.clock.advance(1)
            bench.heartbeat.beat()
            requests.extend(bench.world.wire.requests)

        bench.acts = [work]
        bench.poll()
        assert requests == ["update_item"]


class TestMessages:
    """Messages in work stay hidden. Messages that were returned keep their delay."""

    def test_messages_in_work_are_hidden_from_other_workers(self, bench: Bench) -> None:
        bench.upload("first")
        bench.upload("second")
        visible: list[int] = []

        def work(_: ObjectChange) -> None:
            for _beat in range(5):
                bench.world.clock.advance(HOLD * SECOND // 2)
                bench.heartbeat.beat()
                visible.append(len(bench.sqs.receive(10, lambda messages: messages)))

        bench.acts = [work]
        bench.poll()
        assert visible == [0] * 5
        assert not bench.sqs.messages

    def test_a_heartbeat_does_not_change_the_delay_of_a_returned_message(self, bench: Bench) -> None:
        """The wait before the next attempt is the ledger's, and not the heartbeat's."""

        def fail(_: ObjectChange) -> None:
            raise ValueError

        bench.upload("fails")
        bench.upload("works")
        delays: list[int | None] = []

        def work(_: ObjectChange) -> None:
            delays.append(bench.sqs.next_visible_at())
            bench.world.clock.advance(1)
            bench.heartbeat.beat()
            delays.append(bench.sqs.next_visible_at())

        bench.acts = [fail, work]
        bench.poll()
        assert delays[0] == delays[1]
        assert [message.body for message in bench.sqs.messages if "fails" in message.body]

    def test_finished_messages_are_deleted_and_the_others_stay(self, bench: Bench) -> None:
        def fail(_: ObjectChange) -> None:
            raise ValueError

        for key in ("a", "b", "c"):
            bench.upload(key)
        bench.acts = [lambda _: None, fail]
        bench.poll()
        assert len(bench.sqs.messages) == 1


class TestStop:
    """After `stop`, the record in work is finished, and the others go back at once."""

    def test_the_record_in_work_is_finished_and_the_others_return_without_an_attempt(self, bench: Bench) -> None:
        changes = [bench.upload(f"key {number}") for number in range(4)]
        bench.acts = [lambda _: bench.worker.stop()]

        bench.worker.run()

        assert len(bench.seen) == 1
        assert [bench.world.row(change) is None for change in changes] == [False, True, True, True]
        assert bench.sqs.next_visible_at() == bench.world.clock()
        assert len(bench.sqs.messages) == 3

    def test_claims_that_were_made_together_are_released(self, bench: Bench) -> None:
        for number in range(3):
            bench.upload(f"warm {number}")
        bench.poll()
        changes = [bench.upload(f"key {number}") for number in range(3)]
        bench.acts = [lambda _: bench.worker.stop()]

        bench.worker.run()

        assert [bench.world.row(change) is None for change in changes] == [False, True, True]

    def test_an_outage_of_the_queue_does_not_end_the_worker(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.upload()
        receive, failures = bench.sqs.receive_message, [DOWN, DOWN]
        waits: list[float] = []

        def flaky(**request: Any) -> dict[str, Any]:
            if failures:
                raise failures.pop()
            return receive(**request)

        monkeypatch.setattr(bench.sqs, "receive_message", flaky)
        monkeypatch.setattr(bench.worker._stopping, "wait", waits.append)
        bench.acts = [lambda _: bench.worker.stop()]

        bench.worker.run()

        assert len(bench.seen) == 1
        assert waits == [1.0, 2.0]
        assert bench.telemetry.troubles == [DOWN, DOWN]

    @pytest.mark.failure_mode("F291")
    def test_each_outage_of_the_queue_begins_with_a_short_wait(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The wait doubles up to a minute, and an answer ends the outage."""
        answers: list[Exception | None] = [*[DOWN] * 8, None, *[DOWN] * 2, None]
        waits: list[float] = []

        def flaky(**_: Any) -> dict[str, Any]:
            answer = answers.pop(0)
            if not answers:
                bench.worker.stop()
            if answer is not None:
                raise answer
            return {}

        monkeypatch.setattr(bench.sqs, "receive_message", flaky)
        monkeypatch.setattr(bench.worker._stopping, "wait", waits.append)
        bench.worker.run()
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]

    def test_a_batch_that_cannot_be_handled_loses_nothing(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.upload()

        def broken(*_: object) -> None:
            raise OSError("stdout is closed")

        monkeypatch.setattr(FakeTelemetry, "flush", broken)
        bench.poll()
        assert len(bench.sqs.messages) == 1

    def test_messages_that_could_not_be_deleted_come_again_as_duplicates(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.upload()

        def down(**_: object) -> None:
            raise DOWN

        with monkeypatch.context() as patch:
            patch.setattr(bench.sqs, "delete_message_batch", down)
            bench.poll()
        bench.world.clock.advance(HOLD * SECOND)
        bench.poll()
        assert bench.telemetry.verdicts[-1] is Verdict.DUPLICATE
        assert not bench.sqs.messages


LONG_CALL = """
import itertools
from intake_ledger.worker.heartbeat import Extensions, Heartbeat

requests = Extensions(lease=None, visibility=None, report=print, end_process=None)
heartbeat = Heartbeat(requests, hold_seconds=0.3, limit_seconds=600, clock=lambda: 0.0)
heartbeat.start()
with heartbeat.processor():
    print("begins", flush=True)
    sum(itertools.repeat(1, 10**13))
"""


@pytest.mark.failure_mode("F662")
def test_a_call_that_holds_the_interpreters_lock_ends_with_its_leases() -> None:
    """No thread runs then, so nothing extends the leases. The log gets a traceback."""
    run = subprocess.run([sys.executable, "-c", LONG_CALL], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout) == (1, "begins\n")
    assert "Timeout" in run.stderr


@pytest.mark.failure_mode("F662")
def test_other_work_may_take_any_number_of_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is set again while threads run, and is not set without a processor."""
    set_again, timers = Event(), list[Any]()

    def set_timer(seconds: float, **options: Any) -> None:
        timers.append((seconds, options))
        if len(timers) == 5:
            set_again.set()

    cancels: list[int] = []
    fake = SimpleNamespace(
        dump_traceback_later=set_timer, cancel_dump_traceback_later=lambda: cancels.append(len(timers))
    )
    monkeypatch.setattr(heartbeats, "faulthandler", fake)
    extensions = Extensions(lease=cast("Any", None), visibility=cast("Any", None), report=print, end_process=exit)
    heartbeat = Heartbeat(extensions, hold_seconds=0.03, limit_seconds=600, clock=lambda: 0.0)
    heartbeat.start()
    with heartbeat.processor():
        assert set_again.wait(60)
    heartbeat.stop()
    assert cancels
    assert [seconds for seconds, _ in timers] == pytest.approx([0.04] * len(timers))
    assert all(options == {"exit": True, "file": 2} for _, options in timers)


class TestHeartbeat:
    """The heartbeat survives errors, and ends a process whose processor cannot be interrupted."""

    def extensions(self, log: list[str], *, fails: str = "") -> Extensions:
        def lease(claim: Any) -> None:
            log.append(claim.name)
            if claim.name == fails:
                raise DOWN

        def visibility(receipts: Any) -> None:
            log.append(",".join(receipts))
            if fails == "messages":
                raise OSError

        return Extensions(
            lease=lease,
            visibility=visibility,
            report=lambda _, error: log.append(type(error).__name__),
            end_process=lambda: log.append("end"),
        )

    def test_one_failed_extension_does_not_stop_the_others(self) -> None:
        log: list[str] = []
        heartbeat = Heartbeat(self.extensions(log, fails="a"), hold_seconds=60, limit_seconds=5, clock=lambda: 0.0)
        for name in "ab":
            heartbeat.take(_claim(name))

        heartbeat.beat()
        heartbeat.beat()

        assert log == ["a", "EndpointConnectionError", "b"] * 2

    def test_leases_are_extended_even_if_sqs_is_down(self) -> None:
        log: list[str] = []
        heartbeat = Heartbeat(
            self.extensions(log, fails="messages"), hold_seconds=60, limit_seconds=5, clock=lambda: 0.0
        )
        with heartbeat.batch(["r1"]):
            heartbeat.take(_claim("a"))
            heartbeat.beat()
        heartbeat.beat()
        assert log == ["r1", "OSError", "a"]

    @pytest.mark.failure_mode("F137")
    def test_the_process_ends_when_a_processor_cannot_be_interrupted(self) -> None:
        log: list[str] = []
        now = [0.0]
        heartbeat = Heartbeat(self.extensions(log), hold_seconds=60, limit_seconds=40, clock=lambda: now[0])
        with heartbeat.processor():
            now[0] = 40.0
            heartbeat.beat()
            assert not log
            now[0] = 40.1
            heartbeat.beat()
        now[0] = 900.0
        heartbeat.beat()
        assert log == ["end"]

    @pytest.mark.failure_mode("F137")
    def test_a_processor_that_is_interrupted_has_time_to_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process ends half a minute after the limit, and not before."""
        ended: list[str] = []
        monkeypatch.setattr(worker, "exit_now", lambda: ended.append("end"))
        heartbeat, now = Bench().heartbeat, [0.0]
        heartbeat._clock = lambda: now[0]
        with heartbeat.processor():
            now[0] = ConsumerBench(new_world()).settings().processing_timeout_seconds + 30.0
            heartbeat.beat()
            assert not ended
            now[0] += 0.1
            heartbeat.beat()
        assert ended == ["end"]


@pytest.mark.parametrize(("seconds", "size"), [(1, 10), (60, 10), (90, 10), (300, 3), (900, 1), (7_200, 1)])
def test_long_work_is_taken_one_by_one_so_that_other_workers_have_the_rest(seconds: int, size: int) -> None:
    assert batch_size(seconds) == size


class TestSettings:
    """The environment variables of a worker."""

    def test_the_defaults_hold_work_for_a_minute_and_poll_for_as_long_as_sqs_allows(self) -> None:
        assert settings_from(WorkerSettings, {}) == WorkerSettings(hold_seconds=60, poll_seconds=20)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("INTAKE_WORKER_HOLD_SECONDS", "2"),
            ("INTAKE_WORKER_HOLD_SECONDS", "1m"),
            ("INTAKE_WORKER_POLL_SECONDS", "21"),
        ],
    )
    def test_a_wrong_value_is_named(self, name: str, value: str) -> None:
        with pytest.raises(SettingsError, match=f"{name} is '?{value}'?, expected"):
            settings_from(WorkerSettings, {name: value})

    @pytest.mark.failure_mode("F263")
    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"INTAKE_MESSAGE_SOURCE": "sqs"}, "INTAKE_ORDERING is LATEST, expected EVERY_VERSION"),
            (
                {"INTAKE_MESSAGE_KEY": "id", "INTAKE_ORDERING": "EVERY_VERSION"},
                "the environment variable INTAKE_MESSAGE_SOURCE",
            ),
            ({"INTAKE_MESSAGE_SOURCE": "kinesis"}, "INTAKE_MESSAGE_SOURCE is kinesis: a worker receives from SQS only"),
            (
                {"INTAKE_SET_FORM": '{"form": "marker", "pattern": "_SUCCESS"}'},
                "the environment variable INTAKE_SET_PARTS_PIPELINE is not set",
            ),
            ({"INTAKE_SET_PARTS_PIPELINE": "p"}, "the environment variable INTAKE_SET_FORM is not set"),
            (
                {"INTAKE_MESSAGE_SOURCE": "sqs", "INTAKE_SET_FORM": "{}"},
                "INTAKE_MESSAGE_SOURCE of messages and INTAKE_SET_FORM of sets of files are set: ",
            ),
            (
                {"INTAKE_STATE_MACHINE": "arn", "AWS_DEFAULT_REGION": "eu-central-1"},
                "INTAKE_STATE_MACHINE is 'arn', expected the ARN",
            ),
            (
                {"INTAKE_PROCESSOR": "no:no", "AWS_DEFAULT_REGION": "eu-central-1"},
                "the processor 'no:no' was not found",
            ),
            ({"INTAKE_DLQ_URL": ""}, "the environment variable INTAKE_DLQ_URL is not set"),
            ({}, "the environment variable AWS_DEFAULT_REGION is not set"),
        ],
    )
    def test_a_worker_that_cannot_work_ends_with_one_line(self, more: dict[str, str], said: str) -> None:
        """It exits with 2 before it receives a message. A consumer of another kind would dead-letter each one."""
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = CONSUMER_VARIABLES | {"INTAKE_PROCESSOR": "json:loads", "PYTHONPATH": paths} | more
        nothing = {
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        done = subprocess.run(
            [sys.executable, "-m", "intake_ledger.worker"],
            env=environment | nothing,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.startswith(said)


def _claim(name: str) -> Claim:
    claim: Any = type("Named", (), {"name": name, "change": type("C", (), {"key": name})})()
    return cast("Claim", claim)
