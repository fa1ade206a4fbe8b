"""An archived object is refused by S3 until it is restored: the event of that wakes its key (F108)."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import md5

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectChange, Unprocessable
from intake_ledger.protocol.change import Change, State, StateKind
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.verdict import Verdict
from intake_ledger_testing.events import eventbridge_event, s3_notification
from intake_ledger_testing.local_settings import BUCKET as LOCAL
from tests.unit.consumer.test_consumer import SENT_AT, Bench, message, put, raising, raising_now
from tests.unit.support import (
    BUCKET,
    DAY,
    KEY,
    MAX_ATTEMPTS,
    RETENTION,
    START,
    MakeWorld,
    World,
    created,
    make_reason,
    one_change,
)

ARCHIVED = ClientError(
    {"Error": {"Code": "InvalidObjectState"}, "ResponseMetadata": {"HTTPStatusCode": 403}},  # type: ignore[typeddict-item]
    "GetObject",
)
SHOWN = State(StateKind.OBJECT, "v1", "e1", 7)
TELLS = pytest.mark.parametrize("tell", [s3_notification, eventbridge_event])


def restored(state: State, tell: Callable[..., str] = s3_notification, *, at: int = START) -> str:
    """The event, as S3 or EventBridge tells it."""
    time = datetime.fromtimestamp(at / 1000, UTC)
    return tell(
        BUCKET,
        KEY,
        event="ObjectRestore:Completed",
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        time=time,
    )


def restore(state: State, *, at: int = START) -> Change:
    return one_change(restored(state, at=at))


def reject_archived(bench: Bench) -> tuple[State, str]:
    """An upload that is archived at once, and rejected after its attempts; its state and its message."""
    state, body = put(bench)
    bench.world.s3.before_open.extend([raising_now(ARCHIVED)] * MAX_ATTEMPTS)
    while bench.handle(message(body)):
        bench.wait()
    row = bench.row(state)
    assert (row.status, row.s3_error) == (Status.REJECTED, "InvalidObjectState")
    return state, body


@pytest.mark.failure_mode("F108")
@pytest.mark.parametrize("ordering", Ordering)
@TELLS
def test_a_rejected_object_is_processed_when_it_is_restored(
    make_world: MakeWorld, ordering: Ordering, tell: Callable[..., str]
) -> None:
    """It is processed once, with all attempts. Neither a duplicate of the restore, nor a duplicate of the upload,
    nor the copy from the dead-letter queue runs it again.
    """
    bench = Bench(make_world(ordering))
    state, body = reject_archived(bench)
    [(copy, attributes)] = bench.queues.copies
    assert bench.handle(message(restored(state, tell))) == []
    row = bench.row(state)
    assert row.has_committed(state.identity)
    assert (row.redrive_count, row.s3_error, row.needs_review) == (1, None, None)
    for again in (restored(state, tell), restored(state), body):
        assert bench.handle(message(again)) == []
    assert bench.handle(message(copy, rejected_fence=attributes["rejected_fence"])) == []
    assert len(bench.seen) == 1


@pytest.mark.failure_mode("F108")
def test_a_restore_that_fails_otherwise_is_not_repeated_by_its_duplicate(world: World) -> None:
    """F108, F76: the duplicate finds a reason that a restore does not change."""
    bench = Bench(world)
    state, _ = reject_archived(bench)
    bench.acts = [raising(Unprocessable("not a CSV"))]
    assert bench.handle(message(restored(state))) == []
    assert bench.handle(message(restored(state))) == []
    row = bench.row(state)
    assert (row.status, row.reason, row.s3_error) == (Status.REJECTED, "not a CSV", None)
    assert len(bench.seen) == 1


@pytest.mark.failure_mode("F108")
def test_a_failed_object_is_tried_at_its_time(world: World) -> None:
    """It has attempts left. Its message or the restore's message finds it readable."""
    bench = Bench(world)
    state, body = put(bench)
    bench.world.s3.before_open.append(raising_now(ARCHIVED))
    assert bench.handle(message(body)) == ["m1"]
    assert bench.handle(message(restored(state), "restored", sent_at=SENT_AT + 1)) == ["restored"]
    assert bench.telemetry.verdicts[-1] is Verdict.BUSY
    bench.wait("restored")
    assert bench.handle(message(restored(state), "restored", receives=2)) == []
    assert bench.row(state).settled


@pytest.mark.failure_mode("F108")
def test_a_rejection_for_another_reason_stays(world: World) -> None:
    """This object was not archived."""
    change = created(world.s3.put(KEY, "1"))
    world.reject(change)
    assert world.verdict(restore(world.s3.look(KEY))) is Verdict.REJECTED


@pytest.mark.failure_mode("F108")
def test_the_restore_of_an_older_version_says_nothing_about_the_current_one(world: World) -> None:
    """Only the very state that was refused is taken up again."""
    old, state = world.s3.put(KEY, "1"), world.s3.put(KEY, "2")
    claim = world.accept(created(state))
    world.ledger.reject(claim, make_reason("archived"), s3_error="InvalidObjectState")
    assert world.verdict(restore(old)) is Verdict.REJECTED
    assert world.verdict(restore(state)) is Verdict.ACCEPTED


@pytest.mark.failure_mode("F108")
def test_a_worker_that_dies_in_the_round_spends_its_attempts(world: World) -> None:
    """F108, F76: the round ends as any other."""
    state = world.s3.put(KEY, "1")
    world.ledger.reject(world.accept(created(state)), make_reason("archived"), s3_error="InvalidObjectState")
    for _ in range(MAX_ATTEMPTS):
        world.die(restore(state))
    assert world.verdict(restore(state)) is Verdict.EXHAUSTED


@pytest.mark.failure_mode("F108")
def test_without_a_row_the_age_decides(make_world: MakeWorld) -> None:
    """An archived object is old. A restore must not process it again if its row has expired."""
    world = make_world()
    young = world.s3.put(KEY, "1")
    world.clock.advance(DAY)
    assert world.verdict(restore(young)) is Verdict.ACCEPTED
    world = make_world()
    old = world.s3.put(KEY, "1")
    world.clock.advance(RETENTION + DAY)
    assert world.verdict(restore(old, at=world.clock())) is Verdict.STALE
    every = make_world(Ordering.EVERY_VERSION)
    assert every.verdict(restore(every.s3.put(KEY, "1"))) is Verdict.STALE


@pytest.mark.failure_mode("F108")
@TELLS
def test_the_event_only_wakes(tell: Callable[..., str]) -> None:
    """It names a state, of an age that it does not know, and vouches for nothing."""
    change = one_change(restored(SHOWN, tell))
    assert change.restored
    assert not change.reported_as_new
    assert change.state == SHOWN
    nameless = json.loads(restored(SHOWN))
    for name in ("versionId", "eTag"):
        del nameless["Records"][0]["s3"]["object"][name]
    assert one_change(json.dumps(nameless)).state is None


@pytest.mark.failure_mode("F108")
@given(
    st.lists(st.sampled_from(("run", "archive", "restore", "restore event", "upload event")), max_size=25),
)
def test_whatever_is_archived_and_restored_in_between_it_is_processed_once(steps: list[str]) -> None:
    """F108, G3, G4: after the last restore the object is processed, and never twice."""
    seen: list[ObjectChange] = []

    def process(change: ObjectChange) -> str:
        change.open().read()
        seen.append(change)
        return "done"

    pipeline = LocalPipeline(process)
    version = pipeline.put("a", "1")
    etag = md5(b"1").hexdigest()
    told = {
        "restore event": s3_notification(LOCAL, "a", event="ObjectRestore:Completed", version_id=version, etag=etag),
        "upload event": s3_notification(LOCAL, "a", version_id=version, etag=etag),
    }
    for step in steps:
        match step:
            case "run":
                pipeline.run()
            case "archive":
                pipeline.archive("a")
            case "restore":
                pipeline.restore("a")
            case _:
                pipeline.send(told[step])
    pipeline.restore("a")
    pipeline.run()
    assert len(seen) == 1
