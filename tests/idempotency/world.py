"""A DynamoDB of moto, a clock, and workers that may die or lose their connection. It counts requests and units."""

import datetime as dt
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any, NoReturn, Self
from unittest import mock

import boto3
from benchmarks import units
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from tests.unit.support import Clock

LEDGER, RECORDS, EFFECTS = "table", "records", "effects"
"""The tables of our ledger, of Powertools, and of the function."""
_REVIEW_INDEX = ("needs_review", "updated_at")
_KEYS = {LEDGER: ("pk", "sk"), RECORDS: ("id",), EFFECTS: ("id",)}
_READS = frozenset({"GetItem", "BatchGetItem"})
_POWERTOOLS = "aws_lambda_powertools.utilities.idempotency"
_MODULES = ("base", "persistence.base", "persistence.dynamodb", "persistence.datarecord")


class Killed(BaseException):
    """The worker's process has ended. It sends no other request."""


@dataclass
class Bill:
    """The requests to the tables of the libraries, with their units."""

    requests: int = 0
    write_units: int = 0
    read_units: int = 0

    def __str__(self) -> str:
        return f"{self.requests} / {self.write_units} / {self.read_units}"


@dataclass
class World:
    """One DynamoDB with the tables of all libraries."""

    clock: Clock = field(default_factory=Clock)
    bill: Bill = field(default_factory=Bill)
    is_metered: bool = False
    """Requests and units are counted."""
    is_out: bool = False
    """DynamoDB answers no request."""
    requests_left: int | None = None
    """The worker that works now dies before the next request after these. None: it lives."""

    def __post_init__(self) -> None:
        self._plain = _plain_client()
        for table, names in _KEYS.items():
            self._plain.create_table(
                TableName=table,
                KeySchema=[
                    {"AttributeName": name, "KeyType": kind}
                    for name, kind in zip(names, ("HASH", "RANGE"), strict=False)
                ],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
                BillingMode="PAY_PER_REQUEST",
            )
        self._before: list[Any] = []

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """Make a world, and remove it at the end."""
        with ExitStack() as stack:
            variables = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-central-1"}
            stack.enter_context(mock.patch.dict(os.environ, variables))
            stack.enter_context(mock_aws())
            world = cls()
            for module in _MODULES:
                stack.enter_context(mock.patch(f"{_POWERTOOLS}.{module}.dt", _datetime(world.clock)))
            yield world

    def kill(self) -> NoReturn:
        """End the process of the worker that works now."""
        self.requests_left = 0
        raise Killed

    def revive(self) -> None:
        """Let another worker work."""
        self.requests_left = None

    def expire(self) -> None:
        """Delete all items whose time has ended, as DynamoDB's TTL does."""
        for table, attribute in ((LEDGER, "expires_at"), (RECORDS, "expiration")):
            for item in self._plain.scan(TableName=table)["Items"]:
                if attribute in item and int(item[attribute]["N"]) * 1000 < self.clock():
                    self._plain.delete_item(TableName=table, Key={name: item[name] for name in _KEYS[table]})

    def reasons(self) -> list[str]:
        """The reasons of failures that the libraries' tables have."""
        items = [item for table in (LEDGER, RECORDS) for item in self._plain.scan(TableName=table)["Items"]]
        return [item["reason"]["S"] for item in items if "reason" in item]

    def results(self) -> list[str]:
        """The results that our ledger has."""
        return [item["commit_id"]["S"] for item in self._plain.scan(TableName=LEDGER)["Items"] if "commit_id" in item]

    @cached_property
    def client(self) -> Any:
        """The workers' client. Its requests are counted, and may be refused."""
        client = _connect()
        events = client.meta.events
        events.register("provide-client-params.dynamodb", self._begin)
        events.register("after-call.dynamodb", self._end)
        return client

    def count(self, name: str) -> int:
        """The number that the function's table has under a name."""
        item = self._plain.get_item(TableName=EFFECTS, Key={"id": {"S": name}}).get("Item", {})
        return int(item.get("times", {"N": "0"})["N"])

    def _begin(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if self.requests_left is not None:
            if not self.requests_left:
                raise Killed
            self.requests_left -= 1
        writes = _writes(model.name, params)
        if self.is_out:
            raise ClientError({"Error": {"Code": "InternalServerError", "Message": "DynamoDB is out"}}, model.name)
        if self.is_metered:
            self._before = [(*write, self._stored(*write[:2])) for write in writes]

    def _end(self, model: Any, **_: Any) -> None:
        if not self.is_metered:
            return
        self.bill.requests += 1
        times = 2 if model.name == "TransactWriteItems" else 1
        for table, key, proposed, before in self._before:
            if table == EFFECTS:
                continue
            if model.name in _READS:
                self.bill.read_units += units.read_units(before)
                continue
            after = self._stored(table, key)
            in_index = units.index_units(before, after, _REVIEW_INDEX) if table == LEDGER else 0
            self.bill.write_units += times * (units.write_units(before, after, proposed) + in_index)

    def _stored(self, table: str, key: dict[str, Any]) -> Any:
        return self._plain.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")


@cache
def _session() -> boto3.Session:
    """Reads the description of DynamoDB once."""
    return boto3.Session()


def _connect() -> Any:
    return _session().client("dynamodb", config=Config(retries={"total_max_attempts": 1}))


@cache
def _plain_client() -> Any:
    """A client whose requests are not counted. All worlds share it, because their tables are in moto."""
    return _connect()


def _datetime(clock: Callable[[], int]) -> SimpleNamespace:
    """The module `datetime` with this clock."""

    class Now(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(clock() / 1000, tz)

    return SimpleNamespace(datetime=Now, timedelta=dt.timedelta)


def _writes(operation: str, params: dict[str, Any]) -> list[tuple[str, dict[str, Any], Any]]:
    """Table, key, and the whole new item of each item that a request is about."""
    if operation == "TransactWriteItems":
        return [
            one for element in params["TransactItems"] for kind, part in element.items() for one in _writes(kind, part)
        ]
    if operation == "BatchGetItem":
        return [(table, key, None) for table, wanted in params["RequestItems"].items() for key in wanted["Keys"]]
    table, item = params["TableName"], params.get("Item", {})
    key = params.get("Key") or {name: item[name] for name in _KEYS[table]}
    return [(table, key, item or None)]
