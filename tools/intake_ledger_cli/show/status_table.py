"""Builds the table that shows the status of a pipeline."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import AuditState
from intake_ledger_cli.read import verdict
from intake_ledger_cli.read.counting import Count
from intake_ledger_cli.read.status import (
    OPTIONS,
    Alarm,
    BreakerState,
    BreakerStatus,
    NotRead,
    PipelineStatus,
    QueueDepth,
)
from intake_ledger_cli.show import formatting, render
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, grid, heading
from intake_ledger_cli.show.json_output import camel_case, document

_MARKS = {BAD: "!", WARNING: "~"}
"""What stands for the colours of a line, for pipes and for people who do not see them."""
_LINES = (
    *("consumer", "pause", "function", "breaker", "rate", "queue", "deadLetters", "moveTask", "executions", "failed"),
    *("rejected", "dismissed", "removed", "rejectedRows", "waiting", "groups", "laterFormat", "rows", "table"),
    *("lastHour", "audit", "tick", "alarms"),
)
"""The fields that are shown, in this order."""
_QUIET = frozenset({"breaker", "lastHour", "rate", "rows", "table", "tick"})
"""Lines that are shown only with a mark."""


def status_table(deployed: DeployedPipeline, found: PipelineStatus, *, every: bool = False) -> RenderableType:
    """The verdict, and the lines that have something to say. With `every`, all lines."""
    content, hints = _content(deployed, found), {"rejected": _without_letters(found), "waiting": _waiting_for(deployed)}
    lines = grid()
    for name in (one for one in _LINES if content.get(one) is not None or one == "tick" in content):
        value = content[name]
        text = value if isinstance(value, Text) else render.line("status", name, value, found.at, hints.get(name, ""))
        styles = {str(text.style), *(str(span.style) for span in text.spans)}
        mark = next((mark for style, mark in _MARKS.items() if style in styles), "")
        denied = isinstance(value, Mapping) and "denied" in value
        if every or mark or denied or (text and GOOD not in styles and name not in _QUIET):
            label = Text(render.field_of("status", name).label, style=DIM)
            lines.add_row(mark or " ", label, text or Text("none"))
    findings = verdict.findings_of(found)
    style = BAD if any(one.needs_a_person for one in findings) else GOOD
    said = [Text(escape(line), style=style) for line in verdict.verdict_lines(findings)]
    return Group(*said, heading(deployed.name, f"{deployed.place}, {formatting.timestamp(found.at)}"), lines)


def _content(deployed: DeployedPipeline, found: PipelineStatus) -> dict[str, Any]:
    """The document, with the lines that do not show their field as it is."""
    content: dict[str, Any] = document(found)
    for one in fields(found):
        if isinstance(count := getattr(found, one.name), Count):
            content[camel_case(one.name)] = count_parts(count)
    if isinstance(found.consumer, str):
        content["consumer"] = _consumer(found.consumer, workers=deployed.setting("has_workers"))
    # A deployment may have enabled the mapping, and left the record of the pause.
    content["pause"] = None if found.consumer == "Enabled" else content["pause"]
    if isinstance(found.breaker, BreakerState) and found.breaker.status is BreakerStatus.CLOSED:
        content["breaker"] = {"status": "closed"}
    if isinstance(found.move_task, NotRead) and found.move_task.why:
        del content["moveTask"]
    if not deployed.work.has_ticks:
        del content["tick"]
    if deployed.work.audit_event is not None:
        del content["table"]
    if isinstance(found.audit, AuditState):
        content["rows"] = (found.audit.last or {}).get("rows")
        content["audit"] = _audit(found.audit)
    if not isinstance(found.alarms, NotRead):
        content["alarms"] = alarms_text(deployed, found.alarms)
    return content


def count_parts(count: Count) -> dict[str, Any]:
    """The number of rows, and the time of the oldest one."""
    if count.unknown:
        return {"unknown": count.why}
    return {"atLeast" if count.why else "number": count.number, "oldestAt": count.oldest_at, "why": count.why}


def _without_letters(found: PipelineStatus) -> str:
    """Why no dead letter belongs to the rejected rows. A restore of the table brings rows back, and no letter."""
    hint, depth = render.field_of("status", "rejected").hint, found.dead_letters
    if not isinstance(depth, QueueDepth) or depth.messages:
        return hint
    return f"{hint}. No dead letter is left: they have expired, or were served before a restore of the table"


def _waiting_for(deployed: DeployedPipeline) -> str:
    most = deployed.max_wait_seconds
    until = "" if most is None else f", rejected after {formatting.duration(most * 1000)}"
    return f"{deployed.work.waits}{until}, see: list --status waiting"


def status_line(found: PipelineStatus) -> str:
    """Describe the status in one line, for a log or a pipe."""
    parts: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
        ("consumer", found.consumer, str),
        ("breaker", found.breaker, lambda one: one.status),
        ("queue", found.queue, lambda one: f"{one.waiting}+{one.hidden}"),
        ("dead_letters", found.dead_letters, lambda one: f"{one.waiting}+{one.hidden}"),
        *((name, getattr(found, name), _brief) for name in ("failed", "rejected", "waiting")),
        *((one.brief[0], found.options[one.name], one.brief[1]) for one in OPTIONS if one.brief is not None),
        ("alarms", found.alarms, lambda one: sum(alarm.state == "ALARM" for alarm in one)),
    )
    known = [(name, show(part)) for name, part, show in parts if part is not None and not isinstance(part, NotRead)]
    return " ".join([formatting.timestamp(found.at), *(f"{name}={text}" for name, text in known)])


def _brief(count: Count) -> str:
    return "?" if count.unknown else f"{count.number}{'+' if count.why else ''}"


def _consumer(source: str, *, workers: bool) -> Text:
    if workers:
        # Only their service knows how many run.
        if source == "Enabled":
            return Text("workers outside of Lambda, and also the function, take messages", style=WARNING)
        return Text(f"workers outside of Lambda take messages; the function's event source mapping is {source}")
    if source == "Enabled":
        return Text("takes messages", style=GOOD)
    return Text.assemble((f"takes no messages: its event source mapping is {source}", BAD), ("  see: resume", DIM))


def _audit(state: AuditState) -> Mapping[str, Any]:
    """The last report and the audit that runs."""
    last: Mapping[str, Any] = state.last or {"summary": "no report yet", "startedAt": None, "delivery": ["none"]}
    good = not any(last.get("counts", {}).values()) and not last["delivery"]
    return {
        "at": last["startedAt"],
        "summary" if good else "problem": last["summary"],
        "running": state.running,
        "sending": document(state.sending) if state.running else None,
        "stuck": list(dict.fromkeys(one["key"] for one in last.get("findings", ()) if one["why"] == "stuck")),
    }


def alarms_text(deployed: DeployedPipeline, alarms: list[Alarm]) -> Text:
    going = [one for one in alarms if one.state == "ALARM"]
    unknown = sum(one.state == "INSUFFICIENT_DATA" for one in alarms)
    if not going:
        aside = f", {unknown} with insufficient data" if unknown else ""
        return Text(f"none of {len(alarms)} in ALARM{aside}", style=WARNING if unknown else GOOD)
    named = "; ".join(one.meaning(deployed.name) for one in going)
    return Text(f"{len(going)} of {len(alarms)} in ALARM: {escape(named)}", style=BAD)
