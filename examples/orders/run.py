"""Sends orders with copies to the deployed stack, and compares the stock with the orders."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import batched
from typing import Any

from cdk_intake_ledger.testing import LocalAws

STOCK = {"bolts": 100, "nuts": 100, "washers": 100}
ORDERS: list[dict[str, Any]] = [
    {"order_id": f"o-{number}", "article": article, "pieces": 1 + number % 4}
    for number, article in enumerate(sorted(STOCK) * 8)
]
NO_REASON = "(no reason)"
TOO_LARGE: dict[str, Any] = {"order_id": "o-large", "article": "bolts", "pieces": 1_000}


@dataclass(frozen=True)
class Outcome:
    """The stock, the bookings and the dead letters after the run."""

    stock: dict[str, int]
    expected: dict[str, int]
    reasons: list[str]
    """Of the dead-letter messages."""
    booked: int
    """Bookings."""
    copies: int
    """Copies without an effect."""

    @property
    def right(self) -> bool:
        """True if each order was booked once, and the order that is too large was rejected with its reason."""
        return self.stock == self.expected and set(self.reasons) == {"1000 of bolts ordered, 100 in stock"}


def run(aws: LocalAws, outputs: Mapping[str, str], *, seed: int = 7, with_ledger: bool = True) -> Outcome:
    """Send all orders in any order, then all of them again in another order, and wait until they are decided.

    Args:
        aws: has the stack.
        outputs: of the stack.
        seed: of both orders.
        with_ledger: the stack has an intake, and not a hand-written consumer.

    """
    out = {name.removeprefix("Out"): value for name, value in outputs.items()}
    dynamodb = aws.client("dynamodb")
    for article, pieces in STOCK.items():
        item = {"article": {"S": article}, "pieces": {"N": str(pieces)}}
        dynamodb.put_item(TableName=out["StockTable"], Item=item)
    _send(aws, out["Bus"], [TOO_LARGE])
    # It is decided first, so that its reason names the whole stock.
    aws.wait_until(lambda: _reasons(aws, out), "the order that is too large is rejected", timeout=300)

    def stock() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = dynamodb.scan(TableName=out["StockTable"], ConsistentRead=True)["Items"]
        return found

    def counts() -> tuple[int, int]:
        """Bookings, and copies without an effect."""
        if with_ledger:
            metrics = aws.metrics(out["Function"])
            return int(metrics["Committed"]), int(metrics["Duplicates"])
        return sum(int(item.get("bookings", {"N": "0"})["N"]) for item in stock()), 0

    for attempt in (1, 2):
        orders = list(ORDERS)
        random.Random(f"{seed} {attempt}").shuffle(orders)
        _send(aws, out["Bus"], orders)
        due = attempt * len(ORDERS)
        aws.wait_until(
            lambda due=due: sum(counts()) >= due,  # type: ignore[misc]
            f"each order is decided, time {attempt}",
            timeout=300,
        )
    booked, copies = counts()
    return Outcome(
        stock={item["article"]["S"]: int(item["pieces"]["N"]) for item in stock()},
        expected=expected(),
        reasons=_reasons(aws, out),
        booked=booked,
        copies=copies,
    )


def expected() -> dict[str, int]:
    """Return the stock after each order was booked once."""
    ordered: Counter[str] = Counter()
    for order in ORDERS:
        ordered[order["article"]] += order["pieces"]
    return {article: pieces - ordered[article] for article, pieces in STOCK.items()}


def _send(aws: LocalAws, bus: str, orders: list[dict[str, Any]]) -> None:
    entries = [
        {"Source": "shop", "DetailType": "Order placed", "EventBusName": bus, "Detail": json.dumps(order)}
        for order in orders
    ]
    for group in batched(entries, 10):
        aws.client("events").put_events(Entries=list(group))


def _reasons(aws: LocalAws, out: Mapping[str, str]) -> list[str]:
    answer = aws.client("sqs").receive_message(
        QueueUrl=out["DeadLetters"], MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
    )
    attributes = [message.get("MessageAttributes", {}) for message in answer.get("Messages", ())]
    return [found["reason"]["StringValue"] if "reason" in found else NO_REASON for found in attributes]
