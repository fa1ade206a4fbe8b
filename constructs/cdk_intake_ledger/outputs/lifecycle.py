"""Lifecycle rules of a bucket with outputs: for tombstones, and for parts of unfinished uploads."""

import json
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from intake_ledger.delivery_check.lifecycle import TOMBSTONE_TAG

DAYS = 1
"""Longer than the longest lease. After it, no late worker writes."""


def add_lifecycle_rules(bucket: s3.Bucket, prefix: str) -> None:
    """Let S3 remove tombstones and unfinished uploads below a prefix.

    With versioning, S3 first writes a delete marker, removes the tombstone a day later, and then the marker. The rule
    for delete markers has no tag, because a marker has no tags.
    """
    name, value = TOMBSTONE_TAG
    bucket.add_lifecycle_rule(
        prefix=prefix or None,
        tag_filters={name: value},
        expiration=Duration.days(DAYS),
        noncurrent_version_expiration=Duration.days(DAYS),
    )
    bucket.add_lifecycle_rule(
        prefix=prefix or None,
        abort_incomplete_multipart_upload_after=Duration.days(DAYS),
        expired_object_delete_marker=True,
    )


def lifecycle_text(prefix: str) -> str:
    """The same rules as JSON, for `aws s3api put-bucket-lifecycle-configuration`."""
    name, value = TOMBSTONE_TAG
    rules: list[dict[str, Any]] = [
        {
            "Status": "Enabled",
            "Filter": {"And": {"Prefix": prefix, "Tags": [{"Key": name, "Value": value}]}},
            "Expiration": {"Days": DAYS},
            "NoncurrentVersionExpiration": {"NoncurrentDays": DAYS},
        },
        {
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": DAYS},
            "Expiration": {"ExpiredObjectDeleteMarker": True},
        },
    ]
    return json.dumps(rules)
