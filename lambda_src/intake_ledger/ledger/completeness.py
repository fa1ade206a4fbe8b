"""Whether the ledger still has a row for every object that it ever processed. One item of the table records it.

A pipeline either keeps the row of an object as long as the object (`keeps_rows`), or lets it expire. Each environment
writes down which of both it does before it writes a row, so a ledger that ever let rows of objects expire can never be
taken for a complete one. The item's partition key is the bucket alone, which no object's row can have.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol import RowKey, Settings

KEPT, INCOMPLETE, FILTERED = "rows_kept_since", "incomplete_since", "filters_since"
"""Times in the item, in epoch milliseconds: since when rows of objects are kept, since when some may be missing, and
since when the pipeline has its present filters."""
_TABLE, _ORDERING, _FILTERS = "table_name", "ordering", "filters"
_STILL_COMPLETE = Condition(f"attribute_not_exists(#{INCOMPLETE})", (INCOMPLETE,), {})
_PRESENT = Condition("attribute_exists(#pk)", ("pk",), {})


class Completeness(Protocol):
    """What the ledger knows about the rows that it does not find."""

    def begin(self) -> None:
        """Write down how rows are kept, before the first row is written. Raises ClientError if that fails."""

    def complete_since(self) -> int | None:
        """Since when every object that was processed has a row, in epoch milliseconds. 0: always. None: some may be
        missing.
        """


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A ledger that knows nothing about the rows that it does not find."""

    def begin(self) -> None:
        """There is nothing to write."""

    def complete_since(self) -> None:
        """Rows of objects may have expired."""
        return


@dataclass(slots=True)
class CompletenessRecord:
    """The item of one pipeline. `clock` gives epoch milliseconds. An environment sends its request once."""

    settings: Settings
    table: LedgerTable
    clock: Callable[[], int]
    _found: dict[str, Any] = field(default_factory=dict, init=False)

    def begin(self) -> None:
        """Write down how rows are kept, once. Raises ClientError if that fails."""
        if not self._found:
            self._found = self._write()

    def complete_since(self) -> int | None:
        """Since when every object that was processed has a row; see `Completeness`."""
        self.begin()
        return complete_since(self._found, self.settings)

    def look(self) -> int | None:
        """The same, without a write: an audit processes nothing itself. Raises ClientError if that fails."""
        key = record_key(self.settings)
        return complete_since(self.table.get_items([key]).get(key, {}), self.settings)

    def _write(self) -> dict[str, Any]:
        settings, key, now = self.settings, record_key(self.settings), self.clock()
        content = {KEPT if settings.keeps_rows else INCOMPLETE: now} | _conditions(settings)
        found = self.table.put_new(key, content)
        if found == content:
            return found
        changes: dict[str, Any] = {}
        if found.get(_FILTERS) != content[_FILTERS]:
            changes = {_FILTERS: content[_FILTERS], FILTERED: now}
            self.table.mark(key, changes, _PRESENT)
        if INCOMPLETE not in found and not (settings.keeps_rows and _has_all_rows(found, settings)):
            changes[INCOMPLETE] = now
            with suppress(ConditionFailed):  # another environment was first
                self.table.mark(key, {INCOMPLETE: now}, _STILL_COMPLETE)
        return found | changes


def record_key(settings: Settings) -> RowKey:
    """Where the record of the pipeline is."""
    return RowKey(settings.bucket, f"{settings.pipeline}@ledger")


def complete_since(item: Mapping[str, Any], settings: Settings) -> int | None:
    """Since when every object that was processed has a row; see `Completeness`.

    After a change of the filters, only what is newer than the change is sure to have been looked at.
    """
    if not settings.keeps_rows or KEPT not in item or INCOMPLETE in item or not _has_all_rows(item, settings):
        return None
    if item[_FILTERS] != _conditions(settings)[_FILTERS]:
        return None  # deployed a moment ago: the consumer has yet to write it down
    return max(int(item[KEPT]) if settings.skips_existing else 0, int(item.get(FILTERED, 0)))


def _has_all_rows(item: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the rows are the ones that the record is about.

    A table with another name was restored from a backup, so what was processed since then has no row there. Each
    ordering has rows of its own.
    """
    return (item.get(_TABLE), item.get(_ORDERING)) == (settings.table, settings.ordering)


def _conditions(settings: Settings) -> dict[str, str]:
    filters = json.dumps(sorted([one.prefix, one.suffix] for one in settings.filters))
    # Each start of an environment pays for the size of the item, and filters may have many kilobytes.
    digest = hashlib.sha256(filters.encode()).hexdigest()
    return {_TABLE: settings.table, _ORDERING: settings.ordering.value, _FILTERS: digest}
