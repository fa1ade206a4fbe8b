"""Helpers for tests of the command line: a pipeline whose bucket, queues and table are in moto."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from intake_ledger.protocol.change import Change, identity_of
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    Status,
    review_partition,
    row_attributes,
    row_key,
    waiting_partition,
)
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger_cli import commands
from intake_ledger_cli.act.sender import RateLimit, Sender
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import OPERATIONS_STREAM
from intake_ledger_cli.aws.deployed import DeployedPipeline
from tests.unit.support import RETENTION, START, create_table, one_change

commands.load()  # Typer builds the command line once, so all commands have to be there
STACK = "Intake"
NAME = "Intake-Invoices-0A1B2C3D"
ASKING = {"dismiss", "resume", "retry"}
"""Commands that ask a person before they change something."""
PARTS = "Intake-Parts-4E5F6A7B"
_SITES = count(1)


SENDER_ID = "01KAPX3RGT3AD491WZZFYQT0R6"


@cache
def client(service: Any) -> Any:
    """Return a client, which is created once, because a service model takes as long to load as a test."""
    return boto3.client(service)


_CONFIGURED: dict[tuple[str, str], Any] = {}


def shared_client(service: str, *, config: Config | None = None) -> Any:
    """Return the client with this configuration. For tests that call `boto3.client` often."""
    key = service, repr(sorted(vars(config)["_user_provided_options"].items()) if config else ())
    if key not in _CONFIGURED:
        session: Any = boto3.DEFAULT_SESSION
        _CONFIGURED[key] = session.client(service, config=config)
    return _CONFIGURED[key]


@dataclass
class Site:
    """The AWS resources of one pipeline."""

    deployed: DeployedPipeline
    more_for_audit: dict[str, str] = field(default_factory=dict)

    def put(self, *keys: str) -> list[str]:
        """Upload objects, and return their version IDs."""
        s3 = client("s3")
        return [s3.put_object(Bucket=self.deployed.bucket, Key=key, Body=b"x")["VersionId"] for key in keys]

    def dead_letter(self, body: str, **attributes_: str | int) -> None:
        """Send a message to the dead-letter queue. Without attributes, it looks as if SQS had moved it."""
        typed: Any = {
            name: {"DataType": "Number" if isinstance(value, int) else "String", "StringValue": str(value)}
            for name, value in attributes_.items()
        }
        client("sqs").send_message(QueueUrl=self.deployed.dead_letter_url, MessageBody=body, MessageAttributes=typed)

    def visible(self, url: str) -> int:
        """Return the number of visible messages."""
        told = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return int(told["ApproximateNumberOfMessages"])

    def messages(self) -> list[dict[str, Any]]:
        """Receive and delete all messages of the queue. Return their bodies and attributes."""
        sqs, found = client("sqs"), []
        url = self.deployed.queue_url
        while batch := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
            "Messages"
        ):
            for one in batch:
                said = one.get("MessageAttributes", {})
                found.append({"body": one["Body"], **{name: value["StringValue"] for name, value in said.items()}})
                sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        return found

    def changes(self) -> list[Change]:
        """Return the changes that the consumer would parse from the queue."""
        return [one_change(message["body"]) for message in self.messages()]

    def row(self, key: str, row: Row) -> None:
        """Write a row as the runtime would."""
        deployed = self.deployed
        identity = identity_of(row.kind, row.version_id, row.etag)
        place = row_key(deployed.name, deployed.ordering, deployed.bucket, key, identity)
        if row.status in (Status.FAILED, Status.REJECTED):
            partition = (
                waiting_partition(deployed.name) if row.waiting_since else review_partition(deployed.name, place)
            )
            row = replace(row, needs_review=partition)
        item: Any = {"pk": {"S": place.pk}, "sk": {"S": place.sk}}
        for name, value in row_attributes(row).items():
            item[name] = {"N": str(value)} if isinstance(value, int) else {"S": str(value)}
        client("dynamodb").put_item(TableName=deployed.table, Item=item)

    def reject(self, key: str, reason: str, *, version: str = "v1", at: int = START) -> None:
        """Write a rejected row."""
        self.row(
            key,
            Row(Status.REJECTED, at, version_id=version, reason=reason, updated_at=at),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the consumer."""
        deployed = self.deployed
        filters = [{"prefix": one.prefix, "suffix": one.suffix} for one in deployed.filters]
        exclude = {"INTAKE_EXCLUDE": json.dumps(deployed.exclude.patterns)} if deployed.exclude else {}
        return (
            dict(deployed.variables)
            | exclude
            | {
                "INTAKE_PIPELINE_NAME": deployed.name,
                "INTAKE_BUCKET_NAME": deployed.bucket,
                "INTAKE_TABLE_NAME": deployed.table,
                "INTAKE_QUEUE_URL": deployed.queue_url,
                "INTAKE_DLQ_URL": deployed.dead_letter_url,
                "INTAKE_ORDERING": deployed.ordering.value,
                "INTAKE_DELETES": "true" if deployed.deletes else "false",
                "INTAKE_RETENTION_SECONDS": str(deployed.retention_seconds),
                "INTAKE_CLOCK_SKEW_SECONDS": str(deployed.clock_skew_seconds),
                "INTAKE_KEY_FILTERS": json.dumps(filters),
            }
        )

    def audit_environment(self) -> dict[str, str]:
        """Return the environment variables of the audit."""
        said = self.environment() | {"INTAKE_SETTLE_SECONDS": "3600"}
        del said["INTAKE_DLQ_URL"]
        return said | self.more_for_audit


def make_sender(deployed: DeployedPipeline, sqs: Any = None, *, records: bool = False) -> Sender:
    """The sender of an operation, which records its requests if `records`."""
    aws: Any = SimpleNamespace(dynamodb=client("dynamodb"), sqs=sqs or client("sqs"))
    return Sender(aws, deployed, SENDER_ID, RateLimit(None), denied=not records)


def make_site(
    ordering: Ordering = Ordering.LATEST, *, deletes: bool = False, filters: tuple[KeyFilter, ...] = ()
) -> Site:
    number = next(_SITES)
    bucket, table = f"cli-uploads-{number}", f"cli-ledger-{number}"
    create_table(client("dynamodb"), table)
    s3 = client("s3")
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    sqs = client("sqs")
    return Site(
        DeployedPipeline(
            pipeline=NAME,
            bucket=bucket,
            bucket_owner=None,
            table=table,
            queue_url=sqs.create_queue(QueueName=f"cli-messages-{number}")["QueueUrl"],
            dead_letter_url=sqs.create_queue(QueueName=f"cli-dead-letters-{number}")["QueueUrl"],
            ordering=ordering,
            deletes=deletes,
            retention_seconds=RETENTION // 1000,
            clock_skew_seconds=0,
            consumer_function="consumer",
            audit_function="audit",
            filters=filters,
            directory_markers=True,
            alarms=(),
            machines=(),
            reports=None,
        )
    )


def make_message_site(source: str = "sqs") -> Site:
    """The resources of an intake of messages."""
    site = make_site(Ordering.EVERY_VERSION)
    variables = site.environment() | {
        "INTAKE_MESSAGE_SOURCE": source,
        "INTAKE_MESSAGE_KEY": "order",
        "INTAKE_MESSAGE_IDENTITY": "id",
        "INTAKE_PROCESSOR": "orders:book",
        "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
        "INTAKE_MAX_ATTEMPTS": "12",
        "INTAKE_MIN_BACKOFF_SECONDS": "15",
        "INTAKE_MAX_BACKOFF_SECONDS": "900",
        "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
    }
    deployed = replace(
        site.deployed,
        bucket=f"messages:{NAME}",
        audit_function=None,
        variables=variables,
    )
    if source == "fifo":
        urls = []
        for url in (deployed.queue_url, deployed.dead_letter_url):
            name = f"{url.rsplit('/', 1)[-1]}.fifo"
            urls.append(client("sqs").create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"])
        deployed = replace(deployed, queue_url=urls[0], dead_letter_url=urls[1])
    return Site(deployed)


SET_PATTERN = "loads/*/manifest.json"


def make_set_site(form: str = "manifest", pattern: str = SET_PATTERN) -> Site:
    """The resources of sets of files."""
    site = make_site()
    described: dict[str, object] = {"form": form, "pattern": pattern}
    variables = site.environment() | {
        "INTAKE_SET_FORM": json.dumps(described | ({"quietSeconds": 60} if form == "quiet" else {})),
        "INTAKE_SET_PARTS_PIPELINE": PARTS,
        "INTAKE_PROCESSOR": "loads:load",
        "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
        "INTAKE_MAX_ATTEMPTS": "12",
        "INTAKE_MIN_BACKOFF_SECONDS": "15",
        "INTAKE_MAX_BACKOFF_SECONDS": "900",
        "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
    }
    return Site(replace(site.deployed, audit_function=None, variables=variables))


@dataclass
class FakeCloudFormation:
    """A CloudFormation client with stacks and their resources, two on a page."""

    stacks: dict[str, list[tuple[str, str]]]

    def get_paginator(self, operation: str) -> "FakeCloudFormation":
        assert operation == "list_stack_resources"
        return self

    def paginate(self, **request: str) -> Iterator[dict[str, Any]]:
        stack = request["StackName"]
        if stack not in self.stacks:
            said: Any = {"Code": "ValidationError", "Message": f"Stack with id {stack} does not exist"}
            raise ClientError({"Error": said}, "ListStackResources")
        found = [
            {
                "ResourceType": type_,
                "LogicalResourceId": _logical_id(name),
                "PhysicalResourceId": name,
                "ResourceStatus": "CREATE_COMPLETE",
            }
            for type_, name in self.stacks[stack]
        ]
        found.append({"ResourceType": "AWS::Lambda::Function", "ResourceStatus": "CREATE_FAILED"})
        for start in range(0, len(found), 2):
            yield {"StackResourceSummaries": found[start : start + 2]}


def _logical_id(name: str) -> str:
    """Return a logical ID as a pipeline's functions have it. Functions `other` and `secret` are not a pipeline's."""
    return name if name in ("other", "secret") else f"Orders{name}{'Audit' if name == 'audit' else 'Consumer'}Function"


@dataclass
class FakeLambda:
    """A Lambda client with functions and their environments. Other functions are denied."""

    environments: dict[str, dict[str, str]]
    source: str = "Enabled"
    answer: dict[str, Any] = field(default_factory=dict)
    invoked: list[dict[str, Any]] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)
    """The ARNs of the functions that read any queue."""
    updated: list[str] = field(default_factory=list)
    """The UUIDs of the mappings that were enabled or disabled."""
    mappings: int = 1
    """The number of the consumer's event source mappings."""

    def get_function_configuration(self, **request: str) -> dict[str, Any]:
        function = request["FunctionName"]
        if function not in self.environments:
            raise denied("lambda:GetFunctionConfiguration", "GetFunctionConfiguration")
        return {"Environment": {"Variables": self.environments[function]}}

    def list_event_source_mappings(self, **request: str) -> dict[str, Any]:
        if "EventSourceArn" in request:
            return {"EventSourceMappings": [{"State": self.source, "FunctionArn": one} for one in self.readers]}
        assert request["FunctionName"] in self.environments
        uuids = [f"uuid-{n}" for n in range(1, self.mappings + 1)]
        return {"EventSourceMappings": [{"State": self.source, "UUID": one} for one in uuids]}

    def update_event_source_mapping(self, **request: Any) -> dict[str, Any]:
        self.updated.append(request["UUID"])
        self.source = "Enabled" if request["Enabled"] else "Disabled"
        return {}

    def invoke(self, **request: Any) -> dict[str, Any]:
        self.invoked.append({"function": request["FunctionName"], **json.loads(request["Payload"])})
        return self.answer


@dataclass
class FakeMachines:
    """A Step Functions client with definitions by ARN. An execution is RUNNING at the first request."""

    definitions: dict[str, str]
    end: dict[str, Any] = field(default_factory=dict)
    started: list[dict[str, Any]] = field(default_factory=list)
    looks: int = 0

    def describe_state_machine(self, **request: str) -> dict[str, Any]:
        return {"definition": self.definitions[request["stateMachineArn"]]}

    def start_execution(self, **request: str) -> dict[str, Any]:
        self.started.append({"machine": request["stateMachineArn"], **json.loads(request["input"])})
        return {"executionArn": "arn:execution"}

    def describe_execution(self, **request: str) -> dict[str, Any]:
        assert request["executionArn"] == "arn:execution"
        self.looks += 1
        return {"status": "RUNNING"} if self.looks == 1 else self.end


WHO = "arn:aws:sts::111122223333:assumed-role/Operator/ana"


class FakeSts:
    """An STS client of one person."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": WHO}


def denied(action: str, operation: str) -> ClientError:
    """Return the error that most services send for a denied action."""
    text = f"User: arn:aws:iam::111122223333:user/me is not authorized to perform: {action} on resource: arn:aws:x"
    return ClientError({"Error": {"Code": "AccessDeniedException", "Message": text}}, operation)


def new_consumer_log() -> Callable[[], list[dict[str, Any]]]:
    """Create the consumer's log group without lines. Return the reader of the lines about operations."""
    logs, group = client("logs"), "/aws/lambda/consumer"
    with suppress(logs.exceptions.ResourceNotFoundException):
        logs.delete_log_group(logGroupName=group)
    logs.create_log_group(logGroupName=group)

    def lines() -> list[dict[str, Any]]:
        answer = logs.get_log_events(logGroupName=group, logStreamName=OPERATIONS_STREAM, startFromHead=True)
        return [json.loads(event["message"]) for event in answer["events"]]

    return lines


def deny_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command's DynamoDB refuse each `PutItem`, as for a role of an earlier deployment."""
    dynamodb: Any = client("dynamodb")

    class ReadOnly:
        def __getattr__(self, name: str) -> Any:
            return getattr(dynamodb, name)

        def put_item(self, **_: Any) -> Any:
            raise denied("dynamodb:PutItem", "PutItem")

    monkeypatch.setattr(Aws, "dynamodb", ReadOnly())


def groups_of(operation: str) -> list[str]:
    """The message groups of all messages that an operation of SQS sends from now on."""
    groups = list[str]()

    def seen(params: Any, **_: Any) -> None:
        groups.extend(one.get("MessageGroupId", "") for one in params.get("Entries", [params]))

    client("sqs").meta.events.register(f"provide-client-params.sqs.{operation}", seen)
    return groups
