"""Derive the state of a set from its manifest's version and from the ledger's rows of its parts.

The state of a complete set is named after the manifest's version and the committed version of each part, so each of
these changes makes another state. All incomplete states of one manifest version have one name: the wait for the parts
has one beginning, and the part that arrives last makes the complete state.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched, chain

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import Bucket, s3_refusal
from intake_ledger.ledger.dynamodb_table import BATCH_GET_KEYS, LedgerTable
from intake_ledger.ledger.row_history import record_key, with_former
from intake_ledger.protocol.change import ABSENT, Change, State, StateKind, is_directory_marker
from intake_ledger.protocol.errors import ObjectGone, Unprocessable
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, row_from_attributes, row_key
from intake_ledger.set_members.forms import MAX_PARTS, FormKind
from intake_ledger.set_members.membership import expirations_key
from intake_ledger.sets.manifest import MAX_BYTES, parts_of
from intake_ledger.sets.settings import SetSettings

COMPLETE, INCOMPLETE, MALFORMED, REFUSED = "complete", "incomplete", "malformed", "refused"
MOVING = "moving"
"""The first word in the name of the state of a folder that still gets uploads."""
SHRINKING = "shrinking"
"""The same for a finished set from whose folder parts were removed a moment ago."""
REDUCED = "reduced"
"""The same for a finished set that has lost parts, and for which the processor is not called again."""
REMOVALS_QUIET_MS = 600_000
"""The quiet time of removals from a marker's folder. A quiet folder has its own."""
_CLOCKS_MS = 5_000
"""Clocks differ. A commit of a part so shortly after the claim of its set counts as one before the claim."""
_TRIES = 3
"""A manifest may be replaced between two requests, and then its earlier version may be gone."""
_SHOWN = 3
_CACHED = 8
"""Manifests that an execution environment remembers, if S3 let it read them. Each wake of a set needs its manifest."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The parts that a set should have."""

    source: State
    """The state of the manifest or marker. For a folder: a removal if it has no objects."""
    keys: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """The version of each part whose version the manifest names."""
    problem: str | None = None
    """Why the manifest names no valid set. None: it does."""
    refusal: ClientError | None = None
    """S3's refusal to read the manifest."""
    changed_at: int | None = None
    """The newest Last-Modified of a folder's objects, also of hidden ones, in epoch milliseconds."""
    with_hidden: tuple[str, ...] = ()
    """The keys with those of hidden objects, if a folder has any. They were parts of sets of earlier settings."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A set as the ledger knows it."""

    listing: Listing
    state: State
    """The state that the ledger of the sets claims and commits."""
    parts: Mapping[str, State] = field(default_factory=dict)
    """The committed version of each part that has one, if it is not another than the manifest names."""
    others: Mapping[str, State] = field(default_factory=dict)
    """The committed version of each part of which the manifest names another version."""
    quiet_at: int | None = None
    """The time at which the folder is quiet, in epoch milliseconds. None: it is."""
    newest: int = 0
    """The time at which the newest of the committed versions was first committed, in epoch milliseconds."""
    arrived_at: int = 0
    """The same, without parts that a person has processed again. Their rows may have expired before."""

    @property
    def missing(self) -> list[str]:
        """The keys of the parts without a committed version, or with another one than the manifest names."""
        return [key for key in self.listing.keys if key not in self.parts]

    def what_is_missing(self) -> str:
        """Describe the missing parts."""
        missing = self.missing
        more = ", …" if len(missing) > _SHOWN else ""
        first = ", ".join(map(self._described, missing[:_SHOWN]))
        return f"{len(missing):,} of {len(self.listing.keys):,} parts are missing: {first}{more}"

    def _described(self, key: str) -> str:
        wanted, other = self.listing.versions.get(key), self.others.get(key)
        if wanted is None:
            return key
        return f"{key} in version {wanted}" + ("" if other is None else f" ({version_of(other)} is committed)")


@dataclass(slots=True)
class _Read:
    """The content of the rows of the parts."""

    parts: dict[str, State] = field(default_factory=dict)
    others: dict[str, State] = field(default_factory=dict)
    newest: int = 0
    arrived_at: int = 0
    updated_at: int = 0
    """The time of the last write of a part's row, in epoch milliseconds."""


class SetReader:
    """Reads the states of sets, as `Bucket` reads those of objects."""

    def __init__(self, table: LedgerTable, bucket: Bucket, settings: SetSettings, clock: Callable[[], int]) -> None:
        self._table = table
        self._bucket = bucket
        self._settings = settings
        self._parts = settings.parts
        self._form = settings.form
        self._clock = clock
        self._known: dict[tuple[str, str], Listing] = {}

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._bucket.name

    def look_for(self, change: Change, row: Row | None) -> State:
        """The present state of the set that a message names. Raises ClientError if AWS does not answer."""
        if row is not None:
            return self.look(change.key, known_row(change, row))
        # Only the row of a part that the message names may tell that the set is young. So it is read first.
        contents = self._contents(self.listing(change.key), whole=False, first=frozenset(change.parts))
        state, retention_ms = contents.state, self._settings.consumer.retention_seconds * 1000
        if state.removed or (state.created_at or 0) >= self._clock() - retention_ms:
            return state
        # The manifest may be a replica. Or it is old, and a part was replaced after the rows of the others expired.
        arrived_at = max(contents.arrived_at, self._first_commit(change.key, contents.listing.source))
        return replace(state, created_at=max(state.created_at or 0, arrived_at))

    def _first_commit(self, key: str, source: State) -> int:
        """The time at which this version of the manifest or marker was first committed. 0: it is not known."""
        row = self._rows([key]).get(key)
        return row.committed_at or 0 if row is not None and row.committed_state == source.identity else 0

    def look(self, key: str, row: Row | None) -> State:
        """The present state of a set; see `contents`. Raises ClientError if AWS does not answer."""
        return self.contents(key, self.listing(key), row=row, whole=False).state

    def created_at(self, key: str, marker: State) -> int | None:
        """The creation time of a manifest's delete marker; see `Bucket.created_at`."""
        return self._bucket.created_at(key, marker)

    def shows_removal(self, key: str, removal: State) -> bool:
        """True if the manifest was removed; see `Bucket.shows_removal`."""
        return self._bucket.shows_removal(key, removal)

    def listing(self, key: str) -> Listing:
        """The parts that the set should have, by S3."""
        if self._form.kind is FormKind.QUIET:
            return self._folder(key, None)
        for _ in range(_TRIES):
            source = self._bucket.look(key)
            if source.removed:
                return Listing(source)
            try:
                return self._folder(key, source) if self._form.kind is FormKind.MARKER else self._manifest(key, source)
            except ObjectGone:
                continue
        raise ObjectGone(f"{key}: the manifest was replaced at each look")

    def contents(self, key: str, listing: Listing, *, row: Row | None, whole: bool) -> Contents:
        """The set as the ledger knows it.

        Args:
            key: the key of the set.
            listing: its parts, by S3.
            row: the row of the set. Removals from a finished set are judged by it. None: there is none, or a person
                asks for the set, so that removals are changes as all others.
            whole: false: stop at the first hundred parts of which one is missing. The state is the same.

        """
        contents = self._contents(listing, whole=whole)
        if row is None or (source := _finished(row, listing.source)) is None:
            return contents
        return self._after_removals(key, contents, row, source)

    def _after_removals(self, key: str, contents: Contents, row: Row, source: str) -> Contents:
        """The set that was finished with this manifest or marker, if parts were removed since, and nothing else.

        A part that was committed later is a change. Otherwise only removals can make the difference.
        """
        listing, name = contents.listing, contents.state.version_id or ""
        if contents.state.identity in (row.committed_state, row.identity):
            return contents
        if listing.with_hidden:
            earlier = self._contents(replace(listing, keys=listing.with_hidden), whole=False)
            if earlier.state.identity == row.committed_state:
                return replace(contents, state=earlier.state)
        manifest = self._form.kind is FormKind.MANIFEST
        if not name.startswith(INCOMPLETE if manifest else COMPLETE):
            return contents
        if contents.missing:
            contents = self._contents(listing, whole=True)
        if contents.newest > (row.committed_fence or 0) + _CLOCKS_MS:
            return contents
        if manifest or not listing.keys or self._expired(key, row):
            return replace(contents, state=_unchanged(row, source))
        return self._shrinking(contents, row)

    def _shrinking(self, contents: Contents, row: Row) -> Contents:
        """The set from whose folder parts were removed. It waits in a state of its own until the folder is quiet."""
        shrinking = _state(SHRINKING, contents.listing.source, contents.state.identity)
        now = self._clock()
        waits = row.identity == shrinking.identity and row.waiting_since is not None
        quiet_ms = self._form.quiet_seconds * 1000 or REMOVALS_QUIET_MS
        # Half of `max_wait`, so that no wait for quiet ends in a rejection.
        quiet_ms = min(quiet_ms, self._settings.consumer.max_wait_seconds * 500)
        quiet_at = (row.waiting_since or now if waits else now) + quiet_ms
        return contents if waits and quiet_at <= now else replace(contents, state=shrinking, quiet_at=quiet_at)

    def _expired(self, key: str, row: Row) -> bool:
        """True if a lifecycle rule has removed parts since the set was finished."""
        item = self._table.read(expirations_key(self._settings.consumer.pipeline, self.name, key))
        return int(item.get("expired_at", 0)) > (row.committed_fence or 0)

    def _contents(self, listing: Listing, *, whole: bool, first: Collection[str] = ()) -> Contents:
        source = listing.source
        if source.removed:
            return Contents(listing, source)
        if listing.problem is not None or listing.refusal is not None:
            return Contents(listing, _state(MALFORMED if listing.problem else REFUSED, source, source.identity))
        quiet_ms = self._form.quiet_seconds * 1000
        if listing.changed_at is not None and (quiet_at := listing.changed_at + quiet_ms) > self._clock():
            # Another name in each period, so that the wait for quiet has no deadline.
            return Contents(listing, _state(MOVING, source, listing.changed_at // quiet_ms), quiet_at=quiet_at)
        read = self._read(listing, whole=whole, first=first)
        parts = read.parts
        if len(parts) < len(listing.keys):
            return Contents(
                listing,
                _state(INCOMPLETE, source, source.identity),
                parts,
                read.others,
                newest=read.newest,
                arrived_at=read.arrived_at,
            )
        if self._form.kind is FormKind.QUIET and (quiet_at := read.newest + quiet_ms) > self._clock():
            # The Last-Modified of a replica may be old.
            return Contents(listing, _state(MOVING, source, read.newest // quiet_ms), parts, quiet_at=quiet_at)
        versions = [(key, parts[key].identity) for key in listing.keys]
        word = f"{COMPLETE}-{_digest(source.identity, 8)}"
        complete = _state(
            word, source, [source.identity, versions], created_at=max(source.created_at or 0, read.updated_at)
        )
        return Contents(listing, complete, parts, newest=read.newest)

    def _read(self, listing: Listing, *, whole: bool, first: Collection[str]) -> "_Read":
        """Read the rows of the parts, those of `first` before the others."""
        read = _Read()
        # The order of the reads is not that of the manifest. Otherwise a set whose last parts are missing would be
        # read completely at each wake.
        order = sorted(listing.keys, key=lambda key: (key not in first, zlib.crc32(key.encode())))
        for group in batched(order, BATCH_GET_KEYS):
            rows = self._rows(group)
            for key in group:
                row = rows.get(key)
                version = None if row is None else self._committed(key, row)
                if row is None or version is None:
                    continue
                wanted = listing.versions.get(key) in (None, version_of(version))
                (read.parts if wanted else read.others)[key] = version
                read.newest = max(read.newest, row.committed_at or 0)
                if row.served_reprocess_id is None:
                    read.arrived_at = max(read.arrived_at, row.committed_at or 0)
                read.updated_at = max(read.updated_at, row.updated_at if wanted else 0)
            if not whole and any(key not in read.parts for key in group):
                break
        return read

    def _rows(self, keys: Sequence[str]) -> dict[str, Row]:
        wanted: dict[RowKey, str] = {
            row_key(self._parts.pipeline, Ordering.LATEST, self._parts.bucket, key, None): key for key in keys
        }
        items = self._table.get_items(list(wanted))
        rows = {wanted[place]: row_from_attributes(item) for place, item in items.items()}
        return {key: row for key, row in rows.items() if row is not None}

    def _committed(self, key: str, row: Row) -> State | None:
        """The version of the part that was committed last. None: none was, or its removal."""
        identity = row.committed_state
        if identity is None or row.status is Status.LATER_FORMAT:
            return None
        kind, _, name = identity.partition("#")
        if kind == "e":
            return State(StateKind.OBJECT, etag=name)
        if kind != "v":
            return None
        if row.identity == identity:
            return State(StateKind.OBJECT, name) if row.kind is StateKind.OBJECT else None
        # Another version is in work. The row does not tell whether the committed one is a delete marker.
        marker = State(StateKind.MARKER, name)
        return None if self._bucket.shows_removal(key, marker) else State(StateKind.OBJECT, name)

    def _manifest(self, key: str, source: State) -> Listing:
        if (known := self._known.get((key, source.identity))) is not None:
            # In a bucket without versions, the same bytes may have been uploaded again.
            return replace(known, source=source)
        listing = self._parsed(key, source)
        # A refusal may end at any time. A manifest that was read does not change.
        if listing.refusal is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[key, source.identity] = listing
        return listing

    def _parsed(self, key: str, source: State) -> Listing:
        if (source.size or 0) > MAX_BYTES:
            return Listing(source, problem=f"the manifest has {source.size:,} bytes, at most {MAX_BYTES:,} are read")
        try:
            with self._bucket.open(key, source) as stream:
                content = stream.read()
        except ClientError as refusal:
            if s3_refusal(refusal) is None:
                raise
            return Listing(source, refusal=refusal)
        try:
            parts = parts_of(content, key, self._form, bucket=self.name, why_never=self._why_never)
        except Unprocessable as problem:
            return Listing(source, problem=str(problem))
        return Listing(source, tuple(parts), {key: version for key, version in parts.items() if version is not None})

    def _why_never(self, key: str) -> str | None:
        """Why the parts' pipeline never commits the key, so that a manifest may not name it. None: it may."""
        if not self._parts.wants(key):
            return "outside of the pipeline's filters"
        exclude = self._parts.exclude
        if exclude is not None and exclude.matches(key) and self._without_row([key]):
            return "left out by `exclude` of the pipeline"
        return None

    def _without_row(self, keys: Sequence[str]) -> set[str]:
        """The keys that no row knows. `exclude` leaves out no others."""
        return set(keys).difference(*(self._rows(group) for group in batched(keys, BATCH_GET_KEYS)))

    def _folder(self, key: str, source: State | None) -> Listing:
        """The objects of a folder, without its marker. Without a marker, they are the whole set.

        Directory markers are left out, with or without a row, because the pipeline of the parts skips them.
        """
        folder = self._form.folder(key)
        parts = with_former(self._parts, self._table.read(record_key(self._parts)), self._clock())
        listed = chain.from_iterable(self._bucket.pages(folder))
        objects = (
            (name, at)
            for name, at, size in listed
            if name not in (key, folder)
            and parts.wants(name)
            and not self._form.is_control(name)
            and not is_directory_marker(name, size)
        )
        found, every, matching, changed_at = list[str](), list[str](), list[str](), 0
        for name, at in objects:
            # Parts may follow after any number of other objects.
            hidden = self._form.is_hidden(name, folder)
            changed_at = max(changed_at, at)
            if not hidden:
                found.append(name)
                if parts.exclude is not None and parts.exclude.leaves_out(name, at):
                    matching.append(name)
            if len(every) <= MAX_PARTS:
                every.append(name)
            if len(found) - len(matching) == MAX_PARTS + 1:
                break
        if matching:
            left_out = self._without_row(matching)
            found, every = ([name for name in names if name not in left_out] for names in (found, every))
        if source is None:
            if not found:
                return Listing(ABSENT)
            source = State(StateKind.OBJECT, "folder", created_at=changed_at)
        if len(found) > MAX_PARTS:
            return Listing(source, problem=f"the folder has more than {MAX_PARTS:,} objects")
        with_hidden = tuple(every) if len(found) < len(every) <= MAX_PARTS else ()
        moved_at = changed_at if self._form.kind is FormKind.QUIET else None
        return Listing(source, tuple(found), changed_at=moved_at, with_hidden=with_hidden)


def known_row(change: Change, row: Row | None) -> Row | None:
    """The row by which removals are judged. None: a person asks for the set."""
    return None if change.asked_for or (row is not None and row.reprocess_id is not None) else row


def _finished(row: Row, source: State) -> str | None:
    """The digest of the manifest or marker, if the set was finished with this version of it. None: it was not."""
    digest = _digest(source.identity, 8)
    names = (f"v#{COMPLETE}-{digest}-", f"v#{REDUCED}-{digest}")
    return digest if not source.removed and (row.committed_state or "").startswith(names) else None


def _unchanged(row: Row, source: str) -> State:
    """The state of a finished set for which the processor is not called again: the committed one, if it is settled."""
    if not row.settled:
        return State(StateKind.MARKER, f"{REDUCED}-{source}")
    name = (row.committed_state or "").removeprefix("v#")
    return State(StateKind.MARKER if name.startswith(REDUCED) else StateKind.OBJECT, name)


def version_of(state: State) -> str:
    """The version, as a manifest names it: `null` without versioning."""
    return state.version_id or "null"


def _state(word: str, source: State, facts: object, *, created_at: int | None = None) -> State:
    """A state of a set. Its name begins with a word for people."""
    return State(StateKind.OBJECT, f"{word}-{_digest(facts, 32)}", created_at=created_at or source.created_at)


def _digest(facts: object, length: int) -> str:
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:length]
