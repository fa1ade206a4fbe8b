"""F111: attempts that are repeated after their effect raise alarms, without a word from the worker that died.

The real consumer writes its metrics, and the alarms of the synthesized template are evaluated on them.
"""

from collections import Counter
from typing import Any

import pytest

from cdk_intake_ledger import IntakePipeline, MonitoringOptions
from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import ObjectChange
from intake_ledger.contract import ALARMS, OBJECTS
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger_testing import local_runtime
from tests.alarms import Alarm, Point, alarms_of, points_of
from tests.synth.build import Json, new_stack, processor, template_of, variables

FILES, REPEATS = 40, 2
NAMES = tuple(row.name for row in ALARMS if OBJECTS in row.kinds and row.need is None)
MINUTE = 60_000


class Repeating(LocalPipeline):
    """A pipeline in which the first attempts at each file end in a fault after their effect."""

    def __init__(self, fault: Fault, capsys: pytest.CaptureFixture[str], function: str) -> None:
        super().__init__(self._have_effect)
        self._fault_of_all = fault
        self._capsys = capsys
        self._function = frozenset({("FunctionName", function)})
        self.began = self.clock()
        self.effects: Counter[str] = Counter()
        self.points: list[Point] = []

    def _have_effect(self, change: ObjectChange) -> None:
        self.effects[change.key] += 1

    def _call(self, change: ObjectChange) -> Any:
        if self.effects[change.key] >= REPEATS:
            return super()._call(change)
        self._faults = [self._fault_of_all]
        if self._fault_of_all is Fault.TIMED_OUT:
            self.clock.now += 20_000
        else:
            self.points.append(Point(self.clock(), "AWS/Lambda", "Errors", self._function, 1))
        return super()._call(change)

    def _deliver(self) -> None:
        super()._deliver()
        self.points += points_of(self._capsys.readouterr().out, self.clock())

    def count(self, name: str) -> float:
        return sum(point.value for point in self.points if point.name == name)

    def rings(self, alarm: Alarm) -> bool:
        return alarm.ever_rings(self.points, since=self.began, until=max(point.at for point in self.points))


@pytest.fixture(scope="module")
def template() -> Json:
    """With the alarms about causes, which call nobody, and are made only if named."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), monitoring=MonitoringOptions(alarms=NAMES))
    return template_of(stack)


@pytest.fixture(autouse=True)
def _in_lambda(template: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics have the dimensions that the template's function gives them."""
    for name, value in variables(template, "OrdersConsumer").items():
        if name.startswith("POWERTOOLS_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(local_runtime, "OutcomeCounter", lambda _: PowertoolsTelemetry())


def repeated(template: Json, fault: Fault, capsys: pytest.CaptureFixture[str], *, batch_size: int) -> Repeating:
    """Forty uploads, 120 effects."""
    [function] = [name for name in template["Resources"] if name.startswith("OrdersConsumerFunction")]
    pipeline = Repeating(fault, capsys, str({"Ref": function}))
    pipeline._batch_size = batch_size
    for number in range(FILES):
        pipeline.put(f"in/{number}.csv", str(number))
    pipeline.run()
    assert pipeline.effects.total() == FILES * (REPEATS + 1)
    assert not pipeline.dead_letters
    return pipeline


def ringing(template: Json, pipeline: Repeating) -> set[str]:
    """The alarms that go off; no audit has run in this short time."""
    ids = {name for name, alarm in alarms_of(template).items() if pipeline.rings(alarm)}
    names = {name.removeprefix("OrdersMonitoring")[:-8] for name in ids}
    return names - {"AuditMissing"}


@pytest.mark.failure_mode("F111")
@pytest.mark.parametrize("batch_size", [1, 10])
def test_workers_that_die_after_their_effect_raise_alarms(
    template: Json, capsys: pytest.CaptureFixture[str], batch_size: int
) -> None:
    """The next worker tells of each before its own attempt, in which it may die too."""
    pipeline = repeated(template, Fault.KILLED_AFTER_EFFECT, capsys, batch_size=batch_size)
    assert pipeline.count("Retries") == pipeline.count("LapsedLeases") == FILES * REPEATS
    assert ringing(template, pipeline) >= {"LapsedLeases", "ConsumerFunctionErrors"}


@pytest.mark.failure_mode("F111")
def test_processors_that_time_out_after_their_effect_raise_an_alarm(
    template: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    """No worker dies, so that the function has no errors and no lease lapses."""
    pipeline = repeated(template, Fault.TIMED_OUT, capsys, batch_size=10)
    # A failure while the breaker is open spends no attempt.
    assert pipeline.count("Retries") > FILES
    assert pipeline.count("LapsedLeases") == 0
    assert ringing(template, pipeline) == {"Retries"}


@pytest.mark.failure_mode("F111")
def test_without_the_metrics_every_alarm_on_the_consumers_own_stays_silent(
    template: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the published incident. Only Lambda's own count of errors is left."""
    pipeline = repeated(template, Fault.KILLED_AFTER_EFFECT, capsys, batch_size=10)
    pipeline.points = [point for point in pipeline.points if point.name not in ("Retries", "LapsedLeases")]
    assert ringing(template, pipeline) == {"ConsumerFunctionErrors"}
    pipeline.points = [point for point in pipeline.points if point.namespace == "IntakeLedger"]
    assert ringing(template, pipeline) == set()


def test_a_single_death_and_a_few_retries_wake_nobody(template: Json) -> None:
    """A lost environment with a group of claims is repaired by the ledger, and so is one file's bad minute."""
    service = frozenset({("service", variables(template, "OrdersConsumer")["POWERTOOLS_SERVICE_NAME"])})
    [function] = [name for name in template["Resources"] if name.startswith("OrdersConsumerFunction")]
    died = [Point(0, "AWS/Lambda", "Errors", frozenset({("FunctionName", str({"Ref": function}))}), 1)]
    lapsed = [Point(5 * MINUTE, "IntakeLedger", name, service, 10) for name in ("LapsedLeases", "Retries")]
    busy = [
        Point(number * MINUTE, "IntakeLedger", name, service, value)
        for number in range(120)
        for name, value in (("Accepted", 100), ("Retries", 1))
    ]
    for points in (died + lapsed, busy):
        for name, alarm in alarms_of(template).items():
            if "AuditMissing" not in name:
                assert not alarm.ever_rings(points, since=0, until=180 * MINUTE), name
