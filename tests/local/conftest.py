"""One local AWS and one deployment for all tests that need AWS."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, override

import pytest

from cdk_intake_ledger.testing import LocalAws
from intake_ledger_cli import commands
from tests.local.audit_run import STACK as AUDITED
from tests.local.audit_run import scenario as audit_run
from tests.local.faults import IN_TESTS, STACK
from tests.local.faults.lines import AT_ONCE, run
from tests.local.faults.sizes import SHORT
from tests.local.faults.world import Sources
from tests.local.long_work.elsewhere_stack import STACK as ELSEWHERE
from tests.local.messages.message_stack import STACK as MESSAGES
from tests.local.recorded import put_code
from tests.local.sets.sets_stack import STACK as SETS
from tests.local.support import TIMEOUT, Catalogue, Pipeline
from tests.local.worker_run import STACK as WORKED
from tests.local.worker_run import scenario as worker_run

if TYPE_CHECKING:
    from tests.local.faults.outcomes import Outcome

ROOT = Path(__file__).resolve().parents[2]
Outputs = dict[str, dict[str, str]]
Typed = Callable[..., str]


LATE = ("dying_worker", "faults", "audited", "worked")
"""Fixtures that take minutes, most of it in waiting: a worker that dies, and the runs of faults, audit and workers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks how those ended comes last of all tests."""
    items.sort(key=lambda item: not _wanted([item]).isdisjoint(LATE))


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """They are begun before everything else here, if a test that was chosen wants them."""
    for name in LATE:
        if name in _wanted(request.session.items):
            request.getfixturevalue(name)


def _wanted(items: list[pytest.Item]) -> set[str]:
    return {name for item in items for name in getattr(item, "fixturenames", ())}


class PatientAws(LocalAws):
    """A local AWS whose conditions may take longer, on a busy machine."""

    @override
    def wait_until[T](
        self, condition: Callable[[], T], what: str, *, timeout: float = TIMEOUT, interval: float = 0.1
    ) -> T:
        return super().wait_until(condition, what, timeout=timeout, interval=interval)


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    with PatientAws(start_timeout=TIMEOUT) as local:
        yield local


@pytest.fixture(scope="session")
def sources(aws: LocalAws) -> Sources:
    """Where the faults come from that the deployed pipelines are to survive."""
    return Sources(aws)


@pytest.fixture(scope="session")
def outputs(
    request: pytest.FixtureRequest, aws: LocalAws, sources: Sources, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outputs]:
    """All stacks, without those of fixtures that no chosen test wants."""
    code = tmp_path_factory.mktemp("processors")
    users = {
        "faults": STACK,
        "audited": AUDITED,
        "worked": WORKED,
        "sets": SETS,
        "message_stacks": MESSAGES,
        "elsewhere": ELSEWHERE,
    }
    wanted = _wanted(request.session.items)
    without = " ".join(stack for fixture, stack in users.items() if fixture not in wanted)
    with sources.running() as context:
        given = {"code": str(code), "without": without, **context}
        yield aws.deploy(f"{sys.executable} -m tests.local.pipelines.stacks", context=given, cwd=ROOT)


@pytest.fixture(scope="session")
def pipeline(aws: LocalAws, outputs: Outputs) -> Callable[[str, str], Pipeline]:
    """The pipeline of a stack by its id."""

    def named(stack: str, id: str) -> Pipeline:
        found = outputs[stack]
        return Pipeline(aws, found[f"{id}Bucket"], found[f"{id}Function"], found["EffectsTable"])

    return named


@pytest.fixture(scope="session")
def faults(sources: Sources, outputs: Outputs) -> "Iterator[dict[str, Future[list[Outcome]]]]":
    """The short form of the fault runs, by pipeline: in the background, since all that they do for most of the time is
    wait for messages to come back.
    """
    pool = ThreadPoolExecutor(AT_ONCE)
    yield {name: pool.submit(run, sources, outputs[STACK], SHORT, [name]) for name in IN_TESTS}
    # Who wants no outcome does not wait; what still runs then ends with the local AWS.
    pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def audited(aws: LocalAws, outputs: Outputs) -> "Iterator[Future[audit_run.Outcome]]":
    """The short form of the audit's run, in the background too: it waits for the lease of a run that was killed."""
    pool = ThreadPoolExecutor(1)
    yield pool.submit(audit_run.run, aws, outputs[AUDITED], 500)
    pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def worked(
    aws: LocalAws, outputs: Outputs, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[Future[worker_run.Outcome]]":
    """The short form of the workers' run, in the background too: it waits for leases of workers that were killed."""
    code = tmp_path_factory.mktemp("working")
    put_code(code)
    pool = ThreadPoolExecutor(1)
    yield pool.submit(worker_run.run, aws, outputs[WORKED], code, worker_run.SHORT)
    pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def typed(aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run `intake-ledger` against the local AWS, and return what it prints, on standard error if its code is not 0."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)

    def run(*arguments: str, code: int = 0) -> str:
        ended = commands.run(arguments)
        captured = capsys.readouterr()
        assert ended == code, captured
        return captured.err if code else captured.out

    return run


@pytest.fixture(scope="session")
def catalogue(aws: LocalAws, outputs: Outputs) -> Catalogue:
    """The example."""
    found = outputs["Local"]
    named = found | {"Bucket": found["BucketName"], "Function": found["ConsumerFunction"]}
    return Catalogue.of(aws, named, effects_table=found["EffectsTable"], table=found["CatalogueTable"])


@pytest.fixture(scope="session")
def dying_worker(pipeline: Callable[[str, str], Pipeline]) -> tuple[Pipeline, str, str]:
    """An upload whose worker is killed; its message stays hidden for most of a minute."""
    second = pipeline("Local", "Second")
    key = "worker-dies-once.bin"
    return second, key, second.put(key, b"survives")
