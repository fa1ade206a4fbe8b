"""Rules about sets of files."""

from collections.abc import Iterator

from cdk_intake_ledger.checks.plan import DAY, HOUR, MINUTE, span
from cdk_intake_ledger.checks.registry import Problem, Subject

SUBJECT = Subject("Sets of files")
LONGEST_QUIET = 11 * HOUR

SET_FORM_PATTERN = SUBJECT.error(
    "set-form-pattern",
    inputs=("form",),
    what="the {kind} form has the pattern {pattern!r}",
    why="{why}",
    fix="Use a pattern such as {example!r}",
)
SET_QUIET_FOR = SUBJECT.error(
    "set-quiet-for",
    inputs=("quiet_for",),
    what="quiet_for is {value}",
    why="SQS hides a waiting message for at most 12 hours",
    fix="Use 1 second to {longest}",
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
SET_DEADLINE = SUBJECT.error(
    "set-deadline",
    inputs=("deadline",),
    what="the deadline is {deadline}",
    why="a set looks for its parts once in a minute at first",
    fix="Use 1 minute to {most}",
)
SET_ALARM_AFTER = SUBJECT.error(
    "set-alarm-after",
    inputs=("alarm_after", "deadline"),
    what="alarm_after is {value} and the deadline of the set is {deadline}",
    why="a set is rejected at its deadline, so the alarm about its wait would come too late or never",
    fix="Use at least 1 minute and less than {deadline}, or omit alarm_after for half of the deadline",
)
SET_QUIET_DEADLINE = SUBJECT.error(
    "set-quiet-deadline",
    inputs=("quiet_for", "deadline"),
    what="quiet_for is {value} and the deadline is {deadline}",
    why="the wait for quiet takes up to twice as long as quiet_for, so folders would be rejected that miss nothing",
    fix="Use a deadline of at least {least}, or a shorter quiet_for",
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


def deadline_problems(deadline: float | None) -> Iterator[Problem]:
    """A deadline, in seconds, that is too short or too long."""
    if deadline is not None and not MINUTE <= deadline <= LONGEST_DEADLINE:
        yield SET_DEADLINE.problem(deadline=span(deadline), most=span(LONGEST_DEADLINE))


def alarm_after_problems(alarm_after: float, deadline: float) -> Iterator[Problem]:
    """An alarm that comes after the deadline, or at once. Both times are in seconds."""
    if not MINUTE <= alarm_after < deadline:
        yield SET_ALARM_AFTER.problem(value=span(alarm_after), deadline=span(deadline))


def quiet_deadline_problems(quiet_for: float, deadline: float) -> Iterator[Problem]:
    """A deadline before the folder can be quiet. Both times are in seconds.

    All uploads of a period of `quiet_for` make one wait. It begins with the first of them, and ends `quiet_for` after
    the last one.
    """
    if deadline < 2 * quiet_for:
        yield SET_QUIET_DEADLINE.problem(value=span(quiet_for), deadline=span(deadline), least=span(2 * quiet_for))


def quiet_problems(quiet_for: float) -> Iterator[Problem]:
    """A quiet time that SQS cannot hold, in seconds."""
    if not 1 <= quiet_for <= LONGEST_QUIET:
        yield SET_QUIET_FOR.problem(value=span(quiet_for), longest=span(LONGEST_QUIET))
