"""Wait for the queues, and run the audit until it finds no difference."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from examples.demo.world import SETTLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.demo.screen import Screen
    from examples.demo.world import World

AUDIT_RUNS = 4
DRAIN_SECONDS = 900.0


def audit(screen: Screen, world: World) -> list[dict[str, Any]]:
    """Run the audit until it finds no difference."""
    reports: list[dict[str, Any]] = []
    for _ in range(AUDIT_RUNS):
        with screen.bar("waiting for the audit's settle time", None):
            _wait_until_settle_time_is_over(world)
        report = world.aws.wait_until(lambda: _audit_report(world), "the scheduled audit, if one runs, has ended")
        assert report is not None
        reports.append(report)
        found = sum(report["counts"].values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in report["counts"].items() if count)
        screen.say(
            f"audit {len(reports)}: {report['checked']} keys compared, {found} differ"
            + (f" ({kinds}), {report['resubmitted']} sent again" if found else "")
        )
        if not found:
            break
        with screen.bar("waiting until they are processed", None) as show:
            wait_until_drained(world, ("ledger",), show)
    return reports


def _audit_report(world: World) -> dict[str, Any] | None:
    """Run the audit and return its report, or None while a scheduled run holds the lease."""
    answer = world.aws.client("lambda").invoke(FunctionName=world.outputs["AuditFunction"], Payload=b"{}")
    report: dict[str, Any] = json.load(answer["Payload"])
    if "skipped" in report:
        return None
    if "counts" not in report:
        raise RuntimeError(f"the audit failed: {report}")
    return report


def wait_until_settled(world: World, show: Callable[[int, str], None]) -> None:
    """Wait until no message is visible, and the number of hidden messages has not changed for a while."""
    quiet: list[tuple[float, tuple[int, ...]]] = []

    def settled() -> bool:
        by_side = {side: world.depth(world.queue(side)) for side in world.sides}
        show(0, "waiting or hidden: " + ", ".join(f"{side} {sum(depth)}" for side, depth in by_side.items()))
        depths = tuple(n for depth in by_side.values() for n in depth)
        if not quiet or quiet[-1][1] != depths:
            quiet[:] = [(time.monotonic(), depths)]
        return not any(depths[::2]) and time.monotonic() - quiet[0][0] > 1.5

    world.aws.wait_until(settled, "the queues have settled", timeout=DRAIN_SECONDS, interval=0.2)


def wait_until_drained(world: World, sides: Sequence[str], show: Callable[[int, str], None]) -> None:
    def drained() -> bool:
        depths = {side: world.depth(world.queue(side)) for side in sides}
        show(0, "; ".join(f"{side}: {ready} waiting, {hidden} hidden" for side, (ready, hidden) in depths.items()))
        return all(depth == (0, 0) for depth in depths.values())

    world.aws.wait_until(drained, f"the queues of {' and '.join(sides)} are empty", timeout=DRAIN_SECONDS, interval=0.2)


def _wait_until_settle_time_is_over(world: World) -> None:
    """Wait until the audit judges all states, since it leaves new states alone."""

    def over() -> bool:
        # The audit keeps other items in the ledger's table. They have no status.
        rows = (item for item in world.items(world.outputs["LedgerTable"]) if "status" in item)
        newest = max((row["updated_at"] for row in rows), default=0)
        return time.time() - newest / 1000 > SETTLE_SECONDS + 0.2

    world.aws.wait_until(over, "the settle time is over", interval=0.3)
