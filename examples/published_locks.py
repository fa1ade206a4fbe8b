"""Two published locks of S3 events, written from their descriptions. Both compare sequencers.

- `with_flag`: a row has the last sequencer of its key and a flag while an event is processed, as an article about
  Lambda in Rust describes it. Sequencers are padded on the right.
- `with_index`: an index of the bucket has the last sequencer and a lock, as AWS's sample amazon-s3-endedupe describes
  it. An event that finds the lock waits and looks again, until its function ends.

Neither lock ends by itself. The README of the sample names that, and the reasons against a time limit.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 32
"""Characters of a padded sequencer."""
LOOK_SECONDS = 0.3
"""The longest time between two looks at a lock."""
RESERVE_MS = 700
"""An event gives up its wait for a lock this long before its function ends: more than a look and a request take."""


class LockedError(Exception):
    """Another worker has the key. The message comes again."""


def behind_flag(table: Any, event: dict[str, Any], follow: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Handle a batch of one message with one event behind `with_flag`. The message of a locked key stays in the queue.

    An exception would also slow the mapping down, for other keys.

    Args:
        table: as for `with_flag`.
        event: Lambda's.
        follow: the effect. Its argument is the record of S3.

    """
    return _handle(event, lambda key, sequencer, record: with_flag(table, key, sequencer, lambda: follow(record)))


def behind_index(
    table: Any,
    event: dict[str, Any],
    follow: Callable[[dict[str, Any]], object],
    *,
    remaining_ms: Callable[[], int],
) -> dict[str, Any]:
    """Handle a batch of one message behind `with_index`; see `behind_flag`."""
    return _handle(
        event,
        lambda key, sequencer, record: with_index(
            table, key, sequencer, lambda: follow(record), remaining_ms=remaining_ms
        ),
    )


def _handle(event: dict[str, Any], attempt: Callable[[str, str, dict[str, Any]], object]) -> dict[str, Any]:
    [message] = event["Records"]
    [record] = json.loads(message["body"])["Records"]
    try:
        attempt(unquote_plus(record["s3"]["object"]["key"]), record["s3"]["object"]["sequencer"], record)
    except LockedError:
        return {"batchItemFailures": [{"itemIdentifier": message["messageId"]}]}
    return {"batchItemFailures": []}


def with_flag(table: Any, key: str, sequencer: str, effect: Callable[[], object]) -> bool:
    """Carry out an effect unless an event of the key with this sequencer, or a later one, was processed.

    Args:
        table: the DynamoDB table of the rows, with the partition key `id`.
        key: the object's key.
        sequencer: of the event.
        effect: the effect.

    Returns:
        False: the event is old.

    Raises:
        LockedError: another worker has the key.

    """
    new = sequencer.ljust(WIDTH, "0")
    try:
        answer = table.update_item(
            Key={"id": key},
            UpdateExpression="SET sequencer = :new, working = :yes",
            ConditionExpression="attribute_not_exists(id) OR (sequencer < :new AND working = :no)",
            ExpressionAttributeValues={":new": new, ":yes": True, ":no": False},
            ReturnValues="ALL_OLD",
        )
    except table.meta.client.exceptions.ConditionalCheckFailedException:
        row = table.get_item(Key={"id": key}, ConsistentRead=True)["Item"]
        if row["working"]:
            raise LockedError(key) from None
        return False
    before = answer.get("Attributes", {}).get("sequencer", "")
    _run(table, key, effect, failed=before, ended=new)
    return True


def with_index(
    table: Any,
    key: str,
    sequencer: str,
    effect: Callable[[], object],
    *,
    remaining_ms: Callable[[], int],
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Carry out an effect if its event is up to date. Arguments, result and exception as `with_flag`.

    `remaining_ms` gives the time until the function ends.
    """
    while True:
        row = table.get_item(Key={"id": key}, ConsistentRead=True).get("Item")
        if row is None or not row["working"]:
            if row is not None and row["sequencer"] >= sequencer:
                return False
            if _take(table, key, row, sequencer):
                break
        if remaining_ms() < RESERVE_MS:
            raise LockedError(key)
        sleep(random.random() * LOOK_SECONDS)
    _run(table, key, effect, failed=row["sequencer"] if row else "", ended=sequencer)
    return True


def _take(table: Any, key: str, row: dict[str, Any] | None, sequencer: str) -> bool:
    """Lock the key, if its row has not changed."""
    try:
        table.put_item(
            Item={"id": key, "sequencer": sequencer, "working": True},
            ConditionExpression="attribute_not_exists(id) OR (sequencer = :old AND working = :no)",
            ExpressionAttributeValues={":old": row["sequencer"] if row else "", ":no": False},
        )
    except table.meta.client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def _run(table: Any, key: str, effect: Callable[[], object], *, failed: str, ended: str) -> None:
    """Carry the effect out and free the key. After an exception, the row has the sequencer of before."""
    sequencer = failed
    try:
        effect()
        sequencer = ended
    finally:
        table.update_item(
            Key={"id": key},
            UpdateExpression="SET sequencer = :sequencer, working = :no",
            ExpressionAttributeValues={":sequencer": sequencer, ":no": False},
        )
