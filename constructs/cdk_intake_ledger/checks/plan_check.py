"""A check of the numbers of a `Plan` against a rule.

A check whose number is unknown (a token, or not given) is skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from cdk_intake_ledger.checks.registry import Problem, Rule, Subject
from cdk_intake_ledger.checks.spans import number_text, span

if TYPE_CHECKING:
    from cdk_intake_ledger.checks.plan import Plan

COUNTS = frozenset(
    (
        *("audit_budget", "backfill_rate", "batch_size", "max_attempts", "max_burst", "max_concurrency"),
        *("max_per_call", "max_pollers", "max_rate", "memory_size", "min_pollers", "reserved_concurrency"),
        *("resubmit_rate", "threads"),
    )
)
"""Numbers of a plan that are not times."""


class Check(NamedTuple):
    """A rule, and how to find out whether a plan breaks it."""

    rule: Rule
    needs: tuple[str, ...]
    """The numbers of the plan that must be known."""
    broken: Callable[["Plan"], bool]
    values: Callable[["Plan"], dict[str, str]]
    """The values of the message."""

    def problem(self, plan: "Plan") -> Problem:
        """The message about a plan that breaks the rule."""
        return self.rule.problem(**self.values(plan))


def between(subject: Subject, name: str, least: float, most: float, why: str) -> Check:
    """A check that a number of the plan is in a range."""
    rule = subject.error(
        f"{name.replace('_', '-')}-range",
        inputs=(name,),
        what=f"{name} is {{value}}",
        why=f"it must be {_text(name, least)} to {_text(name, most)}, {why}",
        fix="Set a value in this range",
    )
    return Check(
        rule,
        (name,),
        lambda plan: not least <= getattr(plan, name) <= most,
        lambda plan: {"value": _text(name, getattr(plan, name))},
    )


def whole(rule: Rule, unit: float) -> Iterator[Check]:
    """A check of each input of the rule: it must be a whole number of units, in seconds."""
    for name in rule.inputs:
        yield Check(
            rule,
            (name,),
            lambda plan, name=name: getattr(plan, name) % unit != 0,  # type: ignore[misc] # the default binds the name
            lambda plan, name=name: {"name": name, "value": span(getattr(plan, name))},  # type: ignore[misc] # likewise
        )


def compare(  # noqa: PLR0917 - a row of a table
    subject: Subject,
    id: str,
    needs: str,
    broken: Callable[["Plan"], bool],
    what: str,
    why: str,
    fix: str,
    **times: Callable[["Plan"], float],
) -> Check:
    """A row: a check of a rule about several numbers of the plan.

    Its texts use the names of the plan's numbers, and those of `times` for times that follow from them.
    """
    inputs = tuple(needs.split())
    rule = subject.error(id, inputs=inputs, what=what, why=why, fix=fix)
    return Check(rule, inputs, broken, lambda plan: _values(rule, plan, times))


def _values(
    rule: Rule, plan: "Plan", times: Mapping[str, Callable[["Plan"], float]] = MappingProxyType({})
) -> dict[str, str]:
    return {
        name: span(times[name](plan)) if name in times else _text(name, getattr(plan, name)) for name in rule.values()
    }


def _text(name: str, value: float) -> str:
    return number_text(value) if name in COUNTS else span(value)
