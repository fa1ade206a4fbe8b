"""The pipeline's own metrics, as CDK names them; the functions write them into their logs (embedded metric format)."""

from typing import TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

METRICS_NAMESPACE = "IntakeLedger"
FIVE_MINUTES = Duration.minutes(5)


class MetricOptions(TypedDict, total=False):
    """What CDK's own `metric_*` methods take; each is a sum over five minutes when nothing is asked for."""

    account: str
    color: str
    label: str
    period: Duration
    region: str
    statistic: str
    unit: cloudwatch.Unit


class IntakeMetrics:
    """`metric_*` for one pipeline. Every metric counts; what never happened has no data, not a zero."""

    @property
    def pipeline_name(self) -> str:
        """The value of the metrics' dimension `service`."""
        raise NotImplementedError

    def metric(self, metric_name: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Any of the pipeline's metrics. The methods below have names for them, and take the same options.

        Args:
            metric_name: in CloudWatch, in the namespace `IntakeLedger`.
            options: those of `cloudwatch.Metric` but for names and dimensions; a sum over five minutes when omitted.

        """
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=metric_name,
            dimensions_map={"service": self.pipeline_name},
            **(MetricOptions(statistic="Sum", period=FIVE_MINUTES) | options),
        )

    def metric_accepted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Claims: calls of the processor that were about to begin."""
        return self.metric("Accepted", **options)

    def metric_retries(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Claims for an attempt after the first: the effect may happen again. Written before the processor starts."""
        return self.metric("Retries", **options)

    def metric_lapsed_leases(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Leases that ended without an outcome: the worker died or its function timed out. Written at the takeover."""
        return self.metric("LapsedLeases", **options)

    def metric_committed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """States that were processed and committed."""
        return self.metric("Committed", **options)

    def metric_duplicates(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages about a state that was committed already."""
        return self.metric("Duplicates", **options)

    def metric_stale(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that had been overtaken."""
        return self.metric("Stale", **options)

    def metric_busy(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that were given back because somebody held the key, or its next attempt was not due."""
        return self.metric("Busy", **options)

    def metric_failed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Attempts that failed and will be made again."""
        return self.metric("Failed", **options)

    def metric_waiting(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Attempts that ended because something was missing which the processor needs (`NotYet`)."""
        return self.metric("Waiting", **options)

    def metric_waited_too_long(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Changes that were given up since something was missing for longer than `max_wait`."""
        return self.metric("WaitedTooLong", **options)

    def metric_rejected(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Changes that were given up, with a reason in the ledger and a copy in the dead-letter queue."""
        return self.metric("Rejected", **options)

    def metric_fenced(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Workers that outlived their lease and whose commit was refused."""
        return self.metric("Fenced", **options)

    def metric_late_writes(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Fenced workers that may have written after their successor; the current state is processed once more."""
        return self.metric("LateWrites", **options)

    def metric_breaker_open(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that were given back untried, since the downstream seemed to be out."""
        return self.metric("BreakerOpen", **options)

    def metric_unparseable(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that were none of S3's or the pipeline's own; they are in the dead-letter queue."""
        return self.metric("UnreadableMessages", **options)

    def metric_filtered_out(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Changes of keys that the pipeline's filters leave out; nothing was done with them."""
        return self.metric("FilteredOut", **options)

    def metric_later_format(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Messages that were given back because a later release wrote the row of their object."""
        return self.metric("LaterFormat", **options)

    def metric_audit_runs(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Runs of the audit that came to their end."""
        return self.metric("AuditRuns", **options)

    def metric_audit_findings(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Keys on which S3 and the ledger disagreed."""
        return self.metric("AuditFindings", **options)

    def metric_audit_delivery_problems(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Differences between the deployed path from S3 to the ledger and the actual one, at each tick of the audit."""
        return self.metric("AuditDeliveryProblems", **options)

    def metric_audit_delivery_unknown(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Parts of that path that a tick could not judge, such as a policy's condition; without any, no data."""
        return self.metric("AuditDeliveryUnknown", **options)

    def metric_audit_incomplete(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """1 for a call of the audit that ended before its run did, 0 for one that came to its end."""
        return self.metric("AuditIncomplete", **options)

    def metric_audit_resubmitted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Wake-up messages that the audit sent for them."""
        return self.metric("AuditResubmitted", **options)
