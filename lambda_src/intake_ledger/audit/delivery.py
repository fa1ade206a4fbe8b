"""Whether S3 would tell the queue of a change: what the stack set up is still there.

Somebody edits a queue policy, another stack replaces a bucket's notifications, a key is disabled: then the queue is
empty and everything is green.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.settings import AuditSettings, Delivery, KeyFilter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

_EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed")
_DETAIL_TYPES = ("Object Created", "Object Deleted", "Object Restore Completed")
_KEY_ACTIONS = ("kms:GenerateDataKey", "kms:Decrypt")
"""What whoever sends to an encrypted queue does with its key (SQS developer guide, "Key management")."""
_SENDERS = {Delivery.S3: "s3.amazonaws.com", Delivery.EVENTBRIDGE: "events.amazonaws.com", Delivery.EXISTING: ""}
"""Who sends to the queue; nobody knows of a way that somebody else has made."""
_NOT_ON_THE_WAY = {
    Delivery.S3: ("the EventBridge rule",),
    Delivery.EVENTBRIDGE: ("the bucket's notifications",),
    Delivery.EXISTING: ("the queue's policy", "the EventBridge rule", "the bucket's notifications"),
}
_AGAIN = "deploy the stack again, or put it back by hand"


class DeliveryCheck:
    """Looks at bucket, queue, key, rule and table. `make_client` gives a boto3 client by the service's name."""

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
        self._s3 = s3
        self._sqs = sqs
        self._dynamodb = dynamodb
        self._make_client = make_client
        self._bucket: Any = {"Bucket": settings.bucket}
        if settings.bucket_owner:
            self._bucket["ExpectedBucketOwner"] = settings.bucket_owner

    def problems(self) -> list[str]:
        """Everything that is wrong, each with the fix in words; what cannot be looked at is a problem too."""
        found: list[str] = []
        names: Any = ["QueueArn", "Policy", "KmsMasterKeyId"]
        queue: Any = self._sqs.get_queue_attributes(QueueUrl=self._settings.queue_url, AttributeNames=names)
        queue = queue.get("Attributes", {})
        sender = _SENDERS[self._settings.delivery]
        checks: dict[str, Callable[[], Iterator[str]]] = {
            "the queue's policy": lambda: _policy(queue, sender),
            "the queue's key": lambda: self._key(queue, sender),
            "the EventBridge rule": lambda: self._rule(queue["QueueArn"]),
            "the bucket's notifications": lambda: self._notifications(queue["QueueArn"]),
            "the bucket's versioning": self._versioning,
            "the table's time to live": self._time_to_live,
        }
        for what in _NOT_ON_THE_WAY[self._settings.delivery]:
            del checks[what]
        for what, check in checks.items():
            try:
                found += check()
            except (BotoCoreError, ClientError) as error:
                found.append(f"{what} could not be checked: {error}")
        return found

    def _notifications(self, queue_arn: str) -> Iterator[str]:
        there = {
            (event, *_ends(entry))
            for entry in self._s3.get_bucket_notification_configuration(**self._bucket).get("QueueConfigurations", ())
            if entry["QueueArn"] == queue_arn
            for event in entry["Events"]
        }
        for one in self._settings.filters or (KeyFilter(),):
            lacking = [event for event in _EVENTS if (event, one.prefix, one.suffix) not in there]
            if lacking:
                yield f"S3 does not notify the queue of {', '.join(lacking)} for {_named(one)}: {_AGAIN}"

    def _rule(self, queue_arn: str) -> Iterator[str]:
        configuration = self._s3.get_bucket_notification_configuration(**self._bucket)
        if "EventBridgeConfiguration" not in configuration:
            yield f"the bucket does not tell EventBridge of its changes: {_AGAIN}"
        events = self._make_client("events")
        names = events.list_rule_names_by_target(TargetArn=queue_arn)["RuleNames"]
        rules = [events.describe_rule(Name=name) for name in names]
        enabled = [rule["EventPattern"] for rule in rules if rule["State"] == "ENABLED" and rule.get("EventPattern")]
        if rules and not enabled:
            yield f"the EventBridge rule {', '.join(names)} is disabled: enable it"
            return
        for one in self._settings.filters or (KeyFilter(),):
            for kind in _DETAIL_TYPES:
                event = json.dumps(self._event(kind, f"{one.prefix}x{one.suffix}"))
                if not any(events.test_event_pattern(EventPattern=p, Event=event)["Result"] for p in enabled):
                    yield f"no EventBridge rule sends {kind!r} for {_named(one)} to the queue: {_AGAIN}"

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

    def _key(self, queue: dict[str, str], sender: str) -> Iterator[str]:
        name = queue.get("KmsMasterKeyId", "")
        if not name:
            return
        if name.startswith("alias/aws/") and sender:
            # Nobody can change the policy of AWS's own keys (S3 user guide, "Granting permissions to publish event
            # notification messages to a destination").
            yield f"the queue's key {name} is AWS's own, which {sender} may not use: take SSE-SQS, or a key of yours"
            return
        kms = self._make_client("kms")
        key = kms.describe_key(KeyId=name)["KeyMetadata"]
        if key["KeyState"] != "Enabled":
            yield f"the queue's key {name} is {key['KeyState']}: nothing can be sent until it is enabled again"
        if not sender:
            return
        policy = kms.get_key_policy(KeyId=key["Arn"], PolicyName="default")["Policy"]
        if lacking := _lacking(policy, sender, _KEY_ACTIONS):
            yield f"the policy of the queue's key {name} does not let {sender} use {' and '.join(lacking)}: {_AGAIN}"

    def _versioning(self) -> Iterator[str]:
        # A bucket that never had versions has no status; that was the team's choice.
        if self._s3.get_bucket_versioning(**self._bucket).get("Status") == "Suspended":
            yield "the bucket's versioning is suspended, so that overwritten objects are lost: enable it again"

    def _time_to_live(self) -> Iterator[str]:
        table = self._settings.table
        found = self._dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        on = found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        if not on or found.get("AttributeName", "expires_at") != "expires_at":
            yield f"rows of {table} do not expire: switch time to live on for the attribute expires_at"


def _policy(queue: dict[str, str], service: str) -> Iterator[str]:
    if _lacking(queue.get("Policy") or "{}", service, ("sqs:SendMessage",)):
        yield f"the queue's policy does not let {service} send: {_AGAIN}"


def _lacking(policy: str, service: str, wanted: Sequence[str]) -> list[str]:
    """What the policy does not let the service do of what it has to do. Conditions are not looked at: whatever has one
    allows, and does not deny.
    """
    said: dict[str, set[str]] = {"Allow": set(), "Deny": set()}
    statements = json.loads(policy).get("Statement", [])
    for one in statements if isinstance(statements, list) else [statements]:
        principal, effect = one.get("Principal", {}), one["Effect"]
        who = ["*"] if principal == "*" else _listed(principal.get("Service")) + _listed(principal.get("AWS"))
        if {service, "*"} & {*who} and (effect == "Allow" or not one.get("Condition")):
            # In lower case and with wildcards, as IAM takes them.
            said[effect] |= {action.lower() for action in _listed(one.get("Action"))}

    def is_said(action: str, effect: str) -> bool:
        return any(fnmatchcase(action.lower(), one) for one in said[effect])

    return [one for one in wanted if not is_said(one, "Allow") or is_said(one, "Deny")]


def _ends(entry: Any) -> tuple[str, str]:
    """Prefix and suffix of a notification, as they are in the key: S3 keeps them encoded."""
    rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", ())
    ends = {rule["Name"].lower(): unquote_plus(rule["Value"]) for rule in rules}
    return ends.get("prefix", ""), ends.get("suffix", "")


def _named(one: KeyFilter) -> str:
    ends = [f"{name} {value!r}" for name, value in (("prefix", one.prefix), ("suffix", one.suffix)) if value]
    return " and ".join(ends) or "every key"


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []
