"""Rules about options that have moved into a group."""

from cdk_intake_ledger.validation.registry import Subject

SUBJECT = Subject("Former options")

OPTION_IN_GROUP = SUBJECT.error(
    "option-in-group",
    inputs=("concurrency", "network", "monitoring"),
    what="{name} is now in a group",
    why="the pipeline does not have this option any more",
    fix="Write {now}",
)
