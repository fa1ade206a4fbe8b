"""The local pipeline does not lie: it refuses what AWS refuses, and it shows what went wrong."""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError, ParamValidationError

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, InvalidEffectError, ObjectChange, Unprocessable


def process(change: ObjectChange) -> str:
    """Read a number."""
    text = change.read(100).decode()
    if text == "poison":
        raise Unprocessable("no number")
    try:
        return str(int(text))
    except ValueError as error:
        raise KeyError("number") from error


@pytest.mark.failure_mode("F211")
@pytest.mark.parametrize(
    ("key", "error", "why"),
    [
        ("a" * 1_025, ClientError, "KeyTooLongError.*the key has 1,025 bytes"),
        ("ä" * 513, ClientError, "the key has 1,026 bytes"),
        ("", ParamValidationError, "it must be a text with 1 to 1,024 bytes"),
        ("\ud800", ParamValidationError, "which UTF-8 cannot encode"),
        (b"key", ParamValidationError, "it must be a text"),
    ],
)
def test_a_key_that_s3_refuses_is_refused(key: Any, error: type[Exception], why: str) -> None:
    """A longer key would be processed here and nowhere else."""
    with pytest.raises(error, match=why):
        LocalPipeline(process).put(key, "1")


def test_the_longest_key_is_taken() -> None:
    """The limit is in bytes."""
    pipeline = LocalPipeline(process)
    pipeline.put("ä" * 512, "1")
    pipeline.run()
    assert pipeline.outcomes == {"Committed": 1}


@pytest.mark.failure_mode("F211")
@pytest.mark.parametrize(
    ("metadata", "error", "why"),
    [
        ({"name": "Müller"}, ParamValidationError, "Encode it, for example with urllib.parse.quote"),
        ({"name": 1}, ParamValidationError, "name is 1: boto3 sends"),
        ({"name": "a\nb"}, ParamValidationError, "one line"),
        ({"a name": "1"}, ParamValidationError, "'a name' cannot be a part of an HTTP header's name"),
        ({"n": "x" * 2_048}, ClientError, "MetadataTooLarge.*have 2,049 bytes"),
    ],
)
def test_metadata_that_s3_refuses_are_refused(metadata: Any, error: type[Exception], why: str) -> None:
    """The message has the value and the fix."""
    with pytest.raises(error, match=why):
        LocalPipeline(process).put("a", "1", metadata=metadata)


def test_metadata_are_read_in_lower_case() -> None:
    """HTTP headers have no case, and S3 returns lower case."""
    pipeline = LocalPipeline(process)
    version = pipeline.put("a", "1", metadata={"Customer": " 4711 "})
    assert pipeline.s3.head_object(Bucket="local-bucket", Key="a")["Metadata"] == {"customer": "4711"}
    found = pipeline.s3.get_object(Bucket="local-bucket", Key="a", VersionId=version)
    assert found["Metadata"] == {"customer": "4711"}


@pytest.mark.failure_mode("F211")
def test_the_metadata_of_an_output_have_limits_too() -> None:
    """The library's own metadata fit for the longest key of an output and of its source."""

    def write(change: ObjectChange) -> None:
        change.output("results", "ü" * 512).put(str(change.fence).encode())

    pipeline = LocalPipeline(write, raise_errors=True)
    pipeline.put("ä" * 512, "1")
    pipeline.run()
    assert pipeline.output("results", "ü" * 512)


@pytest.mark.failure_mode("F212")
def test_an_error_reaches_the_test_with_its_traceback() -> None:
    """The traceback ends in the processor, and the error keeps its cause."""
    pipeline = LocalPipeline(process, raise_errors=True)
    pipeline.put("a", "much")
    with pytest.raises(KeyError, match="number") as raised:
        pipeline.run()
    assert raised.traceback[-1].name == "process"
    assert isinstance(raised.value.__cause__, ValueError)


def one(key: str) -> None: ...


save: Any = one


@pytest.mark.failure_mode("F212")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda change: save(change.key, change.size), "takes 1 positional argument but 2 were given"),
        (lambda _: save(), "missing 1 required positional argument"),
        (lambda _: save(name="a"), "unexpected keyword argument"),
        (lambda change: change.content, "no attribute 'content'"),
        (
            lambda _: getattr(asyncio, "rum"),  # noqa: B009
            "no attribute 'rum'",
        ),
        (lambda _: undefined, "name 'undefined' is not defined"),  # type: ignore[name-defined]  # noqa: F821
        (lambda _: __import__("no_such_module"), "No module named"),
    ],
)
def test_a_mistake_of_the_code_ends_the_run_at_once(wrong: Any, error: str) -> None:
    """Twelve attempts later, the test would only see a dead letter."""
    pipeline = LocalPipeline(wrong)
    pipeline.put("a", "1")
    with pytest.raises((TypeError, AttributeError, NameError, ImportError), match=error):
        pipeline.run()
    assert len(pipeline.calls) == 1


@pytest.mark.parametrize("wrong", [lambda change: 1 + change.read(10), lambda change: change.read(10).encode()])
def test_an_error_that_content_may_cause_is_tried_again(wrong: Any) -> None:
    """Such content may come in production, and a test may show what happens then. The letter says which key it has."""
    pipeline = LocalPipeline(wrong, max_attempts=2)
    pipeline.put("a b/ü.csv", "1")
    pipeline.run()
    assert [letter.key for letter in pipeline.dead_letters] == ["a b/ü.csv"]


@pytest.mark.parametrize("answer", [5, Commit(transact=[{"Put": {"TableName": "orders", "Item": {"id": "1"}}}])])
def test_a_wrong_answer_reaches_the_test(answer: Any) -> None:
    """A value that is no commit, and a transaction that boto3 would not send."""
    pipeline = LocalPipeline(lambda _: answer, raise_errors=True)
    pipeline.put("a", "1")
    with pytest.raises(InvalidEffectError, match=r"int|typed form"):
        pipeline.run()


def test_decisions_and_faults_are_not_raised() -> None:
    """`Unprocessable` is an answer, and an injected fault is no error of the processor."""
    pipeline = LocalPipeline(process, raise_errors=True)
    pipeline.put("a", "1")
    pipeline.put("b", "poison")
    pipeline.next(*(fault for fault in Fault if fault is not Fault.OVERTAKEN_AND_KILLED))
    pipeline.run()
    assert pipeline.outcomes["Committed"] == 1
    assert {one.reason for one in pipeline.dead_letters} == {"no number"}


@pytest.mark.failure_mode("F212")
def test_a_failure_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """pytest prints the traceback of each failed attempt, and the reason, below a failed test."""
    pipeline = LocalPipeline(process, max_attempts=2)
    pipeline.put("a", "much")
    pipeline.run()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "the processor failed for a, attempt 1",
        "the processor failed for a, attempt 2",
    ]
    assert "a: Rejected, KeyError" in caplog.text


def test_the_processors_own_records_are_visible(caplog: pytest.LogCaptureFixture) -> None:
    """Also those of a logger of Powertools that is made in the test."""
    powertools, plain = Logger(service="shop"), logging.getLogger("shop.plain")

    def log(change: ObjectChange) -> None:
        powertools.info("powertools %s", change.key)
        plain.warning("plain %s", change.key)

    pipeline = LocalPipeline(log)
    pipeline.put("a", "1")
    pipeline.run()
    messages = [record.getMessage() for record in caplog.records]
    assert messages[:2] == ["powertools a", "plain a"]


@pytest.mark.failure_mode("F213")
def test_an_async_test_calls_a_processor_with_its_own_loop() -> None:
    """On Lambda no loop runs, so that the processor may call `asyncio.run`. In the test's loop this would fail."""

    async def fetch(key: str) -> str:
        await asyncio.sleep(0)
        return key

    pipeline = LocalPipeline(lambda change: asyncio.run(fetch(change.key)), raise_errors=True)

    async def test() -> None:
        await asyncio.sleep(0)
        pipeline.put("a", "1")
        pipeline.run()

    asyncio.run(test())
    assert pipeline.outcomes == {"Committed": 1}


def test_an_error_passes_through_the_thread_of_an_async_test() -> None:
    """The traceback is the same as in other tests."""
    pipeline = LocalPipeline(process, raise_errors=True)
    pipeline.put("a", "much")

    async def test() -> None:
        pipeline.run()

    with pytest.raises(KeyError) as raised:
        asyncio.run(test())
    assert raised.traceback[-1].name == "process"


async def coroutine(change: ObjectChange) -> None: ...


def generator(change: ObjectChange) -> Iterator[str]:
    yield change.key


def two(change: ObjectChange, context: object) -> None: ...


@pytest.mark.failure_mode("F214")
@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (lambda: Called, "processor is the class Called: pass a function"),
        (lambda: "invoices:process", "Pass it: from invoices import process"),
        (lambda: None, "processor is the None: .* Pass it: your function"),
        (lambda: coroutine, "coroutine is an async function, and nothing awaits it on Lambda"),
        (lambda: generator, "generator is a generator, and nothing iterates over it"),
        (lambda: two, r"two cannot be called with one argument \(missing a required argument: 'context'\)"),
        (lambda: time.time, "cannot be called with one argument|takes no arguments"),
    ],
)
def test_a_processor_that_lambda_could_not_call_is_explained(processor: Any, why: str) -> None:
    """tests/synth/test_mistakes.py passes the construct's `Processor`, the most frequent mistake."""
    with pytest.raises(TypeError, match=why):
        LocalPipeline(processor())


class Called:
    def __call__(self, change: ObjectChange) -> str:
        return change.key


@pytest.mark.parametrize("processor", [Called(), Called().__call__, lambda change, extra=1: change.key])
def test_each_callable_with_one_argument_is_a_processor(processor: Any) -> None:
    """Objects, methods and functions with defaults."""
    pipeline = LocalPipeline(processor)
    pipeline.put("a", "1")
    pipeline.run()
    assert pipeline.outcomes == {"Committed": 1}
