"""Rules about the types of arguments."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Types of arguments")

ARGUMENT_TYPE = SUBJECT.error(
    "argument-type",
    inputs=("each argument",),
    what="{name} is {value}",
    why="it must be {expected}",
    fix="Pass {right}",
)
