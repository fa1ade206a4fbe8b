"""A malformed effect takes one attempt and is rejected, in each kind of work."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline, MemoryDynamoDB
from intake_ledger import (
    Commit,
    InvalidEffectError,
    InvalidOutputError,
    KeyedMessage,
    NotYet,
    ObjectChange,
    OutputError,
)
from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import Execution
from intake_ledger.ledger.transactions import refusal
from intake_ledger.once import OnceLedger
from intake_ledger.outputs import conditional_put
from intake_ledger.processor.lambda_processor import commit_from
from intake_ledger.processor.object_change import as_commit
from intake_ledger.protocol.errors import InvalidTransactionError, OutputTaken, WrongReturnError
from intake_ledger.protocol.handover import check_transact, kept_result, remaining_seconds, shown, wait_seconds
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_testing.memory_s3 import s3_error
from tests.settings import examples
from tests.unit.executions.support import ExecutionPipeline
from tests.unit.messages.support import Intake, sqs
from tests.unit.sets.bench import SetBench
from tests.unit.sets.test_sets import MARKER
from tests.unit.support import SECOND
from tests.unit.worker.test_worker import Bench as WorkerBench

DELIVERIES = 15
KEY = {"id": {"S": "1"}}
PUT = {"Put": {"TableName": "orders", "Item": KEY}}
LOOP: list[Any] = []
LOOP.append({"Put": {"TableName": "orders", "Item": KEY | {"loop": {"L": LOOP}}}})
LONE = "\ud800"
MALFORMED: dict[str, Any] = {
    "a list of numbers": [5],
    "a text": "abc",
    "bytes": b"abc",
    "a number": 5,
    "None": None,
    "a dict": PUT,
    "a generator": (one for one in [PUT]),
    "two operations in one element": [{**PUT, "Delete": {"TableName": "orders", "Key": KEY}}],
    "no table": [{"Put": {"Item": KEY}}],
    "untyped values": [{"Put": {"TableName": "orders", "Item": {"id": "1"}}}],
    "a number as a number": [{"Put": {"TableName": "orders", "Item": {"id": {"N": 1}}}}],
    "a number that is none": [{"Put": {"TableName": "orders", "Item": {"id": {"N": "NaN"}}}}],
    "an empty set": [{"Put": {"TableName": "orders", "Item": KEY | {"names": {"SS": []}}}}],
    "a set with a value twice": [{"Put": {"TableName": "orders", "Item": KEY | {"names": {"BS": ["a", b"a"]}}}}],
    "a set of another type": [{"Put": {"TableName": "orders", "Item": KEY | {"names": {"SS": [1]}}}}],
    "an unknown type": [{"Put": {"TableName": "orders", "Item": KEY | {"at": {"D": "2026"}}}}],
    "invalid Unicode": [{"Put": {"TableName": "orders", "Item": {"id": {"S": LONE}}}}],
    "invalid Unicode in an expression": [{"Delete": {"TableName": "orders", "Key": KEY, "ConditionExpression": LONE}}],
    "a value that contains itself": LOOP,
    "too many elements": [{"Put": {"TableName": "orders", "Item": {"id": {"S": str(n)}}}} for n in range(120)],
    "too large": [
        {"Put": {"TableName": "orders", "Item": {"id": {"S": str(n)}, "data": {"B": b"x" * 390_000}}}}
        for n in range(12)
    ],
    "one item twice": [PUT, PUT],
    "the ledger's table": [{"Put": {"TableName": "ledger", "Item": KEY}}],
}


def in_a_group(write: Callable[[], object]) -> None:
    """Write as a task of `asyncio` does, whose group wraps each error."""

    async def task() -> None:
        write()

    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(task())

    asyncio.run(tasks())


MALFORMED_OUTPUTS: dict[str, Callable[[Any], object]] = {
    "no fence": lambda output: output("results", "a").put(b"no fence"),
    "no fence, in parts": lambda output: output("results", "a").put(b"x" * 2**20 for _ in range(9)),
    "BGZF": lambda output: output("results", "a").put(b"\x1f\x8b\x08\x04" + bytes(40)),
    "text": lambda output: output("results", "a").put("text"),
    "chunks of text": lambda output: output("results", "a").put(["text"]),
    "nothing": lambda output: output("results", "a").put(None),
    "a content type that is no header": lambda output: output("results", "a").put(b"1", content_type="a\nb"),
    "a content type of another type": lambda output: output("results", "a").put(b"1", content_type=5),
    "in a group of errors": lambda output: in_a_group(lambda: output("results", "a").put(b"no fence")),
    "no bucket": lambda output: output("", "a"),
    "a bucket of another type": lambda output: output(None, "a"),
    "no key": lambda output: output("results", ""),
    "a key of another type": lambda output: output("results", 5),
    "a long key": lambda output: output("results", "x" * 1025),
    "a key that is not Unicode": lambda output: output("results", LONE),
    "the object itself": lambda output: output("local-bucket", "a.jpg"),
}


@dataclass
class Ended:
    """The end of a change after many deliveries."""

    calls: int
    status: str
    code: str | None
    copies: int | None
    """The dead-letter messages. None: the kind has no queue."""


def ended(row: Row | None, calls: int, copies: int | None) -> Ended:
    assert row is not None
    return Ended(calls, row.status.value, row.reason_code, copies)


def objects(handed: object, ordering: Ordering = Ordering.LATEST) -> Ended:
    pipeline = LocalPipeline(lambda _: cast("Any", handed), ordering=ordering)
    pipeline.put("a", "1")
    for _ in range(DELIVERIES):
        with suppress(InvalidEffectError):
            pipeline.run()
        pipeline.send(pipeline._sqs.dead_letters[-1].body if pipeline.dead_letters else "{}")
    return ended(pipeline.row("a"), len(pipeline.calls), len(pipeline.dead_letters))


def versions(handed: object) -> Ended:
    return objects(handed, Ordering.EVERY_VERSION)


def messages(handed: object) -> Ended:
    intake = Intake(process=lambda _: handed)
    for number in range(1, DELIVERIES + 1):
        intake.handle([sqs("o", "e", receives=number)], intake.worker())
        intake.clock.advance(3600 * SECOND)
    return ended(intake.row("o", "e"), len(intake.calls), len(intake.sqs.dead_letters))


def sets(handed: object) -> Ended:
    bench = SetBench(MARKER, process=lambda _: cast("Any", handed))
    bench.put("exports/1/a.csv")
    bench.put("exports/1/_SUCCESS")
    with suppress(InvalidEffectError):
        bench.run()
    bench.run()
    return ended(bench.row("exports/1/_SUCCESS"), len(bench.runs), len(bench.dead_letters))


class Handing(WorkerBench):
    """A worker whose processor returns one value."""

    handed: Any = None

    def process(self, change: ObjectChange) -> Any:
        self.seen.append(change)
        return self.handed


def workers(handed: object) -> Ended:
    bench = Handing()
    bench.handed = handed
    change = bench.upload()
    for _ in range(DELIVERIES):
        bench.poll()
        bench.world.clock.advance(3600 * SECOND)
    return ended(bench.world.known(change), len(bench.seen), len(bench.sqs.dead_letters))


def blocks(handed: object) -> Ended:
    table, calls = MemoryDynamoDB(), 0
    ledger = OnceLedger("orders", "ledger", client=cast("Any", table))
    for _ in range(DELIVERIES):
        with suppress(Exception), ledger.once("o", "e") as claim:
            calls += 1
            claim.transact = cast("Any", handed)
    row = ledger._ledger._table.get(ledger._ledger.key_of(ledger._change("o", "e")))
    return ended(row, calls, None)


KINDS: dict[str, Callable[[object], Ended]] = {
    "objects": objects, "versions": versions, "messages": messages, "sets": sets, "workers": workers,
}  # fmt: skip


@pytest.mark.failure_mode("F231")
@pytest.mark.parametrize("handed", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("kind", KINDS)
def test_malformed_writes_take_one_attempt(kind: str, handed: object) -> None:
    """The row is REJECTED with a code, and the dead-letter queue has the copy that a redrive needs."""
    if kind == "messages" and handed is MALFORMED["the ledger's table"]:
        handed = [{"Put": {"TableName": "table", "Item": KEY}}]
    end = KINDS[kind](Commit("x", transact=cast("Any", handed)))
    assert (end.calls, end.status, end.copies) == (1, Status.REJECTED, 1)
    assert end.code in (ReasonCode.INVALID_TRANSACTION, ReasonCode.WRONG_RETURN)


@pytest.mark.failure_mode("F231")
@pytest.mark.parametrize("handed", MALFORMED.values(), ids=MALFORMED)
def test_malformed_writes_of_a_block_take_one_attempt(handed: object) -> None:
    """Also None and a number."""
    assert blocks(handed) == Ended(1, Status.REJECTED, ReasonCode.INVALID_TRANSACTION, None)


@pytest.mark.failure_mode("F231")
@pytest.mark.parametrize("returned", [5, 10**5000, {"a": 1}, b"x", 1.5, True, Commit(cast("Any", 10**5000))], ids=type)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_return_value_takes_one_attempt(kind: str, returned: object) -> None:
    """Also a number with more digits than Python writes."""
    assert KINDS[kind](returned) == Ended(1, Status.REJECTED, ReasonCode.WRONG_RETURN, 1)


@pytest.mark.failure_mode("F231")
@pytest.mark.parametrize(
    "output", ['{"notYet": 5}', '{"unprocessable": 5}', '{"notYet": "x", "retryInSeconds": NaN}'], ids=str
)
def test_a_malformed_output_of_an_execution_takes_one_attempt(output: str) -> None:
    pipeline = ExecutionPipeline()
    pipeline.put()
    runs = []

    def end(execution: Any) -> None:
        runs.append(execution)
        pipeline.finish(execution, output=Verbatim(output))

    pipeline.drain(end)
    [row] = [one for one in pipeline.store.items.values() if "status" in one]
    assert (len(runs), row["status"]["S"], row["reason_code"]["S"]) == (1, Status.REJECTED, ReasonCode.WRONG_RETURN)
    assert len(pipeline.sqs.dead_letters) == 1


class Verbatim(dict[str, Any]):
    """An output that is written as it is."""

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text))


@pytest.mark.failure_mode("F231")
def test_a_deeply_nested_answer_is_no_failure_that_is_retried() -> None:
    """Python's parser of JSON gives up at some depth. A function's answer is wrong then. An execution's is a result."""
    nested = "[" * 200_000 + "]" * 200_000
    with pytest.raises(WrongReturnError, match="not JSON"):
        commit_from(nested.encode())
    assert commit_of(Execution("name", "SUCCEEDED", output=nested)) == Commit("name")


@pytest.mark.failure_mode("F231")
def test_a_redrive_runs_the_change_with_the_corrected_code() -> None:
    """This is the way back of all kinds with a queue. The code's mistake is fixed, and the fence grows."""
    answers = [Commit(transact=cast("Any", [5])), Commit("right", transact=[PUT])]
    pipeline = LocalPipeline(lambda _: answers.pop(0))
    pipeline.put("a", "1")
    with pytest.raises(InvalidTransactionError, match="element 1 must be a dict"):
        pipeline.run()
    pipeline.redrive()
    pipeline.run()
    row = pipeline.row("a")
    assert row is not None
    assert (row.status, row.commit_id, row.redrive_count) == (Status.PROCESSED, "right", 1)
    assert pipeline.transacted == [PUT]
    assert pipeline.calls[1].fence > pipeline.calls[0].fence
    assert pipeline.calls[1].idempotency_key == pipeline.calls[0].idempotency_key


@pytest.mark.failure_mode("F231")
def test_the_names_and_values_of_writes_are_not_quoted() -> None:
    """An attribute may be named after a customer. `Reasons.FULL` keeps them."""
    with pytest.raises(InvalidTransactionError) as refused:
        check_transact([{"Put": {"TableName": "orders", "Item": {"4711 0815": {"N": "secret"}}}}], "ledger")
    assert refused.value.why == "transact: element 1 (Put) has an attribute that is not in DynamoDB's typed form"
    assert "4711 0815 is 'secret', and not a number" in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(LONE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ELEMENT = st.dictionaries(
    st.sampled_from(["Put", "Update", "Delete", "ConditionCheck", "Get"]),
    st.fixed_dictionaries(
        {},
        optional={"TableName": st.just("orders") | JSON, "Item": JSON, "Key": JSON, "ExpressionAttributeValues": JSON},
    )
    | JSON,
    max_size=2,
)


@pytest.mark.failure_mode("F231")
@settings(max_examples=examples(400), deadline=None)
@given(JSON | st.lists(ELEMENT, max_size=3))
def test_the_check_gives_no_other_error(handed: object) -> None:
    """Another one would leave the claim without an outcome, and the change would run again after each lease."""
    with suppress(InvalidTransactionError):
        check_transact(handed, "ledger")
    with suppress(WrongReturnError):
        as_commit(handed)
    text, problem = kept_result(handed)
    assert (text is None and problem) or handed is None or isinstance(handed, str)
    assert isinstance(shown(handed), str)


class TestRemainingSeconds:
    @pytest.mark.failure_mode("F235")
    @pytest.mark.parametrize("late", [60, 561, 10**6])
    def test_an_overtaken_attempt_has_a_little_time_left(self, late: int) -> None:
        """A client refuses a timeout of zero or less with ValueError, after the effect."""
        left: list[float] = []
        pipeline: LocalPipeline

        def process(change: ObjectChange) -> None:
            pipeline.clock.now += late * 1000
            left.append(change.remaining_seconds)

        pipeline = LocalPipeline(process)
        pipeline.put("a", "1")
        pipeline.run()
        intake = Intake()

        def process_message(message: KeyedMessage) -> None:
            intake.clock.advance(late * 1000)
            left.append(message.remaining_seconds)

        intake.process = process_message
        intake.handle([sqs("o", "e")])
        bench = SetBench(MARKER)

        def process_set(files: Any) -> None:
            bench.now += late * 1000
            left.append(files.remaining_seconds)

        bench.process = process_set
        bench.put("exports/1/a.csv")
        bench.put("exports/1/_SUCCESS")
        bench.run()
        assert len(left) >= 3
        assert all(0 < one < 1 for one in left)

    @given(st.floats(0, 40_000), st.integers(-(10**9), 10**12))
    def test_it_is_positive_at_any_time(self, limit: float, spent_ms: int) -> None:
        assert remaining_seconds(limit, spent_ms) >= 0.1


class Missing(NotYet):
    """A subclass that does not call the constructor of `NotYet`."""

    def __init__(self, **more: Any) -> None:
        for name, value in more.items():
            setattr(self, name, value)


@pytest.mark.failure_mode("F231")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"retry_in": "60"},
        {"retry_in": float("nan")},
        {"retry_in": -5},
        {"retry_in": 10**9},
        {"retry_in": []},
        {"retry_in": True},
    ],
    ids=str,
)
def test_a_wait_of_any_value_is_a_wait(more: dict[str, Any]) -> None:
    """The wait is information. Its error would leave the claim without an outcome."""
    missing = Missing(**more)
    assert wait_seconds(missing) is None
    intake = Intake(process=lambda _: _raise(missing))
    intake.handle([sqs("o", "e")])
    assert intake.outcomes == {"Waiting": 1}
    ledger = OnceLedger("orders", "ledger", client=cast("Any", MemoryDynamoDB()))
    with pytest.raises(Missing), ledger.once("o", "e"):
        raise missing


def _raise(error: BaseException) -> Any:
    raise error


class TestOutputs:
    @staticmethod
    def ended(write: Callable[[ObjectChange], object]) -> tuple[LocalPipeline, InvalidOutputError | None]:
        pipeline = LocalPipeline(lambda change: cast("Any", write(change)), max_attempts=4)
        pipeline.put("a.jpg", "1")
        raised = None
        for _ in range(3):
            try:
                pipeline.run()
            except InvalidOutputError as error:
                raised = error
        return pipeline, raised

    @pytest.mark.failure_mode("F232")
    @pytest.mark.parametrize("write", MALFORMED_OUTPUTS.values(), ids=MALFORMED_OUTPUTS)
    def test_a_malformed_output_takes_one_attempt(self, write: Callable[[Any], object]) -> None:
        """`run` raises it, and the row and the dead-letter message have the reason."""
        pipeline, raised = self.ended(lambda change: write(change.output))
        row = pipeline.row("a.jpg")
        assert isinstance(raised, InvalidOutputError)
        assert row is not None
        assert (len(pipeline.calls), row.status, row.reason_code) == (1, Status.REJECTED, ReasonCode.INVALID_OUTPUT)
        assert [one.reason for one in pipeline.dead_letters] == [raised.why]
        assert pipeline._outputs.objects == {}
        assert pipeline._outputs.uploads == {}

    @pytest.mark.failure_mode("F232")
    def test_an_output_of_another_object_takes_one_attempt(self) -> None:
        """Two objects whose outputs have one key are a mistake of the code, which no attempt fixes."""
        pipeline = LocalPipeline(lambda change: change.output("results", "a.png").put(b"%d" % change.fence))
        pipeline.put("a.jpg", "1")
        pipeline.put("a.jpeg", "2")
        with pytest.raises(OutputTaken):
            pipeline.run()
        pipeline.run()
        assert len(pipeline.calls) == 2
        assert pipeline.outcomes == {"Committed": 1, "Rejected": 1}

    @pytest.mark.failure_mode("F232")
    def test_the_output_of_an_object_that_may_be_removed_is_retried(self) -> None:
        """`aws s3 mv` copies before it deletes. A pipeline with `deletes` gets the removal soon."""

        pipeline: LocalPipeline

        def process(change: ObjectChange) -> None:
            output = change.output("results", "a.png")
            if change.key == "a.jpeg" and change.attempt == 1:
                pipeline.delete("a.jpg")
            output.put(b"%d" % change.fence) if change.kind == "created" else output.remove()

        pipeline = LocalPipeline(process, deletes=True)
        pipeline.put("a.jpg", "1")
        pipeline.run()
        pipeline.put("a.jpeg", "1")
        pipeline.run()
        row = pipeline.row("a.jpeg")
        assert row is not None
        assert (row.status, row.attempts) == (Status.PROCESSED, 2)

    @pytest.mark.failure_mode("F232")
    @pytest.mark.parametrize("status", [403, 409])
    def test_refusals_of_s3_are_retried(self, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A permission may be given, and another writer ends."""
        pipeline = LocalPipeline(lambda change: change.output("results", "a").put(b"%d" % change.fence), max_attempts=4)
        real, refusals = pipeline._outputs.put_object, [status] * (11 if status == 409 else 1)

        def refuse(**request: Any) -> Any:
            if refusals:
                raise s3_error("PutObject", refusals.pop(), "Refused")
            return real(**request)

        monkeypatch.setattr(pipeline._outputs, "put_object", refuse)
        monkeypatch.setattr(conditional_put, "_LONGEST_PAUSE", 0)
        pipeline.put("a", "1")
        pipeline.run()
        assert pipeline.outcomes == {"Failed": 1, "Committed": 1}

    def test_a_malformed_output_is_an_output_error(self) -> None:
        """Code that catches `OutputError` catches it, too."""
        assert issubclass(InvalidOutputError, OutputError)


def test_other_changes_of_the_batch_are_processed() -> None:
    """`run` raises the error when the invocation has ended."""
    pipeline = LocalPipeline(lambda change: cast("Any", 5) if change.key == "a" else "right")
    for key in "ab":
        pipeline.put(key, "1")
    with pytest.raises(WrongReturnError):
        pipeline.run()
    assert pipeline.outcomes == {"Rejected": 1, "Committed": 1}
    assert pipeline.waiting == 0


def test_conditions_conflicts_and_missing_permissions_are_retried() -> None:
    """Only malformed writes are rejected at once."""
    conflict: Sequence[dict[str, str]] = [{"Code": "None"}, {"Code": "TransactionConflict"}]
    data = {"Code": "ValidationError", "Message": "The provided expression refers to an attribute that does not exist"}
    shape = {
        "Code": "ValidationError",
        "Message": "One or more parameter values were invalid: Type mismatch for key id",
    }
    assert refusal(conflict, [PUT]).passing
    assert not isinstance(refusal([{"Code": "None"}, data], [PUT]), InvalidTransactionError)
    assert not isinstance(
        refusal([{"Code": "None"}, {"Code": "ConditionalCheckFailed"}], [PUT]), InvalidTransactionError
    )
    assert isinstance(refusal([{"Code": "None"}, shape], [PUT]), InvalidTransactionError)
