"""The alarms of each kind of work are the rows of the table: alarms, dashboards, runbooks and their page."""

from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from scripts import alarms_page

from cdk_intake_ledger import FileSets, IntakePipeline, MessageSource, MonitoringOptions, Processor, SetForm, Tag
from cdk_intake_ledger.monitoring import intake_monitoring
from intake_ledger.contract import ALARMS, KINDS, METRICS, METRICS_NAMESPACE, AlarmRow, Limit, MetricRow, Need, Source
from tests.synth.build import Json, new_stack, processor, resources, template_of
from tests.synth.message_stack import messages, record_stream

CONSTRUCTS = {"objects": "Orders", "sets": "Loads", "messages": "Shop"}
HOURS = {"objects": 24, "sets": 1, "messages": 6}
"""The time between two audits."""
ROWS = [(row, kind) for row in ALARMS for kind in row.kinds]


def of_kind(stack: Stack, kind: str) -> Any:
    return stack.node.find_child(CONSTRUCTS[kind])


def rows_of(kind: str) -> list[AlarmRow]:
    """The alarms that the stack of all kinds may have."""
    without = Need.EXECUTIONS if kind == "messages" else Need.STREAM
    return [row for row in ALARMS if kind in row.kinds and row.need is not without]


def stack_of_all_kinds(*, default: bool) -> Stack:
    """A pipeline, sets and messages with all alarms, or with the default ones."""
    options = {
        kind: MonitoringOptions(alarms=None if default else [row.name for row in rows_of(kind)]) for kind in KINDS
    }
    stack = new_stack("Kinds")
    work = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass"))
    machine = sfn.StateMachine(stack, "Machine", definition_body=work, timeout=Duration.hours(1))
    started = Processor.from_state_machine(machine, timeout=Duration.hours(1))
    pipeline = IntakePipeline(
        stack, "Orders", processor=started, after_commit=Tag("intake", "done"), monitoring=options["objects"]
    )
    form = SetForm.manifest("in/*/manifest.json")
    FileSets(stack, "Loads", pipeline=pipeline, form=form, processor=started, monitoring=options["sets"])
    messages(stack, "Shop", MessageSource.kinesis(record_stream(stack)), monitoring=options["messages"])
    return stack


@pytest.fixture(scope="module")
def stack() -> Stack:
    return stack_of_all_kinds(default=False)


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return template_of(stack)


def alarm(template: Json, kind: str, name: str) -> Json:
    """The properties of an alarm."""
    made = resources(template, "AWS::CloudWatch::Alarm")
    [found] = [one for one in made if one[:-8] == f"{CONSTRUCTS[kind]}Monitoring{name}"]
    properties: Json = made[found]["Properties"]
    return properties


@pytest.mark.failure_mode("F243")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_the_alarms_of_the_table(stack: Stack, template: Json, kind: str) -> None:
    """In its order. `FileSets` had none for an open circuit breaker, for retries and for dead workers."""
    expected = [row.name for row in rows_of(kind)]
    assert list(of_kind(stack, kind).alarms) == expected
    made = resources(template, "AWS::CloudWatch::Alarm", f"{CONSTRUCTS[kind]}Monitoring")
    assert len(made) == len(expected) + 2, "those of the first audit and of a recovery"


@pytest.mark.failure_mode("F244")
@pytest.mark.parametrize(("row", "kind"), ROWS, ids=lambda value: getattr(value, "name", value))
def test_an_alarm_has_the_numbers_of_its_row(stack: Stack, template: Json, row: AlarmRow, kind: str) -> None:
    """Also the audit that does not run: after two intervals without a run."""
    if kind == "messages" and row.need is Need.EXECUTIONS:
        return
    made = alarm(template, kind, row.name)
    seconds = HOURS[kind] * 3_600
    if row.expression:
        # A metric math alarm has its metrics in a list.
        expression, *metrics = made["Metrics"]
        assert expression["Expression"] == row.expression.replace("{threshold}", f"{made['Threshold']}")
        names = {one["Id"]: one["MetricStat"]["Metric"]["MetricName"] for one in metrics}
        assert names == {"value": row.metric} | ({"other": row.other} if row.other else {})
        [period] = {one["MetricStat"]["Period"] for one in metrics}
        made = (
            made
            | metrics[0]["MetricStat"]["Metric"]
            | {"Period": period, "Statistic": metrics[0]["MetricStat"]["Stat"]}
        )
    assert made["MetricName"] == row.metric
    assert (made["Namespace"] == METRICS_NAMESPACE) == (row.source is Source.LEDGER)
    assert made["Period"] == (seconds if row.period is None else row.period)
    assert made["EvaluationPeriods"] == (row.periods if isinstance(row.periods, int) else row.periods(seconds))
    assert made.get("DatapointsToAlarm") == row.needed
    assert (made["Statistic"], made["TreatMissingData"]) == (row.statistic, row.no_data)
    if not isinstance(row.threshold, Limit):
        assert made["Threshold"] == row.threshold
    assert made["AlarmDescription"] == row.description(of_kind(stack, kind).name, kind, "Kinds")
    assert f"\n## {row.name}\n" in alarms_page.PAGE.read_text()


@pytest.mark.failure_mode("F681")
@pytest.mark.parametrize("kind", KINDS)
def test_the_alarm_of_dead_letters_watches_each_letter_of_the_consumer(template: Json, kind: str) -> None:
    """Also those of other contents of a rejected identity: all are in one queue, and one message is enough."""
    functions = resources(template, "AWS::Lambda::Function", CONSTRUCTS[kind]).values()
    variables = [one["Properties"].get("Environment", {}).get("Variables", {}) for one in functions]
    [url] = {str(one[name]): one[name] for one in variables if (name := "INTAKE_DLQ_URL") in one}.values()
    made = alarm(template, kind, "DeadLetters")
    for one in made["Metrics"][1:]:
        watched = one["MetricStat"]["Metric"]["Dimensions"]
        assert watched == [{"Name": "QueueName", "Value": {"Fn::GetAtt": [url["Ref"], "QueueName"]}}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dashboard_shows_the_metric_of_each_alarm(stack: Stack, kind: str) -> None:
    monitoring = of_kind(stack, kind).monitoring
    shown = str([stack.resolve(widget.to_json()) for widget in monitoring.widgets()])
    for row in ALARMS:
        if row.name in monitoring.alarms:
            assert f'"{row.metric}"' in shown or f"'{row.metric}'" in shown


def test_a_kind_without_an_alarm_or_a_metric_has_a_reason() -> None:
    rows: list[AlarmRow | MetricRow] = [*ALARMS, *METRICS.values()]
    for row in rows:
        assert bool(row.reason) == (set(row.kinds) != set(KINDS))
    for one in ALARMS:
        assert bool(one.no_call) == (one.call is None)
        if one.source is Source.LEDGER:
            assert set(one.kinds) <= set(METRICS[one.metric].kinds)


def test_a_new_alarm_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm, its choice, its description, its line in the dashboard and on the page follow. Its runbook is text."""
    meaning = "most messages are late"
    new = AlarmRow(name="ManyStale", metric="Stale", meaning=meaning, graph="Trouble", threshold=9, no_call="none")
    for module in (intake_monitoring, alarms_page):
        monkeypatch.setattr(module, "ALARMS", (*ALARMS, new))
    stack = new_stack()
    options = MonitoringOptions(alarms=["ManyStale"], thresholds={"ManyStale": 12})
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), monitoring=options)
    messages(stack, "Shop", MessageSource.sqs(), monitoring=options)
    made = [one["Properties"] for one in resources(template_of(stack), "AWS::CloudWatch::Alarm").values()]
    assert [one["Threshold"] for one in made] == [12, 12]
    assert ": most messages are late (intake-ledger status --stack Stack " in made[0]["AlarmDescription"]
    assert made[0]["AlarmDescription"].endswith("/docs/runbooks.md#manystale)")
    [trouble] = [one for one in pipeline.monitoring.widgets() if "Trouble" in str(one.to_json())]
    assert "Stale" in str(stack.resolve(trouble.to_json()))
    assert "| [ManyStale](#manystale) | all | `Stale` is at least 9, in 5 minutes | no: none |" in alarms_page.page()


def test_the_pages_of_alarms_and_metrics_are_current() -> None:
    """`python -m scripts.alarms_page --write` makes them so."""
    assert alarms_page.PAGE.read_text() == alarms_page.page()
    assert alarms_page.METRICS_PAGE.read_text() == alarms_page.metrics_page()


@pytest.mark.failure_mode("F470")
def test_the_age_of_a_claim_follows_from_the_runner(template: Json) -> None:
    """An execution may hold its claim for its limit and that of its last task, a function for its lease."""
    lease = {kind: alarm(template, kind, "OldestClaim")["Threshold"] / 3_600_000 for kind in KINDS}
    assert 3 < lease["objects"] < 4, "an hour of settle_time, an hour of the execution, and one of its last task"
    assert 3 < lease["sets"] < 4
    assert 1 < lease["messages"] < 1.5
