"""The deployed stack as the checks see it: clients, names, waits and effects."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock
from typing import Any

from intake_ledger_cli.acceptance.checking import INTERRUPTED, CheckFailed, NotHere
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.deployed import DeployedPipeline, find_pipeline

Order = Mapping[str, object]
"""The body of an object: see `cdk_intake_ledger.acceptance`'s processors."""


@dataclass(frozen=True)
class World:
    """The deployed stack."""

    aws: Aws
    stack: str
    outputs: Mapping[str, str]
    local: bool
    """True if the endpoint is not AWS."""
    stopping: Event = field(default_factory=Event)
    """Set when the run is interrupted. Each wait ends then."""
    _lock: Lock = field(default_factory=Lock)
    _found: dict[str, DeployedPipeline] = field(default_factory=dict)

    def pipeline(self, name: str) -> DeployedPipeline:
        """Return a pipeline by its construct's ID."""
        with self._lock:
            if name not in self._found:
                self._found[name] = find_pipeline(self.aws, self.stack, name)
            return self._found[name]

    def until[T](self, condition: Callable[[], T], what: str, *, seconds: float = 300) -> T:
        """Call a condition until its result is true, and return the result.

        Raises:
            CheckFailed: It was not true in time. The text has `what`.
            NotHere: The run was interrupted.

        """
        ends = time.monotonic() + seconds
        while True:
            if result := condition():
                return result
            if time.monotonic() > ends:
                raise CheckFailed(f"after {seconds:.0f} s not: {what}")
            self.pause(0.5 if self.local else 2)

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            NotHere: The run was interrupted.

        """
        if self.stopping.wait(seconds):
            raise NotHere(INTERRUPTED)

    def put(self, pipeline: str, key: str, order: Order | None = None) -> str:
        """Upload an order, and return its version."""
        body = json.dumps(order or {})
        answer = self.aws.s3.put_object(Bucket=self.pipeline(pipeline).bucket, Key=key, Body=body)
        return answer["VersionId"]

    def calls(self, place: str) -> dict[str, int]:
        """Return the number of effects by version, identity or number of parts."""
        pages = self.aws.dynamodb.get_paginator("query").paginate(
            TableName=self.outputs["EffectsTable"],
            KeyConditionExpression="place = :place",
            ExpressionAttributeValues={":place": {"S": place}},
            ConsistentRead=True,
        )
        return {one["id"]["S"]: int(one.get("calls", {"N": "0"})["N"]) for page in pages for one in page["Items"]}

    def object_calls(self, pipeline: str, key: str) -> dict[str, int]:
        """Return the number of effects by version of an object."""
        return self.calls(f"{self.pipeline(pipeline).bucket}/{key}")

    def once(self, place: str, id_: str, *, seconds: float = 300) -> None:
        """Wait for an effect.

        Raises:
            CheckFailed: There was none, or there were several.

        """
        number = self.until(lambda: self.calls(place).get(id_, 0), f"{place} has an effect of {id_}", seconds=seconds)
        if number != 1:
            raise CheckFailed(f"{place} has {number} effects of {id_}, and not one")

    def object_once(self, pipeline: str, key: str, version: str, *, seconds: float = 300) -> None:
        """Wait for the effect of a version. Raises as `once`."""
        self.once(f"{self.pipeline(pipeline).bucket}/{key}", version, seconds=seconds)

    def arn_of(self, queue_url: str) -> str:
        """Return the ARN of a queue."""
        answer = self.aws.sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
        return answer["Attributes"]["QueueArn"]

    def drained(self, queue_url: str, *, seconds: float = 300) -> None:
        """Wait until a queue has no message."""
        self.until(lambda: not self.depth(queue_url), f"{queue_url} is empty", seconds=seconds)

    def depth(self, queue_url: str) -> int:
        """Return the approximate number of messages of a queue: visible, in flight and delayed."""
        return sum(self._numbers(queue_url).values())

    def delayed(self, queue_url: str) -> int:
        """Return the approximate number of delayed messages of a queue."""
        return self._numbers(queue_url)["Delayed"]

    def _numbers(self, queue_url: str) -> dict[str, int]:
        """Return the numbers of messages by the end of SQS's name for them."""
        answer = self.aws.sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])
        found = {str(name): text for name, text in answer["Attributes"].items()}
        return {end: int(found.get(f"ApproximateNumberOfMessages{end}", "0")) for end in ("", "NotVisible", "Delayed")}

    @cached_property
    def _clients(self) -> dict[str, Any]:
        return {}

    def client(self, service: str) -> Any:
        """Return the client of a service that no other command uses."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self.aws.client(service)
            return self._clients[service]
