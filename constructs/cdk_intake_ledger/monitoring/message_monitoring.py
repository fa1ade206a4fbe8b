"""The alarms and the dashboard of a message intake."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.monitoring.consumer_monitoring import ConsumerMonitoring, graph
from cdk_intake_ledger.monitoring.metrics import FIVE_MINUTES
from cdk_intake_ledger.options import MonitoringOptions

MAX_AGE = Duration.hours(1)
"""The maximum normal age of a message, which is also the default settle time of a pipeline's audit."""


@check_arguments
class MessageMonitoring(ConsumerMonitoring):
    """The alarms of one message intake. Each shows a problem that an operator can fix.

    - `DeadLetters`: a message is in the dead-letter queue.
    - `OldestMessage`: a message waits in the queue for longer than an hour.
    - `IteratorAge`: a record waits in the stream for longer than an hour. Queues have no such alarm.
    - `Rejected`: a message was rejected.
    - `CopiesRefused`: the dead-letter queue does not take a copy.
    - `StartRefused`: Step Functions refuses to start executions, if a state machine is the processor.
    - `Fenced`: a worker exceeded its lease.
    - `Retries`: many attempts are repeated.
    - `LapsedLeases`: workers stop in the middle of their attempts.
    - `WaitedTooLong`: a prerequisite of the processor was missing for longer than `max_wait`.
    - `ConsumerFunctionErrors`, `ConsumerFunctionThrottles`: the function fails or is throttled.
    - `DownstreamOut`: the circuit breaker has held messages back for hours.
    - `AuditFindings`: rows are unfinished, and no message has continued them for hours.
    - `AuditMissing`: the check of the rows did not run.

    docs/messages.md has the causes and the repairs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        pipeline_name: str,
        queue: sqs.IQueue,
        dead_letter_queue: sqs.IQueue,
        consumer_function: lambda_.IFunction,
        reads_stream: bool,
        audit_interval: Duration,
        starts_executions: bool = False,
        options: MonitoringOptions | None = None,
    ) -> None:
        """Make the alarms. An intake makes its own.

        Args:
            scope: the intake.
            id: the construct's id.
            pipeline_name: the dimension `service` of the metrics.
            queue: the queue of the source, or of redriven records.
            dead_letter_queue: the intake's dead-letter queue.
            consumer_function: the intake's consumer.
            reads_stream: whether the consumer reads a stream.
            audit_interval: the time between two checks of the rows.
            starts_executions: true if a state machine is the processor; it is not when omitted.
            options: actions, choice and thresholds of the alarms; all alarms without actions when omitted.

        """
        super().__init__(
            scope,
            id,
            pipeline_name=pipeline_name,
            queue=queue,
            dead_letter_queue=dead_letter_queue,
            consumer_function=consumer_function,
            options=options or MonitoringOptions(),
        )
        self._reads_stream = reads_stream
        alarms = self._consumer_alarms(MAX_AGE.to_seconds(), starts_executions=starts_executions)
        alarms["AuditFindings"] = self._alarm(
            "AuditFindings",
            self.metric_audit_findings(),
            "no message has continued unfinished rows for hours",
        )
        alarms["AuditMissing"] = self._audit_missing(audit_interval.to_seconds())
        if reads_stream:
            alarms["IteratorAge"] = self._alarm(
                "IteratorAge",
                self._iterator_age(),
                "records of the stream wait longer than an hour",
                threshold=MAX_AGE.to_milliseconds(),
                comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                periods=3,
            )
        self._keep(alarms)

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for three rows of your dashboard: `dashboard.add_widgets(*intake.monitoring.widgets())`."""
        ages = [graph("Age of records in the stream", [self._iterator_age()])] if self._reads_stream else []
        return [*self._consumer_widgets(), *ages]

    def _iterator_age(self) -> cloudwatch.Metric:
        return self._consumer_function.metric("IteratorAge", statistic="Maximum", period=FIVE_MINUTES)
