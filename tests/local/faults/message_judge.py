"""Compare the messages that were sent with the ledger, the dead-letter queue and the downstream's calls."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.local.faults.downstream import Call
from tests.local.faults.judge import Report, Row


class Name(NamedTuple):
    """Two messages with the same key and identity are copies."""

    key: str
    identity: str


class MessageLetter(NamedTuple):
    """A message in the dead-letter queue."""

    name: Name
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """Facts collected after the queue is empty."""

    sent: Sequence[Name]
    """Each message, with its copies, in the order in which they were sent."""
    rows: Mapping[Name, Row]
    letters: Sequence[MessageLetter]
    calls: Sequence[Call]
    """In the order in which they ended."""
    behind: Mapping[str, int] = field(default_factory=dict)
    """By shard of a stream: the records that are not done."""
    verdicts: Mapping[str, int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesExpected:
    """Requirements for the results."""

    poison: Mapping[Name, str] = field(default_factory=dict)
    """The messages that must end in the dead-letter queue, with a text that must be in the reason."""
    killed: frozenset[Name] = frozenset()
    """The messages whose worker was killed after the effect: each had to be repeated once."""
    unheard: int = 0
    """Commits that DynamoDB refused, or whose answer was lost. Each may have cost an effect."""
    ordered: bool = False
    """True: the messages of a key take effect in the order in which they were sent."""
    held: bool = False
    """True: a message waits until all attempts on the earlier messages of its key are over."""
    stamped: bool = False
    """True: the source stamps each copy, so that none has the content of a rejected one. Each has a dead letter."""


_CLOSED = "a message with its key and identity was rejected before"
"""A part of the reason of a copy with other content."""


def judge_messages(facts: MessageFacts, expected: MessagesExpected) -> Report:
    """Compare the facts with the requirements."""
    names = list(dict.fromkeys(facts.sent))
    effects: dict[Name, list[Call]] = defaultdict(list)
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in facts.calls:
        calls[call.delivery.key].append(call)
        if call.taken:
            effects[Name(call.delivery.key, call.delivery.version)].append(call)
    lost = {
        name: problem
        for name in names
        if name not in expected.poison and (problem := _lost(facts.rows.get(name), effects[name]))
    }
    innocents = [letter for letter in facts.letters if letter.name not in expected.poison]
    problems = [f"{_shown(name)}: {problem}" for name, problem in lost.items()]
    problems += [f"{_shown(letter.name)}: a dead letter, {letter.reason!r}" for letter in innocents]
    problems += [f"{_shown(name)} was never sent" for name in effects if name not in names]
    problems += _of_poison(facts, expected, effects)
    problems += _of_names(effects)
    problems += _repeated(effects, expected)
    for key, some in calls.items():
        problems += [f"{key}: {problem}" for problem in _of_key(some)]
    if expected.ordered:
        problems += _out_of_order(names, effects, expected)
    if expected.held:
        problems += _too_early(names, calls)
    problems += [f"{shard}: {number} records are not done" for shard, number in facts.behind.items() if number]
    return Report(
        sent=len(facts.sent),
        processed=sum(bool(some) for some in effects.values()),
        repeated=sum(max(len(some) - 1, 0) for some in effects.values()),
        duplicates=facts.verdicts.get("DUPLICATE", 0),
        stale=facts.verdicts.get("STALE", 0),
        busy=facts.verdicts.get("BUSY", 0),
        rejected=sum(row.status == "REJECTED" for row in facts.rows.values()),
        lost=len(lost),
        innocents=len(innocents),
        problems=tuple(problems),
    )


def _lost(row: Row | None, effects: Sequence[Call]) -> str | None:
    """Return why the message is not done, or why the ledger does not say so."""
    if row is None:
        return "no row"
    if row.status != "PROCESSED":
        return f"the ledger says {row.status}"
    if not effects:
        return "no effect"
    if row.committed != effects[-1].delivery.idempotency_key:
        return f"the ledger has committed {row.committed!r}"
    return None


def _of_poison(
    facts: MessageFacts, expected: MessagesExpected, effects: Mapping[Name, Sequence[Call]]
) -> Iterator[str]:
    """Yield problems of the messages that had to be rejected."""
    reasons: dict[Name, list[str]] = defaultdict(list)
    for letter in facts.letters:
        reasons[letter.name].append(letter.reason)
    for name, why in expected.poison.items():
        row = facts.rows.get(name)
        if row is None or row.status != "REJECTED" or why not in row.reason:
            told = f"{row.status} for {row.reason!r}" if row else "nothing"
            yield f"{_shown(name)}: poison, and the ledger says {told}"
        of_copies = [one for one in reasons[name] if expected.stamped and _CLOSED in one]
        if len(own := [one for one in reasons[name] if one not in of_copies]) != 1 or why not in own[0]:
            yield f"{_shown(name)}: poison, and its dead letters are {reasons[name]}"
        if effects.get(name):
            yield f"{_shown(name)}: poison, and yet it had an effect"


def _of_names(effects: Mapping[Name, Sequence[Call]]) -> Iterator[str]:
    """Yield messages with several idempotency keys, and idempotency keys of several messages."""
    owners: dict[str, Name] = {}
    for name, some in effects.items():
        keys = {call.delivery.idempotency_key for call in some}
        if len(keys) > 1:
            yield f"{_shown(name)} had {len(keys)} idempotency keys"
        for key in keys:
            if (owner := owners.setdefault(key, name)) != name:
                yield f"{_shown(name)} has the idempotency key of {_shown(owner)}"


def _repeated(effects: Mapping[Name, Sequence[Call]], expected: MessagesExpected) -> Iterator[str]:
    """Yield effects that were repeated without a cause."""
    extra = {name: len(some) - 1 - (name in expected.killed) for name, some in effects.items()}
    over = {name: times for name, times in extra.items() if times > 0}
    if sum(over.values()) > expected.unheard:
        shown = ", ".join(f"{_shown(name)} {times} times" for name, times in list(over.items())[:5])
        yield f"effects were repeated without a killed worker, {expected.unheard} may have been: {shown}"


def _of_key(calls: Sequence[Call]) -> Iterator[str]:
    """Yield calls of a key that overlap, and fences that do not grow."""
    for before, after in pairwise(sorted(calls, key=lambda call: call.started)):
        if after.started < before.ended:
            both = f"{before.delivery.version!r} and {after.delivery.version!r}"
            yield f"{both} were processed at the same time"
        if after.delivery.fence <= before.delivery.fence:
            yield f"the fence went from {before.delivery.fence} to {after.delivery.fence}"


def _out_of_order(
    names: Sequence[Name], effects: Mapping[Name, Sequence[Call]], expected: MessagesExpected
) -> Iterator[str]:
    """Yield messages that took effect before an earlier one of their key."""
    last: dict[str, tuple[Name, float]] = {}
    for name in names:
        if name in expected.poison or not effects.get(name):
            continue
        earlier = last.get(name.key)
        first = effects[name][0].ended
        if earlier is not None and first < earlier[1]:
            yield f"{_shown(name)} took effect before {_shown(earlier[0])}"
        last[name.key] = name, effects[name][-1].ended


def _too_early(names: Sequence[Name], calls: Mapping[str, Sequence[Call]]) -> Iterator[str]:
    """Yield attempts that came after an attempt on a later message of their key."""
    places = {name: place for place, name in enumerate(names)}
    for key, some in calls.items():
        for before, after in pairwise(sorted(some, key=lambda call: call.started)):
            earlier, later = (Name(key, call.delivery.version) for call in (after, before))
            if places.get(earlier, -1) < places.get(later, -1):
                yield f"{_shown(later)} was attempted before {_shown(earlier)} was done"


def _shown(name: Name) -> str:
    return f"{name.key} {name.identity}"
