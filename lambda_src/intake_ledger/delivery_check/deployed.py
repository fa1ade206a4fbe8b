"""Compares the deployed settings with the answers of AWS. A difference is a problem in words, with its repair.

The construct writes the settings into the environment variable `INTAKE_DEPLOYED`. A setting that synthesis does not
know, such as one of an imported queue, is left out there and not compared here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import unquote_plus

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import KeyFilter

EXPIRY = "expires_at"
NOT_POLLING = "so that no message is processed"
"""Part of the problem of a mapping that is disabled."""
_POLLING = ("Creating", "Enabling", "Enabled", "Updating")
"""States of an event source mapping that takes messages, or soon will (Lambda API reference,
"EventSourceMappingConfiguration")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """Settings as they were synthesised. Times are in seconds; None is not known."""

    stack: str = ""
    """The stack that `cdk deploy` has to be given."""
    stacks: Mapping[str, str] = field(default_factory=dict)
    """Other stacks, by the resource; an empty one for a resource that the app does not make."""
    custom: bool = False
    """True if a custom resource of the CDK makes the bucket's notifications."""
    account: str | None = None
    """The account of the sender, as the queue's policy names it."""
    function: str = ""
    timeout: int | None = None
    mapping: str = ""
    enabled: bool = True
    filtered: bool = False
    """True if the team gave the mapping filters."""
    visibility: int | None = None
    retention: int | None = None
    receives: int | None = None
    """The least maxReceiveCount that the consumer counts on."""
    dead: str = ""
    """The dead-letter queue's URL."""
    dead_arn: str = ""
    dead_retention: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """The ARNs of the sources of an intake of messages, by `queue` and `stream`."""
    rule: str = ""
    """The ARN of the rule that sends events to an intake."""

    @classmethod
    def read(cls, text: str) -> "Deployed":
        """Read the environment variable. A later release may have settings that this one does not know.

        Raises:
            SettingsError: It is not a JSON object.

        """
        try:
            content: dict[str, Any] = dict(json.loads(text or "{}"))
        except (TypeError, ValueError) as problem:
            raise SettingsError(
                f"INTAKE_DEPLOYED is {text!r}, expected a JSON object: deploy the stack again ({problem})"
            ) from None
        return cls(
            **{setting.name: content[setting.name] for setting in fields(cls) if content.get(setting.name) is not None}
        )

    def again(self, resource: str, by_hand: str = "") -> str:
        """The command that restores a setting of the template. A plain deployment sees no change there.

        Args:
            resource: `bucket`, `queue`, `table`, `key` or `function`.
            by_hand: the command for a resource that the app does not make.

        """
        stack = self.stacks.get(resource, self.stack)
        if stack:
            return f"run `cdk deploy {stack} --revert-drift`"
        return f"run `{by_hand}`" if by_hand else "put it back by hand, or deploy the stack that makes it"


def queue_problems(deployed: Deployed, url: str, queue: Mapping[str, str]) -> Iterator[str]:
    """Retention, visibility, redrive policy and message size of the queue. More than the plan has does no harm."""
    for name, attribute, wanted in (
        ("visibility timeout", "VisibilityTimeout", deployed.visibility),
        ("retention", "MessageRetentionPeriod", deployed.retention),
    ):
        actual = queue.get(attribute)
        if wanted is not None and actual is not None and int(actual) < wanted:
            repair = deployed.again("queue", _set_attribute(url, attribute, wanted))
            yield f"the queue's {name} is {int(actual):,} s, deployed as {wanted:,} s: {repair}"
    if deployed.receives is not None:
        yield from _redrive_problems(deployed, url, json.loads(queue.get("RedrivePolicy") or "{}"))
    size = queue.get("MaximumMessageSize")
    if size is not None and int(size) < _LEAST_BYTES:
        # CloudFormation reverts only properties that the template declares.
        repair = f"run `{_set_attribute(url, 'MaximumMessageSize', 262_144)}`"
        yield f"the queue takes messages of {int(size):,} bytes at most, and an event may be larger: {repair}"


_LEAST_BYTES = 64 * 1_024
_RECEIVES = 1_000
"""SQS's maximum: the ledger counts attempts."""


def _set_attribute(url: str, name: str, value: int) -> str:
    return f"aws sqs set-queue-attributes --queue-url {url} --attributes {name}={value}"


def _redrive_problems(deployed: Deployed, url: str, redrive: Mapping[str, Any]) -> Iterator[str]:
    least, target, ours = deployed.receives or 0, redrive.get("deadLetterTargetArn"), deployed.dead_arn
    policy = json.dumps({"deadLetterTargetArn": ours, "maxReceiveCount": _RECEIVES})
    attributes = json.dumps({"RedrivePolicy": policy})
    repair = deployed.again("queue", f"aws sqs set-queue-attributes --queue-url {url} --attributes '{attributes}'")
    receives = int(redrive.get("maxReceiveCount", 0))
    if target is None:
        yield (
            "the queue has no redrive policy, so that SQS deletes a message that no worker can take at the end of its "
            f"retention: {repair}"
        )
    elif target != ours:
        yield f"the queue gives messages up to {target}, and the pipeline's dead-letter queue is {ours}: {repair}"
    elif receives < least:
        counts = f"the consumer counts on {least:,}"
        yield f"the queue gives a message up after {receives:,} receives, and {counts}: {repair}"


def dead_letter_problems(deployed: Deployed, dead: Mapping[str, str], queue: Mapping[str, str]) -> Iterator[str]:
    """Retention and message size of the dead-letter queue. `queue` has the attributes of the queue."""
    size, least = dead.get("MaximumMessageSize"), queue.get("MaximumMessageSize")
    if size is not None and least is not None and int(size) < int(least):
        repair = f"run `{_set_attribute(deployed.dead, 'MaximumMessageSize', int(least))}`"
        yield (
            f"the dead-letter queue takes messages of {int(size):,} bytes at most, and the queue of {int(least):,}, so "
            f"it refuses the copy of a longer one: {repair}"
        )
    kept, least = dead.get("MessageRetentionPeriod"), queue.get("MessageRetentionPeriod")
    if kept is not None and least is not None and int(kept) < int(least):
        repair = deployed.again("dead", _set_attribute(deployed.dead, "MessageRetentionPeriod", int(least)))
        yield f"the dead-letter queue's retention is {int(kept):,} s, less than the queue's {int(least):,} s: {repair}"


def mapping_problems(deployed: Deployed, mappings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The consumer's event source mapping among all of the queue, and each one of another function (F128)."""
    ours = [mapping for mapping in mappings if _is_ours(deployed, mapping)]
    for mapping in mappings:
        if mapping not in ours and mapping.get("State") in _POLLING:
            name = mapping.get("FunctionArn", "").partition(":function:")[2] or "another function"
            yield (
                f"{name} takes messages of the queue too, which never reach the ledger: give it a queue of its own, "
                f"and run `aws lambda delete-event-source-mapping --uuid {mapping['UUID']}`"
            )
    if not ours:
        yield f"the queue's event source mapping to {deployed.function} is gone: {deployed.again('function')}"
    for mapping in ours:
        yield from own_mapping_problems(deployed, mapping, "the queue's event source mapping")


def _is_ours(deployed: Deployed, mapping: Mapping[str, Any]) -> bool:
    if deployed.mapping:
        return bool(mapping["UUID"] == deployed.mapping)
    return bool(mapping.get("FunctionArn", "").split(":function:")[-1].split(":")[0] == deployed.function)


def own_mapping_problems(deployed: Deployed, mapping: Mapping[str, Any], what: str) -> Iterator[str]:
    """State, answers by item and filters of a mapping to the consumer. `what` is its name for people."""
    update = f"aws lambda update-event-source-mapping --uuid {mapping['UUID']}"
    if deployed.enabled and mapping.get("State") not in _POLLING:
        yield f"{what} is {mapping.get('State')}, {NOT_POLLING}: run `{update} --enabled`"
    again = deployed.again("function")
    if "ReportBatchItemFailures" not in mapping.get("FunctionResponseTypes", ()):
        yield f"{what} does not report failures by item, so that failed messages are deleted: {again}"
    if not deployed.filtered and (mapping.get("FilterCriteria") or {}).get("Filters"):
        clear = f"run `{update} --filter-criteria '{{}}'`"
        yield f"{what} has a filter, so that Lambda deletes the messages that it leaves out: {clear}"


def function_problems(deployed: Deployed, function: Mapping[str, Any], reserved: int | None) -> Iterator[str]:
    """State, timeout and reserved concurrency of the consumer. Another concurrency than 0 is the team's choice."""
    name, again = deployed.function, deployed.again("function")
    if reserved == 0:
        repair = f"run `aws lambda delete-function-concurrency --function-name {name}`"
        yield f"the reserved concurrency of {name} is 0, so that nothing is processed: {repair}"
    if function.get("State") == "Failed":
        yield f"{name} cannot be called, {function.get('StateReason') or function.get('StateReasonCode')}: {again}"
    if function.get("LastUpdateStatus") == "Failed":
        reason = function.get("LastUpdateStatusReason") or function.get("LastUpdateStatusReasonCode")
        yield f"the last update of {name} failed, {reason}: {again}"
    if deployed.timeout is not None and function.get("Timeout") != deployed.timeout:
        yield f"the timeout of {name} is {function.get('Timeout')} s, deployed as {deployed.timeout} s: {again}"


def table_problems(deployed: Deployed, table: str, time_to_live: Mapping[str, Any]) -> Iterator[str]:
    """Time to live."""
    on = time_to_live.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    if not on or time_to_live.get("AttributeName", EXPIRY) != EXPIRY:
        specification = f"Enabled=true,AttributeName={EXPIRY}"
        by_hand = f"aws dynamodb update-time-to-live --table-name {table} --time-to-live-specification {specification}"
        again = deployed.again("table", by_hand)
        yield f"rows of {table} do not expire, deployed with time to live by {EXPIRY}: {again}"


def prefix_and_suffix(entry: Any) -> tuple[str, str]:
    """Prefix and suffix of a notification's keys. S3 stores them encoded."""
    rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", ())
    ends = {rule["Name"].lower(): unquote_plus(rule["Value"]) for rule in rules}
    return ends.get("prefix", ""), ends.get("suffix", "")


def describe_keys(keys: KeyFilter) -> str:
    """The keys that a filter takes, as text."""
    ends = [f"{name} {value!r}" for name, value in (("prefix", keys.prefix), ("suffix", keys.suffix)) if value]
    return " and ".join(ends) or "every key"
