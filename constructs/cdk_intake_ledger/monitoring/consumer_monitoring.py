"""The alarms and graphs of a consumer, which pipelines of files, intakes of messages and sets of files share."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.monitoring.alarm_choice import AlarmChoice
from cdk_intake_ledger.monitoring.metrics import FIVE_MINUTES, IntakeMetrics
from cdk_intake_ledger.monitoring.runbooks import alarm_description
from cdk_intake_ledger.options import MonitoringOptions
from cdk_intake_ledger.validation.audit_rules import AUDIT_NOT_WATCHED
from cdk_intake_ledger.validation.limits import LONGEST_WATCH_DAYS
from cdk_intake_ledger.validation.plan import DAY, span
from cdk_intake_ledger.validation.reporting import warn

AN_HOUR_OF_PERIODS = 12
"""Five-minute periods that the alarms on retries and errors evaluate."""
LEAST_RETRIES = 10
"""In five minutes. Fewer retries come from a few bad files."""
COPIES_REFUSED = "the dead-letter queue does not take copies of rejected messages, so they stay in the queue"
AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


class ConsumerMonitoring(Construct, IntakeMetrics):
    """Alarms and graphs of a queue, its dead-letter queue and its consumer."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        pipeline_name: str,
        queue: sqs.IQueue,
        dead_letter_queue: sqs.IQueue,
        consumer_function: lambda_.IFunction,
        options: MonitoringOptions,
    ) -> None:
        super().__init__(scope, id)
        self._pipeline_name = pipeline_name
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._consumer_function = consumer_function
        self._options = options
        self._choice = AlarmChoice(options)
        self._alarms: dict[str, cloudwatch.Alarm] = {}

    @property
    def pipeline_name(self) -> str:
        """The dimension `service` of the metrics."""
        return self._pipeline_name

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name. If the audit runs too rarely for an alarm, `AuditMissing` is absent."""
        return MappingProxyType(self._alarms)

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for your dashboard."""
        raise NotImplementedError

    def dashboard(self, *, name: str | None = None) -> cloudwatch.Dashboard:
        """Create a dashboard with `widgets`. It costs $3 a month beyond the first three of an account.

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

    def _keep(self, alarms: Mapping[str, cloudwatch.Alarm | None]) -> None:
        self._choice.check(self)
        self._alarms = {name: alarm for name, alarm in alarms.items() if alarm is not None}
        for alarm in self._alarms.values() if self._options.alarm_actions else ():
            alarm.add_alarm_action(*self._options.alarm_actions)

    def _consumer_alarms(self, settle_time: float, *, starts_executions: bool) -> dict[str, cloudwatch.Alarm | None]:
        """The alarms by name. `settle_time` is the maximum normal age of a message in seconds."""
        starts = self._start_refused() if starts_executions else {}
        consumer_function = self._consumer_function
        return {
            "DeadLetters": self._alarm(
                "DeadLetters", self._dead_letters(), "messages wait in the dead-letter queue, each with its reason"
            ),
            "OldestMessage": self._alarm(
                "OldestMessage",
                self._oldest_message(),
                "messages wait longer than the audit allows for",
                threshold=settle_time,
                comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                periods=3,
            ),
            "Rejected": self._alarm("Rejected", self.metric_rejected(), "changes were rejected"),
            "CopiesRefused": self._alarm("CopiesRefused", self.metric_copies_refused(), COPIES_REFUSED),
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
            **starts,
            "DownstreamOut": self._alarm(
                "DownstreamOut",
                self.metric_breaker_open(period=Duration.hours(1)),
                "the downstream has been out for hours, messages wait untried",
                # In a long outage, messages come back rarely: not in each hour.
                periods=4,
                datapoints=2,
            ),
        }

    def _start_refused(self) -> dict[str, cloudwatch.Alarm | None]:
        """The alarm of a consumer whose processor is a state machine."""
        metric, what = self.metric_start_refused(), "Step Functions refuses to start executions"
        return {"StartRefused": self._alarm_on_second_period("StartRefused", metric, what)}

    def _audit_missing(self, interval: float) -> cloudwatch.Alarm | None:
        """The alarm on audits that did not run. `interval` is the time between two audits in seconds."""
        # A period is at most a day. The duration of runs differs, so there is one more period than the interval has.
        period = min(interval, DAY)
        periods = math.ceil(interval / period) + 1
        if period * periods > LONGEST_WATCH_DAYS * DAY:
            if self._choice.has("AuditMissing"):
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

    def _consumer_widgets(self, *functions: cloudwatch.IMetric) -> list[cloudwatch.ConcreteWidget]:
        """The graphs, with the metrics of other functions in the graph of functions."""
        consumer = [
            self._errors(self._consumer_function).with_(label="consumer errors"),
            self._consumer_function.metric_throttles(period=FIVE_MINUTES, label="consumer throttles"),
        ]
        failures = [
            self.metric_failed(),
            self.metric_rejected(),
            self.metric_fenced(),
            self.metric_breaker_open(),
            self.metric_unparseable(),
            self.metric_copies_refused(),
            self.metric_later_format(),
        ]
        messages = [
            self._queue.metric_approximate_number_of_messages_visible(label="waiting"),
            self._queue.metric_approximate_number_of_messages_not_visible(label="in work or set back"),
            self._dead_letters().with_(label="dead letters"),
        ]
        return [
            cloudwatch.TextWidget(markdown=f"## {self._pipeline_name}", width=6, height=3),
            *status_widgets(self._alarms),
            graph("Changes", [self.metric_accepted(), self.metric_committed()]),
            graph("Answered without work", [self.metric_duplicates(), self.metric_stale(), self.metric_busy()]),
            graph("Repeated attempts", [self.metric_retries(), self.metric_lapsed_leases()]),
            graph("From event to commit", [self.metric_commit_lag(), self.metric_duplicate_age()]),
            graph("Functions", [*consumer, *functions]),
            graph("Trouble", failures),
            graph("Messages", messages),
            graph("Oldest message", [self._oldest_message()]),
        ]

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
    ) -> cloudwatch.Alarm | None:
        """An alarm, or None if the options do not choose it."""
        if not self._choice.has(name):
            return None
        return metric.create_alarm(
            self,
            name,
            threshold=self._choice.threshold(name, threshold),
            evaluation_periods=periods,
            datapoints_to_alarm=datapoints,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description=alarm_description(self._pipeline_name, name, meaning),
        )

    def _alarm_on_second_period(self, name: str, metric: cloudwatch.Metric, meaning: str) -> cloudwatch.Alarm | None:
        """An alarm on two periods of five minutes with a case within an hour. The pipeline repairs one case itself."""
        meaning = f"{meaning}, in two periods of five minutes within an hour"
        return self._alarm(name, metric, meaning, periods=AN_HOUR_OF_PERIODS, datapoints=2)


def status_widgets(alarms: Mapping[str, cloudwatch.Alarm]) -> list[cloudwatch.ConcreteWidget]:
    """The states of alarms. CloudWatch refuses a widget without alarms."""
    return [cloudwatch.AlarmStatusWidget(alarms=list(alarms.values()), width=18, height=3)] if alarms else []


def graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    """A graph of a third of the dashboard's width."""
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8)
