"""The option `max_rate` in `status`: the limit of starts, and the line of changes that wait for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intake_ledger.protocol.rate import Rate, StartTimes
from intake_ledger.protocol.row import rate_key
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.pipeline_options import StatusPart


@dataclass(frozen=True, slots=True)
class StartRate:
    """The limit of starts of a pipeline, and the line of changes that wait for it."""

    per_second: float
    burst: int
    in_line: int
    """About how many changes stand in line."""
    last_place_at: int | None
    """The time of the last place, in epoch milliseconds. None: no change stands in line."""


def _read(_aws: Aws, deployed: DeployedPipeline, now: int, item: Mapping[str, Any]) -> StartRate | None:
    if (per_second := deployed.setting("max_rate")) is None:
        return None
    rate = Rate(per_second, deployed.setting("max_burst"))
    seen = StartTimes(places_until=item.get("places_until", 0), interval_us=item.get("interval_us", 0))
    waiting = rate.waiting(seen, now * 1_000)
    return StartRate(rate.per_second, rate.most_at_once, waiting, seen.places_until // 1_000 if waiting else None)


RATE = StatusPart("rate", _read, rate_key, ("in_line", lambda found: found.in_line))
