"""Concludes from the document of `status` what a person should look at. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from intake_ledger_cli.aws.metrics import LastHour, Tick
from intake_ledger_cli.aws.reading import AuditState
from intake_ledger_cli.kinds import PipelineKind
from intake_ledger_cli.read.counting import Count
from intake_ledger_cli.read.status import BreakerState, BreakerStatus, PipelineStatus, QueueDepth
from intake_ledger_cli.show.console import many
from intake_ledger_cli.show.formatting import duration

SETTLED_MS = 2 * 60_000
"""A row that waits for less has its message on the way: the numbers of SQS and of the index are approximate."""
_RUNBOOK = re.compile(r"[^\s(]*docs/runbooks\S*?\.md(?:#[\w-]+)?")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to know, and the next command."""

    what: str
    command: str
    needs_a_person: bool = True
    """False: it goes on without a person, such as a running operation."""


def findings_of(found: PipelineStatus) -> list[Finding]:
    """Return what the status shows, the worst first. Parts that could not be read give no finding."""
    return [*_stops(found), *_lost(found), *_rejections(found), *_dead_workers(found), *_alarms(found), *_runs(found)]


def verdict_lines(findings: list[Finding]) -> list[str]:
    """The findings for people: `OK`, or `LOOK` and the worst finding, then the others."""
    lines = [f"{one.what} -> {one.command}" for one in sorted(findings, key=lambda one: not one.needs_a_person)]
    marks = ["LOOK" if any(one.needs_a_person for one in findings) else "also", *["also"] * len(lines)]
    ok = ["OK"] if marks[0] == "also" else []
    return ok + [f"{mark}: {line}" for mark, line in zip(marks, lines, strict=False)]


def _stops(found: PipelineStatus) -> Iterator[Finding]:
    """Nothing is processed."""
    if found.function is not None and found.function.at_start:
        yield Finding(f"the function cannot start: {found.function.text}", "cdk deploy, with code that starts")
    if (
        isinstance(found.consumer, str)
        and found.consumer != "Enabled"
        and found.kind != PipelineKind.WORKERS.name.lower()
    ):
        why = f"paused by {found.pause.by} because {found.pause.because}" if found.pause else "takes no messages"
        yield Finding(f"the consumer {'is ' if found.pause else ''}{why} ({found.consumer})", "intake-ledger resume")
    breaker = found.breaker
    if isinstance(breaker, BreakerState) and breaker.status is BreakerStatus.OPEN:
        why = f": {breaker.reason}" if breaker.reason else ""
        since = duration(found.at - (breaker.opened_at or found.at))
        yield Finding(f"the downstream fails for {since}{why}", "fix it, then intake-ledger retry --waiting")


def _lost(found: PipelineStatus) -> Iterator[Finding]:
    """Events or messages are missing."""
    if isinstance(found.tick, Tick) and found.tick.problems:
        yield Finding(f"the delivery has {many(found.tick.problems, 'problems')}", "intake-ledger audit")
    counts = [one for one in (found.failed, found.waiting) if isinstance(one, Count) and one.number]
    oldest = min((one.oldest_at for one in counts if one.oldest_at), default=found.at)
    is_empty = isinstance(found.queue, QueueDepth) and not found.queue.messages
    if counts and is_empty and found.at - oldest > SETTLED_MS and not found.from_stream:
        rows = sum(one.number for one in counts)
        what = f"{many(rows, 'rows')} {'wait' if rows > 1 else 'waits'} for messages that the queue does not have: "
        what += "it was purged, or they have expired"
        sender = "send them again from their source" if found.message_source else "intake-ledger retry --waiting"
        yield Finding(what, sender)


def _rejections(found: PipelineStatus) -> Iterator[Finding]:
    rejected = found.rejected
    letters = found.dead_letters.messages if isinstance(found.dead_letters, QueueDepth) else None
    if isinstance(rejected, Count) and rejected.unknown:
        yield Finding(f"the number of rejected rows is unknown: {rejected.why}", "intake-ledger list --status REJECTED")
    number = rejected.number if isinstance(rejected, Count) else 0
    if letters is not None and number > letters:
        what = f"{many(number - letters, 'rejected rows')} without a dead letter: it has expired, was purged, or was "
        what += "served before a restore of the table"
        yield Finding(what, "intake-ledger retry --prefix '' --dry-run")
    if letters:
        rows = f", and {many(number, 'rejected rows')}" if number else ", and no rejected row"
        command = "intake-ledger list --by-reason" if number else "intake-ledger retry --prefix '' --dry-run"
        yield Finding(f"{many(letters, 'dead letters')}{rows}", command)


def _dead_workers(found: PipelineStatus) -> Iterator[Finding]:
    lapsed = 0
    if isinstance(found.audit, AuditState) and found.audit.last is not None:
        lapsed = found.audit.last.get("rows", {}).get("lapsed", 0)
    errors = found.last_hour.function_errors if isinstance(found.last_hour, LastHour) else 0
    at_start = found.function is not None and found.function.at_start
    if lapsed or (errors and not at_start):
        seen = [f"{many(lapsed, 'claims')} of dead workers at the last audit"] if lapsed else []
        seen += [f"{many(errors, 'invocations')} failed as a whole in the last hour"] if errors else []
        yield Finding(", ".join(seen), "intake-ledger list --status stuck")
    if isinstance(found.aborted, list) and found.aborted:
        one, *others = found.aborted
        more = f" and {len(others):,} more" if others else ""
        ago = duration(found.at - one.stopped_at)
        command = f"intake-ledger retry {one.key}" if one.key else "intake-ledger list --status stuck"
        yield Finding(f"the execution of {one.key or one.execution}{more} was aborted {ago} ago", command)


def _alarms(found: PipelineStatus) -> Iterator[Finding]:
    ringing = [one for one in found.alarms if one.state == "ALARM"] if isinstance(found.alarms, list) else []
    for one in ringing:
        page = _RUNBOOK.search(one.why)
        yield Finding(
            f"in ALARM: {one.meaning(found.pipeline)}", f"read {page[0]}" if page else "intake-ledger status --all"
        )


def _runs(found: PipelineStatus) -> Iterator[Finding]:
    """Operations of people whose requests are not all served."""
    for one in found.operations if isinstance(found.operations, list) else ():
        command = f"intake-ledger operations{'' if one.stopped else f' stop {one.request_id}'}"
        yield Finding(f"{one.what}: {one.progress}", command, needs_a_person=False)
