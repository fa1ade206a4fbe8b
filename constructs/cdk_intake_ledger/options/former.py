"""A clear error for options that have moved into a group."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from cdk_intake_ledger.validation.option_rules import OPTION_IN_GROUP
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.reporting import refuse

FORMER_OPTIONS: Mapping[str, str] = {
    "batch_size": "concurrency=ConcurrencyOptions(batch_size=...)",
    "max_batching_window": "concurrency=ConcurrencyOptions(max_batching_window=...)",
    "max_concurrency": "concurrency=ConcurrencyOptions(max_concurrency=...)",
    "commit_together": "concurrency=ConcurrencyOptions(commit_together=...)",
    "clock_skew": "concurrency=ConcurrencyOptions(clock_skew=...)",
    "vpc": "network=NetworkOptions(vpc=...)",
    "vpc_subnets": "network=NetworkOptions(vpc_subnets=...)",
    "security_groups": "network=NetworkOptions(security_groups=...)",
    "alarm_actions": "monitoring=MonitoringOptions(alarm_actions=...)",
    "log_group": "monitoring=MonitoringOptions(log_group=...)",
    "reasons": "monitoring=MonitoringOptions(reasons=...)",
}
"""Former options of `IntakePipeline`, and how to write each one now."""


def former_option_problems(options: Mapping[str, object]) -> list[Problem]:
    """One problem for each former option, with its new place."""
    return [OPTION_IN_GROUP.problem(name=name, now=FORMER_OPTIONS[name]) for name in options if name in FORMER_OPTIONS]


def explain_former_options[**P](init: Callable[P, None]) -> Callable[P, None]:
    """Decorate the `__init__` of a construct, so that a former option raises an error with its new place.

    With `**options` in the signature itself, type checkers would accept any name.
    """

    @wraps(init)
    def checked(*args: P.args, **options: P.kwargs) -> None:
        if problems := former_option_problems(options):
            refuse(_path(args[1:], options), problems)
        init(*args, **options)

    return checked


def _path(positional: Sequence[Any], options: Mapping[str, Any]) -> str:
    named = {**dict(zip(("scope", "id"), positional, strict=False)), **options}
    return "/".join(part for part in (named["scope"].node.path, named["id"]) if part)
