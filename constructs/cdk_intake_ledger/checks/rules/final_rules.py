"""Rules about the final template: what is planned, and an aspect, a property injector, a mixin or an override may have
changed, or a given resource lacks. They are one table.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cdk_intake_ledger.checks.limits import AWS_MANAGED_KEY, DEFAULT_STORAGE, MAX_MESSAGE_BYTES
from cdk_intake_ledger.checks.registry import Rule, Subject

SUBJECT = Subject("The final template")

NONE = "none"
"""The value of a property that the template does not have, if CloudFormation has no default for it."""
BUCKET_KEY = "BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault.KMSMasterKeyID"
"""The path of the key of a bucket."""
ON_DEMAND_WRITES = 4_000
"""Writes per second that a new table on demand takes (DynamoDB developer guide, "On-demand capacity mode")."""

WRITES_OF_A_CHANGE = 2
"""Writes of a change that is processed at its first attempt: a claim and a commit (docs/cost.md)."""
DELETED = "Delete"
"""The deletion policy of a resource that is deleted with its stack."""
KEPT = ["Retain", "RetainExceptOnCreate"]
"""Deletion policies of resources that stay."""

LOG_LEVELS = ["INFO", "DEBUG", "TRACE"]
"""Levels of Lambda that keep the lines of the ledger."""

_DEFAULTS: dict[str, Any] = {
    "ApplicationLogLevel": "INFO",
    "BatchSize": 10,
    "BillingMode": "PROVISIONED",
    "DelaySeconds": 0,
    "DeletionProtectionEnabled": False,
    "Enabled": True,
    "EphemeralStorage.Size": DEFAULT_STORAGE,
    "KMSMasterKeyID": NONE,
    "LogGroupClass": "STANDARD",
    "MaxWriteRequestUnits": ON_DEMAND_WRITES,
    "MaximumBatchingWindowInSeconds": 0,
    "MaximumMessageSize": MAX_MESSAGE_BYTES,
    "MaximumRetryAttempts": -1,
    "MemorySize": 128,
    "MessageRetentionPeriod": 345_600,
    "ReadonlyRootFilesystem": False,
    "RedriveAllowPolicy": {"redrivePermission": "allowAll"},
    "State": "ENABLED",
    "VisibilityTimeout": 30,
    "WarmThroughput.WriteUnitsPerSecond": ON_DEMAND_WRITES,
}
"""What AWS takes for a property that the template does not have, by the end of its path."""


def value_at(properties: Mapping[str, Any], path: str) -> Any:
    """A property of the template, or its default. A text of digits is a number, as for CloudFormation."""
    value: Any = properties
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if len(value) > int(part) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return next((default for end, default in _DEFAULTS.items() if f".{path}".endswith(f".{end}")), None)
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Difference = tuple[str, Any, Any]
"""A path, the value that the template has, and the planned value."""
Test = Callable[[Mapping[str, Any], str, Any], Difference | None]
"""Of the properties, the path, and the planned value. None: it holds."""


def _covers(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    """Each planned part is there. There may be others."""
    return _lacks(path, value_at(properties, path), NONE if wanted is None else wanted)


def _lacks(path: str, value: Any, wanted: Any) -> Difference | None:
    if isinstance(wanted, dict) and not any(name == "Ref" or name.startswith("Fn::") for name in wanted):
        found = value if isinstance(value, dict) else {}
        parts = (_lacks(f"{path}.{name}", found.get(name), one) for name, one in wanted.items())
        return next((part for part in parts if part is not None), None)
    if isinstance(wanted, list):
        there = value if isinstance(value, list) else []
        missing = [one for one in wanted if all(_lacks("", other, one) for other in there)]
        return (path, value, missing) if missing else None
    value = NONE if value is None else value
    return None if value == wanted or str(value) == str(wanted) else (path, value, wanted)


def _among(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    value = value_at(properties, path)
    value = NONE if value is None else value
    return None if value in wanted else (path, value, " or ".join(map(str, wanted)))


def _at_least(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    value = value_at(properties, path)
    known = isinstance(value, int | float) and isinstance(wanted, int | float)
    return (path, value, f"at least {wanted}") if known and value < wanted else None


def _at_most(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    value = value_at(properties, path)
    known = isinstance(value, int | float) and isinstance(wanted, int | float)
    return (path, value, f"at most {wanted}") if known and value > wanted else None


def _is_wrapped(properties: Mapping[str, Any], wanted: str) -> bool:
    """True if a variable names the planned handler, as the layers of monitoring vendors do."""
    return wanted in dict(value_at(properties, "Environment.Variables") or {}).values()


def _handler(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    return None if _is_wrapped(properties, wanted) else _covers(properties, path, wanted)


def _no_wrapper(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    return _covers(properties, path, wanted) if _is_wrapped(properties, wanted) else None


def _takes_from(properties: Mapping[str, Any], path: str, wanted: Any) -> Difference | None:
    value = value_at(properties, path)
    sources = value.get("sourceQueueArns", ()) if isinstance(value, dict) else ()
    allowed = value.get("redrivePermission", "allowAll") == "allowAll" if isinstance(value, dict) else True
    return None if allowed or wanted in sources else (path, value, wanted)


class Row(NamedTuple):
    """A property that has to be as planned."""

    rule: Rule
    kinds: tuple[str, ...]
    """Kinds of resources, as in `Expected`."""
    path: str
    test: Test

    def difference(self, properties: Mapping[str, Any], wanted: Any) -> dict[str, str] | None:
        """The values of the message, or None if the property is as planned."""
        found = self.test(properties, self.path, wanted)
        return None if found is None else dict(zip(("name", "value", "wanted"), map(_text, found), strict=True))


def _text(value: Any) -> str:
    text = NONE if value is None else str(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _row(
    id: str, kinds: str, path: str, why: str, option: str = "", *, test: Test = _covers, warns: bool = False
) -> Row:
    rule = (SUBJECT.warning if warns else SUBJECT.error)(
        id,
        inputs=(path,),
        what="{path} has {name} {value} in the template, and {wanted} is planned",
        why=why,
        fix=f"Correct {{path}}, or the aspect, property injector, mixin or override that changes it{option}",
    )
    return Row(rule, tuple(kinds.split()), path, test)


_FUNCTION = "consumer function"
_NO_KEY = "nobody has been granted the use of this key, so that services could not send and functions not read"
_OPTION_KEY = ", or pass this key as encryption_key. A property injector of the queue or table may give it, too"
TABLE = (
    _row("final-timeout", _FUNCTION, "Timeout",
         "the lease and the queue's visibility follow from it. With less, no record begins or the audit is cut off. "
         "With more, two workers may have one key", ", or set processing_timeout"),
    _row("final-memory", _FUNCTION, "MemorySize", "the function may run out of memory", ", or set memory_size",
         test=_at_least, warns=True),
    _row("final-storage", _FUNCTION, "EphemeralStorage.Size", "the function may run out of space in /tmp",
         ", or set ephemeral_storage_size", test=_at_least, warns=True),
    _row("reserved-concurrency-minimum", _FUNCTION, "ReservedConcurrentExecutions", "0 stops the function",
         ", or set reserved_concurrency to at least 1, or omit it", test=_at_least),
    _row("final-handler", _FUNCTION, "Handler", "Lambda would call other code, and delete the messages that it ignores",
         ". A handler that wraps this one is accepted if a variable of the function has the name of this one",
         test=_handler),
    _row("final-handler-wrapped", _FUNCTION, "Handler",
         "a layer wraps the handler, and an error of the layer loses the answer about each message",
         ", or acknowledge the warning after a test of the layer", test=_no_wrapper, warns=True),
    _row("final-runtime", _FUNCTION, "Runtime", "the wheels are for this version of Python",
         ", or pass runtime to the processor"),
    _row("final-architecture", _FUNCTION, "Architectures", "the wheels are for this architecture",
         ", or pass architecture to the processor"),
    _row("final-layers", _FUNCTION, "Layers", "the function could not import intake_ledger"),
    _row("final-command", _FUNCTION, "ImageConfig.Command", "the image would start other code"),
    _row("final-capacity", _FUNCTION, "CapacityProviderConfig.LambdaManagedInstancesCapacityProviderConfig",
         "invocations would share memory and /tmp", ", or pass capacity_provider to the processor"),
    _row("final-variables", _FUNCTION, "Environment.Variables", "the function reads its settings there, and alarms "
         "read the metrics that they name", ", or set the option that the variable follows from"),
    _row("final-variables-key", _FUNCTION, "KmsKeyArn", "the role may not decrypt the variables, so that the "
         "function could not start", ". The role gets the use of a key that a property injector passes"),
    _row("final-network", _FUNCTION, "VpcConfig", "the role may not make network interfaces, and nothing has "
         "compared the endpoints of this VPC", ", or pass the VPC as network"),
    _row("final-role", _FUNCTION, "Role", "the permissions are in this role"),
    _row("final-log-group", _FUNCTION, "LoggingConfig.LogGroup", "the role may write to this log group only, and each "
         "metric and alarm is read from its lines", ", or pass log_group to MonitoringOptions"),
    _row("final-log-level", _FUNCTION, "LoggingConfig.ApplicationLogLevel",
         "the lines of decisions would be missing, which the command reads", ", or set POWERTOOLS_LOG_LEVEL",
         test=_among, warns=True),
    _row("final-log-class", "logs", "LogGroupClass", "CloudWatch reads no metrics from lines of this class, so that no "
         "alarm would tell"),
    _row("final-item-failures", "mapping stream", "FunctionResponseTypes",
         "Lambda would delete all messages of a batch, also those that failed"),
    _row("final-retries", "stream", "MaximumRetryAttempts", "Lambda would drop records that still have attempts"),
    _row("final-mapping-enabled", "mapping stream", "Enabled", "without a mapping no message is processed, and beside "
         "workers its function would take messages, too", warns=True),
    _row("final-filter", "mapping stream", "FilterCriteria", "Lambda deletes the messages that it leaves out",
         ", or acknowledge the warning, or use filters", warns=True),
    _row("final-visibility", "queue", "VisibilityTimeout", "the message of a dead worker waits for so long",
         ", or set visibility_timeout", test=_at_most, warns=True),
    _row("final-retention", "queue", "MessageRetentionPeriod", "messages wait for three quarters of the planned time "
         "while the downstream fails, and SQS would delete them first", ", or set retention", test=_at_least),
    _row("final-delay", "queue", "DelaySeconds", "each event and each wake-up waits for so long", test=_at_most,
         warns=True),
    _row("queue-redrive-differs", "queue", "RedrivePolicy",
         "SQS would give up messages never, or to a queue that alarms and redrives do not see",
         ", or pass that queue as dead_letter_queue"),
    _row("queue-max-receives", "queue", "RedrivePolicy.maxReceiveCount", "a key that is busy also uses receives, and "
         "SQS would give up messages without a reason", ", or remove the redrive policy of your queue", test=_at_least),
    _row("final-redrive-allowed", "dead", "RedriveAllowPolicy", "SQS would refuse the redrive policy of the queue",
         test=_takes_from),
    _row("queue-message-size", "queue", "MaximumMessageSize", "an event can be larger", test=_at_least),
    _row("dead-letter-queue-message-size", "dead", "MaximumMessageSize", "it refuses the copy of a longer message, "
         "which then stays in the queue and is never rejected", test=_at_least),
    _row("final-removal", "queue dead table bucket", "DeletionPolicy", "its data would be deleted with the stack, and "
         "the removal_policy retains it", ", or set removal_policy", test=_among, warns=True),
    _row("final-fifo", "queue dead", "FifoQueue", "the ledger, the source and the queue must agree about the order"),
    _row("final-queue-key", "queue dead", "KmsMasterKeyId", f"{_NO_KEY}. No policy lets services use {AWS_MANAGED_KEY}",
         _OPTION_KEY, test=_among),
    _row("table-keys", "table", "KeySchema", "the ledger finds rows by these keys"),
    _row("table-key-types", "table", "AttributeDefinitions", "the ledger's keys have these types"),
    _row("table-time-to-live", "table", "TimeToLiveSpecification", "settled rows would never expire, or others would"),
    _row("table-index", "table", "GlobalSecondaryIndexes", "rows that need review are found by this index"),
    _row("final-table-key", "table", "SSESpecification.KMSMasterKeyId", _NO_KEY, _OPTION_KEY),
    _row("final-recovery", "table", "PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled",
         "a table that was changed by mistake could not be restored", warns=True),
    _row("final-deletion-protection", "table", "DeletionProtectionEnabled", "a deleted ledger lets each state be "
         "processed again", ", or set removal_policy", warns=True),
    _row("final-billing", "table", "BillingMode", "provisioned writes throttle the ledger in a burst of events",
         ", or pass your own table", warns=True),
    _row("final-write-limit", "table", "OnDemandThroughput.MaxWriteRequestUnits",
         "the limit throttles the ledger in a burst of events", test=_at_least, warns=True),
    _row("final-backfill", "table", "WarmThroughput.WriteUnitsPerSecond", "the backfill writes as much per second. A "
         f"new table on demand takes {ON_DEMAND_WRITES:,} "
         "(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html)",
         ", lower backfill_rate, or pass a table with this warm_throughput", test=_at_least, warns=True),
    _row("final-stream", "table", "StreamSpecification.StreamViewType",
         "an outcome is a difference between two images of a row"),
    _row("bucket-must-be-versioned", "bucket", "VersioningConfiguration.Status",
         "the ledger tells the states of a key apart by their versions"),
    _row("bucket-not-versioned", "given-bucket", "VersioningConfiguration.Status",
         "two uploads of the same bytes are one change there, and an overwritten object cannot be read when its event "
         "arrives", warns=True),
    _row("final-bucket-key", "bucket given-bucket", BUCKET_KEY, _NO_KEY, _OPTION_KEY),
    _row("final-ownership", "bucket", "OwnershipControls.Rules.0.ObjectOwnership",
         "the functions could not read objects that another account uploads", ", or set it in bucket_props",
         warns=True),
    _row("final-schedule", "schedule", "ScheduleExpression", "lost events and lost work are found at these times",
         ", or set the interval"),
    _row("final-schedule-state", "schedule", "State", "lost events and lost work would not be found", warns=True),
    _row("final-container", "task", "ContainerDefinitions", "workers read their settings there, and need this time to "
         "return messages"),
    _row("final-read-only", "task", "ContainerDefinitions.0.ReadonlyRootFilesystem",
         "the runtime writes large objects to temporary files", ". With a volume at /tmp, acknowledge the warning",
         warns=True),
    _row("final-task-role", "task", "TaskRoleArn", "the permissions are in this role"),
)  # fmt: skip

KEY_DELETED_BEFORE_DATA = SUBJECT.warning(
    "key-deleted-before-data",
    inputs=("encryption_key", "removal_policy"),
    what="the key {path} is deleted with its stack, and {data} stays",
    why="nobody can decrypt data without its key",
    fix="Retain the key, or set removal_policy=RemovalPolicy.DESTROY for the data too",
)
LEDGER_AND_BUCKET_DIFFER = SUBJECT.warning(
    "ledger-and-bucket-differ",
    inputs=("bucket", "ledger", "removal_policy"),
    what="{path} is deleted with its stack, and {data} stays",
    why="a bucket without its ledger is processed again, and a ledger without its bucket has rows of objects that are "
    "gone",
    fix="Give both the same removal policy",
)
ALARMS_WITHOUT_ACTION = SUBJECT.warning(
    "alarms-without-action",
    inputs=("alarm_actions",),
    what="no alarm has an action",
    why="nobody is told of a message in the dead-letter queue",
    fix="Pass a topic as MonitoringOptions(alarm_actions=...), or acknowledge the warning if something else watches "
    "them",
)
FUNCTION_MAY_NOT_READ = SUBJECT.warning(
    "function-may-not-read",
    inputs=("processor", "bucket"),
    what="the role of {function} may not read the objects of {bucket}",
    why="the consumer sends the function the name of the object, not its content",
    fix="Call grant_read of the bucket with the function, or acknowledge the warning if it needs no content",
)
