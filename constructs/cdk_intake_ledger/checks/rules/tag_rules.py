"""Rules about the tags of versions: after the commit, and before the start."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Tags")
LEAST_TAG_WAIT = 600
"""Seconds in which a scanner can answer."""

TAG_TEXTS = SUBJECT.error(
    "after-commit-tag",
    inputs=("after_commit",),
    what="after_commit is {tag}",
    why="{why}",
    fix="Use a tag such as Tag('intake', 'done')",
)
TAG_NEEDS_VERSIONS = SUBJECT.error(
    "after-commit-needs-versions",
    inputs=("after_commit", "bucket"),
    what="after_commit is set and {bucket} keeps no versions",
    why="a tag of a key may reach an object that was uploaded after the commit, and a lifecycle rule would remove it "
    "unprocessed",
    fix="Set versioned=True, or omit after_commit",
)
TAG_RULES_OF_IMPORTED = SUBJECT.error(
    "after-commit-rules-of-imported",
    inputs=("after_commit", "bucket"),
    what="after_commit has expire_after or transitions, and {bucket} is imported",
    why="the app cannot add a lifecycle rule to it",
    fix="Omit both, and let its owner add an expiration rule with this tag to those that the bucket has",
)
TAG_EXPIRY_DAYS = SUBJECT.error(
    "after-commit-expiry-days",
    inputs=("after_commit",),
    what="expire_after is {value}",
    why="S3 counts whole days, and a message of the object may live for {message_life}: a reprocess, or the repair "
    "after a late worker, reads the object again",
    fix="Use whole days, at least {message_life}, such as Duration.days(30)",
)
TAG_EXPIRY_WITH_DELETES = SUBJECT.error(
    "after-commit-expiry-with-deletes",
    inputs=("after_commit", "deletes"),
    what="after_commit has expire_after, and deletes is on",
    why="an expiration makes a delete marker, so the processor would be called for a removal and empty the downstream",
    fix="Omit deletes, or omit expire_after",
)
TAG_EXPIRY_OF_PARTS = SUBJECT.error(
    "after-commit-expiry-of-parts",
    inputs=("pipeline", "after_commit"),
    what="after_commit of {path} {does}, and its objects are parts of sets",
    why="the tag says that a part was committed, and not that its set has read it: a set that waits would lose parts",
    fix="Omit it, and let the processor of the sets remove or archive parts",
)
READY_TEXTS = SUBJECT.error(
    "ready-when-tag",
    inputs=("ready_when",),
    what="ready_when is {tag}",
    why="{why}",
    fix="Use a tag such as ReadyTag('scan', ['clean'], refuse=['infected'])",
)
READY_NEEDS_VERSIONS = SUBJECT.error(
    "ready-when-needs-versions",
    inputs=("ready_when", "bucket"),
    what="ready_when is set and {bucket} keeps no versions",
    why="the tag may be that of a newer content",
    fix="Set versioned=True, or omit ready_when",
)
READY_NO_EXECUTIONS = SUBJECT.error(
    "ready-when-executions",
    inputs=("ready_when", "processor"),
    what="ready_when is set, and executions do the work",
    why="a claim whose execution a paused worker may start cannot be given up at max_wait",
    fix="Let the first step of the execution wait for the tag, or use a function",
)
READY_SAME_TAG = SUBJECT.error(
    "ready-when-after-commit",
    inputs=("ready_when", "after_commit"),
    what="ready_when and after_commit have the tag {key}",
    why="the commit would replace the value that a rollback needs again",
    fix="Use another key for after_commit",
)
READY_MAX_WAIT = SUBJECT.error(
    "ready-when-max-wait",
    inputs=("ready_when", "max_wait"),
    what="max_wait is {value}, and versions wait for a tag",
    why="a scanner may take minutes",
    fix="Use at least {least}",
)
