"""The metrics of a pipeline. Its functions write them into their logs in the embedded metric format."""

from difflib import get_close_matches
from typing import TypedDict, Unpack

from aws_cdk import Duration, Token
from aws_cdk import aws_cloudwatch as cloudwatch

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.validation.monitoring_rules import METRIC_NAME
from cdk_intake_ledger.validation.reporting import refuse
from intake_ledger.contract import METRICS, METRICS_NAMESPACE, MetricRow

FIVE_MINUTES = Duration.minutes(5)


class MetricOptions(TypedDict, total=False):
    """Options of CDK's `metric_*` methods. Without options, a metric is the sum of five minutes, or the maximum if
    it is a time in milliseconds.
    """

    account: str
    color: str
    label: str
    period: Duration
    region: str
    statistic: str
    unit: cloudwatch.Unit


@check_arguments
class IntakeMetrics:
    """`metric_*` for one pipeline, intake or sets. Each metric counts events, except those of times, which are in
    milliseconds. Without events a metric has no data, not zero.
    """

    @property
    def name(self) -> str:
        """The value of the metrics' dimension `service`."""
        raise NotImplementedError

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """One of the pipeline's metrics, by its name. The methods below have the same options.

        Args:
            metric_name: the name in CloudWatch's namespace `IntakeLedger`, as docs/monitoring.md lists them.
            options: options of `cloudwatch.Metric`, without names and dimensions; the sum of five minutes when omitted,
                or the maximum of a time.

        Returns:
            the metric.

        Raises:
            IntakeConfigurationError: no metric has this name.

        """
        if metric_name not in METRICS and not Token.is_unresolved(metric_name):
            refuse(f"{self.name}.metric", [METRIC_NAME.problem(name=metric_name, right=_right(metric_name))])
        row = METRICS.get(metric_name, MetricRow())
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric_name,
            dimensions_map={"service": self.name},
            **(MetricOptions(statistic=row.statistic, period=FIVE_MINUTES) | options),
        )

    def metric_accepted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Claims: attempts that started."""
        return self.metric("Accepted", **options)

    def metric_retries(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Claims for a second or later attempt, which may repeat the effect. Written before the processor starts."""
        return self.metric("Retries", **options)

    def metric_lapsed_leases(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Leases that ended without an outcome, because the worker stopped or timed out. Written by the next worker."""
        return self.metric("LapsedLeases", **options)

    def metric_committed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """States that were processed and committed."""
        return self.metric("Committed", **options)

    def metric_duplicates(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages about a state that is already committed."""
        return self.metric("Duplicates", **options)

    def metric_duplicate_age(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from the commit of a state to a further message about it. The maximum, unless you choose."""
        return self.metric("DuplicateAge", **options)

    def metric_commit_lag(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from an event to the commit of its change. The longest in each period, unless you choose another
        statistic.
        """
        return self.metric("CommitLag", **options)

    def metric_oldest_claim_age(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds since the oldest unfinished claim, as an audit found it. Only audits write it."""
        return self.metric("OldestClaimAge", **options)

    def metric_oldest_waiting_set(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds for which the oldest waiting set waits for its parts or for its processor. Only sets have it.

        Each look at a waiting set writes the age of this set, and the hourly audit of sets writes the age of the oldest
        one. Without a waiting set, the metric has no data.
        """
        return self.metric("OldestWaitingSet", **options)

    def metric_stale(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages about a state that a newer one has replaced."""
        return self.metric("Stale", **options)

    def metric_busy(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that returned to the queue, because another worker held the key or the next attempt was not due."""
        return self.metric("Busy", **options)

    def metric_failed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Failed attempts that will be repeated."""
        return self.metric("Failed", **options)

    def metric_waiting(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Attempts that ended because the processor raised `NotYet`."""
        return self.metric("Waiting", **options)

    def metric_started(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Executions that were started, if a state machine is the processor."""
        return self.metric("Started", **options)

    def metric_start_refused(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Executions that Step Functions refused to start. Each start is tried again, and no attempt is counted."""
        return self.metric("StartRefused", **options)

    def metric_waited_too_long(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Changes that were rejected because the processor raised `NotYet` for longer than `max_wait`."""
        return self.metric("WaitedTooLong", **options)

    def metric_rejected(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Rejected changes, with a reason in the ledger and a copy in the dead-letter queue."""
        return self.metric("Rejected", **options)

    def metric_removed_unprocessed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Objects that were removed before they were processed, without `deletes`."""
        return self.metric("RemovedUnprocessed", **options)

    def metric_fenced(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Outcomes of workers that were refused because another attempt had claimed the row."""
        return self.metric("Fenced", **options)

    def metric_late_writes(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Fenced workers that may have written after their successor. The current state is processed again."""
        return self.metric("LateWrites", **options)

    def metric_breaker_open(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that returned to the queue without an attempt, because the circuit breaker was open."""
        return self.metric("BreakerOpen", **options)

    def metric_unparseable(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that cannot be read. They are in the dead-letter queue."""
        return self.metric("UnreadableMessages", **options)

    def metric_copies_refused(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Copies that the dead-letter queue did not take. Their messages stay in the queue."""
        return self.metric("CopiesRefused", **options)

    def metric_filtered_out(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Changes of keys outside the pipeline's filters. They are ignored."""
        return self.metric("FilteredOut", **options)

    def metric_directory_markers(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Directory markers, and removals of them, that the pipeline skipped."""
        return self.metric("DirectoryMarkers", **options)

    def metric_later_format(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that returned to the queue, because a later release wrote the row of their object."""
        return self.metric("LaterFormat", **options)

    def metric_audit_runs(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Completed runs of the audit."""
        return self.metric("AuditRuns", **options)

    def metric_audit_findings(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Keys for which S3 and the ledger differ."""
        return self.metric("AuditFindings", **options)

    def metric_audit_delivery_problems(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Differences between the deployed path from S3 to the ledger and the actual one, at each tick of the audit."""
        return self.metric("AuditDeliveryProblems", **options)

    def metric_audit_delivery_unknown(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Parts of that path that a tick could not check, such as a condition of a policy. Without them, no data."""
        return self.metric("AuditDeliveryUnknown", **options)

    def metric_audit_incomplete(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """1 for an invocation of the audit that ended before its run was complete, 0 for the last one of a run."""
        return self.metric("AuditIncomplete", **options)

    def metric_audit_resubmitted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that the audit sent for its findings."""
        return self.metric("AuditResubmitted", **options)


def _right(name: str) -> str:
    """The metric whose name resembles a wrong one the most, or all names."""
    known = {metric.lower(): metric for metric in METRICS}
    nearest = get_close_matches(name.lower().replace("_", "").replace("-", ""), known, n=3)
    return " or ".join(repr(known[one]) for one in nearest) or f"one of {', '.join(sorted(METRICS))}"
