"""The alarms of each pipeline, and its metrics and widgets."""

import re
from pathlib import Path

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns

from cdk_intake_ledger import (
    AuditOptions,
    IntakeLedger,
    IntakePipeline,
    MessageSource,
    MonitoringOptions,
)
from intake_ledger.contract import ALARMS, METRICS, OBJECTS
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.verdict import VERDICT_METRICS
from tests.synth.build import (
    Json,
    new_stack,
    only,
    processor,
    refused,
    resources,
    template_of,
    template_with,
    variables,
    warned,
)
from tests.synth.message_stack import messages

ROOT = Path(__file__).parents[2]
OTHER = "arn:aws:sns:eu-central-1:111122223333:other"
NAMES = [row.name for row in ALARMS if OBJECTS in row.kinds and row.need is None and row.call is not None]
CAUSES = ["Fenced", "Retries", "LapsedLeases", "ConsumerFunctionThrottles"]


@pytest.fixture(scope="module")
def stack() -> Stack:
    stack = new_stack()
    topic, other = sns.Topic(stack, "Pager"), sns.Topic.from_topic_arn(stack, "Other", OTHER)
    pipeline = IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        monitoring=MonitoringOptions(alarms=[*NAMES, *CAUSES], alarm_actions=[actions.SnsAction(topic), topic, other]),
    )
    dashboard = cloudwatch.Dashboard(stack, "Dashboard")
    dashboard.add_widgets(*pipeline.monitoring.widgets())
    pipeline.metric("Failed", period=Duration.minutes(1)).create_alarm(
        stack, "OfTheTeams", threshold=10, evaluation_periods=1
    )
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return template_of(stack)


def alarm(template: Json, name: str) -> Json:
    return only(template, "AWS::CloudWatch::Alarm", f"OrdersMonitoring{name}")


def test_composites_and_causes_that_were_asked_for_call(template: Json) -> None:
    """They have the actions, and no other alarm has them."""
    (topic,) = resources(template, "AWS::SNS::Topic")
    composites = [one["Properties"] for one in resources(template, "AWS::CloudWatch::CompositeAlarm").values()]
    assert len(composites) == 2
    for one in (*composites, *(alarm(template, name) for name in CAUSES)):
        assert one["AlarmActions"] == [{"Ref": topic}, {"Ref": topic}, OTHER]
    assert not [name for name in NAMES if "AlarmActions" in alarm(template, name)]
    assert "AlarmActions" not in only(template, "AWS::CloudWatch::Alarm", "OfTheTeams")


def test_without_an_action_alarms_are_only_shown() -> None:
    """The alarms exist. An action can be added to each later."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    assert list(pipeline.alarms) == NAMES
    pipeline.alarms["DeadLetters"].add_alarm_action(actions.SnsAction(sns.Topic(stack, "Pager")))
    template = template_of(stack)
    assert "AlarmActions" in alarm(template, "DeadLetters")
    assert "AlarmActions" not in alarm(template, "Rejected")


TABLE = """
    Rejected                   Rejected                       Sum      >= 1     1 of 1   300  notBreaching
    Fenced                     Fenced                         Sum      >= 1     1 of 1   300  notBreaching
    AuditFindings              AuditFindings                  Sum      >= 1     1 of 1   300  notBreaching
    LapsedLeases               LapsedLeases                   Sum      >= 1     2 of 12  300  notBreaching
    Retries                    Retries                        Sum      >= 10    3 of 12  300  notBreaching
    ConsumerFunctionErrors     Errors                         Sum      >= 1     2 of 12  300  notBreaching
    ConsumerFunctionThrottles  Throttles                      Sum      >= 1     3 of 3   300  notBreaching
    AuditFunctionErrors        Errors                         Sum      >= 1     2 of 12  300  notBreaching
    OldestMessage              ApproximateAgeOfOldestMessage  Maximum  > 3600   3 of 3   300  notBreaching
    DownstreamOut              BreakerOpen                    Sum      >= 1     2 of 4  3600  notBreaching
    AuditDeliveryProblems      AuditDeliveryProblems          Maximum  >= 1     1 of 1   300  ignore
"""
"""Each alarm with its metric, its statistic and threshold, its datapoints, and what missing data are.

A metric without events has no data, which must not cause an alarm. The next invocation repairs a single failure. An
outage of hours sends no dead letters, so it needs an alarm of its own. A problem of the delivery remains between two
audits.
"""
BY_INTERVAL = """
    5 minutes  AuditMissing     AuditRuns        Sum      < 1   2 of 2    300  breaching
    1 day      AuditMissing     AuditRuns        Sum      < 1   2 of 2  86400  breaching
    6 days     AuditMissing     AuditRuns        Sum      < 1   7 of 7  86400  breaching
    5 minutes  AuditIncomplete  AuditIncomplete  Minimum  >= 1  2 of 2    300  notBreaching
    1 day      AuditIncomplete  AuditIncomplete  Minimum  >= 1  2 of 2  86400  notBreaching
    3 days     AuditIncomplete  AuditIncomplete  Minimum  >= 1  1 of 1  86400  notBreaching
"""
"""The same for an audit, by its interval.

Nothing else would show that delivery is broken, so missing data of its runs cause an alarm. A 0 is a complete run.
"""
OPERATORS = {
    ">=": "GreaterThanOrEqualToThreshold",
    ">": "GreaterThanThreshold",
    "<": "LessThanThreshold",
}


def check_alarm(template: Json, line: str) -> Json:
    """Compare an alarm with its line."""
    name, metric, statistic, operator, threshold, datapoints, _, periods, period, missing = line.split()
    properties = alarm(template, name)
    assert (properties["MetricName"], properties["Statistic"]) == (metric, statistic)
    assert (properties["ComparisonOperator"], properties["Threshold"]) == (OPERATORS[operator], int(threshold))
    found = (properties.get("DatapointsToAlarm", properties["EvaluationPeriods"]), properties["EvaluationPeriods"])
    assert found == (int(datapoints), int(periods))
    assert (properties["Period"], properties["TreatMissingData"]) == (int(period), missing)
    return properties


@pytest.mark.failure_mode("F23", "F46", "F111")
@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_each_alarm_is_that_of_the_table(template: Json, line: str) -> None:
    properties = check_alarm(template, line)
    if properties["MetricName"] in METRICS and properties["Namespace"] == "IntakeLedger":
        service = variables(template, "OrdersConsumer")["POWERTOOLS_SERVICE_NAME"]
        assert properties["Dimensions"] == [{"Name": "service", "Value": service}]
    else:
        assert properties["Namespace"].startswith("AWS/")


@pytest.mark.failure_mode("F46")
@pytest.mark.parametrize("line", BY_INTERVAL.strip().splitlines())
def test_alarms_of_an_audit_follow_from_its_interval(line: str) -> None:
    number, unit, row = line.split(maxsplit=2)
    interval = {"m": Duration.minutes, "d": Duration.days}[unit[0]](int(number))
    check_alarm(template_with(audit=AuditOptions(interval=interval)), row)


@pytest.mark.failure_mode("F313")
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("Comitted", "'Committed'"),
        ("removed_unprocessed", "'RemovedUnprocessed'"),
        ("BREAKEROPEN", "'BreakerOpen'"),
        ("InvoicesParsed", "one of Accepted, "),
    ],
)
def test_a_metric_that_no_function_writes_is_refused(name: str, right: str) -> None:
    """An alarm on it would never go off."""
    pipeline = IntakePipeline(new_stack(), "Orders", processor=processor())
    for owner in (pipeline, pipeline.monitoring):
        with refused("metric-name", f"metric_name is '{name}', .* Write {right}"):
            owner.metric(name)


@pytest.mark.failure_mode("F313")
def test_a_metric_that_the_kind_does_not_write_is_refused() -> None:
    """With the reason, and the constructs that write it."""
    intake = messages(new_stack(), "Shop", MessageSource.sqs())
    for owner in (intake, intake.monitoring):
        text = "'DirectoryMarkers', and MessageIntake does not write it: .* Watch it on the IntakePipeline"
        with refused("metric-of-other-kind", text):
            owner.metric("DirectoryMarkers")


def test_the_metrics_are_those_that_the_functions_write() -> None:
    """Another name would give an empty graph."""
    sources = [path.read_text() for path in (ROOT / "lambda_src").rglob("*.py") if path.name != "contract.py"]
    written = {name for source in sources for name in re.findall(r'"([A-Z]\w+)"', source)}
    assert written >= set(METRICS)
    assert {*VERDICT_METRICS.values(), *OutcomeKind} <= set(METRICS)
    counted = {name for source in sources for name in re.findall(r'_(?:count|time)\("(\w+)"', source)}
    assert counted <= set(METRICS)


def test_queues_are_watched(template: Json) -> None:
    """The growth of the dead-letter queue, and the queue's age against the audit's settle time."""
    depth, age = alarm(template, "DeadLetters"), alarm(template, "OldestMessage")
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
    (queue,) = resources(template, "AWS::SQS::Queue", "OrdersQueueMessages")
    for one in depth["Metrics"][1:]:
        watched = one["MetricStat"]["Metric"]["Dimensions"]
        assert watched == [{"Name": "QueueName", "Value": {"Fn::GetAtt": [dead_letters, "QueueName"]}}]
    assert age["Dimensions"] == [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}]
    assert depth["TreatMissingData"] == "notBreaching"


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("interval", [Duration.minutes(5), Duration.minutes(15), Duration.days(1)])
def test_the_alarm_goes_off_within_one_tick(interval: Duration) -> None:
    """One tick is enough. Ticks are at most 15 minutes apart, and no period has two of them."""
    template = template_with(audit=AuditOptions(interval=interval))
    properties = alarm(template, "AuditDeliveryProblems")
    assert (properties["EvaluationPeriods"], properties.get("DatapointsToAlarm", 1)) == (1, 1)
    minutes = int(only(template, "AWS::Scheduler::Schedule")["ScheduleExpression"].split("(")[1].split(" ")[0])
    assert minutes <= 15
    assert properties["Period"] <= minutes * 60


def test_an_audit_too_rare_to_be_watched_is_said() -> None:
    """CloudWatch evaluates at most 7 days, and refuses a longer alarm at deployment."""
    stack = new_stack()
    audit = AuditOptions(interval=Duration.minutes(6 * 1_440 + 1))
    ledger = IntakeLedger(stack, "Ledger", retention=Duration.days(40))
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), audit=audit, ledger=ledger)
    assert list(pipeline.alarms) == [name for name in NAMES if name != "AuditMissing"]
    assert warned(stack, "audit-not-watched")


@pytest.mark.failure_mode("F111")
def test_functions_are_watched_by_their_own_names(template: Json) -> None:
    """The consumer's errors and throttles, and the audit's errors."""
    for name, function in (
        ("ConsumerFunctionErrors", "OrdersConsumerFunction"),
        ("ConsumerFunctionThrottles", "OrdersConsumerFunction"),
        ("AuditFunctionErrors", "OrdersAuditFunction"),
    ):
        (logical_id,) = resources(template, "AWS::Lambda::Function", function)
        assert alarm(template, name)["Namespace"] == "AWS/Lambda"
        assert alarm(template, name)["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": logical_id}}]


def test_a_metric_takes_cdks_options(template: Json) -> None:
    """The period is a minute instead of five."""
    own = only(template, "AWS::CloudWatch::Alarm", "OfTheTeams")
    assert (own["MetricName"], own["Period"], own["Statistic"]) == ("Failed", 60, "Sum")


def test_the_age_of_duplicates_is_a_time() -> None:
    """All other metrics are counts, whose statistic is the sum."""
    pipeline = IntakePipeline(new_stack(), "Orders", processor=processor())
    assert pipeline.metric("DuplicateAge").statistic == "Maximum"
    assert pipeline.metric("DuplicateAge", statistic="p99").statistic == "p99"
    assert pipeline.metric("Duplicates").statistic == "Sum"


def test_a_dashboard_shows_all_of_it(template: Json) -> None:
    """The widgets show each alarm and each metric of the pipeline."""
    body = str(only(template, "AWS::CloudWatch::Dashboard")["DashboardBody"])
    for name in NAMES:
        assert f"OrdersMonitoring{name}" in body
    for name in (
        "Accepted",
        "Committed",
        "Duplicates",
        "Stale",
        "Busy",
        "Failed",
        "Retries",
        "LapsedLeases",
        "CommitLag",
        "DuplicateAge",
        "Errors",
        "Throttles",
        "UnreadableMessages",
        "AuditResubmitted",
        "AuditIncomplete",
    ):
        assert f'\\"{name}\\"' in body or f'"{name}"' in body, name


def test_a_pipeline_makes_its_own_dashboard_once() -> None:
    """The default template has none, and a second call adds none."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    dashboard = pipeline.monitoring.dashboard(name="orders-intake")
    assert pipeline.monitoring.dashboard() is dashboard
    properties = only(template_of(stack), "AWS::CloudWatch::Dashboard")
    assert properties["DashboardName"] == "orders-intake"
    assert "OrdersMonitoringDeadLetters" in str(properties["DashboardBody"])


def test_a_team_with_monitoring_of_its_own_takes_ours_out() -> None:
    """No other resource depends on it."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    assert pipeline.node.try_remove_child("Monitoring")
    assert not resources(template_of(stack), "AWS::CloudWatch::Alarm")
