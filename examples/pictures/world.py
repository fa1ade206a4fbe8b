"""The deployed comparison: the names of its resources, and requests that several modules need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.harness.world import Deployed
from examples.pictures.stack import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.pictures.columns import Column

REMOVED = "intake-removed"
"""The metadata of a tombstone. Readers treat such an object as absent."""


@dataclass(frozen=True)
class World(Deployed):
    """The stack and its columns."""

    columns: Sequence[Column]

    def pictures(self, column: Column) -> str:
        """Name of the bucket with the uploads."""
        return self.outputs[f"{column.construct}PicturesBucket"]

    def copies(self, column: Column) -> str:
        """Name of the output bucket."""
        return self.outputs[f"{column.construct}CopiesBucket"]

    def queues(self, *columns: Column) -> dict[str, str]:
        """URLs of the queues, of all columns by default."""
        return {column.value: self.queue(column) for column in columns or self.columns}

    def queue(self, column: Column) -> str:
        """URL of the queue."""
        return self.outputs[f"{column.construct}QueueUrl"]

    def copy_of(self, column: Column, key: str) -> bytes | None:
        """Return the output of a picture, or None if it is absent."""
        s3 = self.aws.client("s3")
        try:
            found = s3.get_object(Bucket=self.copies(column), Key=PREFIX + key)
        except s3.exceptions.NoSuchKey:
            return None
        content: bytes = found["Body"].read()
        return None if REMOVED in found["Metadata"] else content

    def upload_of(self, column: Column, key: str) -> bytes | None:
        """Return the current picture in the bucket of the uploads, or None if it is deleted."""
        s3 = self.aws.client("s3")
        try:
            content: bytes = s3.get_object(Bucket=self.pictures(column), Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None
        return content

    def hide_for(self, column: Column, seconds: int) -> None:
        """Set how long the queue hides a message that was received."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self.aws.client("sqs").set_queue_attributes(QueueUrl=self.queue(column), Attributes=attributes)
