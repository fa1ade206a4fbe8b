"""`encryption_key` for the log groups that the constructs make."""

import json

import pytest
from aws_cdk import Environment, NestedStack
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    FileSets,
    IntakePipeline,
    IntakeWorkers,
    MessageSource,
    MonitoringOptions,
    SetForm,
)
from tests.synth.build import (
    Json,
    new_app,
    new_stack,
    only,
    processor,
    resources,
    rules_in,
    template_of,
    template_with,
    warnings,
)
from tests.synth.message_stack import messages

HERE = Environment(account="111122223333", region="eu-central-1")
KEY_ARN = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def of_logs(template: Json) -> list[Json]:
    """The statements of a key for CloudWatch Logs."""
    policy = only(template, "AWS::KMS::Key")["KeyPolicy"]["Statement"]
    return [one for one in policy if "logs." in json.dumps(one["Principal"])]


def group_pattern(statement: Json) -> str:
    (pattern,) = statement["Condition"]["ArnLike"].values()
    return json.dumps(pattern)


@pytest.mark.failure_mode("F201")
def test_the_key_of_a_pipeline_encrypts_all_its_log_groups() -> None:
    """Consumer, audit in parts, sets, workers and messages have log groups. One statement suffices."""
    stack = new_stack("Stack", env=HERE)
    key = kms.Key(stack, "Key")
    audit = AuditOptions(scale=AuditScale.shards())
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key, audit=audit)
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.marker("_SUCCESS"), processor=processor())
    image = ecs.ContainerImage.from_registry("example/orders")
    IntakeWorkers(stack, "Workers", intake=pipeline, cluster=ecs.Cluster(stack, "Cluster"), image=image)
    messages(stack, "Intake", MessageSource.sqs(), encryption_key=key)
    template = template_of(stack)
    groups = resources(template, "AWS::Logs::LogGroup")
    key_arn = {"Fn::GetAtt": [next(iter(resources(template, "AWS::KMS::Key"))), "Arn"]}
    assert {name: group["Properties"].get("KmsKeyId") for name, group in groups.items()} == dict.fromkeys(
        groups, key_arn
    )
    assert len(groups) == 6
    (statement,) = of_logs(template)
    assert statement == {
        "Action": ["kms:Decrypt*", "kms:Describe*", "kms:Encrypt*", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
        "Condition": {
            "ArnLike": {
                "kms:EncryptionContext:aws:logs:arn": {
                    "Fn::Join": [
                        "",
                        [
                            "arn:",
                            {"Ref": "AWS::Partition"},
                            ":logs:eu-central-1:111122223333:log-group:",
                            {"Ref": "AWS::StackName"},
                            "-*",
                        ],
                    ]
                }
            }
        },
        "Effect": "Allow",
        "Principal": {"Service": "logs.eu-central-1.amazonaws.com"},
        "Resource": "*",
    }


@pytest.mark.failure_mode("F201")
@pytest.mark.parametrize("env", [None, HERE])
def test_the_policy_of_a_key_of_another_stack_names_the_stack_of_the_log_groups(env: Environment | None) -> None:
    """The policy does not refer to that stack, so there is no cycle. An alias has the policy of its key."""
    app = new_app()
    theirs, ours, second = (new_stack(name, app, env) for name in ("Theirs", "Ours", "Second"))
    key = kms.Key(theirs, "Key")
    IntakePipeline(ours, "Orders", processor=processor(), encryption_key=key)
    IntakePipeline(ours, "Returns", processor=processor(), encryption_key=key)
    alias = kms.Alias(second, "Alias", alias_name="alias/intake", target_key=key)
    IntakePipeline(second, "Orders", processor=processor(), encryption_key=alias)
    for stack in (ours, second):
        groups = resources(template_of(stack), "AWS::Logs::LogGroup").values()
        assert all("KmsKeyId" in group["Properties"] for group in groups)
    patterns = [group_pattern(one) for one in of_logs(template_of(theirs))]
    assert len(patterns) == 2
    assert ":log-group:Ours-*" in patterns[0]
    assert ":log-group:Second-*" in patterns[1]


@pytest.mark.failure_mode("F201")
def test_the_log_groups_of_a_nested_stack_begin_with_the_name_of_its_host() -> None:
    """A reference to the nested stack in the key's policy would be a cycle."""
    host = new_stack("Host")
    key = kms.Key(host, "Key")
    IntakePipeline(NestedStack(host, "Nested"), "Orders", processor=processor(), encryption_key=key)
    (statement,) = of_logs(template_of(host))
    assert '{"Ref": "AWS::StackName"}, "-*"' in group_pattern(statement)


@pytest.mark.failure_mode("F201")
def test_an_imported_key_needs_a_statement_that_is_printed() -> None:
    """Once for a pipeline, and as it has to be in the policy."""
    stack = new_stack("Orders", env=HERE)
    IntakePipeline(stack, "In", processor=processor(), encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    template_of(stack)
    found = [one for one in warnings(stack) if rules_in(one) == ["key-policy-unknown"]]
    (of_s3, logs_text) = sorted(found, key=lambda one: "logs." in one)
    assert "s3.amazonaws.com" in of_s3
    statement, _ = json.JSONDecoder().raw_decode(logs_text, logs_text.index("{"))
    assert statement["Principal"] == {"Service": "logs.eu-central-1.amazonaws.com"}
    (pattern,) = statement["Condition"]["ArnLike"].values()
    assert pattern == "arn:aws:logs:eu-central-1:111122223333:log-group:Orders-*"
    assert "CloudWatch Logs refuses to make the log groups" in logs_text


def test_china_has_its_own_name_of_the_service() -> None:
    """CDK's facts about regions have the suffix."""
    stack = new_stack("Stack", env=Environment(account="111122223333", region="cn-north-1"))
    IntakePipeline(stack, "Orders", processor=processor(), encryption_key=kms.Key(stack, "Key"))
    (statement,) = of_logs(template_of(stack))
    assert statement["Principal"] == {"Service": "logs.cn-north-1.amazonaws.com.cn"}


def test_a_log_group_of_yours_keeps_its_encryption() -> None:
    """The key does not change it, and its policy gets no statement."""
    stack = new_stack()
    monitoring = MonitoringOptions(log_group=logs.LogGroup(stack, "Log"))
    IntakePipeline(stack, "Orders", processor=processor(), encryption_key=kms.Key(stack, "Key"), monitoring=monitoring)
    template = template_of(stack)
    assert "KmsKeyId" not in only(template, "AWS::Logs::LogGroup")
    assert of_logs(template) == []


def test_without_a_key_log_groups_have_the_key_of_the_service() -> None:
    groups = resources(template_with(), "AWS::Logs::LogGroup").values()
    assert all("KmsKeyId" not in group["Properties"] for group in groups)
