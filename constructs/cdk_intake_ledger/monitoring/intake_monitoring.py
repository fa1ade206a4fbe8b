"""The alarms and the dashboard of a pipeline."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.monitoring.consumer_monitoring import ConsumerMonitoring, graph
from cdk_intake_ledger.options import MonitoringOptions, to_seconds
from cdk_intake_ledger.validation.plan import DAY


@check_arguments
class IntakeMonitoring(ConsumerMonitoring):
    """The alarms of one pipeline. Each shows a problem that an operator can fix.

    - `DeadLetters`: a message is in the dead-letter queue.
    - `OldestMessage`: a message waits longer than the audit's settle time.
    - `Rejected`: a change was rejected.
    - `CopiesRefused`: the dead-letter queue does not take a copy.
    - `StartRefused`: Step Functions refuses to start executions, if a state machine is the processor.
    - `Fenced`: a worker exceeded its lease.
    - `Retries`: many attempts are repeated.
    - `LapsedLeases`: workers stop in the middle of their attempts.
    - `WaitedTooLong`: a prerequisite of the processor was missing for longer than `max_wait`.
    - `ConsumerFunctionErrors`, `ConsumerFunctionThrottles`, `AuditFunctionErrors`: the function fails or is throttled.
    - `DownstreamOut`: the circuit breaker has held messages back for hours.
    - `AuditFindings`: S3 and the ledger differ.
    - `AuditDeliveryProblems`: the path from S3 to the ledger differs from the deployed one.
    - `AuditIncomplete`: no audit read the whole bucket in two intervals.
    - `AuditMissing`: no audit finished in two intervals.

    docs/monitoring.md has the thresholds, the causes and the repairs.
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
        audit_function: lambda_.IFunction,
        settle_time: Duration,
        audit_interval: Duration,
        starts_executions: bool = False,
        options: MonitoringOptions | None = None,
    ) -> None:
        """Make the alarms. A pipeline makes its own.

        Args:
            scope: the pipeline.
            id: the construct's id.
            pipeline_name: the dimension `service` of the metrics.
            queue: the pipeline's queue.
            dead_letter_queue: the pipeline's dead-letter queue.
            consumer_function: the pipeline's consumer.
            audit_function: the pipeline's audit.
            settle_time: the audit's settle time: the maximum normal age of a message.
            audit_interval: the time between two audits, known at synthesis.
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
        self._audit_function = audit_function
        interval = to_seconds(audit_interval)
        alarms = self._consumer_alarms(to_seconds(settle_time), starts_executions=starts_executions)
        downstream_out = alarms.pop("DownstreamOut")
        alarms |= {
            "AuditFunctionErrors": self._alarm_on_second_period(
                "AuditFunctionErrors", self._errors(audit_function), "the audit function fails or times out"
            ),
            "DownstreamOut": downstream_out,
            "AuditFindings": self._alarm(
                "AuditFindings",
                self.metric_audit_findings(),
                "the audit found keys that differ between S3 and the ledger",
            ),
            "AuditDeliveryProblems": self._alarm(
                "AuditDeliveryProblems",
                self.metric_audit_delivery_problems(statistic="Maximum"),
                "the path from S3 to the ledger is not what was deployed",
                # A single tick is enough. Between two ticks there is no data, and the problem remains.
                missing=cloudwatch.TreatMissingData.IGNORE,
            ),
            "AuditIncomplete": self._audit_incomplete(interval),
        }
        alarms["AuditMissing"] = self._audit_missing(interval)
        self._keep(alarms)

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for four rows of your dashboard: `dashboard.add_widgets(*pipeline.monitoring.widgets())`."""
        audit_errors = self._errors(self._audit_function).with_(label="audit errors")
        audit = [
            self.metric_audit_runs(),
            self.metric_audit_findings(),
            self.metric_audit_resubmitted(),
            self.metric_audit_delivery_problems(),
            self.metric_audit_incomplete(),
        ]
        return [
            *self._consumer_widgets(audit_errors),
            graph("Audit", audit),
        ]

    def _audit_incomplete(self, interval: float) -> cloudwatch.Alarm | None:
        # A run may need several invocations, and the last one writes 0. A period is at most a day.
        period = min(interval, DAY)
        # `AuditMissing` watches days without a run.
        return self._alarm(
            "AuditIncomplete",
            self.metric_audit_incomplete(statistic="Minimum", period=Duration.seconds(period)),
            "the audit does not get through the bucket",
            periods=2 if interval <= DAY else 1,
        )
