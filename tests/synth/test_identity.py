"""F97: with a fixed name, a construct that is renamed or moved keeps its name and its resources."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    Delivery,
    Existing,
    IntakeConfigurationError,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    NetworkOptions,
)
from cdk_intake_ledger.testing import logical_ids
from tests.synth.build import (
    Json,
    new_app,
    new_stack,
    processor,
    refused,
    resources,
    template_of,
    template_with,
    variables,
    warned,
)

ROOT = Path(__file__).parents[2]
STATEFUL = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue")
WITH_PATHS = {"aws:cdk:enable-path-metadata": True, "aws:cdk:enable-asset-metadata": True}
"""The CDK CLI sets these, and `cdk diff` compares the metadata."""


def everything(stack: Stack, before: bool) -> None:
    """Pipelines with all resources, `before` and after their constructs were moved and renamed."""
    key = kms.Key(stack, "Key")
    theirs = s3.Bucket(stack, "Theirs", versioned=True)
    vpc = ec2.Vpc(stack, "Network", max_azs=1, nat_gateways=0)
    account = iam.Role(stack, "Operator", assumed_by=iam.AccountPrincipal(stack.account))

    def place(name: str) -> tuple[Construct, str]:
        if before:
            return stack, name
        return Construct(Construct(stack, f"Domain{name}"), "Intake"), f"Renamed{name}"

    own = IntakePipeline(*place("Own"), name="own", processor=processor(), encryption_key=key)
    own.function.grant_invoke(iam.ServicePrincipal("scheduler.amazonaws.com"))
    own.grant_redrive(account)
    own.grant_read_ledger(account)
    CfnOutput(own, "Table", value=own.table.table_name)
    private = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    scope, id_ = place("Big")
    IntakePipeline(
        scope,
        id_,
        name="big",
        processor=processor(),
        network=NetworkOptions(vpc=vpc, vpc_subnets=private),
        delivery=Delivery.EVENTBRIDGE,
        audit=AuditOptions(scale=AuditScale.shards()),
    )
    scope, id_ = place("Guest")
    queue = IntakeQueue(scope, f"{id_}Queue", retention=Duration.days(3))
    IntakePipeline(
        scope,
        id_,
        name="guest",
        processor=processor(),
        bucket=theirs,
        filters=[s3.NotificationKeyFilter(prefix="in/")],
        queue=queue,
        ledger=IntakeLedger(scope, f"{id_}Ledger", ledger_name="guests"),
        audit=AuditOptions(existing=Existing.BACKFILL),
    )
    scope, id_ = place("Imported")
    inbox = s3.Bucket.from_bucket_name(stack, "Inbox", "inbox")
    IntakePipeline(scope, id_, name="imported", processor=processor(), bucket=inbox)


def assembly(before: bool, directory: Path) -> None:
    app = new_app(context=WITH_PATHS, outdir=str(directory))
    stack = new_stack(app=app)
    everything(stack, before)
    app.synth()


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Mapping[bool, Path]:
    """The cloud assembly before (True) and after (False) the constructs were moved."""
    made = {before: tmp_path_factory.mktemp("moved") for before in (True, False)}
    for before, directory in made.items():
        assembly(before, directory)
    return made


def template(directory: Path) -> Json:
    content: Json = json.loads((directory / "Stack.template.json").read_text())
    return content


@pytest.mark.failure_mode("F97")
def test_a_construct_with_a_fixed_name_may_move(moved: Mapping[bool, Path]) -> None:
    """No resource differs: bucket, table, queues, functions, alarms and roles."""
    before, after = (template(moved[which]) for which in (True, False))
    assert sum(one["Type"] in STATEFUL for one in before["Resources"].values()) == 16
    assert after["Resources"] == before["Resources"]
    assert after["Outputs"] == before["Outputs"]


@pytest.mark.failure_mode("F97")
def test_cdk_diff_is_empty(moved: Mapping[bool, Path]) -> None:
    """`cdk diff` compares the metadata too."""
    cli = ROOT / "node_modules" / ".bin" / "cdk"
    if not cli.exists():
        pytest.skip("the CDK CLI is not installed: npm ci")
    ran = subprocess.run(
        [cli, "diff", "--fail", "--app", moved[False], "--template", moved[True] / "Stack.template.json", "Stack"],
        cwd=moved[False],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "There were no differences" in ran.stdout + ran.stderr


@pytest.mark.failure_mode("F97")
def test_without_a_name_a_move_makes_new_resources() -> None:
    """The old resources are retained, with queues and policies, so that the pipeline can go on with them."""
    found = []
    for id_ in ("Orders", "Invoices"):
        stack = new_stack()
        IntakePipeline(stack, id_, processor=processor())
        found.append({one for ids in logical_ids(stack, *STATEFUL).values() for one in ids})
    assert not found[0] & found[1]


@pytest.mark.parametrize(("asked", "policy"), [({}, "Retain"), ({"removal_policy": RemovalPolicy.DESTROY}, "Delete")])
def test_queues_follow_the_removal_policy(asked: Json, policy: str) -> None:
    """F97: a replaced queue may hold messages."""
    template = template_with(**asked)
    for type_ in ("AWS::SQS::Queue", "AWS::SQS::QueuePolicy"):
        for one in resources(template, type_).values():
            assert (one["DeletionPolicy"], one["UpdateReplacePolicy"]) == (policy, policy)


def test_a_queue_of_its_own_says_for_itself() -> None:
    """It keeps its ID, as an existing ledger does."""
    stack = new_stack()
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        removal_policy=RemovalPolicy.RETAIN,
        queue=IntakeQueue(stack, "Queue", removal_policy=RemovalPolicy.DESTROY),
    )
    assert {one["DeletionPolicy"] for one in resources(template_of(stack), "AWS::SQS::Queue").values()} == {"Delete"}


def test_the_name_is_what_ledger_metrics_and_logs_say() -> None:
    """Both functions get the fixed name, and no path."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", name="billing_v1", processor=processor())
    assert pipeline.name == "billing_v1"
    for place in ("billingv1Consumer", "billingv1Audit"):
        told = variables(template_of(stack), place)
        assert told["INTAKE_PIPELINE_NAME"] == told["POWERTOOLS_SERVICE_NAME"] == "billing_v1"


def test_an_id_that_the_team_has_fixed_stays() -> None:
    """It is set later, and synthesis does not replace it."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", name="billing", processor=processor())
    resource = pipeline.bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)
    resource.override_logical_id("FromBefore")
    assert logical_ids(stack, "AWS::S3::Bucket") == {"AWS::S3::Bucket": ["FromBefore"]}


def test_a_fixed_id_is_no_other_constructs() -> None:
    """A construct with the same readable path has another ID."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    IntakePipeline(stack, "Other", name="Orders", processor=processor())
    assert len(logical_ids(stack, "AWS::S3::Bucket")["AWS::S3::Bucket"]) == 2


def test_what_holds_data_says_whose_it_is() -> None:
    """F97: `intake-ledger status` finds retained resources by their tag."""
    tags = [
        (one["Type"].split("::")[-1], tag["Key"], tag["Value"])
        for type_ in STATEFUL
        for one in resources(template_with(name="billing"), type_).values()
        for tag in one["Properties"]["Tags"]
    ]
    assert sorted(tags) == [
        (type_, "intake-ledger:pipeline", "billing") for type_ in ("Bucket", "Queue", "Queue", "Table")
    ]


@pytest.mark.failure_mode("F192")
def test_the_functions_say_that_the_pipeline_is_deployed() -> None:
    """`intake-ledger status` tells a deployed pipeline from retained resources by the tag of its functions."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    functions = resources(template_of(stack), "AWS::Lambda::Function", "Orders").values()
    wanted = {"Key": "intake-ledger:pipeline", "Value": pipeline.name}
    assert [wanted in one["Properties"].get("Tags", []) for one in functions] == [True, True]


def test_what_the_team_brings_is_not_tagged() -> None:
    """They belong to other owners, and several pipelines share a table."""
    stack = new_stack()
    bucket = s3.Bucket(stack, "Bucket", versioned=True)
    ledger = IntakeLedger(stack, "Ledger")
    messages, dead = (sqs.Queue(stack, name, visibility_timeout=Duration.hours(1)) for name in ("Messages", "Dead"))
    queue = IntakeQueue(stack, "Queue", queue=messages, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ledger=ledger, queue=queue)
    for type_ in STATEFUL:
        assert not any("Tags" in one["Properties"] for one in resources(template_of(stack), type_).values())


@pytest.mark.failure_mode("F97")
def test_audits_on_one_ledger_know_of_each_other() -> None:
    """The audit does not take the name of another pipeline on the same bucket for a former name."""
    stack = new_stack()
    ledger, bucket = IntakeLedger(stack, "Ledger"), s3.Bucket(stack, "Bucket", versioned=True)
    for name, its_bucket in {"A": bucket, "B": bucket, "C": bucket, "D": None}.items():
        prefix = [s3.NotificationKeyFilter(prefix=f"{name}/")]
        IntakePipeline(
            stack,
            name,
            name=name,
            processor=processor(),
            ledger=ledger,
            filters=prefix,
            bucket=its_bucket,
        )
    template = template_of(stack)
    told = {name: variables(template, f"{name}Audit").get("INTAKE_OTHER_PIPELINES") for name in "ABCD"}
    assert told == {"A": "B,C", "B": "A,C", "C": "A,B", "D": None}


class TestRefusals:
    """Names that are refused."""

    @pytest.mark.parametrize("name", ["", "4ever", "a@b", "a b", "a/b", "ä", "a" * 65, "a#1", "-a"])
    def test_characters_and_length(self, name: str) -> None:
        """It is a part of row keys, index keys, dimensions of metrics, S3 keys and logical IDs."""
        with pytest.raises(IntakeConfigurationError) as caught:
            IntakePipeline(new_stack(), "Orders", name=name, processor=processor())
        assert repr(name) in str(caught.value)
        assert "1 to 64 letters, digits, - and _" in str(caught.value)
        stack = new_stack()
        ledger = IntakeLedger(stack, "Ledger", ledger_name=name)
        with refused("name-format", "ledger_name"):
            IntakePipeline(stack, "Orders", ledger=ledger, processor=processor())

    def test_a_token_as_a_name_is_refused(self) -> None:
        """Logical ids are needed at synthesis."""
        stack = new_stack()
        with refused("name-is-token", "name is a token"):
            IntakePipeline(stack, "Orders", name=stack.stack_name + stack.region, processor=processor())

    def test_twice_in_one_stack(self) -> None:
        """Both would have the same logical ids."""
        stack = new_stack()
        IntakePipeline(stack, "Orders", name="billing", processor=processor())
        with refused("name-in-use", "name is 'billing', which Stack/Orders already has in this stack"):
            IntakePipeline(stack, "Invoices", name="billing", processor=processor())

    def test_two_ledgers_of_one_name(self) -> None:
        """Both tables would have the same logical id."""
        stack = new_stack()
        IntakeLedger(stack, "First", ledger_name="shared")
        second = IntakeLedger(stack, "Second", ledger_name="shared")
        with refused("name-in-use", "ledger_name is 'shared', which Stack/First already has in this stack"):
            IntakePipeline(stack, "Orders", ledger=second, processor=processor())

    @pytest.mark.parametrize("imported", [False, True])
    def test_twice_on_one_ledger(self, imported: bool) -> None:
        """Both would use the same rows."""
        app = App()
        first, second = new_stack("First", app), new_stack("Second", app)
        if not imported:
            ledgers = [IntakeLedger(first, "Ledger")] * 2
        else:
            arn = "arn:aws:dynamodb:eu-central-1:111122223333:table/ledger"
            ledgers = [
                IntakeLedger(one, "Ledger", table=dynamodb.Table.from_table_arn(one, "Table", arn))
                for one in (first, second)
            ]
        IntakePipeline(first, "Orders", name="billing", processor=processor(), ledger=ledgers[0])
        with refused("pipeline-name-on-ledger", "First/Orders already has on the same ledger"):
            IntakePipeline(second, "Orders", name="billing", processor=processor(), ledger=ledgers[1])

    def test_twice_in_one_environment(self) -> None:
        """Two stacks may share a name. In one account and region, CloudWatch adds up their metrics."""
        app = new_app()
        stacks = [new_stack(name, app) for name in ("Dev", "Test")]
        for stack in stacks:
            IntakePipeline(stack, "Orders", name="billing", processor=processor())
        [warning] = warned(stacks[1], "pipeline-name-twice")
        assert "Dev/Orders" in warning
        assert "[ack: cdk-intake-ledger:pipelineNameTwice]" in warning


def test_parts_of_a_name_are_told_apart() -> None:
    """Logical IDs omit some characters, but their hash contains them."""
    names = ("a-b", "a_b", "ab", "AB")
    stack = new_stack()
    for name in names:
        IntakePipeline(stack, f"P{names.index(name)}", name=name, processor=processor())
    assert len(logical_ids(stack, "AWS::Lambda::Function")["AWS::Lambda::Function"]) == 2 * len(names)
