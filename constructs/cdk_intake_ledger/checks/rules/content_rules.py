"""Rules about copies in place, which are not processed again."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Copies in place")

SAME_CONTENT_RULE = SUBJECT.error(
    "same-content",
    inputs=("same_content",),
    what="same_content has the metadata {metadata}",
    why="{why}",
    fix="Use SameContent(hold=Duration.days(30)), or a field such as metadata='sha256'",
)
SAME_CONTENT_NEEDS_VERSIONS = SUBJECT.error(
    "same-content-needs-versions",
    inputs=("same_content", "bucket"),
    what="same_content is set and {bucket} keeps no versions",
    why="another content may take the place of the one that S3 was asked about",
    fix="Set versioned=True, or omit same_content",
)
SAME_CONTENT_EXECUTIONS = SUBJECT.error(
    "same-content-executions",
    inputs=("same_content", "processor"),
    what="same_content is set, and executions do the work",
    why="the end of an execution is written by a worker that has not seen its content",
    fix="Let the first step of the execution compare the content, or use a function",
)
SAME_CONTENT_EACH_VERSION = SUBJECT.error(
    "same-content-every-version",
    inputs=("same_content", "ordering"),
    what="same_content is set, and the ordering is EVERY_VERSION",
    why="it promises a call for each version, and no row says which one of a key was committed last",
    fix="Use the ordering LATEST, or omit same_content",
)
