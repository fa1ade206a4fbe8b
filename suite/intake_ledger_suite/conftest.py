"""The AWS of the tests, the two stacks, and the marks that say where a check can be seen."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from intake_ledger_suite import MARKERS
from intake_ledger_suite.deployed import Deployed
from intake_ledger_testing.account_cleanup import TAG, AccountAwsError
from intake_ledger_testing.account_cost import HOURS, estimate
from intake_ledger_testing.aws_environment import AwsEnvironment
from intake_ledger_testing.local_aws import LocalAws
from intake_ledger_testing.pytest_plugin import account_of, ask

STACKS = ("smoke", "checks")
"""The fixtures of the stacks."""
_HERE = Path(__file__).parents[1]
_AT_ONCE = 8
_START_SECONDS = 240.0
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Await the tests of the background last."""
    items.sort(key=lambda item: item.get_closest_marker("background") is not None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Announce the stacks and a bound of the cost, and ask."""
    account, option = account_of(session.config), session.config.option
    if account is None or option.collectonly or not (kinds := _wanted(session.items)):
        return
    try:
        templates = [one for kind in kinds for one in account.templates(_app(account, kind), cwd=_HERE)]
    except AccountAwsError as error:
        raise pytest.UsageError(str(error)) from None
    changes = sum(_changes(item) for item in session.items)
    what = ("goes on with", "keeps") if option.run else ("creates", "keeps" if option.keep else "deletes")
    stacks = " and ".join(f"{account.prefix}{kind}" for kind in kinds)
    ask(
        session.config,
        f"{what[0]} {stacks} with {sum(len(one['Resources']) for one in templates)} resources, all tagged {TAG}, runs "
        f"{len(session.items)} tests, and {what[1]} everything at the end. At most {estimate(templates, changes):.2f} "
        f"dollars for {HOURS} hours",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Write the assumptions of a test into the report, and skip a test that a local AWS cannot run."""
    for mark in item.iter_markers("assumptions"):
        item.user_properties.append(("assumptions", " ".join(mark.args)))
    if not _can_run(item):
        pytest.skip(f"not here: {_reason(item)}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Skip a test whose steps ran on a local AWS that cannot show the result. A failed step is a failure."""
    result = yield
    if (reason := _reason(pyfuncitem)) and _is_local(pyfuncitem.config):
        pytest.skip(f"not here: {reason}. Its steps ran")
    return result


@pytest.fixture(scope="session")
def aws(
    request: pytest.FixtureRequest, record_testsuite_property: Callable[[str, object], None]
) -> Iterator[AwsEnvironment]:
    """The account of `--aws-account`, or else a local AWS. At its end everything is deleted."""
    account = account_of(request.config)
    if account is not None:
        for name, value in {"release": _release(), "region": account.region, "local": account.is_local}.items():
            record_testsuite_property(name, value)
        try:
            yield account
        finally:
            account.stop()
        return
    record_testsuite_property("local", True)
    with LocalAws(start_timeout=_START_SECONDS) as local, pytest.MonkeyPatch.context() as patch:
        for name in _PROXIES:
            patch.delenv(name, raising=False)
        for name, value in local.environment.items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield local


@pytest.fixture(scope="session")
def smoke(aws: AwsEnvironment) -> Deployed:
    """The stack with each kind of work."""
    return _deployed(aws, "smoke")


@pytest.fixture(scope="session")
def checks(aws: AwsEnvironment, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    """The stack of the checks. Those of the background begin with it."""
    deployed = _deployed(aws, "checks")
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.get_closest_marker("background") and _can_run(item):
                running = pool.submit(item.obj, checks=deployed, evidence=partial(_note, item))
                item.obj = _awaiting(item.obj, running)
        yield deployed
    finally:
        deployed.stopping.set()
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Write evidence into the report of the test."""
    return partial(_note, request.node)


def _deployed(aws: AwsEnvironment, kind: str) -> Deployed:
    name = f"{aws.prefix}{kind}"
    return Deployed(aws, name, aws.deploy(_app(aws, kind), cwd=_HERE)[name])


def _app(aws: AwsEnvironment, kind: str) -> str:
    return f"{sys.executable} -m intake_ledger_suite.stacks {kind} {aws.prefix}{kind}"


def _awaiting(test: Callable[..., Any], running: Future[None]) -> Callable[..., Any]:
    @wraps(test)
    def wait(**_: Any) -> None:
        running.result()

    return wait


def _note(item: pytest.Item, text: str) -> None:
    item.user_properties.append(("evidence", text))


def _wanted(items: list[pytest.Item]) -> list[str]:
    names = {name for item in items for name in getattr(item, "fixturenames", ())}
    return [kind for kind in STACKS if kind in names]


def _changes(item: pytest.Item) -> int:
    mark = item.get_closest_marker("changes")
    return int(mark.args[0]) if mark else 1


def _can_run(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("only_on_aws")
    return mark is None or mark.kwargs.get("steps", False) or not _is_local(item.config)


def _reason(item: pytest.Item) -> str:
    mark = item.get_closest_marker("only_on_aws")
    return str(mark.args[0]) if mark else ""


def _is_local(config: pytest.Config) -> bool:
    account = account_of(config)
    return account is None or account.is_local


def _release() -> str:
    try:
        return version("cdk-intake-ledger")
    except PackageNotFoundError:
        return "unknown"
