"""The alarms and the widgets of sets of files."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.arguments import check_arguments
from cdk_intake_ledger.monitoring import (
    COPIES_REFUSED,
    FIVE_MINUTES,
    AlarmChoice,
    IntakeMetrics,
    MetricOptions,
    alarm_description,
    status_widgets,
)
from cdk_intake_ledger.options import MonitoringOptions

OLDEST_SECONDS = 3_600
"""The longest normal age of a message that no function has received."""
WAITING_PERIODS = 13
"""Periods of five minutes. They are longer than the hour between two audits, which write the age of a waiting set."""


@check_arguments
class SetMonitoring(Construct, IntakeMetrics):
    """The alarms of one `FileSets`. Each shows a problem that an operator can fix.

    - `OldestWaitingSet`: a set waits for its parts for longer than `alarm_after`. Its deadline comes later.
    - `WaitedTooLong`: a set missed its deadline, because a part is missing.
    - `Rejected`: a set was rejected, because of its manifest, its processor or its deadline.
    - `CopiesRefused`: the dead-letter queue does not take a copy.
    - `DeadLetters`: a message is in the dead-letter queue.
    - `OldestMessage`: a message waits for an hour.
    - `Fenced`: a worker exceeded its lease.
    - `FunctionErrors`, `FunctionThrottles`: the function fails or is throttled.
    - `AuditFindings`: the audit found a complete set that nothing had processed.
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
            options: actions, choice and thresholds of the alarms.

        """
        super().__init__(scope, id)
        self._set_name = set_name
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._function = function
        self._choice = AlarmChoice(options)
        alarms = {
            "OldestWaitingSet": self._alarm(
                "OldestWaitingSet",
                self.metric_oldest_waiting_set(),
                "a set waits for its parts for too long, see: list --waiting",
                threshold=alarm_after.to_milliseconds(),
                periods=WAITING_PERIODS,
                datapoints=1,
            ),
            "WaitedTooLong": self._alarm(
                "WaitedTooLong", self.metric_waited_too_long(), "a set missed its deadline, because a part is missing"
            ),
            "Rejected": self._alarm("Rejected", self.metric_rejected(), "sets were rejected"),
            "CopiesRefused": self._alarm("CopiesRefused", self.metric_copies_refused(), COPIES_REFUSED),
            "DeadLetters": self._alarm(
                "DeadLetters", self._dead_letters(), "messages wait in the dead-letter queue, each with its reason"
            ),
            "OldestMessage": self._alarm(
                "OldestMessage",
                self._oldest_message(),
                "messages wait for longer than an hour",
                threshold=OLDEST_SECONDS,
                periods=3,
            ),
            "Fenced": self._alarm("Fenced", self.metric_fenced(), "a worker outlived its lease"),
            "FunctionErrors": self._alarm(
                "FunctionErrors",
                self._function.metric_errors(period=FIVE_MINUTES),
                "the function fails or times out, in two periods of five minutes within an hour",
                periods=12,
                datapoints=2,
            ),
            "FunctionThrottles": self._alarm(
                "FunctionThrottles",
                self._function.metric_throttles(period=FIVE_MINUTES),
                "the function has been throttled for a quarter of an hour",
                periods=3,
            ),
            "AuditFindings": self._alarm(
                "AuditFindings", self.metric_audit_findings(), "the audit found sets that nothing had processed"
            ),
        }
        self._choice.check(self)
        self._alarms = {name: alarm for name, alarm in alarms.items() if alarm is not None}
        for alarm in self._alarms.values() if options.alarm_actions else ():
            alarm.add_alarm_action(*options.alarm_actions)

    @property
    def pipeline_name(self) -> str:
        """The dimension `service` of the metrics: the name of the sets."""
        return self._set_name

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name."""
        return MappingProxyType(self._alarms)

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
        """Widgets for two rows of your dashboard: `dashboard.add_widgets(*sets.monitoring.widgets())`."""
        messages = [
            self._queue.metric_approximate_number_of_messages_visible(label="waiting"),
            self._queue.metric_approximate_number_of_messages_not_visible(label="in work or set back"),
            self._dead_letters().with_(label="dead letters"),
        ]
        graphs = {
            "Sets": [self.metric_accepted(), self.metric_committed(), self.metric_duplicates()],
            "Missing parts": [self.metric_waiting(), self.metric_waited_too_long()],
            "Trouble": [self.metric_failed(), self.metric_rejected(), self.metric_fenced()],
            "Messages": messages,
        }
        ages = {"Missing parts": [self.metric_oldest_waiting_set()]}
        return [
            cloudwatch.TextWidget(markdown=f"## {self._set_name}", width=6, height=3),
            *status_widgets(self._alarms),
            *(
                cloudwatch.GraphWidget(title=title, left=metrics, right=ages.get(title), width=6)
                for title, metrics in graphs.items()
            ),
        ]

    def _dead_letters(self) -> cloudwatch.Metric:
        return self._dead_letter_queue.metric_approximate_number_of_messages_visible(
            statistic="Maximum", period=FIVE_MINUTES
        )

    def _oldest_message(self) -> cloudwatch.Metric:
        # SQS ignores messages that were received three times or more, so a set that waits for parts does not count.
        return self._queue.metric_approximate_age_of_oldest_message(statistic="Maximum", period=FIVE_MINUTES)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        meaning: str,
        *,
        threshold: float = 1,
        periods: int = 1,
        datapoints: int | None = None,
    ) -> cloudwatch.Alarm | None:
        if not self._choice.has(name):
            return None
        return metric.create_alarm(
            self,
            name,
            threshold=self._choice.threshold(name, threshold),
            evaluation_periods=periods,
            datapoints_to_alarm=datapoints,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=alarm_description(self._set_name, name, meaning),
        )
