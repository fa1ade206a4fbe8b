"""Measures the consumer's CPU time for new changes through the deployed handler, and compares it with a floor and with
Powertools.

    python -m benchmarks.cpu [--changes N] [--rounds N] [--profile ROW]

All rows run in this process against a stub that answers immediately (`benchmarks.stub`). The figure is this process's
CPU time. The floor is two calls of a default boto3 client per change, with the payloads that the consumer sends. The
processor does nothing. A row reads the object only if its name says so.
"""

import argparse
import cProfile
import io
import json
import os
import pstats
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import batched
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
from benchmarks.measure import side_by_side, table
from benchmarks.stub import stub
from botocore.client import BaseClient

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.clients import ledger_client
from intake_ledger.consumer import composition
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.processor.object_change import ObjectChange
from intake_ledger.processor.object_stream import ObjectStream
from intake_ledger_testing.context import LambdaContext
from intake_ledger_testing.events import s3_notification, sqs_event

BUCKET, TABLE = "invoices-bucket-1a2b3c4d5e6f", "Invoices-Ledger-1A2B3C4D5E6F"
FLOOR = "two bare calls"
PIECE = 100
"""Changes that each row processes before the next row's turn."""
Event = dict[str, Any]
Call = tuple[str, dict[str, Any]]


def process(change: ObjectChange) -> str:
    """A processor that does nothing."""
    return change.key


def read(change: ObjectChange) -> str:
    """A processor that reads its object."""
    change.open().read()
    return change.key


class OpensNothing(Bucket):
    """A bucket that sends no requests, because the processor reads the object."""

    def __init__(self) -> None:
        super().__init__(_no_client, BUCKET)

    def open(self, *_: object) -> ObjectStream:
        return ObjectStream(io.BytesIO(), 0)


def _no_client() -> Any:
    raise AssertionError("nothing is asked of S3 for a new change")


class Payloads:
    """Notifications about new keys, in pieces of a hundred."""

    def __init__(self, changes: int) -> None:
        now = datetime.now(UTC)
        bodies = (
            s3_notification(
                BUCKET,
                f"incoming/2026/11/21/invoice-{number:08}.json",
                version_id=f"{number:032x}",
                etag=f"{number:032x}",
                size=48_213,
                sequencer=f"{number:018X}",
                time=now,
            )
            for number in range(changes)
        )
        self._pieces = list(batched(bodies, PIECE))

    def __len__(self) -> int:
        return len(self._pieces)

    def batches(self, size: int) -> list[list[Event]]:
        """Return the batches of each piece."""
        return [[sqs_event(*few) for few in batched(piece, size)] for piece in self._pieces]


def consumer(*, groups: bool, commits: bool = False, reads: bool = False) -> Consumer:
    """Return the consumer that Lambda's handler creates, with its clients. With `groups` it is warm and claims in
    groups.
    """
    with ExitStack() as patches:
        if commits:
            patches.enter_context(mock.patch.dict(os.environ, {"INTAKE_COMMIT_TOGETHER": "true"}))
        processing_time = partial(ProcessingTime, 0.1) if groups else _NeverSure
        patches.enter_context(mock.patch("intake_ledger.consumer.consumer.ProcessingTime", processing_time))
        if reads:
            patches.enter_context(mock.patch.dict(os.environ, {"INTAKE_PROCESSOR": "benchmarks.cpu:read"}))
        else:
            patches.enter_context(mock.patch.object(composition, "Bucket", return_value=OpensNothing()))
        made: Consumer = composition.make_consumer.__wrapped__()  # a new consumer for each row
    return made


class _NeverSure(ProcessingTime):
    """Claims one change at a time, as a cold worker does."""

    def fits(self, window_ms: float) -> int:  # noqa: ARG002
        return 0


def recorded(payloads: Payloads) -> list[list[Call]]:
    """Record the consumer's requests of each piece, in order."""
    calls: list[Call] = []
    real = BaseClient._make_api_call  # type: ignore[attr-defined]  # noqa: SLF001

    def record(self: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        calls.append((operation, arguments))
        return real(self, operation, arguments)

    with mock.patch.object(BaseClient, "_make_api_call", record):
        made = consumer(groups=False)
        for events in payloads.batches(10):
            handle(made, events)
    # A new environment also writes the ledger's record once.
    of_changes = [
        (operation, arguments)
        for operation, arguments in calls
        if not (arguments.get("Item") or arguments["Key"])["sk"]["S"].endswith("@ledger")
    ]
    assert len(of_changes) == 2 * PIECE * len(payloads), len(of_changes)
    return [list(few) for few in batched(of_changes, 2 * PIECE)]


def bare(client: Any, calls: Sequence[Call], *, get: Any = None) -> None:
    """Send the requests of the floor."""
    methods = {"PutItem": client.put_item, "UpdateItem": client.update_item}
    for operation, arguments in calls:
        methods[operation](**arguments)
        if get is not None and operation == "PutItem":
            get(Bucket=BUCKET, Key="key", VersionId="v")["Body"].read()


def handle(made: Consumer, events: Sequence[Event]) -> None:
    """Fail if a batch has failures."""
    for event in events:
        answer = made.handle(event, LambdaContext(130))
        assert answer == {"batchItemFailures": []}, answer


class Powertools:
    """Powertools' batch and idempotency utilities, combined as in their documentation."""

    def __init__(self, client: Any) -> None:
        store = DynamoDBPersistenceLayer(table_name=TABLE, boto3_client=client)
        self._config = IdempotencyConfig(expires_after_seconds=36 * 86_400)
        self._processor = BatchProcessor(event_type=EventType.SQS)

        # Powertools does not type its decorator exactly.
        @idempotent_function(  # type: ignore[untyped-decorator]
            data_keyword_argument="change", config=self._config, persistence_store=store
        )
        def process(change: Mapping[str, str]) -> str:
            return change["key"]

        def record_handler(record: SQSRecord) -> None:
            for one in json.loads(record.body)["Records"]:
                item = one["s3"]["object"]
                bucket = one["s3"]["bucket"]["name"]
                process(change={"bucket": bucket, "key": item["key"], "version": item["versionId"]})

        self._record_handler = record_handler

    def handle(self, events: Sequence[Event]) -> None:
        for event in events:
            context: Any = LambdaContext(130)
            self._config.register_lambda_context(context)
            answer = process_partial_response(
                event=event, record_handler=self._record_handler, processor=self._processor, context=context
            )
            assert answer == {"batchItemFailures": []}, answer


def rows(payloads: Payloads) -> dict[str, Callable[[int], None]]:
    """Return the measured functions by name. Each takes the number of a piece."""
    calls = recorded(payloads)
    default, lean, s3 = boto3.client("dynamodb"), ledger_client(), boto3.client("s3")
    tens, hundreds = payloads.batches(10), payloads.batches(100)
    single, grouped, reading = consumer(groups=False), consumer(groups=True), consumer(groups=True, reads=True)
    together = consumer(groups=True, commits=True)
    powertools = Powertools(default)
    return {
        FLOOR: lambda piece: bare(default, calls[piece]),
        "two bare calls, the ledger's client": lambda piece: bare(lean, calls[piece]),
        "each claimed alone, batches of 10": lambda piece: handle(single, tens[piece]),
        "group claims, batches of 10": lambda piece: handle(grouped, tens[piece]),
        "group claims, batches of 100": lambda piece: handle(grouped, hundreds[piece]),
        "group claims, grouped commits, batches of 10": lambda piece: handle(together, tens[piece]),
        "group claims, grouped commits, batches of 100": lambda piece: handle(together, hundreds[piece]),
        "Powertools, batches of 10": lambda piece: powertools.handle(tens[piece]),
        "Powertools, batches of 100": lambda piece: powertools.handle(hundreds[piece]),
        "two bare calls and a GET": lambda piece: bare(default, calls[piece], get=s3.get_object),
        "group claims and a GET, batches of 10": lambda piece: handle(reading, tens[piece]),
    }


@contextmanager
def environment(endpoint: str) -> Iterator[None]:
    """Return the function's environment variables."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "INTAKE_PIPELINE_NAME": "Invoices-Pipeline-1A2B3C4D",
        "INTAKE_BUCKET_NAME": BUCKET,
        "INTAKE_TABLE_NAME": TABLE,
        "INTAKE_QUEUE_URL": f"{endpoint}/queue",
        "INTAKE_DLQ_URL": f"{endpoint}/dead-letters",
        "INTAKE_ORDERING": "LATEST",
        "INTAKE_DELETES": "false",
        "INTAKE_RETENTION_SECONDS": str(35 * 86_400),
        "INTAKE_CLOCK_SKEW_SECONDS": "120",
        "INTAKE_PROCESSOR": "benchmarks.cpu:process",
        "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
        "INTAKE_MAX_ATTEMPTS": "12",
        "INTAKE_MIN_BACKOFF_SECONDS": "15",
        "INTAKE_MAX_BACKOFF_SECONDS": "1800",
        "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
        "POWERTOOLS_SERVICE_NAME": "Invoices-Pipeline-1A2B3C4D",
        "POWERTOOLS_METRICS_NAMESPACE": "IntakeLedger",
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }
    with mock.patch.dict(os.environ, variables):
        yield


@contextmanager
def silence() -> Iterator[None]:
    """Format log lines and discard them."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, mock.patch.object(sys, "stdout", nowhere):  # noqa: PTH123
        yield


def cpu_ms(run: Callable[[int], None], piece: int) -> float:
    """Return this process's CPU milliseconds for each change of the piece."""
    before = time.process_time()
    run(piece)
    return (time.process_time() - before) * 1000 / PIECE


def measure(*, changes: int = 2_000, rounds: int = 5) -> dict[str, Any]:
    """Return CPU milliseconds per change, and ratios to the floor."""
    with stub() as endpoint, environment(endpoint), silence():
        payloads = Payloads(changes)
        runs = {name: partial(cpu_ms, run) for name, run in rows(payloads).items()}
        return cast("dict[str, Any]", side_by_side(runs, floor=FLOOR, rounds=rounds, pieces=len(payloads)))


def profile(name: str, *, changes: int = 2_000) -> str:
    """Profile one row, and print the functions with the most time, alone and with their calls."""
    with stub() as endpoint, environment(endpoint), silence():
        payloads = Payloads(changes)
        run = rows(payloads)[name]
        run(0)
        profiler = cProfile.Profile()
        for piece in range(len(payloads)):
            profiler.runcall(run, piece)
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(40)
        pstats.Stats(profiler, stream=text).sort_stats("cumtime").print_stats(80)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=2_000, help="a multiple of 100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", metavar="ROW")
    arguments = parser.parse_args()
    if arguments.profile:
        print(profile(arguments.profile, changes=arguments.changes))
        return
    print(table("CPU ms per change", measure(changes=arguments.changes, rounds=arguments.rounds)))


if __name__ == "__main__":
    main()
