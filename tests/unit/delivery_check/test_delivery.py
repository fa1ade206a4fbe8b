"""F46, F117: delivery is broken somewhere, and the audit says how, with the repair.

The answers are in the form of AWS's API references.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.protocol.awaited_tag import AwaitedTag
from intake_ledger.protocol.row import to_dynamodb
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.settings_audit import Delivery
from tests.unit.audit.support import AuditWorld
from tests.unit.support import BUCKET

QUEUE = "arn:aws:sqs:eu-central-1:111122223333:Messages"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/1"
KEY_ACTIONS = ["kms:Decrypt", "kms:GenerateDataKey"]
RESTORED = "Object Restore Completed"
TAGGED = "s3:ObjectTagging:Put"
EVENTS = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed"]
AGAIN = "run `cdk deploy Main --revert-drift`"
ACCOUNT = "111122223333"
RULE = "arn:aws:events:eu-central-1:111122223333:rule/Delivery"
UUID = "0f8e"
HAND = "with the bucket's other notifications in it"


def allowed(service: str, **more: Any) -> str:
    """A policy as the stack writes it: TLS only, and the service."""
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    secure = {"Effect": "Deny", "Principal": {"AWS": "*"}, "Action": "*", "Resource": QUEUE, "Condition": plain}
    send = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": "*"}
    return json.dumps({"Statement": [secure, send | more]})


def denied(policy: str, action: Any) -> str:
    """The same policy with another statement."""
    deny = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": "*"}
    return json.dumps({"Statement": [*json.loads(policy)["Statement"], deny]})


def mapping(**more: Any) -> dict[str, Any]:
    """Lambda's answer about the event source mapping."""
    return {
        "UUID": UUID,
        "State": "Enabled",
        "BatchSize": 10,
        "MaximumBatchingWindowInSeconds": 0,
        "FunctionArn": "arn:aws:lambda:eu-central-1:111122223333:function:Consumer",
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    } | more


def notification(event: str, prefix: str = "", suffix: str = "", queue: str = QUEUE) -> dict[str, Any]:
    """An entry of the bucket's configuration; CloudFormation makes one for each event."""
    rules = [{"Name": name, "Value": value} for name, value in (("Prefix", prefix), ("Suffix", suffix)) if value]
    return {"QueueArn": queue, "Events": [event]} | ({"Filter": {"Key": {"FilterRules": rules}}} if rules else {})


DEPLOYED: dict[str, Any] = {
    "stack": "Main",
    "account": ACCOUNT,
    "function": "Consumer",
    "timeout": 70,
    "mapping": UUID,
    "visibility": 220,
    "retention": 345_600,
    "receives": 1_000,
    "dead": "https://sqs/dead",
    "dead_arn": f"{QUEUE}-dead",
    "dead_retention": 1_209_600,
}


ATTRIBUTES = {
    "QueueArn": QUEUE,
    "Policy": allowed("s3.amazonaws.com"),
    "KmsMasterKeyId": "key",
    "VisibilityTimeout": "220",
    "MessageRetentionPeriod": "345600",
    "MaximumMessageSize": "262144",
    "RedrivePolicy": json.dumps({"deadLetterTargetArn": f"{QUEUE}-dead", "maxReceiveCount": 1_000}),
}
ACTIVE = {"State": "Active", "LastUpdateStatus": "Successful", "Timeout": 70}


def refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


@dataclass
class Aws:
    """Everything that the check looks at, as it should be."""

    filters: tuple[KeyFilter, ...] = ()
    delivery: Delivery = Delivery.S3
    deployed: dict[str, Any] = field(default_factory=lambda: dict(DEPLOYED))
    queue: dict[str, str] = field(default_factory=lambda: dict(ATTRIBUTES))
    dead: dict[str, str] = field(default_factory=lambda: {"MessageRetentionPeriod": "1209600"})
    notifications: dict[str, Any] = field(
        default_factory=lambda: {"QueueConfigurations": [notification(event) for event in EVENTS]}
    )
    versioning: str | None = "Enabled"
    lifecycle: list[dict[str, Any]] = field(default_factory=list)
    ttl: dict[str, str] = field(default_factory=lambda: {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"})
    key_state: str = "Enabled"
    key_policy: str = field(default_factory=lambda: allowed("s3.amazonaws.com", Action=KEY_ACTIONS))
    rules: dict[str, dict[str, str]] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    subscriptions: dict[str, list[str]] = field(default_factory=dict)
    """Endpoints, by the topic."""
    subscription_filter: str = ""
    mappings: list[dict[str, Any]] = field(default_factory=lambda: [mapping()])
    function: dict[str, Any] = field(default_factory=lambda: dict(ACTIVE))
    reserved: int | None = None
    fails: dict[str, Exception] = field(default_factory=dict)
    """Errors, by the operation."""
    called: list[str] = field(default_factory=list)
    pause: dict[str, Any] = field(default_factory=dict)
    """The item that `intake-ledger pause` writes."""
    ready_when: AwaitedTag | None = None

    def look(self) -> Looked:
        world = replace(AuditWorld(filters=self.filters).settings, delivery=self.delivery, ready_when=self.ready_when)
        settings = replace(world, deployed=json.dumps(self.deployed))
        this = cast("Any", self)
        return DeliveryCheck(settings, s3=this, sqs=this, dynamodb=this, make_client=lambda _: self).look()

    def problems(self) -> list[str]:
        looked = self.look()
        return [*looked.problems, *looked.unknown]

    def _call(self, operation: str) -> None:
        self.called.append(operation)
        if operation in self.fails:
            raise self.fails[operation]

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        dead = request["QueueUrl"] == DEPLOYED["dead"]
        self._call("GetQueueAttributes of dead letters" if dead else "GetQueueAttributes")
        return {"Attributes": self.dead if dead else self.queue}

    def list_event_source_mappings(self, **request: Any) -> dict[str, Any]:
        assert request == {"EventSourceArn": QUEUE}
        self._call("ListEventSourceMappings")
        return {"EventSourceMappings": self.mappings}

    def get_item(self, **_: Any) -> dict[str, Any]:
        self._call("GetItem")
        return {"Item": to_dynamodb(self.pause)} if self.pause else {}

    def get_function_configuration(self, **request: Any) -> dict[str, Any]:
        assert request == {"FunctionName": "Consumer"}
        self._call("GetFunctionConfiguration")
        return self.function

    def get_function_concurrency(self, **request: Any) -> dict[str, Any]:
        assert request == {"FunctionName": "Consumer"}
        self._call("GetFunctionConcurrency")
        return {} if self.reserved is None else {"ReservedConcurrentExecutions": self.reserved}

    def list_subscriptions_by_topic(self, **request: Any) -> dict[str, Any]:
        self._call("ListSubscriptionsByTopic")
        endpoints = self.subscriptions[request["TopicArn"]]
        subscriptions = [{"Endpoint": one, "SubscriptionArn": f"{request['TopicArn']}:1"} for one in endpoints]
        # The queue may be on any page.
        page = int(request.get("NextToken", 0))
        return {"Subscriptions": subscriptions if page else []} | ({} if page else {"NextToken": "1"})

    def get_subscription_attributes(self, **request: Any) -> dict[str, Any]:
        assert request == {"SubscriptionArn": f"{TOPIC}:1"}
        self._call("GetSubscriptionAttributes")
        return {"Attributes": {"FilterPolicy": self.subscription_filter} if self.subscription_filter else {}}

    def list_targets_by_rule(self, **request: Any) -> dict[str, Any]:
        self._call("ListTargetsByRule")
        assert request["Rule"] in self.rules
        return {"Targets": [{"Id": "Queue", "Arn": QUEUE} | self.target, {"Id": "Other", "Arn": "x", "Input": "{}"}]}

    def get_bucket_notification_configuration(self, **request: Any) -> dict[str, Any]:
        assert request == {"Bucket": BUCKET}
        self._call("GetBucketNotificationConfiguration")
        return self.notifications

    def get_bucket_versioning(self, **_: Any) -> dict[str, Any]:
        self._call("GetBucketVersioning")
        return {"Status": self.versioning} if self.versioning else {}

    def get_bucket_lifecycle_configuration(self, **request: Any) -> dict[str, Any]:
        assert request == {"Bucket": BUCKET}
        self._call("GetBucketLifecycleConfiguration")
        if not self.lifecycle:
            raise refusal("NoSuchLifecycleConfiguration", "GetBucketLifecycleConfiguration")
        return {"Rules": self.lifecycle}

    def describe_time_to_live(self, **_: Any) -> dict[str, Any]:
        self._call("DescribeTimeToLive")
        return {"TimeToLiveDescription": self.ttl}

    def describe_key(self, **_: Any) -> dict[str, Any]:
        self._call("DescribeKey")
        return {"KeyMetadata": {"KeyState": self.key_state, "Arn": KEY}}

    def get_key_policy(self, **request: Any) -> dict[str, Any]:
        assert request == {"KeyId": KEY, "PolicyName": "default"}
        self._call("GetKeyPolicy")
        return {"Policy": self.key_policy}

    def list_rule_names_by_target(self, **request: Any) -> dict[str, Any]:
        assert request == {"TargetArn": QUEUE}
        self._call("ListRuleNamesByTarget")
        return {"RuleNames": list(self.rules)}

    def describe_rule(self, **request: Any) -> dict[str, Any]:
        self._call("DescribeRule")
        return self.rules[request["Name"]] | {"Name": request["Name"], "Arn": RULE}

    def test_event_pattern(self, **request: Any) -> dict[str, bool]:
        """Matches patterns of detail types and one prefix, as EventBridge does."""
        self._call("TestEventPattern")
        pattern, event = json.loads(request["EventPattern"]), json.loads(request["Event"])
        key = event["detail"]["object"]["key"]
        return {"Result": event["detail-type"] in pattern["detail-type"] and key.startswith(pattern["prefix"])}


def rule(*kinds: str, prefix: str = "", state: str = "ENABLED") -> dict[str, str]:
    return {"State": state, "EventPattern": json.dumps({"detail-type": kinds, "prefix": prefix})}


def bridged(**more: Any) -> Aws:
    """A pipeline whose events come from EventBridge."""
    return Aws(
        **{
            "delivery": Delivery.EVENTBRIDGE,
            "rules": {"Delivery": rule("Object Created", "Object Deleted", RESTORED)},
            "queue": ATTRIBUTES | {"Policy": allowed("events.amazonaws.com")},
            "key_policy": allowed("events.amazonaws.com", Action=KEY_ACTIONS),
            "notifications": {"EventBridgeConfiguration": {}},
            **more,
        }
    )


def existing(*notifications: dict[str, Any], **more: Any) -> Aws:
    """A path that others made: Terraform, SAM, or another app."""
    return Aws(delivery=Delivery.EXISTING, notifications={"QueueConfigurations": [*notifications]}, **more)


TOPIC = "arn:aws:sns:eu-central-1:111122223333:changes"
FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:forward"
MADE = (
    "add them where the notification is made, or run `aws s3api put-bucket-notification-configuration --bucket "
    f"{BUCKET} --notification-configuration file://notifications.json` {HAND}"
)


DELETE = "run `aws lambda delete-function-concurrency --function-name Consumer`"
UPDATE = f"run `aws lambda update-event-source-mapping --uuid {UUID}"
MAPPING = "the queue's event source mapping"
NO_REDRIVE = "the queue has no redrive policy, so that SQS deletes a message that no worker can take"
LEFT_OUT = "the messages that it leaves out"
LARGER = "MaximumMessageSize=262144"
SET = "run `aws sqs set-queue-attributes --queue-url https://sqs/queue --attributes"
SCALING = {"MaximumConcurrency": 2}


def redrive(dead_letters: str, receives: object) -> str:
    """A redrive policy."""
    return json.dumps({"deadLetterTargetArn": dead_letters, "maxReceiveCount": receives})


def imported_queue(**attributes: str) -> Aws:
    """A queue that no stack of the app makes."""
    deployed = DEPLOYED | {"stacks": {"queue": ""}, "retention": None, "receives": 300}
    return Aws(deployed=deployed, queue=ATTRIBUTES | attributes)


def case(name: str, aws: Aws, *problems: str) -> Any:
    """What AWS answers, and the problems."""
    return pytest.param(aws, [*problems], id=name)


TWO_FILTERS = (KeyFilter("in/"), KeyFilter("b/", ".csv"))
SENT = ("Object Created", "Object Deleted", RESTORED)


@pytest.mark.failure_mode("F46", "F117", "F184", "F311")
@pytest.mark.parametrize(
    ("aws", "problems"),
    [
        case("nothing is wrong", Aws()),
        case("nothing is wrong with EventBridge", bridged()),
        case(
            "other notifications of the bucket, and keys that S3 encodes",
            Aws(
                filters=(KeyFilter("in put/", ".csv"), KeyFilter("ä/")),
                notifications={
                    "QueueConfigurations": [
                        *(notification(event, "in+put/", ".csv") for event in EVENTS),
                        *(notification(event, "%C3%A4/") for event in EVENTS),
                        notification(EVENTS[0], "out/", queue=f"{QUEUE}-2"),
                    ]
                },
            ),
        ),
        *(
            case(f"a queue's policy of the team's own: {principal}", Aws(queue=ATTRIBUTES | {"Policy": policy}))
            for principal in ("*", {"AWS": "*"}, {"Service": ["sns.amazonaws.com", "s3.amazonaws.com"]})
            for policy in [allowed("", Principal=principal, Action="SQS:*")]
        ),
        *(
            case(
                f"a key's policy of the team's own: {action}",
                Aws(key_policy=allowed("s3.amazonaws.com", Action=action)),
            )
            for action in ("kms:*", "*", ["KMS:GenerateDataKey*", "kms:Decrypt"])
        ),
        case("a bucket that never had versions", Aws(versioning=None)),
        case(
            "time to live begins",
            Aws(ttl={"TimeToLiveStatus": "ENABLING", "AttributeName": "expires_at"}),
        ),
        case("notifications of others, of all events", existing(*(notification(event) for event in EVENTS))),
        case(
            "notifications of others, with a broader prefix",
            existing(*(notification(event, "i") for event in EVENTS), filters=(KeyFilter("in/"),)),
        ),
        case(
            "notifications of others, for each kind of upload",
            existing(
                *(notification(f"s3:ObjectCreated:{kind}") for kind in ("Put", "Post", "Copy")),
                notification("s3:ObjectCreated:CompleteMultipartUpload"),
                *(notification(event) for event in EVENTS[1:]),
            ),
        ),
        case("a rule of others", replace(bridged(), delivery=Delivery.EXISTING)),
        case(
            "a release that told the audit nothing",
            Aws(
                deployed={},
                mappings=[],
                dead={},
                queue=ATTRIBUTES | {"VisibilityTimeout": "1", "RedrivePolicy": ""},
            ),
        ),
        case(
            "an imported queue that gives up late enough", imported_queue(RedrivePolicy=redrive(f"{QUEUE}-dead", "300"))
        ),
        *(
            case(f"a deployment changes the mapping: {state}", Aws(mappings=[mapping(State=state)]))
            for state in ("Creating", "Enabling", "Updating")
        ),
        *(
            case(
                f"values that synthesis takes, with a retention of {days} days",
                Aws(
                    reserved=1,
                    mappings=[mapping(BatchSize=1, MaximumBatchingWindowInSeconds=300, ScalingConfig=SCALING)],
                    queue=ATTRIBUTES | {"VisibilityTimeout": "1000", "MessageRetentionPeriod": f"{days * 86_400}"},
                    dead={"MessageRetentionPeriod": f"{days * 86_400}"},
                ),
            )
            for days in (4, 14)
        ),
        case("a function that was idle in its VPC for weeks", Aws(function=ACTIVE | {"State": "Inactive"})),
        case(
            "another stack wiped the notifications",
            Aws(notifications={}),
            f"S3 does not notify the queue of {', '.join(EVENTS)} for every key: {AGAIN}",
        ),
        case(
            "an event goes to another queue, and a filter lacks its suffix",
            Aws(
                filters=TWO_FILTERS,
                notifications={
                    "QueueConfigurations": [
                        *(notification(event, "in/") for event in EVENTS[:2]),
                        notification(EVENTS[2], "in/", queue=f"{QUEUE}-2"),
                        notification(EVENTS[3], "in/"),
                        *(notification(event, "b/") for event in EVENTS),
                    ]
                },
            ),
            f"S3 does not notify the queue of s3:LifecycleExpiration:* for prefix 'in/': {AGAIN}",
            f"S3 does not notify the queue of {', '.join(EVENTS)} for prefix 'b/' and suffix '.csv': {AGAIN}",
        ),
        case(
            "the queue's key is disabled",
            Aws(key_state="Disabled"),
            f"the queue's key key is Disabled, so that nothing can be sent: run `aws kms enable-key --key-id {KEY}`",
        ),
        case(
            "a disabled key that the queue does not use",
            Aws(
                key_state="Disabled",
                queue={name: value for name, value in ATTRIBUTES.items() if name != "KmsMasterKeyId"},
            ),
        ),
        case(
            "AWS's own key",
            Aws(queue=ATTRIBUTES | {"KmsMasterKeyId": "alias/aws/sqs"}),
            "the queue's key alias/aws/sqs is AWS's own, which s3.amazonaws.com may not use: "
            "take SSE-SQS, or a key of yours",
        ),
        case(
            "versioning was suspended",
            Aws(versioning="Suspended"),
            f"the bucket's versioning is suspended, so that overwritten objects are lost: {AGAIN}",
        ),
        case(
            "versioning was suspended, and others made the path",
            existing(*(notification(event) for event in EVENTS), versioning="Suspended"),
            f"the bucket's versioning is suspended, so that overwritten objects are lost: {AGAIN}",
        ),
        *(
            case(
                f"rows do not expire: {ttl}",
                Aws(ttl=ttl),
                f"rows of table do not expire, deployed with time to live by expires_at: {AGAIN}",
            )
            for ttl in ({"TimeToLiveStatus": "DISABLED"}, {}, {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"})
        ),
        case(
            "the rule is gone",
            bridged(rules={}),
            *(f"no EventBridge rule sends {kind!r} for every key to the queue: {AGAIN}" for kind in SENT),
        ),
        *(
            case(
                f"the rule is disabled, delivery {delivery}",
                replace(bridged(rules={"Delivery": rule(*SENT, state="DISABLED")}), delivery=delivery),
                "the EventBridge rule Delivery is disabled: run `aws events enable-rule --name Delivery`",
            )
            for delivery in (Delivery.EVENTBRIDGE, Delivery.EXISTING)
        ),
        case(
            "the pattern of a rule lets less through",
            bridged(filters=TWO_FILTERS, rules={"One": rule(*SENT, prefix="in/"), "Two": rule("Object Created")}),
            f"no EventBridge rule sends 'Object Deleted' for prefix 'b/' and suffix '.csv' to the queue: {AGAIN}",
            f"no EventBridge rule sends {RESTORED!r} for prefix 'b/' and suffix '.csv' to the queue: {AGAIN}",
        ),
        case(
            "the bucket does not tell EventBridge",
            bridged(notifications={}),
            f"the bucket does not tell EventBridge of its changes: {AGAIN}",
        ),
        *(
            case(
                f"a rule rewrites the event: {name}",
                bridged(target={name: "$.detail"}),
                f"the EventBridge rule Delivery rewrites the event ({name}), "
                f"so that the consumer cannot read it: {AGAIN}",
            )
            for name in ("Input", "InputPath", "InputTransformer")
        ),
        case(
            "nothing sends",
            existing(*(notification(event, queue=f"{QUEUE}-2") for event in EVENTS), queue=ATTRIBUTES | {"Policy": ""}),
            f"nothing sends {', '.join(EVENTS)} for every key to the queue: {MADE}",
        ),
        case(
            "removals are not sent",
            existing(notification(EVENTS[0]), notification(EVENTS[3])),
            f"nothing sends {EVENTS[1]}, {EVENTS[2]} for every key to the queue: {MADE}",
        ),
        case(
            "only a part of the keys or events is sent",
            existing(
                *(notification(event, "in/a/") for event in EVENTS[1:]),
                notification("s3:ObjectCreated:Put"),
                filters=(KeyFilter("in/"),),
            ),
            f"{', '.join(EVENTS)} reach the queue for a part of prefix 'in/' only: {MADE}",
        ),
        case(
            "the visibility timeout of the queue",
            Aws(queue=ATTRIBUTES | {"VisibilityTimeout": "30"}),
            f"the queue's visibility timeout is 30 s, deployed as 220 s: {AGAIN}",
        ),
        case(
            "the retention of the queue",
            Aws(queue=ATTRIBUTES | {"MessageRetentionPeriod": "60"}),
            f"the queue's retention is 60 s, deployed as 345,600 s: {AGAIN}",
        ),
        case(
            "no redrive policy",
            Aws(queue=ATTRIBUTES | {"RedrivePolicy": ""}),
            f"{NO_REDRIVE} at the end of its retention: {AGAIN}",
        ),
        case(
            "too few receives",
            Aws(queue=ATTRIBUTES | {"RedrivePolicy": redrive(f"{QUEUE}-dead", "3")}),
            f"the queue gives a message up after 3 receives, and the consumer counts on 1,000: {AGAIN}",
        ),
        case(
            "another dead-letter queue",
            Aws(queue=ATTRIBUTES | {"RedrivePolicy": redrive("x", 1_000)}),
            f"the queue gives messages up to x, and the pipeline's dead-letter queue is {QUEUE}-dead: {AGAIN}",
        ),
        case(
            "a limit of the queue below an event",
            Aws(queue=ATTRIBUTES | {"MaximumMessageSize": "1024"}),
            f"the queue takes messages of 1,024 bytes at most, and an event may be larger: {SET} {LARGER}`",
        ),
        case(
            "the retention of the dead-letter queue",
            Aws(dead={"MessageRetentionPeriod": "60"}),
            f"the dead-letter queue's retention is 60 s, less than the queue's 345,600 s: {AGAIN}",
        ),
        *(
            case(
                f"the event source mapping is {state}",
                Aws(mappings=[mapping(State=state)]),
                f"{MAPPING} is {state}, so that no message is processed: {UPDATE} --enabled`",
            )
            for state in ("Disabled", "Disabling", "Deleting")
        ),
        case(
            "the mapping reports no failures by item",
            Aws(mappings=[mapping(FunctionResponseTypes=[])]),
            f"{MAPPING} does not report failures by item, so that failed messages are deleted: {AGAIN}",
        ),
        case(
            "the mapping has a filter",
            Aws(mappings=[mapping(FilterCriteria={"Filters": [{"Pattern": "{}"}]})]),
            f"{MAPPING} has a filter, so that Lambda deletes {LEFT_OUT}: {UPDATE} --filter-criteria '{{}}'`",
        ),
        case("the mapping is gone", Aws(mappings=[]), f"{MAPPING} to Consumer is gone: {AGAIN}"),
        case(
            "the function has no concurrency",
            Aws(reserved=0),
            f"the reserved concurrency of Consumer is 0, so that nothing is processed: {DELETE}",
        ),
        case(
            "the function cannot be called",
            Aws(function=ACTIVE | {"State": "Failed", "StateReason": "the key is disabled"}),
            f"Consumer cannot be called, the key is disabled: {AGAIN}",
        ),
        case(
            "the last update of the function failed",
            Aws(function=ACTIVE | {"LastUpdateStatus": "Failed", "LastUpdateStatusReasonCode": "InvalidSubnet"}),
            f"the last update of Consumer failed, InvalidSubnet: {AGAIN}",
        ),
        case(
            "the timeout of the function",
            Aws(function=ACTIVE | {"Timeout": 900}),
            f"the timeout of Consumer is 900 s, deployed as 70 s: {AGAIN}",
        ),
    ],
)
def test_the_audit_says(aws: Aws, problems: list[str]) -> None:
    """Each deployed setting and each part of the path, with its repair. Without a problem, no alarm goes off."""
    looked = aws.look()
    assert (looked.problems, looked.unknown) == (problems, [])


@pytest.mark.failure_mode("F46")
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
def test_the_queues_policy_was_edited(policy: str | None) -> None:
    """The stack itself denies all requests without TLS."""
    aws = Aws()
    aws.queue = {name: text for name, text in (aws.queue | {"Policy": policy}).items() if text is not None}
    (said,) = aws.problems()
    begin = "the queue's policy does not let s3.amazonaws.com for arn:aws:s3:::inbox send, "
    assert said.startswith(begin.replace("inbox", BUCKET))
    assert said.endswith(f": {AGAIN}")


@pytest.mark.failure_mode("F46")
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
def test_the_keys_policy_was_edited(policy: str, lacking: str) -> None:
    """S3 may not do everything that an account may do with its key."""
    for said, action in zip(Aws(key_policy=policy).problems(), lacking.split(" and "), strict=True):
        assert said.startswith(f"the policy of the queue's key key does not let s3.amazonaws.com use {action}, ")
        assert said.endswith(f": {AGAIN}")


@pytest.mark.failure_mode("F784")
def test_a_pipeline_that_waits_for_tags_gets_their_events() -> None:
    """Without them, it looks for tags more and more rarely."""
    tag = AwaitedTag("scan", ["clean"])
    aws = Aws(ready_when=tag)
    assert aws.problems() == [f"S3 does not notify the queue of {TAGGED} for every key: {AGAIN}"]
    aws.notifications["QueueConfigurations"].append(notification(TAGGED))
    assert aws.problems() == []
    aws = existing(*(notification(event) for event in EVENTS), ready_when=tag)
    assert aws.problems() == [f"nothing sends {TAGGED} for every key to the queue: {MADE}"]
    aws.notifications["QueueConfigurations"].append(notification("s3:ObjectTagging:*"))
    assert aws.problems() == []
    aws = bridged(ready_when=tag)
    [text] = aws.problems()
    assert text.startswith("no EventBridge rule sends 'Object Tags Added' for every key to the queue")
    aws.rules = {"Delivery": rule("Object Created", "Object Deleted", RESTORED, "Object Tags Added")}
    assert aws.problems() == []


class TestExistingPath:
    """`Delivery.EXISTING`: who sends, which events, and through which filters."""

    @pytest.mark.failure_mode("F311")
    def test_a_rule_sends_the_rest(self) -> None:
        aws = existing(notification(EVENTS[0]))
        aws.notifications["EventBridgeConfiguration"] = {}
        aws.rules = {"Theirs": rule("Object Deleted", RESTORED)}
        principals = {"Service": ["s3.amazonaws.com", "events.amazonaws.com"]}
        aws.queue["Policy"] = allowed("", Principal=principals)
        aws.key_policy = allowed("", Principal=principals, Action=KEY_ACTIONS)
        assert aws.problems() == []
        del aws.notifications["EventBridgeConfiguration"]
        assert len(aws.problems()) == 1

    @pytest.mark.failure_mode("F311")
    def test_a_topic_sends(self) -> None:
        topics = [{"TopicArn": TOPIC, "Events": EVENTS}]
        aws = Aws(delivery=Delivery.EXISTING, notifications={"TopicConfigurations": topics})
        aws.queue["Policy"] = allowed("sns.amazonaws.com", Condition={"ArnEquals": {"aws:SourceArn": TOPIC}})
        aws.key_policy = allowed("sns.amazonaws.com", Action=KEY_ACTIONS)
        aws.subscriptions = {TOPIC: [QUEUE]}
        assert aws.problems() == []
        aws.subscription_filter = '{"prefix": ["in/"]}'
        [text] = aws.problems()
        assert text.startswith(f"unknown: whether {TOPIC} sends all changes, its subscription has the filter policy")
        aws.subscriptions = {TOPIC: [f"{QUEUE}-2"]}
        assert aws.problems() == [f"nothing sends {', '.join(EVENTS)} for every key to the queue: {MADE}"]

    @pytest.mark.failure_mode("F311")
    @pytest.mark.parametrize(
        "notifications",
        [
            {"LambdaFunctionConfigurations": [{"LambdaFunctionArn": FUNCTION, "Events": EVENTS}]},
            {"TopicConfigurations": [{"TopicArn": TOPIC.replace("1111", "9999"), "Events": EVENTS}]},
        ],
    )
    def test_what_may_forward_is_unknown(self, notifications: dict[str, Any]) -> None:
        """A function, or a topic of another account."""
        aws = Aws(delivery=Delivery.EXISTING, notifications=notifications)
        [text] = aws.look().unknown
        assert text.startswith(f"unknown: whether arn:aws:{'lambda' if 'Lambda' in str(notifications) else 'sns'}:")
        assert f"sends {', '.join(EVENTS)} for every key to the queue" in text
        assert aws.look().problems == []

    @pytest.mark.failure_mode("F311")
    def test_the_senders_need_the_queues_policy(self) -> None:
        aws = existing(*(notification(event) for event in EVENTS))
        aws.queue["Policy"] = ""
        [text] = aws.problems()
        assert "the queue's policy does not let s3.amazonaws.com for arn:aws:s3:::" in text

    @pytest.mark.failure_mode("F311")
    @pytest.mark.parametrize(("account", "unknown"), [(ACCOUNT, 0), ("444455556666", 1)])
    def test_a_bucket_of_an_unknown_account_is_probably_of_the_queues(self, account: str, unknown: int) -> None:
        """Otherwise the condition of each imported bucket would be unknown."""
        deployed = {name: value for name, value in DEPLOYED.items() if name != "account"}
        aws = existing(*(notification(event) for event in EVENTS), deployed=deployed)
        condition = {"StringEquals": {"aws:SourceAccount": account}}
        aws.queue["Policy"] = allowed("s3.amazonaws.com", Condition=condition)
        looked = aws.look()
        assert (looked.problems, len(looked.unknown)) == ([], unknown)


class TestSettings:
    """F117: each deployed setting, with its repair."""

    @pytest.mark.failure_mode("F117")
    def test_an_imported_queue_is_repaired_by_hand(self) -> None:
        """No stack of the app makes it. A setting that the app does not know is not compared."""
        aws = imported_queue()
        aws.queue |= {"VisibilityTimeout": "30", "MessageRetentionPeriod": "60"}
        (said,) = aws.problems()
        assert said.endswith(f"deployed as 220 s: {SET} VisibilityTimeout=220`")

    @pytest.mark.failure_mode("F312")
    @pytest.mark.parametrize(
        ("policy", "said"),
        [
            ({}, NO_REDRIVE),
            (
                {"deadLetterTargetArn": "x", "maxReceiveCount": 1_000},
                f"the queue gives messages up to x, and the pipeline's dead-letter queue is {QUEUE}-dead",
            ),
            (
                {"deadLetterTargetArn": f"{QUEUE}-dead", "maxReceiveCount": "299"},
                "the queue gives a message up after 299 receives, and the consumer counts on 300",
            ),
        ],
    )
    def test_the_redrive_policy_of_an_imported_queue(self, policy: dict[str, Any], said: str) -> None:
        """Synthesis does not see it. The command has the whole policy."""
        aws = imported_queue()
        aws.queue["RedrivePolicy"] = json.dumps(policy) if policy else ""
        [problem] = aws.problems()
        assert problem.startswith(said)
        redrive = json.dumps({"deadLetterTargetArn": f"{QUEUE}-dead", "maxReceiveCount": 1_000})
        attributes = json.dumps({"RedrivePolicy": redrive})
        set_it = f"aws sqs set-queue-attributes --queue-url https://sqs/queue --attributes '{attributes}'"
        assert problem.endswith(f": run `{set_it}`")

    @pytest.mark.failure_mode("F261")
    def test_a_dead_letter_queue_with_a_lower_limit(self) -> None:
        """It refuses the copy of a longer message. CloudFormation reverts only declared properties."""
        aws = Aws()
        aws.dead["MaximumMessageSize"] = "262143"
        [said] = aws.problems()
        assert "takes messages of 262,143 bytes at most, and the queue of 262,144" in said
        assert said.endswith("--attributes MaximumMessageSize=262144`")
        aws.dead["MaximumMessageSize"] = "262144"
        assert aws.problems() == []

    @pytest.mark.failure_mode("F160")
    def test_a_pause_is_reported_with_its_reason(self) -> None:
        """And with the command that ends it. A mapping that takes messages costs no further request."""
        pause = {"paused_by": "arn:aws:iam::1:user/ana", "because": "the warehouse is being moved"}
        (said,) = Aws(mappings=[mapping(State="Disabled")], pause=pause).problems()
        assert said == (
            "paused by arn:aws:iam::1:user/ana because the warehouse is being moved, so that no message is processed: "
            "run `intake-ledger resume`"
        )
        running = Aws(pause=pause)
        assert running.problems() == []
        assert "GetItem" not in running.called

    @pytest.mark.failure_mode("F128")
    def test_another_function_takes_messages(self) -> None:
        """The problem names the mapping and its command. A disabled mapping takes no messages."""
        arn = "arn:aws:lambda:eu-central-1:111122223333:function:Thief"
        aws = Aws(mappings=[mapping(), mapping(UUID="2", FunctionArn=arn)])
        (said,) = aws.problems()
        assert said.startswith("Thief takes messages of the queue too, which never reach the ledger: ")
        assert said.endswith("and run `aws lambda delete-event-source-mapping --uuid 2`")
        aws.mappings[1]["State"] = "Disabled"
        assert aws.problems() == []

    @pytest.mark.failure_mode("F117")
    def test_a_key_that_will_be_deleted(self) -> None:
        """Both commands, in order."""
        (said,) = Aws(key_state="PendingDeletion").problems()
        cancel, enable = f"`aws kms cancel-key-deletion --key-id {KEY}`", f"`aws kms enable-key --key-id {KEY}`"
        assert said.endswith(f"run {cancel} and {enable}")

    @pytest.mark.failure_mode("F117")
    def test_the_policy_is_for_another_source(self) -> None:
        """Another bucket's, or another account's; for a rule, another rule's."""
        aws = Aws()
        aws.queue["Policy"] = allowed(
            "s3.amazonaws.com", Condition={"ArnLike": {"aws:SourceArn": "arn:aws:s3:::another"}}
        )
        (said,) = aws.problems()
        assert "no statement allows it" in said
        aws.queue["Policy"] = allowed("s3.amazonaws.com", Condition={"StringEquals": {"aws:SourceAccount": "1"}})
        assert len(aws.problems()) == 1
        other = bridged()
        other.queue["Policy"] = allowed("events.amazonaws.com", Condition={"ArnEquals": {"aws:SourceArn": f"{RULE}2"}})
        (said,) = other.problems()
        assert f"does not let events.amazonaws.com for {RULE} send, no statement allows it" in said

    @pytest.mark.failure_mode("F117")
    def test_a_condition_that_cannot_be_evaluated_is_unknown(self) -> None:
        """Neither fine nor broken, with the condition in words."""
        aws = Aws()
        condition = {"StringEquals": {"aws:SourceOrgID": "o-1"}}
        aws.queue["Policy"] = allowed("s3.amazonaws.com", Condition=condition)
        aws.key_policy = allowed("s3.amazonaws.com", Action=KEY_ACTIONS, Condition=condition)
        looked = aws.look()
        assert (looked.problems, len(looked.unknown)) == ([], 3)
        assert all(
            unknown.startswith("unknown: whether ") and json.dumps(condition) in unknown for unknown in looked.unknown
        )

    def test_a_custom_resource_is_repaired_by_hand(self) -> None:
        """CloudFormation sees no drift in it."""
        (said,) = Aws(notifications={}, deployed=DEPLOYED | {"custom": True}).problems()
        assert "run `aws s3api put-bucket-notification-configuration" in said
        assert said.endswith(HAND)


TIDY: dict[str, Any] = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "in/"}, "Expiration": {"Days": 7}}


@pytest.mark.failure_mode("F242")
def test_a_deployed_lifecycle_rule_that_removes_objects_early_is_a_problem() -> None:
    """Also of an imported bucket, whose rules synthesis cannot see. The life is that of the deployed queues."""
    aws = Aws(lifecycle=[TIDY])
    said = "the bucket's lifecycle rule 'tidy' removes objects after 7 days, and a message may wait for 18 days"
    assert aws.problems() == [f"{said}: {AGAIN}"]
    other = {"QueueConfigurations": [notification(event, "docs/") for event in EVENTS]}
    assert Aws(lifecycle=[TIDY], filters=(KeyFilter("docs/"),), notifications=other).problems() == []
    aws.deployed = DEPLOYED | {"stacks": {"bucket": ""}}
    assert aws.problems()[0].startswith(f"{said}: run `aws s3api put-bucket-lifecycle-configuration --bucket {BUCKET}")


@pytest.mark.failure_mode("F242")
def test_a_deployed_rule_for_tagged_objects_is_unknown() -> None:
    """The pipeline does not know which objects have the tag."""
    looked = Aws(lifecycle=[TIDY | {"Filter": {"Tag": {"Key": "state", "Value": "done"}}}]).look()
    assert looked.problems == []
    [said] = looked.unknown
    assert said.endswith("if they have the tag state=done: give it to processed objects only")


GONE = {
    "GetQueueAttributes": ("AWS.SimpleQueueService.NonExistentQueue", "the queue is gone"),
    "GetQueueAttributes of dead letters": ("QueueDoesNotExist", "the dead-letter queue is gone"),
    "GetBucketNotificationConfiguration": ("NoSuchBucket", "the bucket is gone"),
    "GetBucketVersioning": ("NoSuchBucket", "the bucket is gone"),
    "GetBucketLifecycleConfiguration": ("NoSuchBucket", "the bucket is gone"),
    "DescribeKey": ("NotFoundException", "the queue's key is gone"),
    "GetFunctionConfiguration": ("ResourceNotFoundException", "the function Consumer is gone"),
    "DescribeTimeToLive": ("ResourceNotFoundException", "the table is gone"),
}
LOOKS = [*GONE, "ListEventSourceMappings", "GetFunctionConcurrency", "GetKeyPolicy"]


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("operation", GONE)
def test_a_deleted_resource_is_a_finding(operation: str) -> None:
    """And no crash; everything else is still checked."""
    code, said = GONE[operation]
    looked = Aws(fails={operation: refusal(code, operation)}).look()
    assert looked.problems == [f"{said}: {AGAIN}"]
    needed = [name for name in ("the queue", "the bucket", "the table") if said == f"{name} is gone"]
    assert looked.gone == needed, "without these no run can begin"


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("operation", LOOKS)
@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException"])
def test_a_permission_that_is_missing_is_a_finding(operation: str, code: str) -> None:
    """And no crash. The alarm goes off, since this part is not checked any more."""
    looked = Aws(fails={operation: refusal(code, operation.split(maxsplit=1)[0])}).look()
    (said,) = looked.problems
    assert said.startswith("unknown: ")
    assert said.endswith(f"could not be looked at, the audit's role may not {operation.split(maxsplit=1)[0]}: {AGAIN}")
    assert looked.unknown == []


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("operation", LOOKS)
@pytest.mark.parametrize(
    "error",
    [refusal("ThrottlingException", "Any"), ConnectTimeoutError(endpoint_url="https://lambda")],
    ids=["throttled", "no way there"],
)
def test_a_service_that_does_not_answer_is_unknown(operation: str, error: Exception) -> None:
    """The alarm would go off in a VPC without a way there."""
    looked = Aws(fails={operation: error}).look()
    (said,) = looked.unknown
    assert said.startswith("unknown: ")
    assert looked.problems == []
