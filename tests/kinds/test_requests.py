"""The requests that a processor elsewhere gets are those of docs/processor.md, for each kind."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from intake_ledger.aws.bucket import Bucket
from intake_ledger.kinds.objects import ObjectWork
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Ordering, row_key
from tests.kinds.cells import Cell
from tests.settings import CONSUMER
from tests.unit.support import BUCKET, KEY, LEASE, PIPELINE, START, audited, created

PAGE = Path(__file__).parents[2] / "docs" / "processor.md"
BLOCKS = [json.loads(one.split("```")[0]) for one in PAGE.read_text().split("```json\n")[1:]]
NAMES = {"objects": "change", "messages": "message", "sets": "set"}
MARKS = {"message": "identity", "set": "parts"}
"""A field that only this kind has."""


def request_of(kind: str) -> dict[str, Any]:
    """The request that a function got."""
    given: list[Any] = []
    cell = Cell(kind, "remote", inside=given.append)
    cell.submit()
    cell.run()
    [request] = given
    return dict(request)


def input_of(kind: str) -> dict[str, Any]:
    """The input that an execution got."""
    cell = Cell(kind, "machine")
    cell.submit()
    cell.turn()
    [execution] = cell.running()
    return dict(execution.given)


def example_of(name: str) -> dict[str, Any]:
    """The example of the page."""
    [example] = [
        one
        for one in BLOCKS
        if "fence" in one and {other for other, mark in MARKS.items() if mark in one} == {name} & set(MARKS)
    ]
    return dict(example)


@pytest.mark.parametrize("kind", ["objects", "messages", "sets"])
def test_the_page_has_the_fields_of_a_request(kind: str) -> None:
    """In its example and in its schema."""
    schema = json.loads(PAGE.with_name("processor.schema.json").read_text())
    described, request = schema["$defs"][NAMES[kind]], request_of(kind)
    assert list(described["properties"]) == described["required"] == list(example_of(NAMES[kind]))
    assert set(request) == set(described["properties"])
    for name, value in request.items():
        form = described["properties"][name]
        types = form.get("type", [])
        allowed = [types] if isinstance(types, str) else types
        known = {"string": str, "integer": int, "null": type(None), "object": dict}
        assert not allowed or isinstance(value, tuple(known[one] for one in allowed)), name
        assert value in form.get("enum", [value]), name
        assert value == form.get("const", value), name


@pytest.mark.parametrize("kind", ["objects", "messages", "sets"])
def test_the_input_of_an_execution_follows_from_the_row(kind: str) -> None:
    """It has neither the time of an event nor, of messages and sets, its name."""
    left_out = {"eventTime"} if kind == "objects" else {"eventTime", "eventName"}
    assert set(input_of(kind)) == set(request_of(kind)) - left_out | {"fenceText", "intake"}


def test_the_input_of_an_execution_is_that_of_each_message_about_the_state() -> None:
    """After a death, another message starts it again: the same name with another input would be refused."""
    state = State(StateKind.OBJECT, "v1", "e1", 5, START)
    row = row_changes.claimed(None, created(state), state, owner="me", now=START, lease_until=START + LEASE)
    claim = Claim(row_key(PIPELINE, Ordering.LATEST, BUCKET, KEY, None), created(state), state, row, None)
    bucket = Bucket(lambda: cast("Any", None), BUCKET)
    later = replace(created(state), event_name="ObjectCreated:Copy", event_time=START + 1)
    inputs = [
        ObjectWork(replace(claim, change=change), CONSUMER, bucket, cast("Any", None)).request()
        for change in (claim.change, later, audited(state))
    ]
    assert inputs[0]["eventName"] == claim.change.event_name
    assert inputs == inputs[:1] * 3
