"""A key that was imported by the name of its alias. CDK drops its grants."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks

from cdk_intake_ledger import AuditOptions, AuditScale, FileSets, IntakePipeline, MessageSource, SetForm
from cdk_intake_ledger.resources.key_access import imported_alias
from tests.synth.build import Json, actions, new_app, new_stack, processor, statements, template_of
from tests.synth.message_stack import messages
from tests.synth.test_nag import findings

FLAG = "@aws-cdk/aws-kms:applyImportedAliasPermissionsToPrincipal"
HERE = Environment(account="111122223333", region="eu-central-1")
CONDITION = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": "alias/shared"}}


def of_the_alias(template: Json, path: str) -> Iterator[Json]:
    """Statements of a role about the key."""
    for statement in statements(template, path):
        if statement.get("Condition") == CONDITION:
            assert "key/*" in str(statement["Resource"])
            yield statement


def allowed(template: Json, path: str) -> set[str]:
    return {action for one in of_the_alias(template, path) for action in actions(one)}


def aliased(stack: Stack) -> kms.IKey:
    return kms.Alias.from_alias_name(stack, "Shared", "alias/shared")


@pytest.mark.failure_mode("F203")
@pytest.mark.parametrize("flag", [False, True])
def test_the_roles_may_use_the_key_of_an_imported_alias(*, flag: bool) -> None:
    """With and without CDK's feature flag: consumers, audit in parts, sets and messages."""
    stack = new_stack("Stack", new_app(context={FLAG: flag}), HERE)
    key, audit = aliased(stack), AuditOptions(scale=AuditScale.shards())
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key, audit=audit)
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.marker("_SUCCESS"), processor=processor())
    messages(stack, "Intake", MessageSource.sqs(), encryption_key=key)
    template = template_of(stack)
    of_tables = {
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:Encrypt",
        "kms:GenerateDataKey",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    }
    for path in ("OrdersConsumer", "LoadsConsumer", "IntakeConsumer"):
        assert allowed(template, path) == of_tables
    assert allowed(template, "OrdersAuditRole") == of_tables | {"kms:GetKeyPolicy"}
    assert allowed(template, "OrdersAuditJoin") == {"kms:Decrypt", "kms:GenerateDataKey"}
    for path in ("OrdersConsumer", "OrdersAuditRole", "IntakeConsumer"):
        names = [one["Sid"] for one in of_the_alias(template, path)]
        assert len(set(names)) == len(names), "names of the statements of a policy are unique"
        assert all(name.startswith("KeyOfTheAliasSharedFor") for name in names)
    assert list(findings(cast("App", pipeline.node.root), (AwsSolutionsChecks,))) == []


@pytest.mark.failure_mode("F203")
@pytest.mark.parametrize("name", ["grant_put", "grant_redrive", "grant_reprocess", "grant_read_ledger"])
def test_a_grantee_may_use_it_too(name: str) -> None:
    """Each grant that needs the key."""
    stack = new_stack("Stack", env=HERE)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), encryption_key=aliased(stack))
    role = iam.Role(stack, "Partner", assumed_by=iam.AccountRootPrincipal())
    getattr(pipeline, name)(role)
    assert "kms:Decrypt" in allowed(template_of(stack), "Partner")


def test_the_key_of_an_imported_bucket_may_be_an_alias() -> None:
    """The consumer reads its objects."""
    stack = new_stack("Stack", env=HERE)
    inbox = s3.Bucket.from_bucket_attributes(
        stack, "In", bucket_name="partner-inbox", region=HERE.region, encryption_key=aliased(stack)
    )
    IntakePipeline(stack, "Orders", processor=processor(), bucket=inbox)
    assert allowed(template_of(stack), "OrdersConsumer") == {"kms:Decrypt"}


def test_other_keys_and_aliases_have_the_grants_of_cdk() -> None:
    """CDK knows the key behind them."""
    stack = new_stack()
    key = kms.Key(stack, "Key")
    attributes: dict[str, Any] = {"alias_name": "alias/other", "alias_target_key": key}
    for one in (
        key,
        key.add_alias("alias/own"),
        kms.Key.from_key_arn(stack, "Imported", "arn:aws:kms:eu-central-1:111122223333:key/1"),
        kms.Alias.from_alias_attributes(stack, "Attributes", **attributes),
    ):
        assert imported_alias(one) is None
    assert imported_alias(aliased(stack)) == "alias/shared"
