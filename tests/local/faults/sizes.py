"""Numbers of objects and faults in each form of the fault runs."""

from dataclasses import dataclass

from tests.local.faults import HOUR


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of objects and faults."""

    deaths: int
    """Workers killed before their effect. The same number is killed after it."""
    always: int
    """Objects whose worker dies at each attempt."""
    neighbours: int
    twice: int
    table: int
    """Objects while DynamoDB has faults, and number of faults."""
    bucket: int
    """Objects while S3 has faults, and number of faults."""
    cut: int
    """Objects whose GETs are cut. The number of GETs is twenty times as high."""
    overwrites: int
    objects: int
    poison: int
    outage: int
    """Objects; and for how many seconds the downstream is out."""
    outage_seconds: float
    executions: int
    """Objects of each kind, if a state machine is the processor. Twice as many as deaths of each kind."""
    timeout: float
    """Seconds until a scenario is given up."""


SHORT = Sizes(
    deaths=2, always=0, neighbours=40, twice=10, table=60, bucket=30, cut=100, overwrites=60, objects=300, poison=4,
    outage=80, outage_seconds=4, executions=2, timeout=400,
)  # fmt: skip
FULL = Sizes(
    deaths=10, always=2, neighbours=400, twice=50, table=600, bucket=300, cut=1000, overwrites=1000, objects=5000,
    poison=50, outage=1000, outage_seconds=HOUR, executions=20, timeout=1200,
)  # fmt: skip
TEN_MINUTES = Sizes(
    deaths=5, always=1, neighbours=150, twice=25, table=250, bucket=120, cut=400, overwrites=400, objects=2000,
    poison=20, outage=400, outage_seconds=HOUR / 2, executions=8, timeout=500,
)  # fmt: skip
