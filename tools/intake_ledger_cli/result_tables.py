"""Builds the tables that show the result of redrive, adopt and reprocess."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger_cli.adopt import AdoptionResult, OldBucket
from intake_ledger_cli.console import BAD, DIM, GOOD, WARNING, escape, grid, heading
from intake_ledger_cli.dead_letters import NotMoved
from intake_ledger_cli.redrive import RedriveResult
from intake_ledger_cli.reprocess import ReprocessResult

_NAMED = 20
"""The largest number of keys or reasons that are listed."""


def redrive_table(found: RedriveResult) -> RenderableType:
    number, verb = (found.matched, "messages would be moved") if found.dry_run else (found.moved, "messages moved")
    parts: list[RenderableType] = [Text(f"{number:,} {verb} back to the queue", style=GOOD if number else "")]
    if found.interrupted:
        parts.append(Text("interrupted: see the dead-letter queue again", style=WARNING))
    lines = grid()
    for reason, count in found.reasons.most_common(_NAMED):
        lines.add_row(Text(f"{count:,}", style=DIM), escape(reason))
        about = [", ".join(one.keys) or one.id for one in found.dead_letters if one.reason == reason]
        for key in about[:_NAMED]:
            lines.add_row("", Text(escape(key), style=DIM))
        if len(about) > _NAMED:
            lines.add_row("", Text(f"and {len(about) - _NAMED:,} more", style=DIM))
    parts.append(lines)
    others = ", ".join(map(escape, found.of_others))
    parts += _counts(
        (found.unmoved, "not moved: the call was interrupted"),
        (found.left, "not moved: they do not match, or exceed --limit"),
        (
            found.of_others.total(),
            f"not moved, of another pipeline: {others} (if this is a former name, run: intake-ledger adopt)",
        ),
        (
            found.removed,
            "not moved: their objects were removed before they were processed, see: list --removed",
        ),
        (found.arrived_meanwhile, "not moved: they arrived after the start, most likely because they failed again"),
        (
            found.hidden_by_others,
            "hidden at the start: another redrive is running, or was killed in the last 15 minutes",
        ),
        (found.undeleted, "moved but not deleted: the ledger ignores the second copy"),
    )
    parts += _not_moved(found.failed, overfull=found.overfull)
    return Group(*parts)


def _counts(*counts: tuple[int, str]) -> list[Text]:
    """Return a line for each number that is not zero."""
    return [Text(f"{number:,} {text}", style=DIM) for number, text in counts if number]


def _not_moved(failed: Iterable[NotMoved], *, overfull: bool) -> Iterator[Text]:
    """Yield a line for each message that stays in its queue."""
    if overfull:
        yield Text("SQS allows no more messages in flight: run the command again for the rest", style=WARNING)
    for one in failed:
        yield Text(escape(f"not moved: {', '.join(one.keys) or one.id}: {one.why}"), style=BAD)


def adopt_table(done: AdoptionResult) -> RenderableType:
    verb = "would be moved" if done.dry_run else "moved"
    rows = done.rows
    parts: list[RenderableType] = [heading(done.pipeline, f"adopts the resources of {done.former}")]
    parts.append(Text(f"{rows.moved:,} rows {verb}", style=GOOD if rows.moved else ""))
    parts += _counts(
        (rows.superseded, "rows deleted: this pipeline has newer ones"),
        (rows.held, "rows not moved: a worker or an audit may hold their lease; run the command again after its end"),
        (rows.later_format, "rows not moved: a later release wrote them; run the command of that release"),
    )
    for name, found in (("messages", done.queue), ("dead-letter messages", done.dead_letters)):
        if found is None:
            parts.append(
                Text(
                    f"no {name} moved: no other queue of {done.former} is known; if it has one, use --from-queue",
                    style=DIM,
                )
            )
            continue
        parts.append(Text(f"{found.moved:,} {name} {verb}", style=GOOD if found.moved else ""))
        parts += _counts(
            (found.hidden, "hidden at the start: run the command again when their visibility timeout has ended"),
            (found.of_others.total(), f"not moved, of another pipeline: {', '.join(map(escape, found.of_others))}"),
            (found.undeleted, "moved but not deleted: the ledger ignores the second copy"),
        )
        parts += _not_moved(found.failed, overfull=found.overfull)
    parts += [_old_bucket(one, done) for one in done.old_buckets]
    if not done.complete:
        parts.append(Text("some rows or messages were not moved: run the command again", style=WARNING))
    return Group(*parts)


def _old_bucket(found: OldBucket, done: AdoptionResult) -> RenderableType:
    counts = [done.rows.of_other_buckets]
    counts += [one.of_other_buckets for one in (done.queue, done.dead_letters) if one]
    about = sum(one[found.bucket] for one in counts)
    text = f"not moved, about the bucket {found.bucket}: {about:,} rows and messages"
    if found.why is not None:
        return Text(escape(f"{text}; it cannot be listed: {found.why}"), style=WARNING)
    objects = f"{'more than ' if found.more else ''}{found.objects:,} objects"
    lines = grid()
    for key in found.keys:
        lines.add_row("", Text(escape(key), style=DIM))
    return Group(Text(f"{text}, {objects}; each object that you copy from there is a new upload", style=WARNING), lines)


def reprocess_table(found: ReprocessResult) -> RenderableType:
    verb = "requests would be sent" if found.dry_run else "requests sent"
    parts: list[RenderableType] = [Text(f"{found.sent:,} {verb}", style=GOOD if found.sent else "")]
    if found.skipped:
        parts.append(Text(f"{found.skipped:,} keys skipped: they match none of the pipeline's filters", style=DIM))
    if found.directory_markers:
        text = "directory markers skipped: name the key of one to process it"
        parts.append(Text(f"{found.directory_markers:,} {text}", style=DIM))
    if found.unknown_version:
        text = "not judged and not requested, since their rows name no version of the processor:"
        parts.append(Text(f"{text} {found.unknown_version:,}", style=WARNING))
    parts += [
        Text(escape(f"{key}: S3 has no such object, so its removal is requested"), style=WARNING)
        for key in found.absent
    ]
    parts += [Text(escape(f"not requested: {one.key}: {one.why}"), style=BAD) for one in found.failed]
    if found.failed:
        parts.append(
            Text(f"to send these, run the same command with --id {found.reprocess_id}: no object is processed twice")
        )
    return Group(*parts)
