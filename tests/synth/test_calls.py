"""The composite alarms: each seeded fault calls a person in time, and a healthy run calls nobody.

The metrics of the faults are evaluated on the synthesized alarms, as CloudWatch does it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns

from cdk_intake_ledger import IntakePipeline, MonitoringOptions
from intake_ledger.contract import ALARMS, KINDS, METRICS_NAMESPACE, Call
from tests.alarms import Point, composites_of
from tests.synth.build import Json, new_app, new_stack, only, processor, refused, resources, template_of
from tests.synth.test_alarms_of_all_kinds import CONSTRUCTS, HOURS, alarm, rows_of, stack_of_all_kinds

MINUTE = 60_000
HOUR, DAY = 60, 1_440
"""In minutes."""
FAULT_AT = 4 * DAY
RUNS = Path(__file__).parents[1] / "local" / "faults" / "README.md"
NOW, NP = Call.NOT_WORKING, Call.NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class Effect:
    """Values of the metric of an alarm after a fault: `number` values, each `every` minutes, from minute `first`."""

    alarm: str
    value: float = 1
    grows: float = 0
    first: int = 0
    every: int = 5
    number: int = 1


@dataclass(frozen=True, slots=True)
class Seeded:
    """A fault, and its bound: the minutes until its composite alarm is in ALARM."""

    kinds: Sequence[str]
    call: Call
    minutes: int
    effects: Sequence[Effect]


ALL, FILES, DELIVERED = tuple(KINDS), ("objects", "sets"), ("objects", "messages")
LETTER = Effect("DeadLetters", every=1, number=3 * DAY)
AGE = 3_600_000
FAULTS = {
    "one file is rejected": Seeded(ALL, NP, 10, [Effect("Rejected"), LETTER]),
    "SQS moves a message by maxReceiveCount": Seeded(ALL, NP, 10, [LETTER]),
    "a worker dies of memory at each attempt": Seeded(
        ALL, NOW, 35, [Effect("ConsumerFunctionErrors", every=15, number=12), Effect("Retries", every=15, number=12)]
    ),
    "the function cannot start": Seeded(ALL, NOW, 15, [Effect("ConsumerFunctionErrors", every=1, number=90)]),
    "the downstream is out": Seeded(ALL, NOW, 4 * HOUR, [Effect("DownstreamOut", 30, every=45, number=9)]),
    "the queue does not move": Seeded(ALL, NOW, 90, [Effect("OldestMessage", grows=300, number=36)]),
    "a setting of the delivery is changed": Seeded(DELIVERED, NOW, 20, [Effect("AuditDeliveryProblems", first=15)]),
    "events are lost": Seeded(ALL, NP, 10, [Effect("AuditFindings", 2)]),
    "the audit function fails": Seeded(["objects"], NOW, 35, [Effect("AuditFunctionErrors", every=15, number=4)]),
    "the dead-letter queue takes no copies": Seeded(ALL, NOW, 10, [Effect("CopiesRefused")]),
    "redriven messages are purged": Seeded(["messages"], NOW, 10, [Effect("CopiesLost")]),
    "identities do not vary": Seeded(["messages"], NP, 2 * HOUR, [Effect("IdentityCollides", 500)]),
    "a stream is not read": Seeded(["messages"], NOW, 25, [Effect("IteratorAge", AGE + 1, number=9)]),
    "no execution starts": Seeded(FILES, NOW, 35, [Effect("StartRefused", every=15, number=9)]),
    "no tag is taken": Seeded(["objects"], NOW, 10, [Effect("TagsRefused")]),
    "copies are refused, and all messages are in flight": Seeded(ALL, NOW, 10, [Effect("MessagesInFlight", 96_000)]),
    "a group is held, a rate is low, or a part is missing": Seeded(ALL, NP, 10, [Effect("LongWaits", 3)]),
    "an execution hangs": Seeded(ALL, NP, 13 * HOUR, [Effect("OldestClaim", grows=AGE, every=HOUR, number=5 * 24)]),
}
POISON = "one file is rejected"
SEEDED = {
    "workers killed in mid-batch": ["a worker dies of memory at each attempt"],
    "the same message to several at once": ["a worker dies of memory at each attempt"],
    "poison among many": [POISON],
    "moved back from the dead letters": [POISON],
    "messages under all faults": [POISON, "a worker dies of memory at each attempt"],
    "FIFO messages under all faults, events of a bus under all faults": [POISON],
    "records of Kinesis under all faults, records of a table under all faults": [POISON, "a stream is not read"],
    "sets under all faults": [POISON],
    "sets with a marker under all faults, quiet folders under all faults": [POISON],
    "wakes of sets are lost": ["events are lost"],
    "groups and a rate": ["a group is held, a rate is low, or a part is missing"],
    "several changes in a call": [POISON],
    "the downstream is out": ["the downstream is out"],
    "executions of a state machine": [POISON, "no execution starts"],
    "executions of a durable function": [POISON, "no execution starts"],
}
"""The fault runs, with the faults that need a person."""
HEALED = {
    "DynamoDB throttling and failing",
    "S3 slow and failing",
    "one GET in twenty is cut",
    "one key overwritten while it is held",
    "rejected rows",
}
"""The fault runs in which the ledger repairs all."""
CASES = [(name, kind) for name, fault in FAULTS.items() for kind in fault.kinds]


class Watched:
    """The composite alarms of a kind of work, and its metrics."""

    def __init__(self, template: Json, kind: str, *, letters: int = 0) -> None:
        self._kind = kind
        self._template = template
        begin = f"{CONSTRUCTS[kind]}Monitoring"
        found = composites_of(template)
        self.calls = {call: found[name] for call in Call for name in found if name[:-8] == begin + call}
        self._letters = letters

    def metrics(self, name: str) -> Iterator[tuple[str, str, frozenset[tuple[str, str]]]]:
        """Namespace, name and dimensions of the metrics of an alarm."""
        made = alarm(self._template, self._kind, name)
        for one in [one["MetricStat"]["Metric"] for one in made["Metrics"][1:]] if "Metrics" in made else [made]:
            dimensions = frozenset((each["Name"], str(each["Value"])) for each in one["Dimensions"])
            yield one["Namespace"], one["MetricName"], dimensions

    def write(self, name: str, minutes: range, value: float, *, grows: float = 0) -> list[Point]:
        """Values of the metric of an alarm."""
        namespace, metric, dimensions = next(self.metrics(name))
        return [
            Point(at * MINUTE, namespace, metric, dimensions, value + grows * number)
            for number, at in enumerate(minutes)
        ]

    def healthy(self, minutes: int) -> list[Point]:
        """A run without faults from the deployment on: no audit before the first tick, and the first one is long."""
        names = {row.name for row in rows_of(self._kind) if row.call is not None}
        ticks, audits = range(7, minutes, 15), range(7 + HOURS[self._kind] * HOUR, minutes, HOURS[self._kind] * HOUR)
        points = self.write("AuditMissing", range(7, 8), 1) + self.write("AuditMissing", audits, 1)
        points += self.write("AuditFindings", audits, 0)
        points += self.write("DeadLetters", range(0, minutes, 5), self._letters)
        points += self.write("OldestMessage", range(0, minutes, 5), 90)
        points += self.write("OldestClaim", range(0, minutes, HOUR), 50_000)
        points += self.write("ConsumerFunctionErrors", range(0, minutes, 5), 0)
        points += self.write("MessagesInFlight", range(0, minutes, 5), 40_000)
        for name in names & {"AuditDeliveryProblems"}:
            points += self.write(name, ticks, 0)
        for name in names & {"AuditIncomplete"}:
            points += self.write(name, audits, 0)
        return points

    def fault(self, effects: Sequence[Effect]) -> list[Point]:
        """The metrics of a fault that happens at `FAULT_AT`."""
        points = []
        for one in effects:
            first = FAULT_AT + one.first
            minutes = range(first, first + one.every * one.number, one.every)
            has = one.alarm in {row.name for row in rows_of(self._kind) if row.call is not None}
            points += self.write(one.alarm, minutes, one.value, grows=one.grows) if has else []
        return points

    def times(self, call: Call, points: Sequence[Point], begin: int, end: int) -> list[int]:
        """The minutes at which the composite is in ALARM, looked at every five minutes."""
        return [at for at in range(begin, end, 5) if self.calls[call].rings(points, at * MINUTE)]


@pytest.fixture(scope="module")
def template() -> Json:
    return template_of(stack_of_all_kinds(default=True))


@pytest.mark.failure_mode("F758")
@pytest.mark.parametrize("kind", KINDS)
def test_a_recovery_that_progresses_calls_nobody(template: Json, kind: str) -> None:
    """Two days of old messages, served one at least in ten minutes. When nothing is served any more, it calls."""
    watched, stops = Watched(template, kind), FAULT_AT + 2 * DAY
    points = watched.healthy(stops + 2 * HOUR)
    points += watched.fault([Effect("OldestMessage", 3 * HOUR * 60, grows=300, number=2 * DAY // 5 + 24)])
    served = range(FAULT_AT - 5, stops, 10)
    # The metric of the alarm that the composite reads beside it.
    dimensions = next(dimensions for _, _, dimensions in watched.metrics("Rejected"))
    points += [Point(at * MINUTE, METRICS_NAMESPACE, "Recovering", dimensions, 1) for at in served]
    assert not watched.times(NOW, points, FAULT_AT, stops)
    assert watched.times(NOW, points, stops, stops + 30)


def until_the_fault(points: Sequence[Point], name: str) -> list[Point]:
    """The values without those of one metric after the fault."""
    return [one for one in points if one.name != name or one.at < FAULT_AT * MINUTE]


@pytest.mark.failure_mode("F723")
@pytest.mark.parametrize("letters", [0, 1], ids=["nothing waits", "one uncleared dead letter"])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_each_seeded_fault_calls_within_its_bound(template: Json, name: str, kind: str, letters: int) -> None:
    """Also while one dead letter lies there that nobody has cleared."""
    fault, watched = FAULTS[name], Watched(template, kind, letters=letters)
    points, effects = watched.healthy(FAULT_AT + fault.minutes + HOUR), list(fault.effects)
    if LETTER in effects:
        points = until_the_fault(points, "ApproximateNumberOfMessagesVisible")
        effects[effects.index(LETTER)] = replace(LETTER, value=1 + letters)
    points += watched.fault(effects)
    assert not watched.times(fault.call, points, FAULT_AT - DAY, FAULT_AT)
    assert watched.times(fault.call, points, FAULT_AT, FAULT_AT + fault.minutes + 1)


@pytest.mark.failure_mode("F724")
@pytest.mark.parametrize("letters", [0, 1], ids=["nothing waits", "one uncleared dead letter"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_run_calls_nobody(template: Json, kind: str, letters: int) -> None:
    """From the deployment on: an audit that has not run yet is not missing, and the first one may take a day."""
    watched = Watched(template, kind, letters=letters)
    points = watched.healthy(5 * DAY)
    # The dead letter is new at the deployment.
    assert [watched.times(call, points, 15, 5 * DAY) for call in Call] == [[], []]


@pytest.mark.failure_mode("F725")
@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_that_stops_calls(template: Json, kind: str) -> None:
    """After two intervals, which the bound of a tick and a period follows."""
    watched, interval = Watched(template, kind), HOURS[kind] * HOUR
    points = until_the_fault(watched.healthy(FAULT_AT + 4 * interval), "AuditRuns")
    assert not watched.times(NOW, points, FAULT_AT - DAY, FAULT_AT)
    assert watched.times(NOW, points, FAULT_AT, FAULT_AT + 3 * interval)


@pytest.mark.failure_mode("F726")
@pytest.mark.parametrize("kind", KINDS)
def test_no_child_rings_for_days_for_what_a_person_leaves(template: Json, kind: str) -> None:
    """The composite is OK a day later, so that the next child calls again."""
    for name, fault in FAULTS.items():
        if fault.call is NP and kind in fault.kinds:
            watched = Watched(template, kind)
            points = watched.fault(fault.effects)
            [*_, last] = watched.times(NP, points, FAULT_AT, FAULT_AT + 4 * DAY)
            assert last <= FAULT_AT + fault.minutes + DAY, name


def test_each_fault_run_has_its_faults() -> None:
    runs = RUNS.read_text().split("## The runs")[1].split("##")[0]
    names = re.findall(r"^\| ([^|]+?) \| ", runs, re.MULTILINE)[1:]
    assert {one for one in names if not one.startswith("---")} == {*SEEDED} | HEALED
    assert {one for faults in SEEDED.values() for one in faults} <= set(FAULTS)
    watched = {one.alarm for fault in FAULTS.values() for one in fault.effects}
    assert watched >= {row.name for row in ALARMS if row.call} - {"AuditMissing", "AuditIncomplete"}


def test_each_composite_has_its_children(template: Json) -> None:
    """And a text with the stack, the first command and a whole address. CloudFormation makes its name."""
    for kind in KINDS:
        for call, made in Watched(template, kind).calls.items():
            expected = {row.name for row in rows_of(kind) if row.call is call}
            expected |= {"AuditBegan", "Recovering"} if call is NOW else set()
            begin = len(f"{CONSTRUCTS[kind]}Monitoring")
            assert {name[begin:-8] for name in made.children} == expected
            assert len(made.children) <= 100
    for one in resources(template, "AWS::CloudWatch::CompositeAlarm").values():
        properties = one["Properties"]
        assert "AlarmName" not in properties
        assert re.search(
            r" \(intake-ledger status --stack Kinds --pipeline \S+; https://github\.com/\S+/docs/runbooks\.md\)$",
            properties["AlarmDescription"],
        )


def test_only_composites_and_alarms_without_one_have_the_actions() -> None:
    """A child that a person asks for joins its composite. One that calls nobody carries the actions itself."""
    stack = new_stack()
    topic = sns.Topic(stack, "Pager")
    options = MonitoringOptions(alarms=["DeadLetters", "Retries"], alarm_actions=[topic])
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), monitoring=options)
    assert list(pipeline.monitoring.calls) == ["NeedsAPerson"]
    template = template_of(stack)
    [composite] = resources(template, "AWS::CloudWatch::CompositeAlarm").values()
    assert "AlarmActions" in composite["Properties"]
    assert "AlarmActions" in only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringRetries")
    assert "AlarmActions" not in only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringDeadLetters")


def test_without_children_there_is_no_composite() -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), monitoring=MonitoringOptions(alarms=["Retries"]))
    assert not resources(template_of(stack), "AWS::CloudWatch::CompositeAlarm")


@pytest.mark.failure_mode("F727")
def test_an_action_that_a_composite_cannot_take_is_refused() -> None:
    """CloudWatch would refuse it at the deployment."""
    reboot = actions.Ec2Action(actions.Ec2InstanceAction.REBOOT)
    with refused("alarm-action", "alarm_actions has the Ec2Action: .* no action of EC2 or Auto Scaling"):
        IntakePipeline(
            new_stack(), "Orders", processor=processor(), monitoring=MonitoringOptions(alarm_actions=[reboot])
        )


def test_a_function_and_an_ops_item_are_actions_of_a_composite() -> None:
    stack = new_stack()
    # Without it, CDK gives the permissions of two alarms the same ID.
    stack.node.set_context("@aws-cdk/aws-cloudwatch-actions:changeLambdaPermissionLogicalIdForLambdaAction", True)
    code = lambda_.Code.from_inline("def handler(event, context): ...")
    page = lambda_.Function(stack, "Page", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code)
    both: list[Any] = [actions.LambdaAction(page), actions.SsmAction(actions.OpsItemSeverity.HIGH)]
    IntakePipeline(stack, "Orders", processor=processor(), monitoring=MonitoringOptions(alarm_actions=both))
    made = resources(template_of(stack), "AWS::CloudWatch::CompositeAlarm").values()
    assert [len(one["Properties"]["AlarmActions"]) for one in made] == [2, 2]
    assert len(resources(template_of(stack), "AWS::Lambda::Permission", "Page")) == 2


def test_two_stacks_of_the_same_constructs_have_no_name_in_common() -> None:
    for name in ("First", "Second"):
        stack = Stack(new_app(), name)
        IntakePipeline(stack, "Orders", processor=processor())
        for one in resources(template_of(stack), "AWS::CloudWatch::CompositeAlarm").values():
            assert "AlarmName" not in one["Properties"]
            assert f" --stack {name} " in one["Properties"]["AlarmDescription"]
