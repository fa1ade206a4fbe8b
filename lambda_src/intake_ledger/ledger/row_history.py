"""The row history: whether the ledger has a row for each object that it has processed. One item of the table has it.

A pipeline keeps the row of an object as long as the object (`keeps_rows`), or lets it expire. Each execution
environment records its setting before it writes a row. Therefore a ledger that ever let rows of objects expire is
never said to have all rows. The item's partition key is the bucket's name, which is never the key of a row.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey
from intake_ledger.protocol.settings import Settings

KEPT, NOT_KEPT, FILTERED = "rows_kept_since", "incomplete_since", "filters_since"
"""Start times in the item, in epoch milliseconds: rows of objects are kept, some rows may be missing, and the pipeline
has its present filters."""
UNTOLD = "removals_untold_since"
"""The start time of the first environment without `deletes`. The rows of removals that it settled expire, and the
downstream still has their objects."""
EXCLUDED = "excluded"
"""The patterns of `exclude` of all times, as `noted` gives them."""
_ASK_AGAIN_MS = 60_000  # less than a deletion and a restore of a table take
_TABLE, _ORDERING, _FILTERS = "table_name", "ordering", "filters"
_NOT_MARKED = Condition(f"attribute_not_exists(#{NOT_KEPT})", (NOT_KEPT,), {})
_PRESENT = Condition("attribute_exists(#pk)", ("pk",), {})


class RowHistory:
    """The knowledge of the ledger about objects without a row. This one knows nothing: rows may have expired."""

    def begin(self) -> None:
        """Record the setting before the first row is written. Raises ClientError if that fails."""

    def all_rows_since(self) -> int | None:
        """The time since which each processed object has a row, in epoch milliseconds.

        0: always. None: rows may be missing.
        """

    def is_complete(self) -> bool:
        """True if the downstream has no object whose key has no row. Raises ClientError if that cannot be asked."""
        return False

    def restored_to(self) -> float | None:
        """The time of the backup behind the table; see `LedgerTable`. Raises ClientError if that cannot be asked."""
        return None


@dataclass(slots=True)
class RowHistoryRecord(RowHistory):
    """The item of one pipeline. Each execution environment writes it once. `clock` gives epoch milliseconds."""

    settings: Settings
    table: LedgerTable
    clock: Callable[[], int]
    _item: dict[str, Any] = field(default_factory=dict, init=False)
    _asked_at: int | None = field(default=None, init=False)
    """When DynamoDB last said whether the table was restored from a backup."""
    _restored_to: float | None = field(default=None, init=False)
    _seen: dict[str, Any] | None = field(default=None, init=False)

    def begin(self) -> None:
        """Record the setting, once. Raises ClientError if that fails."""
        if not self._item:
            self._item = self._write()

    def all_rows_since(self) -> int | None:
        """The time since which each processed object has a row; see `RowHistory`."""
        self.begin()
        return all_rows_since(self._item, self.settings)

    def is_complete(self) -> bool:
        """True if the downstream has no object without a row; see `RowHistory`.

        The rows of what was processed after a backup are missing in a table that was restored from it.
        """
        if self.all_rows_since() != 0 or UNTOLD in self._item:
            return False
        return self.restored_to() is None

    def restored_to(self) -> float | None:
        """The time of the backup behind the table; see `RowHistory`. DynamoDB is asked at most once a minute."""
        now = self.clock()
        if self._asked_at is None or now - self._asked_at >= _ASK_AGAIN_MS:
            self._restored_to, self._asked_at = self.table.restored_to(), now
        return self._restored_to

    def look(self) -> int | None:
        """`all_rows_since` without a write, for audits, which write no rows. Raises ClientError if that fails."""
        return all_rows_since(self._read(), self.settings)

    def with_former[Of: Settings](self, settings: Of, *, note: bool) -> Of:
        """The settings of an audit with the former patterns; see `with_former`. Raises ClientError if that fails.

        With `note`, the end of a pattern is recorded, also if the consumer has not started since.
        """
        record, now = self._read(), self.clock()
        if note and EXCLUDED in record and (content := _noted(settings, record, now)) != record[EXCLUDED]:
            self.table.mark(record_key(settings), {EXCLUDED: content}, _PRESENT)
        return with_former(settings, record, now)

    def _read(self) -> dict[str, Any]:
        """The item, as it was read first."""
        if self._seen is None:
            self._seen = self.table.read(record_key(self.settings))
        return self._seen

    def _write(self) -> dict[str, Any]:
        settings, key, now = self.settings, record_key(self.settings), self.clock()
        untold = {UNTOLD: now} if settings.keeps_rows and not settings.deletes else {}
        content = {KEPT if settings.keeps_rows else NOT_KEPT: now} | untold | _conditions(settings)
        if (patterns := _noted(settings, {}, now)) is not None:
            content[EXCLUDED] = patterns
        item = self.table.put_new(key, content)
        if item == content:
            return item
        changes: dict[str, Any] = {}
        if item.get(_FILTERS) != content[_FILTERS]:
            changes = {_FILTERS: content[_FILTERS], FILTERED: now}
        if UNTOLD not in item:
            changes |= untold
        if (patterns := _noted(settings, item, now)) != item.get(EXCLUDED):
            changes[EXCLUDED] = patterns
        if changes:
            self.table.mark(key, changes, _PRESENT)
        if NOT_KEPT not in item and not (settings.keeps_rows and _has_all_rows(item, settings)):
            changes[NOT_KEPT] = now
            with suppress(ConditionFailed):  # another environment was first
                self.table.mark(key, {NOT_KEPT: now}, _NOT_MARKED)
        return item | changes


def record_key(settings: Settings) -> RowKey:
    """The key of the pipeline's record."""
    return RowKey(settings.bucket, f"{settings.pipeline}@ledger")


def with_former[Of: Settings](settings: Of, record: Mapping[str, Any], now: int) -> Of:
    """The settings with the patterns that have ended by the pipeline's record. What they left out is not processed
    until a person asks.
    """
    if EXCLUDED not in record:
        return settings
    from intake_ledger.protocol import exclude  # noqa: PLC0415 - few pipelines have patterns

    return replace(settings, exclude=exclude.with_former(settings.exclude, record[EXCLUDED], now))


def all_rows_since(item: Mapping[str, Any], settings: Settings) -> int | None:
    """The time since which each processed object has a row; see `RowHistory`.

    After a change of the filters, this is the time of the change: the earlier filters may have excluded older objects.
    """
    if not settings.keeps_rows or KEPT not in item or NOT_KEPT in item or not _has_all_rows(item, settings):
        return None
    if item[_FILTERS] != _conditions(settings)[_FILTERS]:
        return None  # deployed a moment ago: the consumer has not recorded it yet
    return max(int(item[KEPT]) if settings.skips_existing else 0, int(item.get(FILTERED, 0)))


def _has_all_rows(item: Mapping[str, Any], settings: Settings) -> bool:
    """True if the record describes the rows of this table and ordering.

    A table with another name was restored from a backup, and lacks the rows of later objects. Each ordering has
    different rows.
    """
    return (item.get(_TABLE), item.get(_ORDERING)) == (settings.table, settings.ordering)


def _noted(settings: Settings, record: Mapping[str, Any], now: int) -> str | None:
    """The record of the patterns; see `intake_ledger.protocol.exclude.noted`."""
    if settings.exclude is None and EXCLUDED not in record:
        return None
    from intake_ledger.protocol.exclude import noted  # noqa: PLC0415 - few pipelines have patterns

    return noted(settings.exclude, record.get(EXCLUDED), now)


def _conditions(settings: Settings) -> dict[str, str]:
    filters = json.dumps(sorted([key_filter.prefix, key_filter.suffix] for key_filter in settings.filters))
    # DynamoDB charges for the size of the item at each start, and filters may have many kilobytes.
    digest = hashlib.sha256(filters.encode()).hexdigest()
    return {_TABLE: settings.table, _ORDERING: settings.ordering.value, _FILTERS: digest}
