"""Compare the input of a fault run with its results in S3, the ledger's table, the dead-letter queue and downstream.

The consumer's logs are used only for counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.local.faults.downstream import Delivery


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, as S3 lists it."""

    key: str
    version: str
    etag: str
    current: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The state of a key in the ledger's table."""

    status: str
    committed: str
    reason: str = ""
    redrive_count: int = 0


@dataclass(frozen=True, slots=True)
class Letter:
    """A message in the dead-letter queue. `reason` is empty if the message has none."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts collected after the queue is empty. `versions` are in order from a key's oldest to its newest."""

    versions: Sequence[Version]
    rows: Mapping[str, Row]
    letters: Sequence[Letter]
    effects: Sequence[Delivery]
    verdicts: Mapping[str, int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Expected:
    """Requirements for the results."""

    poison: Mapping[str, str] = field(default_factory=dict)
    """The keys that must end in the dead-letter queue, with a text that must be in the reason."""
    redrive_count: int = 0
    """Number of redrives of each rejected key."""
    letters: int = 1
    """Maximum number of equal dead letters of a rejected key: the copy is sent before its row says so (F85, F186)."""
    repeats: int = 0
    """Maximum number of repeated effects: one for each worker that could not commit."""
    resumed: bool = False
    """An attempt may have several invocations, which have one fence."""


@dataclass(frozen=True, slots=True)
class Report:
    """One line of the table."""

    sent: int
    processed: int
    repeated: int
    duplicates: int
    stale: int
    busy: int
    rejected: int
    lost: int
    innocents: int
    problems: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Return whether the report has no problems."""
        return not self.problems


def judge(facts: Facts, expected: Expected) -> Report:
    """Compare the facts with the requirements."""
    effects: dict[str, list[Delivery]] = defaultdict(list)
    for effect in facts.effects:
        effects[effect.key].append(effect)
    versions: dict[str, list[Version]] = defaultdict(list)
    for version in facts.versions:
        versions[version.key].append(version)
    lost = {
        key: problem
        for key, shown in versions.items()
        if key not in expected.poison and (problem := _lost(shown, facts.rows.get(key), effects[key]))
    }
    innocents = [letter for letter in facts.letters if letter.key not in expected.poison]
    by_state = Counter(effect.idempotency_key for effect in facts.effects)
    repeated = sum(times - 1 for times in by_state.values())
    problems = [f"{key}: {problem}" for key, problem in lost.items()]
    problems += [f"{letter.key}: a dead letter, {letter.reason!r}" for letter in innocents]
    problems += _of_poison(facts, expected, effects)
    for key, done in effects.items():
        problems += [f"{key}: {problem}" for problem in _out_of_order(done, versions[key], resumed=expected.resumed)]
    if repeated > expected.repeats:
        problems.append(f"{repeated} effects were repeated, {expected.repeats} workers could have had to")
    return Report(
        sent=len(facts.versions),
        processed=len(by_state),
        repeated=repeated,
        duplicates=facts.verdicts.get("DUPLICATE", 0),
        stale=facts.verdicts.get("STALE", 0),
        busy=facts.verdicts.get("BUSY", 0),
        rejected=sum(row.status == "REJECTED" for row in facts.rows.values()),
        lost=len(lost),
        innocents=len(innocents),
        problems=tuple(problems),
    )


def wrong_rejects(
    versions: Sequence[Version], found: Mapping[str, Sequence[Mapping[str, object]]], bad: Sequence[str]
) -> list[str]:
    """Problems of the outputs with rejected rows.

    Args:
        versions: of all files.
        found: the rejected rows by key, where there is an output.
        bad: the keys whose current version has a bad row.

    """
    current = {version.key: version.version for version in versions if version.current}
    problems = [f"{key}: it has a bad row, and no rejected rows" for key in bad if key not in found]
    for key, rows in found.items():
        if key not in bad:
            problems.append(f"{key}: it has no bad row, and rejected rows of {rows[0]['version_id']!r}")
        elif others := {row["version_id"] for row in rows} - {current[key]}:
            problems.append(f"{key}: the rejected rows are those of {others}, S3 shows {current[key]!r}")
    return problems


def _lost(shown: Sequence[Version], row: Row | None, effects: Sequence[Delivery]) -> str | None:
    """Return why the downstream does not reflect S3, or why the ledger does not record it."""
    current = next(version for version in shown if version.current)
    if row is None:
        return "no row"
    if (row.status, row.committed) != ("PROCESSED", current.version):
        return f"{row.status} at {row.committed!r}, S3 shows {current.version!r}"
    if not effects:
        return "no effect"
    if effects[-1].version != current.version:
        return f"the last effect was {effects[-1].version!r}, S3 shows {current.version!r}"
    return None


def _of_poison(facts: Facts, expected: Expected, effects: Mapping[str, Sequence[Delivery]]) -> Iterator[str]:
    """Yield problems of the keys that had to be rejected."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for letter in facts.letters:
        reasons[letter.key].append(letter.reason)
    for key, why in expected.poison.items():
        row = facts.rows.get(key)
        if row is None or row.status != "REJECTED":
            yield f"{key}: poison, and the ledger says {row.status if row else 'nothing'}"
        elif why not in row.reason or row.redrive_count != expected.redrive_count:
            yield f"{key}: rejected in round {row.redrive_count} for {row.reason!r}"
        if not 1 <= len(reasons[key]) <= expected.letters or len(set(reasons[key])) != 1 or why not in reasons[key][0]:
            yield f"{key}: poison, and its dead letters are {reasons[key]}"
        if effects.get(key):
            yield f"{key}: poison, and yet it had an effect"


def _out_of_order(effects: Sequence[Delivery], shown: Sequence[Version], *, resumed: bool) -> Iterator[str]:
    """Yield violations of the ledger's promises: order, one idempotency key per state, and correct content."""
    place = {version.version: number for number, version in enumerate(shown)}
    etags = {version.version: version.etag for version in shown}
    names: dict[str, set[str]] = defaultdict(set)
    for effect in effects:
        names[effect.version].add(effect.idempotency_key)
        if etags.get(effect.version) != effect.content:
            yield f"the effect of {effect.version!r} had other bytes than S3"
    for version, keys in names.items():
        if len(keys) > 1:
            yield f"{version!r} had {len(keys)} idempotency keys"
    for before, after in pairwise(effects):
        if place.get(after.version, -1) < place.get(before.version, -1):
            yield f"{after.version!r} took effect after the newer {before.version!r}"
        if after.fence < before.fence + (0 if resumed and after.version == before.version else 1):
            yield f"the fence went from {before.fence} to {after.fence}"
