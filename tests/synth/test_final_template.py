"""What an aspect, a property injector, a mixin or an override changes after the constructs, and work cannot bear."""

import functools
import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import aws_cdk
import jsii
import pytest
from aws_cdk import (
    Annotations,
    App,
    Aspects,
    CfnResource,
    Duration,
    IAspect,
    IPropertyInjector,
    PropertyInjectors,
    RemovalPolicy,
    Stack,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Match, Template
from constructs import IConstruct

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    Engine,
    Existing,
    FileSets,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    IntakeWorkers,
    MessageSource,
    MonitoringOptions,
    OutcomeEvents,
    Processor,
    SetForm,
)
from tests.settings import quick
from tests.synth.build import (
    actions,
    all_warnings,
    new_app,
    new_stack,
    processor,
    statements,
    template_of,
    warned,
    warnings,
)
from tests.synth.message_stack import messages, record_stream

KEY = "arn:aws:kms:eu-central-1:111122223333:key/1"
ENCRYPTED = [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}}]
LAYER = "arn:aws:lambda:eu-central-1:111122223333:layer:org:1"
ROLE = "arn:aws:iam::111122223333:role/org"
FILTERS = {"Filters": [{"Pattern": "{}"}]}
ORDERS, LOADS, RECORDS, OUTCOMES = "Orders", "Loads", "Records", "Outcomes"

Change = tuple[str, str, str, Any]
"""A rule, the path of a resource, a property, and its value. None removes the property."""
WORST: tuple[Change, ...] = (
    ("final-timeout", "Orders/Consumer/Function", "Timeout", 30),
    ("final-item-failures", "Orders/Consumer/Source", "FunctionResponseTypes", None),
    ("lease-within-visibility", "Orders/Queue/Messages", "VisibilityTimeout", 30),
    ("final-retention", "Orders/Queue/Messages", "MessageRetentionPeriod", 3_600),
    ("queue-redrive-differs", "Orders/Queue/Messages", "RedrivePolicy", None),
    ("final-queue-key", "Orders/Queue/Messages", "KmsMasterKeyId", KEY),
    ("table-time-to-live", "Orders/Ledger/Table", "TimeToLiveSpecification.AttributeName", "ttl"),
    ("bucket-must-be-versioned", "Orders/Bucket", "VersioningConfiguration.Status", "Suspended"),
    ("final-log-class", "Orders/Consumer/Logs", "LogGroupClass", "INFREQUENT_ACCESS"),
    ("final-variables", "Orders/Consumer/Function", "Environment.Variables.INTAKE_TABLE_NAME", "other"),
)
REFUSED: tuple[Change, ...] = (
    *WORST,
    ("final-timeout", "Orders/Audit/Function", "Timeout", 30),
    ("final-timeout", "Orders/Audit/Join/Function", "Timeout", 30),
    ("final-timeout", "Loads/Consumer/Function", "Timeout", 900),
    ("final-timeout", "Outcomes/Function", "Timeout", 3),
    ("final-handler", "Orders/Consumer/Function", "Handler", "org.wrapper"),
    ("final-runtime", "Orders/Consumer/Function", "Runtime", "python3.9"),
    ("final-architecture", "Orders/Consumer/Function", "Architectures", ["x86_64"]),
    ("final-layers", "Orders/Consumer/Function", "Layers", [LAYER]),
    ("final-layers", "Orders/Audit/Join/Function", "Layers", [LAYER]),
    ("final-role", "Orders/Audit/Function", "Role", ROLE),
    ("final-log-group", "Orders/Consumer/Function", "LoggingConfig.LogGroup", "/org/all"),
    ("final-network", "Orders/Consumer/Function", "VpcConfig", {"SubnetIds": ["subnet-1"]}),
    ("final-variables-key", "Orders/Consumer/Function", "KmsKeyArn", KEY),
    ("reserved-concurrency-minimum", "Orders/Consumer/Function", "ReservedConcurrentExecutions", 0),
    ("reserved-concurrency-minimum", "Orders/Audit/Function", "ReservedConcurrentExecutions", 0),
    ("final-item-failures", "Records/Consumer/Stream", "FunctionResponseTypes", None),
    ("final-item-failures", "Outcomes/Source", "FunctionResponseTypes", None),
    ("final-retries", "Records/Consumer/Stream", "MaximumRetryAttempts", 3),
    ("lease-within-visibility", "Records/Queue/Messages", "VisibilityTimeout", 30),
    ("batching-window-needed", "Orders/Consumer/Source", "BatchSize", 100),
    ("queue-max-receives", "Loads/Queue/Messages", "RedrivePolicy.maxReceiveCount", 3),
    ("final-redrive-allowed", "Orders/Queue/DeadLetters", "RedriveAllowPolicy.redrivePermission", "denyAll"),
    ("queue-message-size", "Orders/Queue/Messages", "MaximumMessageSize", 1_024),
    ("dead-letter-queue-message-size", "Records/Queue/DeadLetters", "MaximumMessageSize", 1_024),
    ("dead-letter-retention-minimum", "Loads/Queue/DeadLetters", "MessageRetentionPeriod", 86_400),
    ("final-queue-key", "Loads/Queue/DeadLetters", "KmsMasterKeyId", "alias/aws/sqs"),
    ("final-fifo", "Records/Queue/Messages", "FifoQueue", True),
    ("table-keys", "Orders/Ledger/Table", "KeySchema", [{"AttributeName": "id", "KeyType": "HASH"}]),
    ("table-key-types", "Orders/Ledger/Table", "AttributeDefinitions",
     [{"AttributeName": "id", "AttributeType": "S"}]),
    ("table-index", "Orders/Ledger/Table", "GlobalSecondaryIndexes", None),
    ("final-table-key", "Orders/Ledger/Table", "SSESpecification", {"SSEEnabled": True, "KMSMasterKeyId": KEY}),
    ("final-stream", "Orders/Ledger/Table", "StreamSpecification.StreamViewType", "KEYS_ONLY"),
    ("final-bucket-key", "Orders/Bucket", "BucketEncryption.ServerSideEncryptionConfiguration", ENCRYPTED),
    ("versions-expire-early", "Orders/Bucket", "LifecycleConfiguration.Rules",
     [{"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}]),
    ("objects-expire-early", "Orders/Bucket", "LifecycleConfiguration.Rules",
     [{"Status": "Enabled", "ExpirationInDays": 1}]),
    ("objects-expire-early", "Orders/Bucket", "LifecycleConfiguration.Rules",
     [{"Status": "Enabled", "Transitions": [{"StorageClass": "GLACIER", "TransitionInDays": 0}]}]),
    ("final-schedule", "Orders/Audit/Schedule", "ScheduleExpression", "rate(1 day)"),
    ("final-container", "Workers/Task", "ContainerDefinitions.0.StopTimeout", 30),
    ("final-container", "Workers/Task", "ContainerDefinitions.0.Environment", [{"Name": "ORG", "Value": "1"}]),
    ("final-task-role", "Workers/Task", "TaskRoleArn", ROLE),
)  # fmt: skip
WARNED: tuple[Change, ...] = (
    ("final-memory", "Orders/Consumer/Function", "MemorySize", 128),
    ("final-storage", "Orders/Audit/Function", "EphemeralStorage.Size", 512),
    ("final-log-level", "Orders/Consumer/Function", "LoggingConfig.ApplicationLogLevel", "ERROR"),
    ("final-mapping-enabled", "Orders/Consumer/Source", "Enabled", False),
    ("final-mapping-enabled", "Loads/Consumer/Source", "Enabled", True),
    ("final-filter", "Orders/Consumer/Source", "FilterCriteria", FILTERS),
    ("final-visibility", "Orders/Queue/Messages", "VisibilityTimeout", 1_000),
    ("final-delay", "Orders/Queue/Messages", "DelaySeconds", 900),
    ("final-recovery", "Orders/Ledger/Table", "PointInTimeRecoverySpecification", None),
    ("final-deletion-protection", "Orders/Ledger/Table", "DeletionProtectionEnabled", False),
    ("final-billing", "Orders/Ledger/Table", "BillingMode", "PROVISIONED"),
    ("final-write-limit", "Orders/Ledger/Table", "OnDemandThroughput.MaxWriteRequestUnits", 1),
    ("final-ownership", "Orders/Bucket", "OwnershipControls.Rules", [{"ObjectOwnership": "ObjectWriter"}]),
    ("final-schedule-state", "Loads/AuditSchedule", "State", "DISABLED"),
    ("final-read-only", "Workers/Task", "ContainerDefinitions.0.ReadonlyRootFilesystem", True),
)
HARMLESS: tuple[Change, ...] = (
    ("", "Orders/Consumer/Function", "ReservedConcurrentExecutions", 5),
    ("", "Orders/Consumer/Function", "Environment.Variables.ORG", "1"),
    ("", "Orders/Consumer/Function", "TracingConfig.Mode", "Active"),
    ("", "Orders/Consumer/Function", "DeadLetterConfig.TargetArn", "arn:aws:sqs:eu-west-1:111122223333:org"),
    ("", "Orders/Consumer/Function", "MemorySize", 3_008),
    ("", "Orders/Consumer/Source", "BatchSize", 1),
    ("", "Orders/Consumer/Source", "ScalingConfig.MaximumConcurrency", 2),
    ("", "Orders/Consumer/Source", "MetricsConfig.Metrics", ["EventCount"]),
    ("", "Orders/Consumer/Logs", "RetentionInDays", 1),
    ("", "Orders/Bucket", "NotificationConfiguration.EventBridgeConfiguration.EventBridgeEnabled", True),
    ("", "Orders/Queue/Messages", "VisibilityTimeout", "280"),
)

_DENY_ALL = sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.DENY_ALL)
_ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
INJECTED: tuple[tuple[str, Any, str, dict[str, Any]], ...] = (
    ("final-timeout", lambda_.Function, "Orders/Consumer/Function", {"timeout": Duration.seconds(30)}),
    ("final-variables", lambda_.Function, "Orders/Consumer/Function", {"environment": {"ORG": "1"}}),
    ("final-handler", lambda_.Function, "Orders/Audit/Function", {"handler": "org.wrapper"}),
    ("reserved-concurrency-minimum", lambda_.Function, "Orders/Audit/Function", {"reservedConcurrentExecutions": 0}),
    ("final-item-failures", lambda_.EventSourceMapping, "Orders/Consumer/Source", {"reportBatchItemFailures": False}),
    ("batching-window-needed", lambda_.EventSourceMapping, "Orders/Consumer/Source", {"batchSize": 100}),
    ("lease-within-visibility", sqs.Queue, "Orders/Queue/Messages", {"visibilityTimeout": Duration.seconds(30)}),
    ("final-retention", sqs.Queue, "Orders/Queue/Messages", {"retentionPeriod": Duration.hours(1)}),
    ("queue-message-size", sqs.Queue, "Orders/Queue/Messages", {"maxMessageSizeBytes": 1_024}),
    ("final-redrive-allowed", sqs.Queue, "Orders/Queue/DeadLetters", {"redriveAllowPolicy": _DENY_ALL}),
    ("table-time-to-live", dynamodb.Table, "Orders/Ledger/Table", {"timeToLiveAttribute": "ttl"}),
    ("table-keys", dynamodb.Table, "Orders/Ledger/Table", {"partitionKey": _ID}),
    ("bucket-must-be-versioned", s3.Bucket, "Orders/Bucket", {"versioned": False}),
    ("objects-expire-early", s3.Bucket, "Orders/Bucket",
     {"lifecycleRules": [s3.LifecycleRule(expiration=Duration.days(1))]}),
    ("final-log-class", logs.LogGroup, "Orders/Consumer/Logs",
     {"logGroupClass": logs.LogGroupClass.INFREQUENT_ACCESS}),
)  # fmt: skip
"""A rule, the construct, its path, and the properties that an injector sets."""


def world() -> Stack:
    """A construct of each kind, with an audit in parts, workers and events of outcomes."""
    stack = new_stack()
    scale = AuditOptions(scale=AuditScale.shards(engine=Engine.ATHENA))
    orders = IntakePipeline(stack, "Orders", processor=processor(), audit=scale)
    form = SetForm.manifest("in/{set}.json")
    loads = FileSets(stack, "Loads", pipeline=orders, form=form, processor=processor())
    records = messages(stack, "Records", MessageSource.kinesis(record_stream(stack, "Stream")))
    OutcomeEvents(stack, "Outcomes", intakes=[orders])
    image = ecs.ContainerImage.from_registry("workers")
    IntakeWorkers(stack, "Workers", intake=loads, cluster=ecs.Cluster(stack, "Cluster"), image=image)
    assert records.name
    return stack


@jsii.implements(IAspect)
class _Aspect:
    def __init__(self, change: Callable[[CfnResource], None]) -> None:
        self._change = change

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, CfnResource):
            self._change(node)


def override(changes: Sequence[Change]) -> Callable[[CfnResource], None]:
    """Set the properties as `add_property_override` does."""

    def change(resource: CfnResource) -> None:
        place = resource.node.path.removesuffix("/Resource")
        for _, path, name, value in changes:
            if place == f"Stack/{path}":
                if value is None:
                    resource.add_property_deletion_override(name)
                else:
                    resource.add_property_override(name, value)

    return change


def assign(changes: Sequence[Change]) -> Callable[[CfnResource], None]:
    """Set the properties of the resource, or override a part of one."""

    def change(resource: CfnResource) -> None:
        place = resource.node.path.removesuffix("/Resource")
        for one in changes:
            _, path, name, value = one
            if place != f"Stack/{path}":
                continue
            if "." in name or isinstance(value, dict | list) or name == "RedriveAllowPolicy":
                override([one])(resource)
            else:
                setattr(resource, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(), value)

    return change


def by_aspect(stack: Stack, changes: Sequence[Change]) -> None:
    Aspects.of(stack).add(_Aspect(assign(changes)), priority=2_000)


def by_override_in_aspect(stack: Stack, changes: Sequence[Change]) -> None:
    Aspects.of(stack).add(_Aspect(override(changes)))


def by_escape_hatch(stack: Stack, changes: Sequence[Change]) -> None:
    for node in stack.node.find_all():
        if isinstance(node, CfnResource):
            override(changes)(node)


def by_mixin(stack: Stack, changes: Sequence[Change]) -> None:
    if not hasattr(aws_cdk, "Mixins"):
        pytest.skip("the oldest CDK has no mixins")

    class Mixin(aws_cdk.Mixin):
        def supports(self, construct: IConstruct) -> bool:
            return isinstance(construct, CfnResource)

        def apply_to(self, construct: IConstruct) -> None:
            assert isinstance(construct, CfnResource)
            assign(changes)(construct)

    aws_cdk.Mixins.of(stack).apply(Mixin())


WAYS = (by_override_in_aspect, by_aspect, by_escape_hatch, by_mixin)


def lots(changes: Sequence[Change]) -> list[list[Change]]:
    """The changes in few lots, each with one change of a property of a resource: a synthesis takes a second."""
    made: list[list[Change]] = []
    for one in changes:
        place = (one[1], one[2].partition(".")[0])
        free = (lot for lot in made if all((other[1], other[2].partition(".")[0]) != place for other in lot))
        lot = next(free, None)
        made.append([one]) if lot is None else lot.append(one)
    return made


def refusal(stack: Stack) -> str:
    with pytest.raises(RuntimeError) as caught:
        template_of(stack)
    return str(caught.value)


def lines_about(text: str, rule: str, path: str) -> list[str]:
    lines = [line for line in text.split("[Stack/") if f"[intake-ledger:{rule}]" in line]
    return [line for line in lines if f"Stack/{path}" in line]


@pytest.mark.failure_mode("F690")
def test_the_worst_changes_are_refused() -> None:
    stack = world()
    by_override_in_aspect(stack, WORST)
    text = refusal(stack)
    assert not [one for one in WORST if not lines_about(text, one[0], one[1])]
    assert "Orders/Consumer/Function has Timeout 30 in the template, and 130 is planned: the lease" in text
    assert "VisibilityTimeout of Stack/Orders/Queue/Messages is 30 in the template" in text
    assert "Environment.Variables.INTAKE_TABLE_NAME other in the template" in text


@pytest.mark.thorough
@pytest.mark.failure_mode("F690")
@pytest.mark.parametrize("way", WAYS)
def test_each_change_is_refused_in_each_way(way: Callable[[Stack, Sequence[Change]], None]) -> None:
    for lot in lots(REFUSED):
        stack = world()
        way(stack, lot)
        text = refusal(stack)
        assert not [one for one in lot if not lines_about(text, one[0], one[1])], text


@pytest.mark.parametrize("way", quick(WAYS, 1))
def test_it_warns(way: Callable[[Stack, Sequence[Change]], None]) -> None:
    stack = world()
    way(stack, WARNED)
    template_of(stack)
    found = warnings(stack)
    assert not [one for one in WARNED if not any(f"Stack/{one[1]} " in text and one[0] in text for text in found)]


def test_what_may_change_is_not_mentioned() -> None:
    stack, changed = world(), world()
    by_override_in_aspect(changed, HARMLESS)
    template_of(stack), template_of(changed)
    assert warnings(stack) == warnings(changed)


def test_a_layer_may_wrap_the_handler() -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    path = "Orders/Consumer/Function"
    wrapped = "intake_ledger.consumer.handler"
    names = [("", path, "Handler", "vendor.handler"), ("", path, "Environment.Variables.VENDOR_HANDLER", wrapped)]
    by_override_in_aspect(stack, names)
    template_of(stack)
    assert warned(stack, "final-handler-wrapped")


def test_a_second_synthesis_reads_again() -> None:
    app = App(builtin_cloud_formation_validation=False)
    stack = Stack(app, "Stack")
    IntakePipeline(stack, "Orders", processor=processor())
    app.synth()
    by_escape_hatch(stack, [("", "Orders/Queue/Messages", "VisibilityTimeout", 30)])
    with pytest.raises(RuntimeError, match="lease-within-visibility"):
        app.synth(force=True)


@jsii.implements(IPropertyInjector)
class _Injector:
    def __init__(self, kind: str, given: dict[str, Any], *, defaults: bool) -> None:
        self._kind, self._given, self._defaults = kind, given, defaults

    @property
    def construct_unique_id(self) -> str:
        return self._kind

    def inject(self, original_props: Any, *, scope: Any, id: str) -> Any:
        return self._given | original_props if self._defaults else original_props | self._given


@pytest.mark.failure_mode("F691")
@pytest.mark.parametrize("defaults", [True, False])
def test_a_key_of_a_property_injector_is_granted(defaults: bool) -> None:
    stack = new_stack()
    key = kms.Key(stack, "Key")
    injectors = (
        (sqs.Queue.PROPERTY_INJECTION_ID, {"encryptionMasterKey": key}),
        (dynamodb.Table.PROPERTY_INJECTION_ID, {"encryptionKey": key}),
        (s3.Bucket.PROPERTY_INJECTION_ID, {"encryptionKey": key}),
        (lambda_.Function.PROPERTY_INJECTION_ID, {"environmentEncryption": key}),
    )
    PropertyInjectors.of(stack).add(*[_Injector(kind, given, defaults=defaults) for kind, given in injectors])
    IntakePipeline(stack, "Orders", processor=processor())
    template = template_of(stack)
    Template.from_json(template).has_resource_properties(
        "AWS::KMS::Key",
        {
            "KeyPolicy": {
                "Statement": Match.array_with([Match.object_like({"Principal": {"Service": "s3.amazonaws.com"}})])
            }
        },
    )
    for role in ("OrdersConsumerRole", "OrdersAuditRole"):
        allowed = {action for one in statements(template, role) for action in actions(one)}
        assert {"kms:Decrypt", "kms:GenerateDataKey", "kms:ReEncryptTo"} <= allowed


@pytest.mark.failure_mode("F691")
def test_the_example_of_the_page_gives_the_organisations_key() -> None:
    """The page's code runs, and the roles and services get the use of the key."""
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    section = text.partition("## Blueprints, aspects, stages and permissions boundaries")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    stack = new_stack()
    names: dict[str, Any] = {"IPropertyInjector": IPropertyInjector, "PropertyInjectors": PropertyInjectors}
    exec(code, names | {"jsii": jsii, "sqs": sqs, "app": stack.node.root, "key": kms.Key(stack, "Key")})
    IntakePipeline(stack, "Orders", processor=processor())
    template = template_of(stack)
    Template.from_json(template).all_resources_properties(
        "AWS::SQS::Queue", {"KmsMasterKeyId": {"Fn::GetAtt": [Match.string_like_regexp("Key"), "Arn"]}}
    )
    allowed = {action for one in statements(template, "OrdersConsumerRole") for action in actions(one)}
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= allowed


@pytest.mark.failure_mode("F690")
def test_each_change_of_a_property_injector_is_refused() -> None:
    """Properties of the higher level, where it has them. They replace those of the constructs."""
    app = new_app()
    kinds = {one[1] for one in INJECTED}
    PropertyInjectors.of(app).add(*[_Places(kind.PROPERTY_INJECTION_ID, kind) for kind in kinds])
    stack = new_stack("Stack", app)
    IntakePipeline(stack, "Orders", processor=processor())
    text = refusal(stack)
    assert not [(rule, path) for rule, _, path, _ in INJECTED if not lines_about(text, rule, path)], text


@jsii.implements(IPropertyInjector)
class _Places:
    """Injects the properties of `INJECTED` at their places."""

    def __init__(self, unique_id: str, kind: type) -> None:
        self._unique_id, self._kind = unique_id, kind

    @property
    def construct_unique_id(self) -> str:
        return self._unique_id

    def inject(self, original_props: Any, *, scope: Any, id: str) -> Any:
        place = f"{scope.node.path}/{id}"
        given = [props for _, kind, path, props in INJECTED if kind is self._kind and place == f"Stack/{path}"]
        return functools.reduce(lambda all_, one: all_ | one, given, original_props)


@pytest.mark.failure_mode("F691")
def test_own_queues_with_different_keys_are_refused() -> None:
    stack = new_stack()

    @jsii.implements(IPropertyInjector)
    class Keys(_Injector):
        def inject(self, original_props: Any, *, scope: Any, id: str) -> Any:
            return original_props | {"encryptionMasterKey": kms.Key(scope, f"KeyOf{id}")}

    PropertyInjectors.of(stack).add(Keys(sqs.Queue.PROPERTY_INJECTION_ID, {}, defaults=False))
    IntakePipeline(stack, "Orders", processor=processor())
    assert lines_about(refusal(stack), "final-queue-key", "Orders/Queue/DeadLetters")


@pytest.mark.failure_mode("F692")
def test_the_key_of_a_given_dead_letter_queue_is_granted() -> None:
    stack = new_stack()
    keys = [kms.Key(stack, name) for name in ("Theirs", "DeadKey")]
    dead = sqs.Queue(stack, "Dead", encryption_master_key=keys[1], retention_period=Duration.days(14))
    given = sqs.DeadLetterQueue(queue=dead, max_receive_count=1_000)
    visibility = Duration.seconds(300)
    queue = sqs.Queue(
        stack, "Given", encryption_master_key=keys[0], visibility_timeout=visibility, dead_letter_queue=given
    )
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), queue=IntakeQueue(stack, "Queue", queue=queue))
    operator = aws_cdk.aws_iam.Role(stack, "Operator", assumed_by=aws_cdk.aws_iam.AccountRootPrincipal())
    pipeline.grant_redrive(operator)
    template = template_of(stack)
    for role in ("OrdersConsumerRole", "Operator"):
        granted = [str(one["Resource"]) for one in statements(template, role) if "kms:GenerateDataKey" in actions(one)]
        assert any("DeadKey" in one for one in granted)
        assert any("Theirs" in one for one in granted)
    assert not any("DeadKey" in str(one["Resource"]) for one in statements(template, "OrdersAuditRole"))


class TestWarnings:
    """What loses nothing today, and can be acknowledged."""

    def test_the_defaults_of_an_app_need_an_alarm_action_only(self) -> None:
        stack = new_stack()
        IntakePipeline(stack, "Orders", processor=processor())
        template_of(stack)
        [text] = all_warnings(stack)
        assert "no alarm has an action: nobody is told" in text

    @pytest.mark.parametrize("way", ["option", "later", "acknowledged", "none"])
    def test_alarms_without_an_action(self, way: str) -> None:
        stack = new_stack()
        topic = aws_cdk.aws_sns.Topic(stack, "Topic")
        options = MonitoringOptions(
            alarm_actions=[topic] if way == "option" else [], alarms=[] if way == "none" else None
        )
        pipeline = IntakePipeline(stack, "Orders", processor=processor(), monitoring=options)
        if way == "later":
            pipeline.alarms["DeadLetters"].add_alarm_action(aws_cdk.aws_cloudwatch_actions.SnsAction(topic))
        if way == "acknowledged":
            Annotations.of(pipeline).acknowledge_warning("cdk-intake-ledger:alarmsWithoutAction")
        template_of(stack)
        assert not warned(stack, "alarms-without-action")

    def test_policies_of_the_app_that_delete_what_a_pipeline_retains(self) -> None:
        stack = new_stack()
        pipeline = IntakePipeline(stack, "Orders", processor=processor())
        aws_cdk.RemovalPolicies.of(stack).destroy()
        template_of(stack)
        found = warned(stack, "final-removal")
        for path in ("Bucket", "Ledger/Table", "Queue/Messages", "Queue/DeadLetters"):
            assert any(f"{pipeline.node.path}/{path} has DeletionPolicy Delete" in text for text in found)

    @pytest.mark.parametrize("removal", [RemovalPolicy.DESTROY, RemovalPolicy.RETAIN])
    def test_a_key_that_is_deleted_before_its_data(self, removal: RemovalPolicy) -> None:
        stack = new_stack()
        key = kms.Key(stack, "Key", removal_policy=RemovalPolicy.DESTROY)
        IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key, removal_policy=removal)
        template_of(stack)
        found = warned(stack, "key-deleted-before-data")
        assert len(found) == (4 if removal is RemovalPolicy.RETAIN else 0)
        assert not found or "the key Stack/Key is deleted with its stack, and Stack/Orders/" in found[0]

    @pytest.mark.parametrize(
        ("of_bucket", "of_ledger"),
        [*product((RemovalPolicy.DESTROY, RemovalPolicy.RETAIN), repeat=2)],
    )
    def test_a_ledger_and_a_bucket_that_are_not_deleted_together(
        self, of_bucket: RemovalPolicy, of_ledger: RemovalPolicy
    ) -> None:
        stack = new_stack()
        bucket = s3.Bucket(stack, "Given", versioned=True, removal_policy=of_bucket)
        ledger = IntakeLedger(stack, "Ledger", removal_policy=of_ledger)
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ledger=ledger)
        template_of(stack)
        assert len(warned(stack, "ledger-and-bucket-differ")) == (of_bucket is not of_ledger)

    @pytest.mark.parametrize(("rate", "warm", "warns"), [(2_000, None, 0), (2_001, None, 1), (2_001, 5_000, 0)])
    def test_a_backfill_that_writes_more_than_a_new_table_takes(self, rate: int, warm: int | None, warns: int) -> None:
        stack = new_stack()
        audit = AuditOptions(existing=Existing.BACKFILL, backfill_rate=rate)
        pipeline = IntakePipeline(stack, "Orders", processor=processor(), audit=audit)
        if warm:
            by_escape_hatch(stack, [("", "Orders/Ledger/Table", "WarmThroughput.WriteUnitsPerSecond", warm)])
        template_of(stack)
        found = warned(stack, "final-backfill")
        assert len(found) == warns
        assert not warns or f"{pipeline.node.path}/Ledger/Table has WarmThroughput.WriteUnitsPerSecond 4000" in found[0]

    @pytest.mark.parametrize("way", ["none", "grant", "all", "inline", "managed", "imported bucket", "imported"])
    def test_a_function_that_may_not_read_the_objects(self, way: str) -> None:
        stack = new_stack()
        arn = "arn:aws:lambda:eu-central-1:111122223333:function:theirs"
        read = iam.PolicyStatement(actions=["s3:Get*"], resources=["*"])
        policies = {"inline": iam.PolicyDocument(statements=[read])} if way == "inline" else {}
        role = iam.Role(
            stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), inline_policies=policies
        )
        code, runtime = lambda_.Code.from_inline("pass"), lambda_.Runtime.PYTHON_3_13
        function: lambda_.IFunction = (
            lambda_.Function.from_function_arn(stack, "Theirs", arn)
            if way == "imported"
            else lambda_.Function(stack, "Ours", code=code, handler="index.handler", runtime=runtime, role=role)
        )
        bucket: s3.IBucket = (
            s3.Bucket.from_bucket_name(stack, "Given", "given")
            if way == "imported bucket"
            else s3.Bucket(stack, "Given", versioned=True)
        )
        if way == "grant":
            bucket.grant_read(function)
        if way == "all":
            role.add_to_policy(read)
        if way == "managed":
            role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name("AmazonS3ReadOnlyAccess"))
        IntakePipeline(stack, "Orders", processor=Processor.from_function(function), bucket=bucket)
        template_of(stack)
        found = warned(stack, "function-may-not-read")
        assert [("Stack/Ours" in text, "Stack/Given" in text) for text in found] == [(True, True)] * (way == "none")
