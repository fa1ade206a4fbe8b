"""The option `max_rate`: its fields, its numbers in a plan, and their rules."""

import math
from dataclasses import dataclass

from cdk_intake_ledger.checks.plan_check import Check, compare
from cdk_intake_ledger.checks.registry import Subject
from cdk_intake_ledger.checks.spans import UNKNOWN, number_text
from intake_ledger.protocol.rate import MAX_BURST_SECONDS, MAX_RATE, MIN_RATE


@dataclass(frozen=True, kw_only=True)
class StartRate:
    """The options of a limited rate of starts."""

    max_rate: float | None = None
    """The maximum number of starts of the processor per second, over all invocations, 1/3600 to 400; no limit when
    omitted. A change that finds no start waits in line, without an attempt, and is rejected after `max_wait`. See
    docs/protocol.md, "A rate of starts"."""

    max_burst: int | None = None
    """The starts that may come at once after a time without any, from 1 to those of an hour; those of five seconds, and
    at least 2, when omitted. With fewer, fewer starts happen than `max_rate` allows."""


@dataclass(frozen=True, kw_only=True)
class StartNumbers:
    """The same as numbers of a plan. Unknown if they are not set."""

    max_rate: float = UNKNOWN
    max_burst: float = UNKNOWN


SUBJECT = Subject("A rate of starts")

_BURST_ALONE = SUBJECT.error(
    "max-burst-alone",
    inputs=("max_burst", "max_rate"),
    what="max_burst is {max_burst} and max_rate is not set",
    why="only starts that are limited are saved",
    fix="Set max_rate, or omit max_burst",
)
CHECKS = (
    compare(SUBJECT, "max-rate-range", "max_rate", lambda plan: not MIN_RATE <= plan.max_rate <= MAX_RATE,
            "max_rate is {max_rate}",
            f"it must be 1/3600 to {MAX_RATE} starts a second: one item of DynamoDB, which has 1,000 writes a "
            "second, counts all starts, and a start whose message waited takes more than two",
            "Lower max_rate, or omit it and limit max_concurrency"),
    compare(SUBJECT, "max-burst-range", "max_burst max_rate",
            lambda plan: not 1 <= plan.max_burst <= max(2, plan.max_rate * MAX_BURST_SECONDS),
            "max_burst is {max_burst} and max_rate is {max_rate}", "it must be 1 to the starts of an hour",
            "Set a value in this range, or omit max_burst"),
    Check(_BURST_ALONE, ("max_burst",), lambda plan: math.isnan(plan.max_rate) and plan.max_burst > 0,
          lambda plan: {"max_burst": number_text(plan.max_burst)}),
)  # fmt: skip
