"""Existing resources and places of a pipeline: one app with a stack for each row.

Synthesised once (`conftest.py`) and looked at by several tests: the matrix itself, cdk-nag, cfn-lint and checkov. What
belongs to the team is made here as a careful team would make it, so that a finding is one of the library's.
"""

from collections.abc import Callable
from typing import Any

from aws_cdk import App, Duration, Environment, NestedStack, RemovalPolicy, Stack, Stage, pipelines
from aws_cdk import aws_cloudwatch_actions as cloudwatch_actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct
from examples.catalogue.app import CatalogueStack

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    ConcurrencyOptions,
    Delivery,
    Engine,
    FileSets,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageSource,
    MonitoringOptions,
    NetworkOptions,
    Processor,
    SetForm,
)
from tests.synth.build import PROCESSORS, Json, processor
from tests.synth.message_stack import message_intakes, messages

CONTEXT = {"@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy": True}
"""`cdk init` sets it. Without it, access logs need ACLs."""

FIXED = Environment(account="111122223333", region="eu-central-1")


def orders(scope: Construct, id: str = "Orders", **options: Any) -> IntakePipeline:
    return IntakePipeline(scope, id, **({"processor": processor()} | options))


def bucket(scope: Construct, id: str = "Theirs", **options: Any) -> s3.Bucket:
    careful: Json = {
        "versioned": True,
        "enforce_ssl": True,
        "block_public_access": s3.BlockPublicAccess.BLOCK_ALL,
    }
    access_logs = s3.Bucket(scope, f"{id}AccessLogs", **careful)
    return s3.Bucket(scope, id, **(careful | {"server_access_logs_bucket": access_logs} | options))


def key(scope: Construct) -> kms.Key:
    return kms.Key(scope, "Key", enable_key_rotation=True)


def network(scope: Construct) -> NetworkOptions:
    vpc = ec2.Vpc(scope, "Vpc", nat_gateways=0, restrict_default_security_group=False)
    vpc.add_flow_log("Flow")
    private = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    return NetworkOptions(vpc=vpc, vpc_subnets=private)


def queues(scope: Construct, **options: Any) -> IntakeQueue:
    dead = sqs.Queue(scope, "Dead", retention_period=Duration.days(14), enforce_ssl=True, **options)
    live = sqs.Queue(
        scope,
        "Live",
        visibility_timeout=Duration.minutes(20),
        enforce_ssl=True,
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=100),
        **options,
    )
    return IntakeQueue(scope, "TheirQueue", queue=live, dead_letter_queue=dead)


def table(scope: Construct, **options: Any) -> dynamodb.Table:
    rows_table = dynamodb.Table(
        scope,
        "Rows",
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        time_to_live_attribute="expires_at",
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        **options,
    )
    rows_table.add_global_secondary_index(
        index_name="needs_review",
        partition_key=dynamodb.Attribute(name="needs_review", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
    )
    return rows_table


def topic(scope: Construct) -> cloudwatch_actions.SnsAction:
    return cloudwatch_actions.SnsAction(sns.Topic(scope, "Pager", enforce_ssl=True, master_key=key(scope)))


def default(app: App) -> Stack:
    stack = Stack(app, "Default")
    orders(stack)
    return stack


def fixed_environment(app: App) -> Stack:
    stack = Stack(app, "FixedEnvironment", env=FIXED)
    orders(stack)
    return stack


def own_bucket(app: App) -> Stack:
    stack = Stack(app, "OwnBucket")
    orders(stack, bucket=bucket(stack))
    return stack


def unversioned_bucket(app: App) -> Stack:
    stack = Stack(app, "UnversionedBucket")
    orders(stack, bucket=bucket(stack, versioned=False))
    return stack


def sibling_bucket(app: App) -> Stack:
    theirs, ours = Stack(app, "SiblingBucketHost"), Stack(app, "SiblingBucket")
    orders(ours, bucket=bucket(theirs), filters=[s3.NotificationKeyFilter(prefix="in/", suffix=".csv")])
    return ours


def imported_bucket(app: App) -> Stack:
    stack = Stack(app, "ImportedBucket")
    orders(stack, bucket=s3.Bucket.from_bucket_name(stack, "Inbox", "partner-inbox"))
    return stack


def bucket_with_notifications(app: App) -> Stack:
    stack = Stack(app, "BucketWithNotifications")
    theirs = bucket(stack)
    theirs.enable_event_bridge_notification()
    orders(stack, bucket=theirs)
    return stack


def own_key(app: App) -> Stack:
    stack = Stack(app, "OwnKey")
    orders(stack, encryption_key=key(stack))
    return stack


def imported_key(app: App) -> Stack:
    stack = Stack(app, "ImportedKey")
    arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    orders(stack, encryption_key=kms.Key.from_key_arn(stack, "Key", arn))
    return stack


def own_queue(app: App) -> Stack:
    stack = Stack(app, "OwnQueue")
    orders(stack, queue=queues(stack))
    return stack


def sibling_queue(app: App) -> Stack:
    theirs, ours = Stack(app, "SiblingQueueHost"), Stack(app, "SiblingQueue")
    orders(ours, queue=queues(theirs))
    return ours


def imported_queues(stack: Stack, *names: str) -> IntakeQueue:
    live, dead = (
        sqs.Queue.from_queue_arn(stack, name, f"arn:aws:sqs:eu-central-1:111122223333:{name}") for name in names
    )
    return IntakeQueue(stack, "Queue", queue=live, dead_letter_queue=dead, visibility_timeout=Duration.minutes(20))


def imported_queue(app: App) -> Stack:
    stack = Stack(app, "ImportedQueue")
    orders(stack, queue=imported_queues(stack, "Live", "Dead"))
    return stack


def existing_delivery(app: App) -> Stack:
    stack = Stack(app, "ExistingDelivery")
    bucket = s3.Bucket.from_bucket_name(stack, "Inbox", "terraforms-inbox")
    queue = imported_queues(stack, "Billing", "BillingDead")
    orders(stack, bucket=bucket, queue=queue, delivery=Delivery.EXISTING)
    return stack


def own_table(app: App) -> Stack:
    stack = Stack(app, "OwnTable")
    orders(stack, ledger=IntakeLedger(stack, "Ledger", table=table(stack)))
    return stack


def imported_table(app: App) -> Stack:
    stack = Stack(app, "ImportedTable")
    rows = dynamodb.Table.from_table_name(stack, "Rows", "ledger-of-all")
    orders(stack, ledger=IntakeLedger(stack, "Ledger", table=rows))
    return stack


def shared_ledger(app: App) -> Stack:
    stack = Stack(app, "SharedLedger")
    ledger = IntakeLedger(stack, "Ledger")
    for name in ("Orders", "Returns"):
        orders(stack, name, ledger=ledger)
    return stack


def in_a_vpc(app: App) -> Stack:
    stack = Stack(app, "InVpc")
    orders(stack, network=network(stack))
    return stack


def own_log_group(app: App) -> Stack:
    stack = Stack(app, "OwnLogGroup")
    log_group = logs.LogGroup(stack, "Log", retention=logs.RetentionDays.ONE_YEAR)
    orders(stack, monitoring=MonitoringOptions(log_group=log_group))
    return stack


def alarm_topic(app: App) -> Stack:
    stack = Stack(app, "AlarmTopic")
    orders(stack, monitoring=MonitoringOptions(alarm_actions=[topic(stack)]))
    return stack


def filters(app: App) -> Stack:
    stack = Stack(app, "Filters")
    wanted = [
        s3.NotificationKeyFilter(prefix="in/", suffix=".csv"),
        s3.NotificationKeyFilter(prefix="in/", suffix=".json"),
    ]
    orders(stack, filters=wanted)
    return stack


def deletes(app: App) -> Stack:
    stack = Stack(app, "Deletes")
    orders(stack, deletes=True)
    return stack


def two_pipelines_on_a_bucket(app: App) -> Stack:
    stack = Stack(app, "TwoPipelines")
    theirs = bucket(stack)
    for name in ("Orders", "Returns"):
        orders(stack, name, bucket=theirs, filters=[s3.NotificationKeyFilter(prefix=f"{name.lower()}/")])
    return stack


def existing_function(app: App) -> Stack:
    stack = Stack(app, "ExistingFunction")
    function = lambda_.Function.from_function_attributes(
        stack,
        "Fn",
        function_arn="arn:aws:lambda:eu-central-1:111122223333:function:book",
        same_environment=True,
    )
    orders(stack, processor=Processor.from_function(function))
    return stack


def state_machine(app: App) -> Stack:
    """The processor of objects, of sets and of messages."""
    stack = Stack(app, "StateMachine")
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Book"))
    log = logs.LogGroup(stack, "Log", retention=logs.RetentionDays.ONE_YEAR)
    machine = sfn.StateMachine(
        stack,
        "Machine",
        definition_body=body,
        timeout=Duration.hours(2),
        tracing_enabled=True,
        logs=sfn.LogOptions(destination=log, level=sfn.LogLevel.ALL),
    )
    book = Processor.from_state_machine(machine)
    pipeline = orders(stack, processor=book)
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.manifest("loads/*/manifest.json"), processor=book)
    messages(stack, "Sqs", MessageSource.sqs(), processor=book)
    return stack


def durable_function(app: App) -> Stack:
    """The processor of objects, of sets and of messages."""
    stack = Stack(app, "DurableFunction")
    function = lambda_.Function(
        stack,
        "Approve",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): return {'commit': None}"),
        durable_config=lambda_.DurableConfig(execution_timeout=Duration.days(3)),
        current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
    )
    approve = Processor.from_durable_function(function.current_version, timeout=Duration.days(3))
    pipeline = orders(stack, processor=approve)
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.manifest("loads/*/manifest.json"), processor=approve)
    messages(stack, "Sqs", MessageSource.sqs(), processor=approve)
    return stack


def managed_instances(app: App) -> Stack:
    stack = Stack(app, "ManagedInstances")
    provider = lambda_.CapacityProvider.from_capacity_provider_name(stack, "Provider", "heavy")
    orders(stack, processor=processor(capacity_provider=provider, memory_size=4_096))
    return stack


def image(app: App) -> Stack:
    stack = Stack(app, "Image")
    code = Processor.from_image(
        PROCESSORS / "pictures", entrypoint="pictures:process", architecture=lambda_.Architecture.X86_64
    )
    orders(stack, processor=code)
    return stack


def nested_stack(app: App) -> Stack:
    stack = NestedStack(Stack(app, "NestedHost"), "Nested")
    orders(stack)
    return stack


def nested_beside_its_bucket(app: App) -> Stack:
    """The parent stack has the bucket, the nested stack has the pipeline: two stacks, one deployment."""
    host = Stack(app, "NestedBeside")
    stack = NestedStack(host, "Nested")
    orders(stack, bucket=bucket(host))
    return stack


def stages_of_a_cdk_pipeline(app: App) -> Stack:
    """A CDK pipeline with our pipeline in each of its stages."""
    delivery = Stack(app, "Delivery", env=FIXED)
    source = pipelines.CodePipelineSource.s3(s3.Bucket.from_bucket_name(delivery, "Source", "source"), "app.zip")
    synth = pipelines.ShellStep("Synth", input=source, commands=["npx cdk synth"])
    pipeline = pipelines.CodePipeline(delivery, "Pipeline", synth=synth)
    stacks = []
    for name in ("Test", "Production"):
        stage = Stage(app, name, env=FIXED)
        stacks.append(Stack(stage, "Intake"))
        orders(stacks[-1])
        pipeline.add_stage(stage)
    return stacks[-1]


def everything(app: App) -> Stack:
    """All options that can be combined."""
    theirs, ours = Stack(app, "EverythingHost", env=FIXED), Stack(app, "Everything", env=FIXED)
    ours_only = key(ours)
    orders(
        ours,
        bucket=bucket(theirs),
        filters=[s3.NotificationKeyFilter(prefix="in/", suffix=".csv")],
        deletes=True,
        queue=queues(ours, encryption_master_key=ours_only),
        ledger=IntakeLedger(
            ours,
            "Ledger",
            table=table(ours, encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED, encryption_key=ours_only),
        ),
        concurrency=ConcurrencyOptions(max_concurrency=5, batch_size=100, max_batching_window=Duration.seconds(5)),
        audit=AuditOptions(report_bucket=bucket(ours, "Reports")),
        monitoring=MonitoringOptions(
            tracing=True,
            log_group=logs.LogGroup(ours, "Log", retention=logs.RetentionDays.ONE_YEAR),
            alarm_actions=[
                cloudwatch_actions.SnsAction(sns.Topic(ours, "Pager", enforce_ssl=True, master_key=ours_only))
            ],
        ),
        network=network(ours),
    )
    return ours


def outputs(app: App) -> Stack:
    """Outputs in the pipeline's bucket, in one with a key, and in an imported one."""
    stack = Stack(app, "Outputs")
    pipeline = orders(stack, filters=[s3.NotificationKeyFilter(prefix="in/")])
    pipeline.grant_output(pipeline.bucket, "out/")
    pipeline.grant_output(bucket(stack, "Pictures", encryption_key=key(stack)), "grey/")
    pipeline.grant_output(s3.Bucket.from_bucket_name(stack, "Tables", "partner-tables"), "orders/")
    return stack


def audit_by_inventory(app: App) -> Stack:
    """An audit in parts, over the reports of the bucket's inventory, with Athena."""
    stack = Stack(app, "AuditByInventory")
    scale = AuditScale.inventory(bucket(stack, "Reports"), id="all", engine=Engine.ATHENA)
    orders(stack, audit=AuditOptions(scale=scale))
    return stack


def file_sets(app: App) -> Stack:
    """Sets of files of each form, in a VPC, with a key."""
    stack = Stack(app, "FileSets")
    pipeline = orders(stack, network=network(stack), encryption_key=key(stack))
    for name, form in {
        "Loads": SetForm.manifest("loads/*/manifest.json"),
        "Exports": SetForm.marker("exports/*/_SUCCESS"),
        "Drops": SetForm.quiet_prefix("drops/*/"),
    }.items():
        FileSets(stack, name, pipeline=pipeline, form=form, processor=processor())
    return stack


def example(app: App) -> Stack:
    return CatalogueStack(app, "Catalogue")


ROWS: tuple[Callable[[App], Stack], ...] = (
    default,
    fixed_environment,
    own_bucket,
    unversioned_bucket,
    sibling_bucket,
    imported_bucket,
    bucket_with_notifications,
    own_key,
    imported_key,
    own_queue,
    sibling_queue,
    imported_queue,
    existing_delivery,
    own_table,
    imported_table,
    shared_ledger,
    in_a_vpc,
    own_log_group,
    alarm_topic,
    filters,
    deletes,
    two_pipelines_on_a_bucket,
    existing_function,
    state_machine,
    durable_function,
    managed_instances,
    image,
    nested_stack,
    nested_beside_its_bucket,
    stages_of_a_cdk_pipeline,
    everything,
    outputs,
    audit_by_inventory,
    file_sets,
    example,
    message_intakes,
)
"""Rows of the matrix. A name tells which resource exists before the pipeline."""
