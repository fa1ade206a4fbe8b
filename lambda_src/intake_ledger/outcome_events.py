"""Sends an event to EventBridge for each commit and each rejection, from the stream of the ledger's table.

The consumer's writes do not change. The stream has each change of a row for 24 hours, in order for each row, and Lambda
repeats a batch until EventBridge has taken its events. So each outcome becomes at least one event. A copy has the same
`id` in its detail.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import batched
from typing import TYPE_CHECKING, Any

from intake_ledger.contract import COMMITTED, MESSAGES, OUTCOME_BUS, OUTCOME_INTAKES, OUTCOME_SOURCE, REJECTED
from intake_ledger.keyed.names import idempotency_key
from intake_ledger.protocol.change import state_key
from intake_ledger.protocol.row import MAX_NAME_BYTES, Row, Status, from_dynamodb, row_from_attributes, truncate

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

_log = logging.getLogger(__name__)
ENTRIES = 10
"""Most entries of a PutEvents: https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html"""


def handler(event: Mapping[str, Any], _context: object) -> dict[str, list[dict[str, str]]]:
    """Send the outcomes of a batch of the stream.

    Returns:
        the first record whose event EventBridge has not taken. Lambda repeats the batch from there on.

    """
    kinds: dict[str, str] = json.loads(os.environ[OUTCOME_INTAKES])
    found: list[tuple[str, dict[str, Any]]] = []
    for record in event["Records"]:
        change = record["dynamodb"]
        before, after = (_row(change.get(name, {})) for name in ("OldImage", "NewImage"))
        keys = from_dynamodb(change["Keys"])
        outcome = outcome_of(keys["pk"], keys["sk"], before, after, kinds)
        if outcome is not None:
            found.append((change["SequenceNumber"], outcome))
    failed = send(_client(), os.environ[OUTCOME_BUS], found)
    return {"batchItemFailures": [{"itemIdentifier": failed}] if failed else []}


def outcome_of(
    pk: str, sk: str, before: Row | None, after: Row | None, kinds: Mapping[str, str]
) -> dict[str, Any] | None:
    """The event of a change of a row, as an entry of PutEvents without its bus. None: the change is no outcome.

    Args:
        pk: the partition key of the row.
        sk: its sort key.
        before: the row before the change. None: there was none, or it is not known.
        after: the row after the change. None: it was deleted.
        kinds: the kinds of the intakes whose outcomes are sent, by name.

    """
    name = sk.partition("@")[0]
    bucket, slash, key = pk.partition("/")
    if name not in kinds or not slash or after is None or after.status is Status.LATER_FORMAT:
        return None
    detail: dict[str, Any] = {"pipeline": name, "bucket": bucket, "key": key}
    if after.status is Status.PROCESSED and after.committed_fence is not None and after.settled_as is None:
        if before is not None and before.committed_fence == after.committed_fence:
            return None
        fence, kind = after.committed_fence, COMMITTED
        detail |= {"commitId": truncate(after.commit_id, MAX_NAME_BYTES), "committedAt": after.committed_at}
    elif after.status is Status.REJECTED:
        # A claim that was released has raised the fence of the row, and rejected nothing.
        fence, kind = after.rejected_fence or after.fence, REJECTED
        if before is not None and fence == (
            before.rejected_fence or (before.fence if before.status is Status.REJECTED else None)
        ):
            return None
        detail |= {"reason": after.reason, "reasonCode": after.reason_code}
    else:
        return None
    detail |= {
        "id": idempotency_key(pk, sk, str(fence)),
        "kind": after.kind.value,
        "versionId": after.version_id,
        "etag": after.etag,
        "size": after.size,
        "fence": str(fence),
        "attempt": after.attempts,
        "idempotencyKey": _idempotency_key(kinds[name], name, bucket, key, after),
        "processorVersion": after.processor_version,
    }
    shown = {one: value for one, value in detail.items() if value is not None}
    return {"Source": OUTCOME_SOURCE, "DetailType": kind, "Detail": json.dumps(shown), "Resources": []}


def send(client: "EventBridgeClient", bus: str, outcomes: Sequence[tuple[str, dict[str, Any]]]) -> str | None:
    """Send events in order.

    Args:
        client: of EventBridge.
        bus: name or ARN of the bus.
        outcomes: the number of each record and its event.

    Returns:
        the number of the first one that EventBridge refused, or None. Later ones may have been taken.

    Raises:
        ClientError: EventBridge refused a whole request.

    """
    for group in batched(outcomes, ENTRIES):
        entries: Any = [entry | {"EventBusName": bus} for _, entry in group]
        answer = client.put_events(Entries=entries)
        for (number, _), result in zip(group, answer["Entries"], strict=True):
            if "ErrorCode" in result:
                _log.warning("event refused: %s %s", result["ErrorCode"], result.get("ErrorMessage", ""))
                return number
    return None


def _row(image: Mapping[str, Any]) -> Row | None:
    return row_from_attributes(from_dynamodb(image))


def _idempotency_key(kind: str, name: str, bucket: str, key: str, row: Row) -> str:
    """The key that the processor got for the row's state."""
    if kind == MESSAGES:
        return idempotency_key(bucket, key, row.version_id or "", row.key_content)
    return state_key(name, bucket, key, row.identity, row.first_claimed_at)


@cache
def _client() -> "EventBridgeClient":
    import boto3  # noqa: PLC0415 - the pure functions need no SDK

    return boto3.client("events")
