"""The environment's variables choose kind and runner, and the entry point chooses the host."""

import subprocess
import sys

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger.consumer.composition import make_parts, make_runner
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.worker.worker import make_worker
from tests.kinds.conformance import REFUSED, Absence
from tests.unit.executions import test_durable
from tests.unit.messages.test_messages import ENVIRONMENT as MESSAGES
from tests.unit.protocol.test_settings import CONSUMER as OBJECTS
from tests.unit.sets import test_sets

KINDS = {
    "Objects": OBJECTS,
    "Messages": MESSAGES,
    "Sets": test_sets.TestSettings.ENVIRONMENT | {"INTAKE_PART_LISTS": "lists/of-sets/"},
}
RUNNERS = {
    "Inline": {"INTAKE_PROCESSOR": "json:dumps"},
    "Remote": {"INTAKE_PROCESSOR_FUNCTION": "other", "INTAKE_PROCESSOR": ""},
    "Later": {
        "INTAKE_STATE_MACHINE": "arn:aws:states:eu-central-1:111122223333:stateMachine:Work",
        "INTAKE_EXECUTION_SECONDS": "3600",
    },
    "Durable": test_durable.VARIABLES | {"INTAKE_DURABLE_EXECUTION_SECONDS": "3600"},
}

NAMES = {"inline": "Inline", "remote": "Remote", "machine": "Later", "durable": "Durable"}
LATER = {"Later": "StateMachine", "Durable": "DurableFunction"}
SOURCES = {"FIFO messages": "fifo", "stream records": "kinesis"}


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_cell_is_made_from_variables(kind: str, runner: str) -> None:
    """The same variables make a Lambda function and a worker."""
    environment = KINDS[kind] | RUNNERS[runner]
    parts = make_parts(environment)
    assert type(parts.kind).__name__ == kind
    made = make_runner(environment, parts.services)
    assert type(made).__name__ == ("Later" if runner in LATER else runner)
    if runner in LATER:
        assert type(vars(made)["_elsewhere"]).__name__ == LATER[runner]
    guards = [type(guard).__name__ for guard in make_worker(environment)._services.ledger._guards]
    assert guards == (["KeyLock", "Heartbeat"] if kind == "Messages" else ["Heartbeat"])
    longest_ms = 3_600_000 if runner in LATER else 0
    assert [vars(guard)["_longest_ms"] for guard in parts.kind.guards] == ([longest_ms] if kind == "Messages" else [])


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", ["Objects", "Sets"])
def test_groups_are_locked_in_each_cell(kind: str, runner: str) -> None:
    environment = KINDS[kind] | RUNNERS[runner] | {"INTAKE_EXCLUSIVE_BY": "in/{account}/"}
    [lock] = make_parts(environment).kind.guards
    assert type(lock).__name__ == "GroupLock"
    assert vars(lock)["_longest_ms"] == (3_600_000 if runner in LATER else 0)
    guards = [type(guard).__name__ for guard in make_worker(environment)._services.ledger._guards]
    assert guards == ["GroupLock", "Heartbeat"]


def test_the_changes_of_a_call_have_no_groups() -> None:
    variables = {"INTAKE_EXCLUSIVE_BY": "in/{account}/", "INTAKE_MAX_PER_CALL": "2"}
    environment = KINDS["Objects"] | RUNNERS["Inline"] | variables
    with pytest.raises(SettingsError, match="would hold several groups"):
        make_parts(environment)
    with pytest.raises(ValueError, match="exclusive_by is set, and a call would hold several groups"):
        LocalPipeline(lambda _: None, exclusive_by="in/{account}/", max_per_call=2)


def test_messages_have_keys_and_no_groups() -> None:
    with pytest.raises(SettingsError, match="Use the group as the key"):
        make_parts(KINDS["Messages"] | RUNNERS["Inline"] | {"INTAKE_EXCLUSIVE_BY": "in/{account}/"})


@pytest.mark.parametrize("cell", REFUSED, ids=lambda cell: f"{cell.kind} {cell.runner} {cell.host}")
def test_the_other_cells_are_refused(cell: Absence) -> None:
    environment = MESSAGES | RUNNERS[NAMES[cell.runner]] | {"INTAKE_MESSAGE_SOURCE": SOURCES[cell.kind]}
    with pytest.raises(SettingsError, match="INTAKE_MESSAGE_SOURCE is"):
        make_worker(environment) if cell.host == "worker" else make_parts(environment)


def test_calls_with_several_changes_are_made_from_variables_or_refused() -> None:
    """The constructs refuse the same at synthesis."""
    several = {"INTAKE_MAX_PER_CALL": "5"}
    for kind in ("Objects", "Messages"):
        environment = KINDS[kind] | RUNNERS["Inline"] | several
        services = make_parts(environment).services
        assert type(make_runner(environment, services)).__name__ == "InlineCalls"
        make_worker(environment)
    with pytest.raises(SettingsError, match=r"INTAKE_MAX_PER_CALL is '101', expected a whole number from 1 to 100"):
        make_parts(KINDS["Objects"] | RUNNERS["Inline"] | {"INTAKE_MAX_PER_CALL": "101"})
    for refused, text in (
        (KINDS["Objects"] | RUNNERS["Remote"], "another function"),
        (KINDS["Objects"] | RUNNERS["Later"], "an execution"),
        (KINDS["Objects"] | RUNNERS["Durable"], "an execution"),
        (KINDS["Objects"] | RUNNERS["Inline"] | {"INTAKE_CONCURRENCY": "2"}, "INTAKE_CONCURRENCY is 2"),
        (KINDS["Objects"] | RUNNERS["Inline"] | {"INTAKE_COMMIT_TOGETHER": "true"}, "INTAKE_COMMIT_TOGETHER is true"),
        (KINDS["Sets"] | RUNNERS["Inline"], "a set"),
        (MESSAGES | RUNNERS["Inline"] | {"INTAKE_MESSAGE_SOURCE": "fifo"}, "INTAKE_MESSAGE_SOURCE is fifo"),
    ):
        environment = refused | several
        with pytest.raises(SettingsError, match=f"INTAKE_MAX_PER_CALL is 5, and .*{text}"):
            make_runner(environment, make_parts(environment).services)


def test_a_cold_start_of_objects_imports_no_other_kind_and_no_other_runner() -> None:
    code = (
        "import sys, intake_ledger.consumer, intake_ledger.kinds\n"
        "wrong = ('messages', 'sets', 'keyed', 'executions', 'worker', 'later', 'remote', 'lambda_processor')\n"
        "wrong += ('calls',)\n"
        "ours = [name for name in sys.modules if name.startswith('intake_ledger.')]\n"
        "print([name for name in ours if set(name.split('.')) & set(wrong)])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
