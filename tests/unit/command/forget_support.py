"""The commands of people on a table in memory, with the time of a test."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.protocol.row import Ordering
from intake_ledger_cli.act import forgetting
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError
from tests.unit.support import DAY

if TYPE_CHECKING:
    from intake_ledger_cli.aws.clients import Aws


@dataclass
class _Pages:
    """Pages of a query or of a scan, as the commands send them."""

    items: dict[Any, Any]

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        values = request["ExpressionAttributeValues"]
        if ":pk" in values:
            found = [item for item in self.items.values() if item["pk"] == values[":pk"]]
            found = [item for item in found if item["sk"]["S"].startswith(values.get(":own", {"S": ""})["S"])]
        else:
            found = [item for item in self.items.values() if item.get("set_key") == values[":set_key"]]
        yield {"Items": [dict(item) for item in found]}


class _Empty:
    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        yield {}


@dataclass
class MemoryAws:
    """The clients of a command. The dead-letter queue is empty, and so is the bucket without `s3_client`."""

    table: Any
    clock: Any
    s3_client: Any = None

    @property
    def dynamodb(self) -> "MemoryAws":
        return self

    sqs = dynamodb

    @property
    def s3(self) -> Any:
        return self.s3_client or self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def get_paginator(self, operation: str) -> Any:
        return _Empty() if operation.startswith("list") else _Pages(self.table.items)

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        values = dict.fromkeys(request["AttributeNames"], str(4 * DAY // 1000))
        date = format_datetime(datetime.fromtimestamp(self.clock() // 1000, UTC), usegmt=True)
        return {"Attributes": values, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}


def deployed_in_memory(
    name: str, bucket: str, ordering: Ordering, *, messages: bool = False, sets: Mapping[str, str] | None = None
) -> DeployedPipeline:
    """A pipeline in memory, as the command finds it. `sets` are the variables of sets."""
    return DeployedPipeline(
        pipeline=name,
        bucket=bucket,
        bucket_owner=None,
        table="table",
        queue_url="queue",
        dead_letter_url="dead letters",
        ordering=ordering,
        deletes=False,
        retention_seconds=35 * DAY // 1000,
        clock_skew_seconds=120,
        consumer_function="consumer",
        audit_function=None,
        filters=(),
        alarms=(),
        machines=(),
        reports=None,
        variables={
            **({"INTAKE_MESSAGE_SOURCE": "sqs"} if messages else {}),
            **(sets or {}),
            "INTAKE_MAX_WAIT_SECONDS": str(DAY // 1000),
        },
    )


def with_variables(deployed: DeployedPipeline, **variables: str) -> DeployedPipeline:
    """The pipeline whose consumer has more variables."""
    return replace(deployed, variables={**deployed.variables, **variables})


def forget(table: Any, clock: Any, deployed: DeployedPipeline, key: str) -> bool:
    """Forget a key, as the command does. False: it is in use, and its rows stay."""
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
