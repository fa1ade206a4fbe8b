"""The audit function around a bucket, a ledger and a queue in memory, one invocation after the other.

An invocation can be killed at each of its requests, before DynamoDB, S3 or SQS carries it out or after it. Requests
can take time, and SQS can refuse messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.audit import function as audit
from intake_ledger.audit import look
from intake_ledger.audit.report import Report
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.looked import Looked
from tests.unit.audit.support import AuditWorld, FakeSQS
from tests.unit.support import DAY, MINUTE

ITEM_BYTES = 400 * 1024
"""The largest item of DynamoDB (Developer Guide, "Quotas")."""
TICK = 15 * MINUTE
INTERVAL = DAY


class Killed(BaseException):
    """The invocation ends here, and runs nothing any more."""


@dataclass(slots=True)
class Gate:
    """Where all requests of an invocation pass through."""

    kill_at: int | None = None
    after: bool = False
    """True if the request that kills is carried out first."""
    number: int = 0
    before: Callable[[str, dict[str, Any]], None] = lambda _, __: None
    """Called with each operation's name and arguments, before it is carried out."""
    expired: Callable[[], bool] = lambda: False
    """True if Lambda's timeout has ended the invocation."""

    def call(self, operation: str, request: Callable[[], Any], arguments: dict[str, Any]) -> Any:
        self.number += 1
        kill = self.number == self.kill_at
        if kill and not self.after:
            raise Killed
        self.before(operation, arguments)
        if self.expired():
            raise Killed
        try:
            return request()
        finally:
            if kill:
                raise Killed


class Gated:
    """A client whose requests pass through a gate."""

    def __init__(self, client: Any, gate: Gate) -> None:
        self._client, self._gate = client, gate

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda **arguments: self._gate.call(name, lambda: method(**arguments), arguments)

    def get_paginator(self, operation: str) -> Any:
        paginator = self._client.get_paginator(operation)

        def paginate(**arguments: Any) -> Iterator[Any]:
            pages = paginator.paginate(**arguments)
            more = True
            while more:
                page = self._gate.call(operation, lambda: next(pages), arguments)
                more = page.get("IsTruncated", "LastEvaluatedKey" in page)
                yield page

        return SimpleNamespace(paginate=paginate)


class Store(MemoryDynamoDB):
    """A store with the functions for the run's item and DynamoDB's item limit."""

    def update_item(self, **request: Any) -> dict[str, Any]:
        known = self.items.get((request["Key"]["pk"]["S"], request["Key"]["sk"]["S"]), {})
        once = "#first_run_at = if_not_exists(#first_run_at, :now)"
        value = "#first_run_at" if "first_run_at" in known else ":now"
        request["UpdateExpression"] = request["UpdateExpression"].replace(once, f"#first_run_at = {value}")
        request["ExpressionAttributeValues"] = {
            "#first_run_at": known.get("first_run_at"),
            **request.get("ExpressionAttributeValues", {}),
        }
        super().update_item(**request)
        item = self.items[request["Key"]["pk"]["S"], request["Key"]["sk"]["S"]]
        if item_bytes(item) > ITEM_BYTES:
            message = "Item size to update has exceeded the maximum allowed size"
            raise ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "UpdateItem")
        return {"Attributes": dict(item)}

    def query(self, **_: Any) -> dict[str, Any]:
        """No other pipeline has a run here."""
        return {"Items": []}


def item_bytes(item: dict[str, Any]) -> int:
    """The size of an item of texts, numbers and bytes, a number counted as its digits."""
    values = (next(iter(value.values())) for value in item.values())
    return sum(len(name.encode()) for name in item) + sum(
        len(value if isinstance(value, bytes) else str(value).encode()) for value in values
    )


class RefusingSQS(FakeSQS):
    """A queue that reports no messages. `refuses` says for which bodies it refuses a message."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[str], bool] = lambda _: False
        self.requests = 0

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        return {"Attributes": {"ApproximateNumberOfMessages": "0"}}

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        self.requests += 1
        taken, refused = list[Any](), list[Any]()
        for entry in request["Entries"]:
            (refused if self.refuses(entry["MessageBody"]) else taken).append(entry)
        if taken:
            super().send_message_batch(QueueUrl=request["QueueUrl"], Entries=taken)
        failed = [{"Id": entry["Id"], "Code": "InternalError", "Message": "try again"} for entry in refused]
        return {"Failed": failed} if failed else {}


@dataclass
class Invocations:
    """One pipeline's audit, invoked by its schedule."""

    world: AuditWorld
    patch: pytest.MonkeyPatch
    sqs: RefusingSQS = field(default_factory=RefusingSQS)
    gate: Gate = field(default_factory=Gate)
    left_ms: int = 900_000
    """Time of an invocation."""

    def __post_init__(self) -> None:
        self.store = Store(self.world.store.items)
        self.world.store.items = self.store.items
        self.world.sqs = self.sqs
        clients = {"s3": self.world.s3, "sqs": self.sqs, "dynamodb": self.store}
        self.patch.setattr(
            audit, "boto3", SimpleNamespace(client=lambda name, **_: Gated(clients.get(name), self.gate))
        )
        for name in ("parse_versions_once", "parse_scans_directly"):
            self.patch.setattr(audit, name, lambda _: None)
        self.patch.setattr(DeliveryCheck, "look", lambda _: Looked())
        self.patch.setattr(audit, "_now", self.world.clock)
        self.patch.setattr(look, "PAUSES", (0, 0))
        # Requests come in one order, so that a number says at which one an invocation is killed.
        self.patch.setattr(audit, "AT_THE_SAME_TIME", 1)

    def tick(self, *, kill_at: int | None = None, after: bool = False) -> Report:
        """One invocation. Raises `Killed` at a request; the time does not go on in it by itself."""
        # Gates of clients that were made before stay as they are.
        self.gate.kill_at, self.gate.after, self.gate.number = kill_at, after, 0
        ends_at = self.world.clock() + self.left_ms
        self.gate.expired = lambda: self.world.clock() > ends_at
        function = audit.AuditFunction(self.world.settings)
        return function.run(lambda: ends_at - self.world.clock(), every_seconds=INTERVAL // 1000)

    def next_tick(self, ticks: int = 1) -> None:
        self.world.clock.advance(ticks * TICK)
