"""The items of an audit in parts, where DynamoDB has no room for all of a batch."""

from typing import Any, cast

import pytest

from intake_ledger.audit.items import NoRoom, RunItems
from tests.unit.support import BUCKET, PIPELINE, Clock

ALL = 60
"""More than one batch of either kind."""


class Full:
    """A table that takes and gives no more than so many items in a request."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.items: dict[str, dict[str, Any]] = {}
        self.pauses: list[float] = []

    def batch_write_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 - boto3's names
        (requests,) = RequestItems.values()
        for request in requests[: self.room]:
            item = request["PutRequest"]["Item"]
            self.items[item["sk"]["S"]] = item
        left = requests[self.room :]
        return {"UnprocessedItems": {"table": left} if left else {}}

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
        (asked,) = RequestItems.values()
        assert asked["ConsistentRead"]
        keys = asked["Keys"]
        found = [self.items[key["sk"]["S"]] for key in keys[: self.room] if key["sk"]["S"] in self.items]
        left = {**asked, "Keys": keys[self.room :]} if keys[self.room :] else {}
        return {"Responses": {"table": found}, "UnprocessedKeys": {"table": left} if left else {}}

    def run(self) -> RunItems:
        client = cast("Any", self)
        return RunItems(
            client, "table", bucket=BUCKET, pipeline=PIPELINE, run="run", clock=Clock(), sleep=self.pauses.append
        )


def test_what_dynamodb_leaves_of_a_batch_is_asked_for_again() -> None:
    """After a pause that grows; nothing is lost, written or read."""
    table = Full(room=10)
    run = table.run()
    keys = [run.key("#step", f"#{number}") for number in range(ALL)]
    run.put_all(keys[1:])
    assert len(table.items) == ALL - 1
    assert all(int(item["expires_at"]["N"]) > 0 for item in table.items.values())
    assert {item["sk"]["S"] for item in run.get_all(keys)} == set(table.items)
    assert table.pauses[:4] == [0.05, 0.1, 0.05, 0.1]


def test_with_no_room_at_all_the_part_fails() -> None:
    """And is called again by the state machine; not for ever here."""
    run = Full(room=0).run()
    with pytest.raises(NoRoom, match="throttles"):
        run.put_all([run.key()])
    with pytest.raises(NoRoom, match="throttles"):
        list(run.get_all([run.key()]))
