"""CSV files of orders: each file has thousands of orders of one customer."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

PREFIX = "orders/"


@dataclass(frozen=True, slots=True)
class Csv:
    """The content of one version of a file."""

    customer: str
    orders: tuple[tuple[int, int], ...]
    """Number and cents of each order."""

    def read_bytes(self) -> bytes:
        """The content as UTF-8."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(("customer", "order", "cents"))
        writer.writerows((self.customer, number, cents) for number, cents in self.orders)
        return text.getvalue().encode()


def key_of(customer: str, number: int) -> str:
    """The key of a customer's file."""
    return f"{PREFIX}{customer}/{number:03}.csv"


def customer_of(key: str) -> str:
    """The customer of a file."""
    return key.removeprefix(PREFIX).partition("/")[0]


def new_csv(dice: random.Random, customer: str, *, at_most: int) -> Csv:
    """Make a version with a random number of orders, up to `at_most` and not less than half of it."""
    count = dice.randint(at_most // 2, at_most)
    return Csv(customer, tuple((dice.randrange(10**9), dice.randrange(100, 100_000)) for _ in range(count)))
