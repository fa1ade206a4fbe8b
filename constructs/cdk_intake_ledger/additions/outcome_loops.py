"""Checks at synthesis that no intake of messages takes the events of its own outcomes, also through other intakes."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack, Stage, Token
from aws_cdk import aws_events as events
from constructs import Construct

from cdk_intake_ledger.checks.final_template import at_synthesis
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.ledger_rules import OUTCOME_LOOP, OUTCOME_MAY_LOOP
from cdk_intake_ledger.kinds.intake import Intake
from cdk_intake_ledger.kinds.messages.message_intake import MessageIntake
from cdk_intake_ledger.resources.cloudformation import properties_of
from intake_ledger.contract import OUTCOME_DETAILS, OUTCOME_SOURCE

_UNKNOWN = object()
"""A value that depends on the message."""
_MATCHERS: Mapping[str, Callable[[str, str], bool]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "equals-ignore-case": lambda value, text: value.casefold() == text.casefold(),
    "wildcard": lambda value, text: re.fullmatch(re.escape(text).replace(r"\*", ".*"), value) is not None,
}
_Edges = dict[str, dict[str, bool]]
"""By intake: the intakes that get its outcomes. True if they certainly do."""


@dataclass(frozen=True)
class Outcomes:
    """Intakes, and the bus that gets their outcomes."""

    intakes: Sequence[Intake]
    bus: events.IEventBus


class HasOutcomes:
    """A construct that sends outcomes."""

    _outcomes: Outcomes


def check_loops(scope: Construct, own: Sequence[Intake]) -> None:
    """Compare the rules of the app with the outcomes of its intakes, when the app is complete.

    Args:
        scope: the construct that sends outcomes.
        own: its intakes.

    """
    at_synthesis(scope, lambda _: _loops(scope, own))


def _loops(scope: Construct, own: Sequence[Intake]) -> Iterator[Problem]:
    stage = Stage.of(scope)
    constructs = stage.node.find_all() if stage is not None else []
    senders = [one._outcomes for one in constructs if isinstance(one, HasOutcomes)]  # noqa: SLF001 - of this module
    receivers = [one for sender in senders for one in sender.intakes if isinstance(one, MessageIntake)]
    edges: _Edges = {}
    for rule in (one for one in constructs if isinstance(one, events.CfnRule)):
        for sender in senders:
            if (rule.event_bus_name or "default") == sender.bus.event_bus_name:
                _add_edges(edges, rule, sender.intakes, receivers)
    for path in (one.node.path for one in own):
        if cycle := _cycle(edges, path, certain=True):
            yield OUTCOME_LOOP.problem(cycle=cycle)
        elif cycle := _cycle(edges, path, certain=False):
            warn(scope, OUTCOME_MAY_LOOP, cycle=cycle)


def _add_edges(
    edges: _Edges, rule: events.CfnRule, senders: Sequence[Intake], receivers: Sequence[MessageIntake]
) -> None:
    properties = properties_of(rule)
    pattern, targets = properties.get("eventPattern"), [one["arn"] for one in properties.get("targets", ())]
    if not pattern or properties.get("state") == "DISABLED":
        return
    found = [one for one in receivers if _queue_arn(one, rule) in targets]
    for sender in senders if found else ():
        commit, rejection = (_matches(pattern, event) for event in _events(sender))
        if commit is False and rejection is False:
            continue
        for one in found:
            known = edges.setdefault(sender.node.path, {})
            # A cycle of rejections ends with the first commit.
            known[one.node.path] = known.get(one.node.path, False) or commit is True


def _queue_arn(intake: MessageIntake, rule: events.CfnRule) -> Any:
    """The ARN of the queue as the rule's template has it. None: a template never names another stack's logical ID."""
    found = Stack.of(rule).resolve(intake.queue.queue_arn)
    is_own = Stack.of(intake.queue).node.path == Stack.of(rule).node.path
    return found if is_own or "Fn::GetAtt" not in found else None


def _events(intake: Intake) -> Iterator[dict[str, Any]]:
    """The events of a commit and a rejection of an intake."""
    stack = Stack.of(intake)
    places = {"account": stack.account, "region": stack.region}
    known = {name: _UNKNOWN if Token.is_unresolved(value) else value for name, value in places.items()}
    for kind, details in OUTCOME_DETAILS.items():
        detail = dict.fromkeys(details, _UNKNOWN) | {"pipeline": intake.name}
        yield {
            "version": "0",
            "id": _UNKNOWN,
            "time": _UNKNOWN,
            "source": OUTCOME_SOURCE,
            "detail-type": kind,
            "detail": detail,
            **known,
        }


def _matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool | None:
    """Whether a pattern of EventBridge matches an event. None: it depends on the message."""
    return _all(_field_matches(name, wanted, event) for name, wanted in pattern.items())


def _field_matches(name: str, wanted: Any, event: Mapping[str, Any]) -> bool | None:
    if name == "$or":
        return _any(_matches(one, event) for one in wanted)
    value = event.get(name)
    if isinstance(wanted, Mapping):
        return _matches(wanted, value if isinstance(value, Mapping) else {}) if value is not _UNKNOWN else None
    return _any(_value_matches(one, value) for one in wanted) if isinstance(wanted, list) else None


def _value_matches(wanted: Any, value: Any) -> bool | None:
    """Whether one matcher of a pattern matches a value: a text, unknown, or None for an absent field."""
    if value is _UNKNOWN or (isinstance(wanted, Mapping) and len(wanted) != 1):
        return None
    if not isinstance(wanted, Mapping):
        return value is not None and bool(wanted == value)
    [(name, text)] = wanted.items()
    if name == "exists" or value is None:
        return name == "exists" and text is (value is not None)
    if name == "anything-but":
        matches = _any(_value_matches(one, value) for one in (text if isinstance(text, list) else [text]))
        return None if matches is None else not matches
    return _MATCHERS[name](value, text) if name in _MATCHERS and isinstance(text, str) else None


def _all(results: Iterable[bool | None]) -> bool | None:
    found = set(results)
    return False if False in found else None if None in found else True


def _any(results: Iterable[bool | None]) -> bool | None:
    found = set(results)
    return True if True in found else None if None in found else False


def _cycle(edges: _Edges, start: str, *, certain: bool) -> str:
    """The shortest cycle through an intake, or an empty text."""
    paths, seen = deque([[start]]), set[str]()
    while paths:
        path = paths.popleft()
        for follower, is_certain in edges.get(path[-1], {}).items():
            if certain and not is_certain:
                continue
            if follower == start:
                return " → ".join([*path, start])
            if follower not in seen:
                seen.add(follower)
                paths.append([*path, follower])
    return ""
