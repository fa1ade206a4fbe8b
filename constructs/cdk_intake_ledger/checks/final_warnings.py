"""Warns about parts of an app that do not fit together: deletions, actions of alarms, and permissions to read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.final_template import FinalTemplates, at_synthesis, resource_of
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.final_rules import (
    ALARMS_WITHOUT_ACTION,
    DELETED,
    FUNCTION_MAY_NOT_READ,
    KEPT,
    KEY_DELETED_BEFORE_DATA,
    LEDGER_AND_BUCKET_DIFFER,
)

Needs = tuple[IConstruct, IConstruct | None]
"""Data, and the key or other data that is needed to use it."""
_ELEMENTS = ("Action", "Resource")
_OF_LAMBDA = "service-role/AWSLambda"
"""In the names of the managed policies that the CDK gives to functions. They read no objects."""


def warn_about_app(
    scope: Construct,
    *,
    needs: Sequence[Needs],
    alarms: Iterable[IConstruct],
    function: lambda_.IFunction | None,
    bucket: s3.IBucket | None,
) -> None:
    """Look at the templates once, when the app is complete, and add warnings that can be acknowledged.

    Args:
        scope: the intake.
        needs: resources with their keys, and bucket and ledger with each other.
        alarms: the alarms of the intake.
        function: an existing function that is the processor; None for others.
        bucket: the bucket that it reads; None for messages.

    """

    def look(templates: FinalTemplates) -> tuple[()]:
        _warn_about_removals(scope, templates, needs)
        _warn_about_actions(scope, templates, alarms)
        if function is not None and bucket is not None:
            _warn_about_reading(scope, templates, function, bucket)
        return ()

    at_synthesis(scope, look)


def _warn_about_removals(scope: Construct, templates: FinalTemplates, needs: Sequence[Needs]) -> None:
    pairs = [(data, need) for data, need in needs if need is not None]
    made = {owner: one for pair in pairs for owner in pair if (one := resource_of(owner)) is not None}
    answers = templates.read((one, {}) for one in made.values())
    found = {owner: one["DeletionPolicy"] for owner, (one, _) in zip(made, answers, strict=True)}
    for data, need in pairs:
        if found.get(data) in KEPT and found.get(need) == DELETED:
            rule = KEY_DELETED_BEFORE_DATA if isinstance(need, kms.Key) else LEDGER_AND_BUCKET_DIFFER
            warn(scope, rule, path=need.node.path, data=data.node.path)


def _warn_about_actions(scope: Construct, templates: FinalTemplates, alarms: Iterable[IConstruct]) -> None:
    made = [resource for one in alarms if (resource := resource_of(one)) is not None]
    found = templates.read((one, {}) for one in made)
    if found and not any(properties.get("AlarmActions") for properties, _ in found):
        warn(scope, ALARMS_WITHOUT_ACTION)


def _warn_about_reading(
    scope: Construct, templates: FinalTemplates, function: lambda_.IFunction, bucket: s3.IBucket
) -> None:
    """Warn if the function of the processor may not read objects. Managed policies of others are not known."""
    role = function.role if isinstance(function, lambda_.Function) else None
    if not isinstance(role, iam.Role) or resource_of(bucket) is None:
        return
    parts = [one for one in role.node.find_all() if isinstance(one, iam.CfnRole | iam.CfnPolicy)]
    found = templates.read((one, {"bucket": bucket.bucket_arn}) for one in parts)
    documents = [one for properties, _ in found for one in (properties, *properties.get("Policies", ()))]
    statements = [one for document in documents for one in document.get("PolicyDocument", {}).get("Statement", ())]
    managed = [arn for properties, _ in found for arn in properties.get("ManagedPolicyArns", ())]
    arn = json.dumps(found[0][1]["bucket"])
    if all(_OF_LAMBDA in json.dumps(one) for one in managed) and not any(_reads(one, arn) for one in statements):
        warn(scope, FUNCTION_MAY_NOT_READ, function=function.node.path, bucket=bucket.node.path)


def _reads(statement: Mapping[str, Any], bucket: str) -> bool:
    """True if a statement allows reading objects of the bucket. `bucket` is its ARN, as JSON."""
    listed = {name: value if isinstance(value := statement.get(name), list) else [value] for name in _ELEMENTS}
    read = any(fnmatchcase("s3:GetObjectVersion", str(one)) for one in listed["Action"])
    return (
        statement["Effect"] == "Allow"
        and read
        and any(bucket in json.dumps(one) or (isinstance(one, str) and "*" in one) for one in listed["Resource"])
    )
