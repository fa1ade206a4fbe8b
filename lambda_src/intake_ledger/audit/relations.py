"""Makes the entries of the two relations of the query in `audit.sql`.

`listed` has the states that S3 shows, `held` the rows of the ledger. The query runs on SQLite, DuckDB and Athena.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.diff import Window
from intake_ledger.audit.listing import Page, Place
from intake_ledger.audit.row_numbers import RowNumbers
from intake_ledger.audit.table import AuditTable, Held
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.row import RowKey, row_key
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LISTED, HELD = "listed", "held"
QUERY = Path(__file__).with_name("audit.sql")
_STATE = {"key": "VARCHAR", "place": "VARCHAR", "state": "VARCHAR", "kind": "VARCHAR", "etag": "VARCHAR"}
_STATE |= {"size": "BIGINT"}
COLUMNS: dict[str, dict[str, str]] = {
    LISTED: _STATE | {"created_at": "BIGINT", "skipped": "VARCHAR"},
    HELD: _STATE | {"committed": "VARCHAR", "updated_at": "BIGINT", "readable": "BOOLEAN", "may_be_gone": "BOOLEAN"},
}
"""The columns of each relation."""
CANDIDATE: dict[str, type] = {"key": str, "place": str, "shown": bool, "state": str, "kind": str, "etag": str}
CANDIDATE |= {"size": int, "created_at": int}
"""The columns of the query's result that make a candidate."""
CANDIDATE_COLUMNS = ", ".join(CANDIDATE)
_OF_VERSIONS = ("v#", "d#")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state that may differ. `shown` is true if S3 showed the state, and false if it is the row's."""

    key: str
    place: str
    shown: bool
    state: State

    def row_key(self, settings: AuditSettings) -> RowKey:
        """The key of its row."""
        return RowKey(f"{settings.bucket}/{self.key}", f"{settings.pipeline}@{self.place}")


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a page of a listing or a scan."""

    entries: Sequence[Sequence[Any]]
    """Entries that the filters take."""
    after: str
    """The place where the next page begins, as JSON. Empty on the last page."""
    read: int
    """The number of entries before the filters."""
    later_format: int = 0
    rows: RowNumbers = field(default_factory=RowNumbers)
    """The rows of a scan that the filters take."""


def place_of(start: str) -> Place | None:
    """The place in a listing from an `Entries.after`. None at the beginning."""
    return Place(**json.loads(start)) if start else None


def listed(pages: Iterable[Page], settings: AuditSettings) -> Iterator[Entries]:
    """The entries of a listing."""
    for page in pages:
        wanted = [listed_entry(key, state, settings) for key, state in page.states if settings.wants(key)]
        yield Entries(wanted, _text(page.after), len(page.states))


def held(
    dynamodb: "DynamoDBClient", settings: AuditSettings, segment: tuple[int, int], start: str = "", *, now: int
) -> Iterator[Entries]:
    """The entries of one segment of the table, `(number, total)`, from `start` on. `now` is in epoch milliseconds."""
    ours = f"{settings.bucket}/"
    table = AuditTable(dynamodb, settings.table, segment)
    for page in table.held(
        settings.pipeline,
        settings.ordering,
        RowKey(**json.loads(start)) if start else None,
        tags=settings.after_commit is not None,
    ):
        keys = [(row.row_key.pk.removeprefix(ours), row) for row in page.rows if row.row_key.pk.startswith(ours)]
        wanted, numbers = [], RowNumbers()
        for key, row in keys:
            if settings.wants(key):
                wanted.append(held_entry(key, row, settings))
                numbers.count(
                    row.status,
                    claimed_at=row.updated_at,
                    lease_until=row.lease_until,
                    now=now,
                    settled_as=row.settled_as,
                )
        later_format = sum(not row.readable for row in page.rows)
        yield Entries(wanted, _text(page.after), len(page.rows), later_format, numbers)


def listed_entry(key: str, state: State, settings: AuditSettings) -> list[Any]:
    """The entry of a state of the bucket."""
    place = _place(row_key(settings.pipeline, settings.ordering, settings.bucket, key, state.identity), settings)
    skipped = settings.skips(key, state)
    return [key, place, state.identity, state.kind.value, state.etag, state.size, state.created_at, skipped]


def held_entry(key: str, row: Held, settings: AuditSettings) -> list[Any]:
    """The entry of a row of the ledger."""
    state = row.state
    of_state = [state.identity, state.kind.value, state.etag, state.size] if state else [None] * 4
    of_row = [row.committed, row.updated_at, row.readable, row.may_be_gone]
    return [key, _place(row.row_key, settings), *of_state, *of_row]


def candidate(content: Sequence[Any]) -> Candidate:
    """The candidate with these values of `CANDIDATE`."""
    key, place, shown, identity, kind, etag, size, created_at = content
    if identity is None or kind is None:
        state = ABSENT
    else:
        version = identity[2:] if identity.startswith(_OF_VERSIONS) else None
        state = State(StateKind(kind), version, etag, size, created_at)
    return Candidate(key, place, bool(shown), state)


def no_entries(relation: str) -> str:
    """A relation without entries, as SQL."""
    return (
        f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {name}' for name, kind in COLUMNS[relation].items())} WHERE FALSE"
    )


def judged(window: Window, *, deletes: bool, all_listed: bool) -> str:
    """The relation `judged` of the query, as SQL.

    `all_listed` is true if `listed` has the whole bucket. Then a row without a listed state has a removed object.
    """
    removals_since = window.known_since if window.removals_since is None else window.removals_since
    values = asdict(window) | {"removals_since": removals_since, "deletes": deletes, "all_listed": all_listed}
    return "SELECT " + ", ".join(f"{value} AS {name}" for name, value in values.items())


def _place(row_key: RowKey, settings: AuditSettings) -> str:
    """The part of the sort key that differs between the rows of one key. In LATEST a key has one row."""
    return row_key.sk.removeprefix(f"{settings.pipeline}@")


def _text(after: Place | RowKey | None) -> str:
    return json.dumps(asdict(after)) if after else ""
