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
TOO_LARGE: dict[str, Any] = {"order_id": "o-large", "article": "bolts", "pieces": 1_000}


@dataclass(frozen=True)
class Outcome:
    """What the run left."""

    stock: dict[str, int]
    expected: dict[str, int]
    reasons: list[str]
    """Of the dead-letter messages."""
    verdicts: "Counter[str]"
    """Metrics of the consumer."""

    @property
    def right(self) -> bool:
        """True if each order was booked once, and the order that is too large was rejected with its reason."""
        return self.stock == self.expected and set(self.reasons) == {"1000 of bolts ordered, 100 in stock"}


def run(aws: LocalAws, outputs: Mapping[str, str], *, seed: int = 7) -> Outcome:
    """Send all orders in any order, then all of them again in another order, and wait until they are decided."""
    out = {name.removeprefix("Out"): value for name, value in outputs.items()}
    dynamodb = aws.client("dynamodb")
    for article, pieces in STOCK.items():
        item = {"article": {"S": article}, "pieces": {"N": str(pieces)}}
        dynamodb.put_item(TableName=out["StockTable"], Item=item)
    _send(aws, out["Bus"], [TOO_LARGE])
    # It is decided first, so that its reason names the whole stock.
    aws.wait_until(lambda: _reasons(aws, out), "the order that is too large is rejected", timeout=300)
    for metric in ("Committed", "Duplicates"):
        orders = list(ORDERS)
        random.Random(f"{seed} {metric}").shuffle(orders)
        _send(aws, out["Bus"], orders)
        aws.wait_until(
            lambda metric=metric: aws.metrics(out["Function"])[metric] >= len(ORDERS),  # type: ignore[misc]
            f"each order is counted in {metric}",
            timeout=300,
        )
    items = dynamodb.scan(TableName=out["StockTable"], ConsistentRead=True)["Items"]
    booked: Counter[str] = Counter()
    for order in ORDERS:
        booked[order["article"]] += order["pieces"]
    return Outcome(
        stock={item["article"]["S"]: int(item["pieces"]["N"]) for item in items},
        expected={article: pieces - booked[article] for article, pieces in STOCK.items()},
        reasons=_reasons(aws, out),
        verdicts=aws.metrics(out["Function"]),
    )


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
    return [message["MessageAttributes"]["reason"]["StringValue"] for message in answer.get("Messages", ())]
