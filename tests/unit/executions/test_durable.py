"""A durable function of Lambda as the processor."""

from collections.abc import Callable
from typing import Any

import botocore
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner
from intake_ledger.audit.executing import executing
from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import Action, Execution, decide, execution_name
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.place import place_of
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.settings import elsewhere_of, settings_from
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger_testing.memory_durable_functions import FUNCTION, MemoryDurableExecution, MemoryDurableFunctions
from intake_ledger_testing.memory_step_functions import MACHINE
from tests.known import known
from tests.unit.audit.support import AuditWorld
from tests.unit.support import DAY, HOUR, Clock

VARIABLES = {
    "INTAKE_DURABLE_FUNCTION": FUNCTION,
    "INTAKE_DURABLE_EXECUTION_SECONDS": "259200",
    "INTAKE_DURABLE_INVOCATION_SECONDS": "900",
    "INTAKE_DURABLE_EVENT_AGE_SECONDS": "3600",
}
NAME = execution_name(RowKey("bucket/a.csv", "p@latest"), 10**12)
LOST_ANSWER = ReadTimeoutError(endpoint_url="lambda")


@pytest.mark.parametrize(
    "wrong",
    [
        {"INTAKE_DURABLE_FUNCTION": FUNCTION.removesuffix(":12")},
        {"INTAKE_DURABLE_FUNCTION": FUNCTION.replace(":12", ":$LATEST")},
        {"INTAKE_DURABLE_EXECUTION_SECONDS": "0"},
        {"INTAKE_DURABLE_INVOCATION_SECONDS": ""},
        {"INTAKE_DURABLE_EVENT_AGE_SECONDS": "59"},
        {"INTAKE_DURABLE_EVENT_AGE_SECONDS": "21601"},
    ],
    ids=lambda wrong: ",".join(wrong.values()),
)
def test_settings_are_checked(wrong: dict[str, str]) -> None:
    assert settings_from(DurableSettings, VARIABLES) == DurableSettings(FUNCTION, 259_200, 900, 3600)
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        settings_from(DurableSettings, VARIABLES | wrong)


def test_a_consumer_has_one_processor() -> None:
    both = VARIABLES | {"INTAKE_STATE_MACHINE": MACHINE, "INTAKE_EXECUTION_SECONDS": "60"}
    with pytest.raises(SettingsError, match="INTAKE_STATE_MACHINE and INTAKE_DURABLE_FUNCTION"):
        elsewhere_of(both)


@pytest.mark.failure_mode("F537")
@pytest.mark.parametrize(
    ("release", "knows"), [("1.41.99", False), ("1.42.0", False), ("1.42.1", True), ("2.0.0", True)]
)
def test_a_consumer_with_an_old_botocore_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, release: str, *, knows: bool
) -> None:
    """Otherwise each start fails before it is sent, and looks as one whose answer was lost."""
    monkeypatch.setattr(botocore, "__version__", release)

    def make() -> object:
        return place_of(VARIABLES, lambda _: lambda: None, "ledger", Clock())

    if knows:
        assert isinstance(make(), DurableFunction)
        return
    with pytest.raises(SettingsError, match=rf"botocore is {release}: install 1\.42\.1"):
        make()


class Bench:
    """The requests about executions of one function, without a row."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.memory = MemoryDurableFunctions(clock=self.clock)
        self.place = self.make("ledger")

    def make(self, table: str) -> DurableFunction:
        """The place, as the consumer of a ledger makes it. A deploy has changed the version since the last one."""
        variables = VARIABLES | {"INTAKE_DURABLE_FUNCTION": self.memory.function}
        return DurableFunction(lambda: self.memory, settings_from(DurableSettings, variables), table, self.clock)

    @property
    def name(self) -> str:
        return self.place.name_of(NAME)

    def status(self, kept: str | None) -> str | None:
        """The status of the execution. None: it does not exist."""
        found = self.place.describe(NAME, kept)
        return None if found is None else found.status


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestNames:
    def test_two_ledgers_of_an_account_have_other_names(self, bench: Bench) -> None:
        """Names are unique in an account and region, and two ledgers may have the same keys."""
        bench.place.start(NAME, "{}")
        other = bench.make("another ledger")
        assert other.describe(NAME, None) is None
        other.start(NAME, '{"another": "input"}')
        assert len(bench.memory.executions) == 2

    @pytest.mark.failure_mode("F520")
    def test_a_repeated_start_is_the_same_execution(self, bench: Bench) -> None:
        """Also after its end, and with another payload: a deploy came between the two."""
        first = bench.place.start(NAME, "{}")
        bench.memory.end(bench.name)
        assert bench.place.start(NAME, "{}") == first
        kept = bench.place.start(NAME, '{"new": true}')
        assert bench.status(kept) == "SUCCEEDED"
        assert len(bench.memory.executions) == 1

    @pytest.mark.parametrize("lists_versions", [False, True])
    @pytest.mark.parametrize("lost", ["before", "after"])
    def test_a_lost_answer_is_found_by_name(self, bench: Bench, lost: str, lists_versions: bool) -> None:
        """Whichever list has it: what is written about AWS's lists differs."""
        bench.memory.lists_versions = lists_versions
        getattr(bench.memory, lost).append(LOST_ANSWER)
        with pytest.raises(ReadTimeoutError):
            bench.place.start(NAME, "{}")
        found = bench.place.describe(NAME, None)
        assert (found is None) == (lost == "before")
        if found is not None:
            assert (found.status, found.kept is not None) == ("RUNNING", True)

    def test_a_name_that_only_contains_ours_is_another_execution(self, bench: Bench) -> None:
        """AWS's references differ: the filter of a list takes the name, or names that contain it."""
        bench.memory.invoke(
            FunctionName=FUNCTION, InvocationType="Event", DurableExecutionName=f"{bench.name}-b", Payload=b"{}"
        )
        assert bench.place.describe(NAME, None) is None

    @pytest.mark.failure_mode("F521")
    def test_a_deploy_while_an_execution_runs_does_not_hide_it(self, bench: Bench) -> None:
        """A list has the executions of one version. The row has the ARN, and a repeated start gives it again."""
        kept = bench.place.start(NAME, "{}")
        bench.memory.function = FUNCTION.replace(":12", ":13")
        place = bench.make("ledger")
        running = known(place.describe(NAME, kept))
        assert running.status == "RUNNING"
        assert place.describe(NAME, None) is None
        assert place.describe(NAME, place.start(NAME, "{}")) == running
        assert len(bench.memory.executions) == 1


class TestStarts:
    @pytest.mark.failure_mode("F522")
    def test_an_accepted_start_may_wait_in_the_queue(self, bench: Bench) -> None:
        """Lambda has answered with an ARN that it does not know yet."""
        bench.memory.queue_seconds = 3000
        kept = bench.place.start(NAME, "{}")
        assert bench.status(kept) == "QUEUED"
        bench.clock.advance(2999 * 1000)
        assert bench.status(kept) == "QUEUED"
        bench.clock.advance(1000)
        assert bench.status(kept) == "RUNNING"

    @pytest.mark.failure_mode("F522")
    @pytest.mark.parametrize("arn", [False, True])
    def test_a_start_that_the_queue_drops_may_be_repeated(self, bench: Bench, arn: bool) -> None:
        """Not before the longest time in the queue."""
        bench.memory.queue_seconds = 2 * 3600
        kept = bench.place.start(NAME, "{}")
        kept = kept if arn else kept.split(" ")[0] + " "
        bench.clock.advance(HOUR + 59_000)
        assert bench.status(kept) == "QUEUED"
        bench.clock.advance(1000)
        assert bench.place.describe(NAME, kept) is None

    @pytest.mark.failure_mode("F523")
    @pytest.mark.parametrize("how", ["retention", "deleted"])
    def test_a_forgotten_execution_may_be_repeated(self, bench: Bench, how: str) -> None:
        kept = bench.place.start(NAME, "{}")
        bench.clock.advance(2 * HOUR)
        bench.memory.end(bench.name)
        if how == "deleted":
            bench.memory.delete(bench.name)
        else:
            bench.clock.advance(14 * DAY)
        assert bench.place.describe(NAME, kept) is None

    def test_a_failed_execution_that_was_deleted_does_not_wait_in_the_queue(self, bench: Bench) -> None:
        row = Row(Status.FAILED, 10**12)
        queued = Execution(NAME, "QUEUED")
        assert decide(row, queued, now=bench.clock(), longest_task_ms=0).action is Action.CLAIM

    def test_the_answer_to_an_earlier_fence_says_nothing(self, bench: Bench) -> None:
        earlier = execution_name(RowKey("bucket/a.csv", "p@latest"), 10**12 - 1)
        kept = bench.place.start(earlier, "{}")
        assert bench.place.describe(NAME, kept) is None

    def test_a_paused_execution_runs(self, bench: Bench) -> None:
        """Also one of any status that Lambda may get."""
        kept = bench.place.start(NAME, "{}")
        bench.memory.all[bench.name].status = "PAUSED"
        found = known(bench.place.describe(NAME, kept))
        assert not found.has_ended

    def test_an_error_names_its_type(self, bench: Bench) -> None:
        kept = bench.place.start(NAME, "{}")
        bench.memory.end(bench.name, "FAILED", error="KeyError", cause="'amount'")
        found = known(bench.place.describe(NAME, kept))
        with pytest.raises(Exception, match="the execution failed with KeyError"):
            commit_of(found)


class TestRows:
    """The whole consumer."""

    @staticmethod
    def pipeline(processor: Callable[[Any], Any] = lambda _: {"commit": "done"}) -> tuple[LocalPipeline, Any]:
        local = LocalPipeline(processor, runner=LocalRunner.DURABLE_FUNCTION)
        return local, local.executions

    @pytest.mark.failure_mode("F522")
    def test_a_dropped_start_is_repeated_under_its_fence(self) -> None:
        """A new fence would let a paused worker start the old one next to it. It costs no attempt."""
        local, functions = self.pipeline()
        functions.queue_seconds = 2 * 3600
        local.put("a.csv", "1")
        local.turn(local.new_worker())
        first = local.row("a.csv")
        functions.queue_seconds = 0
        local.run()
        row = local.row("a.csv")
        assert first is not None
        assert row is not None
        assert (row.status, row.attempts, row.fence) == (Status.PROCESSED, 1, first.fence)
        [execution] = functions.executions.values()
        [dropped] = functions.forgotten
        assert (dropped.stopped_at, dropped.input) == (None, execution.input)

    def test_the_row_keeps_the_arn(self) -> None:
        """Without it, each later message would search for the execution by name."""
        local, functions = self.pipeline()
        local.put("a.csv", "1")
        local.run()
        [execution] = functions.executions.values()
        row = known(local.row("a.csv"))
        assert row.execution == f"{execution.accepted_at} {execution.arn}"
        assert functions.requests == ["Invoke", "GetDurableExecution", "GetDurableExecution"]

    @pytest.mark.failure_mode("F524")
    @pytest.mark.parametrize("status", ["STOPPED", "TIMED_OUT"])
    def test_a_stopped_execution_has_no_successor_before_its_invocation_must_have_ended(self, status: str) -> None:
        local, functions = self.pipeline()
        local.put("a.csv", "1")
        local.turn(local.new_worker())
        [name] = functions.executions
        ended_at = local.now
        functions.end(name, status)
        local.run()
        _, second = functions.executions.values()
        assert second.accepted_at >= ended_at + 2 * HOUR

    def test_a_longer_input_than_lambda_takes_is_rejected(self, bench: Bench) -> None:
        assert bench.place.most_bytes == 256 * 1024
        with pytest.raises(ClientError, match="RequestTooLarge"):
            bench.place.start(NAME, '"' + "a" * bench.place.most_bytes + '"')


@pytest.mark.failure_mode("F522")
@pytest.mark.parametrize("queued", [False, True])
def test_the_audit_leaves_a_row_to_its_execution(queued: bool) -> None:
    """Also while the start waits in Lambda's queue. After the end, it finds the row."""
    world = AuditWorld()
    memory = MemoryDurableFunctions(clock=world.clock)
    memory.queue_seconds = 1800 if queued else 0
    table = world.settings.table
    place = DurableFunction(lambda: memory, settings_from(DurableSettings, VARIABLES), table, world.clock)
    state = world.s3.put("talk.mp3")
    name = execution_name(world.row_key("talk.mp3", state), 7)
    kept = place.start(name, "{}")
    world.insert("talk.mp3", state, Status.PROCESSING, lease_until=world.clock() - 60_000, execution=kept)
    world.is_executing = executing(VARIABLES, lambda _: memory, table, world.clock)
    assert world.run().counts == {}
    world.clock.advance(HOUR)
    memory.end(place.name_of(name))
    assert world.run().counts == {"unsettled": 1}


def test_starts_are_remembered_by_name() -> None:
    """The kit has AWS's rules: the same name and payload is the same execution, with another payload it is refused."""
    memory = MemoryDurableFunctions(clock=Clock())
    same = {"FunctionName": FUNCTION, "InvocationType": "Event", "DurableExecutionName": "a", "Payload": b"{}"}
    assert memory.invoke(**same) == memory.invoke(**same)
    with pytest.raises(ClientError, match="DurableExecutionAlreadyStartedException"):
        memory.invoke(**same | {"Payload": b"[]"})
    with pytest.raises(ClientError, match="ValidationException"):
        memory.invoke(**same | {"DurableExecutionName": "a" * 65})
    assert [type(one) for one in memory.executions.values()] == [MemoryDurableExecution]
