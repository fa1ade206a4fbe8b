"""Rewrites rows and message attributes for another pipeline name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intake_ledger.ledger.dynamodb_table import plain
from intake_ledger.protocol import row as rows
from intake_ledger.protocol.row import Ordering, RowKey

Item = Mapping[str, Any]
"""A row as DynamoDB types it. Unknown attributes are copied unchanged."""

_LATEST, _HASHED = "latest", "h#"


@dataclass(frozen=True, slots=True)
class Renaming:
    """A pipeline's former name, its name, and the bucket that it takes objects from."""

    former: str
    name: str
    bucket: str


def rename_row(item: Item, former: str, name: str) -> dict[str, Any]:
    """The row of a pipeline `former` as the row of `name`: another sort key, and another key of the index."""
    place = new_row_key(item, former, name)
    new = dict(item) | {"sk": {"S": place.sk}}
    index = item.get("needs_review", {}).get("S", "")
    if index in rows.review_partitions(former):
        new["needs_review"] = {"S": rows.review_partition(name, place)}
    elif index.startswith(f"{former}#"):
        # A partition for other rows than failed and rejected ones.
        new["needs_review"] = {"S": f"{name}{index.removeprefix(former)}"}
    return new


def new_row_key(item: Item, former: str, name: str) -> RowKey:
    """Where the row is then."""
    bucket, _, key = item["pk"]["S"].partition("/")
    identity = item["sk"]["S"].removeprefix(f"{former}@")
    if identity == _LATEST:
        return rows.row_key(name, Ordering.LATEST, bucket, key, None)
    if identity.startswith(_HASHED) and (row := rows.from_attributes(plain(item))) is not None:
        # The hash has the name in it.
        identity = row.identity
    return rows.row_key(name, Ordering.EVERY_VERSION, bucket, key, identity)


def rename_attributes(attributes: Mapping[str, Mapping[str, Any]], former: str, name: str) -> dict[str, Any]:
    """A message's attributes, with the name of the pipeline that set it aside."""
    told = dict(attributes)
    if told.get("pipeline", {}).get("StringValue") == former:
        told["pipeline"] = {**told["pipeline"], "StringValue": name}
    return told
