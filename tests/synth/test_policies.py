"""Permissions of the roles: exact actions on exact resources."""

import json
from collections import Counter
from functools import cache
from inspect import signature
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import FileSets, IntakePipeline, MessageIntake, MessageSource, Processor, SetForm
from cdk_intake_ledger.resources.key_access import TABLE_KEY_ACTIONS, TABLE_READ_KEY_ACTIONS
from tests.cli_actions import GRANTS, NEEDED
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    processor,
    resources,
    statements,
    template_of,
    template_with,
)
from tests.synth.message_stack import messages

CONSUMER = {
    "logs:CreateLogStream", "logs:PutLogEvents",
    "s3:ListBucket", "s3:ListBucketVersions", "s3:GetObject", "s3:GetObjectVersion",
    "dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PartiQLInsert", "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage",
    "sqs:SendMessage",
}  # fmt: skip
AUDIT = {
    "logs:CreateLogStream", "logs:PutLogEvents",
    "s3:GetBucketNotification", "s3:GetBucketVersioning", "s3:GetLifecycleConfiguration",
    "s3:ListBucket", "s3:ListBucketVersions",
    "s3:GetObject", "s3:GetObjectVersion",
    "dynamodb:BatchGetItem", "dynamodb:DeleteItem",
    "dynamodb:DescribeTimeToLive", "dynamodb:GetItem",
    "dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate", "dynamodb:Query", "dynamodb:Scan", "dynamodb:UpdateItem",
    "sqs:GetQueueAttributes", "sqs:SendMessage",
    "cloudwatch:GetMetricStatistics",
    "lambda:GetFunctionConcurrency", "lambda:GetFunctionConfiguration", "lambda:ListEventSourceMappings",
}  # fmt: skip


@pytest.fixture(scope="module")
def template() -> Json:
    return template_with()


@pytest.mark.parametrize(("path", "expected"), [("OrdersConsumer", CONSUMER), ("OrdersAuditRole", AUDIT)])
def test_a_role_may_do_what_its_function_does_and_nothing_else(template: Json, path: str, expected: set[str]) -> None:
    """The actions are the calls of the runtime."""
    assert {action for one in statements(template, path) for action in actions(one)} == expected


def test_no_wildcards_but_the_objects_of_the_bucket(template: Json) -> None:
    """No action has an asterisk. Resources have one only for keys of the bucket and for actions without resources."""
    (bucket,) = resources(template, "AWS::S3::Bucket")
    objects = {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, "/*"]]}
    for statement in statements(template):
        assert not [one for one in actions(statement) if "*" in one]
        without_resources = ["cloudwatch:GetMetricStatistics", "lambda:ListEventSourceMappings"]
        unlimited = statement["Resource"] == objects or actions(statement) == without_resources
        assert unlimited or "*" not in str(statement["Resource"]), statement


@pytest.mark.failure_mode("F105")
@pytest.mark.parametrize(
    ("filters", "readable"),
    [
        ([("in/", ".csv"), ("in/a/", ".txt"), ("b?/", "")], ["/in/*", "/b${?}/*"]),
        ([("in/", ".txt"), ("", ".csv")], ["/*"]),
        ([(f"{n}{'p' * 500}/", "") for n in range(20)], ["/*"]),
    ],
)
def test_the_functions_read_what_the_filters_let_through(filters: list[tuple[str, str]], readable: list[str]) -> None:
    """By prefix. If a filter has no prefix, or if they do not fit into a policy, the whole bucket."""
    given = [s3.NotificationKeyFilter(prefix=one or None, suffix=other or None) for one, other in filters]
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), filters=given)
    template = template_of(stack)
    for path in ("OrdersConsumer", "OrdersAuditRole"):
        (reading,) = [one for one in statements(template, path) if "s3:GetObjectVersion" in actions(one)]
        assert [one["Fn::Join"][1][1] for one in _listed(reading["Resource"])] == readable


def test_no_managed_policies(template: Json) -> None:
    """AWS's basic execution policy may write to every log group."""
    for role in resources(template, "AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


@pytest.mark.failure_mode("F25")
def test_only_the_consumer_may_write_to_the_dead_letter_queue(template: Json) -> None:
    """The audit sends to the queue, the consumer to both queues.

    To its own queue it sends one message for each overtaken worker: Lambda's recursion detection stops a chain of 16.
    """
    (queue,) = resources(template, "AWS::SQS::Queue", "OrdersQueueMessages")
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
    sends = {
        path: [one["Resource"] for one in statements(template, path) if "sqs:SendMessage" in actions(one)]
        for path in ("OrdersConsumer", "OrdersAuditRole")
    }
    assert sends["OrdersConsumer"] == [{"Fn::GetAtt": [queue, "Arn"]}, {"Fn::GetAtt": [dead_letters, "Arn"]}]
    assert sends["OrdersAuditRole"] == [{"Fn::GetAtt": [queue, "Arn"]}]


@pytest.mark.failure_mode("F45")
def test_a_missing_object_is_not_a_forbidden_one(template: Json) -> None:
    """S3 answers 404 only to a caller that may list the bucket."""
    (bucket,) = resources(template, "AWS::S3::Bucket")
    for path in ("OrdersConsumer", "OrdersAuditRole"):
        listing = [one for one in statements(template, path) if "s3:ListBucket" in actions(one)]
        assert [one["Resource"] for one in listing] == [{"Fn::GetAtt": [bucket, "Arn"]}]


@pytest.mark.failure_mode("F53")
def test_a_missing_version_is_not_a_forbidden_one(template: Json) -> None:
    """F53, F45: S3 answers 404 for a version only to a caller that may list versions. 403 would be retried."""
    (bucket,) = resources(template, "AWS::S3::Bucket")
    for path in ("OrdersConsumer", "OrdersAuditRole"):
        listing = [one for one in statements(template, path) if "s3:ListBucketVersions" in actions(one)]
        assert [one["Resource"] for one in listing] == [{"Fn::GetAtt": [bucket, "Arn"]}]


def test_the_scheduler_may_start_the_audit_and_nothing_else(template: Json) -> None:
    """Another version is refused too, and another account."""
    (statement,) = statements(template, "OrdersAuditScheduleRole")
    (audit,) = resources(template, "AWS::Lambda::Function", "OrdersAudit")
    assert actions(statement) == ["lambda:InvokeFunction"]
    assert statement["Resource"] == {"Fn::GetAtt": [audit, "Arn"]}


@cache
def people(*, key: bool) -> Json:
    """The template of a pipeline, with a role for each grant."""
    stack = new_stack()
    pipeline = IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        encryption_key=kms.Key(stack, "Key") if key else None,
        filters=[s3.NotificationKeyFilter(prefix="in/", suffix=".csv"), s3.NotificationKeyFilter(prefix="b/")],
    )
    for grant in ("grant_operate", "grant_put", "grant_read", "grant_read_ledger", "grant_redrive", "grant_reprocess"):
        role = iam.Role(stack, f"{grant.title().replace('_', '')}Person", assumed_by=iam.AccountRootPrincipal())
        assert getattr(pipeline, grant)(role).success
    return template_of(stack)


def granted(grant: str, *, key: bool = False) -> tuple[list[Json], Json]:
    """The statements that a grant of the pipeline gives to a role, and the template."""
    template = people(key=key)
    return list(statements(template, f"{grant.title().replace('_', '')}Person")), template


def test_grant_put_is_for_what_the_pipeline_takes() -> None:
    """A partner cannot write keys that no filter matches."""
    found, _ = granted("grant_put")
    assert all("s3:PutObject" in actions(one) for one in found)
    targets = [resource["Fn::Join"][1][1] for one in found for resource in _listed(one["Resource"])]
    assert sorted(targets) == ["/b/*", "/in/*.csv"]


def test_grant_read_ledger_covers_table_and_index() -> None:
    """Actions that read, and the use of the key."""
    found, _ = granted("grant_read_ledger", key=True)
    given = {action for one in found for action in actions(one)}
    assert given == {
        "dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan",
        "kms:Decrypt", "kms:DescribeKey", "s3:ListBucketVersions",
    }  # fmt: skip
    assert "/index/needs_review" in str(found)


@pytest.mark.parametrize("key", [False, True])
def test_grant_redrive_moves_messages_back(key: bool) -> None:
    """Receive from the dead-letter queue, and send to the queue."""
    found, template = granted("grant_redrive", key=key)
    (queue,) = resources(template, "AWS::SQS::Queue", "OrdersQueueMessages")
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
    by_target = {str(one["Resource"]): actions(one) for one in found}
    assert by_target[str({"Fn::GetAtt": [queue, "Arn"]})] == ["sqs:GetQueueAttributes", "sqs:SendMessage"]
    taking = by_target[str({"Fn::GetAtt": [dead_letters, "Arn"]})]
    assert taking == [
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ListMessageMoveTasks",
        "sqs:ReceiveMessage",
    ]
    assert (["kms:Decrypt", "kms:GenerateDataKey"] in [actions(one) for one in found]) is key


def test_grant_reprocess_sends_and_lists_and_nothing_else() -> None:
    """A reprocess sends a message for each key. It lists keys, and reads no content."""
    found, template = granted("grant_reprocess")
    found = [one for one in found if "Condition" not in one and "logs:PutLogEvents" not in actions(one)]
    (queue,) = resources(template, "AWS::SQS::Queue", "OrdersQueueMessages")
    (bucket,) = resources(template, "AWS::S3::Bucket", "OrdersBucket")
    assert {str(one["Resource"]): actions(one) for one in found} == {
        str({"Fn::GetAtt": [queue, "Arn"]}): ["sqs:GetQueueAttributes", "sqs:SendMessage"],
        str({"Fn::GetAtt": [bucket, "Arn"]}): ["s3:ListBucket", "s3:ListBucketVersions"],
    }


def test_grant_read_is_for_what_the_pipeline_takes() -> None:
    """All versions below the prefixes, and use of the key. Without the listing, S3 answers 403 for a removed object."""
    found, template = granted("grant_read", key=True)
    (bucket,) = resources(template, "AWS::S3::Bucket", "OrdersBucket")
    (key,) = resources(template, "AWS::KMS::Key")
    arn = {"Fn::GetAtt": [bucket, "Arn"]}
    assert {str(one["Resource"]): actions(one) for one in found} == {
        str([{"Fn::Join": ["", [arn, end]]} for end in ("/in/*", "/b/*")]): ["s3:GetObject", "s3:GetObjectVersion"],
        str(arn): ["s3:ListBucket"],
        str({"Fn::GetAtt": [key, "Arn"]}): ["kms:Decrypt"],
    }


@pytest.mark.failure_mode("F209")
@pytest.mark.parametrize("place", [None, "ours", "theirs"])
def test_the_function_of_another_stack_reads_without_a_cycle(place: str | None) -> None:
    """The pipeline invokes it. Its role is in its own stack, and the permission in the pipeline's stack."""
    app = new_app()
    ours, theirs = new_stack("Ours", app), new_stack("Theirs", app)
    function = lambda_.Function(
        theirs,
        "Reader",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
    )
    key = kms.Key({"ours": ours, "theirs": theirs}[place], "Key") if place else None
    pipeline = IntakePipeline(ours, "Orders", processor=Processor.from_function(function), encryption_key=key)
    assert pipeline.grant_read(function).success
    assert pipeline.grant_read(function).success
    [policy] = [
        one["Properties"]
        for name, one in template_of(ours)["Resources"].items()
        if one["Type"] == "AWS::IAM::Policy" and "OrdersReader" in name
    ]
    (role,) = policy["Roles"]
    assert "Fn::ImportValue" in role
    given = {action for one in policy["PolicyDocument"]["Statement"] for action in actions(one)}
    assert given == {"s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket"} | ({"kms:Decrypt"} if place else set())
    assert "Fn::ImportValue" not in json.dumps(template_of(theirs))


@pytest.mark.failure_mode("F174")
@pytest.mark.parametrize("grant", ["grant_redrive", "grant_reprocess"])
def test_a_grant_of_an_operation_writes_its_records_and_no_rows(grant: str) -> None:
    """The condition names the partition key of the records. The key of a row has a slash."""
    found, template = granted(grant, key=True)
    [record] = [one for one in found if any(action.startswith("dynamodb:") for action in actions(one))]
    [name] = {
        one["Properties"]["Environment"]["Variables"]["INTAKE_PIPELINE_NAME"]
        for one in template["Resources"].values()
        if one["Type"] == "AWS::Lambda::Function" and "INTAKE_DLQ_URL" in str(one["Properties"].get("Environment"))
    }
    assert record["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [f"{name}#operations"]}}
    assert actions(record) == ["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem"]
    [log] = [one for one in found if any(action.startswith("logs:") for action in actions(one))]
    assert actions(log) == ["logs:CreateLogStream", "logs:PutLogEvents"]
    (group,) = resources(template, "AWS::Logs::LogGroup", "OrdersConsumer")
    assert log["Resource"] == {"Fn::GetAtt": [group, "Arn"]}


@pytest.mark.failure_mode("F176")
def test_grant_operate_changes_rows_of_the_bucket_and_deletes_none() -> None:
    """`dismiss` and `retry` update rows. Only records, locks and marks are put and deleted."""
    found, template = granted("grant_operate")
    (bucket,) = resources(template, "AWS::S3::Bucket", "OrdersBucket")
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
    updates = [one for one in found if "dynamodb:UpdateItem" in actions(one)]
    [keys] = [one["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"] for one in updates]
    assert keys[0] == {"Fn::Join": ["", [{"Ref": bucket}, "/*"]]}
    for one in found:
        if {"dynamodb:DeleteItem", "dynamodb:PutItem"} & set(actions(one)):
            [key] = one["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"]
            assert key.endswith(("#operations", "#downstream"))
    sending = [one for one in found if "sqs:SendMessage" in actions(one)]
    assert {"Fn::GetAtt": [dead_letters, "Arn"]} in [one["Resource"] for one in sending]


def granted_to_operate(scope: Stack, construct: MessageIntake | FileSets) -> list[Json]:
    """The statements that `grant_operate` of messages or sets gives to a role."""
    role = iam.Role(scope, "Person", assumed_by=iam.AccountRootPrincipal())
    assert construct.grant_operate(role).success
    return list(statements(template_of(scope), "Person"))


def test_grant_operate_of_sets_covers_their_rows_and_queues() -> None:
    """Their rows have the bucket of the parts, and their marks and records the name of the sets."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), name="orders")
    form = SetForm.manifest("loads/*/manifest.json")
    sets = FileSets(stack, "Loads", pipeline=pipeline, form=form, processor=processor(), name="loads")
    found = granted_to_operate(stack, sets)
    given = {action for one in found for action in actions(one)}
    commands = ("list", "inspect", "retry", "status")
    assert given >= set[str]().union(*(NEEDED[command] for command in commands))
    assert _leading_keys(found) == {"loads#operations", "loads#downstream", "the bucket/*"}
    queues = [one["Resource"]["Fn::GetAtt"][0] for one in found if any("sqs:" in action for action in actions(one))]
    assert {queue[:5] for queue in queues} == {"loads"}


def test_grant_operate_of_messages_covers_their_rows_and_queues() -> None:
    """The grant has no action of S3."""
    stack = new_stack()
    intake = MessageIntake(
        stack,
        "Orders",
        source=MessageSource.sqs(),
        key="id",
        identity="version",
        processor=processor(),
        name="orders",
    )
    found = granted_to_operate(stack, intake)
    given = {action for one in found for action in actions(one)}
    assert given >= {"logs:CreateLogStream"} | NEEDED["list"] | {
        one for one in NEEDED["retry"] if not one.startswith("s3:")
    }
    assert _leading_keys(found) == {"orders#operations", "orders#downstream", "messages:orders/*"}
    assert not any(action.startswith("s3:") for action in given)


def _leading_keys(found: list[Json]) -> set[str]:
    """The partition keys that the statements allow to write. The table has no other writer among them."""
    writing = {"dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
    keys: set[str] = set()
    for one in found:
        if writing & set(actions(one)):
            [values] = [value["dynamodb:LeadingKeys"] for value in one["Condition"].values()]
            keys |= {key if isinstance(key, str) else f"the bucket{key['Fn::Join'][1][1]}" for key in _listed(values)}
    return keys


@pytest.mark.parametrize("command", list(NEEDED))
def test_the_grants_are_enough_for_the_command_line(command: str) -> None:
    """`tests/unit/command/test_commands.py` holds the same table against what each command calls."""
    given = {action for grant in GRANTS[command] for one in granted(grant)[0] for action in actions(one)}
    assert given >= NEEDED[command]


@pytest.mark.failure_mode("F602")
@pytest.mark.parametrize("deletes", [False, True])
def test_only_a_consumer_that_tells_removals_describes_the_table(*, deletes: bool) -> None:
    """It asks whether the table was restored."""
    given = {action for one in statements(template_with(deletes=deletes), "OrdersConsumer") for action in actions(one)}
    assert ("dynamodb:DescribeTable" in given) is deletes


def test_the_pipeline_is_a_grantee() -> None:
    """A grant to the pipeline adds to the consumer's role only."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    table = dynamodb.Table(
        stack, "Own", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
    )
    table.grant(pipeline, "dynamodb:DescribeTable")
    template = template_of(stack)
    assert any("dynamodb:DescribeTable" in actions(one) for one in statements(template, "OrdersConsumer"))
    assert not any("dynamodb:DescribeTable" in actions(one) for one in statements(template, "OrdersAudit"))
    assert Stack.of(pipeline) is stack


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


TABLE_WRITES = {
    "dynamodb:BatchWriteItem",
    "dynamodb:DeleteItem",
    "dynamodb:PartiQLInsert",
    "dynamodb:PartiQLUpdate",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
}


@pytest.mark.failure_mode("F299")
def test_each_principal_that_uses_a_table_may_use_its_key() -> None:
    """All functions, and people with each grant of each construct. One that writes needs more than one that reads."""
    stack = new_stack()
    key = kms.Key(stack, "Key")
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key, name="orders")
    form = SetForm.manifest("loads/*/manifest.json")
    sets = FileSets(stack, "Loads", pipeline=pipeline, form=form, processor=processor(), name="loads")
    intake = messages(stack, "Messages", MessageSource.sqs(), encryption_key=key)
    people = 0
    for construct in (pipeline, sets, intake):
        for grant in sorted(name for name in dir(construct) if name.startswith("grant_") and name != "grant_principal"):
            if list(signature(getattr(construct, grant)).parameters) == ["grantee"]:
                people += 1
                role = iam.Role(stack, f"Person{people}", assumed_by=iam.AccountRootPrincipal())
                getattr(construct, grant)(role)
    found = Counter[str]()
    for name, policy in resources(template_of(stack), "AWS::IAM::Policy").items():
        given = {action for one in policy["Properties"]["PolicyDocument"]["Statement"] for action in actions(one)}
        if not any(action.startswith("dynamodb:") for action in given):
            continue
        writes = not TABLE_WRITES.isdisjoint(given)
        assert given >= set(TABLE_KEY_ACTIONS if writes else TABLE_READ_KEY_ACTIONS), name
        found[f"{'Person' if name.startswith('Person') else 'Function'} that {'writes' if writes else 'reads'}"] += 1
    assert found == {"Function that writes": 4, "Person that reads": 3, "Person that writes": 8}
