"""Finds two imports of one bucket, whose notifications would overwrite or overlap each other."""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import Stack, Token
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.bucket_rules import BUCKET_IMPORTED_TWICE, NOTIFICATIONS_OVERLAP
from cdk_intake_ledger.delivery.key_filters import KeyPattern

IMPORTS = "cdk-intake-ledger:imported-bucket"
"""Metadata of the app: the pipelines on imported buckets."""


def import_problems(bucket: s3.IBucket, scope: Construct, filters: Sequence[KeyPattern]) -> Iterator[Problem]:
    """Compare a pipeline on an imported bucket with the registered ones.

    Args:
        bucket: an imported bucket.
        scope: the pipeline.
        filters: the pipeline's.

    Yields:
        A problem for each pipeline that has another import of the bucket in the same stack, or overlapping filters
        in another stack.

    """
    here = _entry(bucket, scope, filters)
    for there in scope.node.root.node.metadata:
        if there.type == IMPORTS and there.data["name"] == here["name"] and there.data["bucket"] != here["bucket"]:
            yield from _conflicts(here, there.data, filters)


def register_import(bucket: s3.IBucket, scope: Construct, filters: Sequence[KeyPattern]) -> None:
    """Register a pipeline on an imported bucket, whose notifications the app writes, for later checks.

    Args:
        bucket: an imported bucket. One whose name is a token is not registered.
        scope: the pipeline.
        filters: the pipeline's.

    """
    if not Token.is_unresolved(bucket.bucket_name):
        scope.node.root.node.add_metadata(IMPORTS, _entry(bucket, scope, filters))


def _entry(bucket: s3.IBucket, scope: Construct, filters: Sequence[KeyPattern]) -> dict[str, Any]:
    return {
        "name": bucket.bucket_name,
        "bucket": bucket.node.path,
        "pipeline": scope.node.path,
        "stack": Stack.of(scope).node.path,
        "filters": [[item.prefix, item.suffix] for item in filters if item.is_known],
    }


def _conflicts(here: dict[str, Any], there: dict[str, Any], filters: Sequence[KeyPattern]) -> Iterator[Problem]:
    if here["stack"] == there["stack"]:
        yield BUCKET_IMPORTED_TWICE.problem(bucket=here["bucket"], other=there["bucket"], name=here["name"])
        return
    for item in filters:
        for other in (KeyPattern(*ends) for ends in there["filters"]):
            if item.is_known and item.overlaps(other):
                yield NOTIFICATIONS_OVERLAP.problem(
                    filter=item, destination=there["pipeline"], event="s3:ObjectCreated:*", other=other
                )
