"""What a person sees. Keys and reasons are other people's text: nothing in them may move the cursor or set colours."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from intake_ledger.protocol.row import Status
from intake_ledger_cli import formatting
from intake_ledger_cli.adopt import AdoptionResult, OldBucket
from intake_ledger_cli.counting import Count
from intake_ledger_cli.inspection import Comparison
from intake_ledger_cli.reading import AuditState, ReviewPage
from intake_ledger_cli.redrive import RedriveResult
from intake_ledger_cli.reprocess import ReprocessResult
from intake_ledger_cli.status import AccessDenied, Alarm, PipelineStatus, QueueDepth, RetryCounts

if TYPE_CHECKING:
    from intake_ledger_cli.dead_letters import DeadLetterMessage
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.former import FormerPipeline

GOOD, BAD, SO_SO, QUIET = "green", "bold red", "yellow", "dim"
_UNWRAPPED = 100_000
_NAMED = 20
"""How many of many are named."""


def console(*, stderr: bool = False) -> Console:
    """Without rich's own markup: a key may look like it. What is no terminal is not wrapped."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNWRAPPED
    return made


def escape(text: str) -> str:
    """The text with everything that is not to be seen written out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def status_table(deployed: "DeployedPipeline", found: PipelineStatus, now: int) -> RenderableType:
    lines = _lines()
    _line(lines, "Consumer", _source(found.source))
    _line(lines, "Queue", _depth(found.queue))
    _line(lines, "Dead letters", _dead_letters(found.dead_letters))
    counts = found.needs_review
    if isinstance(counts, AccessDenied):
        _line(lines, "Failed, rejected", _refused(counts))
    else:
        _line(lines, "Failed", _count(counts.failed, SO_SO, "will be tried again: list --status FAILED"))
        _line(lines, "Rejected", _count(counts.rejected, BAD, "wait for a person: list --status REJECTED"))
        _line(lines, "Waiting", _count(counts.waiting, SO_SO, "wait for something that is not there yet"))
        if counts.later_format.number or counts.later_format.why:
            _line(lines, "Later release", _count(counts.later_format, SO_SO, "rows that this release leaves alone"))
    _line(lines, "Last hour", _repeats(found.repeats))
    _line(lines, "Last audit", _audit(found.audit, now))
    _line(lines, "Alarms", _alarms(deployed, found.alarms))
    return Group(_heading(deployed.name, f"bucket {deployed.bucket}"), lines)


def list_table(found: ReviewPage, now: int) -> RenderableType:
    if not found.entries:
        return Text("none", style=GOOD)
    table = Table(box=None, pad_edge=False, header_style=QUIET)
    table.add_column("since", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("tries", justify="right", no_wrap=True)
    table.add_column("key", overflow="fold")
    table.add_column("reason", overflow="fold")
    for entry in found.entries:
        row = entry.row
        style = BAD if row.status is Status.REJECTED else SO_SO
        is_waiting = (
            row.waiting_since is not None and row.needs_review is not None and row.needs_review.endswith("#waiting")
        )
        due = f"; next try in {formatting.duration(row.retry_at - now)}" if row.retry_at and row.retry_at > now else ""
        table.add_row(
            formatting.duration(now - (row.waiting_since or row.updated_at if is_waiting else row.updated_at)),
            Text("WAITING" if is_waiting else row.status.value, style=style),
            str(row.attempts),
            escape(entry.key),
            escape(row.reason or "") + due,
        )
    if found.after is None:
        return table
    return Group(table, Text(f"there are more: --after {found.after}", style=QUIET))


def inspect_table(
    deployed: "DeployedPipeline", key: str, found: Sequence[Comparison], denied: str | None, now: int
) -> RenderableType:
    parts: list[RenderableType] = [_heading(escape(key), f"{deployed.name}, bucket {deployed.bucket}")]
    if not deployed.wants(key):
        parts.append(Text("this key passes none of the pipeline's filters: nobody is told about it", style=SO_SO))
    for one in found:
        lines = _lines()
        told = (
            formatting.describe_row(one.row, now) if one.row else [("status", "no row: the ledger knows nothing of it")]
        )
        for place, (label, text) in enumerate(told):
            _line(lines, "Ledger" if place == 0 else f"  {label}", Text(escape(text)))
        if denied is not None:
            _line(lines, "S3", Text(f"not allowed: {denied}", style=QUIET))
        else:
            shown = formatting.describe_state(one.state, now) if one.state else "not there any more"
            _line(lines, "S3", Text(escape(shown)))
        if one.agree is not None:
            verdict = ("yes: ", GOOD) if one.agree else ("no: ", BAD)
            _line(lines, "Agree", Text.assemble(verdict, one.why))
        parts.append(lines)
    if not found:
        parts.append(Text("neither S3 nor the ledger has any version of it"))
    return Group(*parts)


def redrive_table(found: RedriveResult, *, dry_run: bool) -> RenderableType:
    number, verb = (found.matched, "would be moved") if dry_run else (found.moved, "moved")
    parts: list[RenderableType] = [Text(f"{number:,} {verb} back to the queue", style=GOOD if number else "")]
    lines = _lines()
    for reason, count in found.reasons.most_common(_NAMED):
        lines.add_row(Text(f"{count:,}", style=QUIET), escape(reason))
        about = [", ".join(one.keys) or one.id for one in found.matched_messages if one.reason == reason]
        for key in about[:_NAMED]:
            lines.add_row("", Text(escape(key), style=QUIET))
        if len(about) > _NAMED:
            lines.add_row("", Text(f"and {len(about) - _NAMED:,} more", style=QUIET))
    parts.append(lines)
    others = ", ".join(map(escape, found.of_others))
    parts += _counts(
        (found.left, "left where they are: they do not fit, or are beyond the limit"),
        (
            found.of_others.total(),
            f"left to who set them aside: {others} (if it had this name: intake-ledger adopt)",
        ),
        (found.arrived_meanwhile, "arrived meanwhile and were left: failed again, most likely"),
        (found.hidden_by_others, "hidden when this began: another redrive is at work, or was killed minutes ago"),
        (found.undeleted, "moved, but their copies could not be deleted: they do no harm"),
    )
    parts += _not_moved(found.failed, overfull=found.overfull)
    return Group(*parts)


def _counts(*counts: tuple[int, str]) -> list[Text]:
    """A line for each number that is not zero."""
    return [Text(f"{number:,} {text}", style=QUIET) for number, text in counts if number]


def _not_moved(failed: Iterable[tuple["DeadLetterMessage", str]], *, overfull: bool) -> Iterator[Text]:
    """The messages that stay in their queue, each with its reason."""
    if overfull:
        yield Text("SQS hides no more messages at once: run it again for the rest", style=SO_SO)
    for message, why in failed:
        yield Text(escape(f"not moved: {', '.join(message.keys) or message.id}: {why}"), style=BAD)


def adopt_table(
    former: "FormerPipeline", deployed: "DeployedPipeline", done: AdoptionResult, *, dry_run: bool
) -> RenderableType:
    verb = "would be moved" if dry_run else "moved"
    rows = done.rows
    parts: list[RenderableType] = [_heading(deployed.name, f"adopts what {former.name} left")]
    parts.append(Text(f"{rows.moved:,} rows {verb}", style=GOOD if rows.moved else ""))
    parts += _counts(
        (rows.superseded, "rows deleted: this pipeline has newer ones"),
        (rows.held, "rows left: a worker or an audit may hold them; run it again when its time is over"),
        (rows.later_format, "rows left: a later release wrote them; run it with that release"),
    )
    for name, found in (("messages", done.queue), ("dead letters", done.dead_letters)):
        if found is None:
            parts.append(Text(f"no {name} moved: no other queue is known to have been its queue", style=QUIET))
            continue
        parts.append(Text(f"{found.moved:,} {name} {verb}", style=GOOD if found.moved else ""))
        parts += _counts(
            (found.hidden, "were hidden when this began: run it again when their time is over"),
            (found.of_others.total(), f"left: of {', '.join(map(escape, found.of_others))}"),
            (found.undeleted, "moved, but their copies could not be deleted: they do no harm"),
        )
        parts += _not_moved(found.failed, overfull=found.overfull)
    parts += [_old_bucket(one, done) for one in done.old_buckets]
    if not done.complete:
        parts.append(Text("not all is moved: run it again", style=SO_SO))
    return Group(*parts)


def _old_bucket(found: OldBucket, done: AdoptionResult) -> RenderableType:
    counts = [done.rows.of_other_buckets]
    counts += [one.of_other_buckets for one in (done.queue, done.dead_letters) if one]
    about = sum(one[found.name] for one in counts)
    said = f"left where they are, about the bucket {found.name}: {about:,} rows and messages"
    if found.why is not None:
        return Text(escape(f"{said}; it cannot be listed: {found.why}"), style=SO_SO)
    objects = f"{'more than ' if found.more else ''}{found.objects:,} objects"
    lines = _lines()
    for key in found.keys:
        lines.add_row("", Text(escape(key), style=QUIET))
    return Group(Text(f"{said}, {objects}; what is copied from there is a new upload", style=SO_SO), lines)


def reprocess_table(found: ReprocessResult, *, dry_run: bool) -> RenderableType:
    verb = "would be asked for" if dry_run else "asked for again"
    parts: list[RenderableType] = [Text(f"{found.sent:,} {verb}", style=GOOD if found.sent else "")]
    if found.skipped:
        parts.append(Text(f"{found.skipped:,} left out: the pipeline's filters do not take them", style=QUIET))
    parts += [
        Text(escape(f"{key}: S3 has nothing there, it is asked for as a removal"), style=SO_SO) for key in found.absent
    ]
    parts += [Text(escape(f"not asked for: {target.key}: {why}"), style=BAD) for target, why in found.failed]
    if found.failed:
        parts.append(Text(f"the same call with --id {found.id} asks for these, and for nothing twice"))
    return Group(*parts)


def report_table(found: dict[str, Any], in_full: str | None, now: int) -> RenderableType:
    counts: dict[str, int] = found["counts"]
    good = not any(counts.values()) and not found["delivery"] and found["complete"]
    lines = _lines()
    _line(lines, "Run", Text(formatting.relative_time(found["startedAt"], now)))
    _listing(lines, found, now)
    for name, number in counts.items():
        _line(lines, name.capitalize(), Text(f"{number:,}", style=SO_SO if number else GOOD))
    _line(lines, "Messages", Text(f"{found['resubmitted']:,} sent"))
    if found["laterFormat"]:
        _line(lines, "Later release", Text(f"{found['laterFormat']:,} rows were left alone", style=SO_SO))
    if found["stopped"] or found["held"]:
        _line(lines, "Not all", Text(escape("; ".join(filter(None, (found["stopped"], found["held"])))), style=SO_SO))
    for problem in found["delivery"]:
        _line(lines, "Delivery", Text(escape(problem), style=BAD))
    for part in found.get("unfinished", ()):
        _line(lines, "Left out", Text(escape(part), style=BAD))
    if in_full is not None:
        _line(lines, "In full", Text(escape(in_full), style=QUIET))
    parts: list[RenderableType] = [Text(escape(found["summary"]), style=GOOD if good else SO_SO), lines]
    parts += [Text(escape(f"{one['why']:<10} {one['key']}")) for one in found["findings"]]
    if (more := sum(counts.values()) - len(found["findings"])) > 0:
        parts.append(Text(f"and {more:,} more", style=QUIET))
    return Group(*parts)


def _listing(lines: Table, found: dict[str, Any], now: int) -> None:
    """The lines of a report that count what was listed, and when."""
    _line(lines, "ReviewPage", Text(f"{found['listed']:,}"))
    for label, text in formatting.report_lines(found.get("lines", {})):
        _line(lines, label, Text(text))
    if said := formatting.unlisted_rows(found.get("unlisted", {})):
        _line(lines, "Not listed", Text(said))
    for begun_at, text in formatting.listing_parts(found.get("passes", ())):
        _line(lines, "Part", Text(f"{text}, {formatting.relative_time(begun_at, now)}", style=QUIET))


def _heading(name: str, more: str) -> Text:
    return Text.assemble((name, "bold"), (f"  {more}", QUIET))


def _lines() -> Table:
    return Table.grid(padding=(0, 2))


def _line(lines: Table, label: str, text: Text) -> None:
    lines.add_row(Text(label, style=QUIET), text)


def _refused(denied: AccessDenied) -> Text:
    return Text(f"not allowed: {denied.action}", style=QUIET)


def _source(source: str | AccessDenied) -> Text:
    if isinstance(source, AccessDenied):
        return _refused(source)
    if source == "Enabled":
        return Text("takes messages", style=GOOD)
    return Text(f"takes no messages: its event source is {source}", style=BAD)


def _depth(depth: QueueDepth | AccessDenied) -> Text:
    if isinstance(depth, AccessDenied):
        return _refused(depth)
    return Text(f"{depth.waiting:,} waiting, {depth.hidden:,} in work or set back")


def _dead_letters(depth: QueueDepth | AccessDenied) -> Text:
    if isinstance(depth, AccessDenied):
        return _refused(depth)
    looked_at = f", {depth.hidden:,} being looked at" if depth.hidden else ""
    return Text(f"{depth.waiting:,}{looked_at}", style=BAD if depth.waiting + depth.hidden else GOOD)


def _count(count: Count, style: str, what: str) -> Text:
    if count.unknown:
        return Text(f"unknown: {count.why}", style=SO_SO)
    if count.more:
        return Text.assemble((f"more than {count.number:,}", style), (f"  {what}", QUIET))
    if count.why:
        return Text.assemble((f"at least {count.number:,}", style), (f"  {what}; {count.why}", QUIET))
    if not count.number:
        # The index is behind the table by a moment.
        return Text.assemble(("0", GOOD), ("  as of a moment ago", QUIET))
    return Text.assemble((f"{count.number:,}", style), (f"  {what}", QUIET))


def _repeats(repeats: RetryCounts | AccessDenied) -> Text:
    if isinstance(repeats, AccessDenied):
        return _refused(repeats)
    said = f"{repeats.retries:,} attempts repeated, {repeats.lapsed_leases:,} after a worker died or timed out"
    return Text(said, style=SO_SO if repeats.retries or repeats.lapsed_leases else GOOD)


def _audit(item: AuditState | AccessDenied, now: int) -> Text:
    if isinstance(item, AccessDenied):
        return _refused(item)
    running = "; one is at work" if item.lease_until and item.lease_until > now else ""
    if running and item.sending is not None:
        left = formatting.duration(item.sending.left_ms(now))
        running += f", {item.sending.sent:,} of at most {item.sending.of:,} messages sent, about {left} left"
    if item.last is None:
        return Text(f"none has left a report yet{running}", style=SO_SO)
    last = item.last
    good = not any(last["counts"].values()) and not last["delivery"]
    said = f"{formatting.duration(now - last['startedAt'])} ago: {last['summary']}{running}"
    return Text(escape(said), style=GOOD if good else SO_SO)


def _alarms(deployed: "DeployedPipeline", alarms: list[Alarm] | AccessDenied) -> Text:
    if isinstance(alarms, AccessDenied):
        return _refused(alarms)
    going = [one for one in alarms if one.state == "ALARM"]
    unknown = sum(one.state == "INSUFFICIENT_DATA" for one in alarms)
    if not going:
        aside = f", {unknown} without data yet" if unknown else ""
        return Text(f"none of {len(alarms)} goes off{aside}", style=GOOD)
    named = "; ".join(one.why.removeprefix(f"{deployed.name}: ") or one.name for one in going)
    return Text(f"{len(going)} of {len(alarms)}: {escape(named)}", style=BAD)
