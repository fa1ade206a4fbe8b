"""Rules about groups of keys that exclude each other."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Groups of keys")

GROUP_PATTERN = SUBJECT.error(
    "group-pattern",
    inputs=("exclusive_by",),
    what="exclusive_by is {pattern!r}",
    why="{why}",
    fix="Use a pattern such as 'invoices/{{account}}/'",
)
GROUP_OUTSIDE_FILTERS = SUBJECT.error(
    "group-outside-filters",
    inputs=("exclusive_by", "filters"),
    what="exclusive_by is {pattern!r} and the filters pass keys with the prefix {prefixes} only",
    why="no key would have a group, so nothing would exclude anything",
    fix="Begin the pattern as the keys begin",
)
GROUP_PER_CALL = SUBJECT.error(
    "groups-without-calls",
    inputs=("exclusive_by", "max_per_call"),
    what="exclusive_by is {pattern!r} and max_per_call is {most}",
    why="the changes of a call would hold several groups until the slowest of them has ended",
    fix="Omit max_per_call, or call the processor for a set of files",
)
GROUP_COMMIT_TOGETHER = SUBJECT.error(
    "groups-without-commit-together",
    inputs=("exclusive_by", "commit_together"),
    what="exclusive_by is {pattern!r} and commit_together is on",
    why="a commit frees the group, and the next key of the group would wait for it",
    fix="Omit commit_together",
)
