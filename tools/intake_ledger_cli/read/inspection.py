"""Compares the ledger with S3 for one key. Messages have rows only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger.ledger.row_history import all_rows_since, record_key, with_former
from intake_ledger.protocol.change import ABSENT, Skipped, State, StateKind
from intake_ledger.protocol.row import MAX_NAME_BYTES, Ordering, Row, Status, truncate
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger_cli.aws import reading, s3_listing
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import FunctionErrors, read_errors
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.executions import Executions, execution_of, executions_of, standing
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.errors import UsageError, denied_action, unless_denied
from intake_ledger_cli.pipeline_options.exclusive_by import GroupState, group_of, with_holder
from intake_ledger_cli.read.history import History, history_lines, read_history
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import WARNING, escape, heading
from intake_ledger_cli.show.formatting import agreement
from intake_ledger_cli.show.json_output import document
from intake_ledger_cli.show.render import fields

_HOUR_MS = 3_600_000
_SKIPPED = "the pipeline skips it as a directory marker: `intake-ledger retry --again` with this key processes it"
_EXCLUDED = "the pipeline leaves it out: `exclude` matches its key, or matched it when it was uploaded"
_NO_LISTING = "messages are in no listing that the row could be compared with"


@dataclass(frozen=True, slots=True)
class Inspected:
    """A row and a state of the same object or version. One of them may be missing."""

    row: Row | None
    s3: State | None
    """None if S3 was not read, or if S3 no longer has the row's version."""
    agree: bool | None
    """None if the comparison is not possible."""
    why: str
    execution: str | None = None
    """The ARN of the execution of the row's last claim, or its name if AWS has not told the ARN. None without
    executions.
    """
    last_step: str | None = None
    """The last operation of a durable execution. None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedKey:
    """The document of `inspect` for objects and messages."""

    pipeline: str
    bucket: str
    key: str
    wanted: bool
    """False if the key matches none of the filters."""
    filters: tuple[KeyFilter, ...]
    denied: str | None
    """The action that the caller lacks to read S3."""
    states: list[Inspected]
    group: GroupState | None = None
    """The group of the key (`exclusive_by`). None if it has none, or if the ledger's locks may not be read."""
    history: History | None = None
    """None without an attempt, or if the log was not searched."""
    consumer_errors: FunctionErrors | None = None
    """Since the upload. None if the key has a row."""


def key_in(deployed: DeployedPipeline, text: str) -> str:
    """Return the key of a key or an `s3://` URI. The key of a message may be any text.

    Raises:
        UsageError: The URI names another bucket than the pipeline's, or no key.

    """
    if not text.startswith("s3://") or not deployed.work.in_bucket:
        return text
    bucket, _, key = text.removeprefix("s3://").partition("/")
    if bucket != deployed.bucket:
        raise UsageError(f"{text} is in the bucket {bucket}, and {deployed.name} processes {deployed.bucket}")
    if not key:
        raise UsageError(f"{text} names a bucket without a key")
    return key


def inspect_key(aws: Aws, deployed: DeployedPipeline, key: str, now: int, *, logs: bool) -> InspectedKey:
    """Compare the rows of a key with S3. With `logs`, read the attempts and errors of the consumer's log.

    Raises:
        ClientError: AWS returns an error other than a denial.

    """
    states, denied = _states(aws, deployed, key, now)
    executions = executions_of(aws, deployed)
    found = InspectedKey(
        pipeline=deployed.name,
        bucket=deployed.bucket,
        key=key,
        wanted=deployed.wants(key),
        filters=deployed.filters,
        denied=denied,
        states=[_with_execution(executions, deployed, key, one, now) for one in states],
        group=_group(aws, deployed, key, now),
    )
    if not logs:
        return found
    since = None if deployed.setting("has_workers") else unclaimed_since(deployed, states, now)
    return replace(
        found,
        history=read_history(aws, deployed, key, [one.row for one in states if one.row is not None], now),
        consumer_errors=None if since is None else read_errors(aws, deployed, since, now),
    )


def _with_execution(
    executions: Executions | None, deployed: DeployedPipeline, key: str, found: Inspected, now: int
) -> Inspected:
    """Add the execution of a row, how it stands, and its last step."""
    execution = execution_of(executions, deployed, key, found.row)
    if executions is None or found.row is None or found.row.status is not Status.PROCESSING:
        return replace(found, execution=execution)
    is_known = execution is not None and execution.startswith("arn:")
    row, found = found.row, replace(found, execution=execution)
    with unless_denied():
        exists, why = standing(executions, deployed, key, row, now)
        last_step = executions.last_step(str(execution)) if is_known else None
        return replace(found, last_step=last_step, why=why, agree=found.agree if exists else False)
    return found


def _group(aws: Aws, deployed: DeployedPipeline, key: str, now: int) -> GroupState | None:
    with unless_denied():
        return group_of(aws, deployed, key, now)
    return None


def _states(aws: Aws, deployed: DeployedPipeline, key: str, now: int) -> tuple[list[Inspected], str | None]:
    """Compare the rows of a key with S3. The second value is the action that the caller lacks to read S3, or None."""
    # Read the row before S3, so that a change in between can only make the ledger look late.
    entries, denied = [*map(with_holder(aws, deployed), reading.read_rows(aws.dynamodb, deployed, key))], None
    if not deployed.work.in_bucket:
        return [Inspected(entry.row, None, None, _NO_LISTING) for entry in entries], None
    try:
        versions = s3_listing.list_key_versions(aws.s3, deployed, key)
    except ClientError as error:
        if (denied := denied_action(error)) is None:
            raise
        versions = None
    record = reading.read_item(aws.dynamodb, deployed, record_key(deployed))
    found = compare(entries, versions, deployed, now, all_rows_since(record, deployed))
    deployed = with_former(deployed, record, now)
    return [_without_skipped(deployed, key, one) for one in found], denied


def _without_skipped(deployed: DeployedPipeline, key: str, found: Inspected) -> Inspected:
    """The comparison, or the reason why a directory marker, or a key that is left out, has no row."""
    if found.row is not None or found.s3 is None or (why := deployed.skips(key, found.s3)) is None:
        return found
    return Inspected(None, found.s3, True, _SKIPPED if why is Skipped.DIRECTORY_MARKERS else _EXCLUDED)


def compare(
    entries: Sequence[ObjectRow],
    versions: Sequence[ListedVersion] | None,
    deployed: DeployedPipeline,
    now: int,
    all_rows_since: int | None,
) -> list[Inspected]:
    """Compare the key's row with its current state. In EVERY_VERSION compare each version with its row, newest first.

    Args:
        entries: the key's rows.
        versions: of the key in S3; None if S3 could not be read.
        deployed: the pipeline.
        now: epoch milliseconds.
        all_rows_since: the time since when each processed object has a row, in epoch milliseconds; None if rows may be
            missing.

    """
    rows = [entry.row for entry in entries]
    if versions is None:
        return [Inspected(row, None, None, "S3 could not be read") for row in rows]
    if deployed.ordering is Ordering.LATEST:
        current = next((one.state for one in versions if one.current), ABSENT)
        row = rows[0] if rows else None
        if row is None and not versions:
            return []  # most likely the key is mistyped
        return [Inspected(row, current, *agreement(row, current, deployed, now, all_rows_since))]
    by_identity = {row.identity: row for row in rows}
    found = []
    for one in versions:
        row = by_identity.pop(one.state.identity, None)
        found.append(Inspected(row, one.state, *agreement(row, one.state, deployed, now, all_rows_since)))
    return found + [_alone(row, deployed, now) for row in by_identity.values()]


def _alone(row: Row, deployed: DeployedPipeline, now: int) -> Inspected:
    """Compare a row of EVERY_VERSION whose version S3 does not list."""
    if row.kind is StateKind.DELETED or row.status is Status.LATER_FORMAT:
        state = State(StateKind.DELETED, row.version_id)
        return Inspected(row, None, *agreement(row, state, deployed, now, None))
    if row.settled:
        return Inspected(row, None, True, "S3 no longer has this version, and it was settled")
    return Inspected(
        row, None, False, "S3 no longer has this version: the ledger can only settle it without processing"
    )


def unclaimed_since(deployed: DeployedPipeline, found: Sequence[Inspected], now: int) -> int | None:
    """The time since when something waits for its first claim, in epoch milliseconds. None: nothing does.

    Of messages without a row nothing is known, so that it is the last hour.
    """
    if not deployed.work.in_bucket:
        return None if found else now - _HOUR_MS
    states = [one.s3 for one in found if one.row is None and one.agree is False and one.s3 is not None]
    return max((state.created_at or now - _HOUR_MS for state in states), default=None)


def inspect_table(deployed: DeployedPipeline, found: InspectedKey, now: int) -> RenderableType:
    in_bucket = deployed.work.in_bucket
    parts: list[RenderableType] = [heading(escape(found.key), f"{deployed.name}, {deployed.place}")]
    if not found.wanted:
        parts.append(Text(escape(_outside_filters(deployed)), style=WARNING))
    if found.group is not None:
        parts.append(fields("inspect", {"group": document(found.group)}, now))
    for one in found.states:
        lines = row_content(one.row, now, one.execution) | {"execution": one.execution, "lastStep": one.last_step}
        if in_bucket:
            shown = formatting.describe_state(one.s3, now) if one.s3 else "this version no longer exists"
            lines["s3"] = {"denied": found.denied} if found.denied is not None else shown
            lines["agree"] = None if one.agree is None else {"yes" if one.agree else "no": one.why}
        parts.append(fields("row", lines, now))
    if not found.states:
        missing = "neither S3 nor the ledger has a version of this key: check it. Keys are not encoded"
        parts.append(Text(missing if in_bucket else "the ledger has no message of this key: check it"))
    parts += history_lines(found.history, of_messages=not in_bucket)
    if found.consumer_errors is not None:
        parts.append(fields("inspect", {"consumerErrors": document(found.consumer_errors)}, now))
    return Group(*parts)


def row_content(row: Row | None, now: int, execution: str | None = None) -> dict[str, Any]:
    """The fields of a row for `fields`, with its status and its state as sentences."""
    if row is None:
        return {"ledger": "no row"}
    shown: dict[str, Any] = {"ledger": formatting.describe_status(row, now, execution), "reason": "", "reason_code": ""}
    shown["state"] = formatting.describe_state(row.state, now)
    name = truncate(row.commit_id or "", MAX_NAME_BYTES)
    shown |= document(row)
    return shown | {"commit_id": name, "tags_pending": list(row.untagged)}


def _outside_filters(deployed: DeployedPipeline) -> str:
    filters = " or ".join(
        " and ".join(
            filter(None, (one.prefix and f"begin with {one.prefix!r}", one.suffix and f"end with {one.suffix!r}"))
        )
        for one in deployed.filters
    )
    return f"this key matches none of the pipeline's filters, so the pipeline ignores it: keys must {filters}"
