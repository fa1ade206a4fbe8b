"""Several records of a batch at once: what overlaps, what never does, and how a processor that hangs ends.

Nothing here sleeps: processors wait for each other, and give up after `PATIENT` seconds where the code is wrong.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, Event, Lock
from typing import TYPE_CHECKING, Any, cast

import pytest

from intake_ledger import NotYet, ObjectChange
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.threads import ParallelGroups, ProcessorThreads
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Status
from intake_ledger_testing.consumers import object_consumer
from tests.unit.consumer.test_consumer import EXITS, OUTAGE, Bench, Context, message, put
from tests.unit.consumer.test_groups import new_world
from tests.unit.support import LEASE, World, created

if TYPE_CHECKING:
    from intake_ledger.ledger.ledger import Claim, Ledger

ROOT = Path(__file__).parents[2]
PATIENT = 30.0
FOREVER = 3_600.0


class Stage:
    """A consumer with threads. `acts` has the processor's behaviour for each key."""

    def __init__(self, world: World, *, threads: int = 2, timeout: int = 60) -> None:
        self.bench = Bench(world, threads=threads, timeout=timeout)
        self.acts: dict[str, Callable[[ObjectChange], Any]] = {}
        self.ledger: Ledger = world.ledger
        self.processing_time = ProcessingTime()
        self.ends = 0
        self.consumer = self.make()

    def make(self) -> Consumer:
        return object_consumer(
            replace(self.bench.services(), ledger=self.ledger),
            self.process,
            processing_time=self.processing_time,
            end_process=self.end,
        )

    def process(self, change: ObjectChange) -> None:
        self.bench.seen.append(change)
        if change.key in self.acts:
            self.acts[change.key](change)

    def end(self) -> None:
        self.ends += 1

    def handle(self, *messages: dict[str, Any]) -> list[str]:
        clock = self.bench.world.clock
        answer = self.consumer.handle({"Records": messages}, Context(clock, clock() + 200_000))
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    @property
    def threads(self) -> ProcessorThreads:
        *_, driver = self.consumer._drivers
        assert isinstance(driver, ParallelGroups)
        return driver.threads

    def close(self) -> None:
        """Wait until each thread has ended."""
        self.threads._pool.shutdown(wait=True)

    def row(self, key: str) -> Any:
        return self.bench.world.known(created(self.bench.world.s3.look(key), key=key))


@pytest.fixture
def world() -> World:
    """Over the store in memory: moto is not for threads."""
    return new_world()


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    stage = Stage(world)
    yield stage
    stage.close()


@pytest.fixture
def hung(world: World) -> "Iterator[tuple[Stage, Event]]":
    """The processor of `hangs` overruns its second, until the event is set."""
    stage, release = Stage(world, timeout=1), Event()
    stage.acts["hangs"] = lambda _: release.wait(FOREVER)
    yield stage, release
    release.set()
    stage.close()


class TestOverlap:
    def test_two_keys_are_processed_at_the_same_time(self, stage: Stage) -> None:
        """Each waits for the other inside the processor."""
        meet = Barrier(2, timeout=PATIENT)
        stage.acts = {"a": lambda _: meet.wait(), "b": lambda _: meet.wait()}
        bodies = [put(stage.bench, key=key)[1] for key in "ab"]
        assert stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert [stage.row(key).status for key in "ab"] == [Status.PROCESSED] * 2

    @pytest.mark.failure_mode("F22")
    def test_two_changes_of_one_key_are_processed_in_turn(self, stage: Stage) -> None:
        """The second waits for the first, in the batch's order, although a thread is free: nothing is BUSY."""
        other = Event()
        stage.acts = {"same": lambda _: other.wait(PATIENT), "other": lambda _: other.set()}
        bodies = [put(stage.bench, str(n), key="same")[1] for n in range(2)] + [put(stage.bench, key="other")[1]]
        assert stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        versions = [change.version_id for change in stage.bench.seen if change.key == "same"]
        assert versions == sorted(versions, key=str)
        assert len(versions) == 2

    def test_no_more_processors_run_than_there_are_threads(self, stage: Stage) -> None:
        """Of six keys, two at a time. Each pair meets inside the processor, so both threads work."""
        meet, lock, counts = Barrier(2, timeout=PATIENT), Lock(), [0]

        def act(_: ObjectChange) -> None:
            with lock:
                counts.append(counts[-1] + 1)
            meet.wait()
            with lock:
                counts.append(counts[-1] - 1)

        stage.acts = dict.fromkeys("abcdef", act)
        bodies = [put(stage.bench, key=key)[1] for key in "abcdef"]
        assert stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == []
        assert max(counts) == 2

    def test_group_claims_grow_with_the_threads(self, stage: Stage) -> None:
        """Each thread can start as many records in time as a single one."""
        stage.processing_time.add(60_000)
        bodies = [put(stage.bench, key=key)[1] for key in "ab"]
        stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies)))
        assert stage.bench.world.wire.requests[0] == "batch_execute_statement"

    def test_a_failure_affects_its_own_message_only(self, stage: Stage) -> None:
        """The same is true without threads."""
        stage.acts = {"a": lambda _: 1 / 0}
        bodies = [put(stage.bench, key=key)[1] for key in "abc"]
        assert stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == ["m0"]
        assert stage.row("a").status is Status.FAILED

    @pytest.mark.failure_mode("F20")
    @pytest.mark.parametrize("exits", EXITS)
    def test_an_exit_affects_its_own_message_only(self, stage: Stage, exits: BaseException) -> None:
        """An exit in a thread is a failed attempt. It does not affect other messages or the process."""

        def end(_: ObjectChange) -> None:
            raise exits

        stage.acts = {"a": end}
        bodies = [put(stage.bench, key=key)[1] for key in "abc"]
        assert stage.handle(*(message(body, f"m{n}") for n, body in enumerate(bodies))) == ["m0"]
        assert (stage.row("a").status, stage.row("a").attempts) == (Status.FAILED, 1)
        assert [stage.row(key).status for key in "bc"] == [Status.PROCESSED] * 2
        assert stage.ends == 0

    def test_a_keyboard_interrupt_in_a_thread_ends_the_consumer(self, stage: Stage) -> None:
        """It must not look like a batch that was handled completely."""

        def die(_: ObjectChange) -> None:
            raise KeyboardInterrupt

        stage.acts = {"a": die}
        _, body = put(stage.bench, key="a")
        with pytest.raises(KeyboardInterrupt):
            stage.handle(message(body))


class TestOverrun:
    @pytest.mark.failure_mode("F20")
    def test_all_other_messages_are_finished_before_the_process_ends(self, hung: tuple[Stage, Event]) -> None:
        """Finished messages are deleted, and others return unclaimed. Only the overrun counts an attempt."""
        stage, _ = hung
        hanging, healthy = put(stage.bench, key="hangs")[1], put(stage.bench, key="healthy")[1]
        behind = put(stage.bench, "2", key="hangs")[1]
        given_back = stage.handle(message(hanging, "hangs"), message(healthy, "healthy"), message(behind, "behind"))
        assert given_back == ["hangs", "behind"]
        assert stage.ends == 1
        assert stage.bench.queues.deleted == ["handle-healthy"]
        assert stage.bench.queues.delays == {"handle-hangs": 8, "handle-behind": 0}
        assert (stage.row("hangs").status, stage.row("hangs").attempts) == (Status.FAILED, 1)
        assert "ran longer than its limit of 1 s" in stage.row("hangs").reason
        assert stage.row("healthy").status is Status.PROCESSED
        assert stage.bench.telemetry.said == ["end of process"]
        assert stage.bench.telemetry.flushed

    @pytest.mark.failure_mode("F331")
    def test_messages_that_wait_are_copied_before_the_process_ends(self, hung: tuple[Stage, Event]) -> None:
        """Many messages are in flight. The test does not answer, so a message is deleted here once SQS has its copy."""
        stage, _ = hung

        def wait(_: ObjectChange) -> None:
            raise NotYet("the rates", retry_in=600)

        stage.bench.queues.invisible = 100_000
        stage.acts["waits"] = wait
        stage.handle(*(message(put(stage.bench, key=key)[1], key) for key in ("hangs", "waits")))
        assert stage.ends == 1
        assert len(stage.bench.queues.delayed) == 1
        assert stage.bench.queues.deleted == ["handle-waits"]

    @pytest.mark.failure_mode("F20")
    def test_an_exit_and_a_hang_in_one_batch_are_both_failures(self, hung: tuple[Stage, Event]) -> None:
        """Each counts an attempt with its reason. Only the hang ends the process."""
        stage, _ = hung

        def end(_: ObjectChange) -> None:
            sys.exit("no")

        stage.acts["exits"] = end
        bodies = {key: put(stage.bench, key=key)[1] for key in ("hangs", "exits")}
        assert stage.handle(*(message(body, key) for key, body in bodies.items())) == ["hangs", "exits"]
        assert stage.ends == 1
        assert stage.bench.queues.deleted == []
        assert stage.row("exits").reason.startswith("SystemExit at ")
        assert "ran longer than its limit of 1 s" in stage.row("hangs").reason

    @pytest.mark.failure_mode("F92")
    def test_group_claims_that_were_not_started_are_released(self, hung: tuple[Stage, Event]) -> None:
        """All threads hang; the third of the group is as if it had never been claimed."""
        stage, release = hung
        stage.acts["hangs too"] = lambda _: release.wait(FOREVER)
        stage.processing_time.add(1)
        bodies = {key: put(stage.bench, key=key)[1] for key in ("hangs", "hangs too", "third")}
        assert stage.handle(*(message(body, key) for key, body in bodies.items())) == list(bodies)
        third = created(stage.bench.world.s3.look("third"), key="third")
        assert stage.bench.world.row(third) is None
        assert [stage.row(key).status for key in ("hangs", "hangs too")] == [Status.FAILED] * 2

    @pytest.mark.failure_mode("F07")
    def test_the_commit_of_an_overrun_processor_is_refused(self, hung: tuple[Stage, Event]) -> None:
        """If it wakes before the process is gone, the fence has the last word."""
        stage, release = hung
        stage.handle(message(put(stage.bench, key="hangs")[1]))
        release.set()
        stage.close()
        assert stage.bench.telemetry.outcomes == [OutcomeKind.FAILED, OutcomeKind.FENCED]
        assert stage.row("hangs").status is Status.FAILED

    def test_a_commit_at_the_last_moment_stands(self, hung: tuple[Stage, Event]) -> None:
        """The processor ends between the decision and the write. Its commit counts."""
        stage, release = hung
        fail = stage.ledger.fail

        def after_the_end(*plain: Any, **arguments: Any) -> None:
            release.set()
            stage.close()
            fail(*plain, **arguments)

        stage.ledger.fail = after_the_end  # type: ignore[method-assign]
        assert stage.handle(message(put(stage.bench, key="hangs")[1], "hangs")) == ["hangs"]
        assert stage.bench.telemetry.outcomes == [OutcomeKind.COMMITTED, OutcomeKind.FENCED]
        assert stage.row("hangs").status is Status.PROCESSED
        assert stage.bench.queues.deleted == []

    def test_an_overrun_that_ends_while_others_are_awaited_keeps_the_process(self, stage: Stage) -> None:
        """The overrun ends while another processor is awaited. The process goes on. A third change, claimed in the same
        group and not started, is released.
        """
        threads = stage.threads

        def run(
            groups: Sequence[Callable[[], None]], stop: Callable[[], None], each_second: Callable[[], None]
        ) -> "list[Claim]":
            *begun, _ = groups
            return ProcessorThreads.run(threads, begun, stop, each_second)

        threads.run = run  # type: ignore[method-assign, assignment]
        stage.processing_time.add(1)
        bodies = {key: put(stage.bench, key=key)[1] for key in ("late", "neighbour", "third")}
        assert stage.handle(*(message(body, key) for key, body in bodies.items())) == ["third"]
        assert stage.ends == 0
        assert stage.bench.queues.delays == {"handle-third": 0}
        third = created(stage.bench.world.s3.look("third"), key="third")
        assert stage.bench.world.row(third) is None

    @pytest.mark.failure_mode("F85")
    def test_the_last_attempt_is_rejected_with_its_reason(self, hung: tuple[Stage, Event]) -> None:
        """Its copy is in the dead-letter queue, so the message is deleted."""
        stage, _ = hung
        state, body = put(stage.bench, key="hangs")
        for _ in range(2):
            stage.bench.world.fail(created(state, key="hangs"))
            stage.bench.world.clock.advance(LEASE)
        assert stage.handle(message(body)) == []
        assert stage.bench.queues.deleted == ["handle-m1"]
        assert stage.row("hangs").status is Status.REJECTED
        assert len(stage.bench.queues.copies) == 1

    @pytest.mark.failure_mode("F26")
    def test_a_message_with_an_unhandled_record_is_not_deleted(self, hung: tuple[Stage, Event]) -> None:
        """The other one was never begun."""
        stage, _ = hung
        state, _ = put(stage.bench, key="hangs")
        for _ in range(2):
            stage.bench.world.fail(created(state, key="hangs"))
            stage.bench.world.clock.advance(LEASE)
        both = put(stage.bench, key="hangs")[1][:-2] + "," + put(stage.bench, key="other")[1].partition("[")[2]
        assert stage.handle(message(both)) == ["m1"]
        assert stage.bench.queues.deleted == []

    def test_when_the_ledger_is_down_the_process_ends_all_the_same(self, hung: tuple[Stage, Event]) -> None:
        """The lease runs out, and the message comes again."""
        stage, release = hung

        def hang(_: ObjectChange) -> None:
            stage.bench.world.wire.down = OUTAGE
            release.wait(FOREVER)

        stage.acts["hangs"] = hang
        assert stage.handle(message(put(stage.bench, key="hangs")[1])) == ["m1"]
        assert stage.ends == 1
        stage.bench.world.wire.down = None


class TestThreadPool:
    """The threads alone."""

    @pytest.fixture
    def release(self) -> Iterator[Event]:
        """Release the hanging processors at the end of the test."""
        event = Event()
        yield event
        event.set()

    def test_another_running_processor_is_awaited_up_to_its_limit(self, release: Event) -> None:
        """And no other begins: the group that waits for a thread is left out."""
        threads, stopped = ProcessorThreads(2, PATIENT), Event()
        sick, healthy = cast("Claim", "sick"), cast("Claim", "healthy")
        done: list[str] = []

        def hang() -> None:
            with threads.limit(sick, 0.01):
                release.wait(FOREVER)

        def work() -> None:
            with threads.limit(healthy, PATIENT):
                assert stopped.wait(PATIENT)
            done.append("neighbour")

        assert threads.run([hang, work], stopped.set) == [sick]
        assert done == ["neighbour"]
        release.set()
        threads._pool.shutdown(wait=True)

    def test_groups_that_no_thread_has_taken_are_left_out(self, release: Event) -> None:
        """Every thread hangs."""
        threads = ProcessorThreads(1, PATIENT)
        done: list[str] = []

        def hang() -> None:
            with threads.limit(cast("Claim", "sick"), 0.01):
                release.wait(FOREVER)

        assert len(threads.run([hang, partial(done.append, "never")], lambda: None)) == 1
        release.set()
        threads._pool.shutdown(wait=True)
        assert done == []

    def test_an_overrun_that_ended_while_others_were_awaited_is_left_alone(self) -> None:
        """It ended while another processor was awaited, so no thread hangs any more."""
        threads, stopped, ended = ProcessorThreads(2, PATIENT), Event(), Event()

        def late() -> None:
            with threads.limit(cast("Claim", "late"), 0.01):
                assert stopped.wait(PATIENT)
            ended.set()

        def work() -> None:
            with threads.limit(cast("Claim", "healthy"), PATIENT):
                assert ended.wait(PATIENT)

        assert threads.run([late, work], stopped.set) == []
        threads._pool.shutdown(wait=True)


PROGRAM = """
from threading import Event

from intake_ledger.consumer.threads import exit_now
from intake_ledger.observability.powertools import PowertoolsTelemetry
from tests.unit.consumer.test_consumer import FakeQueues, message, put
from tests.integration.test_threads import Stage
from tests.unit.consumer.test_groups import new_world

class Queues(FakeQueues):
    def delete(self, receipt_handles, **_):
        print("deleted", *receipt_handles)

stage = Stage(new_world(), timeout=1)
stage.bench.telemetry, stage.bench.queues = PowertoolsTelemetry(), Queues()
stage.end = exit_now
stage.consumer = stage.make()
stage.acts["hangs"] = lambda _: Event().wait()
stage.handle(*(message(put(stage.bench, key=key)[1], key) for key in ("hangs", "healthy")))
print("the process lives on")
"""


@pytest.mark.failure_mode("F20")
def test_the_process_ends_and_its_log_lines_are_written() -> None:
    """A frozen thread would go on in a later invocation. The output is a pipe and therefore buffered."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={"POWERTOOLS_SERVICE_NAME": "p", "POWERTOOLS_METRICS_NAMESPACE": "n", "PYTHONPATH": ":".join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "deleted handle-healthy" in done.stdout
    assert '"the process ends"' in done.stdout
    assert '"Committed"' in done.stdout
    assert '"Failed"' in done.stdout
    assert "lives on" not in done.stdout
