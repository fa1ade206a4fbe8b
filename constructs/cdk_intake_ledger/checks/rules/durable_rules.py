"""Rules about a durable Lambda function as the processor."""

from cdk_intake_ledger.checks.plan_check import Check, compare
from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Durable functions as processors")

DURABLE_UNQUALIFIED = SUBJECT.error(
    "durable-unqualified",
    inputs=("function",),
    what="the durable function {path} is no version and no alias",
    why="an execution that waits for days would continue with other code after a deployment",
    fix="Pass a version or an alias, such as fn.current_version",
)
DURABLE_NOT_ENABLED = SUBJECT.error(
    "durable-not-enabled",
    inputs=("function",),
    what="the function {path} has no durable configuration",
    why="Lambda would run it as an ordinary function, which has no executions",
    fix="Give it durable_config=lambda_.DurableConfig(...), or use Processor.from_function",
)
DURABLE_MANAGED = SUBJECT.error(
    "durable-managed",
    inputs=("function",),
    what="the durable function {path} runs on Lambda Managed Instances",
    why="Lambda does not end a function there at its timeout, so an execution that was stopped could write at any time",
    fix="Omit its capacity provider",
)
DURABLE_VERSION_REMOVED = SUBJECT.error(
    "durable-version-removed",
    inputs=("function",),
    what="a deployment of other code removes the version of {path}",
    why="its executions, which may wait for days, need their version until they end",
    fix=(
        "Give the function current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN), or the "
        "version this removal_policy"
    ),
)
DURABLE_UNKNOWN = SUBJECT.warning(
    "durable-unknown",
    inputs=("function",),
    what="the durable function {path} is imported, so its configuration is not checked",
    why="it has to be durable, its execution timeout may be {limit} at most, and its versions have to be kept",
    fix="Check these where the function is made",
)

CHECKS: tuple[Check, ...] = (
    compare(SUBJECT, "durable-retention", "execution_retention audit_interval",
            lambda plan: plan.execution_retention < 2 * plan.audit_interval,
            "the durable function keeps an execution that has ended for {execution_retention}",
            "if its message is lost, the audit finds its outcome, and one audit may fail; then the work is done again",
            "Set its retention_period to at least {least}, or a shorter interval of the audit",
            least=lambda plan: 2 * plan.audit_interval),
)  # fmt: skip
