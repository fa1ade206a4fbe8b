"""Compares our consumers of messages with Powertools' idempotency: requests, CPU, and results of faults.

    python -m benchmarks.idempotency

All use the same DynamoDB (moto) for requests and faults, and the same stub for CPU. The CPU figure is this process's
time for each new message, and its ratio to Powertools in the same round. Each library has its own default client.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import batched, count
from typing import Any, cast
from unittest import mock

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from benchmarks.cpu import environment, silence
from benchmarks.measure import side_by_side, table
from benchmarks.stub import stub
from tests.idempotency.libraries import Attempt, Library, Messages, Once, Powertools, PowertoolsCached, Result
from tests.idempotency.scenarios import FIRST, SECOND, find_all
from tests.idempotency.world import Bill, World
from tests.unit.messages_support import sqs

from intake_ledger import KeyedMessage
from intake_ledger.consumer.composition import make_consumer
from intake_ledger.once import OnceLedger
from intake_ledger_testing.context import LambdaContext

PIECE, BATCH = 100, 10
FLOOR, OURS = "Powertools, one call for each message", "`once`, one block for each message"
COUNTED: tuple[type[Library], ...] = (Powertools, PowertoolsCached, Once, Messages)
NONE = "none: it runs"
"""Powertools has no key that messages share."""


def requests(kind: type[Library]) -> dict[str, str]:
    """Requests, write units and read units of a library for each case."""
    cases: dict[str, str] = {}
    with World.opened() as world:
        world.is_metered = True
        worker = kind(world)

        def cost(name: str, deliver: Callable[[], object]) -> None:
            world.bill = Bill()
            deliver()
            cases[name] = str(world.bill)

        def during(_: Attempt) -> Result:
            before = world.bill
            cost("a copy while it is processed", lambda: worker.deliver(FIRST, _done))
            cost("another message of its key then", lambda: worker.deliver(SECOND, _done))
            if not issubclass(kind, Once | Messages):
                cases["another message of its key then"] = NONE
            world.bill = before
            return Result()

        worker.deliver(FIRST, during)
        new, failing = FIRST | {"order": "o-2", "event": "e-3"}, FIRST | {"order": "o-3", "event": "e-4"}
        cost("a new message", lambda: worker.deliver(new, _done))
        cost("a copy afterwards", lambda: worker.deliver(new, _done))
        cost("a failure", lambda: worker.deliver(failing, _fail))
        world.clock.advance(600_000)
        cost("the retry after it", lambda: worker.deliver(failing, _done))
    return cases


def _done(_: Attempt) -> Result:
    return Result()


def _fail(_: Attempt) -> Result:
    raise ConnectionError("the shop is out")


def counted() -> dict[str, dict[str, str]]:
    """The cells of the table of requests, by case and library."""
    by_library = {kind.name: requests(kind) for kind in COUNTED}
    return {case: {name: cells[case] for name, cells in by_library.items()} for case in _ORDER}


_ORDER = (
    "a new message",
    "a copy afterwards",
    "a copy while it is processed",
    "another message of its key then",
    "a failure",
    "the retry after it",
)


def process(message: KeyedMessage) -> str:
    """A processor that does nothing."""
    return message.identity


class _Powertools:
    """Powertools alone, or with its batch processor."""

    def __init__(self) -> None:
        store = DynamoDBPersistenceLayer(table_name="records", boto3_client=boto3.client("dynamodb"))
        self._config = IdempotencyConfig(event_key_jmespath="event")
        self._batch = BatchProcessor(event_type=EventType.SQS)

        # Powertools does not type its decorator exactly.
        @idempotent_function(  # type: ignore[untyped-decorator]
            data_keyword_argument="message", config=self._config, persistence_store=store
        )
        def work(message: Mapping[str, str]) -> str:
            return message["event"]

        self._work = work

    def calls(self, messages: Sequence[Mapping[str, str]]) -> None:
        for message in messages:
            self._config.register_lambda_context(cast("Any", LambdaContext()))
            self._work(message=message)

    def batches(self, messages: Sequence[Mapping[str, str]]) -> None:
        for few in batched(messages, BATCH):
            context: Any = LambdaContext()
            self._config.register_lambda_context(context)
            answer = process_partial_response(
                event={"Records": [sqs(one["order"], one["event"]) for one in few]},
                record_handler=self._handle,
                processor=self._batch,
                context=context,
            )
            assert answer == {"batchItemFailures": []}, answer

    def _handle(self, record: SQSRecord) -> None:
        self._work(message=record.json_body)


def _runs() -> dict[str, Callable[[Sequence[Mapping[str, str]]], None]]:
    powertools, ledger, consumer = _Powertools(), OnceLedger("orders", "ledger"), make_consumer.__wrapped__()

    def blocks(messages: Sequence[Mapping[str, str]]) -> None:
        for message in messages:
            with ledger.once(message["order"], message["event"]) as claim:
                claim.result = message["event"]

    def batches(messages: Sequence[Mapping[str, str]]) -> None:
        for few in batched(messages, BATCH):
            answer = consumer.handle({"Records": [sqs(one["order"], one["event"]) for one in few]}, LambdaContext(130))
            assert answer == {"batchItemFailures": []}, answer

    return {
        FLOOR: powertools.calls,
        OURS: blocks,
        f"Powertools, batches of {BATCH}": powertools.batches,
        f"`MessageIntake`, batches of {BATCH}": batches,
    }


_VARIABLES = {
    "INTAKE_BUCKET_NAME": "messages:orders",
    "INTAKE_ORDERING": "EVERY_VERSION",
    "INTAKE_MESSAGE_SOURCE": "sqs",
    "INTAKE_MESSAGE_KEY": "order",
    "INTAKE_MESSAGE_IDENTITY": "event",
    "INTAKE_PROCESSOR": "benchmarks.idempotency:process",
}


def cpu(*, rounds: int, pieces: int) -> dict[str, Any]:
    """CPU milliseconds for each new message, and the ratio to Powertools."""
    numbers = count()

    def timed(run: Callable[[Sequence[Mapping[str, str]]], None]) -> float:
        messages = [
            {"order": f"o-{number}", "event": f"e-{number}"} for _, number in zip(range(PIECE), numbers, strict=False)
        ]
        before = time.process_time()
        run(messages)
        return (time.process_time() - before) * 1000 / PIECE

    with stub() as endpoint, environment(endpoint), mock.patch.dict(os.environ, _VARIABLES), silence():
        runs = {name: (lambda _, run=run: timed(run)) for name, run in _runs().items()}
        return cast("dict[str, Any]", side_by_side(runs, floor=FLOOR, rounds=rounds, pieces=pieces))


def versions() -> dict[str, str]:
    """The versions of the table."""
    return {"Powertools": version("aws-lambda-powertools"), "boto3": version("boto3"), "moto": version("moto")}


def measure(*, rounds: int = 5, pieces: int = 5) -> dict[str, Any]:
    """Return all tables."""
    return {
        "cpu": cpu(rounds=rounds, pieces=pieces),
        "requests": counted(),
        "survives": find_all(),
        "versions": versions(),
    }


def main() -> None:
    found = measure()
    for title in ("cpu", "requests", "survives"):
        print(table(title, found[title]))


if __name__ == "__main__":
    main()
