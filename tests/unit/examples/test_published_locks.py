"""The published locks of the comparison of pictures: where each is right, and where it ends."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import boto3
import pytest
from examples.published_locks import LockedError, with_flag, with_index

pytestmark = pytest.mark.usefixtures("dynamodb")
Lock = Callable[[Any, str, str, Callable[[], object]], bool]


def index(table: Any, key: str, sequencer: str, effect: Callable[[], object]) -> bool:
    return with_index(table, key, sequencer, effect, remaining_ms=lambda: 0, sleep=lambda _: None)


LOCKS = pytest.mark.parametrize("lock", [with_flag, index], ids=["flag", "index"])


@pytest.fixture
def table() -> Any:
    return boto3.resource("dynamodb", region_name="eu-central-1").create_table(
        TableName=f"locks-{uuid4()}",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )


@LOCKS
def test_duplicates_and_older_events_have_no_effect(table: Any, lock: Lock) -> None:
    """Both locks are right in any order of events."""
    effects: list[str] = []
    for sequencer in ("0B", "0B", "0A", "0C", "0B"):
        lock(table, "a.png", sequencer, lambda sequencer=sequencer: effects.append(sequencer))  # type: ignore[misc]
    assert effects == ["0B", "0C"]


@LOCKS
def test_a_failure_lets_the_event_come_again(table: Any, lock: Lock) -> None:
    def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        lock(table, "a.png", "0B", fail)
    assert lock(table, "a.png", "0B", lambda: None)


@LOCKS
def test_a_dead_worker_keeps_the_key_for_ever(table: Any, lock: Lock) -> None:
    """Nothing ends the lock, so no event of the key has an effect any more."""
    table.put_item(Item={"id": "a.png", "sequencer": "0A", "working": True})
    for sequencer in ("0A", "0B", "0C"):
        with pytest.raises(LockedError):
            lock(table, "a.png", sequencer, lambda: None)


def test_a_shorter_sequencer_is_padded(table: Any) -> None:
    """The article pads on the right, as AWS documents it now. The sample compares the texts."""
    assert with_flag(table, "a.png", "0B", lambda: None)
    assert not with_flag(table, "a.png", "0B00", lambda: None)
    assert index(table, "b.png", "0B", lambda: None)
    assert index(table, "b.png", "0B00", lambda: None)
