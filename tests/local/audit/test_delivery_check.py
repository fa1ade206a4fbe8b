"""Break the settings of a deployed path one after the other. The next tick of the audit reports each.

`tests/unit/delivery_check/test_delivery.py` tests the settings that the local AWS does not have.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.audit.watched_stack import STACK
from tests.local.conftest import Outputs

DEPLOY = f"run `cdk deploy {STACK} --revert-drift`"
ACCOUNT_ID = "000000000000"


@dataclass(frozen=True)
class Watched:
    """One deployed pipeline, from its bucket to its table."""

    aws: LocalAws
    outputs: dict[str, str]
    id: str

    def __getitem__(self, name: str) -> str:
        return self.outputs[name if name in self.outputs else f"{self.id}{name}"]

    def client(self, service: str) -> Any:
        return self.aws.client(service)

    def tick(self) -> list[str]:
        """Problems that a tick reports. No run is due."""
        payload = json.dumps({"everySeconds": 86_400}).encode()
        answer = self.client("lambda").invoke(FunctionName=self["Audit"], Payload=payload)
        content = json.load(answer["Payload"])
        assert "delivery" in content, content
        found: list[str] = content["delivery"]
        return found

    @property
    def mapping(self) -> str:
        """The id of the event source mapping."""
        found = self.client("lambda").list_event_source_mappings(FunctionName=self["Function"])
        uuid: str = found["EventSourceMappings"][0]["UUID"]
        return uuid

    @property
    def rule(self) -> str:
        name: str = self.client("events").list_rule_names_by_target(TargetArn=self["QueueArn"])["RuleNames"][0]
        return name


Break = Callable[[Watched], AbstractContextManager[None]]


def attributes(queue: str = "QueueUrl", **values: str) -> Break:
    """Queue attributes, restored afterwards."""

    @contextmanager
    def breaking(path: Watched) -> Iterator[None]:
        sqs, url = path.client("sqs"), path[queue]
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes=values)
        yield
        sqs.set_queue_attributes(QueueUrl=url, Attributes={name: before.get(name, "") for name in values})

    return breaking


def policy(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Break:
    """The queue's policy. `change` gets the statement that lets the sender in."""
    return policies(lambda statement, rest: [*rest, change(statement)])


def policies(change: Callable[[dict[str, Any], list[Any]], list[Any]]) -> Break:
    @contextmanager
    def breaking(path: Watched) -> Iterator[None]:
        sqs, url = path.client("sqs"), path["QueueUrl"]
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
        statements = json.loads(before)["Statement"]
        (sending,) = [one for one in statements if one["Effect"] == "Allow"]
        changed = change(sending, [one for one in statements if one is not sending])
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Statement": changed})})
        yield
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": before})

    return breaking


def deny(**element: Any) -> Break:
    """One more statement in the queue's policy."""
    plain = {"Sid": "Added", "Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    added = {name: value for name, value in (plain | element).items() if value is not None}
    return policies(lambda statement, rest: [*rest, statement, added])


def notifications(change: Callable[[dict[str, Any]], None]) -> Break:
    @contextmanager
    def breaking(path: Watched) -> Iterator[None]:
        s3, bucket = path.client("s3"), path["Bucket"]

        def now() -> dict[str, Any]:
            found: dict[str, Any] = s3.get_bucket_notification_configuration(Bucket=bucket)
            return {name: value for name, value in found.items() if name != "ResponseMetadata"}

        before, changed = now(), now()
        change(changed)
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=changed)
        yield
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=before)

    return breaking


def _another_prefix(configuration: dict[str, Any]) -> None:
    for entry in configuration["QueueConfigurations"]:
        entry["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "out/"}]}}


def mapping(before: dict[str, Any], **values: Any) -> Break:
    """Settings of the event source mapping, and as they were."""

    @contextmanager
    def breaking(path: Watched) -> Iterator[None]:
        lambda_ = path.client("lambda")
        lambda_.update_event_source_mapping(UUID=path.mapping, **values)
        yield
        lambda_.update_event_source_mapping(UUID=path.mapping, **before)

    return breaking


@contextmanager
def second_mapping(path: Watched) -> Iterator[None]:
    lambda_ = path.client("lambda")
    made = lambda_.create_event_source_mapping(EventSourceArn=path["QueueArn"], FunctionName=path["OtherFunction"])
    yield
    lambda_.delete_event_source_mapping(UUID=made["UUID"])


@contextmanager
def no_concurrency(path: Watched) -> Iterator[None]:
    lambda_, name = path.client("lambda"), path["Function"]
    lambda_.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    yield
    lambda_.delete_function_concurrency(FunctionName=name)


@contextmanager
def longer_timeout(path: Watched) -> Iterator[None]:
    lambda_, name = path.client("lambda"), path["Function"]
    before = lambda_.get_function_configuration(FunctionName=name)["Timeout"]
    lambda_.update_function_configuration(FunctionName=name, Timeout=900)
    yield
    lambda_.update_function_configuration(FunctionName=name, Timeout=before)


@contextmanager
def disabled_key(path: Watched) -> Iterator[None]:
    path.client("kms").disable_key(KeyId=path["KeyId"])
    yield
    path.client("kms").enable_key(KeyId=path["KeyId"])


@contextmanager
def dying_key(path: Watched) -> Iterator[None]:
    path.client("kms").schedule_key_deletion(KeyId=path["KeyId"], PendingWindowInDays=7)
    yield
    path.client("kms").cancel_key_deletion(KeyId=path["KeyId"])
    path.client("kms").enable_key(KeyId=path["KeyId"])


@contextmanager
def key_without_the_sender(path: Watched) -> Iterator[None]:
    kms, key = path.client("kms"), {"KeyId": path["KeyId"], "PolicyName": "default"}
    before = kms.get_key_policy(**key)["Policy"]
    statements = [one for one in json.loads(before)["Statement"] if "Service" not in one["Principal"]]
    kms.put_key_policy(**key, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    yield
    kms.put_key_policy(**key, Policy=before)


@contextmanager
def no_expiry(path: Watched) -> Iterator[None]:
    def set_to(enabled: bool) -> None:
        specification = {"Enabled": enabled, "AttributeName": "expires_at"}
        path.client("dynamodb").update_time_to_live(TableName=path["Table"], TimeToLiveSpecification=specification)

    set_to(False)
    yield
    set_to(True)


@contextmanager
def suspended_versions(path: Watched) -> Iterator[None]:
    s3, bucket = path.client("s3"), path["Bucket"]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    yield
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


@contextmanager
def early_expiry(path: Watched) -> Iterator[None]:
    s3, bucket = path.client("s3"), path["Bucket"]
    tidy = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [tidy]})
    yield
    # The local AWS makes no lifecycle rules of a template.
    s3.delete_bucket_lifecycle(Bucket=bucket)


@contextmanager
def disabled_rule(path: Watched) -> Iterator[None]:
    name = path.rule
    path.client("events").disable_rule(Name=name)
    yield
    path.client("events").enable_rule(Name=name)


@contextmanager
def another_pattern(path: Watched) -> Iterator[None]:
    events, name = path.client("events"), path.rule
    before = events.describe_rule(Name=name)["EventPattern"]
    changed = json.loads(before) | {"detail-type": ["Object Created"]}
    events.put_rule(Name=name, EventPattern=json.dumps(changed))
    yield
    events.put_rule(Name=name, EventPattern=before)


def target(**values: Any) -> Break:
    """The rule's target with these settings; without the target, if there are none."""

    @contextmanager
    def breaking(path: Watched) -> Iterator[None]:
        events, name = path.client("events"), path.rule
        (before,) = events.list_targets_by_rule(Rule=name)["Targets"]
        if values:
            events.put_targets(Rule=name, Targets=[before | values])
        else:
            events.remove_targets(Rule=name, Ids=[before["Id"]])
        yield
        events.put_targets(Rule=name, Targets=[before])

    return breaking


@contextmanager
def deleted_rule(path: Watched) -> Iterator[None]:
    events, name = path.client("events"), path.rule
    targets = events.list_targets_by_rule(Rule=name)["Targets"]
    pattern = events.describe_rule(Name=name)["EventPattern"]
    events.remove_targets(Rule=name, Ids=[one["Id"] for one in targets])
    events.delete_rule(Name=name)
    yield
    events.put_rule(Name=name, EventPattern=pattern)
    events.put_targets(Rule=name, Targets=targets)


TRANSFORMER = {"InputPathsMap": {"key": "$.detail.object.key"}, "InputTemplate": '{"key": <key>}'}
FILTERS = {"Filters": [{"Pattern": '{"body": {"a": [1]}}'}]}
ORG = {"StringEquals": {"aws:SourceOrgID": "o-1"}}
BY_UUID = "run `aws lambda update-event-source-mapping --uuid "
NO_SENDER = "the queue's policy does not let s3.amazonaws.com"
NO_RULE = "no EventBridge rule sends"
BROKEN: dict[str, tuple[Break, str, str]] = {
    "notifications wiped": (notifications(dict.clear), "S3 does not notify the queue of s3:ObjectCreated:*, ", DEPLOY),
    "an event left out": (
        notifications(lambda one: one["QueueConfigurations"].pop(2)),
        "S3 does not notify the queue of s3:LifecycleExpiration:* for prefix 'in/'",
        DEPLOY,
    ),
    "another filter": (notifications(_another_prefix), "S3 does not notify the queue", DEPLOY),
    "no policy": (attributes(Policy=""), NO_SENDER, DEPLOY),
    "another action": (policy(lambda one: one | {"Action": "sqs:ReceiveMessage"}), NO_SENDER, DEPLOY),
    "another resource": (policy(lambda one: one | {"Resource": "arn:aws:sqs:::other"}), NO_SENDER, DEPLOY),
    "another sender": (policy(lambda one: one | {"Principal": {"Service": "sns.amazonaws.com"}}), NO_SENDER, DEPLOY),
    "another account": (
        policy(lambda one: one | {"Condition": {"StringEquals": {"aws:SourceAccount": "444455556666"}}}),
        NO_SENDER,
        DEPLOY,
    ),
    "another source": (
        policy(lambda one: one | {"Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::other"}}}),
        NO_SENDER,
        DEPLOY,
    ),
    "a Deny for all": (deny(), "its statement 'Added' denies it", DEPLOY),
    "a Deny of all but a principal": (deny(Principal=None, NotPrincipal={"AWS": "1"}), "'Added' denies it", DEPLOY),
    "a Deny of all but an action": (deny(Action=None, NotAction="sqs:ReceiveMessage"), "'Added' denies it", DEPLOY),
    "a Deny of all but a resource": (deny(Resource=None, NotResource="x"), "'Added' denies it", DEPLOY),
    "a Deny with a condition": (
        deny(Condition={"StringNotEquals": {"aws:SourceAccount": "444455556666"}}),
        "'Added' denies it",
        DEPLOY,
    ),
    "a Deny with another condition": (deny(Condition=ORG), "'Added' denies it", DEPLOY),
    "visibility timeout": (attributes(VisibilityTimeout="1"), "the queue's visibility timeout is 1 s", DEPLOY),
    "retention of a minute": (attributes(MessageRetentionPeriod="60"), "the queue's retention is 60 s", DEPLOY),
    "no redrive policy": (attributes(RedrivePolicy=""), "the queue has no redrive policy", DEPLOY),
    "message size": (attributes(MaximumMessageSize="1024"), "the queue takes messages of 1,024 bytes", "run `aws sqs"),
    "AWS's own key": (attributes(KmsMasterKeyId="alias/aws/sqs"), "key alias/aws/sqs is AWS's own", "take SSE-SQS"),
    "dead letters of a minute": (
        attributes("DeadLetterQueueUrl", MessageRetentionPeriod="60"),
        "the dead-letter queue's retention is 60 s",
        DEPLOY,
    ),
    "mapping disabled": (
        mapping({"Enabled": True}, Enabled=False),
        "the queue's event source mapping is Disabl",
        BY_UUID,
    ),
    "no failures by item": (
        mapping({"FunctionResponseTypes": ["ReportBatchItemFailures"]}, FunctionResponseTypes=[]),
        "does not report failures by item",
        DEPLOY,
    ),
    "a filter": (mapping({"FilterCriteria": {}}, FilterCriteria=FILTERS), "mapping has a filter", BY_UUID),
    "another function": (second_mapping, "takes messages of the queue too", "run `aws lambda delete-event-source"),
    "no concurrency": (no_concurrency, "is 0, so that nothing is processed", "run `aws lambda delete-function-con"),
    "function's timeout": (longer_timeout, "is 900 s, deployed as 130 s", DEPLOY),
    "key disabled": (disabled_key, "is Disabled, so that nothing can be sent", "run `aws kms enable-key"),
    "key to be deleted": (dying_key, "is PendingDeletion", "run `aws kms cancel-key-deletion"),
    "key's policy": (key_without_the_sender, "the policy of the queue's key", DEPLOY),
    "time to live": (no_expiry, "do not expire", DEPLOY),
    "versioning": (suspended_versions, "the bucket's versioning is suspended", DEPLOY),
    "lifecycle": (early_expiry, "the bucket's lifecycle rule 'tidy' removes objects after 7 days", DEPLOY),
}
RULED: dict[str, tuple[Break, str, str]] = {
    "EventBridge switched off": (notifications(dict.clear), "the bucket does not tell EventBridge", DEPLOY),
    "rule disabled": (disabled_rule, "is disabled", "run `aws events enable-rule --name "),
    "another pattern": (another_pattern, NO_RULE, DEPLOY),
    "event rewritten": (target(InputTransformer=TRANSFORMER), "rewrites the event (InputTransformer)", DEPLOY),
    "another path of the event": (target(InputPath="$.detail"), "rewrites the event (InputPath)", DEPLOY),
    "no target": (target(), NO_RULE, DEPLOY),
    "rule deleted": (deleted_rule, NO_RULE, DEPLOY),
    "policy for another rule": (
        policy(lambda one: one | {"Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:events:::rule/other"}}}),
        "the queue's policy does not let events.amazonaws.com for arn:",
        DEPLOY,
    ),
}


def watched(aws: LocalAws, outputs: Outputs, id: str) -> Watched:
    """A pipeline whose first run is over."""
    path = Watched(aws, outputs[STACK], id)
    path.tick()
    return path


@pytest.fixture(scope="module")
def keyed(aws: LocalAws, outputs: Outputs) -> Watched:
    return watched(aws, outputs, "Keyed")


@pytest.fixture(scope="module")
def ruled(aws: LocalAws, outputs: Outputs) -> Watched:
    return watched(aws, outputs, "Ruled")


@pytest.mark.failure_mode("F117")
def test_a_deployed_path_has_no_problems(keyed: Watched, ruled: Watched) -> None:
    """The audit was told the settings that the stack has, and the environment has room for them."""
    assert (keyed.tick(), ruled.tick()) == ([], [])
    for path in (keyed, ruled):
        found = path.client("lambda").get_function_configuration(FunctionName=path["Audit"])
        variables = found["Environment"]["Variables"]
        assert all(variables[name] and "${Token" not in variables[name] for name in variables)
        # Lambda developer guide, "Lambda quotas": 4 KB for all of a function's variables.
        assert sum(len(name) + len(value.encode()) for name, value in variables.items()) < 4_096


@pytest.mark.failure_mode("F117", "F128")
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_reported_at_the_next_tick(keyed: Watched, name: str) -> None:
    """By S3's notifications, with a key; with the command that repairs it."""
    _breaks(keyed, *BROKEN[name])


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("name", RULED)
def test_what_is_broken_about_the_rule_is_reported_at_the_next_tick(ruled: Watched, name: str) -> None:
    """By EventBridge; with the command that repairs it."""
    _breaks(ruled, *RULED[name])


def _breaks(path: Watched, breaking: Break, said: str, repair: str) -> None:
    with breaking(path):
        found = path.tick()
    assert found
    assert all(said in one and repair in one for one in found), found


@pytest.mark.failure_mode("F117")
def test_what_was_deleted_is_reported_and_nothing_crashes(keyed: Watched, ruled: Watched) -> None:
    """Mapping, function, dead-letter queue, queue, table and bucket, one after the other."""
    assert (keyed.tick(), ruled.tick()) == ([], []), "everything is restored"
    lambda_, s3 = ruled.client("lambda"), ruled.client("s3")
    deletions: list[tuple[Callable[[], Any], str]] = [
        (lambda: lambda_.delete_event_source_mapping(UUID=ruled.mapping), "the queue's event source mapping to "),
        (lambda: lambda_.delete_function(FunctionName=ruled["Function"]), f"the function {ruled['Function']} is gone"),
        (
            lambda: ruled.client("sqs").delete_queue(QueueUrl=ruled["DeadLetterQueueUrl"]),
            "the dead-letter queue is gone",
        ),
        (lambda: ruled.client("sqs").delete_queue(QueueUrl=ruled["QueueUrl"]), "the queue is gone"),
        (lambda: ruled.client("dynamodb").delete_table(TableName=ruled["Table"]), "the table is gone"),
        (lambda: s3.delete_bucket(Bucket=ruled["Bucket"]), "the bucket is gone"),
    ]
    for delete, said in deletions:
        assert not any(one.startswith(said) for one in ruled.tick())
        delete()
        found = ruled.tick()
        assert [one for one in found if one.startswith(said) and one.endswith(DEPLOY)], found
