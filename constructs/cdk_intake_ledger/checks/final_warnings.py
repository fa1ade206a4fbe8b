"""Warns about parts of an app that do not fit together: deletions, actions of alarms, and permissions to read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct, IValidation

from cdk_intake_ledger.checks.final_template import FinalTemplates, resource_of
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


@jsii.implements(IValidation)
class FinalWarnings:
    """Looks at the templates once, and adds warnings that can be acknowledged.

    Args:
        scope: the intake.
        needs: resources with their keys, and bucket and ledger with each other.
        alarms: the alarms of the intake.
        function: an existing function that is the processor; None for others.
        bucket: the bucket that it reads; None for messages.

    """

    def __init__(
        self,
        scope: Construct,
        *,
        needs: Sequence[Needs],
        alarms: Iterable[IConstruct],
        function: lambda_.IFunction | None,
        bucket: s3.IBucket | None,
    ) -> None:
        self._scope, self._needs, self._alarms = scope, needs, alarms
        self._function, self._bucket = function, bucket

    def validate(self) -> list[str]:
        """Add the warnings. It returns no problems."""
        # A template that the CDK cannot write is an error of the CDK, with its place.
        with suppress(RuntimeError):
            templates = FinalTemplates(self, self._scope)
            self._removals(templates)
            self._actions(templates)
            self._reading(templates)
        return []

    def _removals(self, templates: FinalTemplates) -> None:
        pairs = [(data, need) for data, need in self._needs if need is not None]
        made = {owner: one for pair in pairs for owner in pair if (one := resource_of(owner)) is not None}
        answers = templates.read((one, {}) for one in made.values())
        found = {owner: one["DeletionPolicy"] for owner, (one, _) in zip(made, answers, strict=True)}
        for data, need in pairs:
            if found.get(data) in KEPT and found.get(need) == DELETED:
                rule = KEY_DELETED_BEFORE_DATA if isinstance(need, kms.Key) else LEDGER_AND_BUCKET_DIFFER
                warn(self._scope, rule, path=need.node.path, data=data.node.path)

    def _actions(self, templates: FinalTemplates) -> None:
        made = [resource for one in self._alarms if (resource := resource_of(one)) is not None]
        found = templates.read((one, {}) for one in made)
        if found and not any(properties.get("AlarmActions") for properties, _ in found):
            warn(self._scope, ALARMS_WITHOUT_ACTION)

    def _reading(self, templates: FinalTemplates) -> None:
        """Warn if the function of the processor may not read objects. Managed policies of others are not known."""
        function, bucket = self._function, self._bucket
        role = function.role if isinstance(function, lambda_.Function) else None
        if function is None or bucket is None or not isinstance(role, iam.Role) or resource_of(bucket) is None:
            return
        parts = [one for one in role.node.find_all() if isinstance(one, iam.CfnRole | iam.CfnPolicy)]
        found = templates.read((one, {"bucket": bucket.bucket_arn}) for one in parts)
        documents = [one for properties, _ in found for one in (properties, *properties.get("Policies", ()))]
        statements = [one for document in documents for one in document.get("PolicyDocument", {}).get("Statement", ())]
        managed = [arn for properties, _ in found for arn in properties.get("ManagedPolicyArns", ())]
        arn = json.dumps(found[0][1]["bucket"])
        if all(_OF_LAMBDA in json.dumps(one) for one in managed) and not any(_reads(one, arn) for one in statements):
            warn(self._scope, FUNCTION_MAY_NOT_READ, function=function.node.path, bucket=bucket.node.path)


def _reads(statement: Mapping[str, Any], bucket: str) -> bool:
    """True if a statement allows reading objects of the bucket. `bucket` is its ARN, as JSON."""
    listed = {name: value if isinstance(value := statement.get(name), list) else [value] for name in _ELEMENTS}
    read = any(fnmatchcase("s3:GetObjectVersion", str(one)) for one in listed["Action"])
    return (
        statement["Effect"] == "Allow"
        and read
        and any(bucket in json.dumps(one) or (isinstance(one, str) and "*" in one) for one in listed["Resource"])
    )
