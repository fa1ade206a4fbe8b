"""A plugin of pytest: options of tests on an account, and silence about releases of Node.js.

`--aws-account` brings the other options with it, so that their names are free in tests without an account.

jsii's banner about old releases has ten lines and comes with each start of Node.js, also for releases that the CDK
supports. jsii reads the variables when a test first imports the CDK. Set one of them yourself, for example to an empty
text, to see the banner.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intake_ledger_testing.account_aws import AccountAws

TESTED_NODE_RELEASES = "20,22,24"
VARIABLES = ("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION")
_ACCOUNT = pytest.StashKey["AccountAws"]()
_SIGNALS = pytest.StashKey[list[int]]()
_TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells name it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses an account."""
    parser.getgroup("an AWS account").addoption(
        "--aws-account",
        metavar="ID",
        help="Run tests on this account, with the credentials and the region of the AWS SDK, and not on a local AWS. "
        "It adds the options --yes, --keep, --run and --cleanup.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Add the other options if an account is chosen: before pytest reads the arguments for good."""
    if not early_config.known_args_namespace.aws_account:
        return
    group = parser.getgroup("an AWS account")
    group.addoption("--yes", action="store_true", help="Do not ask.")
    group.addoption("--keep", action="store_true", help="Keep the stacks at the end, and print the ID of the run.")
    group.addoption("--run", metavar="ID", default="", help="Go on with the stacks of a kept run, and keep them.")
    group.addoption(
        "--cleanup", action="store_true", help="Run no test. Delete what --run, or else any earlier run, has left."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the variables that the environment does not have, and read the options of an account."""
    for variable in VARIABLES:
        os.environ.setdefault(variable, TESTED_NODE_RELEASES)
    if not config.getoption("aws_account", None):
        return
    from intake_ledger_testing.account_aws import AccountAws, AccountAwsError  # noqa: PLC0415 - it needs boto3

    if config.getoption("cleanup") and config.getoption("keep"):
        raise pytest.UsageError("--cleanup deletes, and --keep does not: use one of them")

    def say(line: str) -> None:
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    options = config.option
    try:
        # A cleanup goes on with no run.
        run = "" if options.cleanup else options.run
        config.stash[_ACCOUNT] = AccountAws(options.aws_account, run=run, keep=options.keep, say=say)
    except AccountAwsError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Check the account. Let SIGTERM end the tests as Ctrl-C does: pytest alone would run no teardown."""
    if (aws := account_of(session.config)) is None:
        return
    from intake_ledger_testing.account_aws import AccountAwsError  # noqa: PLC0415 - as above

    try:
        aws.start()
        if session.config.option.cleanup:
            _clean_up(session.config, aws)
    except AccountAwsError as error:
        raise pytest.UsageError(str(error)) from None
    signals = session.config.stash[_SIGNALS] = list[int]()

    def terminate(number: int, _frame: object) -> None:
        signals.append(number)
        # The first one does not end a deletion that is under way.
        if len(signals) > 1 or not aws.is_deleting:
            # SDKs catch each Exception of a request, and pytest's own is one.
            raise KeyboardInterrupt("SIGTERM")

    signal.signal(signal.SIGTERM, terminate)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End with the exit code of SIGTERM."""
    if session.config.stash.get(_SIGNALS, None):
        session.exitstatus = _TERMINATED


def _clean_up(config: pytest.Config, aws: AccountAws) -> NoReturn:
    """Delete what earlier runs left, and run no test."""
    wanted = config.option.run
    runs = [run for run in aws.runs() if run == wanted or not wanted]
    if runs:
        ask(config, f"deletes the runs {', '.join(runs)}, also if a test uses them")
    for run in runs:
        aws.remove(run)
    pytest.exit(f"deleted {len(runs)} runs", returncode=0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let SIGTERM end the process at once, as before."""
    if account_of(config) is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def account_of(config: pytest.Config) -> AccountAws | None:
    """Return the account of the options. None: the tests are to run on a local AWS."""
    return config.stash.get(_ACCOUNT, None)


def ask(config: pytest.Config, does: str) -> None:
    """Announce an effect with its account and region, and ask, unless there is `--yes`.

    Args:
        config: of the run, with an account.
        does: the effect, as a sentence without a subject.

    Raises:
        pytest.exit.Exception: The person declined, or there is no terminal.

    """
    aws = config.stash[_ACCOUNT]
    with _terminal_input(config):
        print(f"\n{does} ({aws.account}, {aws.region})", file=sys.stderr, flush=True)  # noqa: T201
        if config.getoption("yes"):
            return
        if not sys.stdin.isatty():
            pytest.exit("there is no terminal to ask at: use --yes", returncode=pytest.ExitCode.USAGE_ERROR)
        if input("Continue? [y/N] ").strip().lower() not in ("y", "yes"):
            pytest.exit("declined", returncode=pytest.ExitCode.INTERRUPTED)


@contextmanager
def _terminal_input(config: pytest.Config) -> Iterator[None]:
    """Read from the terminal. pytest has replaced the standard input until here."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()
        capture.suspend_global_capture()
