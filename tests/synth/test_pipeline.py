"""The resources of a pipeline, with only a processor and with all options."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, CfnElement, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import (
    AuditOptions,
    ConcurrencyOptions,
    FileSets,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MonitoringOptions,
    NetworkOptions,
    Ordering,
    Processor,
    Reasons,
    RetryOptions,
    SetForm,
)
from cdk_intake_ledger.testing import logical_ids
from intake_ledger.protocol import row
from intake_ledger.protocol.settings import ConsumerSettings, settings_from
from intake_ledger.protocol.settings_audit import audit_settings
from tests.synth.build import (
    Json,
    actions,
    later,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    statements,
    template_of,
    template_with,
    variables,
)

OWN_LAYER = "arn:aws:lambda:eu-central-1:111122223333:layer:own:1"


@pytest.fixture(scope="module")
def stack() -> Stack:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return template_of(stack)


@pytest.mark.failure_mode("F94")
@pytest.mark.parametrize(
    ("deletes", "retention", "keeps_rows", "days"),
    [
        (False, {}, False, 35),
        (True, {}, True, 35),
        (False, {"retention": None}, True, 35),
        (True, {"retention": Duration.days(40)}, True, 40),
    ],
)
def test_rows_live_as_long_as_their_objects(
    deletes: bool, retention: dict[str, Duration | None], keeps_rows: bool, days: int
) -> None:
    """With `deletes=True`, and with `retention=None`. Rows of removals always expire."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Rows", **retention)  # type: ignore[arg-type] # one option, or none
    IntakePipeline(stack, "Orders", processor=processor(), deletes=deletes, ledger=ledger)
    template = template_of(stack)
    consumer = settings_from(ConsumerSettings, variables(template, "OrdersConsumer"))
    audit = audit_settings(variables(template, "OrdersAudit"))
    for settings in (consumer, audit):
        assert (settings.keeps_rows, settings.retention_seconds) == (keeps_rows, days * 86_400)
        assert not settings.skips_existing


@pytest.mark.failure_mode("F94")
def test_without_a_retention_removals_stay_as_long_as_the_queue_needs() -> None:
    """The pipeline calculates it."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", retention=Duration.days(14))
    ledger = IntakeLedger(stack, "Rows", retention=None)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue, ledger=ledger)
    assert (
        settings_from(ConsumerSettings, variables(template_of(stack), "OrdersConsumer")).retention_seconds
        == 50 * 86_400
    )


def test_logical_ids_of_what_holds_data_do_not_change(stack: Stack, template: Json) -> None:
    """A changed logical id would replace a bucket or table with data by an empty one."""
    assert logical_ids(stack, "AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue") == {
        "AWS::DynamoDB::Table": ["OrdersLedgerTableBA0CFD3B"],
        "AWS::S3::Bucket": ["OrdersBucket195ECF73"],
        "AWS::SQS::Queue": ["OrdersQueueDeadLetters7E4911DF", "OrdersQueueMessagesC89A072B"],
    }
    assert variables(template, "OrdersConsumer")["INTAKE_PIPELINE_NAME"] == "Stack-Orders-EEDB7941"


def test_nothing_has_a_physical_name(template: Json) -> None:
    """Two copies of a stack fit into one account, and CloudFormation can replace a resource."""
    names = ("BucketName", "QueueName", "TableName", "FunctionName", "LogGroupName", "RoleName", "Name", "LayerName")
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] not in ("AWS::Lambda::EventSourceMapping", "AWS::Lambda::EventInvokeConfig"):
            assert not set(names) & set(resource["Properties"]), logical_id


def test_there_is_no_hidden_function(template: Json) -> None:
    """The pipeline's bucket has the notification itself: two functions, and no custom resource."""
    assert len(resources(template, "AWS::Lambda::Function")) == 2
    assert not [name for name, one in template["Resources"].items() if one["Type"].startswith("Custom::")]


def test_the_bucket_is_private_and_keeps_versions(template: Json) -> None:
    """Versioned, encrypted, TLS only, nothing public, no ACLs."""
    bucket = only(template, "AWS::S3::Bucket")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert bucket["LifecycleConfiguration"]["Rules"] == [
        {
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
            "Status": "Enabled",
        }
    ]
    denied = [one for one in statements(template, type_="AWS::S3::BucketPolicy") if one["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in [one["Condition"] for one in denied]


@pytest.mark.failure_mode("F40")
def test_s3_tells_about_everything_that_ends_a_state(template: Json) -> None:
    """`ObjectRemoved:*` does not include lifecycle deletions."""
    entries = only(template, "AWS::S3::Bucket")["NotificationConfiguration"]["QueueConfigurations"]
    assert [one["Event"] for one in entries] == [
        "s3:ObjectCreated:*",
        "s3:ObjectRemoved:*",
        "s3:LifecycleExpiration:*",
        "s3:ObjectRestore:Completed",
    ]


def test_s3_is_told_after_the_queue_lets_it_in(template: Json) -> None:
    """At configuration, S3 sends a test message and refuses a queue without permission."""
    (bucket,) = resources(template, "AWS::S3::Bucket").values()
    (policy,) = resources(template, "AWS::SQS::QueuePolicy", "OrdersQueueMessages")
    assert bucket["DependsOn"] == [policy]


@pytest.mark.failure_mode("F29")
def test_the_queue_takes_messages_of_this_account_only(template: Json) -> None:
    """S3 of another account cannot write to the queue, and the functions know the bucket's owner."""
    allowed = [
        one for one in statements(template, "OrdersQueueMessages", "AWS::SQS::QueuePolicy") if one["Effect"] == "Allow"
    ]
    assert [one["Condition"] for one in allowed] == [{"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}]
    assert [actions(one) for one in allowed] == [["sqs:SendMessage"]]
    assert variables(template, "OrdersConsumer")["INTAKE_BUCKET_OWNER"] == "reference"


def test_queues_are_encrypted_and_take_tls_only(template: Json) -> None:
    """Both queues are encrypted."""
    for path in ("OrdersQueueMessages", "OrdersQueueDeadLetters"):
        assert only(template, "AWS::SQS::Queue", path)["SqsManagedSseEnabled"] is True
        denied = [one for one in statements(template, path, "AWS::SQS::QueuePolicy") if one["Effect"] == "Deny"]
        assert [one["Condition"] for one in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


@pytest.mark.failure_mode("F12")
def test_visibility_follows_from_the_processing_timeout(template: Json) -> None:
    """F12, F126: 30 seconds more than the lease, which is the function's timeout plus the clock skew."""
    assert only(template, "AWS::Lambda::Function", "OrdersConsumer")["Timeout"] == 130
    assert only(template, "AWS::SQS::Queue", "OrdersQueueMessages")["VisibilityTimeout"] == 130 + 120 + 30


@pytest.mark.failure_mode("F20")
def test_a_long_processing_timeout_takes_what_lambda_allows() -> None:
    """The function has 10 seconds more, up to 890 seconds. Lease and visibility timeout follow from it."""
    template = template_with(processing_timeout=Duration.seconds(890))
    assert only(template, "AWS::Lambda::Function", "OrdersConsumer")["Timeout"] == 900
    assert only(template, "AWS::SQS::Queue", "OrdersQueueMessages")["VisibilityTimeout"] == 900 + 120 + 30


@pytest.mark.failure_mode("F67")
def test_the_dead_letter_queue_keeps_longer_than_the_queue(template: Json) -> None:
    """The retention starts when a message is first sent. The maximum number of receives is a backstop."""
    queue = only(template, "AWS::SQS::Queue", "OrdersQueueMessages")
    assert queue["MessageRetentionPeriod"] == 4 * 86_400
    assert only(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")["MessageRetentionPeriod"] == 14 * 86_400
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 1_000


@pytest.mark.failure_mode("F190")
def test_the_consumer_knows_the_version_of_its_code() -> None:
    """The hash of its asset or of its inline code. A parameter for the code stays the same when the code changes."""
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Code", "code")
    codes = {
        "Asset": lambda_.Code.from_asset(str(Path(__file__).parent / "processors")),
        "Inline": lambda_.Code.from_inline("def process(change): ..."),
        "Named": lambda_.Code.from_bucket(bucket, "code.zip"),
    }
    for name, code in codes.items():
        IntakePipeline(stack, name, processor=Processor.from_code(code, entrypoint="invoices:process"))
    template = template_of(stack)
    versions = {name: variables(template, f"{name}Consumer").get("INTAKE_PROCESSOR_VERSION") for name in codes}
    [function] = [
        resource
        for name, resource in template["Resources"].items()
        if name.startswith("AssetConsumerFunction") and resource["Type"] == "AWS::Lambda::Function"
    ]
    assert function["Properties"]["Code"]["S3Key"] == f"{versions['Asset']}.zip"
    assert versions["Inline"] == hashlib.sha256(b"def process(change): ...").hexdigest()
    assert versions["Named"] is None


@pytest.mark.failure_mode("F193")
def test_a_version_can_be_named_for_code_that_has_none() -> None:
    """Code of a bucket, images of a repository, functions and state machines. It is also stronger than a hash."""
    stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Code", "code")
    repository = ecr.Repository.from_repository_name(stack, "ItsImages", "images")
    function = lambda_.Function.from_function_name(stack, "ItsFunction", "existing")
    machine = sfn.StateMachine.from_state_machine_name(stack, "ItsMachine", "machine")
    inline = lambda_.Code.from_inline("def process(change): ...")
    image = lambda_.DockerImageCode.from_ecr(repository)
    version: dict[str, Any] = {"processor_version": "3f2a9c"}
    processors = {
        "Bucket": Processor.from_code(lambda_.Code.from_bucket(bucket, "a.zip"), entrypoint="a:process", **version),
        "Inline": Processor.from_code(inline, entrypoint="a:process", **version),
        "Image": Processor.from_image(
            image, entrypoint="a:process", architecture=lambda_.Architecture.ARM_64, **version
        ),
        "Function": Processor.from_function(function, **version),
        "Machine": Processor.from_state_machine(machine, **version),
    }
    for name, made in processors.items():
        IntakePipeline(stack, name, processor=made)
    template = template_of(stack)
    versions = {name: variables(template, f"{name}Consumer").get("INTAKE_PROCESSOR_VERSION") for name in processors}
    assert set(versions.values()) == {"3f2a9c"}, versions


@pytest.mark.parametrize("version", ["", "release-2026-11-24", "ä", "a b", "a\n"])
def test_a_version_that_rows_would_cut_is_refused(version: str) -> None:
    """Two versions would look the same."""
    code = lambda_.Code.from_inline("def process(change): ...")
    made = Processor.from_code(code, entrypoint="a:process", processor_version=version)
    with refused("processor-version", re.escape(repr(version))):
        IntakePipeline(new_stack(), "A", processor=made)


@pytest.mark.parametrize("together", [False, True])
def test_commits_together_are_allowed_where_they_are_asked_for(together: bool) -> None:
    """Otherwise the role has no such permission, and the setting is off."""
    template = template_with(concurrency=ConcurrencyOptions(commit_together=together))
    allowed = [action for one in statements(template, "OrdersConsumer") for action in one["Action"]]
    assert ("dynamodb:PartiQLUpdate" in allowed) is together
    assert variables(template, "OrdersConsumer")["INTAKE_COMMIT_TOGETHER"] == str(together).lower()


def test_a_processor_of_several_changes_returns_results_and_commits_together(tmp_path: Path) -> None:
    """Its annotations are those of a list and of results, and a function of one change is refused."""
    (tmp_path / "load.py").write_text("def process_batch(changes: list[ObjectChange]) -> dict[str, object]: ...")
    (tmp_path / "one.py").write_text("def process(change: ObjectChange) -> None: ...")
    stack = new_stack()
    with refused("function-return-type", "dict"):
        IntakePipeline(stack, "A", processor=Processor.from_asset(tmp_path, entrypoint="load:process_batch"))
    with refused("function-argument-type", r"Sequence\[ObjectChange\]"):
        IntakePipeline(stack, "B", processor=Processor.from_asset(tmp_path, entrypoint="one:process", max_per_call=2))
    load = Processor.from_asset(tmp_path, entrypoint="load:process_batch", max_per_call=10)
    IntakePipeline(stack, "Orders", processor=load)
    template = template_of(stack)
    allowed = [action for one in statements(template, "OrdersConsumer") for action in one["Action"]]
    assert "dynamodb:PartiQLUpdate" in allowed
    assert variables(template, "OrdersConsumer")["INTAKE_MAX_PER_CALL"] == "10"


def test_groups_need_one_permission_and_no_resource_more(template: Json) -> None:
    """Their locks are items of the ledger's table. Those that wait for one are read by a query."""
    stack = new_stack()
    concurrency = ConcurrencyOptions(exclusive_by="in/{account}/")
    orders = IntakePipeline(stack, "Orders", processor=processor(), concurrency=concurrency)
    FileSets(
        stack,
        "Days",
        pipeline=orders,
        form=SetForm.marker("in/*/*/_CLOSED"),
        processor=processor(),
        concurrency=concurrency,
    )
    made = template_of(stack)
    for path in ("OrdersConsumer", "DaysConsumer"):
        assert variables(made, path)["INTAKE_EXCLUSIVE_BY"] == "in/{account}/"
        assert settings_from(ConsumerSettings, variables(made, path)).exclusive_by is not None
    ours, theirs = (
        {action for one in statements(of, "OrdersConsumer") for action in one["Action"]} for of in (made, template)
    )
    assert ours == theirs | {"dynamodb:Query"}
    assert "INTAKE_EXCLUSIVE_BY" not in variables(template, "OrdersConsumer")


@pytest.mark.failure_mode("F21")
def test_partial_batch_responses_are_on(template: Json) -> None:
    """Without them, Lambda deletes failed messages."""
    source = only(template, "AWS::Lambda::EventSourceMapping")
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["BatchSize"] == 10


@pytest.mark.failure_mode("F08", "F09")
def test_rows_expire_by_the_attribute_that_the_ledger_writes(template: Json) -> None:
    """Time to live uses the ledger's attribute."""
    table = only(template, "AWS::DynamoDB::Table")
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_the_ledger_survives_mistakes(template: Json) -> None:
    """It is retained, protected from deletion, and recoverable to each second."""
    (table,) = resources(template, "AWS::DynamoDB::Table").values()
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    assert table["Properties"]["DeletionProtectionEnabled"] is True
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_review_index_holds_the_attributes_that_the_command_reads(template: Json) -> None:
    """The index has complete rows, by pipeline and time."""
    (index,) = only(template, "AWS::DynamoDB::Table")["GlobalSecondaryIndexes"]
    assert index["KeySchema"] == [
        {"AttributeName": "needs_review", "KeyType": "HASH"},
        {"AttributeName": "updated_at", "KeyType": "RANGE"},
    ]
    assert index["Projection"] == {"ProjectionType": "ALL"}


@pytest.mark.failure_mode("F24")
def test_no_function_has_reserved_concurrency(template: Json) -> None:
    """Throttled receives would send good messages to the dead-letter queue. Only the event source has a limit."""
    for function in resources(template, "AWS::Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function["Properties"]


def test_both_functions_log_where_the_pipeline_says(template: Json) -> None:
    """Each function has a log group with a retention, which is kept like the data."""
    groups = resources(template, "AWS::Logs::LogGroup")
    assert [one["Properties"]["RetentionInDays"] for one in groups.values()] == [60, 60]
    for function in resources(template, "AWS::Lambda::Function").values():
        assert function["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] in groups


def test_one_layer_for_any_python_and_machine(template: Json) -> None:
    """The functions have no other layer, since each costs time at a cold start."""
    layer = only(template, "AWS::Lambda::LayerVersion")
    assert layer["CompatibleRuntimes"] == ["python3.12", "python3.13", "python3.14"]
    assert layer["CompatibleArchitectures"] == ["arm64", "x86_64"]
    for function in resources(template, "AWS::Lambda::Function").values():
        assert len(function["Properties"]["Layers"]) == 1


@pytest.mark.failure_mode("F42")
def test_a_run_is_continued_long_before_the_next_is_due(template: Json) -> None:
    """The schedule ticks more often than it asks for a run."""
    schedule = only(template, "AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "rate(15 minutes)"
    assert json.loads(schedule["Target"]["Input"]) == {"everySeconds": 86_400}


def test_a_run_every_few_minutes_has_no_shorter_ticks() -> None:
    """The tick is then the interval."""
    schedule = only(template_with(audit=AuditOptions(interval=Duration.minutes(1))), "AWS::Scheduler::Schedule")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert json.loads(schedule["Target"]["Input"]) == {"everySeconds": 60}


@pytest.mark.failure_mode("F279", "F280")
@pytest.mark.parametrize("asked", [True, False])
def test_consumer_and_audit_are_told_of_directory_markers_together(asked: bool) -> None:
    """Otherwise the audit would resubmit the skipped objects."""
    template = template_with(directory_markers=asked)
    consumer = settings_from(ConsumerSettings, variables(template, "OrdersConsumer"))
    audit = audit_settings(variables(template, "OrdersAudit"))
    assert (consumer.directory_markers, audit.directory_markers) == (asked, asked)


@pytest.mark.failure_mode("F41")
@pytest.mark.parametrize(("brought", "baseline"), [(True, True), (False, False)])
def test_what_was_in_a_bucket_before_is_no_loss(brought: bool, baseline: bool) -> None:
    """An existing bucket causes no flood of messages. A new bucket was empty."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Bucket", versioned=True) if brought else None
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket)
    assert audit_settings(variables(template_of(stack), "OrdersAudit")).skips_existing is baseline


def test_a_failed_audit_is_not_repeated(template: Json) -> None:
    """Neither the scheduler nor Lambda repeats it. The next run finds the same differences."""
    schedule = only(template, "AWS::Scheduler::Schedule")
    assert schedule["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 0}
    assert only(template, "AWS::Lambda::EventInvokeConfig")["MaximumRetryAttempts"] == 0


def test_the_functions_understand_their_settings(template: Json) -> None:
    """The runtime reads the settings that the construct writes."""
    consumer = settings_from(ConsumerSettings, variables(template, "OrdersConsumer"))
    audit = audit_settings(variables(template, "OrdersAudit"))
    common = {"pipeline", "bucket", "table", "queue_url", "retention_seconds", "clock_skew_seconds", "deletes"}
    assert {name: asdict(consumer)[name] for name in common} == {name: asdict(audit)[name] for name in common}
    assert consumer.processor == "orders:process"
    assert consumer.processing_timeout_seconds == 60
    assert (consumer.max_attempts, consumer.min_backoff_seconds, consumer.max_backoff_seconds) == (12, 15, 1_800)
    assert (audit.settle_seconds, audit.look_back_seconds, audit.budget) == (3_600, 14 * 86_400, 10_000)
    assert audit.filters == ()
    assert (consumer.ordering, consumer.deletes) == ("LATEST", False)


def test_every_option_arrives() -> None:
    """Each option has an effect on the template."""
    stack = new_stack(env=Environment(account="111122223333", region="eu-central-1"))
    key = kms.Key(stack, "Key")
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0)
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(
            memory_size=1_024,
            ephemeral_storage_size=2_048,
            environment={"TABLE": "x", "POWERTOOLS_LOG_LEVEL": "DEBUG"},
            runtime=lambda_.Runtime.PYTHON_3_12,
            architecture=lambda_.Architecture.X86_64,
            layers=[lambda_.LayerVersion.from_layer_version_arn(stack, "Own", OWN_LAYER)],
        ),
        ordering=Ordering.EVERY_VERSION,
        filters=[s3.NotificationKeyFilter(prefix="in put/", suffix=".csv"), s3.NotificationKeyFilter(prefix="b/")],
        deletes=True,
        queue=IntakeQueue(
            stack, "Buffer", retention=Duration.days(2), dead_letter_retention=Duration.days(5), encryption_key=key
        ),
        ledger=IntakeLedger(stack, "Rows", retention=Duration.days(40), removal_policy=RemovalPolicy.DESTROY),
        processing_timeout=Duration.minutes(5),
        retry=RetryOptions(max_attempts=3, min_backoff=Duration.seconds(1), max_backoff=Duration.seconds(9)),
        concurrency=ConcurrencyOptions(
            batch_size=100,
            max_batching_window=Duration.seconds(20),
            max_concurrency=7,
            threads=5,
            max_rate=2.5,
            max_burst=20,
            clock_skew=Duration.seconds(30),
        ),
        network=NetworkOptions(
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            security_groups=[ec2.SecurityGroup(stack, "Group", vpc=vpc)],
        ),
        monitoring=MonitoringOptions(log_group=logs.LogGroup(stack, "AllLogs"), reasons=Reasons.FULL),
        audit=AuditOptions(
            interval=Duration.hours(6), settle_time=Duration.minutes(5), look_back=Duration.days(10), budget=77
        ),
        removal_policy=RemovalPolicy.DESTROY,
    )
    template = template_of(stack)
    function = only(template, "AWS::Lambda::Function", "OrdersConsumer")
    assert function["EphemeralStorage"] == {"Size": 2_048}
    assert (function["MemorySize"], function["Runtime"], function["Architectures"]) == (1_024, "python3.12", ["x86_64"])
    assert function["Timeout"] == 610
    assert function["Layers"][0] == OWN_LAYER
    assert "Ref" in function["Layers"][1], "ours last, so that nothing replaces it"
    assert function["VpcConfig"]["SubnetIds"]
    assert variables(template, "OrdersConsumer")["POWERTOOLS_LOG_LEVEL"] == "DEBUG"
    assert variables(template, "OrdersConsumer")["INTAKE_BUCKET_OWNER"] == "111122223333"
    consumer = settings_from(ConsumerSettings, variables(template, "OrdersConsumer"))
    assert (consumer.ordering, consumer.deletes, consumer.clock_skew_seconds) == ("EVERY_VERSION", True, 30)
    assert (consumer.max_attempts, consumer.min_backoff_seconds, consumer.max_backoff_seconds) == (3, 1, 9)
    assert (consumer.max_rate, consumer.max_burst) == (2.5, 20)
    assert consumer.retention_seconds == 40 * 86_400
    audit = audit_settings(variables(template, "OrdersAudit"))
    assert (audit.settle_seconds, audit.look_back_seconds, audit.budget) == (300, 10 * 86_400, 77)
    assert [(one.prefix, one.suffix) for one in audit.filters] == [("in put/", ".csv"), ("b/", "")], (
        "as in the key: F47"
    )
    assert json.loads(only(template, "AWS::Scheduler::Schedule")["Target"]["Input"]) == {"everySeconds": 21_600}
    source = only(template, "AWS::Lambda::EventSourceMapping")
    assert (source["BatchSize"], source["MaximumBatchingWindowInSeconds"]) == (100, 20)
    assert source["ScalingConfig"] == {"MaximumConcurrency": 7}
    queue = only(template, "AWS::SQS::Queue", "BufferMessages")
    assert (queue["VisibilityTimeout"], queue["MessageRetentionPeriod"]) == (610 + 30 + 30, 2 * 86_400)
    assert only(template, "AWS::SQS::Queue", "BufferDeadLetters")["MessageRetentionPeriod"] == 5 * 86_400
    assert list(resources(template, "AWS::Logs::LogGroup")) == [stack.get_logical_id(_element(stack, "AllLogs"))]
    (table,) = resources(template, "AWS::DynamoDB::Table").values()
    assert (table["DeletionPolicy"], table["Properties"]["DeletionProtectionEnabled"]) == ("Delete", False)
    (bucket,) = resources(template, "AWS::S3::Bucket").values()
    assert bucket["DeletionPolicy"] == "Delete"
    entries = bucket["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert len(entries) == 8
    assert entries[0]["Filter"]["S3Key"]["Rules"] == [
        {"Name": "prefix", "Value": "in+put/"},
        {"Name": "suffix", "Value": ".csv"},
    ]
    interfaces = [one for one in statements(template, "OrdersConsumer") if actions(one)[0].startswith("ec2:")]
    assert len(interfaces) == 1


def _element(stack: Stack, name: str) -> CfnElement:
    element = stack.node.find_child(name).node.default_child
    assert isinstance(element, CfnElement)
    return element


def test_the_orderings_are_the_runtimes_own() -> None:
    """Construct and runtime use the same enums, so their values cannot differ."""
    assert Ordering is row.Ordering


def test_a_queue_of_its_own_visibility_keeps_it() -> None:
    """A given visibility timeout is checked and kept."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", visibility_timeout=Duration.minutes(20))
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    assert only(template_of(stack), "AWS::SQS::Queue", "BufferMessages")["VisibilityTimeout"] == 1_200


def test_two_pipelines_share_a_stack_and_a_ledger() -> None:
    """Each has separate rows, settings and resources. They share the table."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger")
    shared = processor()
    one = IntakePipeline(stack, "Orders", processor=shared, ledger=ledger)
    other = IntakePipeline(stack, "Invoices", processor=shared, ledger=ledger)
    template = template_of(stack)
    assert one.name != other.name
    assert len(resources(template, "AWS::DynamoDB::Table")) == 1
    assert len(resources(template, "AWS::S3::Bucket")) == 2
    assert one.table is other.table
    names = {variables(template, path)["INTAKE_PIPELINE_NAME"] for path in ("OrdersConsumer", "InvoicesConsumer")}
    assert names == {one.name, other.name}


def test_a_ledger_of_another_stack_is_shared() -> None:
    """CDK exports and imports the table's name."""
    app = new_app()
    home, away = new_stack("Home", app), new_stack("Away", app)
    ledger = IntakeLedger(home, "Ledger")
    IntakePipeline(home, "Orders", processor=processor(), ledger=ledger)
    IntakePipeline(away, "Invoices", processor=processor(), ledger=ledger)
    template = template_of(away)
    assert not resources(template, "AWS::DynamoDB::Table")
    assert "Fn::ImportValue" in str(only(template, "AWS::Lambda::Function", "InvoicesConsumer")["Environment"])


def test_one_processor_serves_two_stacks() -> None:
    """CDK binds an asset to a stack, so the processor makes one for each stack."""
    app = new_app()
    shared = processor()
    stacks = [new_stack(name, app) for name in ("One", "Two")]
    for stack in stacks:
        IntakePipeline(stack, "Orders", processor=shared)
    codes = [only(template_of(stack), "AWS::Lambda::Function", "OrdersConsumer")["Code"]["S3Key"] for stack in stacks]
    assert codes[0] == codes[1]


def test_a_processor_from_any_code() -> None:
    """The code may have its own bundling."""
    stack = new_stack()
    code = lambda_.Code.from_inline("def process(change): ...")
    IntakePipeline(stack, "Orders", processor=Processor.from_code(code, entrypoint="index:process"))
    function = only(template_of(stack), "AWS::Lambda::Function", "OrdersConsumer")
    assert function["Code"] == {"ZipFile": "def process(change): ..."}
    assert function["Handler"] == "intake_ledger.consumer.handler"


def test_numbers_that_come_with_the_deployment_pass_through() -> None:
    """A parameter of the template is not compared or rounded."""
    stack = new_stack()
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        concurrency=ConcurrencyOptions(batch_size=later(), max_concurrency=later()),
        retry=RetryOptions(max_attempts=later(), min_backoff=Duration.seconds(later())),
        ledger=IntakeLedger(stack, "Ledger", retention=Duration.seconds(later())),
        audit=AuditOptions(budget=later()),
        filters=[s3.NotificationKeyFilter(prefix=str(stack.account)), s3.NotificationKeyFilter(prefix="in/")],
    )
    template = template_of(stack)
    source = only(template, "AWS::Lambda::EventSourceMapping")
    assert source["BatchSize"] == source["ScalingConfig"]["MaximumConcurrency"] == {"Ref": "Later"}
    environment = only(template, "AWS::Lambda::Function", "OrdersConsumer")["Environment"]["Variables"]
    assert environment["INTAKE_MAX_ATTEMPTS"] == environment["INTAKE_RETENTION_SECONDS"] == {"Ref": "Later"}
    filters = only(template, "AWS::Lambda::Function", "OrdersAudit")["Environment"]["Variables"]["INTAKE_KEY_FILTERS"]
    assert {"Ref": "AWS::AccountId"} in filters["Fn::Join"][1]


@pytest.mark.thorough
def test_the_whole_passes_cdks_own_validation() -> None:
    """CDK's copy of CloudFormation's rules accepts the template. This takes seconds, so only one test does it."""
    app = App()
    stack = new_stack(app=app)
    IntakePipeline(stack, "Orders", processor=processor(), encryption_key=kms.Key(stack, "Key"))
    assert app.synth().get_stack_by_name("Stack").template["Resources"]


def test_the_host_is_left_alone(stack: Stack, template: Json) -> None:
    """The pipeline adds no context, tags or description, and nothing outside of its scope but the
    layer that all pipelines of the stack share.
    """
    cdks_own = {"BootstrapVersion", "CheckBootstrapVersion"}
    assert {child.node.id for child in stack.node.children} - cdks_own == {"Orders", "IntakeLedgerRuntime"}
    assert all(name.startswith(("Orders", "IntakeLedgerRuntime")) for name in template["Resources"])
    assert "Description" not in template
    assert not stack.node.get_all_context()


def test_no_variable_of_the_environment_is_read(tmp_path: Path) -> None:
    """Configuration comes from options only, so the template is the same in each environment. `wheels.py` reads the
    cache's place and pip's settings for uv.
    """
    source = Path(__file__).parents[2] / "constructs" / "cdk_intake_ledger"
    readers = [path.name for path in source.rglob("*.py") if "environ" in path.read_text().replace("environment", "")]
    assert sorted(readers) == ["wheels.py"]


@pytest.mark.thorough
def test_the_example_runs_from_anywhere(tmp_path: Path) -> None:
    """Its paths are absolute, so `cdk` may run in another directory."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(root / "app.py")],
        cwd=tmp_path,
        env=os.environ | {"CDK_VALIDATION": "false"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
