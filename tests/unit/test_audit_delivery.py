"""F46: delivery is broken at the source; the audit says how, and what to do."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from intake_ledger.audit.delivery import DeliveryCheck
from intake_ledger.settings import Delivery, KeyFilter
from tests.unit.audit_support import AuditWorld
from tests.unit.support import BUCKET

QUEUE = "arn:aws:sqs:eu-central-1:111122223333:Messages"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1"
KEY_ACTIONS = ["kms:Decrypt", "kms:GenerateDataKey"]
RESTORED = "Object Restore Completed"
EVENTS = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed"]
AGAIN = "deploy the stack again, or put it back by hand"


def allowed(service: str, **more: Any) -> str:
    """A policy as the stack writes it: TLS only, and the service."""
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    secure = {"Effect": "Deny", "Principal": {"AWS": "*"}, "Action": "*", "Resource": QUEUE, "Condition": plain}
    send = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": QUEUE}
    return json.dumps({"Statement": [secure, send | more]})


def denied(policy: str, action: Any) -> str:
    """The same with a statement that somebody has added."""
    deny = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": QUEUE}
    return json.dumps({"Statement": [*json.loads(policy)["Statement"], deny]})


def notification(event: str, prefix: str = "", suffix: str = "", queue: str = QUEUE) -> dict[str, Any]:
    """An entry of the bucket's configuration; CloudFormation makes one for each event."""
    rules = [{"Name": name, "Value": value} for name, value in (("Prefix", prefix), ("Suffix", suffix)) if value]
    return {"QueueArn": queue, "Events": [event]} | ({"Filter": {"Key": {"FilterRules": rules}}} if rules else {})


@dataclass
class Aws:
    """Everything that the check looks at, as it should be."""

    filters: tuple[KeyFilter, ...] = ()
    delivery: Delivery = Delivery.S3
    queue: dict[str, str] = field(
        default_factory=lambda: {"QueueArn": QUEUE, "Policy": allowed("s3.amazonaws.com"), "KmsMasterKeyId": "key"}
    )
    notifications: dict[str, Any] = field(
        default_factory=lambda: {"QueueConfigurations": [notification(event) for event in EVENTS]}
    )
    versioning: str | None = "Enabled"
    ttl: dict[str, str] = field(default_factory=lambda: {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"})
    key_state: str = "Enabled"
    key_policy: str = field(default_factory=lambda: allowed("s3.amazonaws.com", Action=KEY_ACTIONS))
    rules: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        settings = replace(AuditWorld(filters=self.filters).settings, delivery=self.delivery)
        this = cast("Any", self)
        return DeliveryCheck(settings, s3=this, sqs=this, dynamodb=this, make_client=lambda _: self).problems()

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        return {"Attributes": self.queue}

    def get_bucket_notification_configuration(self, **request: Any) -> dict[str, Any]:
        assert request == {"Bucket": BUCKET}
        if "notifications" in self.refused:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetBucketNotification")
        return self.notifications

    def get_bucket_versioning(self, **_: Any) -> dict[str, Any]:
        return {"Status": self.versioning} if self.versioning else {}

    def describe_time_to_live(self, **_: Any) -> dict[str, Any]:
        return {"TimeToLiveDescription": self.ttl}

    def describe_key(self, **_: Any) -> dict[str, Any]:
        return {"KeyMetadata": {"KeyState": self.key_state, "Arn": KEY}}

    def get_key_policy(self, **request: Any) -> dict[str, Any]:
        assert request == {"KeyId": KEY, "PolicyName": "default"}
        return {"Policy": self.key_policy}

    def list_rule_names_by_target(self, **request: Any) -> dict[str, Any]:
        assert request == {"TargetArn": QUEUE}
        return {"RuleNames": list(self.rules)}

    def describe_rule(self, **request: Any) -> dict[str, Any]:
        return self.rules[request["Name"]]

    def test_event_pattern(self, **request: Any) -> dict[str, bool]:
        """As much of EventBridge as a pattern of detail types and one prefix needs."""
        pattern, event = json.loads(request["EventPattern"]), json.loads(request["Event"])
        key = event["detail"]["object"]["key"]
        return {"Result": event["detail-type"] in pattern["detail-type"] and key.startswith(pattern["prefix"])}


def rule(*kinds: str, prefix: str = "", state: str = "ENABLED") -> dict[str, str]:
    return {"State": state, "EventPattern": json.dumps({"detail-type": kinds, "prefix": prefix})}


def bridged(**more: Any) -> Aws:
    aws = Aws(
        delivery=Delivery.EVENTBRIDGE,
        rules={"Delivery": rule("Object Created", "Object Deleted", "Object Restore Completed")},
        **more,
    )
    aws.queue["Policy"] = allowed("events.amazonaws.com")
    aws.key_policy = allowed("events.amazonaws.com", Action=KEY_ACTIONS)
    aws.notifications = {"EventBridgeConfiguration": {}}
    return aws


def test_f46_what_is_as_it_should_be() -> None:
    """F46: no false alarm, by either way, whatever else the bucket notifies about."""
    assert Aws().problems() == []
    assert bridged().problems() == []
    aws = Aws(filters=(KeyFilter("in put/", ".csv"), KeyFilter("ä/")))
    aws.notifications = {
        "QueueConfigurations": [
            *(notification(event, "in+put/", ".csv") for event in EVENTS),
            *(notification(event, "%C3%A4/") for event in EVENTS),
            notification(EVENTS[0], "out/", queue=f"{QUEUE}-2"),
        ]
    }
    assert aws.problems() == []


def test_f46_another_stack_wiped_the_notifications() -> None:
    """F46: all three kinds of event are named."""
    aws = Aws(notifications={})
    assert aws.problems() == [
        f"S3 does not notify the queue of {', '.join(EVENTS)} for every key: {AGAIN}",
    ]


def test_f46_one_filter_or_event_is_not_the_one_that_was_asked_for() -> None:
    """F46, F47: each filter needs each event, for our queue."""
    aws = Aws(filters=(KeyFilter("in/"), KeyFilter("b/", ".csv")))
    aws.notifications = {
        "QueueConfigurations": [
            *(notification(event, "in/") for event in EVENTS[:2]),
            notification(EVENTS[2], "in/", queue=f"{QUEUE}-2"),
            notification(EVENTS[3], "in/"),
            *(notification(event, "b/") for event in EVENTS),
        ]
    }
    assert aws.problems() == [
        f"S3 does not notify the queue of s3:LifecycleExpiration:* for prefix 'in/': {AGAIN}",
        f"S3 does not notify the queue of {', '.join(EVENTS)} for prefix 'b/' and suffix '.csv': {AGAIN}",
    ]


@pytest.mark.parametrize(
    "policy",
    [
        None,
        "{}",
        allowed("sns.amazonaws.com"),
        allowed("s3.amazonaws.com", Effect="Deny"),
        allowed("s3.amazonaws.com", Action=["sqs:ReceiveMessage"]),
        denied(allowed("s3.amazonaws.com"), "SQS:Send*"),
    ],
)
def test_f46_the_queues_policy_was_edited(policy: str | None) -> None:
    """F46: a Deny for everybody is the stack's own, for those without TLS."""
    aws = Aws()
    aws.queue = {name: text for name, text in (aws.queue | {"Policy": policy}).items() if text is not None}
    assert aws.problems() == [f"the queue's policy does not let s3.amazonaws.com send: {AGAIN}"]


@pytest.mark.parametrize("principal", ["*", {"AWS": "*"}, {"Service": ["sns.amazonaws.com", "s3.amazonaws.com"]}])
def test_a_policy_of_the_teams_own_may_say_it_otherwise(principal: Any) -> None:
    """An imported queue's was not written by us."""
    aws = Aws()
    aws.queue["Policy"] = allowed("", Principal=principal, Action="SQS:*")
    assert aws.problems() == []


def test_f46_the_key_is_disabled() -> None:
    """F46: S3 cannot encrypt what it sends."""
    aws = Aws(key_state="Disabled")
    assert aws.problems() == ["the queue's key key is Disabled: nothing can be sent until it is enabled again"]
    del aws.queue["KmsMasterKeyId"]
    assert aws.problems() == []


def test_f46_awss_own_key_is_not_for_s3() -> None:
    """F46: it is always there, and nobody can let S3 use it."""
    aws = Aws()
    aws.queue["KmsMasterKeyId"] = "alias/aws/sqs"
    (said,) = aws.problems()
    fix = "take SSE-SQS, or a key of yours"
    assert said == f"the queue's key alias/aws/sqs is AWS's own, which s3.amazonaws.com may not use: {fix}"


@pytest.mark.parametrize(
    ("policy", "lacking"),
    [
        (allowed("s3.amazonaws.com", Action="kms:Decrypt"), "kms:GenerateDataKey"),
        (allowed("s3.amazonaws.com", Action=["kms:GenerateDataKey"]), "kms:Decrypt"),
        (denied(allowed("s3.amazonaws.com", Action=KEY_ACTIONS), ["kms:Decrypt"]), "kms:Decrypt"),
        (allowed("events.amazonaws.com", Action=KEY_ACTIONS), "kms:GenerateDataKey and kms:Decrypt"),
        (allowed("s3.amazonaws.com", Action=KEY_ACTIONS, Effect="Deny"), "kms:GenerateDataKey and kms:Decrypt"),
        (
            allowed("", Action="kms:*", Principal={"AWS": "arn:aws:iam::111122223333:root"}),
            "kms:GenerateDataKey and kms:Decrypt",
        ),
    ],
)
def test_f46_the_keys_policy_was_edited(policy: str, lacking: str) -> None:
    """F46: what an account may do with its key, S3 may not."""
    said = f"the policy of the queue's key key does not let s3.amazonaws.com use {lacking}: {AGAIN}"
    assert Aws(key_policy=policy).problems() == [said]


@pytest.mark.parametrize("action", ["kms:*", "*", ["KMS:GenerateDataKey*", "kms:Decrypt"]])
def test_a_keys_policy_of_the_teams_own_may_say_it_otherwise(action: Any) -> None:
    """With wildcards, in any case."""
    assert Aws(key_policy=allowed("s3.amazonaws.com", Action=action)).problems() == []


def test_versioning_was_suspended() -> None:
    """A bucket that never had versions is the team's choice."""
    said = "the bucket's versioning is suspended, so that overwritten objects are lost: enable it again"
    assert Aws(versioning="Suspended").problems() == [said]
    assert Aws(versioning=None).problems() == []


@pytest.mark.parametrize(
    "ttl",
    [{"TimeToLiveStatus": "DISABLED"}, {}, {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}],
)
def test_rows_do_not_expire(ttl: dict[str, str]) -> None:
    """The table grows for ever."""
    said = "rows of table do not expire: switch time to live on for the attribute expires_at"
    assert Aws(ttl=ttl).problems() == [said]
    assert Aws(ttl={"TimeToLiveStatus": "ENABLING", "AttributeName": "expires_at"}).problems() == []


class TestEventBridge:
    """The rule is tried out with an event for each filter, so that it may be written in any way."""

    def test_f46_the_rule_is_gone(self) -> None:
        """F46: nothing sends."""
        aws = bridged()
        aws.rules = {}
        assert aws.problems() == [
            f"no EventBridge rule sends 'Object Created' for every key to the queue: {AGAIN}",
            f"no EventBridge rule sends 'Object Deleted' for every key to the queue: {AGAIN}",
            f"no EventBridge rule sends 'Object Restore Completed' for every key to the queue: {AGAIN}",
        ]

    def test_f46_the_rule_is_disabled(self) -> None:
        """F46: by name."""
        aws = bridged()
        aws.rules = {"Delivery": rule("Object Created", "Object Deleted", "Object Restore Completed", state="DISABLED")}
        assert aws.problems() == ["the EventBridge rule Delivery is disabled: enable it"]

    def test_f46_the_pattern_lets_less_through(self) -> None:
        """F46, F47: a filter, or removals."""
        aws = bridged(filters=(KeyFilter("in/"), KeyFilter("b/", ".csv")))
        aws.rules = {
            "One": rule("Object Created", "Object Deleted", "Object Restore Completed", prefix="in/"),
            "Two": rule("Object Created"),
        }
        assert aws.problems() == [
            f"no EventBridge rule sends 'Object Deleted' for prefix 'b/' and suffix '.csv' to the queue: {AGAIN}",
            f"no EventBridge rule sends {RESTORED!r} for prefix 'b/' and suffix '.csv' to the queue: {AGAIN}",
        ]

    def test_f46_the_bucket_does_not_tell_eventbridge(self) -> None:
        """F46: switched off in the bucket."""
        aws = bridged()
        aws.notifications = {}
        assert aws.problems() == [f"the bucket does not tell EventBridge of its changes: {AGAIN}"]


def test_what_cannot_be_looked_at_is_told() -> None:
    """And the other checks, and the audit itself, go on."""
    first, second = Aws(refused=("notifications",), versioning="Suspended").problems()
    assert first.startswith("the bucket's notifications could not be checked: ")
    assert "suspended" in second


def test_a_way_of_somebody_elses_is_not_looked_at() -> None:
    """It may go over a topic, and another account's queue policy: what the pipeline itself needs is still checked."""
    nothing = Aws(delivery=Delivery.EXISTING, queue={"QueueArn": QUEUE}, notifications={})
    assert not nothing.problems()
    assert len(Aws(delivery=Delivery.EXISTING, key_state="PendingDeletion", versioning="Suspended").problems()) == 2
