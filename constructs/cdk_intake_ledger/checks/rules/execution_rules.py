"""Rules about executions as the processor, and about state machines."""

from cdk_intake_ledger.checks.plan_check import Check, between, compare
from cdk_intake_ledger.checks.registry import Subject
from cdk_intake_ledger.checks.spans import DAY

SUBJECT = Subject("Executions and state machines as processors")

LONGEST = 365 * DAY
"""SQS hides a message for at most 12 hours, and the consumer polls an execution in shorter steps."""

EXECUTION_ENVIRONMENT = SUBJECT.error(
    "execution-environment",
    inputs=("machine", "function"),
    what="{place} is in {theirs} and the consumer is in {ours}",
    why="the consumer asks its own account and region about executions, and gets the events of no other",
    fix="Use one of the same account and region, which may start or invoke the other one",
)
EXECUTION_TIMEOUT = SUBJECT.error(
    "execution-timeout",
    inputs=("machine", "function", "timeout"),
    what="an execution of {place} may run for {theirs} and the processor has a timeout of {ours}",
    why="the polls, the alarms and the wait of its message follow from the processor's timeout",
    fix="Set the processor's timeout to at least {theirs}, or give the executions a shorter one",
)
MACHINE_EXPRESS = SUBJECT.error(
    "machine-express",
    inputs=("machine",),
    what="the state machine {path} is EXPRESS",
    why="an express execution can run twice, ends after 5 minutes, and cannot be described",
    fix="Use a STANDARD state machine",
)
MACHINE_VERSION = SUBJECT.error(
    "machine-version",
    inputs=("machine",),
    what="{arn} is a version or an alias",
    why="the executions of one attempt could be of two versions",
    fix="Pass the state machine itself",
)
MACHINE_WITHOUT_TIMEOUT = SUBJECT.warning(
    "machine-without-timeout",
    inputs=("machine",),
    what="the state machine {path} has no timeout",
    why="an execution that hangs would hold its object for up to a year",
    fix="Set its timeout to at most {ours}",
)
STOP_OVERTAKEN = SUBJECT.error(
    "stop-overtaken",
    inputs=("stop_overtaken",),
    what="stop_overtaken is on, and {path} is {place}",
    why="work is stopped only if a newer version of its object takes its place, as with the ordering LATEST",
    fix="Omit stop_overtaken",
)

_STOP_EARLY = compare(SUBJECT, "stop-overtaken-before-timeout", "execution_timeout longest_task",
                      lambda plan: plan.stop_overtaken and plan.longest_task >= plan.execution_timeout,
                      "stop_overtaken is on, longest_task is {longest_task} and the timeout of an execution is "
                      "{execution_timeout}",
                      "a newer version begins longest_task after the stop, so it would begin no earlier",
                      "Set longest_task to the longest timeout of a task, or omit stop_overtaken")  # fmt: skip
STOP_EARLY = _STOP_EARLY.rule

CHECKS: tuple[Check, ...] = (
    between(SUBJECT, "execution_timeout", 1, LONGEST, "because AWS ends an execution after a year"),
    between(SUBJECT, "longest_task", 1, LONGEST, "because AWS ends an execution after a year"),
    compare(SUBJECT, "executions-without-threads", "execution_timeout threads", lambda plan: plan.threads > 1,
            "threads is {threads} and the processor runs in executions",
            "the consumer only starts executions, and AWS runs them at the same time", "Omit threads"),
    compare(SUBJECT, "executions-without-commit-together", "execution_timeout commit_together",
            lambda plan: plan.commit_together, "commit_together is on and the processor runs in executions",
            "executions end one after the other, and each one is committed by itself", "Omit commit_together"),
    _STOP_EARLY,
)  # fmt: skip
