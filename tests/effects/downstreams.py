"""Processors with one kind of effect: for each downstream the plain one, and the one that the documents recommend."""

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, override

import psycopg

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Commit, ObjectChange
from intake_ledger.outputs.sql import lock_object, schema
from tests.effects.rounds import ALL, LATE, REMOVED, Downstream, Happening

_TABLE, _BUCKET = "bookings", "copies"
_LINES = 3
"""Rows of an object."""


def state(change: ObjectChange) -> str:
    """Name the state of a change: its content, or that it is removed."""
    return change.read(100).decode() if change.kind == "created" else REMOVED


class PlainS3(Downstream):
    """Puts a copy of the object, or deletes it: the last request wins."""

    name = "S3, `put_object`"
    repeatable = True
    right = ALL - {Happening.OVERTAKEN_AND_KILLED, Happening.ROLLED_BACK_LATE, Happening.DELETED_LATE}

    @contextmanager
    @override
    def opened(self) -> Iterator[None]:
        self._objects: dict[str, bytes] = {}
        yield

    @override
    def process(self, change: ObjectChange) -> None:
        if change.kind == "created":
            self._objects[change.key] = state(change).encode()
        else:
            self._objects.pop(change.key, None)

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        return [self._objects[key].decode() if key in self._objects else REMOVED]


class FencedS3(Downstream):
    """Writes the copy as an output."""

    name = "S3, `change.output`"
    repeatable = True
    right = ALL

    @override
    def process(self, change: ObjectChange) -> None:
        output = change.output(_BUCKET, f"{change.key}.gz")
        if change.kind == "created":
            output.put(state(change).encode())
        else:
            output.remove()

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        content = pipeline.output(_BUCKET, f"{key}.gz")
        return [REMOVED if content is None else gzip.decompress(content).decode()]


class PlainSql(Downstream):
    """Replaces the rows of an object in one transaction of PostgreSQL."""

    name = "SQL, transaction"
    repeatable = True
    right = PlainS3.right

    def __init__(self, new_database: Callable[[], str]) -> None:
        super().__init__(new_database)
        self._dsn = self.new_database()
        with psycopg.connect(self._dsn) as connection:
            connection.execute(schema())
            connection.execute("CREATE TABLE lines (source_key text, number int, content text)")

    @contextmanager
    @override
    def opened(self) -> Iterator[None]:
        with psycopg.connect(self._dsn) as self._connection:
            self._connection.execute("DELETE FROM lines")
            self._connection.execute("DELETE FROM intake_objects")
            self._connection.commit()
            yield

    @override
    def process(self, change: ObjectChange) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            self._lock(cursor, change)
            cursor.execute("DELETE FROM lines WHERE source_key = %s", (change.key,))
            if change.kind == "created":
                content = state(change)
                for number in range(_LINES):
                    cursor.execute("INSERT INTO lines VALUES (%s, %s, %s)", (change.key, number, content))

    def _lock(self, cursor: "psycopg.Cursor[Any]", change: ObjectChange) -> None:
        """Leave the object's row alone."""

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        rows = self._connection.execute("SELECT content FROM lines WHERE source_key = %s", (key,)).fetchall()
        found = {content for (content,) in rows} or {REMOVED}
        assert len(rows) in (0, _LINES)
        return sorted(found)


class FencedSql(PlainSql):
    """Takes the object's row first."""

    name = "SQL, `lock_object`"
    right = ALL

    @override
    def _lock(self, cursor: "psycopg.Cursor[Any]", change: ObjectChange) -> None:
        lock_object(cursor, change)


class Bookings:
    """A DynamoDB table that counts the bookings of each key. A repeated update is a second booking."""

    def __init__(self) -> None:
        self.booked: list[tuple[str, str]] = []
        """Key and state of each booking."""

    def update_item(self, **request: Any) -> None:
        """Carry out the update of `booking`."""
        assert request["UpdateExpression"] == "SET content = :content ADD bookings :one"
        self.booked.append((request["Key"]["pk"]["S"], request["ExpressionAttributeValues"][":content"]["S"]))


def booking(change: ObjectChange) -> Mapping[str, Any]:
    """An update that is not idempotent: it adds one to the number of bookings."""
    return {
        "TableName": _TABLE,
        "Key": {"pk": {"S": change.key}},
        "UpdateExpression": "SET content = :content ADD bookings :one",
        "ExpressionAttributeValues": {":content": {"S": state(change)}, ":one": {"N": "1"}},
    }


class PlainDynamoDB(Downstream):
    """Updates the table by itself."""

    name = "DynamoDB, `update_item`"
    right = ALL - LATE - {Happening.KILLED_AFTER}

    @contextmanager
    @override
    def opened(self) -> Iterator[None]:
        self._table = Bookings()
        yield

    @override
    def process(self, change: ObjectChange) -> None:
        self._table.update_item(**booking(change))

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        return [state for booked, state in self._table.booked if booked == key]


class TransactedDynamoDB(Downstream):
    """Returns the update, so that it is part of the ledger's commit."""

    name = "DynamoDB, `Commit(transact=)`"
    right = ALL

    @override
    def process(self, change: ObjectChange) -> Commit:
        return Commit(transact=[{"Update": booking(change)}])

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        table = Bookings()
        for element in pipeline.transacted:
            table.update_item(**element["Update"])
        return [state for booked, state in table.booked if booked == key]


class Service:
    """A service that books each POST, and answers a repeated Idempotency-Key without a second booking."""

    def __init__(self) -> None:
        self.booked: list[tuple[str, str]] = []
        """Key and state of each booking."""
        self._answered: set[str] = set()

    def post(self, body: Mapping[str, str], headers: Mapping[str, str]) -> None:
        """Book the state of a key."""
        known = headers.get("Idempotency-Key")
        if known in self._answered:
            return
        if known is not None:
            self._answered.add(known)
        self.booked.append((body["key"], body["state"]))


class PlainHttp(Downstream):
    """Posts each change."""

    name = "HTTP, POST"
    right = ALL - LATE - {Happening.KILLED_AFTER}

    @contextmanager
    @override
    def opened(self) -> Iterator[None]:
        self._service = Service()
        yield

    @override
    def process(self, change: ObjectChange) -> None:
        self._service.post({"key": change.key, "state": state(change)}, self._headers(change))

    def _headers(self, change: ObjectChange) -> Mapping[str, str]:
        return {}

    @override
    def effects(self, pipeline: LocalPipeline, key: str) -> Sequence[str]:
        return [state for booked, state in self._service.booked if booked == key]


class KeyedHttp(PlainHttp):
    """Sends the idempotency key with each request."""

    name = "HTTP, `Idempotency-Key`"
    right = ALL - LATE

    @override
    def _headers(self, change: ObjectChange) -> Mapping[str, str]:
        return {"Idempotency-Key": change.idempotency_key}


DOWNSTREAMS: tuple[type[Downstream], ...] = (
    PlainS3,
    FencedS3,
    PlainSql,
    FencedSql,
    PlainDynamoDB,
    TransactedDynamoDB,
    PlainHttp,
    KeyedHttp,
)
"""The columns of the table."""
