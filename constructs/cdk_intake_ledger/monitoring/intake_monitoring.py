"""What a person has to hear about, and what one wants to see."""

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
from cdk_intake_ledger.validation.plan import DAY, span
from cdk_intake_ledger.validation.reporting import warn

AN_HOUR_OF_PERIODS = 12
"""Periods of five minutes that the alarms on repetition and on errors look at."""
LEAST_RETRIES = 10
"""In five minutes. Fewer are a few files' own failures."""
LONGEST_WATCH = 7 * DAY
"""Seconds that an alarm can look back in all, its period being an hour or more."""
AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


class IntakeMonitoring(Construct, IntakeMetrics):
    """The alarms of one pipeline, each for something that nobody would notice otherwise and that a person can mend.

    `DeadLetters`: a message is in the dead-letter queue. `OldestMessage`: one has waited for longer than the audit's
    settle time. `Rejected`: a change was given up. `Fenced`: a worker outlived its lease. `Retries`: attempts are
    repeated again and again. `LapsedLeases`: workers die again and again. `ConsumerFunctionErrors`,
    `ConsumerFunctionThrottles`, `AuditFunctionErrors`: Lambda says that the function fails or is throttled.
    `WaitedTooLong`: something that the processor needs was missing for longer than `max_wait`. `DownstreamOut`:
    messages have been given back untried for hours. `AuditFindings`: S3 and the ledger disagreed.
    `AuditDeliveryProblems`: the path from S3 to the ledger is not what was deployed. `AuditIncomplete`: no audit got
    through in two intervals. `AuditMissing`: none came to its end in two intervals. docs/monitoring.md has thresholds,
    reasons, and what to do.
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
        """Make the alarms; a pipeline does that for itself.

        Args:
            scope: the pipeline.
            id: their name there.
            pipeline_name: the dimension `service` of the metrics.
            queue: the pipeline's.
            dead_letter_queue: the pipeline's.
            consumer_function: the pipeline's.
            audit_function: the pipeline's.
            settle_time: the audit's: the greatest age of a message that is still normal.
            audit_interval: the time between two audits, known at synthesis.
            alarm_actions: what happens when an alarm goes off; nothing when omitted.

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
            "Rejected": self._alarm("Rejected", self.metric_rejected(), "changes were given up"),
            "Fenced": self._alarm("Fenced", self.metric_fenced(), "a worker outlived its lease"),
            "WaitedTooLong": self._alarm(
                "WaitedTooLong", self.metric_waited_too_long(), "something was missing for longer than max_wait"
            ),
            "Retries": self._alarm(
                "Retries",
                # Not a share of all attempts: the local AWS has no alarms on calculations.
                self.metric_retries(),
                "attempts are repeated, for a quarter of an hour or more",
                threshold=LEAST_RETRIES,
                periods=AN_HOUR_OF_PERIODS,
                # An outage of minutes repairs itself.
                datapoints=3,
            ),
            "LapsedLeases": self._again("LapsedLeases", self.metric_lapsed_leases(), "workers die in their attempts"),
            "ConsumerFunctionErrors": self._again(
                "ConsumerFunctionErrors", self._errors(consumer_function), "the consumer function fails or times out"
            ),
            "ConsumerFunctionThrottles": self._alarm(
                "ConsumerFunctionThrottles",
                consumer_function.metric_throttles(period=FIVE_MINUTES),
                "the consumer function has been throttled for a quarter of an hour",
                # Lambda throttles for a moment whenever many messages arrive at once.
                periods=3,
            ),
            "AuditFunctionErrors": self._again(
                "AuditFunctionErrors", self._errors(audit_function), "the audit function fails or times out"
            ),
            "DownstreamOut": self._alarm(
                "DownstreamOut",
                self.metric_breaker_open(period=Duration.hours(1)),
                "the downstream has been out for hours, messages wait untried",
                # The longer it lasts the less often a message comes: not in every hour.
                periods=4,
                datapoints=2,
            ),
            "AuditFindings": self._alarm(
                "AuditFindings", self.metric_audit_findings(), "the audit found what S3 had told nobody about"
            ),
            "AuditDeliveryProblems": self._alarm(
                "AuditDeliveryProblems",
                self.metric_audit_delivery_problems(statistic="Maximum"),
                "the path from S3 to the ledger is not what was deployed",
                # One tick is enough. Between two ticks there is no data, and nothing has become better.
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
        """By name. `AuditMissing` is not there where the audit runs too rarely for an alarm."""
        return MappingProxyType(self._alarms)

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Four rows for a dashboard of the team's own: `dashboard.add_widgets(*pipeline.monitoring.widgets())`."""
        repeated = [self.metric_retries(), self.metric_lapsed_leases()]
        functions = [
            self._errors(self._consumer_function).with_(label="consumer errors"),
            self._consumer_function.metric_throttles(period=FIVE_MINUTES, label="consumer throttles"),
            self._errors(self._audit_function).with_(label="audit errors"),
        ]
        trouble = [
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
            _graph("Repeated attempts", repeated),
            _graph("Functions", functions),
            _graph("Trouble", trouble),
            _graph("Messages", messages),
            _graph("Oldest message", [self._oldest_message()]),
            _graph("Audit", audit),
        ]

    def _dead_letters(self) -> cloudwatch.Metric:
        return self._dead_letter_queue.metric_approximate_number_of_messages_visible(
            statistic="Maximum", period=FIVE_MINUTES
        )

    def _oldest_message(self) -> cloudwatch.Metric:
        # SQS leaves out what was received three times and more: a retried failure is not a backlog.
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

    def _again(self, name: str, metric: cloudwatch.Metric, meaning: str) -> cloudwatch.Alarm:
        """The ledger and the next invocation repair a single case. A second one within the hour is a pattern."""
        meaning = f"{meaning}, more than once in an hour"
        return self._alarm(name, metric, meaning, periods=AN_HOUR_OF_PERIODS, datapoints=2)

    def _audit_incomplete(self, interval: float) -> cloudwatch.Alarm:
        # One run may need several calls, of which the last says 0. A period has a day at most.
        period = min(interval, DAY)
        # Days without a run do not count here: `AuditMissing` watches them.
        return self._alarm(
            "AuditIncomplete",
            self.metric_audit_incomplete(statistic="Minimum", period=Duration.seconds(period)),
            "the audit does not get through the bucket",
            periods=2 if interval <= DAY else 1,
        )

    def _audit_missing(self, interval: float) -> cloudwatch.Alarm | None:
        # A period has a day at most, and runs do not all take the same time: one more than the interval needs.
        period = min(interval, DAY)
        periods = math.ceil(interval / period) + 1
        if period * periods > LONGEST_WATCH:
            warn(self, AUDIT_NOT_WATCHED, interval=span(interval), most=span(LONGEST_WATCH))
            return None
        return self._alarm(
            "AuditMissing",
            self.metric_audit_runs(period=Duration.seconds(period)),
            "the audit does not come to its end any more",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            periods=periods,
            # A run that never began writes no zero.
            missing=cloudwatch.TreatMissingData.BREACHING,
        )


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8)
