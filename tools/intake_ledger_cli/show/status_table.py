"""Builds the table that shows the status of a pipeline. Reasons are escaped."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger_cli.aws.executions import ExecutionCount
from intake_ledger_cli.aws.function_errors import FunctionErrors
from intake_ledger_cli.aws.metrics import LastHour, Tick
from intake_ledger_cli.aws.reading import AuditState
from intake_ledger_cli.read import verdict
from intake_ledger_cli.read.breaker import BreakerState, BreakerStatus
from intake_ledger_cli.read.counting import Count
from intake_ledger_cli.read.groups import GroupState, group_text
from intake_ledger_cli.read.status import (
    Alarm,
    MoveTask,
    NotRead,
    PauseRecord,
    PipelineStatus,
    QueueDepth,
    StartRate,
    TableSize,
)
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, grid, heading, many

if TYPE_CHECKING:
    from intake_ledger_cli.aws.deployed import DeployedPipeline


_WITHOUT_ROWS = "files were committed without their bad rows, see: list --status rejected-rows"


_MARKS = {BAD: "!", WARNING: "~"}
"""What stands for the colours of a line, for pipes and for people who do not see them."""
_SEEN = "default"
"""The style of a good line that is always shown."""
_SILENT = ("0 waiting, 0 in flight", "none running")
_GROUPS = 3
"""The groups that the table names."""


def status_table(deployed: "DeployedPipeline", found: PipelineStatus, *, every: bool = False) -> RenderableType:  # noqa: C901 - lines
    """The verdict, and the lines that have something to say. With `every`, all lines."""
    lines, now, is_listed = grid(), found.at, deployed.work.audit_event is None

    def add_text(label: str, text: Text) -> None:
        styles = {str(text.style), *(str(span.style) for span in text.spans)}
        mark = next((mark for style, mark in _MARKS.items() if style in styles), "")
        if every or mark or (GOOD not in styles and text.plain not in _SILENT):
            lines.add_row(mark or " ", Text(label, style=DIM), text)

    def add[T](label: str, part: T | NotRead, show: Callable[[T], Text]) -> None:
        add_text(label, _not_read(part) if isinstance(part, NotRead) else show(part))

    def add_count(label: str, count: Count | NotRead, style: str, what: str, *, if_any: bool = False) -> None:
        if if_any and not (isinstance(count, Count) and count.number):
            return
        add(label, count, lambda one: count_text(one, style, what, now))

    def add_if_any[T](label: str, part: T | NotRead | None, show: Callable[[T], Text]) -> None:
        if part is not None:
            add(label, part, show)

    add("Consumer", found.consumer, lambda one: _source(one, found.pause, now, workers=deployed.workers))
    add("Function", found.last_hour, lambda one: _function(one, found.function, now))
    add("Breaker", found.breaker, lambda one: _breaker(one, now))
    add_if_any("Rate", found.rate, lambda one: _rate(one, now))
    add("Queue", found.queue, _depth)
    add("Dead letters", found.dead_letters, _dead_letters)
    task = None if isinstance(found.move_task, NotRead) and found.move_task.why else found.move_task
    add_if_any("Redrive of SQS", task, lambda one: _move_task(one, now))
    add_if_any("Executions", found.executions, lambda one: _executions(one, now))
    add_count("Failed", found.failed, WARNING, "will be retried, see: list --status FAILED")
    add_count("Rejected", found.rejected, BAD, f"need a person, see: list --status REJECTED{_without_letters(found)}")
    add_count("Dismissed", found.dismissed, DIM, "see: list --status dismissed", if_any=True)
    add_count(
        "Removed", found.removed, DIM, "removed before they were processed, see: list --status removed", if_any=True
    )
    add_count("Rejected rows", found.rejected_rows, WARNING, _WITHOUT_ROWS, if_any=True)
    add_count("Waiting", found.waiting, WARNING, _waiting_for(deployed))
    if found.groups:
        add("Groups", found.groups, lambda one: _groups(one, now))
    if isinstance(found.later_format, Count) and (found.later_format.number or found.later_format.why):
        add_count("Later release", found.later_format, WARNING, "rows that this release does not process")
    if is_listed and every:
        add_text("Rows", _rows(found.audit, found.table))
        add_text("Claims", _claims(found.audit, now))
    add("Last hour", found.last_hour, _last_hour)
    # That of messages compares rows with the time only, because no listing has messages.
    add("Last audit", found.audit, lambda one: _audit(deployed, one, now))
    if deployed.work.has_ticks:
        add("Last tick", found.tick, lambda one: _tick(one, now))
    add("Alarms", found.alarms, lambda one: alarms_text(deployed, one))
    findings = verdict.findings_of(found)
    style = BAD if any(one.needs_a_person for one in findings) else GOOD
    said = [Text(escape(line), style=style) for line in verdict.verdict_lines(findings)]
    return Group(*said, heading(deployed.name, f"{deployed.place}, {formatting.timestamp(now)}"), lines)


def _without_letters(found: PipelineStatus) -> str:
    """Why no dead letter belongs to the rejected rows. A restore of the table brings rows back, and no letter."""
    depth = found.dead_letters
    if not isinstance(depth, QueueDepth) or depth.waiting or depth.hidden or depth.delayed:
        return ""
    return ". No dead letter is left: they have expired, or were served before a restore of the table"


def _waiting_for(deployed: "DeployedPipeline") -> str:
    most = deployed.max_wait_seconds
    until = "" if most is None else f", rejected after {formatting.duration(most * 1000)}"
    return f"{deployed.work.waits}{until}, see: list --status waiting"


def _groups(groups: list[GroupState], now: int) -> Text:
    """The groups with the most waiting keys."""
    shown = [f"{one.waiting:,} waiting for {group_text(one, now)}" for one in groups[:_GROUPS]]
    more = f", and {many(len(groups) - _GROUPS, 'more groups')}" if len(groups) > _GROUPS else ""
    return Text(escape("; ".join(shown) + more))


def _executions(count: ExecutionCount, now: int) -> Text:
    if count.oldest_at is None:
        return Text("none running")
    number = f"more than {count.running:,}" if count.more else f"{count.running:,}"
    since = formatting.duration(now - count.oldest_at)
    return Text.assemble(f"{number} running, the oldest since {since}", ("  see: list --status running", DIM))


def status_line(found: PipelineStatus) -> str:
    """Describe the status in one line, for a log or a pipe."""
    parts = [formatting.timestamp(found.at)]
    if not isinstance(found.consumer, NotRead):
        parts.append(f"consumer={found.consumer}")
    if not isinstance(found.breaker, NotRead):
        parts.append(f"breaker={found.breaker.status}")
    for name, depth in (("queue", found.queue), ("dead_letters", found.dead_letters)):
        if not isinstance(depth, NotRead):
            parts.append(f"{name}={depth.waiting}+{depth.hidden}")
    for name, count in (("failed", found.failed), ("rejected", found.rejected), ("waiting", found.waiting)):
        if not isinstance(count, NotRead):
            parts.append(f"{name}={_brief(count)}")
    if isinstance(found.rate, StartRate):
        parts.append(f"in_line={found.rate.in_line}")
    if not isinstance(found.alarms, NotRead):
        parts.append(f"alarms={sum(one.state == 'ALARM' for one in found.alarms)}")
    return " ".join(parts)


def _brief(count: Count) -> str:
    if count.unknown:
        return "?"
    return f"{count.number}+" if count.why else str(count.number)


def count_text(count: Count, style: str, what: str, now: int) -> Text:
    """Describe a count and the age of its oldest row."""
    if count.unknown:
        return Text(f"unknown: {count.why}", style=WARNING)
    oldest = f", oldest {formatting.duration(now - count.oldest_at)}" if count.oldest_at else ""
    if count.why:
        return Text.assemble((f"at least {count.number:,}{oldest}", style), (f"  {what}; {count.why}", DIM))
    if not count.number:
        # The index is eventually consistent.
        return Text.assemble(("0", GOOD), ("  as of a moment ago", DIM))
    return Text.assemble((f"{count.number:,}{oldest}", style), (f"  {what}", DIM))


def _not_read(part: NotRead) -> Text:
    return Text(escape(str(part)), style=DIM if part.action else WARNING)


def _source(source: str, pause: PauseRecord | None, now: int, *, workers: bool) -> Text:
    if workers:
        # Only their service knows how many run.
        if source == "Enabled":
            return Text("workers outside of Lambda, and also the function, take messages", style=WARNING)
        return Text(f"workers outside of Lambda take messages; the function's event source mapping is {source}")
    if source == "Enabled":
        return Text("takes messages", style=GOOD)
    if pause is not None:
        since = formatting.duration(now - pause.at)
        text = f"paused for {since} by {pause.by} because {pause.because}: {source}, see: resume"
        return Text(escape(text), style=BAD)
    return Text.assemble((f"takes no messages: its event source mapping is {source}", BAD), ("  see: resume", DIM))


def _breaker(breaker: BreakerState, now: int) -> Text:
    if breaker.status is BreakerStatus.CLOSED:
        return Text("closed", style=GOOD)
    why = f": {breaker.reason}" if breaker.reason else ""
    since = formatting.duration(now - (breaker.opened_at or now))
    if breaker.status is BreakerStatus.UNKNOWN:
        silent = formatting.duration(now - (breaker.last_seen_at or now))
        text = f"unknown since {silent}: it was open, and nothing was tried since{why}"
        return Text.assemble((escape(text), WARNING), ("  see: retry --waiting", DIM))
    probe_at = breaker.next_probe_at or now
    probe = f"next probe in {formatting.duration(probe_at - now)}" if probe_at > now else "next probe is due"
    failed = formatting.duration(now - (breaker.last_failure_at or now))
    text = escape(f"open for {since}, the last failure {failed} ago, messages are held back, {probe}{why}")
    return Text.assemble((text, BAD), ("  when the downstream is back, see: retry --waiting", DIM))


def _rate(rate: StartRate, now: int) -> Text:
    text = f"at most {rate.per_second:,.6g} starts a second, {rate.burst:,} at once"
    if rate.last_place_at is None:
        return Text(f"{text}; none in line", style=GOOD)
    last = formatting.duration(rate.last_place_at - now)
    text += f"; about {rate.in_line:,} in line, the last one in {last}"
    return Text.assemble((text, WARNING), ("  see: list --status waiting", DIM))


def _function(hour: LastHour, found: FunctionErrors | None, now: int) -> Text:
    if not hour.function_errors and not hour.function_throttles:
        return Text("no invocation failed in the last hour", style=GOOD)
    text = f"{many(hour.function_errors, 'invocations')} failed as a whole and "
    text += f"{hour.function_throttles:,} were throttled in the last hour"
    if found is not None and found.text:
        text += f"; the last {formatting.duration(now - (found.last_at or now))} ago: {found.text}"
    elif found is not None and found.why:
        text += f"; its log was not searched: {found.why}"
    if found is not None and found.at_start:
        return Text.assemble((escape(f"cannot start: {text}"), BAD), ("  deploy code and variables that work", DIM))
    return Text(escape(text), style=WARNING)


def _depth(depth: QueueDepth) -> Text:
    delayed = f", {depth.delayed:,} delayed copies" if depth.delayed else ""
    return Text(f"{depth.waiting:,} waiting, {depth.hidden:,} in flight{delayed}{_oldest(depth.oldest_seconds)}")


def _dead_letters(depth: QueueDepth) -> Text:
    looked_at = f", {depth.hidden:,} in flight" if depth.hidden else ""
    text = f"{depth.waiting:,}{looked_at}{_oldest(depth.oldest_seconds)}"
    if depth.waiting + depth.hidden == 0:
        return Text(text, style=GOOD)
    return Text.assemble((text, BAD), ("  see: retry --prefix '' --dry-run", DIM))


def _move_task(task: MoveTask, now: int) -> Text:
    moved = f"{task.moved:,} of {task.expected:,}" if task.expected is not None else f"{task.moved:,}"
    text = f"running for {formatting.duration(now - task.started_at)}, {moved} messages moved"
    target = f" to {escape(task.destination)}" if task.destination else ""
    return Text.assemble((text + target, WARNING), ("  end it with: aws sqs cancel-message-move-task", DIM))


def _oldest(age_seconds: int | None) -> str:
    return f", oldest {formatting.duration(age_seconds * 1000)}" if age_seconds else ""


def _rows(audit: AuditState | NotRead, size: TableSize | NotRead) -> Text:
    """The last audit counts the rows by status. DynamoDB's own count is older and has no status."""
    text = ""
    if numbers := _numbers(audit):
        by_status = ", ".join(f"{number:,} {status}" for status, number in sorted(numbers["byStatus"].items()))
        text = f"{by_status or '0'} at the last audit"
    if isinstance(size, TableSize):
        text += f"{'; ' if text else ''}about {size.approximate_rows:,} in the table by DynamoDB's count"
    return Text(text or "unknown: no audit has counted them")


def _claims(audit: AuditState | NotRead, now: int) -> Text:
    numbers = _numbers(audit)
    if not numbers:
        return Text("unknown: no audit has counted them")
    lapsed, oldest_at = numbers["lapsed"], numbers["oldestClaimAt"]
    oldest = f", oldest claimed {formatting.duration(now - oldest_at)} ago" if oldest_at else ""
    text = Text(f"{lapsed:,} lapsed at the last audit{oldest}", style=WARNING if lapsed else GOOD)
    return text.append("  see: list --status stuck", style=DIM) if lapsed else text


def _numbers(audit: AuditState | NotRead) -> dict[str, Any] | None:
    if isinstance(audit, NotRead) or audit.last is None:
        return None
    return audit.last.get("rows")


def _last_hour(hour: LastHour) -> Text:
    text = f"{many(hour.retries, 'attempts')} repeated, {hour.lapsed_leases:,} after a worker died or timed out"
    if hour.executions_per_upload is not None:
        text += f"; {hour.executions_per_upload:.2f} executions per upload"
    if hour.commit_lag_ms is not None:
        text += f"; up to {formatting.duration(hour.commit_lag_ms)} from event to commit"
    if hour.held_back:
        text += f"; {many(hour.held_back, 'messages')} held back by the breaker"
    line = Text(text, style=WARNING if hour.retries or hour.lapsed_leases or hour.held_back else GOOD)
    # A file that failed before its worker died is stuck only when the lease has ended, so the page is the other way.
    return line.append("  see: list --status stuck, audit --html", style=DIM) if hour.lapsed_leases else line


def _tick(tick: Tick | None, now: int) -> Text:
    if tick is None:
        return Text("none in the last hour", style=WARNING)
    ago = f"{formatting.duration(now - tick.at)} ago"
    if not tick.problems:
        return Text(f"{ago}: no delivery problem", style=GOOD)
    noun = "problem" if tick.problems == 1 else "problems"
    return Text.assemble((f"{ago}: {tick.problems:,} delivery {noun}", BAD), ("  see: audit", DIM))


def _audit(deployed: "DeployedPipeline", item: AuditState, now: int) -> Text:
    running = "; an audit is running" if item.running else ""
    if running and item.sending is not None:
        left = formatting.duration(item.sending.left_ms)
        running += f", {item.sending.sent:,} of at most {item.sending.of:,} messages sent, about {left} left"
    if item.last is None:
        return Text(f"no report yet{running}", style=WARNING)
    last = item.last
    good = not any(last["counts"].values()) and not last["delivery"]
    text = f"{formatting.duration(now - last['startedAt'])} ago: {last['summary']}{running}"
    if stuck := dict.fromkeys(one["key"] for one in last.get("findings", ()) if one["why"] == "stuck"):
        # If it had an execution, all later messages of its key wait.
        text += f"; send again the messages of {', '.join([*stuck][:3])}{' and others' if len(stuck) > 3 else ''}"
        text += ", or use `release --end`" if deployed.has_executions else ""
    return Text(escape(text), style=_SEEN if good else WARNING)


def alarms_text(deployed: "DeployedPipeline", alarms: list[Alarm]) -> Text:
    going = [one for one in alarms if one.state == "ALARM"]
    unknown = sum(one.state == "INSUFFICIENT_DATA" for one in alarms)
    if not going:
        aside = f", {unknown} with insufficient data" if unknown else ""
        return Text(f"none of {len(alarms)} in ALARM{aside}", style=WARNING if unknown else GOOD)
    named = "; ".join(one.meaning(deployed.name) for one in going)
    return Text(f"{len(going)} of {len(alarms)} in ALARM: {escape(named)}", style=BAD)
