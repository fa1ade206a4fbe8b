"""F114: a reason names exception types and code positions, and quotes messages only where they are asked for."""

import json
import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.observability.error_text import MAX_CAUSES, describe, is_library, stack_of
from intake_ledger.protocol.errors import NotBegun, TransactionRefused
from intake_ledger.protocol.settings import Reasons

CARD = "4111111111111111"
TEAM = """
import json

def amount(text):
    return int(text)

def read(text):
    try:
        return amount(text)
    except ValueError as error:
        raise LookupError(f"no amount in {text}") from error

def parse(text):
    return json.loads(text)

def again(text):
    try:
        amount(text)
    except ValueError:
        raise KeyError(text) from None
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that a team might have in its function."""
    source = tmp_path / "invoices.py"
    source.write_text(TEAM)
    made = ModuleType("invoices")
    monkeypatch.setitem(sys.modules, "invoices", made)
    exec(compile(TEAM, str(source), "exec"), made.__dict__)
    return made


packages_distributions = cache(metadata.packages_distributions)


def caught(act: Callable[[str], object], text: str = f"card {CARD}") -> BaseException:
    try:
        act(text)
    except BaseException as error:  # noqa: BLE001 - the test needs each kind
        return error
    raise AssertionError("it did not fail")


def of_aws(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"no such item {CARD}"}}, "GetItem")


GROUP = ExceptionGroup(CARD, [ValueError(CARD), KeyError(CARD), OSError(CARD), TypeError(CARD)])
REFUSED = TransactionRefused("element 1 is not valid", passing=False, detail=CARD)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        # The team's line of each exception in the chain, and none of their texts. A suppressed cause is left out.
        ("read", "LookupError at invoices:11, from ValueError at invoices:5"),
        ("again", "KeyError at invoices:20"),
        # The innermost frame is in `json.decoder`, which is the same for every file that is no JSON.
        ("parse", "JSONDecodeError at invoices:14"),
        (ValueError(CARD), "ValueError"),
        (GROUP, "ExceptionGroup of (ValueError; KeyError; OSError; 1 more)"),
        # A code is one of AWS's own words. The message quotes values.
        (of_aws("AccessDenied"), "ClientError AccessDenied"),
        (of_aws("404"), "ClientError 404"),
        (of_aws(CARD), "ClientError"),
        # This library's texts quote nothing. The detail may be another program's text.
        (REFUSED, "element 1 is not valid"),
        (NotBegun("Lambda throttles the function"), "Lambda throttles the function"),
    ],
)
def test_a_reason_has_types_and_positions_of_the_teams_code(team: Any, error: str | Exception, said: str) -> None:
    """A name is that of a function of the team."""
    raised = caught(getattr(team, error)) if isinstance(error, str) else error
    assert describe(raised, Reasons.TYPES) == said


def test_the_processors_installed_package_counts_as_its_code() -> None:
    """A team may install its own package into the function's code."""

    def act(text: str) -> None:
        json.loads(text)

    assert describe(caught(act), Reasons.TYPES, processor_package="json").startswith("JSONDecodeError at json.")
    assert describe(caught(act), Reasons.TYPES).startswith(f"JSONDecodeError at {__name__}:")


@pytest.mark.parametrize(
    "package", ["aws_lambda_powertools", "six", "_cffi_backend", "invoices", "cffi_backend", "aws"]
)
def test_an_installed_package_is_a_library(package: str) -> None:
    """As Python's own table says, which takes half a second: a folder, a file, and compiled code."""
    assert is_library(package) == (package in packages_distributions())


def test_messages_are_kept_with_full_reasons(team: Any) -> None:
    said = describe(caught(team.read), Reasons.FULL)
    assert said.startswith(f"LookupError: no amount in card {CARD} at invoices:11, from ValueError: invalid literal")
    assert describe(REFUSED, Reasons.FULL) == f"element 1 is not valid: {CARD}"


def test_a_long_or_cyclic_chain_is_limited() -> None:
    """A program can make an exception the cause of itself, or chain hundreds."""
    first, second = ValueError(CARD), KeyError(CARD)
    first.__cause__, second.__cause__ = second, first
    assert describe(first, Reasons.TYPES) == "ValueError, from KeyError"
    last: BaseException = ValueError()
    for _ in range(50):
        last.__context__, last = None, _caused_by(last)
    assert describe(last, Reasons.TYPES).count("ValueError") == MAX_CAUSES


def _caused_by(error: BaseException) -> ValueError:
    made = ValueError(CARD)
    made.__cause__ = error
    return made


def test_a_stack_has_positions_of_the_whole_chain(team: Any) -> None:
    """A log line without messages still says where something went wrong, in the libraries too."""
    said = stack_of(caught(team.parse))
    assert said[0].startswith(f"JSONDecodeError: {__name__}:")
    assert "invoices:14 > json:" in said[0]
    assert CARD not in "".join(said)
