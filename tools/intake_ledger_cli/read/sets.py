"""Describes a set of files: its row, its present state, and each part with its status."""

import time
from dataclasses import dataclass

from rich.console import Group, RenderableType

from intake_ledger.aws.bucket import Bucket
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Ordering, Row, row_key
from intake_ledger.sets.reader import Contents, SetReader
from intake_ledger.sets.settings import set_settings
from intake_ledger_cli.act.selection import check_set_key
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.read.history import History, history_lines, read_history
from intake_ledger_cli.read.inspection import row_content
from intake_ledger_cli.show.console import escape, heading
from intake_ledger_cli.show.json_output import document
from intake_ledger_cli.show.render import fields, rows


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a set."""

    key: str
    version: str | None
    """The committed version that the set has. None: the part is missing."""
    status: str
    """The status of its row in the ledger of the parts, or `no row`."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class InspectedSet:
    """The document of `inspect` for a set."""

    pipeline: str
    bucket: str
    key: str
    state: str
    """The identity of its present state."""
    problem: str | None
    """Why its parts are not known. None: they are."""
    agree: bool
    """True if the row has the present state of the set."""
    row: Row | None
    parts: list[Part]
    history: History | None
    """None without an attempt, or if the log was not searched."""


def read_set(aws: Aws, deployed: DeployedPipeline, key: str) -> tuple[Row | None, Contents]:
    """Read the row of a set, and its present state. The number of requests grows with its parts.

    Raises:
        ClientError: The caller may not read the manifest, the folder or the rows.

    """
    bucket = Bucket(lambda: aws.s3, deployed.bucket, deployed.bucket_owner)
    table = LedgerTable(aws.dynamodb, deployed.table)
    # The row first, so that a change in between can only make the ledger look late.
    entries = reading.read_rows(aws.dynamodb, deployed, key)
    row = entries[0].row if entries else None
    settings = set_settings(deployed.variables)
    reader = SetReader(table, bucket, settings, lambda: time.time_ns() // 1_000_000)
    return row, reader.contents(key, reader.listing(key), row=row, whole=True)


def inspect_set(aws: Aws, deployed: DeployedPipeline, key: str, now: int, *, logs: bool) -> InspectedSet:
    """Compare the row of a set with its present state.

    Args:
        aws: the clients.
        deployed: the pipeline of sets.
        key: the key of the manifest or marker, or the folder with a slash at its end.
        now: epoch milliseconds.
        logs: read the attempts of the consumer's log.

    Raises:
        ClientError: The caller may not read the manifest, the folder or the rows.
        UsageError: The key names no set.

    """
    check_set_key(deployed, key)
    row, contents = read_set(aws, deployed, key)
    table = LedgerTable(aws.dynamodb, deployed.table)
    settings = set_settings(deployed.variables)
    parts = []
    for name in contents.listing.keys:
        place = row_key(settings.parts.pipeline, Ordering.LATEST, deployed.bucket, name, None)
        own, version = table.get(place), contents.parts.get(name)
        status, reason = (own.status, own.reason) if own else ("no row", None)
        parts.append(Part(name, version.identity if version else None, status, reason))
    return InspectedSet(
        deployed.name,
        deployed.bucket,
        key,
        contents.state.identity,
        contents.listing.problem,
        row is not None and row.identity == contents.state.identity,
        row,
        parts,
        read_history(aws, deployed, key, [row] if row else [], now) if logs else None,
    )


def set_table(found: InspectedSet, now: int) -> RenderableType:
    """The document for people."""
    why = f"the ledger has {'the present' if found.agree else 'another'} state"
    lines = row_content(found.row, now) | {
        "now": found.problem or found.state,
        "agree": {"yes" if found.agree else "no": why},
    }
    parts = rows("parts", document(found.parts), now)
    title = heading(escape(found.key), f"{found.pipeline}, bucket {found.bucket}")
    return Group(title, fields("row", lines, now), *parts, *history_lines(found.history))
