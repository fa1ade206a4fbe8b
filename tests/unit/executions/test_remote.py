"""A processor that is another Lambda function: its request, and the meaning of its answers."""

import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from intake_ledger import ObjectChange, Unprocessable
from intake_ledger.consumer import composition
from intake_ledger.consumer.composition import make_runner
from intake_ledger.kinds.objects import request_of
from intake_ledger.processor.lambda_processor import remote_function
from intake_ledger.processor.object_change import make_object_change
from intake_ledger.processor.object_stream import OpenedObject
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.errors import NotYet, RemoteError, RemoteTimeoutError, WrongReturnError
from intake_ledger.protocol.row import Ordering
from intake_ledger.runners.remote import Remote
from tests.unit.consumer.test_consumer import Bench, message, put
from tests.unit.support import BUCKET, DAY, KEY, LEASE, MAX_ATTEMPTS, PIPELINE, START, World, created

FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:orders"
PAGE = Path(__file__).parents[3] / "docs" / "processor.md"


@dataclass(slots=True)
class FakeLambda:
    """Answers with these payloads, in order."""

    answers: list[Any]
    """Bytes, or an exception."""
    error: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def invoke(self, **arguments: Any) -> dict[str, Any]:
        self.asked.append(arguments)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"StatusCode": 200, "Payload": io.BytesIO(answer)} | (
            {"FunctionError": "Unhandled"} if self.error else {}
        )


def change(**other: Any) -> ObjectChange:
    state = State(StateKind.OBJECT, "v1", "e1", 5, START)
    row = row_changes.claimed(None, created(state), state, owner="me", now=START, lease_until=START + LEASE)
    made = make_object_change(
        created(state),
        state,
        row,
        pipeline=PIPELINE,
        ordering=Ordering.LATEST,
        remaining_seconds=lambda: 1.0,
        opened=OpenedObject(lambda: pytest.fail("the object is the function's to read")),
        output=lambda *_: pytest.fail("the function writes its outputs"),
        begin_rejects=lambda *_: pytest.fail("the function rejects rows"),
    )
    return replace(made, **other)


def call(payload: Any, *, error: bool = False) -> Any:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return remote_function(lambda: FakeLambda([content], error), FUNCTION)(request_of(change()))


class TestGiven:
    """The JSON that the function gets."""

    def test_the_request_describes_the_change(self) -> None:
        """And the function that was named, once per call."""
        client = FakeLambda([b'{"commit": null}'] * 2)
        process = remote_function(lambda: client, FUNCTION)
        process(request_of(change()))
        process(request_of(change()))
        [first, second] = client.asked
        assert first == second
        assert first["FunctionName"] == FUNCTION
        assert json.loads(first["Payload"]) == {
            "format": 1,
            "bucket": BUCKET,
            "key": KEY,
            "kind": "created",
            "versionId": "v1",
            "etag": "e1",
            "size": 5,
            "eventName": "ObjectCreated:Put",
            "eventTime": START,
            "attempt": 1,
            "fence": START,
            "idempotencyKey": change().idempotency_key,
        }

    def test_a_fence_fits_into_a_double(self) -> None:
        """JavaScript has no other numbers; the fence is milliseconds since 1970, and a few."""
        assert request_of(change())["fence"] < 2**53


class TestAnswer:
    """The answers of the function."""

    @pytest.mark.parametrize("identity", ["id", "", None])
    def test_a_commit_is_accepted(self, identity: str | None) -> None:
        """With an identity, or without."""
        assert call({"commit": identity}).identity == identity

    def test_unprocessable_is_raised(self) -> None:
        """The reason is the function's."""
        with pytest.raises(Unprocessable, match=r"^no invoice in it$"):
            call({"unprocessable": "no invoice in it"})

    @pytest.mark.failure_mode("F102")
    @pytest.mark.parametrize(("answer", "seconds"), [({}, None), ({"retryInSeconds": 600}, 600)])
    def test_not_yet_is_raised(self, answer: dict[str, Any], seconds: float | None) -> None:
        """With the time of the next try, or without."""
        with pytest.raises(NotYet, match=r"^the customer file is missing$") as missing:
            call({"notYet": "the customer file is missing"} | answer)
        assert missing.value.retry_in == seconds

    @pytest.mark.failure_mode("F101")
    @pytest.mark.parametrize(
        ("payload", "said"),
        [
            ({"notYet": "why", "retryInSeconds": 0}, "answered another object"),
            ({"notYet": "why", "retryInSeconds": True}, "answered another object"),
            ({"notYet": "why", "retryInSeconds": 10**6}, "answered another object"),
            ({"notYet": "why", "more": 1}, "answered another object"),
            ({"notYet": 7}, "answered another object"),
            (None, "answered NoneType"),
            ({}, "answered another object"),
            ("done", "answered str"),
            ([], "answered list"),
            (True, "answered bool"),
            ({"statusCode": 500, "body": "secret"}, "}: body, statusCode"),
            ({"commit": 7}, "answered another object"),
            ({"unprocessable": None}, "}: unprocessable"),
            ({"commit": "x", "unprocessable": "y"}, "}: commit, unprocessable"),
            (b"<html>", "answer is not JSON"),
            (b"", "answer is not JSON"),
            (b"\xff", "answer is not JSON"),
        ],
    )
    def test_anything_else_is_a_wrong_answer(self, payload: Any, said: str) -> None:
        """Rejected at once, since it may have done its work. A function that forgot to wait answers null."""
        with pytest.raises(WrongReturnError) as failed:
            call(payload)
        assert said in str(failed.value)
        assert 'expected {"commit": "id or null"}, {"unprocessable": "why"} or {"notYet": "why"' in str(failed.value)
        assert "secret" not in str(failed.value)


class TestFailure:
    """A function that did not return."""

    @pytest.mark.failure_mode("F231")
    @pytest.mark.parametrize(
        "report",
        [
            {"errorType": "Runtime.MarshalError", "errorMessage": "Unable to marshal response: set 4711"},
            {"errorType": "Error", "errorMessage": "Unable to stringify response body"},
            {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": "Response payload size exceeded"},
        ],
    )
    def test_an_answer_that_cannot_be_written_is_a_wrong_answer(self, report: dict[str, str]) -> None:
        """The function has done its work, and would repeat it at each attempt."""
        with pytest.raises(WrongReturnError, match="not JSON, or is too long") as wrong:
            call(report, error=True)
        assert "4711" not in wrong.value.why

    def test_an_error_raises_a_remote_error(self) -> None:
        """The type's name does not matter, because a rejection is an answer and not an error."""
        with pytest.raises(RemoteError, match=r"^the function failed with Unprocessable: boom$"):
            call({"errorType": "Unprocessable", "errorMessage": "boom", "trace": []}, error=True)

    @pytest.mark.failure_mode("F114")
    @pytest.mark.parametrize(
        ("said", "why"),
        [
            (
                {
                    "errorType": "KeyError",
                    "stackTrace": [
                        '  File "/var/task/app.py", line 3, in handler\n    total(row)\n',
                        '  File "/var/task/shop/total.py", line 17, in total\n    row["4111111111111111"]\n',
                    ],
                },
                "the function failed with KeyError at total.py:17",
            ),
            (
                {
                    "errorType": "TypeError",
                    "trace": [
                        "TypeError: card 4111111111111111",
                        "    at total (/var/task/total.mjs:5:11)",
                        "    at Runtime.handler (/var/task/index.mjs:9:3)",
                    ],
                },
                "the function failed with TypeError at total.mjs:5",
            ),
            (
                {
                    "errorType": "java.lang.IllegalStateException",
                    "stackTrace": ["com.acme.Total.of(Total.java:12)", "com.acme.Handler.handle(Handler.java:4)"],
                },
                "the function failed with java.lang.IllegalStateException at Total.java:12",
            ),
            ({"errorType": "card 4111111111111111", "stackTrace": "card 4111111111111111"}, "the function failed"),
            ({"errorType": "Sandbox.Timedout", "errorMessage": "4111 Task timed out"}, "ran into its own timeout"),
        ],
    )
    def test_the_reason_is_its_type_and_position(self, said: dict[str, Any], why: str) -> None:
        """The message of an error may quote the object, and so may the names in an answer."""
        with pytest.raises(RemoteError) as failed:
            call({"errorMessage": "card 4111111111111111", **said}, error=True)
        assert failed.value.why.endswith(why)
        assert "4111" not in failed.value.why
        with pytest.raises(WrongReturnError) as wrong:
            call({"4111111111111111": said})
        assert "4111" not in wrong.value.why

    @pytest.mark.parametrize(
        "text",
        ["Task timed out after 2.00 seconds", "2026-11-21T10:00:00.000Z 7f-3a Task timed out after 2.00 seconds"],
    )
    def test_the_functions_timeout_raises_a_timeout_error(self, text: str) -> None:
        """The texts of MiniStack and of AWS."""
        with pytest.raises(RemoteTimeoutError, match="ran into its own timeout"):
            call({"errorType": "Sandbox.Timedout", "errorMessage": text}, error=True)

    def test_an_error_with_the_payload_of_a_success_is_an_error(self) -> None:
        """Lambda's error flag counts more than the payload."""
        with pytest.raises(RemoteError):
            call({"commit": "x"}, error=True)

    @pytest.mark.parametrize("payload", [b"", b"null", b'"text"', b"{"])
    def test_an_error_without_details_is_an_error(self, payload: bytes) -> None:
        """It still is a failure with a reason."""
        with pytest.raises(RemoteError, match="the function failed"):
            call(payload, error=True)

    @pytest.mark.parametrize(
        "error",
        [
            ClientError({"Error": {"Code": "ServiceException"}}, "Invoke"),
            ReadTimeoutError(endpoint_url="https://lambda"),
        ],
    )
    def test_a_failed_call_is_not_repeated(self, error: Exception) -> None:
        """The function may still run, and the next attempt has another fence."""
        client = FakeLambda([error])
        with pytest.raises(type(error)):
            remote_function(lambda: client, FUNCTION)(request_of(change()))
        assert len(client.asked) == 1


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


class TestConsumer:
    """The whole way, through the consumer."""

    def bench(self, bench: Bench, client: FakeLambda) -> Bench:
        bench.processor_function = FUNCTION
        bench.runner = Remote(remote_function(lambda: client, FUNCTION))
        return bench

    def test_the_object_is_not_opened(self, bench: Bench) -> None:
        """The function reads the object. An unread GET would cost a connection."""
        state, body = put(self.bench(bench, FakeLambda([b'{"commit": "id"}'])))
        assert bench.handle(message(body)) == []
        assert bench.world.s3.streams == []
        assert bench.row(state).commit_id == "id"

    def test_a_failure_is_retried_with_its_reason(self, bench: Bench) -> None:
        """And then succeeds."""
        client = FakeLambda([ClientError({"Error": {"Code": "ServiceException"}}, "Invoke"), b'{"commit": null}'])
        state, body = put(self.bench(bench, client))
        assert bench.handle(message(body)) == ["m1"]
        assert "ServiceException" in str(bench.row(state).reason)
        assert bench.row(state).attempts == 1
        bench.wait()
        assert bench.handle(message(body)) == []
        [first, second] = (json.loads(one["Payload"]) for one in client.asked)
        assert second["fence"] > first["fence"]
        assert second["idempotencyKey"] == first["idempotencyKey"]

    @pytest.mark.failure_mode("F24")
    def test_a_throttled_function_counts_no_attempts(self, bench: Bench) -> None:
        """However often: it was not run, and nothing is wrong with the object."""
        throttled = ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke")
        state, body = put(self.bench(bench, FakeLambda([throttled] * 2 * MAX_ATTEMPTS + [b'{"commit": "id"}'])))
        for _ in range(2 * MAX_ATTEMPTS):
            assert bench.handle(message(body)) == ["m1"]
            assert bench.row(state).attempts == 0
            assert "Lambda throttles the function" in str(bench.row(state).reason)
            bench.wait()
        assert bench.handle(message(body)) == []
        assert bench.row(state).commit_id == "id"

    @pytest.mark.failure_mode("F24")
    def test_throttling_does_not_use_the_messages_receives_up(self, bench: Bench) -> None:
        """SQS keeps a message for at most fourteen days. An existing queue may allow 300 receives."""
        bench.max_hold_seconds = 14 * DAY // 1000
        throttled = ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke")
        _, body = put(self.bench(bench, FakeLambda([throttled] * 300)))
        began, receives = bench.world.clock(), 0
        while bench.world.clock() < began + 13 * DAY:
            receives += 1
            assert bench.handle(message(body, receives=receives)) == ["m1"]
            bench.wait()
        assert receives < 250
        bench.world.clock.now = began + 14 * DAY
        assert bench.handle(message(body, receives=receives)) == []
        assert "throttles the function" in str(bench.queues.copies[0][1]["reason"]), "given up, with its last reason"

    def test_boto_does_not_repeat_a_call(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """An SDK's retry would run the function twice for one attempt; it waits for longer than the processor may."""
        given: list[dict[str, Any]] = []

        def client(_service: str, _pool: int, **options: Any) -> FakeLambda:
            given.append(options)
            return FakeLambda([b'{"commit": null}'])

        monkeypatch.setattr(composition, "make_client", client)
        settings = replace(bench.settings(), processor_function=FUNCTION)
        services = replace(bench.services(), settings=settings)
        runner: Any = make_runner({}, services)
        runner._call({})
        [options] = given
        assert options["retries"] == {"total_max_attempts": 1}
        assert options["read_timeout"] > settings.processing_timeout_seconds


def test_the_page_shows_the_codes_behaviour() -> None:
    """The code sends or accepts each JSON example in docs/processor.md."""
    blocks = [json.loads(one.split("```")[0]) for one in PAGE.read_text().split("```json\n")[1:]]
    schema = json.loads(PAGE.with_name("processor.schema.json").read_text())
    # tests/kinds/test_requests.py compares the requests of messages and sets.
    given = [one for one in blocks if "fence" in one and not {"identity", "parts"} & set(one)]
    answers = [one for one in blocks if "commit" in one or "unprocessable" in one]
    assert {frozenset(one) for one in given} == {frozenset(request_of(change()))}
    assert set(schema["$defs"]["change"]["properties"]) == set(request_of(change()))
    assert sorted(schema["$defs"]["change"]["required"]) == sorted(request_of(change()))
    assert len(answers) == 3
    for one in answers:
        try:
            call(one)
        except Unprocessable:
            assert "unprocessable" in one
