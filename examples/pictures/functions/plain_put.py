"""The same processor with plain requests to S3: the last writer wins, also if it is a late worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import boto3
from examples.pictures.processor.pictures import PREFIX, greyscale

if TYPE_CHECKING:
    from intake_ledger import ObjectChange

s3 = boto3.client("s3")


def process(change: ObjectChange) -> None:
    """Write or delete the grey copy without a condition."""
    bucket, key = os.environ["OUTPUT_BUCKET"], PREFIX + change.key
    if change.kind == "removed":
        s3.delete_object(Bucket=bucket, Key=key)
        return
    with change.open() as stream:
        s3.put_object(Bucket=bucket, Key=key, Body=greyscale(stream.read()), ContentType="image/png")
