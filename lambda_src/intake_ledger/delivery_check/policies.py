"""Decides from a resource policy whether an AWS service may do something: yes, no, or unknown.

The rules are those of the IAM user guide, "Policy evaluation logic" and "IAM JSON policy elements". A condition is
unknown if its operator is not implemented here, or if nothing is known about its key.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = (
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "aws:username",
)
"""Keys that a request of a service principal does not have (IAM user guide, "AWS global condition context keys")."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An AWS service that acts for a resource. Without a `source_arn` or an `account`, conditions on it are unknown."""

    service: str
    source_arn: str | None = None
    account: str | None = None

    def context(self) -> dict[str, str | None]:
        """Condition keys in lower case. The value of a key that the request does not have is None."""
        known: dict[str, str | None] = dict.fromkeys(ABSENT)
        known |= {"aws:securetransport": "true", "aws:principalisawsservice": "true"}
        known["aws:principalservicename"] = self.service
        if self.source_arn is not None:
            known["aws:sourcearn"] = self.source_arn
        if self.account is not None:
            known["aws:sourceaccount"] = self.account
        return known


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision with its reason. `allowed` is None if it depends on an unknown condition."""

    allowed: bool | None
    reason: str = ""


def decide(policy: str, caller: Caller, action: str, resource: str) -> PolicyDecision:
    """Evaluate a policy. A Deny that applies wins over an Allow, and without an Allow nothing is allowed."""
    statements = _listed(json.loads(policy or "{}").get("Statement"))
    applying = [(statement, _applies(statement, caller, action, resource)) for statement in statements]
    for statement, applies in applying:
        if statement["Effect"] == "Deny" and applies:
            return PolicyDecision(allowed=False, reason=f"{_named(statement)} denies it")
    for statement, applies in applying:
        if statement["Effect"] == "Deny" and applies is None:
            return PolicyDecision(None, f"{_named(statement)} denies it under {_conditions(statement)}")
    allowing = [(statement, applies) for statement, applies in applying if statement["Effect"] == "Allow"]
    if any(applies for _, applies in allowing):
        return PolicyDecision(allowed=True)
    for statement, applies in allowing:
        if applies is None:
            return PolicyDecision(None, f"{_named(statement)} allows it under {_conditions(statement)}")
    return PolicyDecision(allowed=False, reason="no statement allows it")


def _applies(statement: Mapping[str, Any], caller: Caller, action: str, resource: str) -> bool | None:
    if "NotPrincipal" in statement:
        is_meant = not _names(statement["NotPrincipal"], caller.service)
    else:
        is_meant = _names(statement.get("Principal"), caller.service)
    if not is_meant or _chosen(statement, "Action", action.lower(), str.lower) is False:
        return False
    # A policy without a resource is about the resource that has it.
    about = _chosen(statement, "Resource", resource, str) if {"Resource", "NotResource"} & {*statement} else True
    return _all([about, *_tested(statement.get("Condition") or {}, caller.context())])


def _names(principal: Any, service: str) -> bool:
    if not isinstance(principal, dict):
        return bool(principal == "*")
    return "*" in _listed(principal.get("AWS")) or service in _listed(principal.get("Service"))


def _chosen(statement: Mapping[str, Any], element: str, value: str, cased: Callable[[str], str]) -> bool | None:
    """True if `Action` or `Resource` matches, or its `Not` form does not."""
    negated = f"Not{element}" in statement
    patterns = [cased(pattern) for pattern in _listed(statement.get(f"Not{element}" if negated else element))]
    if any(_like(pattern, value) for pattern in patterns):
        return not negated
    return None if any("${" in pattern for pattern in patterns) else negated


def _tested(conditions: Mapping[str, Mapping[str, Any]], context: Mapping[str, str | None]) -> Iterator[bool | None]:
    for operator, tests in conditions.items():
        for key, values in tests.items():
            yield _test(operator, [_text(value) for value in _listed(values)], key.lower(), context)


def _test(operator: str, values: list[str], key: str, context: Mapping[str, str | None]) -> bool | None:
    if key not in context:
        return None
    actual = context[key]
    several, _, plain = operator.rpartition(":")
    base = plain.removesuffix("IfExists")
    if base == "Null":
        return _text(actual is None) in [value.lower() for value in values]
    negated = "Not" in base
    compare = _COMPARISONS.get(base.replace("Not", ""))
    if compare is None:
        return None
    if actual is None:
        # "If the key is not present": the IfExists and the negated operators match, a set operator by its own rule.
        return several == "ForAllValues" or (several == "" and (negated or plain != base))
    results = [compare(value, actual) for value in values if "${" not in value]
    if any(results):
        return not negated
    return None if any("${" in value for value in values) else negated


def _arn_like(pattern: str, value: str) -> bool:
    """Each of an ARN's six parts matches by itself."""
    parts, actual = pattern.split(":", 5), value.split(":", 5)
    return pattern == "*" or (len(parts) == len(actual) and all(map(_like, parts, actual)))


def _like(pattern: str, value: str) -> bool:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(escaped, value, re.DOTALL) is not None


_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda value, actual: value == actual,
    "StringEqualsIgnoreCase": lambda value, actual: value.lower() == actual.lower(),
    "StringLike": _like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": lambda value, actual: value.lower() == actual.lower(),
}


def _all(results: list[bool | None]) -> bool | None:
    return False if False in results else None if None in results else True


def _named(statement: Mapping[str, Any]) -> str:
    return f"its statement {statement['Sid']!r}" if "Sid" in statement else "a statement without a Sid"


def _conditions(statement: Mapping[str, Any]) -> str:
    return json.dumps(statement.get("Condition") or statement.get("Resource") or statement.get("NotResource"))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
