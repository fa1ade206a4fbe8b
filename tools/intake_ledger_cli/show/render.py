"""Shows documents for people: a grid for fields and a table for each list. One table has labels, styles and hints."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, grid
from intake_ledger_cli.show.formatting import duration, relative_time

_SHOWN = 50
"""The largest number of rows of a table in a document. JSON has all."""
_NAMED = 10
"""The largest number of texts in a line."""
_WHOLE = frozenset({"since", "status", "attempt", "attempts", "rows", "reason code"})
"""Columns that are not wrapped."""
_TIME = re.compile("at|until|.*(At|Until|Since|_at|_until|_since)|deliveredBy")
"""Names of times in epoch milliseconds."""
_NAMES = frozenset({"byStatus", "chosen", "found", "left", "ofOthers", "reasons"})
"""Objects whose names are data."""
_TABLES = frozenset({"left", "reasons"})
"""Those of them with long names or texts."""
_STATUS = {"REJECTED": BAD, "DISMISSED": BAD} | dict.fromkeys(
    ("FAILED", "REJECTED-ROWS", "REMOVED", "STUCK", "WAITING"), WARNING
)
_CHOICES = {"leave": WARNING, "skip": DIM} | dict.fromkeys(("redrive", "now", "reopen", "again"), GOOD)
_OUTCOMES = dict.fromkeys(("missing", "undecided"), WARNING) | {"committed": GOOD}
_OUTCOMES |= dict.fromkeys(("rejected", "stopped", "lost", "differs", "refused"), BAD)
_NO_TICK = "none in the last hour"


class Field(NamedTuple):
    """The look of a field."""

    label: str
    """In a line of several values, `{}` is the place of the value. Empty: only JSON has the field."""
    style: str | Mapping[str, str] = ""
    """The style of a value that is not empty, or the style of each value."""
    hint: str = ""
    """It follows a value that is not empty."""
    empty: str = ""
    """The text of an empty value, which is None, False, 0, or has no parts. Without a text, the field is left out."""


_ONLY_JSON = (
    *("formatVersion", "position", "function.link", "consumerErrors.link", "approximateReviewRows"),
    *("breaker.closedAt", "breaker.lastSeenAt", "breaker.reasonCode"),
    *("waited.pipeline", "waited.operation", "row.format", "row.kind", "row.etag", "row.size"),
    *("row.version_id", "row.status", "row.needs_review", "row.rejected_fence", "row.spent_messages", "row.waiter"),
    *("row.bare_copy_digest", "row.same_key", "row.call_mark", "row.content", "row.transactional"),
)
FIELDS = dict.fromkeys(_ONLY_JSON, Field("")) | {
    "at": Field("{}"),
    "atLeast": Field("at least {}"),
    "choice": Field("choice", _CHOICES),
    "denied": Field("not allowed: {}", DIM),
    "dryRun": Field("dry run", WARNING, "nothing was changed: the numbers are those of a real call"),
    "error": Field("error", WARNING),
    "oldestAt": Field("oldest {}"),
    "outcome": Field("outcome", _OUTCOMES),
    "paused": Field("paused", WARNING, empty="no: the consumer takes messages within a minute"),
    "state": Field("state", {"only kept resources: deploy with this name=": WARNING}),
    "status": Field("status", _STATUS),
    "unknown": Field("unknown: {}", WARNING),
    "waiting": Field("{} waiting"),
    "why": Field("{}"),
    # Status
    "status.aborted": Field("Aborted", WARNING),
    "status.alarms": Field("Alarms"),
    "status.audit": Field("Last audit"),
    "audit.problem": Field("{}", WARNING),
    "audit.running": Field("an audit is running"),
    "audit.sending": Field("{}"),
    "audit.stuck": Field("send again the messages of {}", WARNING, "executions: or use `release --end`"),
    "audit.summary": Field("{}"),
    "sending.leftMs": Field("about {} left"),
    "sending.of": Field("of at most {} messages"),
    "sending.sent": Field("{} sent", empty="0 sent"),
    "status.breaker": Field("Breaker"),
    "breaker.lastFailureAt": Field("the last failure {}"),
    "breaker.lastSuccessAt": Field("the last success {}"),
    "breaker.nextProbeAt": Field("next probe {}", hint="messages are held back, see: retry --waiting"),
    "breaker.openedAt": Field("opened {}"),
    "breaker.reason": Field("{}"),
    "breaker.status": Field("{}", {"open": BAD, "unknown": WARNING}),
    "status.consumer": Field("Consumer"),
    "status.deadLetters": Field("Dead letters", BAD, "see: retry --prefix '' --dry-run"),
    "status.dismissed": Field("Dismissed", hint="see: list --status dismissed"),
    "status.executions": Field("Executions", hint="see: list --status running"),
    "executions.more": Field("and more"),
    "executions.running": Field("{} running"),
    "status.failed": Field("Failed", WARNING, "will be retried, see: list --status FAILED"),
    "status.function": Field("Function"),
    "atStart": Field("cannot start", BAD, "deploy code and variables that work"),
    "lastAt": Field("the last {}"),
    "more": Field("or more"),
    "status.groups": Field("Groups"),
    "group": Field("{}"),
    "heldBy": Field("held by {}", empty="free"),
    "heldSince": Field("since {}"),
    "status.lastHour": Field("Last hour"),
    "commitLagMs": Field("up to {} from event to commit"),
    "functionErrors": Field("{} failed invocations", WARNING),
    "functionThrottles": Field("{} throttled invocations", WARNING),
    "heldBack": Field("messages held back by the breaker: {}", WARNING),
    "lapsedLeases": Field("{} after a worker died or timed out", WARNING, "see: list --status stuck, audit --html"),
    "lastHour.retries": Field("attempts repeated: {}", WARNING),
    "status.laterFormat": Field("Later release", WARNING, "rows that this release does not process"),
    "status.moveTask": Field("Redrive of SQS", WARNING, "end it with: aws sqs cancel-message-move-task"),
    "destination": Field("to {}"),
    "moveTask.expected": Field("of {} messages"),
    "moveTask.startedAt": Field("started {}"),
    "status.pause": Field("Paused", BAD, "see: resume"),
    "pause.because": Field("because {}"),
    "pause.by": Field("by {}"),
    "status.queue": Field("Queue"),
    "hidden": Field("{} in flight"),
    "oldestSeconds": Field("oldest {}"),
    "status.rate": Field("Rate"),
    "burst": Field("{} at once"),
    "inLine": Field("about {} in line", WARNING, "see: list --status waiting"),
    "lastPlaceAt": Field("the last one {}"),
    "perSecond": Field("at most {} starts a second"),
    "status.rejected": Field("Rejected", BAD, "need a person, see: list --status REJECTED"),
    "status.rejectedRows": Field(
        "Rejected rows", WARNING, "files were committed without their bad rows, see: list --status rejected-rows"
    ),
    "status.removed": Field("Removed", hint="removed before they were processed, see: list --status removed"),
    "status.rows": Field("Rows", empty="no audit has counted them"),
    "byStatus": Field("{} at the last audit"),
    "rows.lapsed": Field("{} lapsed claims", WARNING, "see: list --status stuck"),
    "oldestClaimAt": Field("oldest claimed {}"),
    "status.table": Field("Table", hint="by DynamoDB's count"),
    "approximateRows": Field("about {} rows"),
    "status.tick": Field("Last tick", {_NO_TICK: WARNING}, empty=_NO_TICK),
    "problems": Field("{} delivery problems", BAD, "see: audit"),
    "status.waiting": Field("Waiting", WARNING),
    "number": Field("{}"),
    # Rows
    "row.event_name": Field("woken by"),
    "row.expires_at": Field("expires"),
    "row.first_claimed_at": Field("first seen"),
    "row.late_writes": Field("late writes", WARNING),
    "row.redrive_count": Field("redrives", hint="accepted again after a rejection"),
    "row.served_reprocess_id": Field("reprocess"),
    "row.tagged_at": Field("tag set"),
    "row.tags_pending": Field(
        "tag is missing at", WARNING, "the next message of the key sets it, or the audit sends one"
    ),
    "row.updated_at": Field("last change"),
    "row.agree": Field("Agree"),
    "agree.no": Field("no: {}", BAD),
    "agree.yes": Field("yes: {}", GOOD),
    "row.ledger": Field("Ledger"),
    "row.now": Field("Now"),
    "row.s3": Field("S3"),
    # Keys
    "consumerErrors": Field("Consumer errors", empty="none since then"),
    "consumerErrors.why": Field("not known: {}", WARNING),
    "function.why": Field("its log was not searched: {}"),
    "consumerErrors.number": Field("{} failed starts or invocations", BAD),
    "function.number": Field("{} failed starts or invocations", WARNING),
    "inspect.group": Field("Group"),
    "text": Field("{}"),
    # Retries
    "chosen": Field("chosen", empty="nothing is selected"),
    "refused": Field("not reopened", BAD),
    "requestId": Field("request ID", hint="to follow it: wait --id"),
    "redriven": Field("Dead letters"),
    "closed": Field("not moved: their identity is rejected", WARNING, "retry or dismiss one: --letter ID"),
    "redriven.failed": Field("not moved", BAD),
    "hiddenByOthers": Field(
        "hidden at the start", hint="another retry is running, or was killed in the last 15 minutes"
    ),
    "interrupted": Field("interrupted", WARNING, "see the dead-letter queue again"),
    "redriven.left": Field("not moved", hint="they do not match"),
    "moved": Field("{} moved", GOOD, empty="0"),
    "redriven.moved": Field("moved back to the queue", GOOD, empty="0"),
    "ofOthers": Field(
        "not moved, of another pipeline", hint="if this is a former name, deploy the pipeline with it: name="
    ),
    "overfull": Field("overfull", WARNING, "SQS allows no more messages in flight: run the command again for the rest"),
    "redriven.removed": Field(
        "not moved", hint="their objects were removed before they were processed, see: list --status removed"
    ),
    "undeleted": Field("moved but not deleted", hint="the ledger ignores the second copy"),
    "unmarked": Field("without the ID", hint="a stop does not reach them"),
    "unmoved": Field("not moved", hint="the call was interrupted"),
    "due": Field("Next attempts"),
    "changed": Field("had changed meanwhile"),
    "due.failed": Field("refused by SQS", WARNING, "they are tried when they are due"),
    "inFlight.number": Field("{}", empty="0"),
    "retried": Field("due now", GOOD, empty="0"),
    "visibilitySeconds": Field("those without an attempt return within {}"),
    "again": Field("Requests"),
    "absent": Field("removals", WARNING, "S3 has no such object, so its removal is requested"),
    "again.failed": Field(
        "not requested", BAD, "to send these, run the same command with --id: no object is processed twice"
    ),
    "directoryMarkers": Field("directory markers skipped", hint="name the key of one to process it"),
    "excluded": Field("left out", hint="by exclude of the pipeline"),
    "sent": Field("{} sent", GOOD, empty="0"),
    "skipped": Field("skipped", hint="outside of the pipeline's filters"),
    "unknownVersion": Field("not judged", WARNING, "their rows name no version of the processor"),
    # Audits
    "audit.delivery": Field("delivery", BAD),
    "audit.found": Field("found", WARNING),
    "audit.fullReport": Field("full report", DIM),
    "audit.held": Field("incomplete", WARNING),
    "audit.laterFormat": Field("not judged", WARNING, "rows of a later release"),
    "audit.removedUnprocessed": Field("removed", hint="before they were processed, see: list --status removed"),
    "audit.sent": Field("messages sent", empty="0"),
    "audit.startedAt": Field("run"),
    "audit.stopped": Field("incomplete", WARNING),
    "audit.unfinished": Field("unfinished", BAD),
    # Rehearsals
    "RehearseResult.differs": Field("differ", BAD),
    "RehearseResult.gone": Field("gone", DIM),
    "RehearseResult.refused": Field("refused", BAD),
    "RehearseResult.same": Field("same", GOOD, empty="0"),
    "RehearseResult.undecided": Field("undecided", WARNING, "compare with the deployed code: --old-code"),
    # Other commands
    "DismissResult.messages": Field("dead letters deleted", empty="0"),
    "DismissResult.rows": Field("rows dismissed"),
    "committed": Field("committed", empty="0"),
    "markerFound": Field("marker found", {"no": WARNING}, empty="no"),
    "servedBefore": Field("ended before the wait", hint="with an outcome that is not known here"),
    "begun": Field("in work, failed or rejected", WARNING),
    "StopResult.committed": Field("committed", WARNING),
    "StopResult.stopped": Field(
        "stopped",
        hint="consumers withdraw its messages from now on: dead letters go back, requests are acknowledged",
    ),
    "unreachable": Field("without the ID", WARNING, "they cannot be withdrawn"),
    "StopResult.why": Field("not known", WARNING),
    "mayRun": Field("execution may run", WARNING, "if it runs, stop it"),
    "EndResult.woken": Field("rejected now", empty="no, when its source delivers its message"),
    "woken": Field("tried now", empty="no, when its source delivers its message"),
    "deliveredBy": Field("delivered by", WARNING),
    "otherMessages": Field("other dead letters about the key", hint="they stay, see: retry KEY --dry-run"),
    "forgottenAt": Field("messages refused that were sent before"),
    "remains": Field("not removed", WARNING),
    "ForgetResult.unfinished": Field("unfinished", WARNING, "run the command again"),
    "ForgetAgainResult.left": Field("not forgotten", WARNING),
}
"""Fields by name, or by the name of their parent and their own. Others have the words of their name as label."""


def view(parent: str, content: Mapping[str, Any], now: int) -> Iterator[RenderableType]:
    """Show a document: a grid of the fields that have a value, and a table for each list. `parent` is its name."""
    yield fields(parent, content, now)
    for name, value in content.items():
        field = field_of(parent, name)
        if not field.label or not _has_lines(name, value):
            continue
        yield Text.assemble((field.label, field.style if isinstance(field.style, str) else ""), _hints([field.hint]))
        if isinstance(value, list):
            yield from rows(name, value, now)
        elif name in _TABLES:
            listed = table(("", ""), list(value.items())[:_SHOWN])
            listed.show_header = False
            yield listed
            yield from _more(len(value))
        else:
            yield from view(name, value, now)


def fields(parent: str, content: Mapping[str, Any], now: int) -> Table:
    """Return a grid of the fields whose value is one line."""
    lines = grid()
    for name, value in content.items():
        if field_of(parent, name).label and not _has_lines(name, value) and (text := line(parent, name, value, now)):
            lines.add_row(Text(_title(parent, name), style=DIM), text)
    return lines


def _has_lines(name: str, value: Any) -> bool:
    """True if a value is a list of objects, or an object that has one."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], Mapping)
    if not isinstance(value, Mapping) or name in _NAMES:
        return isinstance(value, Mapping) and bool(value) and name in _TABLES
    return any(isinstance(one, list | Mapping) for one in value.values())


def line(parent: str, name: str, value: Any, now: int, hint: str = "") -> Text:
    """Return the line of a value, with the hints of all that is in it. Empty: there is nothing to say."""
    field, text = field_of(parent, name), _text(parent, name, value, now, brief=False)
    if text:
        return text if _is_unread(value) else text.append_text(_hints([*_hints_in(name, value), hint or field.hint]))
    return Text(field.empty, style=_style(field, field.empty) if field.empty else "")


def _text(parent: str, name: str, value: Any, now: int, *, brief: bool) -> Text:
    """The value without a label. A brief time is its distance only."""
    if isinstance(value, Mapping):
        text = Text(", ").join(filter(None, (_part(name, one, each, now) for one, each in value.items())))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        text = Text("; ").join(_text(parent, name, one, now, brief=True) for one in value[:_NAMED])
        text.append(f"; and {len(value) - _NAMED:,} more" if len(value) > _NAMED else "")
    elif isinstance(value, list):
        more = f" and {len(value) - _NAMED:,} more" if len(value) > _NAMED else ""
        between = "\n" if any(" " in str(one) for one in value) else ", "
        text = Text(between.join(escape(str(one)) for one in value[:_NAMED]) + more)
    elif isinstance(value, bool) or not value:
        text = Text("yes" if value else "")
    elif isinstance(value, int | float):
        text = Text(_number(name, value, now, brief=brief))
    else:
        text = Text(escape(str(value)))
    # A part that was not read has its own style.
    if not _is_unread(value) and (style := _style(field_of(parent, name), text.plain)):
        text.stylize(style)
    return text


def _is_unread(value: Any) -> bool:
    return isinstance(value, Mapping) and ("denied" in value or "unknown" in value)


def _number(name: str, value: float, now: int, *, brief: bool) -> str:
    if name.endswith(("Ms", "Seconds")):
        return duration(int(value) * (1 if name.endswith("Ms") else 1_000))
    if name.endswith("fence"):
        return str(value)
    if _TIME.fullmatch(name):
        told = relative_time(int(value) * (1_000 if name == "expires_at" else 1), now)
        return told.partition(", ")[2] if brief else told
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _part(parent: str, name: str, value: Any, now: int) -> Text:
    """A value among others, with its label."""
    field, text = field_of(parent, name), _text(parent, name, value, now, brief=True)
    if not field.label or not text:
        return Text(field.empty)
    style = _style(field, text.plain)
    if value is True:
        return Text(field.label, style=style)
    before, place, after = field.label.partition("{}")
    if text.plain == "1" and not before and parent not in _NAMES:
        after = after.removesuffix("s")
    return Text.assemble((f"{before}{'' if place else ' '}", style), text, (after, style))


def _hints_in(parent: str, value: Any) -> Iterator[str]:
    """The hints of the values in an object."""
    for name, one in value.items() if isinstance(value, Mapping) else ():
        if one:
            yield from _hints_in(name, one)
            yield field_of(parent, name).hint


def _hints(hints: Iterable[str]) -> Text:
    text = "; ".join(dict.fromkeys(filter(None, hints)))
    return Text(f"  {text}" if text else "", style=DIM)


def field_of(parent: str, name: str) -> Field:
    """Return the look of a field."""
    if parent in _NAMES:
        return Field(f"{{}} {escape(name)}")
    words = re.sub("[A-Z]", lambda one: f" {one[0].lower()}", name.replace("_", " "))
    return FIELDS.get(f"{parent}.{name}") or FIELDS.get(name) or Field(re.sub(r"\bid\b", "ID", words))


def _title(parent: str, name: str) -> str:
    """The label of a field in a column of labels or in a heading."""
    return field_of(parent, name).label.replace("{}", "").strip() or field_of("", f"{name} ").label.strip()


def _style(field: Field, text: str) -> str:
    return field.style if isinstance(field.style, str) else field.style.get(text, "")


def rows(parent: str, found: Sequence[Mapping[str, Any]], now: int) -> Iterator[RenderableType]:
    """A table of objects, if there are any. Choices that need a person come first."""
    if not found:
        return
    names = [one for one in dict.fromkeys(one for row in found for one in row) if any(row.get(one) for row in found)]
    names = [one for one in names if field_of(parent, one).label]
    ordered = sorted(found, key=lambda row: row.get("choice") != "leave")
    cells = [[_text(parent, name, row.get(name), now, brief=False) for name in names] for row in ordered]
    yield table([_title(parent, one) for one in names], cells[:_SHOWN])
    yield from _more(len(found))


def _more(number: int) -> Iterator[Text]:
    if number > _SHOWN:
        yield Text(f"and {number - _SHOWN:,} more, see --json", style=DIM)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of texts. A number is aligned to the right, and text without a style is escaped."""
    made, lines = Table(*titles, box=None, pad_edge=False, header_style=DIM), list(rows)
    for column, title, values in zip(made.columns, titles, zip(*lines, strict=True), strict=False):
        column.overflow, column.no_wrap = "fold", title in _WHOLE
        column.justify = "right" if all(isinstance(one, int) for one in values) else "left"
    for each in lines:
        made.add_row(*map(_cell, titles, each))
    return made


def _cell(title: str, value: object) -> Text | str:
    if isinstance(value, Text):
        return value
    text = f"{value:,}" if isinstance(value, int) else escape(str(value))
    style = _style(field_of("", title), text)
    return Text(text, style=style) if style else text
