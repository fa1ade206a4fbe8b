"""The conditions of the ledger's writes, in expressions of single requests and in PartiQL for several writes in one.

Statements differ only by the names in them, and there are few combinations of names. Each text is made once.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import FORMAT, LEASE_ENDED, Row, RowKey, Status, to_dynamodb


class ConditionFailed(Exception):  # noqa: N818 - an answer, not an error
    """The condition did not hold. `row` is the present row, or None if there is none."""

    def __init__(self, row: Row | None) -> None:
        super().__init__("the row has changed since it was judged")
        self.row = row


class Condition(NamedTuple):
    """A condition expression with its values. A placeholder `#name` always stands for the attribute `name`."""

    expression: str
    names: tuple[str, ...]
    values: Mapping[str, Any]


NO_ROW = Condition("attribute_not_exists(#status) AND attribute_not_exists(#format)", ("status", "format"), {})
"""No attempt has claimed the key yet. An audit's mark has neither attribute. Rows of every later format have a
format."""

NO_ITEM = Condition("attribute_not_exists(#pk)", ("pk",), {})

PROCESSED = Condition("#status = :processed", ("status",), {":processed": Status.PROCESSED})
"""The last claim was committed or abandoned."""


def row_unchanged(row: Row, now: int, *, must_equal: bool = False, settles: bool = False) -> Condition:
    """No claim and no outcome was written since the row was judged, and its lease has ended. Every swap requires this.

    Late writes and marks of the audit may have been added. A row that was deleted and written again within the
    millisecond has the same fence. With `must_equal`, its content must be the same too, if it is known. With `settles`,
    no state was written late either: a settled row expires. `now` is in epoch milliseconds.

    Names of versions without a tag must be the same. The write that clears them lets the row expire, and a claimed row
    must not expire.
    """
    condition = Condition(
        f"#fence = :seen_fence AND #status = :seen_status AND {LEASE_ENDED}",
        ("fence", "status", "lease_until"),
        {":seen_fence": row.fence, ":seen_status": row.status, ":now": now},
    )
    same = {"etag": row.etag} if must_equal and row.etag is not None else {}
    same |= {"tags_pending": row.tags_pending} if row.tags_pending else {}
    condition = Condition(
        " AND ".join([condition.expression, *(f"#{name} = :seen_{name}" for name in same)]),
        (*condition.names, *same),
        {**condition.values, **{f":seen_{name}": value for name, value in same.items()}},
    )
    return _same_late_writes(condition, row) if settles else condition


def _same_late_writes(condition: Condition, row: Row) -> Condition:
    """The condition, and no state was written late since the row was read."""
    same, values = "attribute_not_exists(#late_writes)", condition.values
    if row.late_writes:
        same, values = "#late_writes = :seen_late_writes", {**values, ":seen_late_writes": row.late_writes}
    return Condition(f"{condition.expression} AND {same}", (*condition.names, "late_writes"), values)


def tags_unchanged(row: Row, *, expires: bool) -> Condition:
    """No claim, no outcome and no tag was written since the row was read. With `expires`, no state was written late
    since then either.
    """
    condition = Condition(
        "#fence = :seen_fence AND #status = :seen_status AND #tags_pending = :seen_tags_pending",
        ("fence", "status", "tags_pending"),
        {":seen_fence": row.fence, ":seen_status": row.status, ":seen_tags_pending": row.tags_pending},
    )
    return _same_late_writes(condition, row) if expires else condition


def lease_owned(row: Row) -> Condition:
    """The attempt still owns the claim. Every outcome requires this."""
    return Condition(
        "#fence = :own_fence AND #lease_owner = :own_owner AND #status = :processing",
        ("fence", "lease_owner", "status"),
        {":own_fence": row.fence, ":own_owner": row.lease_owner, ":processing": Status.PROCESSING},
    )


def claim_untouched(row: Row) -> Condition:
    """The attempt still owns the claim, and has not extended its lease since the row was read."""
    owned = lease_owned(row)
    return Condition(
        f"{owned.expression} AND #lease_until = :own_until",
        (*owned.names, "lease_until"),
        {**owned.values, ":own_until": row.lease_until},
    )


def same_claim(row: Row) -> Condition:
    """The row has the fence and the status that were read. Its lease may have been extended."""
    return Condition(
        "#fence = :seen_fence AND #status = :seen_status",
        ("fence", "status"),
        {":seen_fence": row.fence, ":seen_status": row.status},
    )


def no_other_late_writes(row: Row, own_state: str) -> Condition:
    """The attempt still owns the claim, and no other state was written late. A commit requires this."""
    owned = lease_owned(row)
    return Condition(
        f"{owned.expression} AND (attribute_not_exists(#late_writes) OR #late_writes = :only_own)",
        (*owned.names, "late_writes"),
        {**owned.values, ":only_own": frozenset({own_state})},
    )


def no_late_writes(row: Row) -> Condition:
    """The attempt still owns the claim, and no state was written late."""
    owned = lease_owned(row)
    return Condition(
        f"{owned.expression} AND attribute_not_exists(#late_writes)", (*owned.names, "late_writes"), owned.values
    )


def late_write_may_harm(row: Row) -> Condition:
    """A later claim has replaced this one, and this claim's late write may have damaged its result.

    A transaction's writes cannot be repeated, and a late write of the same state does no harm, nor does a removal after
    a later one that the processor was told of. Rows of a later format do not fulfil the condition.
    """
    harmless = "attribute_exists(#transactional) OR #committed_state = :own_state"
    names: tuple[str, ...] = ("format", "status", "fence", "transactional", "committed_state")
    kinds = dict[str, Any]()
    if row.kind in (StateKind.MARKER, StateKind.ABSENT):
        harmless += " OR (#kind IN (:marker, :absent) AND attribute_not_exists(#settled_as))"
        names += ("kind", "settled_as")
        kinds = {":marker": StateKind.MARKER, ":absent": StateKind.ABSENT}
    return Condition(
        "#format = :this_format AND attribute_exists(#status) AND #fence > :own_fence AND NOT (#status = :processed"
        f" AND ({harmless}))",
        names,
        {
            ":this_format": FORMAT,
            ":own_fence": row.fence,
            ":processed": Status.PROCESSED,
            ":own_state": row.identity,
            **kinds,
        },
    )


def insert_statement(table: str, item: Mapping[str, Any]) -> Any:
    """Insert an item, in DynamoDB's typed form, if there is none with its key."""
    return {"Statement": _insert_text(table, tuple(item)), "Parameters": list(item.values())}


def update_statement(
    table: str, key: RowKey, changed: Mapping[str, Any], removed: Iterable[str], condition: Condition
) -> Any:
    """Set and remove attributes of an item, if the condition holds."""
    where, names = _condition_text(condition.expression)
    values = [*changed.values(), key.pk, key.sk, *(condition.values[name] for name in names)]
    return {
        "Statement": _update_text(table, tuple(changed), tuple(removed), where),
        "Parameters": list(to_dynamodb(dict(enumerate(values))).values()),
    }


@lru_cache
def _condition_text(expression: str) -> tuple[str, list[str]]:
    """The expression in PartiQL, and the names of the values for its question marks."""
    text = re.sub(r"attribute_not_exists\(#(\w+)\)", r'"\1" IS MISSING', expression)
    return re.sub(r":\w+", "?", re.sub(r"#(\w+)", r'"\1"', text)), re.findall(r":\w+", expression)


@lru_cache
def _insert_text(table: str, names: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{listed}}}'


@lru_cache
def _update_text(table: str, changed: tuple[str, ...], removed: tuple[str, ...], condition: str) -> str:
    clauses = [*(f'SET "{name}" = ?' for name in changed), *(f'REMOVE "{name}"' for name in removed)]
    return f'UPDATE "{table}" {" ".join(clauses)} WHERE "pk" = ? AND "sk" = ? AND {condition}'
