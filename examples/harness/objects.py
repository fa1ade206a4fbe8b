"""Operations on the objects of a bucket with versions."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cdk_intake_ledger.testing import LocalAws


class Action(StrEnum):
    """An operation on the bucket."""

    PUT = "put"
    DELETE = "delete"
    """A delete marker becomes the newest version."""
    UNDELETE = "undelete"
    """The delete marker is removed, the object is back."""
    ROLL_BACK = "roll back"
    """The newest version is deleted permanently, and the previous version is current again."""
    TRIM = "trim"
    """The oldest version is deleted permanently. The current version does not change."""


class Operated(NamedTuple):
    """What an operation did."""

    version_id: str
    """The version that was put, the delete marker that was made or removed, or the permanently deleted version."""
    current: str | None
    """The version that was current afterwards. None if the object did not exist."""
    event_name: str


class Objects:
    """The objects of a bucket."""

    def __init__(self, aws: LocalAws, bucket: str) -> None:
        self._s3, self._bucket = aws.client("s3"), bucket
        # Versions, the newest last, and True for a delete marker.
        self._history: dict[str, list[tuple[str, bool]]] = defaultdict(list)

    def operate(self, key: str, action: Action, content: bytes = b"") -> Operated:
        """Carry out one operation."""
        history, target = self._history[key], {"Bucket": self._bucket, "Key": key}
        match action:
            case Action.PUT:
                version_id, event_name = self._s3.put_object(**target, Body=content)["VersionId"], "ObjectCreated:Put"
                history.append((version_id, False))
            case Action.DELETE:
                version_id = self._s3.delete_object(**target)["VersionId"]
                event_name = "ObjectRemoved:DeleteMarkerCreated"
                history.append((version_id, True))
            case Action.UNDELETE | Action.ROLL_BACK | Action.TRIM:
                version_id, _ = history.pop(0 if action is Action.TRIM else -1)
                event_name = "ObjectRemoved:Delete"
                self._s3.delete_object(**target, VersionId=version_id)
        newest, is_marker = history[-1] if history else ("", True)
        return Operated(version_id, None if is_marker else newest, event_name)
