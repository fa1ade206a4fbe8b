"""Compares a resource policy with the statement that the template has for a service. It evaluates no other conditions.

Each Deny of the action is a problem, except that of requests without TLS, which the template has.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_EQUAL = ("ArnEquals", "ArnLike", "StringEquals", "StringLike")


@dataclass(frozen=True, slots=True)
class Caller:
    """An AWS service that acts for a resource. Conditions on what is None are unknown."""

    service: str
    source_arn: str | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision with its reason. `allowed` is None if the statement has conditions that the template's has not."""

    allowed: bool | None
    reason: str = ""


def decide(policy: str, caller: Caller, action: str, resource: str) -> PolicyDecision:
    """Compare the statements about this action of this service."""
    statements = _listed(json.loads(policy or "{}").get("Statement"))
    about = [one for one in statements if _is_about(one, caller.service, action)]
    for one in about:
        if one["Effect"] == "Deny" and not _is_without_tls(one):
            return PolicyDecision(allowed=False, reason=f"{_named(one)} denies it")
    allowing = [one for one in about if one["Effect"] == "Allow" and _is_for(one, resource)]
    results = [_all(list(_tested(one, caller))) for one in allowing]
    if True in results:
        return PolicyDecision(allowed=True)
    if None in results:
        one = allowing[results.index(None)]
        return PolicyDecision(None, f"{_named(one)} allows it under {json.dumps(one['Condition'])}")
    return PolicyDecision(allowed=False, reason="no statement allows it")


def _is_about(statement: Mapping[str, Any], service: str, action: str) -> bool:
    if {"NotPrincipal", "NotAction"} & {*statement}:
        return bool(statement["Effect"] == "Deny")
    principal = statement.get("Principal")
    kinds = principal if isinstance(principal, dict) else {"AWS": principal}
    is_meant = "*" in _listed(kinds.get("AWS")) or service in _listed(kinds.get("Service"))
    return is_meant and any(fnmatchcase(action.lower(), one.lower()) for one in _listed(statement.get("Action")))


def _is_for(statement: Mapping[str, Any], resource: str) -> bool:
    """A policy without a resource is about the resource that has it."""
    return any(fnmatchcase(resource, one) for one in _listed(statement.get("Resource", "*")))


def _is_without_tls(statement: Mapping[str, Any]) -> bool:
    tests = statement.get("Condition") or {}
    return json.dumps(tests).lower().replace('"', "") == "{bool: {aws:securetransport: false}}"


def _tested(statement: Mapping[str, Any], caller: Caller) -> Iterator[bool | None]:
    """True or False for each condition on the source or the account. None for a condition on something else."""
    known = {"aws:sourcearn": caller.source_arn, "aws:sourceaccount": caller.account}
    for operator, tests in (statement.get("Condition") or {}).items():
        for key, values in tests.items():
            wanted = known.get(key.lower())
            is_known = operator in _EQUAL and wanted is not None
            yield any(fnmatchcase(str(wanted), str(one)) for one in _listed(values)) if is_known else None


def _all(results: list[bool | None]) -> bool | None:
    return False if False in results else None if None in results else True


def _named(statement: Mapping[str, Any]) -> str:
    return f"its statement {statement['Sid']!r}" if "Sid" in statement else "a statement without a Sid"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
