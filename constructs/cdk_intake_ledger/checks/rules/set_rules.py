"""Rules about sets of files."""

from cdk_intake_ledger.checks.plan_check import Check, compare
from cdk_intake_ledger.checks.registry import Subject
from cdk_intake_ledger.checks.spans import DAY, HOUR, MINUTE, span

SUBJECT = Subject("Sets of files")
LONGEST_QUIET = 11 * HOUR

SET_FORM_PATTERN = SUBJECT.error(
    "set-form-pattern",
    inputs=("form",),
    what="the {kind} form has the pattern {pattern!r}",
    why="{why}",
    fix="Use a pattern such as {example!r}",
)
SET_OUTSIDE_FILTERS = SUBJECT.error(
    "set-outside-filters",
    inputs=("form", "filters"),
    what="no key of {pattern!r} passes the filters of the pipeline ({filters})",
    why="the ledger never sees these objects, so no set would be processed",
    fix="Add a filter for these keys to the pipeline, or correct the pattern",
)
SET_WITHOUT_PARTS = SUBJECT.error(
    "set-without-parts",
    inputs=("form", "filters"),
    what="the filters of the pipeline ({filters}) pass {pattern!r} and no part",
    why="the ledger never sees the parts, so each set would be empty",
    fix="Add a filter for the parts to the pipeline",
)
SET_MANIFEST_FORMAT = SUBJECT.warning(
    "set-manifest-format",
    inputs=("form",),
    what="the manifest {pattern!r} is read as {format}",
    why="its name ends as a file of the format {usual} does, and a manifest that cannot be read is rejected",
    fix="Pass format=ManifestFormat.{usual}, or acknowledge the warning",
)
SET_FORMS_OVERLAP = SUBJECT.error(
    "set-forms-overlap",
    inputs=("form",),
    what="{pattern!r} and {other_pattern!r} of {other} can match the same key",
    why="each of them would process the same files as a set of its own",
    fix="Use patterns that exclude each other, or one FileSets with one processor",
)
SET_EVERY_VERSION = SUBJECT.error(
    "set-every-version",
    inputs=("pipeline", "ordering"),
    what="{path} has the ordering EVERY_VERSION",
    why="a set has one version of each part, and EVERY_VERSION has a row for each version",
    fix="Use a pipeline with Ordering.LATEST for the parts",
)
LONGEST_DEADLINE = 365 * DAY
"""Longer than the retention of a queue: the message of a set that waits copies itself before its end."""
SET_OTHER_STACK = SUBJECT.error(
    "set-other-stack",
    inputs=("pipeline",),
    what="the set is in the stack {stack} and its pipeline in {other}",
    why="the functions of both send to each other, so the stacks would depend on each other",
    fix="Create the set in the stack of its pipeline",
)
SET_AFTER_WORKERS = SUBJECT.error(
    "set-after-workers",
    inputs=("pipeline",),
    what="{path} has IntakeWorkers already",
    why="the workers would not know the set, and would not wake it",
    fix="Create FileSets before IntakeWorkers",
)
SET_ROWS_EXPIRE = SUBJECT.warning(
    "set-rows-expire",
    inputs=("pipeline",),
    what="the ledger of {path} keeps the row of a committed part for {retention}",
    why="a part without a row is missing, so a set whose part is replaced later waits for the others",
    fix="Use IntakeLedger(retention=None) in the pipeline, or acknowledge this if parts are never replaced so late",
)
SET_DEADLINE_TWICE = SUBJECT.error(
    "set-deadline-twice",
    inputs=("deadline", "retry"),
    what="retry has a max_wait",
    why="the longest wait of a set for its parts is its deadline",
    fix="Pass deadline, and omit max_wait",
)
SET_PER_CALL = SUBJECT.error(
    "set-per-call",
    inputs=("processor", "max_per_call"),
    what="the processor has max_per_call={most}",
    why="a set has many files already, and each set has one call",
    fix="Omit max_per_call",
)

CHECKS: tuple[Check, ...] = (
    compare(SUBJECT, "set-quiet-for", "quiet_for", lambda plan: not 1 <= plan.quiet_for <= LONGEST_QUIET,
            "quiet_for is {quiet_for}", "SQS hides a waiting message for at most 12 hours",
            f"Use 1 second to {span(LONGEST_QUIET)}"),
    compare(SUBJECT, "set-deadline", "deadline", lambda plan: not MINUTE <= plan.deadline <= LONGEST_DEADLINE,
            "the deadline is {deadline}", "a set looks for its parts once in a minute at first",
            f"Use 1 minute to {span(LONGEST_DEADLINE)}"),
    compare(SUBJECT, "set-alarm-after", "alarm_after deadline",
            lambda plan: not MINUTE <= plan.alarm_after < plan.deadline,
            "alarm_after is {alarm_after} and the deadline of the set is {deadline}",
            "a set is rejected at its deadline, so the alarm about its wait would come too late or never",
            "Use at least 1 minute and less than {deadline}, or omit alarm_after for half of the deadline"),
    # All uploads of a period of `quiet_for` make one wait. It begins with the first of them, and ends `quiet_for` after
    # the last one.
    compare(SUBJECT, "set-quiet-deadline", "quiet_for deadline", lambda plan: plan.deadline < 2 * plan.quiet_for,
            "quiet_for is {quiet_for} and the deadline is {deadline}",
            "the wait for quiet takes up to twice as long as quiet_for, so folders would be rejected that miss nothing",
            "Use a deadline of at least {least}, or a shorter quiet_for", least=lambda plan: 2 * plan.quiet_for),
)  # fmt: skip
