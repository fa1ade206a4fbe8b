"""Checks at synthesis that no lifecycle rule of the bucket removes or archives objects whose messages may wait."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import (
    OBJECTS_EXPIRE_EARLY,
    OBJECTS_MAY_EXPIRE_EARLY,
    VERSIONS_EXPIRE_EARLY,
)
from cdk_intake_ledger.checks.rules.final_rules import value_at
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.delivery.key_filters import KeyPattern
from cdk_intake_ledger.options.options import Ordering
from intake_ledger.delivery_check.lifecycle import early_ends


def lifecycle_problems(
    scope: Construct,
    properties: Mapping[str, Any],
    *,
    bucket: s3.IBucket,
    filters: Sequence[KeyPattern],
    ordering: Ordering,
    message_life: float,
) -> Iterator[Problem]:
    """Check the lifecycle rules of a bucket of the app.

    Args:
        scope: the pipeline, or its sets.
        properties: those of the bucket in the final template.
        bucket: the pipeline's.
        filters: the pipeline's.
        ordering: the pipeline's.
        message_life: the longest time for which a message waits in both queues, in seconds.

    """
    rules = [_of_api(rule) for rule in value_at(properties, "LifecycleConfiguration.Rules") or ()]
    known = [item if item.is_known else KeyPattern("") for item in filters]
    every_version = ordering is Ordering.EVERY_VERSION
    for end in early_ends(rules, filters=known, life_seconds=message_life, every_version=every_version):
        values = {"bucket": bucket.node.path, "does": end.text, "message_life": span(message_life)}
        if end.of_versions:
            yield VERSIONS_EXPIRE_EARLY.problem(**values)
        elif end.tags:
            warn(scope, OBJECTS_MAY_EXPIRE_EARLY, tags=" and ".join(end.tags), **values)
        else:
            yield OBJECTS_EXPIRE_EARLY.problem(**values)


def _of_api(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule of CloudFormation in the form of S3's API. CloudFormation has a former form of each deed too."""
    expiry = rule.get("NoncurrentVersionExpiration") or {}
    of_versions = rule.get("NoncurrentVersionTransition"), *(rule.get("NoncurrentVersionTransitions") or ())
    return {
        "ID": rule.get("Id", ""),
        "Status": rule.get("Status"),
        "Filter": {
            "And": {
                "Prefix": rule.get("Prefix"),
                "Tags": [{"Key": tag["Key"], "Value": tag["Value"]} for tag in rule.get("TagFilters") or ()],
                "ObjectSizeGreaterThan": _number(rule.get("ObjectSizeGreaterThan")),
                "ObjectSizeLessThan": _number(rule.get("ObjectSizeLessThan")),
            }
        },
        "Expiration": {"Days": _number(rule.get("ExpirationInDays")), "Date": rule.get("ExpirationDate")},
        "NoncurrentVersionExpiration": {
            "NoncurrentDays": _number(expiry.get("NoncurrentDays", rule.get("NoncurrentVersionExpirationInDays")))
        },
        "Transitions": [
            {
                "StorageClass": one.get("StorageClass"),
                "Days": _number(one.get("TransitionInDays")),
                "Date": one.get("TransitionDate"),
            }
            for one in (rule.get("Transition"), *(rule.get("Transitions") or ()))
            if one
        ],
        "NoncurrentVersionTransitions": [
            {"StorageClass": one.get("StorageClass"), "NoncurrentDays": _number(one.get("TransitionInDays"))}
            for one in of_versions
            if one
        ],
    }


def _number(value: Any) -> int | None:
    """A number of CloudFormation, which may be a text. None: it is not known."""
    if isinstance(value, int | float):
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() else None
