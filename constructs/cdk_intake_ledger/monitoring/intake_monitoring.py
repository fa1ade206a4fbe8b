"""The alarms and the dashboard of an intake, made from the table of alarms."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Literal, Required, TypedDict, Unpack, cast

from aws_cdk import Duration, Stack, Token, Tokenization
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.limits import LONGEST_WATCH_DAYS
from cdk_intake_ledger.checks.nag_suppressions import ALARM_ACTION as ACTION_OF_COMPOSITE
from cdk_intake_ledger.checks.nag_suppressions import suppress
from cdk_intake_ledger.checks.reporting import refuse, warn
from cdk_intake_ledger.checks.rules.audit_rules import AUDIT_NOT_WATCHED
from cdk_intake_ledger.checks.rules.monitoring_rules import ALARM_ACTION
from cdk_intake_ledger.checks.spans import DAY, span
from cdk_intake_ledger.monitoring.alarm_choice import AlarmChoice
from cdk_intake_ledger.monitoring.metrics import FIVE_MINUTES, IntakeMetrics, MetricOptions
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import AlarmAction, MonitoringOptions
from intake_ledger.contract import (
    ALARMS,
    GRAPHS,
    HOUR,
    METRICS,
    RUNBOOKS,
    AlarmRow,
    Call,
    Comparison,
    Limit,
    Need,
    NoData,
    Source,
    describe,
)

_COMPARISONS = {
    Comparison.AT_LEAST: cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    Comparison.ABOVE: cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
    Comparison.BELOW: cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
}
_NO_DATA = {
    NoData.GOOD: cloudwatch.TreatMissingData.NOT_BREACHING,
    NoData.BAD: cloudwatch.TreatMissingData.BREACHING,
    NoData.SAME: cloudwatch.TreatMissingData.IGNORE,
}


class _Condition(TypedDict, total=False):
    threshold: Required[float]
    comparison_operator: Required[cloudwatch.ComparisonOperator]
    evaluation_periods: Required[int]
    datapoints_to_alarm: int
    treat_missing_data: Required[cloudwatch.TreatMissingData]


@check_arguments
class IntakeMonitoring(Construct, IntakeMetrics):
    """The alarms of one pipeline, of one intake of messages, or of sets of files. Each shows a problem that an operator
    can fix. docs/runbooks.md lists them with their conditions, and has a page with the repair for each.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        kind: Literal["objects", "messages", "sets"],
        name: str,
        queue: sqs.IQueue,
        dead_letter_queue: sqs.IQueue,
        function: lambda_.IFunction,
        audit_interval: Duration,
        audit_function: lambda_.IFunction | None = None,
        settle_time: Duration | None = None,
        longest_claim: Duration | None = None,
        starts_executions: bool = False,
        reads_stream: bool = False,
        needs: Collection[Need | None] = (),
        options: MonitoringOptions | None = None,
    ) -> None:
        """Make the alarms. A pipeline makes its own, as intakes of messages and sets do.

        Args:
            scope: the pipeline, intake or sets.
            id: the construct's id.
            kind: the kind of work.
            name: the dimension `service` of the metrics.
            queue: the queue of the consumer.
            dead_letter_queue: its dead-letter queue.
            function: the function that runs the processor.
            audit_interval: the time between two audits, known at synthesis.
            audit_function: the function of the audit; the consumer's when omitted.
            settle_time: the maximum normal age of a message; an hour when omitted.
            longest_claim: the longest time of an attempt; that of a Lambda function, 15 minutes, when omitted.
            starts_executions: true if a state machine or a durable function is the processor; it is not when omitted.
            reads_stream: true if the consumer reads a stream; it reads a queue only when omitted.
            needs: of options that have alarms of their own; none when omitted.
            options: actions, choice and thresholds of the alarms; the default alarms without actions when omitted.

        Raises:
            IntakeConfigurationError: an alarm or a threshold does not exist, or a composite cannot take an action.

        """
        super().__init__(scope, id)
        self._kind = kind
        self._name = name
        self._stack_name = Stack.of(self).stack_name
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._functions = {Source.CONSUMER: function, Source.AUDIT: audit_function or function}
        self._audit_interval = to_seconds(audit_interval)
        self._limits = {
            Limit.SETTLE_TIME: to_seconds(settle_time or Duration.hours(1)),
            Limit.CLAIM_AGE: 1_000 * (to_seconds(longest_claim or Duration.minutes(15)) + _settle(settle_time)),
        }
        own = {Need.EXECUTIONS: starts_executions, Need.STREAM: reads_stream}
        met = {None, *needs, *(need for need, is_met in own.items() if is_met)}
        self._rows = [row for row in ALARMS if kind in row.kinds and row.need in met]
        options = options or MonitoringOptions()
        self._choice = AlarmChoice(options)
        made = {row.name: self._alarm(row) for row in self._rows}
        self._choice.check(self)
        self._alarms = {name: alarm for name, alarm in made.items() if alarm is not None}
        self._calls = {call: alarm for call in Call if (alarm := self._composite(call)) is not None}
        if options.alarm_actions:
            actions = [self._action(one) for one in options.alarm_actions]
            calls = {row.name: row.call for row in self._rows}
            asked = [alarm for name, alarm in self._alarms.items() if calls[name] is None]
            for called in (*self._calls.values(), *asked):
                called.add_alarm_action(*actions)

    def _attempts_take(self, longest: Duration) -> None:
        """Raise the age above which a claim is an alarm. Workers may have a longer limit than the function."""
        alarm = self._alarms.get("OldestClaim")
        least = 1_000 * to_seconds(longest) + self._limits[Limit.CLAIM_AGE]
        if alarm is not None and not self._choice.sets_threshold("OldestClaim"):
            resource = alarm.node.default_child
            assert isinstance(resource, cloudwatch.CfnAlarm), alarm.node.path
            [row] = [row for row in self._rows if row.name == "OldestClaim"]
            resource.threshold = least
            resource.add_property_override("Metrics.0.Expression", _expression(row, least))

    @property
    def name(self) -> str:
        """The dimension `service` of the metrics."""
        return self._name

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """Alarms by name. If the audit runs too rarely for an alarm, `AuditMissing` is absent."""
        return MappingProxyType(self._alarms)

    @property
    def calls(self) -> Mapping[str, cloudwatch.CompositeAlarm]:
        """The composite alarms that carry the actions, by name: `NotWorking` and `NeedsAPerson`."""
        return MappingProxyType({call.value: alarm for call, alarm in self._calls.items()})

    def widgets(self) -> list[cloudwatch.ConcreteWidget]:
        """Widgets for five rows of your dashboard: `dashboard.add_widgets(*pipeline.monitoring.widgets())`."""
        # CloudWatch refuses a widget without alarms.
        alarms: list[cloudwatch.AlarmBase] = [*self._calls.values(), *self._alarms.values()]
        return [
            cloudwatch.TextWidget(markdown=f"## {self._name}", width=6, height=3),
            *([cloudwatch.AlarmStatusWidget(alarms=alarms, width=18, height=3)] if alarms else []),
            *(
                cloudwatch.GraphWidget(title=title, left=metrics, width=8)
                for title in GRAPHS
                if (metrics := list(self._graph(title)))
            ),
        ]

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

    def _graph(self, title: str) -> Iterator[cloudwatch.IMetric]:
        """The metrics of this kind of work in a graph."""
        for name in GRAPHS[title]:
            if self._kind in METRICS[name].kinds:
                yield self.metric(name)
        for row in self._rows:
            if row.graph == title:
                options = MetricOptions(label=row.label) if row.label else MetricOptions()
                if row.source is not Source.LEDGER:
                    options["statistic"] = row.statistic
                yield self._metric(row, options)
        if title == "Messages":
            yield self._queue.metric_approximate_number_of_messages_visible(label="waiting")
            yield self._queue.metric_approximate_number_of_messages_not_visible(label="in work or set back")

    def _metric(self, row: AlarmRow, options: MetricOptions) -> cloudwatch.Metric:
        options = MetricOptions(period=FIVE_MINUTES) | options
        match row.source:
            case Source.LEDGER:
                return self.metric(row.metric, **options)
            case Source.QUEUE:
                return self._queue.metric(row.metric, **options)
            case Source.DEAD_LETTER_QUEUE:
                return self._dead_letter_queue.metric(row.metric, **options)
            case Source.CONSUMER | Source.AUDIT | Source.OUTCOMES:  # no kind of work has an alarm of the last one
                return self._functions[row.source].metric(row.metric, **options)

    def _alarm(self, row: AlarmRow) -> cloudwatch.Alarm | None:
        """An alarm, or None if the options do not choose it or CloudWatch cannot look back far enough."""
        if not self._choice.has(row.name, by_default=row.call is not None):
            return None
        period = min(self._audit_interval, DAY) if row.period is None else row.period
        periods = row.periods if isinstance(row.periods, int) else row.periods(self._audit_interval)
        if period * periods > LONGEST_WATCH_DAYS * DAY:
            warn(self, AUDIT_NOT_WATCHED, interval=span(self._audit_interval))
            return None
        threshold = self._limits[row.threshold] if isinstance(row.threshold, Limit) else row.threshold
        threshold = self._choice.threshold(row.name, threshold)
        options = MetricOptions(statistic=row.statistic, period=_seconds(period))
        metric: cloudwatch.Metric | cloudwatch.MathExpression = self._metric(row, options)
        if row.expression:
            metrics: dict[str, cloudwatch.IMetric] = {"value": metric}
            if row.other:
                metrics["other"] = self._metric(replace(row, metric=row.other), options)
            expression = _expression(row, threshold)
            metric = cloudwatch.MathExpression(expression=expression, using_metrics=metrics, period=_seconds(period))
        made = metric.create_alarm(
            self,
            row.name,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=row.needed,
            comparison_operator=_COMPARISONS[row.comparison],
            treat_missing_data=_NO_DATA[row.no_data],
            alarm_description=row.description(self._name, self._kind, self._stack_name),
        )
        suppress(made, ACTION_OF_COMPOSITE)
        return made

    def _composite(self, call: Call) -> cloudwatch.CompositeAlarm | None:
        """The composite alarm of the made children, or None if there is no child."""
        children = [self._alarms[row.name] for row in self._rows if row.call is call and row.name in self._alarms]
        if not children:
            return None
        rules: list[cloudwatch.IAlarmRule] = list(children)
        for name, rule in (("AuditMissing", self._began), ("OldestMessage", self._stands_still)):
            if (alarm := self._alarms.get(name)) in children:
                rules[children.index(alarm)] = rule(alarm)
        made = cloudwatch.CompositeAlarm(
            self,
            call,
            alarm_rule=cloudwatch.AlarmRule.any_of(*rules),
            alarm_description=describe(self._name, call.meaning, "status", self._stack_name, RUNBOOKS),
        )
        resource = made.node.default_child
        assert isinstance(resource, cloudwatch.CfnCompositeAlarm), made.node.path
        # CDK's name is the same in another stack with the same constructs. CloudFormation makes one of its own.
        resource.add_property_deletion_override("AlarmName")
        return made

    def _began(self, missing: cloudwatch.Alarm) -> cloudwatch.IAlarmRule:
        """The rule of `AuditMissing`, which counts from the first tick of the audit.

        A second alarm on the same metric is never in ALARM, and without data until the first tick.
        """
        began = self._quiet(
            "AuditBegan",
            missing.metric,
            "no data until the first tick: AuditMissing calls nobody",
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.IGNORE,
        )
        no_data = cloudwatch.AlarmRule.from_alarm(began, cloudwatch.AlarmState.INSUFFICIENT_DATA)
        return cloudwatch.AlarmRule.all_of(missing, cloudwatch.AlarmRule.not_(no_data))

    def _stands_still(self, oldest: cloudwatch.Alarm) -> cloudwatch.IAlarmRule:
        """The rule of `OldestMessage`: a long recovery has old messages, and fair queues serve fresh ones before them.

        A second alarm is in ALARM while a recovery goes on. Metric math would have no value, and call nobody, in a
        pipeline that had no recovery: FILL needs a value in its range.
        """
        recovering = self._quiet(
            "Recovering",
            self.metric("Recovering", period=FIVE_MINUTES),
            "a recovery goes on: OldestMessage calls nobody",
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=3,
            datapoints_to_alarm=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        return cloudwatch.AlarmRule.all_of(oldest, cloudwatch.AlarmRule.not_(recovering))

    def _quiet(
        self, id: str, metric: cloudwatch.IMetric, meaning: str, **condition: Unpack[_Condition]
    ) -> cloudwatch.Alarm:
        """An alarm that calls nobody and that the rule of a composite reads."""
        made = cloudwatch.Alarm(self, id, metric=metric, alarm_description=f"{self._name}: {meaning}", **condition)
        suppress(made, ACTION_OF_COMPOSITE)
        return made

    def _action(self, action: AlarmAction | sns.ITopic) -> cloudwatch.IAlarmAction:
        """The action as CDK's interface. A topic is notified.

        Raises:
            IntakeConfigurationError: composite alarms cannot take it.

        """
        from aws_cdk import aws_cloudwatch_actions as actions  # noqa: PLC0415 - a third of a second

        if hasattr(action, "topic_arn"):
            return actions.SnsAction(cast("sns.ITopic", action))
        if isinstance(action, actions.Ec2Action | actions.ApplicationScalingAction | actions.AutoScalingAction):
            scope = self.node.scope or self
            refuse(scope.node.path, [ALARM_ACTION.problem(action=type(action).__name__)])
        return cast("cloudwatch.IAlarmAction", action)


def _expression(row: AlarmRow, threshold: float) -> str:
    """The metric math of an alarm. A token is a text of its own in it."""
    return row.expression.replace("{threshold}", Tokenization.stringify_number(threshold))


def _settle(settle_time: Duration | None) -> float:
    """Seconds that can be added to others: a token stands for a number that is not known."""
    seconds = to_seconds(settle_time) if settle_time else HOUR
    return HOUR if Token.is_unresolved(seconds) else seconds


@cache
def _seconds(number: float) -> Duration:
    """A duration for all alarms: each new one is a call of the CDK's process."""
    return Duration.seconds(number)
