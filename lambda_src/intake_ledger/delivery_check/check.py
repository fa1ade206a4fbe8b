"""Checks the whole path from the bucket to the ledger at each tick: does everything still have its deployed settings?

If a person edits a queue policy, disables a rule or shortens a retention, the queue stays empty and no alarm tells it.
This module asks AWS. `policies` and `deployed` decide.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.delivery_check.deployed import (
    NOT_POLLING,
    Deployed,
    dead_letter_problems,
    describe_keys,
    function_problems,
    mapping_problems,
    prefix_and_suffix,
    queue_problems,
    table_problems,
)
from intake_ledger.delivery_check.lifecycle import DAY_SECONDS, early_ends
from intake_ledger.delivery_check.looked import UNKNOWN, Looked, describe_pause
from intake_ledger.delivery_check.policies import Caller, PolicyDecision, decide
from intake_ledger.delivery_check.sent_events import DETAIL_TYPES, OF_EACH, TAGGED, Notification, lacking_events
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.settings_audit import AuditSettings, Delivery

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

_KEY_ACTIONS = ("kms:GenerateDataKey", "kms:Decrypt")
"""Actions that a sender to an encrypted queue uses (SQS developer guide, "Key management")."""
_S3, _EVENTBRIDGE, _SNS = "s3.amazonaws.com", "events.amazonaws.com", "sns.amazonaws.com"
"""The services that may send to the queue."""
_REWRITES = ("Input", "InputPath", "InputTransformer")
_LONGEST_RETENTION = 14 * DAY_SECONDS
"""The longest time for which SQS keeps a message. That of an imported dead-letter queue is not known."""


class DeliveryCheck:
    """Checks bucket, rule, queues, key, mapping, function and table. `make_client` makes a boto3 client by its name."""

    def __init__(
        self,
        settings: AuditSettings,
        *,
        s3: "S3Client",
        sqs: "SQSClient",
        dynamodb: "DynamoDBClient",
        make_client: Callable[[str], Any],
    ) -> None:
        self._settings = settings
        self._deployed = Deployed.read(settings.deployed)
        self._s3 = s3
        self._sqs = sqs
        self._dynamodb = dynamodb
        self._make_client = make_client
        self._events = OF_EACH if settings.ready_when is None else (*OF_EACH, TAGGED)
        self._detail_types = tuple(dict.fromkeys(DETAIL_TYPES[event] for event in self._events))
        self._bucket: Any = {"Bucket": settings.bucket}
        if settings.bucket_owner:
            self._bucket["ExpectedBucketOwner"] = settings.bucket_owner

    def look(self) -> Looked:
        """Check everything. A deleted resource or a missing permission is a result, never an error."""
        looked, queue = Looked(), dict[str, str]()
        self._run(looked, "the queue", "queue", lambda: self._queue(queue))
        if self._deployed.dead:
            self._run(looked, "the dead-letter queue", "dead", lambda: self._dead_letters(queue))
        if queue:
            self._way(looked, queue)
        self._run(looked, "the bucket's versioning", "bucket", self._versioning)
        if queue:
            self._run(looked, "the bucket's lifecycle rules", "bucket", lambda: self._lifecycle(queue))
        if self._deployed.function:
            self._run(looked, f"the function {self._deployed.function}", "function", self._function)
        self._run(looked, f"the table {self._settings.table}", "table", self._table)
        return looked

    def _way(self, looked: Looked, queue: Mapping[str, str]) -> None:
        """Check everything that needs the queue's ARN."""
        arn = queue["QueueArn"]
        callers: list[Caller] = []
        if self._settings.delivery is Delivery.S3:
            callers = [self._bucket_as_caller(arn)]
            self._run(looked, "the bucket's notifications", "bucket", lambda: self._notifications(arn))
        elif self._settings.delivery is Delivery.EVENTBRIDGE:
            self._run(looked, "the bucket's notifications", "bucket", self._event_bridge)
            self._run(looked, "the EventBridge rule", "rule", lambda: self._rule(arn, callers))
        else:
            self._run(looked, "the path from the bucket to the queue", "bucket", lambda: self._others(arn, callers))
        self._run(looked, "the queue's policy", "queue", lambda: self._queue_policy(queue, callers))
        self._run(looked, "the queue's key", "key", lambda: self._key(queue.get("KmsMasterKeyId", ""), callers))
        if self._deployed.function:
            self._run(looked, "the event source mapping", "function", lambda: self._mappings(arn))

    def _run(self, looked: Looked, what: str, resource: str, check: Callable[[], Iterator[str]]) -> None:
        looked.add(check, what, resource, self._deployed)

    def _queue(self, into: dict[str, str]) -> Iterator[str]:
        url, names = self._settings.queue_url, ["All"]
        into |= self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names).get("Attributes", {})  # type: ignore[arg-type] # a list of literals
        yield from queue_problems(self._deployed, url, into)

    def _dead_letters(self, queue: Mapping[str, str]) -> Iterator[str]:
        dead = self._sqs.get_queue_attributes(
            QueueUrl=self._deployed.dead, AttributeNames=["MessageRetentionPeriod", "MaximumMessageSize"]
        ).get("Attributes", {})
        yield from dead_letter_problems(self._deployed, dead, queue)  # type: ignore[arg-type] # the same

    def _bucket_as_caller(self, queue_arn: str) -> Caller:
        partition = queue_arn.split(":")[1]
        account = self._deployed.account or self._settings.bucket_owner
        return Caller(_S3, f"arn:{partition}:s3:::{self._settings.bucket}", account)

    def _notifications(self, queue_arn: str) -> Iterator[str]:
        configuration = self._s3.get_bucket_notification_configuration(**self._bucket)
        there = set(_notifications_to(queue_arn, configuration.get("QueueConfigurations", ()), "QueueArn"))
        again = self._deployed.again("bucket")
        if self._deployed.custom:
            # CloudFormation does not detect drift of custom resources.
            again = self._put_notifications()
        for keys in self._settings.filters or (KeyFilter(),):
            lacking = [event for event in self._events if Notification(event, keys) not in there]
            if lacking:
                yield f"S3 does not notify the queue of {', '.join(lacking)} for {describe_keys(keys)}: {again}"

    def _put_notifications(self) -> str:
        return (
            f"run `aws s3api put-bucket-notification-configuration --bucket {self._settings.bucket} "
            "--notification-configuration file://notifications.json` with the bucket's other notifications in it"
        )

    def _others(self, queue_arn: str, into: list[Caller]) -> Iterator[str]:
        """The path of `Delivery.EXISTING`: notifications, topics and rules that others made."""
        configuration: Any = self._s3.get_bucket_notification_configuration(**self._bucket)
        sent = [*_notifications_to(queue_arn, configuration.get("QueueConfigurations", ()), "QueueArn")]
        into += [self._bucket_as_caller(queue_arn)] if sent else []
        may_forward = [entry["LambdaFunctionArn"] for entry in configuration.get("LambdaFunctionConfigurations", ())]
        topics = configuration.get("TopicConfigurations", ())
        for topic in dict.fromkeys(entry["TopicArn"] for entry in topics):
            account, sns = topic.split(":")[4], self._make_client("sns")
            if account != queue_arn.split(":")[4]:
                may_forward.append(topic)
            elif subscription := self._subscription(sns, topic, queue_arn):
                sent += _notifications_to(topic, topics, "TopicArn")
                into.append(Caller(_SNS, topic, account))
                yield from self._subscription_filter(sns, topic, subscription)
        every = self._settings.filters or (KeyFilter(),)
        passing: dict[KeyFilter, list[str]] = {}
        lacks = partial(lacking_events, events=self._events)
        if "EventBridgeConfiguration" in configuration and any(map(any, (lacks(one, sent) for one in every))):
            events = self._make_client("events")
            rules = self._rules(events, queue_arn, into)
            yield from self._rewrites(events, rules, queue_arn)
            passing = {
                keys: [kind for kind in self._detail_types if self._passes(events, rules, kind, keys)] for keys in every
            }
            if any(map(any, (lacks(one, sent, passing[one]) for one in every))) and (off := _disabled(rules)):
                yield off
                return
        made = f"add them where the notification is made, or {self._put_notifications()}"
        for keys in every:
            lacking, named = lacks(keys, sent, passing.get(keys, ())), describe_keys(keys)
            if lacking.whole and may_forward:
                others = " or ".join(may_forward)
                yield f"{UNKNOWN}whether {others} sends {', '.join(lacking.whole)} for {named} to the queue"
            elif lacking.whole:
                yield f"nothing sends {', '.join(lacking.whole)} for {named} to the queue: {made}"
            if lacking.part:
                yield f"{', '.join(lacking.part)} reach the queue for a part of {named} only: {made}"

    @staticmethod
    def _subscription(sns: Any, topic: str, queue_arn: str) -> str:
        """The ARN of the queue's subscription, or an empty text."""
        token = ""
        while True:
            more = {"NextToken": token} if token else {}
            page = sns.list_subscriptions_by_topic(TopicArn=topic, **more)
            for subscription in page["Subscriptions"]:
                if subscription["Endpoint"] == queue_arn:
                    return str(subscription["SubscriptionArn"])
            token = page.get("NextToken", "")
            if not token:
                return ""

    @staticmethod
    def _subscription_filter(sns: Any, topic: str, subscription: str) -> Iterator[str]:
        attributes = sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
        if policy := attributes.get("FilterPolicy"):
            yield f"{UNKNOWN}whether {topic} sends all changes, its subscription has the filter policy {policy}"

    def _event_bridge(self) -> Iterator[str]:
        if "EventBridgeConfiguration" not in self._s3.get_bucket_notification_configuration(**self._bucket):
            yield f"the bucket does not tell EventBridge of its changes: {self._deployed.again('bucket')}"

    @staticmethod
    def _rules(events: Any, queue_arn: str, into: list[Caller]) -> list[dict[str, Any]]:
        """The rules that have the queue as their target."""
        names = events.list_rule_names_by_target(TargetArn=queue_arn)["RuleNames"]
        rules = [events.describe_rule(Name=name) for name in names]
        into += [Caller(_EVENTBRIDGE, rule["Arn"], queue_arn.split(":")[4]) for rule in rules]
        return rules

    def _rewrites(self, events: Any, rules: Sequence[Mapping[str, Any]], queue_arn: str) -> Iterator[str]:
        for rule in _enabled(rules):
            targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
            if changed := _rewritten(targets, queue_arn):
                yield (
                    f"the EventBridge rule {rule['Name']} rewrites the event ({changed}), so that the consumer cannot "
                    f"read it: {self._deployed.again('rule')}"
                )

    def _rule(self, queue_arn: str, into: list[Caller]) -> Iterator[str]:
        events = self._make_client("events")
        rules = self._rules(events, queue_arn, into)
        yield from self._rewrites(events, rules, queue_arn)
        lacking = [
            (kind, keys)
            for keys in self._settings.filters or (KeyFilter(),)
            for kind in self._detail_types
            if not self._passes(events, rules, kind, keys)
        ]
        if lacking and (off := _disabled(rules)):
            yield off
            return
        for kind, keys in lacking:
            again = self._deployed.again("rule")
            yield f"no EventBridge rule sends {kind!r} for {describe_keys(keys)} to the queue: {again}"

    def _passes(self, events: Any, rules: Sequence[Mapping[str, Any]], kind: str, keys: KeyFilter) -> bool:
        event = json.dumps(self._event(kind, f"{keys.prefix}x{keys.suffix}"))
        return any(
            events.test_event_pattern(EventPattern=rule["EventPattern"], Event=event)["Result"]
            for rule in _enabled(rules)
        )

    def _event(self, kind: str, key: str) -> dict[str, Any]:
        return {
            "id": "1",
            "account": "111122223333",
            "time": "2026-01-01T00:00:00Z",
            "region": "eu-central-1",
            "resources": [f"arn:aws:s3:::{self._settings.bucket}"],
            "source": "aws.s3",
            "detail-type": kind,
            "detail": {"bucket": {"name": self._settings.bucket}, "object": {"key": key}},
        }

    def _queue_policy(self, queue: Mapping[str, str], callers: Sequence[Caller]) -> Iterator[str]:
        by_hand = f"aws sqs set-queue-attributes --queue-url {self._settings.queue_url} --attributes file://policy.json"
        again = self._deployed.again("queue", by_hand)
        for caller in callers:
            decision = _decide(queue.get("Policy", ""), caller, "sqs:SendMessage", queue["QueueArn"])
            whose = f"{caller.service} for {caller.source_arn}" if caller.source_arn else caller.service
            if decision.allowed is None:
                yield f"{UNKNOWN}whether the queue's policy lets {whose} send, {decision.reason}"
            elif not decision.allowed:
                yield f"the queue's policy does not let {whose} send, {decision.reason}: {again}"

    def _key(self, name: str, callers: Sequence[Caller]) -> Iterator[str]:
        if not name:
            return
        if name.startswith("alias/aws/") and callers:
            # The policy of AWS's own keys cannot be changed (S3 user guide, "Granting permissions to publish event
            # notification messages to a destination").
            service = callers[0].service
            yield f"the queue's key {name} is AWS's own, which {service} may not use: take SSE-SQS, or a key of yours"
            return
        kms = self._make_client("kms")
        key = kms.describe_key(KeyId=name)["KeyMetadata"]
        if key["KeyState"] != "Enabled":
            enable = f"`aws kms enable-key --key-id {key['Arn']}`"
            if key["KeyState"] == "PendingDeletion":
                enable = f"`aws kms cancel-key-deletion --key-id {key['Arn']}` and {enable}"
            yield f"the queue's key {name} is {key['KeyState']}, so that nothing can be sent: run {enable}"
        if not callers:
            return
        policy = kms.get_key_policy(KeyId=key["Arn"], PolicyName="default")["Policy"]
        for caller in callers:
            for action in _KEY_ACTIONS:
                decision = _decide(policy, caller, action, key["Arn"])
                if decision.allowed is None:
                    lets = f"whether the policy of the queue's key lets {caller.service} use {action}"
                    yield f"{UNKNOWN}{lets}, {decision.reason}"
                elif not decision.allowed:
                    yield (
                        f"the policy of the queue's key {name} does not let {caller.service} use {action}, "
                        f"{decision.reason}: {self._deployed.again('key')}"
                    )

    def _versioning(self) -> Iterator[str]:
        # A bucket that never had versions has no status. That was the team's choice.
        if self._s3.get_bucket_versioning(**self._bucket).get("Status") == "Suspended":
            by_hand = (
                f"aws s3api put-bucket-versioning --bucket {self._settings.bucket} "
                "--versioning-configuration Status=Enabled"
            )
            again = self._deployed.again("bucket", by_hand)
            yield f"the bucket's versioning is suspended, so that overwritten objects are lost: {again}"

    def _lifecycle(self, queue: Mapping[str, str]) -> Iterator[str]:
        bucket = self._settings.bucket
        try:
            rules: Any = self._s3.get_bucket_lifecycle_configuration(**self._bucket).get("Rules", ())
        except ClientError as error:
            if error.response["Error"].get("Code") != "NoSuchLifecycleConfiguration":
                raise
            return
        life = int(queue.get("MessageRetentionPeriod", 0)) + (self._deployed.dead_retention or _LONGEST_RETENTION)
        every_version = self._settings.ordering is Ordering.EVERY_VERSION
        by_hand = f"aws s3api put-bucket-lifecycle-configuration --bucket {bucket} --lifecycle-configuration file://rules.json"
        for end in early_ends(rules, filters=self._settings.filters, life_seconds=life, every_version=every_version):
            said = f"the bucket's lifecycle rule {end.rule!r} {end.text}"
            if end.tags:
                tags = " and ".join(end.tags)
                yield f"{UNKNOWN}{said}, if they have the tag {tags}: give it to processed objects only"
            else:
                waits = f"a message may wait for {life / DAY_SECONDS:.3g} days"
                yield f"{said}, and {waits}: {self._deployed.again('bucket', by_hand)}"

    def _mappings(self, queue_arn: str) -> Iterator[str]:
        answer = self._make_client("lambda").list_event_source_mappings(EventSourceArn=queue_arn)
        for problem in mapping_problems(self._deployed, answer["EventSourceMappings"]):
            # One more read, and only while the mapping is disabled.
            is_off = NOT_POLLING in problem
            paused = describe_pause(self._dynamodb, self._settings.table, self._settings.pipeline) if is_off else ""
            yield paused or problem

    def _function(self) -> Iterator[str]:
        functions, name = self._make_client("lambda"), self._deployed.function
        configuration = functions.get_function_configuration(FunctionName=name)
        reserved = functions.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")
        yield from function_problems(self._deployed, configuration, reserved)

    def _table(self) -> Iterator[str]:
        name = self._settings.table
        time_to_live = self._dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        yield from table_problems(self._deployed, name, time_to_live)


def _rewritten(targets: Sequence[Mapping[str, Any]], queue_arn: str) -> str:
    """The setting of the queue's target that replaces the event by something else, if there is one."""
    return ", ".join(name for target in targets if target["Arn"] == queue_arn for name in _REWRITES if target.get(name))


def _decide(policy: str, caller: Caller, action: str, resource: str) -> PolicyDecision:
    """Decide. A bucket whose account is not known is taken for one of the resource's account, if that answers it."""
    decision = decide(policy, caller, action, resource)
    if decision.allowed is None and caller.account is None:
        same = decide(policy, replace(caller, account=resource.split(":")[4]), action, resource)
        return same if same.allowed else decision
    return decision


def _enabled(rules: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [rule for rule in rules if rule["State"] != "DISABLED" and rule.get("EventPattern")]


def _disabled(rules: Sequence[Mapping[str, Any]]) -> str:
    """A problem with each disabled rule, or an empty text."""
    # The template does not declare the state, so that CloudFormation does not revert it.
    names = [rule["Name"] for rule in rules if rule["State"] == "DISABLED"]
    commands = " and ".join(f"`aws events enable-rule --name {name}`" for name in names)
    return f"the EventBridge rule {', '.join(names)} is disabled: run {commands}" if names else ""


def _notifications_to(target: str, entries: Sequence[Any], arn: str) -> Iterator[Notification]:
    """The notifications that have a target, one for each event."""
    for entry in entries:
        if entry[arn] == target:
            keys = KeyFilter(*prefix_and_suffix(entry))
            yield from (Notification(event, keys) for event in entry["Events"])
