"""The alarms and the widgets of sets of files."""

from typing import Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.monitoring import ConsumerMonitoring, MetricOptions, graph
from cdk_intake_ledger.options import MonitoringOptions

OLDEST_SECONDS = 3_600
"""The longest normal age of a message that no function has received."""
WAITING_PERIODS = 13
"""Periods of five minutes. They are longer than the hour between two audits, which write the age of a waiting set."""


@check_arguments
class SetMonitoring(ConsumerMonitoring):
    """The alarms of one `FileSets`. Each shows a problem that an operator can fix.

    - `OldestWaitingSet`: a set waits for its parts for longer than `alarm_after`. Its deadline comes later.
    - `WaitedTooLong`: a set missed its deadline, because a part is missing.
    - `Rejected`: a set was rejected, because of its manifest, its processor or its deadline.
    - `CopiesRefused`: the dead-letter queue does not take a copy.
    - `StartRefused`: Step Functions refuses to start executions, if a state machine is the processor.
    - `DeadLetters`: a message is in the dead-letter queue.
    - `OldestMessage`: a message waits for an hour.
    - `Fenced`: a worker exceeded its lease.
    - `Retries`: many attempts are repeated.
    - `LapsedLeases`: workers stop in the middle of their attempts.
    - `ConsumerFunctionErrors`, `ConsumerFunctionThrottles`: the function fails or is throttled.
    - `DownstreamOut`: the circuit breaker has held messages back for hours.
    - `AuditFindings`: the audit found a complete set that nothing had processed.
    - `AuditMissing`: no audit of the sets finished in two intervals.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        set_name: str,
        queue: sqs.IQueue,
        dead_letter_queue: sqs.IQueue,
        function: lambda_.IFunction,
        alarm_after: Duration,
        audit_interval: Duration,
        starts_executions: bool = False,
        options: MonitoringOptions,
    ) -> None:
        """Make the alarms. `FileSets` calls this.

        Args:
            scope: the construct `FileSets`.
            id: the construct's id.
            set_name: the name in logs and metrics.
            queue: the queue of the sets.
            dead_letter_queue: its dead-letter queue.
            function: the function that runs the processor.
            alarm_after: the time for which a set may wait, before the alarm.
            audit_interval: the time between two audits of the sets.
            starts_executions: true if a state machine is the processor; it is not when omitted.
            options: actions, choice and thresholds of the alarms.

        """
        super().__init__(
            scope,
            id,
            pipeline_name=set_name,
            queue=queue,
            dead_letter_queue=dead_letter_queue,
            consumer_function=function,
            options=options,
        )
        self._keep(
            {
                "OldestWaitingSet": self._alarm(
                    "OldestWaitingSet",
                    self.metric_oldest_waiting_set(),
                    "a set waits for its parts for too long, see: list --waiting",
                    threshold=alarm_after.to_milliseconds(),
                    periods=WAITING_PERIODS,
                    datapoints=1,
                ),
                **self._consumer_alarms(OLDEST_SECONDS, starts_executions=starts_executions),
                "AuditFindings": self._alarm(
                    "AuditFindings", self.metric_audit_findings(), "the audit found sets that nothing had processed"
                ),
                "AuditMissing": self._audit_missing(audit_interval.to_seconds()),
            }
        )

    def metric_oldest_waiting_set(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds for which the oldest waiting set waits for its parts or for its processor.

        Each look at a waiting set writes the age of this set, and the hourly audit of sets writes the age of the oldest
        one. Without a waiting set, the metric has no data.

        Args:
            options: options of `cloudwatch.Metric`; the maximum of five minutes when omitted.

        Returns:
            the metric.

        """
        return self.metric("OldestWaitingSet", **(MetricOptions(statistic="Maximum") | options))

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for four rows of your dashboard: `dashboard.add_widgets(*sets.monitoring.widgets())`."""
        waiting = [self.metric_waiting(), self.metric_waited_too_long()]
        return [
            *self._consumer_widgets(),
            graph("Sets that wait", waiting),
            graph("Oldest waiting set", [self.metric_oldest_waiting_set()]),
        ]
