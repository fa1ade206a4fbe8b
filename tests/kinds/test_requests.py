"""The requests that a processor elsewhere gets are those of docs/processor-json.md, for each kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kinds.cells import Cell

PAGE = Path(__file__).parents[2] / "docs" / "processor-json.md"
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
    [schema] = [one for one in BLOCKS if "$defs" in one]
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
