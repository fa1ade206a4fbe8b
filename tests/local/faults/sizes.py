"""Numbers of objects and faults in each form of the fault runs."""

from dataclasses import dataclass, replace
from typing import Self

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
    message_keys: int
    """Keys without faults, with three messages of each key. Half as many keys have messages that fail at first."""
    fewer_keys: int
    """The same for events and streams. A shard's messages are processed one after the other."""
    message_deaths: int
    """Keys whose worker is killed before its effect. The same number is killed after it."""
    message_poison: int
    """Keys of which two messages are poison."""
    message_table: int
    """Keys while DynamoDB has faults, and faults of each kind."""
    sets: int
    """Sets of each kind: AWS has faults, parts are overwritten, the manifest changes, the wake is lost."""
    fewer_sets: int
    """The same for sets with a marker and for quiet folders, also instead of `set_deaths`."""
    set_deaths: int
    """Sets whose worker is killed before its effect. As many are killed after it, and as many workers of parts."""
    timeout: float
    """Seconds until a scenario is given up."""

    def with_fewer_keys(self) -> Self:
        """Return the numbers for events and streams."""
        return replace(self, message_keys=self.fewer_keys)

    def with_fewer_sets(self) -> Self:
        """Return the numbers for sets without a manifest."""
        return replace(self, sets=self.fewer_sets, set_deaths=self.fewer_sets)


SHORT = Sizes(
    deaths=2, always=0, neighbours=40, twice=10, table=60, bucket=30, cut=100, overwrites=60, objects=300, poison=4,
    outage=80, outage_seconds=4, executions=2,
    message_keys=6, fewer_keys=2, message_deaths=1, message_poison=1, message_table=3,
    sets=3, fewer_sets=1, set_deaths=1, timeout=400,
)  # fmt: skip
FULL = Sizes(
    deaths=10, always=2, neighbours=400, twice=50, table=600, bucket=300, cut=1000, overwrites=1000, objects=5000,
    poison=50, outage=1000, outage_seconds=HOUR, executions=20,
    message_keys=40, fewer_keys=20, message_deaths=5, message_poison=5, message_table=12,
    sets=30, fewer_sets=6, set_deaths=5, timeout=1200,
)  # fmt: skip
TEN_MINUTES = Sizes(
    deaths=5, always=1, neighbours=150, twice=25, table=250, bucket=120, cut=400, overwrites=400, objects=2000,
    poison=20, outage=400, outage_seconds=HOUR / 2, executions=8,
    message_keys=15, fewer_keys=8, message_deaths=3, message_poison=3, message_table=6,
    sets=12, fewer_sets=3, set_deaths=3, timeout=500,
)  # fmt: skip
