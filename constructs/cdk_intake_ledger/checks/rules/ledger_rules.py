"""Rules about the ledger's table, and about fixed names."""

from cdk_intake_ledger.checks.limits import MAX_NAME
from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Ledger and fixed names")

KEY_OF_EXISTING_TABLE = SUBJECT.error(
    "key-of-existing-table",
    inputs=("table", "encryption_key"),
    what="encryption_key is set for an existing table",
    why="it belongs to the table",
    fix="Set it where the table is created, and omit it here",
)
TABLE_UNKNOWN = SUBJECT.warning(
    "table-unknown",
    inputs=("table",),
    what="keys, time to live and index of {path} cannot be seen at synthesis",
    why="the ledger works only with the right ones",
    fix=(
        "Check that it has the keys {partition_key} and {sort_key} (strings), time to live by {attribute}, and the "
        "index {index} by {index} (a string) and {time} (a number)"
    ),
)
NAME_IS_TOKEN = SUBJECT.error(
    "name-is-token",
    inputs=("name", "ledger_name"),
    what="{option} is a token",
    why="logical IDs follow from it",
    fix="Pass a plain text",
)
NAME_FORMAT = SUBJECT.error(
    "name-format",
    inputs=("name", "ledger_name"),
    what="{option} is {name!r}",
    why="it is a part of row keys, metrics and logical IDs",
    fix=f"Use 1 to {MAX_NAME} letters, digits, - and _, with a letter first",
)
NAME_IN_USE = SUBJECT.error(
    "name-in-use",
    inputs=("name", "ledger_name"),
    what="{option} is {name!r}, which {other} already has in this stack",
    why="both would have the same logical IDs",
    fix="Give each its own name",
)
PIPELINE_NAME_ON_LEDGER = SUBJECT.error(
    "pipeline-name-on-ledger",
    inputs=("name", "ledger"),
    what="name is {name!r}, which {other} already has on the same ledger",
    why="both would use the same rows",
    fix="Give each its own name",
)
PIPELINE_NAME_TWICE = SUBJECT.warning(
    "pipeline-name-twice",
    inputs=("name",),
    what="name is {name!r}, which {other} already has in the same account and region",
    why="CloudWatch would add up the metrics of both",
    fix="Give each its own name",
)
OUTCOME_SECOND_READER = SUBJECT.error(
    "outcome-events-twice",
    inputs=("intakes",),
    what="{path} sends the outcomes of this ledger already",
    why="more than two readers of a stream are throttled",
    fix="Pass all intakes of the ledger to one construct",
)
OUTCOME_NO_STREAM = SUBJECT.error(
    "outcome-events-without-stream",
    inputs=("intakes",),
    what="the stream of {path} is not known",
    why="events are made from the stream of the table",
    fix="Turn on the stream with new and old images, and import the table with its table_stream_arn",
)
OUTCOME_STREAM_VIEW = SUBJECT.error(
    "outcome-events-stream-view",
    inputs=("intakes",),
    what="the stream of {path} has {view}",
    why="an outcome is a difference between two images of a row",
    fix="Let the stream have {both}",
)
OUTCOME_NO_INTAKE = SUBJECT.error(
    "outcome-events-of-nothing",
    inputs=("intakes",),
    what="intakes is empty",
    why="no event would be sent",
    fix="Pass at least one pipeline, intake or set",
)
OUTCOME_SEVERAL_LEDGERS = SUBJECT.error(
    "outcome-events-of-several-ledgers",
    inputs=("intakes",),
    what="{first} and {other} have different ledgers",
    why="one function reads one stream",
    fix="Create one construct for each ledger",
)
OUTCOME_LOOP = SUBJECT.error(
    "outcome-events-loop",
    inputs=("intakes", "source"),
    what="outcomes come back as messages: {cycle}",
    why="each outcome is a new message, and its outcome is the next one, without an end",
    fix='Name other intakes in the pattern, such as detail={{"pipeline": [orders.name]}}, or omit one here',
)
OUTCOME_MAY_LOOP = SUBJECT.warning(
    "outcome-events-may-loop",
    inputs=("intakes", "source"),
    what="outcomes may come back as messages: {cycle}",
    why="each outcome would be a new message, and its outcome the next one: some values decide, which come later",
    fix='Name other intakes in the pattern, such as detail={{"pipeline": [orders.name]}}, or acknowledge the warning',
)
OUTCOME_LATE_AFTER = SUBJECT.error(
    "outcome-events-late-after",
    inputs=("late_after",),
    what="late_after is {value}",
    why="the alarm has periods of five minutes, and the stream keeps a record for 24 hours",
    fix="Use 5 minutes to 12 hours",
)
