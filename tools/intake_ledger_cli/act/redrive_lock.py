"""The lock of redrives: one at a time for a pipeline, because each hides the dead-letter messages from the others.

The lock is an item among the records of operations. Its holder renews it. The lock of a holder that was killed lapses.
"""

import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable, condition_failed
from intake_ledger.protocol.row import RowKey, from_dynamodb, to_dynamodb
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, denied_action
from intake_ledger_cli.show.console import console, escape
from intake_ledger_cli.show.formatting import timestamp

LEASE_MS = 5 * 60_000
"""The time after which a lock that was not renewed lapses. No step of a redrive takes as long."""
RENEWED_MS = 60_000
"""The age at which the holder renews the lock."""
_KEPT_SECONDS = 86_400


@dataclass(slots=True)
class RedriveLock:
    """A lock that this process holds."""

    aws: Aws
    deployed: DeployedPipeline
    by: str
    token: str
    begun_at: int
    until: int = 0
    denied: bool = False
    """True if the caller may not write the lock. Then the redrive runs without it."""

    def renew(self) -> None:
        """Take the lock, or extend it if it is time.

        Raises:
            CliError: Another redrive holds it. It may have taken it because this process did not renew it in time.

        """
        now = now_ms()
        if self.denied or now < self.until - LEASE_MS + RENEWED_MS:
            return
        condition, lost = "#token = :token", "this redrive was suspended for minutes and lost its lock. "
        values: dict[str, Any] = {":token": self.token}
        if not self.until:
            condition, lost, values = "attribute_not_exists(#pk) OR #until < :now", "", {":now": now}
        content = {
            **asdict(_place(self.deployed)),
            "by": self.by,
            "host": f"{socket.gethostname()}, process {os.getpid()}",
            "begun_at": self.begun_at,
            "until": now + LEASE_MS,
            "token": self.token,
            "expires_at": (now + LEASE_MS) // 1000 + _KEPT_SECONDS,
        }
        try:
            self.aws.dynamodb.put_item(
                TableName=self.deployed.table,
                Item=to_dynamodb(content),
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{name}": name for name in content if f"#{name}" in condition},
                ExpressionAttributeValues=to_dynamodb(values),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if (action := denied_action(error)) is not None:
                self.denied = True
                _say(f"without the lock of redrives: {action} is not allowed")
                return
            if not condition_failed(error):
                raise
            response: Any = error.response
            old = from_dynamodb(response.get("Item", {}))
            if old.get("token") != self.token:
                raise CliError(f"{lost}{_held(old, self.deployed.name)}") from None
            # The answer to the first write was lost, and the SDK repeated it.
        self.until = now + LEASE_MS

    def release(self) -> None:
        """Delete the lock, unless another redrive took it."""
        if self.denied:
            return
        table = LedgerTable(self.aws.dynamodb, self.deployed.table)
        try:
            with suppress(ConditionFailed):
                table.delete(_place(self.deployed), Condition("#token = :token", ("token",), {":token": self.token}))
        except ClientError as error:
            _say(f"the lock of redrives stays until {timestamp(self.until)}: {error}")


@contextmanager
def redrive_lock(aws: Aws, deployed: DeployedPipeline, by: str) -> Iterator[RedriveLock]:
    """Hold the lock of redrives. It is released at the end, also after an error, Ctrl-C and SIGTERM.

    Raises:
        CliError: Another redrive holds it.

    """
    lock = RedriveLock(aws, deployed, by, secrets.token_hex(8), now_ms())
    try:
        lock.renew()
        yield lock
    finally:
        lock.release()


def _held(old: Mapping[str, Any], pipeline: str) -> str:
    """Say who holds the lock, and how to go on."""
    if "by" not in old:
        return f"another redrive of {pipeline} is running: run the command again after its end"
    begun_at, until = timestamp(old["begun_at"]), timestamp(old["until"])
    return (
        f"a redrive of {pipeline} is running since {begun_at}, by {old['by']} on {old['host']}. Run the command again "
        f"after its end. If it was killed, its lock lapses at {until}, and the command then takes over"
    )


def _place(deployed: DeployedPipeline) -> RowKey:
    return RowKey(deployed.operations_partition, "redrive")


def _say(text: str) -> None:
    console(stderr=True).print(escape(text))
