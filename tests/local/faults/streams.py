"""The deployed intakes of streams. A stand-in of Lambda reads the shards, because the local AWS retries no record."""

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Any, ClassVar, override

from intake_ledger.events.parser import OWN_MESSAGE
from tests.local.faults.intakes import Intake, body_of
from tests.local.faults.judge import Report
from tests.local.faults.message_judge import MessagesExpected, Name
from tests.local.messages.stream_records import of_kinesis, of_table
from tests.unit.messages.stream_mapping import Function, FunctionError, Record, StreamMapping, number_of

MOST_RECORDS = 500
"""The maximum number of records in a request of Kinesis."""
RETRY_SECONDS = 0.5
"""The time between the end of an invocation with an error and the next one."""


class Shard:
    """Reads a shard in a thread, as the deployed mapping says."""

    def __init__(self, records: Sequence[Record], mapping: StreamMapping) -> None:
        self._records = records
        self._mapping = mapping
        self._thread = Thread(target=self._run, daemon=True)
        self._done = False
        self.error: Exception | None = None
        """Why it ended before the end of the shard."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._mapping.run(self._records)
        except Exception as error:  # noqa: BLE001 - the run tells it
            self.error = error
        else:
            self._done = True

    def ended(self, seconds: float) -> bool:
        """Wait for its end for this time. It ends at the end of the shard, or because of an error."""
        self._thread.join(max(seconds, 0))
        return not self._thread.is_alive()

    @property
    def behind(self) -> int:
        """The number of records that are not done. Those that Lambda would give up are never done."""
        if self._done or not self._records:
            return len(self._mapping.dropped)
        numbers = [number_of(record) for record in self._records]
        at = numbers.index(self._mapping.invocations[-1][0]) if self._mapping.invocations else 0
        return len(numbers) - at + len(self._mapping.dropped)


@dataclass(frozen=True)
class StreamIntake(Intake):
    """A deployed intake of a Kinesis stream, whose partition keys are the keys."""

    shards: dict[str, Shard] = field(default_factory=dict)
    _over: Event = field(default_factory=Event)

    title: ClassVar[str] = "records of Kinesis"
    meets: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    held: ClassVar[bool] = True

    @override
    def send(self, names: Sequence[Name]) -> None:
        """Send these messages in this order. Then begin to read the stream."""
        deployed = self._take_over()
        self.write(names)
        for shard, records in self.records().items():
            self.shards[shard] = Shard(records, mapping_like(deployed, self._invoke))

    def write(self, names: Sequence[Name]) -> None:
        """Add records to the stream."""
        kinesis = self.line.aws.client("kinesis")
        for start in range(0, len(names), MOST_RECORDS):
            answer = kinesis.put_records(
                StreamName=self.source,
                Records=[
                    {"PartitionKey": name.key, "Data": body_of(name).encode()}
                    for name in names[start : start + MOST_RECORDS]
                ],
            )
            assert not answer["FailedRecordCount"], answer

    def records(self) -> dict[str, list[Record]]:
        """Return the records of each shard."""
        return of_kinesis(self.line.aws, self.source)

    @override
    def settled(self, sent: Sequence[Name], expected: MessagesExpected, *, timeout: float) -> Report:
        """Return the report when each shard is read to its end, or when the time is over."""
        until = time.monotonic() + timeout
        late = [name for name, shard in self.shards.items() if not shard.ended(until - time.monotonic())]
        self._over.set()
        found = super().settled(sent, expected, timeout=timeout)
        problems = [f"{name}: not read after {timeout:.0f} s" for name in late]
        problems += [f"{name}: {shard.error!r}" for name, shard in self.shards.items() if shard.error]
        return replace(found, problems=(*found.problems, *problems))

    @override
    def behind(self) -> Mapping[str, int]:
        return {name: shard.behind for name, shard in self.shards.items()}

    @override
    def named(self, content: Mapping[str, Any]) -> Name:
        data = base64.b64decode(record_of(content)["kinesis"]["data"])
        return super().named(json.loads(data))

    def _take_over(self) -> dict[str, Any]:
        """Stop the local AWS from reading the stream. Returns the mapping as it was deployed."""
        client = self.line.aws.client("lambda")
        mappings = client.list_event_source_mappings(FunctionName=self.line.function)["EventSourceMappings"]
        [deployed] = [one for one in mappings if ":sqs:" not in one["EventSourceArn"]]
        client.update_event_source_mapping(UUID=deployed["UUID"], Enabled=False)
        return dict(deployed)

    def _invoke(self, records: Sequence[Record]) -> list[str]:
        if self._over.is_set():
            raise TimeoutError(f"{self.name}: the run is over")
        answer = self.line.aws.client("lambda").invoke(
            FunctionName=self.line.function, Payload=json.dumps({"Records": list(records)}).encode()
        )
        content = json.load(answer["Payload"])
        if answer.get("FunctionError"):
            time.sleep(RETRY_SECONDS)
            raise FunctionError(content)
        return [one["itemIdentifier"] for one in content["batchItemFailures"]]


class TableIntake(StreamIntake):
    """A deployed intake of the stream of a DynamoDB table, whose items are the keys."""

    title = "records of a table"
    stamped = True

    @override
    def write(self, names: Sequence[Name]) -> None:
        dynamodb = self.line.aws.client("dynamodb")
        for number, name in enumerate(names):
            # An unchanged item would make no record.
            item = {"key": name.key, "identity": name.identity, "number": str(number)}
            dynamodb.put_item(TableName=self.source, Item={field: {"S": value} for field, value in item.items()})

    @override
    def records(self) -> dict[str, list[Record]]:
        return of_table(self.line.aws, self.source)

    @override
    def named(self, content: Mapping[str, Any]) -> Name:
        image = record_of(content)["dynamodb"]["NewImage"]
        return Name(image["key"]["S"], image["identity"]["S"])


def mapping_like(deployed: Mapping[str, Any], function: Function) -> StreamMapping:
    """Return a stand-in with the settings of a deployed mapping."""
    assert "ReportBatchItemFailures" in deployed["FunctionResponseTypes"], deployed
    retries = int(deployed["MaximumRetryAttempts"])
    return StreamMapping(
        function,
        batch_size=int(deployed["BatchSize"]),
        bisect=bool(deployed["BisectBatchOnFunctionError"]),
        retries=None if retries < 0 else retries,
    )


def record_of(content: Mapping[str, Any]) -> Record:
    """Return the record in a dead-letter message."""
    return dict(content[OWN_MESSAGE]["record"])
