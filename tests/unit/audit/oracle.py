"""Random worlds for the audit, and the findings that docs/audit.md promises for each of them.

The oracle knows uploads, deletions and outcomes in words. It shares no rule with the code: `expected` follows the text
of docs/audit.md line by line.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random
from typing import Any

from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.settings import KeyFilter
from tests.unit.audit.support import AuditWorld
from tests.unit.support import DAY, HOUR, MINUTE, SECOND

SETTLE, LOOK_BACK = HOUR, 14 * DAY
AGES = (MINUTE, SETTLE - SECOND, SETTLE + MINUTE, 5 * HOUR, 3 * DAY, LOOK_BACK - HOUR, LOOK_BACK + HOUR, 40 * DAY)
"""Milliseconds, on both sides of each limit that the page names. S3 shows whole seconds."""


class Versioning(Enum):
    """The bucket's versioning."""

    ENABLED = auto()
    SUSPENDED = auto()
    NEVER = auto()


class Outcome(Enum):
    """The ledger's last record about a state."""

    PROCESSED = auto()
    FAILED = auto()
    FAILED_AND_DUE_LATER = auto()
    REJECTED = auto()
    WORKER_BUSY = auto()
    WORKER_DEAD = auto()


@dataclass(slots=True)
class Record:
    """The ledger's record of a key, or of one version in EVERY_VERSION."""

    about: State
    outcome: Outcome
    age: int
    """Milliseconds since it was written."""
    committed: State | None = None
    """The state that was last processed, if it differs from the record's state."""
    late_write: State | None = None
    """A state that an overtaken worker may have written downstream after the commit."""
    untagged: list[State] = field(default_factory=list)
    """Committed versions, which may be gone by now, whose tag is not recorded."""


@dataclass(slots=True)
class Story:
    """One key: its versions in S3, oldest first, and the ledger's records."""

    key: str
    versions: list[State] = field(default_factory=list)
    gone: list[State] = field(default_factory=list)
    """States that S3 showed once."""
    records: list[Record] = field(default_factory=list)

    @property
    def current(self) -> State:
        return self.versions[-1] if self.versions else ABSENT


@dataclass(slots=True)
class OracleWorld:
    """One pipeline, its bucket and its ledger."""

    ordering: Ordering
    versioning: Versioning
    deletes: bool
    filters: tuple[KeyFilter, ...]
    known_since: int | None
    """Age of the oldest object that must have a row, in milliseconds. None: of any age (a ledger with all rows)."""
    now: int
    tags: bool
    """Committed versions get a tag. If not, an earlier deployment may have left some without it."""
    stories: list[Story] = field(default_factory=list)

    def expected(self) -> set[tuple[str, str, str]]:
        """Key, finding and state of each difference that a run has to find."""
        return {
            (story.key, finding, state.identity)
            for story in self.stories
            if any(
                story.key.startswith(key_filter.prefix) and story.key.endswith(key_filter.suffix)
                for key_filter in self.filters
            )
            or not self.filters
            for state, finding in self._of(story)
        }

    def _of(self, story: Story) -> Iterator[tuple[State, str]]:
        if self.ordering is Ordering.LATEST:
            record = story.records[0] if story.records else None
            # Nothing is listed for a key that was never processed and is gone.
            if story.versions or record is not None:
                yield from self._differs(story.key, story.current, record)
            return
        for state in story.versions:
            record = next((known for known in story.records if known.about.identity == state.identity), None)
            yield from self._differs(story.key, state, record)
        for record in story.records:
            if record.about.identity in {version.identity for version in story.versions}:
                continue
            # "A version that vanished half done gets its reason in the ledger."
            if record.outcome not in (Outcome.PROCESSED, Outcome.REJECTED) or self._lacks_tag(record):
                yield from self._differs(story.key, replace(record.about, created_at=None), record)

    def _lacks_tag(self, record: Record) -> bool:
        """A claimed state is tagged by its attempt."""
        return self.tags and bool(record.untagged) and record.outcome in (Outcome.PROCESSED, Outcome.REJECTED)

    def _is_directory_marker(self, key: str, state: State) -> bool:
        """An empty object with such a key. In LATEST also the removal of a key without a record."""
        if not key.endswith("/") and not key.endswith("_$folder$"):
            return False
        if state.removed:
            return self.ordering is Ordering.LATEST and state.kind is StateKind.MARKER
        return state.size == 0

    def _differs(self, key: str, state: State, record: Record | None) -> Iterator[tuple[State, str]]:
        age = None if state.created_at is None else self.now - state.created_at
        if age is not None and age < SETTLE:
            return  # "What is fresh (`settle_time`): its event may be on its way."
        if record is None:
            if self._is_directory_marker(key, state):
                return
            if state.removed:
                # Without `deletes`, a removal is told to no processor. A row of a removal expires in every ledger.
                if self.deletes and age is not None and age <= LOOK_BACK:
                    yield state, "missing"
            elif age is not None and (self.known_since is None or age <= self.known_since):
                yield state, "missing"
            return
        if record.outcome is Outcome.WORKER_BUSY:
            return  # "unless somebody holds it"
        if self._lacks_tag(record):
            if record.age >= SETTLE:
                yield state, "untagged"  # "and no message is left for it"
            return
        about_it = record.about.identity == state.identity
        late = record.late_write is not None and record.late_write.identity != record.about.identity
        if record.outcome is Outcome.PROCESSED and about_it and not late:
            return  # "its current state is the committed one and settled"
        if record.age < SETTLE:
            return  # Its message, or the next event's, is on its way.
        if about_it:
            if record.outcome is Outcome.REJECTED:
                return  # "or its current state is the one that was rejected"
            if record.outcome is Outcome.FAILED_AND_DUE_LATER:
                return  # The message of its next try still waits.
            yield state, "unsettled"
            return
        yield state, "removed" if state.removed else "overtaken"


def random_world(random: Random, now: int) -> OracleWorld:
    """A world of some forty keys."""
    ordering = random.choice(list(Ordering))
    world = OracleWorld(
        ordering=ordering,
        versioning=random.choice(list(Versioning)),
        deletes=random.random() < 0.5,
        filters=random.choice(
            [(), (), (KeyFilter("in/"),), (KeyFilter("in/", ".csv"), KeyFilter("in/more/", ".json"))]
        ),
        known_since=random.choice([LOOK_BACK, LOOK_BACK, None, 3 * DAY + HOUR]),
        now=now,
        tags=random.random() < 0.7,
    )
    # Some keys begin with the whole of another key.
    keys = {
        random.choice(["in/", "in/more/", "out/", "in/ä\u0001'\"%/"])
        + f"{random.randrange(20)}"
        + random.choice(["", "!", "0", ".csv", "0.csv", ".json", "/", "_$folder$"])
        for _ in range(random.randrange(5, 60))
    }
    world.stories += [_story(random, world, key) for key in sorted(keys)]
    return world


def _story(random: Random, world: OracleWorld, key: str) -> Story:
    story = Story(key)
    for age in sorted(random.sample(AGES, random.randrange(4)), reverse=True):
        _happen(random, world, story, age)
    known = [*story.versions, *story.gone]
    if world.ordering is Ordering.EVERY_VERSION:
        seen: set[str] = set()
        for state in known:
            if random.random() < 0.7 and state.identity not in seen:
                seen.add(state.identity)
                record = _record(random, state)
                _leave_untagged(random, record, [state])
                story.records.append(record)
    elif random.random() < 0.8 and (known or world.deletes):
        record = _record(random, random.choice([*known, *([ABSENT] if known else [])] or [ABSENT]))
        if record.outcome is not Outcome.PROCESSED and known and random.random() < 0.5:
            record.committed = random.choice(known)
        if record.outcome is Outcome.PROCESSED and known and random.random() < 0.3:
            record.late_write = random.choice(known)
        _leave_untagged(random, record, known)
        story.records.append(record)
    return story


def _record(random: Random, state: State) -> Record:
    return Record(state, random.choice([Outcome.PROCESSED, Outcome.PROCESSED, *Outcome]), random.choice(AGES))


def _leave_untagged(random: Random, record: Record, known: list[State]) -> None:
    """Let the worker of a commit die before the tag of some version. The version may have expired since."""
    objects = [state for state in known if state.kind is StateKind.OBJECT and state.version_id is not None]
    if objects and random.random() < 0.5:
        record.untagged = random.sample(objects, random.randrange(1, len(objects) + 1))


def _happen(random: Random, world: OracleWorld, story: Story, age: int) -> None:
    """An upload, a deletion, or the removal of the newest version for good."""
    at = world.now - age
    what = random.choice(["put", "put", "put", "delete", "purge"])
    name = f"{len(story.versions) + len(story.gone)}-{zlib.crc32(story.key.encode()):08x}"
    if what == "purge":
        if story.versions:
            story.gone.append(story.versions.pop())
        return
    keeps_versions = world.versioning is Versioning.ENABLED
    # A suspended bucket kept the versions of before.
    if world.versioning is Versioning.SUSPENDED:
        keeps_versions = not story.versions and random.random() < 0.5
    version = f"v-{name}" if keeps_versions else None
    if what == "put":
        state = State(StateKind.OBJECT, version, f"e-{name}", random.choice([0, 1, 1]), at)
    elif world.versioning is Versioning.NEVER:
        story.gone += story.versions
        story.versions = []
        return
    else:
        state = State(StateKind.MARKER, version, created_at=at)
    if version is None:
        # The version with the id `null`, of which there is one at most, is replaced.
        story.gone += [version_ for version_ in story.versions if version_.version_id is None]
        story.versions = [version_ for version_ in story.versions if version_.version_id is not None]
    story.versions.append(state)


def build(world: OracleWorld, page_size: int) -> AuditWorld:
    """The same world for the code."""
    made = AuditWorld(
        ordering=world.ordering,
        versioned=world.versioning is not Versioning.NEVER,
        deletes=world.deletes,
        filters=world.filters,
        page_size=page_size,
        settled_ms=SETTLE,
        known_ms=LOOK_BACK,
        budget=100_000,
        after_commit=CommitTag("intake", "done") if world.tags else None,
    )
    assert made.clock() == world.now
    for story in world.stories:
        if story.versions:
            made.s3.keys[story.key] = list(story.versions)
        for record in story.records:
            _insert(made, story.key, record)
    return made


_STATUSES = {
    Outcome.PROCESSED: Status.PROCESSED,
    Outcome.FAILED: Status.FAILED,
    Outcome.FAILED_AND_DUE_LATER: Status.FAILED,
    Outcome.REJECTED: Status.REJECTED,
    Outcome.WORKER_BUSY: Status.PROCESSING,
    Outcome.WORKER_DEAD: Status.PROCESSING,
}


def _insert(made: AuditWorld, key: str, record: Record) -> None:
    now, more = made.clock(), dict[str, Any]()
    committed = record.about if record.outcome is Outcome.PROCESSED else record.committed
    if committed is not None:
        more["committed_state"] = committed.identity
        if committed.removed and not made.settings.deletes:
            # The downstream still has a version. The audit reports its return, and the ledger writes it back.
            more |= {"settled_as": "removal", "kept_state": "v#kept", "kept_fence": 1, "committed_fence": 1}
    if record.late_write is not None:
        more["late_writes"] = frozenset({record.late_write.identity})
    if record.untagged:
        more["tags_pending"] = " ".join(str(state.version_id) for state in record.untagged)
    if record.outcome is Outcome.FAILED_AND_DUE_LATER:
        more["retry_at"] = now + HOUR
    if record.outcome is Outcome.WORKER_BUSY:
        more["lease_until"] = now + MINUTE
    if record.outcome is Outcome.WORKER_DEAD:
        more["lease_until"] = now - record.age
    made.insert(key, record.about, _STATUSES[record.outcome], age=record.age, **more)
