"""What cdk-nag finds in a pipeline and what is accepted, each with its reason, said at the construct of the resource.

cdk-nag 3 reads acknowledgements from the construct tree's metadata, where CDK's `Validations.of(...).acknowledge(...)`
writes them. They are written there directly, since that function is younger than the oldest CDK that is supported;
nothing of cdk-nag is imported, and no template changes. `docs/security.md` shows the same table.
"""

import json
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


ACCESS_LOGS = Suppression(
    ("AwsSolutions-S1",),
    "the pipeline's bucket",
    "Where access logs go is the account's choice: bring a bucket that has them, or CloudTrail's data events. What was "
    "read and why is in the consumer's log and in the ledger.",
)
DEAD_LETTERS = Suppression(
    ("Serverless-SQSRedrivePolicy",),
    "the dead-letter queue",
    "It is the end of the line; an alarm tells of the first message in it.",
)
RUNTIME = Suppression(
    ("AwsSolutions-L1", "Serverless-LambdaLatestVersion"),
    "both functions, while they run on the default runtime",
    "The runtime's tests run on Python 3.13, which Lambda supports; a processor may choose another one.",
)
TRACING = Suppression(
    ("Serverless-LambdaTracing",),
    "both functions",
    "Each decision is a log line with key, version, fence and lag. X-Ray costs by the trace and follows no message "
    "through S3; a team that traces sets `TracingConfig` on the function.",
)
CONSUMER_DEAD_LETTERS = Suppression(
    ("Serverless-LambdaDLQ",),
    "the consumer's function",
    "That setting is for asynchronous calls; this function is called by its queue, which has a dead-letter queue.",
)
SOURCE_DESTINATION = Suppression(
    ("Serverless-LambdaEventSourceMappingDestination",),
    "the consumer's event source",
    "A destination is for streams; what a queue's consumer fails at goes to the dead-letter queue, with its reason.",
)
AUDIT_DEAD_LETTERS = Suppression(
    ("Serverless-LambdaDLQ",),
    "the audit's function",
    "A run that fails leaves nothing behind to be done later: the next one finds what it missed.",
)
AUDIT_DESTINATION = Suppression(
    ("Serverless-LambdaAsyncFailureDestination",),
    "how the audit's function is invoked",
    "The same; an alarm tells when no run comes to its end any more.",
)
OBJECTS = Suppression(
    ("AwsSolutions-IAM5",),
    "both roles, `<bucket>/<prefix>*`",
    "Reading the objects that the filters let through, by two named actions: their keys are known when they arrive. A "
    "filter without a prefix makes it `<bucket>/*`.",
)
METRICS = Suppression(
    ("AwsSolutions-IAM5",),
    "the audit's role, `*`",
    "Reading the age of the queue's oldest message, and finding event source mappings by their queue and EventBridge "
    "rules by their target: none of these services knows a resource for it.",
)
RULES_BY_TARGET = Suppression(
    ("AwsSolutions-IAM5",),
    "the audit's role, `rule/*`, where EventBridge delivers",
    "Two reading actions: naming the rule would tie rule, queue and role in a circle.",
)
REPORTS = Suppression(
    ("AwsSolutions-IAM5",),
    "the audit's role, `<prefix><pipeline>/*`, where reports are wanted",
    "Writing the reports of this pipeline, by one named action: each has the day and the run in its key.",
)
REPORTED = Suppression(
    ("AwsSolutions-IAM5",),
    "the audit's role, the folder of the inventory's reports, where the audit goes by one",
    "Reading the reports about this one bucket, by one named action: S3 names their files.",
)
FILES = Suppression(
    ("AwsSolutions-IAM5",),
    "the roles of an audit in parts, `<files>/*`",
    "Reading and writing the files of runs and Athena's results, by named actions, in a bucket that has nothing else.",
)
FILE_ACCESS_LOGS = Suppression(
    ("AwsSolutions-S1",),
    "the bucket with the files of an audit in parts",
    "They are copies of what the audit has listed, and expire after three days.",
)
MACHINE_LOGS = Suppression(
    ("AwsSolutions-SF1",),
    "the state machine of an audit in parts",
    "Step Functions keeps each execution's history for 90 days; what the parts did is in the function's log, and what "
    "came of the run in its report.",
)
MACHINE_TRACING = Suppression(
    ("AwsSolutions-SF2", "Serverless-StepFunctionStateMachineXray"),
    "the same state machine",
    "Each step's times are in the execution's history; X-Ray costs by the trace.",
)
MACHINE_EXECUTIONS = Suppression(
    ("AwsSolutions-IAM5",),
    "CDK's own policy for that machine's Distributed Maps",
    "The children that a Distributed Map starts have no name before they are there; they are this machine's own.",
)
INTERFACES = Suppression(
    ("AwsSolutions-IAM5",),
    "both roles in a VPC, `*`, in a policy of its own",
    "A network interface of a function has no name before it is there, and EC2 knows no resource for describing them.",
)
NOTIFICATIONS_HANDLER = Suppression(
    ("AwsSolutions-IAM4",),
    "CDK's own function for the notifications of imported buckets, where the pipeline brought it in",
    "CDK gives its custom resource AWS's policy for writing logs; one's own bucket needs no such function.",
)

SUPPRESSIONS = (
    ACCESS_LOGS,
    DEAD_LETTERS,
    RUNTIME,
    TRACING,
    CONSUMER_DEAD_LETTERS,
    SOURCE_DESTINATION,
    AUDIT_DEAD_LETTERS,
    AUDIT_DESTINATION,
    OBJECTS,
    METRICS,
    RULES_BY_TARGET,
    REPORTS,
    REPORTED,
    FILES,
    FILE_ACCESS_LOGS,
    MACHINE_LOGS,
    MACHINE_TRACING,
    MACHINE_EXECUTIONS,
    INTERFACES,
    NOTIFICATIONS_HANDLER,
)
"""All of them."""


def suppress(construct: IConstruct, *findings: Suppression, of: str = "") -> None:
    """Acknowledge findings at a construct, for its own resource; `of` is what cdk-nag adds to their names, if anything.

    Where there are several for one construct, all at once: each call crosses over to the CDK's process.
    """
    reasons = {f"Annotation::{rule}{of}": finding.reason for finding in findings for rule in finding.rules}
    construct.node.add_metadata(ACKNOWLEDGED_RULES, reasons)


def suppress_wildcards(policy: iam.Policy, finding: Suppression) -> None:
    """Acknowledge every resource with an asterisk in a policy that is CDK's own."""
    policy.node.add_validation(_EachWildcard(policy, finding))


@jsii.implements(IValidation)
class Wildcards:
    """The resources with an asterisk that the roles of one pipeline may have in their own policies.

    They are acknowledged when CDK validates the tree: a finding is named after the resource as the template will spell
    it, and how it refers to another stack's is known only then.
    """

    def __init__(self, scope: IConstruct) -> None:
        self._scope = scope
        self._accepted: dict[iam.Role, list[tuple[str, Suppression]]] = {}

    def suppress(self, role: iam.Role, resource: str, finding: Suppression) -> None:
        """Acknowledge that a role's own policy names this resource."""
        self._accepted.setdefault(role, []).append((resource, finding))

    def validate(self) -> list[str]:
        """No problems; a second synthesis adds nothing."""
        accepted, self._accepted = self._accepted, {}
        resources = [[resource for resource, _ in entries] for entries in accepted.values()]
        resolved = Stack.of(self._scope).resolve(resources)
        for (role, entries), spellings in zip(accepted.items(), resolved, strict=True):
            policy = role.node.try_find_child("DefaultPolicy")
            if policy is not None:
                reasons = {
                    f"Annotation::{rule}[Resource::{_spelt(spelling)}]": finding.reason
                    for (_, finding), spelling in zip(entries, spellings, strict=True)
                    for rule in finding.rules
                }
                policy.node.add_metadata(ACKNOWLEDGED_RULES, reasons)
        return []


@jsii.implements(IValidation)
class _EachWildcard:
    """As above, for whatever the policy has come to."""

    def __init__(self, policy: iam.Policy, finding: Suppression) -> None:
        self._policy = policy
        self._finding = finding
        self._done = False

    def validate(self) -> list[str]:
        """No problems; a second synthesis adds nothing."""
        statements = Stack.of(self._policy).resolve(self._policy.document)["Statement"]
        given = (one["Resource"] for one in statements if not self._done)
        resources = [spelt for one in given for spelt in map(_spelt, one if isinstance(one, list) else [one])]
        self._done = True
        for resource in resources:
            if "*" in resource:
                suppress(self._policy, self._finding, of=f"[Resource::{resource}]")
        return []


def _spelt(resolved: Any) -> str:
    """A resource as cdk-nag writes it into a finding's name."""
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
