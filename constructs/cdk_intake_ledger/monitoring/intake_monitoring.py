"""The alarms and the dashboard of a pipeline."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.monitoring.metrics import FIVE_MINUTES, IntakeMetrics
from cdk_intake_ledger.validation.audit_rules import AUDIT_NOT_WATCHED
from cdk_intake_ledger.validation.limits import LONGEST_WATCH_DAYS
from cdk_intake_ledger.validation.plan import DAY, span
from cdk_intake_ledger.validation.reporting import warn

AN_HOUR_OF_PERIODS = 12
"""Five-minute periods that the alarms on retries and errors evaluate."""
LEAST_RETRIES = 10
"""In five minutes. Fewer retries come from a few bad files."""
AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


class IntakeMonitoring(Construct, IntakeMetrics):
    """The alarms of one pipeline. Each shows a problem that an operator can fix.

    - `DeadLetters`: a message is in the dead-letter queue.
    - `OldestMessage`: a message waits longer than the audit's settle time.
    - `Rejected`: a change was rejected.
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
        alarm_actions: Sequence[cloudwatch.IAlarmAction] | None = None,
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
            alarm_actions: actions of each alarm; none when omitted.

        """
        super().__init__(scope, id)
        self._pipeline_name = pipeline_name
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._consumer_function = consumer_function
        self._audit_function = audit_function
        interval = audit_interval.to_seconds()
        alarms = {
            "DeadLetters": self._alarm(
                "DeadLetters", self._dead_letters(), "messages wait in the dead-letter queue, each with its reason"
            ),
            "OldestMessage": self._alarm(
                "OldestMessage",
                self._oldest_message(),
                "messages wait longer than the audit allows for",
                threshold=settle_time.to_seconds(),
                comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                periods=3,
            ),
            "Rejected": self._alarm("Rejected", self.metric_rejected(), "changes were rejected"),
            "Fenced": self._alarm("Fenced", self.metric_fenced(), "a worker outlived its lease"),
            "WaitedTooLong": self._alarm(
                "WaitedTooLong",
                self.metric_waited_too_long(),
                "a prerequisite of the processor was missing for longer than max_wait",
            ),
            "Retries": self._alarm(
                "Retries",
                # Not a share of all attempts, since the local AWS has no alarms on metric math.
                self.metric_retries(),
                "ten or more retries in three of the last twelve periods of five minutes",
                threshold=LEAST_RETRIES,
                periods=AN_HOUR_OF_PERIODS,
                # An outage of minutes needs no operator.
                datapoints=3,
            ),
            "LapsedLeases": self._alarm_on_second_period(
                "LapsedLeases", self.metric_lapsed_leases(), "workers die in their attempts"
            ),
            "ConsumerFunctionErrors": self._alarm_on_second_period(
                "ConsumerFunctionErrors", self._errors(consumer_function), "the consumer function fails or times out"
            ),
            "ConsumerFunctionThrottles": self._alarm(
                "ConsumerFunctionThrottles",
                consumer_function.metric_throttles(period=FIVE_MINUTES),
                "the consumer function has been throttled for a quarter of an hour",
                # Lambda throttles briefly when many messages arrive at the same time.
                periods=3,
            ),
            "AuditFunctionErrors": self._alarm_on_second_period(
                "AuditFunctionErrors", self._errors(audit_function), "the audit function fails or times out"
            ),
            "DownstreamOut": self._alarm(
                "DownstreamOut",
                self.metric_breaker_open(period=Duration.hours(1)),
                "the downstream has been out for hours, messages wait untried",
                # In a long outage, messages come back rarely: not in each hour.
                periods=4,
                datapoints=2,
            ),
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
            "AuditMissing": self._audit_missing(interval),
        }
        self._alarms = {name: alarm for name, alarm in alarms.items() if alarm is not None}
        if alarm_actions:
            for alarm in self._alarms.values():
                alarm.add_alarm_action(*alarm_actions)

    @property
    def pipeline_name(self) -> str:
        """The dimension `service` of the metrics."""
        return self._pipeline_name

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name. If the audit runs too rarely for an alarm, `AuditMissing` is absent."""
        return MappingProxyType(self._alarms)

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for four rows of your dashboard: `dashboard.add_widgets(*pipeline.monitoring.widgets())`."""
        retries = [self.metric_retries(), self.metric_lapsed_leases()]
        functions = [
            self._errors(self._consumer_function).with_(label="consumer errors"),
            self._consumer_function.metric_throttles(period=FIVE_MINUTES, label="consumer throttles"),
            self._errors(self._audit_function).with_(label="audit errors"),
        ]
        failures = [
            self.metric_failed(),
            self.metric_rejected(),
            self.metric_fenced(),
            self.metric_breaker_open(),
            self.metric_unparseable(),
            self.metric_later_format(),
        ]
        messages = [
            self._queue.metric_approximate_number_of_messages_visible(label="waiting"),
            self._queue.metric_approximate_number_of_messages_not_visible(label="in work or set back"),
            self._dead_letters().with_(label="dead letters"),
        ]
        audit = [
            self.metric_audit_runs(),
            self.metric_audit_findings(),
            self.metric_audit_resubmitted(),
            self.metric_audit_delivery_problems(),
            self.metric_audit_incomplete(),
        ]
        return [
            cloudwatch.TextWidget(markdown=f"## {self._pipeline_name}", width=6, height=3),
            cloudwatch.AlarmStatusWidget(alarms=list(self._alarms.values()), width=18, height=3),
            _graph("Changes", [self.metric_accepted(), self.metric_committed()]),
            _graph("Answered without work", [self.metric_duplicates(), self.metric_stale(), self.metric_busy()]),
            _graph("Repeated attempts", retries),
            _graph("From event to commit", [self.metric_commit_lag(), self.metric_duplicate_age()]),
            _graph("Functions", functions),
            _graph("Trouble", failures),
            _graph("Messages", messages),
            _graph("Oldest message", [self._oldest_message()]),
            _graph("Audit", audit),
        ]

    def dashboard(self, *, name: str | None = None) -> cloudwatch.Dashboard:
        """Create a dashboard of this pipeline with `widgets`. It costs $3 a month beyond the first three of an account.

        Args:
            name: the dashboard's name; CloudFormation makes one when omitted.

        Returns:
            the dashboard. The second call returns the same one.

        """
        existing = self.node.try_find_child("Dashboard")
        if isinstance(existing, cloudwatch.Dashboard):
            return existing
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=name)
        dashboard.add_widgets(*self.widgets())
        return dashboard

    def _dead_letters(self) -> cloudwatch.Metric:
        return self._dead_letter_queue.metric_approximate_number_of_messages_visible(
            statistic="Maximum", period=FIVE_MINUTES
        )

    def _oldest_message(self) -> cloudwatch.Metric:
        # SQS ignores messages that were received three times or more: a retried failure is not a backlog.
        return self._queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=FIVE_MINUTES)

    @staticmethod
    def _errors(function: lambda_.IFunction) -> cloudwatch.Metric:
        return function.metric_errors(period=FIVE_MINUTES)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        meaning: str,
        *,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = AT_LEAST,
        periods: int = 1,
        datapoints: int | None = None,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        return metric.create_alarm(
            self,
            name,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=datapoints,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description=f"{self._pipeline_name}: {meaning}",
        )

    def _alarm_on_second_period(self, name: str, metric: cloudwatch.Metric, meaning: str) -> cloudwatch.Alarm:
        """An alarm on two periods of five minutes with a case within an hour. The pipeline repairs one case itself."""
        meaning = f"{meaning}, in two periods of five minutes within an hour"
        return self._alarm(name, metric, meaning, periods=AN_HOUR_OF_PERIODS, datapoints=2)

    def _audit_incomplete(self, interval: float) -> cloudwatch.Alarm:
        # A run may need several invocations, and the last one writes 0. A period is at most a day.
        period = min(interval, DAY)
        # `AuditMissing` watches days without a run.
        return self._alarm(
            "AuditIncomplete",
            self.metric_audit_incomplete(statistic="Minimum", period=Duration.seconds(period)),
            "the audit does not get through the bucket",
            periods=2 if interval <= DAY else 1,
        )

    def _audit_missing(self, interval: float) -> cloudwatch.Alarm | None:
        # A period is at most a day. The duration of runs differs, so there is one more period than the interval has.
        period = min(interval, DAY)
        periods = math.ceil(interval / period) + 1
        if period * periods > LONGEST_WATCH_DAYS * DAY:
            warn(self, AUDIT_NOT_WATCHED, interval=span(interval))
            return None
        return self._alarm(
            "AuditMissing",
            self.metric_audit_runs(period=Duration.seconds(period)),
            "no audit has finished in time",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=periods,
            # A run that did not start writes no data.
            missing=cloudwatch.TreatMissingData.BREACHING,
        )


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8)
