"""Options of `IntakePipeline` that have moved into a group."""

from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from cdk_intake_ledger import (
    ConcurrencyOptions,
    IntakeConfigurationError,
    IntakePipeline,
    MonitoringOptions,
    NetworkOptions,
)
from cdk_intake_ledger.options.former import FORMER_OPTIONS
from tests.synth.build import new_stack, processor, rules_in

GROUPS = {
    "concurrency": ConcurrencyOptions,
    "network": NetworkOptions,
    "monitoring": MonitoringOptions,
}


def problems(**options: Any) -> tuple[str, ...]:
    with pytest.raises(IntakeConfigurationError) as caught:
        IntakePipeline(new_stack(), "Orders", processor=processor(), **options)
    assert caught.value.path == "Stack/Orders"
    return caught.value.problems


@pytest.mark.parametrize("name", FORMER_OPTIONS)
def test_a_former_option_names_its_new_place(name: str) -> None:
    (problem,) = problems(**{name: 5})
    assert problem.startswith(f"{name} is now in a group: ")
    assert f"Write {FORMER_OPTIONS[name]}" in problem
    assert rules_in(problem) == ["option-in-group"]


def test_all_former_options_are_reported_at_once() -> None:
    assert len(problems(**dict.fromkeys(FORMER_OPTIONS))) == len(FORMER_OPTIONS)


def test_each_new_place_exists() -> None:
    for name, place in FORMER_OPTIONS.items():
        [option] = [group for group in GROUPS if place.startswith(f"{group}=")]
        group = GROUPS[option]
        assert place == f"{option}={group.__name__}({name}=...)"
        assert name in {field.name for field in fields(group)}
        assert option in signature(IntakePipeline.__init__).parameters


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        IntakePipeline(new_stack(), "Orders", processor=processor(), colour="red")  # type: ignore[call-arg] # unknown
