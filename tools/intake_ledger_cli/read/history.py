"""The history of a key's attempts, from the consumer's log, in a bounded number of requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from botocore.exceptions import ClientError
from rich.text import Text

from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.verdict import Verdict
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import LogGroup, LogSearch, group_name, key_pattern, refusal
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, many

REQUESTS = 20
"""The largest number of requests to CloudWatch Logs."""
LONGEST_MS = 7 * 86_400_000
"""The longest time that is searched, back from the last change of the key's rows."""
REPEATS_MS = 24 * 3_600_000
"""The longest time after the last change in which messages that changed nothing are searched."""
_AFTER_MS = 15 * 60_000
"""A line is written after the row's change, and the clocks of workers differ."""
_BEFORE_MS = 60_000
SHOWN_REPEATS = 10
_STYLES = {OutcomeKind.COMMITTED.value: GOOD, OutcomeKind.STARTED.value: GOOD, OutcomeKind.REJECTED.value: BAD}
_ENDS = {kind.value.lower(): kind for kind in OutcomeKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt, as its log lines tell. Times are in epoch milliseconds."""

    at: int
    attempt: int
    """The number of the attempt of its state. It starts at 1."""
    fence: int
    version_id: str | None
    outcome: str | None = None
    """How it ended, such as `Committed`. None: its end is not in the log, because the worker died or still runs."""
    reason: str | None = None
    reason_code: str | None = None
    duration_ms: int | None = None
    link: str = ""
    """The link to the line that ended it, or to the line of a claim. Empty: only the row shows the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """A message about the key that changed nothing: a duplicate, or an event of a state that is no longer current."""

    at: int
    """When it was judged, in epoch milliseconds."""
    verdict: str
    """`DUPLICATE`, `STALE` or `REJECTED`."""
    why: str
    version_id: str | None
    """The version that the message names."""
    event_name: str | None
    event_id: str | None
    copy: bool
    """True if its event is the one that woke the last attempt of a row: a copy of one event."""
    since_commit_ms: int | None
    """Milliseconds from the commit of its state to it. None for a stale one."""
    event_age_ms: int | None
    """The age of its event."""
    link: str
    """The link to its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The attempts of a key, oldest first."""

    link: str
    """The link to all lines about the key since its rows began. Empty: the log of workers is not known."""
    attempts: tuple[Attempt, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    """The messages that changed nothing, oldest first, until `repeats_until`."""
    repeats_until: int | None = None
    """Epoch milliseconds. None: the log was not read."""
    searched_from: int
    """Epoch milliseconds. Attempts before this time are not in `attempts`."""
    complete: bool = True
    """False if earlier attempts may exist, or if the search stopped."""
    why: str = ""
    """Why attempts may be missing."""


def read_history(aws: Aws, deployed: DeployedPipeline, key: str, rows: Sequence[Row], now: int) -> History | None:
    """Read the attempts of a key.

    Args:
        aws: the clients.
        deployed: the pipeline.
        key: of the object or of the messages.
        rows: of the key. They tell which time is searched.
        now: epoch milliseconds.

    Returns:
        The history; without attempts but with the link and the reason if the log may not be read. None if no row of the
        key has an attempt.

    """
    # A wait spends no attempt, and has its lines in the log.
    claimed = [row for row in rows if row.attempts or row.waiting_since or row.status is Status.PROCESSING]
    if not claimed:
        return None
    running = any(row.status is Status.PROCESSING for row in claimed)
    end = now if running else min(now, max(row.updated_at for row in claimed) + _AFTER_MS)
    begun = max(0, min(row.first_claimed_at or row.updated_at for row in claimed) - _BEFORE_MS)
    start = max(begun, end - LONGEST_MS)
    group = LogGroup(aws, group_name(aws, deployed))
    empty = History(link=group.lines(key_pattern(key), begun, end), searched_from=start)
    search = LogSearch(group, key_pattern(key), REQUESTS)
    try:
        lines = list(_lines(search, deployed.name, key, start, end))
        cut = search.stopped
        until = end if cut else min(now, end + REPEATS_MS)
        later = list(_lines(search, deployed.name, key, end + 1, until)) if until > end else []
    except ClientError as error:
        link = "" if deployed.setting("has_workers") else empty.link
        return replace(empty, complete=False, why=refusal(error, group.name), link=link)
    attempts = tuple(_attempts(iter(lines), rows, of_messages=not deployed.work.in_bucket))
    repeats = tuple(_repeats([*lines, *later], rows))
    if search.stopped:
        until = max((at for _, at, _ in [*lines, *later]), default=start)
    why = ""
    if cut:
        why = f"stopped after {REQUESTS} requests to CloudWatch Logs, and later attempts may follow"
    elif start > begun:
        why = f"only the last {LONGEST_MS // 86_400_000} days were searched"
    if deployed.setting("has_workers"):
        # The link would lead to the log of the function, which may have no line about the key.
        why = why or "workers outside of Lambda write to the log of their own service, which is not searched"
        empty = replace(empty, link=empty.link if attempts else "")
    return replace(empty, attempts=attempts, repeats=repeats, repeats_until=until, complete=not why, why=why)


def _lines(
    search: LogSearch, pipeline: str, key: str, start: int, end: int
) -> Iterator[tuple[Mapping[str, Any], int, str]]:
    """Yield the content, the time and the link of each line about the key."""
    for event in search.events(start, end):
        content = _content(event.get("message", ""))
        if content.get("key") == key and content.get("service", pipeline) == pipeline:
            yield content, event["timestamp"], search.group.line(event)


def _repeats(lines: Sequence[tuple[Mapping[str, Any], int, str]], rows: Sequence[Row]) -> Iterator[Repeat]:
    woke = {row.event_id for row in rows if row.event_id}
    for content, at, link in sorted(lines, key=lambda line: line[1]):
        if content.get("verdict") in (Verdict.DUPLICATE, Verdict.STALE, Verdict.REJECTED):
            yield Repeat(
                at=at,
                verdict=content["verdict"],
                why=str(content.get("why") or ""),
                version_id=content.get("version_id"),
                event_name=content.get("event_name"),
                event_id=content.get("event_id"),
                copy=content.get("event_id") in woke,
                since_commit_ms=content.get("duplicate_age_ms"),
                event_age_ms=content.get("event_age_ms"),
                link=link,
            )


def _attempts(
    lines: Iterator[tuple[Mapping[str, Any], int, str]], rows: Sequence[Row], *, of_messages: bool
) -> Iterator[Attempt]:
    """Combine the lines of each claim, which are those with its fence. The messages of a key have rows of their own.

    An ordinary claim has no line before its end. If its worker died, the line of the next claim has its row, and until
    then the row shows it.
    """
    found: dict[tuple[str | None, int], Attempt] = {}

    def place(identity: Any, fence: int) -> tuple[str | None, int]:
        return (str(identity) if of_messages else None), fence

    for content, at, link in sorted(lines, key=lambda line: line[1]):
        fence, attempt = content.get("fence"), content.get("attempt")
        if not isinstance(fence, int) or not isinstance(attempt, int):
            continue
        claim = Attempt(at=at, attempt=attempt, fence=fence, version_id=content.get("version_id"), link=link)
        if isinstance(lapsed := content.get("lapsed"), Mapping):
            found.setdefault(
                place(lapsed["version_id"], lapsed["fence"]),
                replace(
                    claim,
                    at=lapsed["updated_at"],
                    attempt=lapsed["attempt"],
                    fence=lapsed["fence"],
                    version_id=lapsed["version_id"],
                ),
            )
        kind = _ENDS.get(str(content.get("message")))
        if kind is not None:
            duration_ms = content.get("duration_ms")
            begun = found.get(place(claim.version_id, fence)) or replace(claim, at=at - (duration_ms or 0))
            found[place(claim.version_id, fence)] = replace(
                begun,
                version_id=content.get("version_id") or begun.version_id,
                outcome=kind.value,
                reason=content.get("reason"),
                reason_code=content.get("reason_code"),
                duration_ms=duration_ms,
                link=link,
            )
        elif content.get("verdict") == Verdict.ACCEPTED:
            found.setdefault(place(claim.version_id, fence), claim)
    for row in rows:
        if row.status is Status.PROCESSING and row.lease_until:
            held = Attempt(at=row.updated_at, attempt=row.attempts, fence=row.fence, version_id=row.version_id)
            found.setdefault(place(row.version_id, row.fence), held)
    first: dict[str | None, int] = {}
    for name, claim in sorted(found.items(), key=lambda one: one[1].fence):
        first.setdefault(name[0], claim.fence)
    yield from (found[name] for name in sorted(found, key=lambda name: (first[name[0]], name[0] or "", name[1])))


def _content(message: str) -> Mapping[str, Any]:
    """Parse a line. Lambda's own lines are no JSON."""
    try:
        found = json.loads(message)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def history_lines(found: History | None, *, of_messages: bool = False) -> Iterator[Text]:
    """The lines of a history, those of each message under its identity.

    A link is a line of its own, which is not broken, because people copy it.
    """
    if found is None:
        return
    identity = None
    for same in _waits_together(found.attempts):
        one = same[-1]
        if of_messages and one.version_id != identity:
            identity = one.version_id
            yield Text(escape(f"message {identity}"))
        outcome, style = one.outcome or "no end in the log", _STYLES.get(one.outcome or "", WARNING)
        took = f" after {_duration(one.duration_ms)}" if one.duration_ms is not None else ""
        began = formatting.timestamp(same[0].at)
        if len(same) == 1:
            line = Text.assemble((f"{began}  attempt {one.attempt}  ", DIM), (f"{outcome}{took}", style))
        else:
            line = Text.assemble((f"{began} to {formatting.timestamp(one.at)}  ", DIM), (f"{len(same)} waits", style))
        if one.reason:
            line.append(f": {escape(one.reason)}")
        yield line
        if one.link:
            yield _link(one.link)
    yield from _repeat_lines(found)
    if found.why:
        yield Text(f"Attempts may be missing: {escape(found.why)}", style=WARNING)
    if found.link:
        yield Text("All log lines of the key:", style=DIM)
        yield _link(found.link)


def _repeat_lines(found: History) -> Iterator[Text]:
    """The messages that changed nothing, each with the time since the commit or the age of its event."""
    if not found.repeats or found.repeats_until is None:
        return
    until = formatting.timestamp(found.repeats_until)
    number, copies = len(found.repeats), sum(one.copy for one in found.repeats)
    about = f", {copies} with the event of the last attempt" if copies else ""
    yield Text(f"{many(number, 'messages')} changed nothing until {until}{about}:")
    for one in found.repeats[:SHOWN_REPEATS]:
        if one.since_commit_ms is not None:
            gap = f"{_duration(one.since_commit_ms)} after the commit"
        elif one.event_age_ms is not None:
            gap = f"{_duration(one.event_age_ms)} after its event"
        else:
            gap = "of unknown age"
        names = ", ".join(filter(None, (one.event_name, f"event {one.event_id}" if one.event_id else "")))
        line = Text.assemble((f"{formatting.timestamp(one.at)}  {one.verdict}  ", DIM), gap)
        line.append(f"{f' ({escape(names)})' if names else ''}: {escape(one.why)}", style=DIM)
        yield line
    if number > SHOWN_REPEATS:
        yield Text(f"and {number - SHOWN_REPEATS} more, see --json", style=DIM)


def _waits_together(attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    """Group successive waits for the same reason: a set asks for its missing part each minute, for days."""

    def same_wait(one: Attempt) -> tuple[str | None, str | None] | None:
        return (one.reason, one.version_id) if one.outcome == OutcomeKind.WAITING else None

    for wait, group in groupby(attempts, key=same_wait):
        same = list(group)
        yield from [same] if wait else ([one] for one in same)


def _duration(milliseconds: int) -> str:
    return formatting.duration(milliseconds) if milliseconds >= 1_000 else f"{milliseconds} ms"


def _link(address: str) -> Text:
    return Text(f"  {address}", style=DIM, overflow="ignore", no_wrap=True)
