"""Write the audit's telemetry with Powertools."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from intake_ledger.observability.short_report import keep_report
from intake_ledger.observability.telemetry import OLDEST_CLAIM_AGE
from intake_ledger.protocol.settings import ConsumerSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class RequestCounts(Protocol):
    """The numbers of a look at the requests of people."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """Requests by their end, for the log."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The metrics."""


class PowertoolsAuditTelemetry:
    """Writes the log lines and metrics of the audit of a pipeline."""

    def __init__(self) -> None:
        self._logger = Logger()

    def delivery_checked(self, problems: Sequence[str], unknown: Sequence[str], *, count: bool) -> None:
        """Report the problems of the delivery, and what could not be checked. `count`: also as metrics."""
        for problem in problems:
            self._logger.error("delivery", extra={"problem": problem})
        for problem in unknown:
            self._logger.warning("delivery", extra={"problem": problem})
        if not count:
            return
        counts = {"AuditDeliveryProblems": len(problems)}
        if unknown:
            # A custom metric costs money in each hour that has data.
            counts["AuditDeliveryUnknown"] = len(unknown)
        _write(counts)

    def first_tick(self) -> None:
        """Count as a run, so that the first one has as much time as each later one."""
        _write({"AuditRuns": 1})

    def skipped(self, reason: str) -> None:
        """Report that no run is due."""
        self._logger.info("not now", extra={"reason": reason})

    def audited(self, report: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """Report a run: the report's content, and the counts by metric name. A dry run has no counts."""
        ages = claim_ages(report["rows"]["oldestClaimAt"], report["startedAt"]) if counts else {}
        shortly_audited(report, counts, ages)

    def report_written(self, key: str) -> None:
        """Report that the report was written to S3 under this key."""
        self._logger.info("report", extra={"key": key})


def claim_ages(claimed_at: int | None, now: int) -> dict[str, int]:
    """The metric of the oldest claim without an outcome, which was made at this time. None: there is none."""
    return {} if claimed_at is None else {OLDEST_CLAIM_AGE: max(0, now - claimed_at)}


def shortly_audited(report: Mapping[str, Any], counts: Mapping[str, int], ages: Mapping[str, int]) -> None:
    """Report an audit of sets of files, or a check of the rows of messages.

    Args:
        report: its result, with `findings` and a `runId`.
        counts: the metrics that are counts.
        ages: the metrics in milliseconds.

    """
    logger = Logger()
    logger.info("audited", extra={name: value for name, value in report.items() if name != "findings"})
    for finding in report["findings"]:
        logger.warning("finding", extra={"run_id": report["runId"], **finding})
    if counts or ages:
        _write(counts, ages)


def requests_checked(found: RequestCounts) -> None:
    """Report a look at the requests of people. A look that found no request that was due reports nothing."""
    if any(found.numbers.values()):
        Logger().info("requests", extra=dict(found.numbers))
    if found.counts:
        _write(found.counts)


def publish_ages(ages: Mapping[str, int]) -> None:
    """Write metrics in milliseconds at once."""
    _write({}, ages)


def publish_report(
    client: "DynamoDBClient",
    settings: ConsumerSettings,
    report: Mapping[str, Any],
    *,
    counts: Mapping[str, int],
    ages: Mapping[str, int] | None = None,
) -> None:
    """Report an audit as `shortly_audited` does, and keep the report in the table unless it was a dry run.

    Args:
        client: the client.
        settings: name the table and the pipeline.
        report: its result, in the form of `short_report`.
        counts: the metrics that are counts.
        ages: the metrics in milliseconds.

    Raises:
        ClientError: DynamoDB refuses the request. Also BotoCoreError.

    """
    shortly_audited(report, counts, ages or {})
    if not report["dryRun"]:
        keep_report(client, settings.table, settings.pipeline, settings.bucket, report)


def _write(counts: Mapping[str, int], ages: Mapping[str, int] | None = None) -> None:
    """Write the metrics at once, so that they are not lost if the rest of the run fails."""
    metrics = Metrics()
    for name, count in counts.items():
        metrics.add_metric(name, unit=MetricUnit.Count, value=count)
    for name, milliseconds in (ages or {}).items():
        metrics.add_metric(name, unit=MetricUnit.Milliseconds, value=milliseconds)
    metrics.flush_metrics()
