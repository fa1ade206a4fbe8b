"""Rewrites rows and message attributes for another pipeline name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intake_ledger.protocol import (
    Ordering,
    RowKey,
    from_dynamodb,
    review_partition,
    review_partitions,
    row_from_attributes,
    row_key,
)

Item = Mapping[str, Any]
"""A row in DynamoDB's JSON. Unknown attributes are copied unchanged."""

_LATEST, _HASHED = "latest", "h#"


@dataclass(frozen=True, slots=True)
class Renaming:
    """The former name and the new name of a pipeline, and its bucket."""

    former: str
    name: str
    bucket: str


def rename_row(item: Item, former: str, name: str) -> dict[str, Any]:
    """Return the row with the sort key and the index key of the pipeline `name`."""
    place = new_row_key(item, former, name)
    new = dict(item) | {"sk": {"S": place.sk}}
    index = item.get("needs_review", {}).get("S", "")
    if index in review_partitions(former):
        new["needs_review"] = {"S": review_partition(name, place)}
    elif index.startswith(f"{former}#"):
        # Another partition of the index, such as the one of waiting rows.
        new["needs_review"] = {"S": f"{name}{index.removeprefix(former)}"}
    return new


def new_row_key(item: Item, former: str, name: str) -> RowKey:
    """Return the row's key under the new name."""
    bucket, _, key = item["pk"]["S"].partition("/")
    identity = item["sk"]["S"].removeprefix(f"{former}@")
    if identity == _LATEST:
        return row_key(name, Ordering.LATEST, bucket, key, None)
    if identity.startswith(_HASHED) and (row := row_from_attributes(from_dynamodb(item))) is not None:
        # The hash includes the pipeline's name.
        identity = row.identity
    return row_key(name, Ordering.EVERY_VERSION, bucket, key, identity)


def rename_attributes(attributes: Mapping[str, Mapping[str, Any]], former: str, name: str) -> dict[str, Any]:
    """Return the message attributes with the new pipeline name."""
    renamed = dict(attributes)
    if renamed.get("pipeline", {}).get("StringValue") == former:
        renamed["pipeline"] = {**renamed["pipeline"], "StringValue": name}
    return renamed
