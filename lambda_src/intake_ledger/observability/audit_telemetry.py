"""The reports of the audit: log lines and metrics. Any library may write them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class RequestCounts(Protocol):
    """The numbers of a look at the requests of people."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """Requests by their end, for the log."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The metrics."""


class AuditTelemetry(Protocol):
    """Log lines and metrics of the audit."""

    def delivery_checked(self, problems: Sequence[str], unknown: Sequence[str], *, count: bool) -> None:
        """Report the problems of the delivery, and what could not be checked. `count`: also as metrics."""

    def first_tick(self) -> None:
        """Count as a run, so that the first one has as much time as each later one."""

    def skipped(self, reason: str) -> None:
        """Report that no run is due."""

    def audited(self, report: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """Report a run: the report's content, and the counts by metric name. A dry run has no counts."""

    def requests_checked(self, found: RequestCounts) -> None:
        """Report a look at the requests of people."""

    def report_written(self, key: str) -> None:
        """Report that the report was written to S3 under this key."""
