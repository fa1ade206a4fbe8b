"""The deployed comparison: the names of its resources, and requests that several modules need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.pictures.stack import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from examples.pictures.columns import Column

    from cdk_intake_ledger.testing import LocalAws

REMOVED = "intake-removed"
"""The metadata of a tombstone. Readers treat such an object as absent."""


@dataclass(frozen=True)
class World:
    """The stack and the local AWS."""

    aws: LocalAws
    outputs: Mapping[str, str]
    columns: Sequence[Column]

    def pictures(self, column: Column) -> str:
        """Name of the bucket with the uploads."""
        return self.outputs[f"{column.construct}PicturesBucket"]

    def copies(self, column: Column) -> str:
        """Name of the output bucket."""
        return self.outputs[f"{column.construct}CopiesBucket"]

    def queue(self, column: Column) -> str:
        """URL of the queue."""
        return self.outputs[f"{column.construct}QueueUrl"]

    @property
    def tap(self) -> str:
        """URL of the queue that receives all events of S3."""
        return self.outputs["TapQueueUrl"]

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

    def messages(self, column: Column) -> int:
        """Return the number of messages in a queue, visible or hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        sqs = self.aws.client("sqs")
        answer = sqs.get_queue_attributes(QueueUrl=self.queue(column), AttributeNames=names)["Attributes"]
        return sum(int(answer[name]) for name in names)

    def audit(self, column: Column) -> dict[str, Any] | None:
        """Run the audit and return its report, or None while a scheduled run holds the lease."""
        function = self.outputs[f"{column.construct}Audit"]
        answer = self.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
        report: dict[str, Any] = json.load(answer["Payload"])
        if "skipped" in report:
            return None
        if "counts" not in report:
            raise RuntimeError(f"the audit failed: {report}")
        return report

    def newest_row(self, column: Column) -> float:
        """Return the time of the newest change in the ledger, in seconds since 1970."""
        pages = (
            self.aws.client("dynamodb")
            .get_paginator("scan")
            .paginate(TableName=self.outputs[f"{column.construct}Table"], ConsistentRead=True)
        )
        # The audit keeps other items in the table. They have no status.
        times = (int(item["updated_at"]["N"]) for page in pages for item in page["Items"] if "status" in item)
        return max(times, default=0) / 1000

    def hide_for(self, column: Column, seconds: int) -> None:
        """Set how long the queue hides a message that was received."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self.aws.client("sqs").set_queue_attributes(QueueUrl=self.queue(column), Attributes=attributes)
