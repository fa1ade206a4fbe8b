"""Rules about the keys that a pipeline leaves out."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Files that are left out")

EXCLUDE_PATTERNS = SUBJECT.error(
    "exclude-patterns",
    inputs=("exclude",),
    what="exclude is {patterns}",
    why="{why}",
    fix="Use patterns such as '_*', '*.filepart', '_temporary/' or 'in/*.tmp'",
)
EXCLUDE_REMOVALS_OF_VERSIONS = SUBJECT.error(
    "exclude-removals-of-versions",
    inputs=("exclude", "deletes", "ordering"),
    what="exclude is set, deletes is on, and the ordering is EVERY_VERSION",
    why="a delete marker does not name the versions before it, so the ledger could not know whether one of them was "
    "processed, and its removal would be lost",
    fix="Omit deletes, use the ordering LATEST, or let the processor return for these keys",
)
