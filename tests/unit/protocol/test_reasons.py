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


def test_a_reason_has_type_position_and_cause(team: Any) -> None:
    """The team's line of each exception in the chain, and none of their texts."""
    said = describe(caught(team.read), Reasons.TYPES)
    assert said == "LookupError at invoices:11, from ValueError at invoices:5"


def test_a_suppressed_cause_is_left_out(team: Any) -> None:
    assert describe(caught(team.again), Reasons.TYPES) == "KeyError at invoices:20"


def test_the_position_is_in_the_processors_code_not_in_a_library(team: Any) -> None:
    """The innermost frame is in `json.decoder`, which is the same for every file that is no JSON."""
    assert describe(caught(team.parse), Reasons.TYPES) == "JSONDecodeError at invoices:14"


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


def test_an_error_that_was_never_raised_has_a_type_only() -> None:
    assert describe(ValueError(CARD), Reasons.TYPES) == "ValueError"


def test_a_group_names_its_parts() -> None:
    group = ExceptionGroup(CARD, [ValueError(CARD), KeyError(CARD), OSError(CARD), TypeError(CARD)])
    assert describe(group, Reasons.TYPES) == "ExceptionGroup of (ValueError; KeyError; OSError; 1 more)"


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


@pytest.mark.parametrize(
    ("code", "said"),
    [("AccessDenied", "ClientError AccessDenied"), ("404", "ClientError 404"), (CARD, "ClientError")],
)
def test_the_code_of_aws_is_kept_and_its_message_is_not(code: str, said: str) -> None:
    """A code is one of AWS's own words; the message quotes values."""
    error = ClientError({"Error": {"Code": code, "Message": f"no such item {CARD}"}}, "GetItem")
    assert describe(error, Reasons.TYPES) == said


def test_the_librarys_own_texts_are_kept_without_their_details() -> None:
    """This library's texts quote nothing. The detail may be another program's text."""
    refused = TransactionRefused("element 1 is not valid", passing=False, detail=CARD)
    assert describe(refused, Reasons.TYPES) == "element 1 is not valid"
    assert describe(refused, Reasons.FULL) == f"element 1 is not valid: {CARD}"
    assert describe(NotBegun("Lambda throttles the function"), Reasons.TYPES) == "Lambda throttles the function"


def test_a_stack_has_positions_of_the_whole_chain(team: Any) -> None:
    """A log line without messages still says where something went wrong, in the libraries too."""
    said = stack_of(caught(team.parse))
    assert said[0].startswith(f"JSONDecodeError: {__name__}:")
    assert "invoices:14 > json:" in said[0]
    assert CARD not in "".join(said)
