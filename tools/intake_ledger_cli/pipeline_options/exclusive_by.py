"""The option `exclusive_by`: which groups are held, by which keys, and how many keys wait for each."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from intake_ledger.keyed.key_lock import is_holding
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.options.exclusive_by import holder_hash, holder_row
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import RowKey, group_key, row_from_attributes, waiting_partition
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow, ReadBudget
from intake_ledger_cli.pipeline_options import StatusPart

if TYPE_CHECKING:
    from intake_ledger.protocol.group_pattern import GroupPattern

MOST_ROWS = 1_000
"""The waiting rows that `status` looks at, those that have waited since their last look for the longest time."""
_MOST_GROUPS = 50
_MOST_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group of keys. Times are in epoch milliseconds."""

    group: str
    held_by: str | None
    """The key that is in work. None: the group is free."""
    held_since: int | None
    waiting: int | None = None
    """The number of keys that wait for the group. None: they were not counted."""


def group_name(deployed: DeployedPipeline, key: str) -> str | None:
    """The name of the group of a key. None: it has none."""
    pattern: GroupPattern | None = deployed.setting("exclusive_by")
    return None if pattern is None else pattern.group_of(key)


def group_of(aws: Aws, deployed: DeployedPipeline, key: str, now: int) -> GroupState | None:
    """The group of a key. None: it has none."""
    group = group_name(deployed, key)
    return None if group is None else _states(aws, deployed, {group: None}, now)[0]


def _waiting_groups(
    aws: Aws, deployed: DeployedPipeline, now: int, _item: Mapping[str, Any]
) -> list[GroupState] | None:
    """The groups that keys wait for, those with the most keys first. None: the pipeline has no groups.

    The index of waiting rows is eventually consistent.
    """
    if deployed.setting("exclusive_by") is None:
        return None
    names, budget = [waiting_partition(deployed.name)], ReadBudget(_MOST_REQUESTS)
    rows = reading.rows_to_review(aws.dynamodb, deployed, names=names, page_rows=MOST_ROWS, budget=budget)
    groups = Counter(
        group
        for entry in islice(rows, MOST_ROWS)
        if entry.row.reason_code == ReasonCode.GROUP_HELD and (group := group_name(deployed, entry.key)) is not None
    )
    return _states(aws, deployed, dict(groups.most_common(_MOST_GROUPS)), now)


def with_holder(aws: Aws, deployed: DeployedPipeline) -> Callable[[ObjectRow], ObjectRow]:
    """Put the key that has the group into the reason of a row that waits for it. A reason has a hash of it only.

    A key that has lost the group since is not named. Each lock is read once.
    """

    @cache
    def holder_of(group: str) -> str:
        return str(reading.read_item(aws.dynamodb, deployed, group_key(deployed.name, group)).get("holder", ""))

    def named(entry: ObjectRow) -> ObjectRow:
        row = entry.row
        group = group_name(deployed, entry.key) if row.waits_for_group else None
        if group is None or row.reason is None or not (holder := holder_of(group)):
            return entry
        key = holder_row(holder).pk.removeprefix(f"{deployed.bucket}/")
        return replace(entry, row=replace(row, reason=row.reason.replace(holder_hash(holder), key)))

    return named


def _states(aws: Aws, deployed: DeployedPipeline, groups: Mapping[str, int | None], now: int) -> list[GroupState]:
    locks = _read(aws, deployed, {group_key(deployed.name, group) for group in groups})
    held = {place: holder_row(lock["holder"]) for place, lock in locks.items() if lock.get("holder")}
    rows = {place: row_from_attributes(item) for place, item in _read(aws, deployed, set(held.values())).items()}
    found = []
    for group, waiting in groups.items():
        place = group_key(deployed.name, group)
        holder, lock = held.get(place), locks.get(place, {})
        outlives = deployed.has_executions
        if holder is None or not is_holding(rows.get(holder), lock, outlives=outlives, now=now):
            found.append(GroupState(group, None, None, waiting))
        else:
            key = holder.pk.removeprefix(f"{deployed.bucket}/")
            found.append(GroupState(group, key, lock.get("held_since"), waiting))
    return found


def _read(aws: Aws, deployed: DeployedPipeline, places: Collection[RowKey]) -> dict[RowKey, dict[str, Any]]:
    if len(places) == 1:  # `inspect` needs no permission for batches
        return {place: item for place in places if (item := reading.read_item(aws.dynamodb, deployed, place))}
    return LedgerTable(aws.dynamodb, deployed.table).get_items([*places]) if places else {}


GROUPS = StatusPart("groups", _waiting_groups)
