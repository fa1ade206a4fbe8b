"""Compare sets of files with their parts' commits, the ledger and the downstream's calls."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.local.faults.downstream import Call
from tests.local.faults.judge import Letter, Report, Row


class Part(NamedTuple):
    """A part as a call of the sets' processor had it, or as it should have."""

    key: str
    version: str
    content: str


@dataclass(frozen=True, slots=True)
class SetRow:
    """The state of a set in the ledger's table."""

    status: str
    version: str
    """The version of the set that was committed last."""
    commit: str
    """The identity in the commit of the processor."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """Facts collected after the queues of parts and of sets are empty."""

    manifests: Mapping[str, Sequence[str]]
    """The keys of the parts of each set, as its newest manifest has them, or in their order."""
    uploads: Sequence[Part]
    """Each version of each part, in the order of the uploads."""
    parts: Mapping[str, Row]
    """The rows of the parts."""
    rows: Mapping[str, SetRow]
    letters: Sequence[Letter]
    """In the dead-letter queue of the sets."""
    part_calls: Sequence[Call]
    set_calls: Sequence[Call]
    begun: Sequence[float] = ()
    """The time at which each of the uploads began."""
    closed: Mapping[str, int] = field(default_factory=dict)
    """By set: the number of uploads before its first marker."""
    verdicts: Mapping[str, int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetsExpected:
    """Requirements for the results."""

    refused: frozenset[str] = frozenset()
    """Parts whose newest version the processor refuses."""
    killed: Mapping[str, int] = field(default_factory=dict)
    """By set: workers that were killed after the effect. Each effect had to be repeated."""
    unheard: int = 0
    """Commits that DynamoDB refused, or whose answer was lost. Each may have cost an effect."""
    folders: bool = False
    """True: the parts of a set are all objects of its folder."""
    returned: frozenset[str] = frozenset()
    """Sets with an upload that made no new version, after which they were not quiet. Their version may run once more,
    under another idempotency key."""
    quiet_seconds: float = 0
    """The time after the last upload to a folder in which it has no effect."""


def judge_sets(facts: SetFacts, expected: SetsExpected) -> Report:
    """Compare the facts with the requirements."""
    effects: dict[str, list[Call]] = defaultdict(list)
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in facts.set_calls:
        calls[call.delivery.key].append(call)
        if call.taken:
            effects[call.delivery.key].append(call)
    lost = {key: problem for key in facts.manifests if (problem := _lost(key, facts, effects[key])) is not None}
    problems = [f"{key}: {problem}" for key, problem in lost.items()]
    problems += [f"{letter.key}: a dead letter, {letter.reason!r}" for letter in facts.letters]
    problems += _of_parts(facts, expected)
    repeats = {key: _repeats(some) for key, some in effects.items()}
    for key, some in effects.items():
        problems += [f"{key}: {problem}" for problem in _of_effects(some, facts, 1 + (key in expected.returned))]
        if expected.folders:
            problems += [f"{key}: {problem}" for problem in _of_folder(key, some, facts, expected)]
    allowed = {key: expected.killed.get(key, 0) + (key in expected.returned) for key in repeats}
    over = {key: times for key, extra in repeats.items() if (times := extra - allowed[key]) > 0}
    if sum(over.values()) > expected.unheard:
        problems.append(f"effects were repeated without a killed worker, {expected.unheard} may have been: {over}")
    for key, some in calls.items():
        problems += [f"{key}: {problem}" for problem in _of_key(some)]
    return Report(
        sent=len(facts.manifests),
        processed=len({(call.delivery.key, call.delivery.version) for some in effects.values() for call in some}),
        repeated=sum(repeats.values()),
        duplicates=facts.verdicts.get("DUPLICATE", 0),
        stale=facts.verdicts.get("STALE", 0),
        busy=facts.verdicts.get("BUSY", 0),
        rejected=sum(row.status == "REJECTED" for row in facts.rows.values()),
        lost=len(lost),
        innocents=len(facts.letters),
        problems=tuple(problems),
    )


def parts_of(call: Call) -> list[Part]:
    """Return the parts that the sets' processor had."""
    return [Part(*part) for part in json.loads(call.delivery.content)]


def _lost(key: str, facts: SetFacts, effects: Sequence[Call]) -> str | None:
    """Return why the downstream does not have the set as its parts were committed, or why the ledger differs."""
    row = facts.rows.get(key)
    if row is None:
        return "no row"
    if row.status != "PROCESSED":
        return f"the ledger says {row.status}: {row.reason}"
    if not effects:
        return "no effect"
    contents = {(part.key, part.version): part.content for part in facts.uploads}
    wanted = []
    for part in facts.manifests[key]:
        version = facts.parts[part].committed if part in facts.parts else ""
        wanted.append(Part(part, version, contents.get((part, version), "")))
    last = effects[-1]
    if (had := parts_of(last)) != wanted:
        return f"the last effect had {had}, the committed parts are {wanted}"
    if (row.version, row.commit) != (last.delivery.version, last.delivery.idempotency_key):
        return f"the ledger has committed {row.version!r}, the last effect was {last.delivery.version!r}"
    return None


def _of_parts(facts: SetFacts, expected: SetsExpected) -> Iterator[str]:
    """Yield parts that are not in the state that the run gave them."""
    newest = {part.key: part.version for part in facts.uploads}
    for key, version in newest.items():
        row = facts.parts.get(key)
        wanted = "REJECTED" if key in expected.refused else "PROCESSED"
        if row is None or row.status != wanted:
            yield f"{key}: the ledger says {row.status if row else 'nothing'} of a part, expected {wanted}"
        elif (row.committed == version) == (key in expected.refused):
            yield f"{key}: the ledger has committed {row.committed!r} of a part, S3 shows {version!r}"


def _of_effects(effects: Sequence[Call], facts: SetFacts, names_of_version: int) -> Iterator[str]:
    """Yield effects with a part that was not committed or has other bytes, and effects that go back."""
    uploaded = {(part.key, part.version): (number, part.content) for number, part in enumerate(facts.uploads)}
    done: dict[tuple[str, str], float] = {}
    for call in facts.part_calls:
        if call.taken:
            # A worker that was killed after the effect did not commit it.
            done[call.delivery.key, call.delivery.version] = call.ended
    names: dict[str, set[str]] = defaultdict(set)
    newest: dict[str, int] = {}
    for effect in effects:
        names[effect.delivery.version].add(effect.delivery.idempotency_key)
        for part in parts_of(effect):
            place = part.key, part.version
            number, content = uploaded.get(place, (-1, None))
            if place not in done or done[place] > effect.started:
                yield f"an effect had {part.key} at {part.version!r}, which was not committed"
            if content != part.content:
                yield f"an effect had other bytes of {part.key} than S3"
            if number < newest.get(part.key, number):
                yield f"{part.key} went back to {part.version!r}"
            newest[part.key] = number
    for version, keys in names.items():
        if len(keys) > names_of_version:
            yield f"{version!r} had {len(keys)} idempotency keys"


def _of_folder(key: str, effects: Sequence[Call], facts: SetFacts, expected: SetsExpected) -> Iterator[str]:
    """Yield effects without a part that was there, and effects of folders that were not quiet."""
    first: dict[str, int] = {}
    places: dict[tuple[str, str], int] = {}
    for place, upload in enumerate(facts.uploads):
        first.setdefault(upload.key, place)
        places[upload.key, upload.version] = place
    for effect in effects:
        had = parts_of(effect)
        newest = max((places.get((part.key, part.version), -1) for part in had), default=-1)
        # A part that was uploaded before the marker, or before another part of this effect, was there.
        until = max(facts.closed.get(key, 0), newest)
        without = {part for part in facts.manifests.get(key, ()) if first.get(part, until) < until}
        if without := without - {part.key for part in had}:
            yield f"an effect had no {', '.join(sorted(without))}, which had been uploaded"
        # S3 dates an upload in whole seconds.
        if expected.quiet_seconds and newest >= 0:
            seconds = effect.started - facts.begun[newest]
            if seconds < expected.quiet_seconds - 1:
                yield f"an effect began {seconds:.1f} s after an upload, and not {expected.quiet_seconds:.0f} s"


def _repeats(effects: Sequence[Call]) -> int:
    return sum(times - 1 for times in Counter(call.delivery.version for call in effects).values())


def _of_key(calls: Sequence[Call]) -> Iterator[str]:
    """Yield calls of a set that overlap, and fences that do not grow."""
    for before, after in pairwise(sorted(calls, key=lambda call: call.started)):
        if after.started < before.ended:
            yield f"{before.delivery.version!r} and {after.delivery.version!r} were processed at the same time"
        if after.delivery.fence <= before.delivery.fence:
            yield f"the fence went from {before.delivery.fence} to {after.delivery.fence}"
