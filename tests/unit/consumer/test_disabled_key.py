"""A KMS key is disabled and enabled again. The answers of AWS are injected, since the local AWS does not check keys."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Status
from tests.unit.audit.invocations import Invocations
from tests.unit.audit.test_kills import LOST, world
from tests.unit.consumer.test_consumer import Bench, message, put, raising_now
from tests.unit.support import KEY, MAX_ATTEMPTS, START, MakeWorld


def refusal(code: str, operation: str) -> ClientError:
    """The answer of a service whose key is disabled."""
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}},  # type: ignore[typeddict-item]
        operation,
    )


@pytest.fixture
def bench(make_world: MakeWorld) -> Bench:
    return Bench(make_world())


@pytest.mark.failure_mode("F184")
@pytest.mark.parametrize("code", ["AccessDeniedException", "KMSDisabledException"])
def test_the_key_of_the_table_is_disabled(bench: Bench, code: str) -> None:
    """Messages return without an attempt for as long as it lasts. Then each is processed at its first attempt."""
    state, body = put(bench)
    bench.world.wire.down = refusal(code, "GetItem")
    for receives in range(1, 3 * MAX_ATTEMPTS):
        assert bench.handle(message(body, receives=receives)) == ["m1"]
        bench.wait()
    assert (bench.seen, bench.queues.copies) == ([], [])
    bench.world.wire.down = None
    assert bench.handle(message(body, receives=3 * MAX_ATTEMPTS)) == []
    assert (bench.row(state).settled, bench.row(state).attempts, len(bench.seen)) == (True, 1, 1)


@pytest.mark.failure_mode("F184")
def test_the_key_of_the_bucket_is_disabled_for_a_short_time(bench: Bench) -> None:
    """The failed attempt has S3's code. The next attempt succeeds, and the circuit breaker stays closed."""
    state, body = put(bench)
    bench.world.s3.before_open.append(raising_now(refusal("KMS.DisabledException", "GetObject")))
    assert bench.handle(message(body)) == ["m1"]
    row = bench.row(state)
    assert (row.status, row.reason_code, row.s3_error) == (
        Status.FAILED,
        ReasonCode.S3_REFUSED,
        "KMS.DisabledException",
    )
    bench.wait()
    assert bench.handle(message(body)) == []
    assert bench.row(state).settled
    assert bench.telemetry.said == []


@pytest.mark.failure_mode("F184")
def test_the_key_of_the_bucket_is_disabled_for_all_attempts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 refuses HEAD and GET. The object is rejected with S3's code. A redrive after the repair processes it once."""
    state, body = put(bench)

    def refuse(**_: object) -> None:
        raise refusal("400", "HeadObject")

    def listed(**_: object) -> Any:
        version = {"Key": KEY, "VersionId": state.version_id, "ETag": state.etag, "Size": state.size}
        return {"Versions": [version | {"LastModified": datetime.fromtimestamp(START / 1000, UTC)}]}

    with monkeypatch.context() as patch:
        patch.setattr(bench.world.s3.memory, "head_object", refuse)
        patch.setattr(bench.world.s3.memory, "list_object_versions", listed, raising=False)
        bench.world.s3.before_open.extend([raising_now(refusal("KMS.DisabledException", "GetObject"))] * MAX_ATTEMPTS)
        for _ in range(MAX_ATTEMPTS - 1):
            assert bench.handle(message(body)) == ["m1"]
            bench.wait()
        assert bench.handle(message(body)) == []
    row = bench.row(state)
    assert (row.status, row.reason_code, row.attempts) == (Status.REJECTED, ReasonCode.S3_REFUSED, MAX_ATTEMPTS)
    [(copy, attributes)] = bench.queues.copies
    assert bench.handle(message(copy, rejected_fence=attributes["rejected_fence"])) == []
    assert bench.row(state).settled
    assert len(bench.seen) == 1


@pytest.mark.failure_mode("F184")
def test_the_key_of_the_queue_is_disabled_during_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends with an error and leaves no mark. The next run after its lease sends all messages."""
    audit = Invocations(world(), monkeypatch)

    def refuse(**_: object) -> None:
        raise refusal("KMS.DisabledException", "SendMessageBatch")

    with monkeypatch.context() as patch:
        patch.setattr(audit.sqs, "send_message_batch", refuse)
        with pytest.raises(ClientError, match=r"KMS\.DisabledException"):
            audit.tick()
    assert audit.world.sent == []
    audit.next_tick(2)
    report = audit.tick()
    assert (report.complete, report.resubmitted) == (True, len(LOST))
    assert sorted(audit.world.sent) == sorted(LOST)
