"""Measures objects per second of the deployed pipeline and of the demo's naive consumer on one local AWS.

    python -m benchmarks.throughput [--objects N] [--rounds N]

The CDK deploys all consumers in one stack (`benchmarks.throughput_stack`). They take batches of ten, write the same
catalogue, and record each effect. In each round each consumer processes a new backlog: objects are uploaded, their
messages wait in the consumer's queue, and then its event source mapping is enabled. The time ends when the queue is
empty. Nothing else runs at that time. The first round starts the functions and is not counted.

The result also shows the limits: the CPU time of the local AWS and of the functions, and the requests for an object
with their costs (`benchmarks.throughput_requests`). The local AWS is one Python process. Its CPU milliseconds are a
lower bound for the time of an object, for any number of functions. CPU times are read from /proc, which needs Linux.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import batched
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, family, table
from benchmarks.throughput_requests import asked
from benchmarks.throughput_stack import STACK
from examples.demo.stack import ROOT
from tests.local.support import model

from cdk_intake_ledger.testing import LocalAws
from intake_ledger_testing.events import s3_notification, sqs_event

FLOOR = "naive"
BATCH = 10
"""Messages in a batch: the default of all three consumers."""
PROFILED = 10
"""The number of profiled batches."""
EMULATOR, FUNCTIONS = 2, 3
"""The generation of the local AWS below this process. `LocalAws` has one process in between, and the local AWS starts
the functions.
"""


@dataclass(frozen=True)
class Side:
    """A consumer."""

    bucket: str
    queue: str
    mapping: str
    """The ID of its event source mapping."""
    function: str


@dataclass(frozen=True)
class Turn:
    """The wall-clock and CPU milliseconds for each object of a backlog."""

    clock: float
    emulator: float
    functions: float

    @property
    def cpu(self) -> float:
        return self.emulator + self.functions


def sides(aws: LocalAws, outputs: Mapping[str, str]) -> dict[str, Side]:
    """Return the consumers by the names of their rows, all disabled."""
    named = {
        FLOOR: ("BucketName", "NaiveQueueUrl"),
        "ledger": ("BucketName", "QueueUrl"),
        "ledger, commit_together": ("TogetherBucketName", "TogetherQueueUrl"),
    }
    found = {}
    for name, (bucket, queue) in named.items():
        url = outputs[queue]
        asked = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn = asked["Attributes"]["QueueArn"]
        (mapping,) = aws.client("lambda").list_event_source_mappings(EventSourceArn=arn)["EventSourceMappings"]
        found[name] = Side(outputs[bucket], url, mapping["UUID"], mapping["FunctionArn"])
    return found


class Load:
    """Objects in the buckets, and messages about them that only the benchmark sends."""

    def __init__(self, aws: LocalAws, outputs: Mapping[str, str]) -> None:
        self._aws = aws
        self._uploads = 0
        self.sides = sides(aws, outputs)
        for side in self.sides.values():
            aws.client("s3").put_bucket_notification_configuration(Bucket=side.bucket, NotificationConfiguration={})
            self._switch(side, on=False)

    def turn(self, name: str, objects: int) -> Turn:
        """Let one consumer process a backlog."""
        side = self.sides[name]
        *waiting, last = (self._upload(side) for _ in range(objects))
        for few in batched(waiting, BATCH):
            self._send(side, *few)
        self._switch(side, on=True)
        before, started = _spent(), time.perf_counter()
        self._send(side, last)  # the message wakes the poller of the local AWS
        self._aws.wait_until(lambda: self._depth(side) == 0, f"{name} is through", timeout=600)
        elapsed, after = time.perf_counter() - started, _spent()
        self._switch(side, on=False)
        emulator, functions = (1000 * (end - start) / objects for start, end in zip(before, after, strict=True))
        return Turn(elapsed * 1000 / objects, emulator, functions)

    def requests(self, name: str) -> dict[str, dict[str, float]]:
        """Return one consumer's requests for an object, by operation."""
        side = self.sides[name]
        function = self._aws.client("lambda").get_function_configuration(FunctionName=side.function)
        bodies = [self._upload(side) for _ in range((PROFILED + 1) * BATCH)]
        variables = os.environ | self._aws.environment | function["Environment"]["Variables"]
        events = [sqs_event(*few) for few in batched(bodies, BATCH)]
        return asked(function["Handler"], _emulator(), variables, events)

    def _switch(self, side: Side, *, on: bool) -> None:
        self._aws.client("lambda").update_event_source_mapping(UUID=side.mapping, Enabled=on)

    def _send(self, side: Side, *bodies: str) -> None:
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        answer = self._aws.client("sqs").send_message_batch(QueueUrl=side.queue, Entries=entries)
        assert len(answer["Successful"]) == len(bodies), answer

    def _depth(self, side: Side) -> int:
        """Return the number of messages that are visible or in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._aws.client("sqs").get_queue_attributes(QueueUrl=side.queue, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    def _upload(self, side: Side) -> str:
        self._uploads += 1
        key, body = f"models/{self._uploads:06}/service-2.json.gz", model("2026-11-21", self._uploads % 7)
        answer = self._aws.client("s3").put_object(Bucket=side.bucket, Key=key, Body=body)
        return s3_notification(
            side.bucket,
            key,
            version_id=answer["VersionId"],
            etag=answer["ETag"].strip('"'),
            size=len(body),
            sequencer=f"{self._uploads:016X}",
            time=datetime.now(UTC),
        )


def _emulator() -> int:
    """Return the process ID of the local AWS."""
    (found,) = (
        number
        for number, (generation, _) in family().items()
        if generation == EMULATOR and Path(f"/proc/{number}/cmdline").read_bytes().endswith(b"-m\0ministack\0")
    )
    return found


def _spent() -> tuple[float, float]:
    """Return the CPU seconds of the local AWS and of all functions."""
    processes = family()
    functions = sum(seconds for generation, seconds in processes.values() if generation == FUNCTIONS)
    return processes[_emulator()][1], functions


def taken(load: Load, objects: int, rounds: int) -> dict[str, list[Turn]]:
    """Measure all consumers, which alternate from round to round."""
    turns: dict[str, list[Turn]] = {name: [] for name in load.sides}
    for number in range(rounds + 1):
        for name in list(turns)[:: -1 if number % 2 else 1]:
            turn = load.turn(name, objects)
            if number:
                turns[name].append(turn)
    return turns


def in_turn(load: Load, rounds: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return each consumer's requests by operation, with the median cost of each."""
    found: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in load.sides}
    for _ in range(rounds):
        for name, profiles in found.items():
            profiles.append(load.requests(name))
    return {
        name: {
            operation: {
                "requests": one["requests"],
                "CPU ms of each": _figure([profile[operation]["CPU ms of each"] for profile in profiles]),
            }
            for operation, one in profiles[0].items()
        }
        for name, profiles in found.items()
    }


def figures(turns: Mapping[str, list[Turn]]) -> dict[str, dict[str, Any]]:
    """Return the rows. Ratios are taken within each round. The ratio of CPU times hardly depends on other load."""
    rows = {}
    for name, mine in turns.items():
        pairs = list(zip(mine, turns[FLOOR], strict=True))
        rows[name] = {
            "objects per second": _figure([1000 / turn.clock for turn in mine]),
            "of the naive one": _figure([its.clock / turn.clock for turn, its in pairs]),
            "of the naive one, by CPU": _figure([its.cpu / turn.cpu for turn, its in pairs]),
            "CPU ms of the local AWS": _figure([turn.emulator for turn in mine]),
            "CPU ms of the functions": _figure([turn.functions for turn in mine]),
        }
    return rows


def _figure(values: list[float]) -> dict[str, float]:
    return asdict(Figure.of(values))


def measure(*, objects: int = 400, rounds: int = 5) -> dict[str, Any]:
    """Return the throughput of each consumer, and its requests by operation."""
    with LocalAws() as aws, tempfile.TemporaryDirectory() as code:
        app = f"{sys.executable} -m benchmarks.throughput_stack"
        outputs = aws.deploy(app, STACK, context={"code": code}, cwd=ROOT)
        load = Load(aws, outputs[STACK])
        turns = taken(load, objects, rounds)
        return {"rows": figures(turns), "requests": in_turn(load, rounds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = measure(objects=arguments.objects, rounds=arguments.rounds)
    print(table("Throughput", found["rows"]))
    for name, rows in found["requests"].items():
        print(table(f"Requests for an object: {name}", rows))


if __name__ == "__main__":
    main()
