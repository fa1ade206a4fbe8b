"""A deployed comparison: its stack, its queues, and its audits."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from examples.harness.screen import Screen, Show

    from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[2]
SETTLE_SECONDS = 2
"""The settle time of the audits in seconds."""
AUDIT_RUNS = 4
DRAIN_SECONDS = 900.0


def deploy(screen: Screen, aws: LocalAws, app: str, stack: str, context: dict[str, str]) -> Mapping[str, str]:
    """Deploy the stack that `python -m APP` synthesises, and return its outputs."""
    with screen.bar("cdk bootstrap and cdk deploy", None):
        outputs = aws.deploy(f"{sys.executable} -m {app}", stack, context=context, cwd=ROOT)
    screen.say(f"deployed with the CDK CLI on a local AWS, {aws.endpoint_url}: {len(outputs[stack])} outputs")
    return outputs[stack]


@dataclass(frozen=True)
class Deployed:
    """The stack and the local AWS."""

    aws: LocalAws
    outputs: Mapping[str, str]

    @property
    def bucket(self) -> str:
        return self.outputs["BucketName"]

    def depth(self, queue_url: str) -> tuple[int, int]:
        """Return the number of visible messages of a queue, and of hidden ones."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer: Any = self.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
        return int(answer["Attributes"][names[0]]), int(answer["Attributes"][names[1]])

    def wait_until_empty(self, queues: Mapping[str, str], show: Show) -> None:
        """Wait until no queue, by its name, has a message, visible or hidden."""

        def empty() -> bool:
            depths = {name: self.depth(url) for name, url in queues.items()}
            show(0, "; ".join(f"{name}: {ready} waiting, {hidden} hidden" for name, (ready, hidden) in depths.items()))
            return not any(map(sum, depths.values()))

        what = f"the queues of {' and '.join(queues)} are empty"
        self.aws.wait_until(empty, what, timeout=DRAIN_SECONDS, interval=0.2)

    def wait_until_settled(self, queues: Mapping[str, str], show: Show) -> None:
        """Wait until no message is visible, and the number of hidden messages has not changed for a while."""
        quiet: list[tuple[float, tuple[int, ...]]] = []

        def settled() -> bool:
            by_name = {name: self.depth(url) for name, url in queues.items()}
            show(0, "waiting or hidden: " + ", ".join(f"{name} {sum(depth)}" for name, depth in by_name.items()))
            depths = tuple(n for depth in by_name.values() for n in depth)
            if not quiet or quiet[-1][1] != depths:
                quiet[:] = [(time.monotonic(), depths)]
            return not any(depths[::2]) and time.monotonic() - quiet[0][0] > 1.5

        self.aws.wait_until(settled, "the queues have settled", timeout=DRAIN_SECONDS, interval=0.2)

    def audit(self, function: str, table: str, settle_seconds: float = SETTLE_SECONDS) -> dict[str, Any]:
        """Run an audit when it judges all states, and return its report. It leaves new states alone.

        Wait while a scheduled run holds the lease.
        """

        def report() -> dict[str, Any] | None:
            answer = self.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
            found: dict[str, Any] = json.load(answer["Payload"])
            if "skipped" in found:
                return None
            if "counts" not in found:
                raise RuntimeError(f"the audit failed: {found}")
            return found

        def settled() -> bool:
            return time.time() - self._newest_row(table) > settle_seconds + 0.2

        self.aws.wait_until(settled, "the settle time is over", interval=0.3)
        ended = self.aws.wait_until(report, "the scheduled audit, if one runs, has ended")
        assert ended is not None
        return ended

    def audits(
        self, screen: Screen, name: str, function: str, table: str, drain: Callable[[], None]
    ) -> list[dict[str, Any]]:
        """Run an audit until it finds no difference, and handle in between what it sent again."""
        reports: list[dict[str, Any]] = []
        for _ in range(AUDIT_RUNS):
            with screen.bar("waiting for the audit's settle time", None):
                report = self.audit(function, table)
            reports.append(report)
            found = sum(report["counts"].values())
            kinds = ", ".join(f"{count} {kind}" for kind, count in report["counts"].items() if count)
            screen.say(
                f"audit {len(reports)} of {name}: {report['checked']} keys compared, {found} differ"
                + (f" ({kinds}), {report['resubmitted']} sent again" if found else "")
            )
            if not found:
                break
            drain()
        return reports

    def _newest_row(self, table: str) -> float:
        """The time of the newest change in a ledger, in seconds since 1970; 0 if there is none."""
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        # The audit keeps other items in the table. They have no status.
        times = (int(item["updated_at"]["N"]) for page in pages for item in page["Items"] if "status" in item)
        return max(times, default=0) / 1000
