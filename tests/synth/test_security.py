"""A security review of the template: no public access, encryption everywhere, and no unneeded permission."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    Engine,
    Existing,
    IntakePipeline,
    NetworkOptions,
)
from tests.synth.build import Json, actions, new_app, new_stack, processor, resources, template_of, template_with

POLICIES = {
    "AWS::IAM::Policy": "PolicyDocument",
    "AWS::IAM::Role": "AssumeRolePolicyDocument",
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SQS::QueuePolicy": "PolicyDocument",
}

WILDCARDS = {
    r"s3:GetObject s3:GetObjectVersion on (\w+\.Arn|<Theirs:\w+>)/\*": "the objects of the one bucket",
    r"s3:GetObject s3:GetObjectVersion on arn:<AWS::Partition>:s3:::partner-inbox/\*": "the same, imported",
    r"s3:PutObject on arn:<AWS::Partition>:s3:::reports/.*Stack-Orders-\w+/\*": "the reports of this pipeline alone",
    r"s3:GetObject s3:PutObject on \w+JoinFiles\w+\.Arn/\*": "the files of an audit in parts, a bucket of their own",
    r"s3:AbortMultipartUpload s3:ListMultipartUploadParts on \w+JoinFiles\w+\.Arn/results/\*": "named by Athena",
    r"s3:AbortMultipartUpload s3:\S+ s3:PutObject s3:PutObjectTagging on .*:::pictures/grey/\*": "the outputs",
    r"states:\S+( states:\S+)* on .*:execution:.*:\*": "the machine's own executions, by CDK: they have no name yet",
    r"lambda:GetDurableExecution on .*:\*/durable-execution/\*": "executions that have no name yet",
    r"cloudwatch:GetMetricStatistics lambda:ListEventSourceMappings on \*": "neither service knows a resource for it",
    r"events:ListRuleNamesByTarget events:TestEventPattern on \*": "EventBridge knows no resource for either",
    r"events:DescribeRule events:ListTargetsByRule on .*:rule/\*": "found by its target: its name would tie a circle",
    r"kms:\S+( kms:\S+)* on arn:<AWS::Partition>:kms:<AWS::Region>:<AWS::AccountId>:key/\*": "the condition names one",
    r"ec2:\S+( ec2:\S+)* on \*": "a network interface of a function in a VPC: EC2 knows no resource to name yet",
    r"s3:(Get|Put)BucketNotification on \*": "CDK's own handler, for imported buckets alone",
}
"""Everything in a role's policies that has an asterisk, and why."""

OWNERS = {
    "lambda.amazonaws.com assumes": "passing a role to Lambda does not cross accounts (iam:PassRole)",
    "lambda.amazonaws.com assumes, by CDK": "the same, for CDK's own handler",
}
"""Service principals without a condition on the account, and why."""


def default() -> Stack:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    return stack


def keyed() -> Stack:
    stack = new_stack()
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0)
    private = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        encryption_key=kms.Key(stack, "Key"),
        network=NetworkOptions(vpc=vpc, vpc_subnets=private),
    )
    return stack


def sibling() -> Stack:
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    key = kms.Key(ours, "Key")
    bucket = s3.Bucket(theirs, "Bucket", versioned=True)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket, encryption_key=key)
    return ours


def imported() -> Stack:
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "In", "partner-inbox")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    return stack


def aliased() -> Stack:
    stack = new_stack()
    key = kms.Alias.from_alias_name(stack, "Key", "alias/intake")
    IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key)
    return stack


def audited_in_parts() -> Stack:
    stack = new_stack()
    bucket, reports = (s3.Bucket.from_bucket_name(stack, name, name) for name in ("partner-inbox", "reports"))
    audit = AuditOptions(
        existing=Existing.BACKFILL, scale=AuditScale.shards(engine=Engine.ATHENA), report_bucket=reports
    )
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, audit=audit)
    return stack


def with_outputs() -> Stack:
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    pipeline.grant_output(s3.Bucket.from_bucket_name(stack, "Pictures", "pictures"), "grey/")
    return stack


@pytest.fixture(
    scope="module",
    params=[default, keyed, sibling, imported, aliased, audited_in_parts, with_outputs],
    ids=lambda make: make.__name__,
)
def template(request: pytest.FixtureRequest) -> Json:
    """A pipeline with each resource that changes its policies."""
    return template_of(request.param())


def every_statement(template: Json, *types: str) -> Iterator[tuple[str, Json]]:
    for type_ in types or POLICIES:
        for name, resource in resources(template, type_).items():
            for statement in resource["Properties"][POLICIES[type_]]["Statement"]:
                yield name, statement


def spelt(value: Any) -> str:
    """An ARN as text: references by their names."""
    match value:
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(map(spelt, parts))
        case {"Fn::GetAtt": [name, attribute]}:
            return f"{name}.{attribute}"
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::ImportValue": name}:
            return f"<{name}>"
    return str(value)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_every_wildcard_has_a_reason(template: Json) -> None:
    """The list has each wildcard of the templates."""
    for _, statement in every_statement(template, "AWS::IAM::Policy"):
        for resource in map(spelt, listed(statement["Resource"])):
            text = f"{' '.join(sorted(actions(statement)))} on {resource}"
            assert "*" not in text or any(re.fullmatch(known, text) for known in WILDCARDS), text


def test_every_wildcard_says_why_in_the_template(template: Json) -> None:
    """The statement's name gives the reason. CDK's handler has its own names."""
    for name, statement in every_statement(template, "AWS::IAM::Policy"):
        broad = any("*" in spelt(resource) for resource in listed(statement["Resource"]))
        # The second is the permission of a distributed map for its executions, under CDK's name.
        if not name.startswith("BucketNotificationsHandler") and "DistributedMapPolicy" not in name:
            assert broad is ("Sid" in statement), statement


def test_every_role_says_whose_it_is(template: Json) -> None:
    """People read lists of roles in the console and in templates."""
    for name, role in resources(template, "AWS::IAM::Role").items():
        if not name.startswith("BucketNotificationsHandler"):
            assert role["Properties"]["Description"].startswith("Intake ledger, ")


def test_no_policy_allows_everybody(template: Json) -> None:
    """A statement for all principals only denies."""
    for name, statement in every_statement(template):
        principal = statement.get("Principal")
        everybody = principal == "*" or (isinstance(principal, dict) and "*" in listed(principal.get("AWS")))
        assert not everybody or statement["Effect"] == "Deny", name
    for permission in resources(template, "AWS::Lambda::Permission").values():
        assert permission["Properties"]["Principal"] != "*"
    assert not resources(template, "AWS::Lambda::Url")


def test_every_service_acts_for_one_account(template: Json) -> None:
    """A service acts for each account that asks it, unless `aws:SourceAccount` names the account."""
    for name, statement in every_statement(template):
        principal = statement.get("Principal")
        if not isinstance(principal, dict) or "Service" not in principal or statement["Effect"] == "Deny":
            continue
        conditions = list(statement.get("Condition", {}).values())
        # CloudWatch Logs names the log group with its account.
        if any(":log-group:" in json.dumps(one) and '"AWS::AccountId"' in json.dumps(one) for one in conditions):
            continue
        accounts = [operands["aws:SourceAccount"] for operands in conditions if "aws:SourceAccount" in operands]
        by_cdk = ", by CDK" if name.startswith("BucketNotificationsHandler") else ""
        assumes = " assumes" if actions(statement) == ["sts:AssumeRole"] else ""
        assert accounts == [{"Ref": "AWS::AccountId"}] or f"{principal['Service']}{assumes}{by_cdk}" in OWNERS, name


def test_nothing_is_taken_without_tls(template: Json) -> None:
    """Each bucket and each queue denies unencrypted requests."""
    denying = {
        spelt(target)
        for type_, names in (("AWS::S3::BucketPolicy", "Bucket"), ("AWS::SQS::QueuePolicy", "Queues"))
        for policy in resources(template, type_).values()
        for target in listed(policy["Properties"][names])
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny" and statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    }
    held = [*resources(template, "AWS::S3::Bucket"), *resources(template, "AWS::SQS::Queue")]
    assert denying == {f"<{name}>" for name in held}
    assert len(held) >= 2


def test_everything_is_encrypted(template: Json) -> None:
    """The given key encrypts all data. Without it, the service's key does."""
    key: list[Any] = [{"Fn::GetAtt": [name, "Arn"]} for name in resources(template, "AWS::KMS::Key")]
    if "alias/intake" in str(template):
        account = ["arn:", {"Ref": "AWS::Partition"}, ":kms:", {"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}]
        key = [{"Fn::Join": ["", [*account, ":alias/intake"]]}]
    for queue in resources(template, "AWS::SQS::Queue").values():
        properties = queue["Properties"]
        assert [properties["KmsMasterKeyId"]] == key if key else properties["SqsManagedSseEnabled"]
    for bucket in resources(template, "AWS::S3::Bucket").values():
        (rule,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        by_default = rule["ServerSideEncryptionByDefault"]
        assert ([by_default.get("KMSMasterKeyID")] == key) if key else by_default["SSEAlgorithm"] == "AES256"
    for table in resources(template, "AWS::DynamoDB::Table").values():
        # DynamoDB always encrypts. `SSEEnabled` selects a key of the account, which costs money.
        specification = table["Properties"].get("SSESpecification")
        assert ([specification["KMSMasterKeyId"]] == key) if key else specification in (None, {"SSEEnabled": False})


def test_nothing_is_public(template: Json) -> None:
    """No public access to buckets, no ACLs, and a function in a VPC has no public address."""
    for bucket in resources(template, "AWS::S3::Bucket").values():
        blocked = bucket["Properties"]["PublicAccessBlockConfiguration"]
        assert blocked == dict.fromkeys(
            ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
        )
        assert "AccessControl" not in bucket["Properties"]
    for group in resources(template, "AWS::EC2::SecurityGroup").values():
        assert "SecurityGroupIngress" not in group["Properties"]


def test_what_holds_data_outlives_its_stack(template: Json) -> None:
    """Bucket, table and logs, when the stack is deleted and when it is replaced."""
    for type_ in ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"):
        for name, resource in resources(template, type_).items():
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain"), name


def test_one_option_lets_a_test_clean_up() -> None:
    """`DESTROY` applies to all data, and switches off the table's deletion protection."""
    template = template_with(removal_policy=RemovalPolicy.DESTROY)
    for type_ in ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"):
        for name, resource in resources(template, type_).items():
            assert resource["DeletionPolicy"] == "Delete", name
    (table,) = resources(template, "AWS::DynamoDB::Table").values()
    assert table["Properties"]["DeletionProtectionEnabled"] is False


def test_settings_hold_no_secrets(template: Json) -> None:
    """Each principal that may describe a function can read its environment."""
    for function in resources(template, "AWS::Lambda::Function").values():
        names = function["Properties"].get("Environment", {}).get("Variables", {})
        assert not [name for name in names if re.search("SECRET|PASSWORD|TOKEN|CREDENTIAL", name)]
