"""The command `forget` on a table in memory, with the time of a test."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, cast

from intake_ledger.protocol import Ordering
from tests.inside.command import Aws, CliError, DeployedPipeline, forgetting
from tests.unit.support import DAY


@dataclass
class _Pages:
    items: dict[Any, Any]

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        pk = request["ExpressionAttributeValues"][":pk"]["S"]
        yield {"Items": [dict(item) for key, item in sorted(self.items.items()) if key[0] == pk]}


@dataclass
class MemoryAws:
    """The clients of the command. The bucket and the dead-letter queue are empty."""

    table: Any
    clock: Any

    @property
    def dynamodb(self) -> "MemoryAws":
        return self

    sqs = s3 = dynamodb

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def get_paginator(self, operation: str) -> Any:
        return _Pages(self.table.items) if operation == "query" else _Empty()

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        values = dict.fromkeys(request["AttributeNames"], str(4 * DAY // 1000))
        date = format_datetime(datetime.fromtimestamp(self.clock() // 1000, UTC), usegmt=True)
        return {"Attributes": values, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


class _Empty:
    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        yield {}


def forget(table: Any, clock: Any, *, name: str, bucket: str, key: str, ordering: Ordering, skew: int = 120) -> bool:
    """Forget a key, as the command does. False: it is in use, and its rows stay."""
    deployed = DeployedPipeline(
        name=name,
        bucket=bucket,
        bucket_owner=None,
        table="table",
        queue_url="queue",
        dead_letter_url="dead letters",
        ordering=ordering,
        deletes=False,
        retention_seconds=35 * DAY // 1000,
        clock_skew_seconds=skew,
        consumer_function="consumer",
        audit_function=None,
        filters=(),
        alarms=(),
        machines=(),
        reports=None,
        message_source=None if ordering is Ordering.LATEST else "sqs",
        max_wait_seconds=DAY // 1000,
    )
    task = forgetting.Forgetting(cast("Aws", MemoryAws(table, clock)), deployed, key)
    try:
        task.check(clock())
        task.mark()
        clock.advance(task.wait_ms)
        task.check(clock(), since=task.result.forgotten_at)
        task.remove_items(clock())
    except CliError:
        return False
    return True


def named_in(table: Any, key: str) -> list[Any]:
    """The items that name the key."""
    return [item for item in table.items.values() if key in str(item)]
