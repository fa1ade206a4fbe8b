"""Accepted findings of cdk-nag with their reasons, and functions that acknowledge them at the constructs.

cdk-nag 3 reads acknowledgements from the construct tree's metadata, where CDK's `Validations.of(...).acknowledge(...)`
writes them. This module writes them directly, since the oldest supported CDK lacks that function. It does not import
cdk-nag, and it changes no template. `docs/security.md` shows the same table.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

ACKNOWLEDGED_RULES = "aws:cdk:acknowledged-rules"
"""The metadata's type, as `aws_cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY` has it."""


class Suppression(NamedTuple):
    """One finding, or several for the same reason."""

    rules: tuple[str, ...]
    where: str
    reason: str
    sids: tuple[str, ...] = ()
    """Beginnings of the names of statements in a role's own policy, whose resources may have an asterisk."""


def _asterisk(where: str, reason: str, *sids: str) -> Suppression:
    """A finding about resources with an asterisk."""
    return Suppression(("AwsSolutions-IAM5",), where, reason, sids)


ACCESS_LOGS = Suppression(
    ("AwsSolutions-S1",),
    "the pipeline's bucket",
    "The account decides where access logs go: use a bucket with access logs, or CloudTrail's data events.",
)
DEAD_LETTERS = Suppression(
    ("Serverless-SQSRedrivePolicy",),
    "the dead-letter queue",
    "It is the last queue. An alarm reports new messages in it.",
)
RUNTIME = Suppression(
    ("AwsSolutions-L1", "Serverless-LambdaLatestVersion"),
    "both functions, on the default runtime",
    "The runtime is tested on Python 3.13, which Lambda supports. A processor may choose another one.",
)
TRACING = Suppression(
    ("Serverless-LambdaTracing",),
    "both functions",
    "A log line has each decision. X-Ray does not follow a message through S3. Or `MonitoringOptions(tracing=True)`.",
)
CONSUMER_DEAD_LETTERS = Suppression(
    ("Serverless-LambdaDLQ", "HIPAA.Security-LambdaDLQ", "NIST.800.53.R5-LambdaDLQ"),
    "the consumer's function",
    "It is for asynchronous invocations. A queue with a dead-letter queue invokes this function.",
)
SOURCE_DESTINATION = Suppression(
    ("Serverless-LambdaEventSourceMappingDestination",),
    "the consumer's event source",
    "It is for streams. Rejected messages go to the dead-letter queue, with their reason.",
)
STREAM_DESTINATION = Suppression(
    ("Serverless-LambdaEventSourceMappingDestination",),
    "the mapping of a stream to a message intake",
    "Lambda retries until the ledger has rejected the record, with a copy in the dead-letter queue.",
)
OUTCOME_DESTINATION = Suppression(
    ("Serverless-LambdaEventSourceMappingDestination",),
    "the mapping of the ledger's stream to `OutcomeEvents`",
    "Lambda repeats a batch until EventBridge has taken it. An alarm reports records that wait.",
)
ALARM_ACTION = Suppression(
    ("HIPAA.Security-CloudWatchAlarmAction", "NIST.800.53.R5-CloudWatchAlarmAction"),
    "each alarm",
    "The composite alarms carry the actions. The alarm of `OutcomeEvents` takes yours by its `alarms`.",
)
OUTCOME_DEAD_LETTERS = Suppression(
    ("Serverless-LambdaDLQ", "HIPAA.Security-LambdaDLQ", "NIST.800.53.R5-LambdaDLQ"),
    "the function of `OutcomeEvents`",
    "It is for asynchronous invocations. A stream invokes this function.",
)
OUTCOME_STREAMS = _asterisk(
    "the role of `OutcomeEvents`, `*`",
    "Lambda needs `dynamodb:ListStreams`, which supports no resource.",
)
MAPPINGS = _asterisk(
    "the role of an intake of messages, `*`",
    "The action that reads mappings supports no resource, as `dynamodb:ListStreams`, which CDK grants for a stream.",
    "MappingsHaveNoResources",
)
AUDIT_DEAD_LETTERS = Suppression(
    ("Serverless-LambdaDLQ", "HIPAA.Security-LambdaDLQ", "NIST.800.53.R5-LambdaDLQ"),
    "the audit's function",
    "The next run finds the changes that a failed one missed.",
)
AUDIT_DESTINATION = Suppression(
    ("Serverless-LambdaAsyncFailureDestination",),
    "the invocations of the audit's function",
    "The same. An alarm reports when no run finishes.",
)
OBJECTS = _asterisk(
    "both roles, `<bucket>/<prefix>*`",
    "Two actions read the objects that the filters accept. Without a prefix this is `<bucket>/*`.",
    "ObjectsThatTheFiltersLetThrough",
)
METRICS = _asterisk(
    "the audit's role, `*`",
    "The actions that read the queue's age, mappings, rules by target and a subscription support no resource.",
    "MetricsAndMappings",
)
RULES_BY_TARGET = _asterisk(
    "the audit's role, `rule/*`, where EventBridge or others deliver",
    "Two actions that read. With the rule's name, rule, queue and role would depend on each other.",
    "RuleByName",
)
TOPICS_BY_BUCKET = _asterisk(
    "the audit's role, topics of the account, with `Delivery.EXISTING`",
    "One action reads the subscriptions of the topics that the bucket notifies, known only then.",
    "TopicsOfTheBucket",
)
OUTPUTS = _asterisk(
    "the consumer's role, `<outputs>/<prefix>*`, after `grant_output`",
    "Named actions write the processor's outputs, whose keys follow from those of uploads.",
    "OutputsOfTheProcessor",
)
REPORTS = _asterisk(
    "the audit's role, `<prefix><pipeline>/*`, with reports in S3",
    "One action writes the reports of this pipeline, whose keys have day and run.",
    "ReportsOfThisPipeline",
)
REPORTED = _asterisk(
    "the audit's role, the folder of an inventory's reports",
    "One action reads the reports about this bucket, whose file names S3 chooses.",
    "FilesOfTheInventory",
)
PART_LISTS = _asterisk(
    "the consumer's role of sets, `<lists>/parts/*`, with an existing function or state machine",
    "One action stores the list of a set's parts. Its key is the version of the set.",
    "ListsOfParts",
)
FILES = _asterisk(
    "the roles of an audit in parts, `<files>/*`",
    "Named actions read and write files of runs and Athena's results, in a bucket for them only.",
    "FilesOfRuns",
    "ResultsByAthenasNames",
)
FILE_ACCESS_LOGS = Suppression(
    (
        "AwsSolutions-S1",
        "HIPAA.Security-S3BucketLoggingEnabled",
        "NIST.800.53.R5-S3BucketLoggingEnabled",
        "PCI.DSS.321-S3BucketLoggingEnabled",
    ),
    "the buckets of an audit in parts, and of lists of parts",
    "They have copies of listings and rows, which expire after 3 or 30 days.",
)
MACHINE_LOGS = Suppression(
    ("AwsSolutions-SF1",),
    "the state machine of an audit in parts",
    "Step Functions keeps the history for 90 days. The function's log has the parts, the report the result.",
)
MACHINE_TRACING = Suppression(
    ("AwsSolutions-SF2", "Serverless-StepFunctionStateMachineXray"),
    "the same state machine",
    "The history has the times of each step.",
)
MACHINE_EXECUTIONS = _asterisk(
    "CDK's policy for that machine's Distributed Maps",
    "Their child executions have no name before they start, and belong to this machine.",
)
EXECUTIONS = _asterisk(
    "the consumer's role, `execution:<machine>:*`, with a state machine",
    "Actions describe and stop this machine's executions, one is denied. Each attempt starts one with a new name.",
    "ExecutionsOfTheMachine",
)
DURABLE_EXECUTIONS = _asterisk(
    "consumer's and audit's roles, `<function>:*/durable-execution/*`, with a durable function",
    "Actions describe and stop this function's executions, also of former versions. Each attempt starts a new one.",
    "DurableExecutions",
)
INTERFACES = _asterisk(
    "both roles in a VPC, `*`, in a separate policy",
    "A network interface has no name before it exists, and EC2's actions to describe them support no resource.",
)
SEGMENTS = _asterisk(
    "the policy for X-Ray, with `MonitoringOptions(tracing=True)`",
    "X-Ray's actions for segments support no resource.",
)
NOTIFICATIONS_HANDLER = Suppression(
    ("AwsSolutions-IAM4",),
    "CDK's function for notifications of imported buckets",
    "CDK gives it AWS's managed policy for writing logs. A bucket of the stack does not need it.",
)

INLINE_POLICIES = Suppression(
    ("HIPAA.Security-IAMNoInlinePolicy", "NIST.800.53.R5-IAMNoInlinePolicy", "PCI.DSS.321-IAMNoInlinePolicy"),
    "each role of the library",
    "Role and policy belong to one function, schedule or machine. No other principal can get the policy.",
)
_HIPAA, _NIST, _PCI = "HIPAA.Security", "NIST.800.53.R5", "PCI.DSS.321"

CONCURRENCY = Suppression(
    tuple(f"{pack}-LambdaConcurrency" for pack in (_HIPAA, _NIST)),
    "the audit's functions",
    "One audit runs at a time. The account would lack the reserved concurrency for the rest of the day.",
)
FILE_COPIES = Suppression(
    tuple(
        f"{pack}-{rule}"
        for rule in ("S3BucketReplicationEnabled", "S3BucketVersioningEnabled")
        for pack in (_HIPAA, _NIST, _PCI)
    ),
    "the buckets of an audit in parts, and of lists of parts",
    "They have copies of listings and rows, which expire after 3 or 30 days. The next run or attempt makes new ones.",
)
WORKER_VARIABLES = Suppression(
    ("AwsSolutions-ECS2",),
    "the task definition of workers",
    "The variables are names and numbers, not secrets.",
)

ALIASED_KEY = _asterisk(
    "both roles, `key/*`, with a key imported by its alias",
    "A policy cannot name a key by its alias. The condition `kms:ResourceAliases` limits the statement to it.",
    "KeyOfTheAlias",
)
READERS = _asterisk(
    "a role of another stack, `<bucket>/<prefix>*`, after `grant_read`",
    "Two actions read the objects that the filters accept, whose keys are known only when they arrive.",
)

SUPPRESSIONS = tuple(one for one in tuple(globals().values()) if isinstance(one, Suppression))
"""All of them."""


def suppress(construct: IConstruct, *findings: Suppression, of: str = "") -> None:
    """Acknowledge findings of the resource of a construct.

    Pass all findings of a construct in one call, because each call goes to the CDK's process.

    Args:
        construct: the construct.
        findings: the findings with their reasons.
        of: the text that cdk-nag adds to the names of these findings; none when omitted.

    """
    reasons = {f"Annotation::{rule}{of}": finding.reason for finding in findings for rule in finding.rules}
    construct.node.add_metadata(ACKNOWLEDGED_RULES, reasons)


def suppress_wildcards(holder: iam.Role | iam.Policy, finding: Suppression | None = None) -> None:
    """Acknowledge resources with an asterisk in a policy, when the CDK validates the tree.

    The name of a finding contains the resource as in the template, and references to other stacks are known only then.

    Args:
        holder: a policy that CDK creates, or a role with its own policy.
        finding: of each asterisk in the policy. When omitted, the names of statements say which finding is theirs.

    """
    holder.node.add_validation(_Wildcards(holder, finding))


@jsii.implements(IValidation)
class _Wildcards:
    def __init__(self, holder: iam.Role | iam.Policy, finding: Suppression | None) -> None:
        self._holder, self._finding, self._done = holder, finding, False

    def validate(self) -> list[str]:
        """Acknowledge the findings. It returns no problems, and a second synthesis adds nothing."""
        holder = self._holder
        policy = holder if isinstance(holder, iam.Policy) else holder.node.try_find_child("DefaultPolicy")
        if self._done or not isinstance(policy, iam.Policy):
            return []
        self._done = True
        reasons: dict[str, str] = {}
        for statement in Stack.of(policy).resolve(policy.document)["Statement"]:
            # A statement of the team may have NotResource.
            named = statement.get("Resource", [])
            for resource in map(_spelt, named if isinstance(named, list) else [named]):
                if "*" in resource and (finding := self._finding or _finding_of(statement)):
                    reasons |= {f"Annotation::{rule}[Resource::{resource}]": finding.reason for rule in finding.rules}
        if reasons:
            policy.node.add_metadata(ACKNOWLEDGED_RULES, reasons)
        return []


def _finding_of(statement: Mapping[str, Any]) -> Suppression | None:
    sid = statement.get("Sid", "")
    return next((one for one in SUPPRESSIONS if one.sids and sid.startswith(one.sids)), None)


def _spelt(resolved: Any) -> str:
    """A resource as cdk-nag writes it into the name of a finding."""
    match resolved:
        case {"Fn::Join": [str(between), list(parts)]}:
            return between.join(map(_spelt, parts))
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{_spelt(name)}.{_spelt(attribute)}>"
        case {"Fn::ImportValue": name}:
            return _spelt(name)
        case {"Fn::Select": _}:
            return json.dumps(resolved, separators=(",", ":"))
        case {"Ref": name}:
            return f"<{name}>"
    return str(resolved)
