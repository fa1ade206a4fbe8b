"""Builds the tables that show the dead letters and the requests of `retry`."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from intake_ledger_cli.act.redrive import RedriveResult
from intake_ledger_cli.act.reprocess import ReprocessResult
from intake_ledger_cli.aws.dead_letters import NotMoved
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, grid, many

_NAMED = 20
"""The largest number of keys or reasons that are listed."""


def redrive_table(found: RedriveResult) -> RenderableType:
    number, verb = (found.matched, "would be moved") if found.dry_run else (found.moved, "moved")
    parts: list[RenderableType] = [
        Text(f"{many(number, 'messages')} {verb} back to the queue", style=GOOD if number else "")
    ]
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
        (found.left, "not moved: they do not match"),
        (
            found.of_others.total(),
            f"not moved, of another pipeline: {others} (if this is a former name, deploy the pipeline with it: name=)",
        ),
        (
            found.removed,
            "not moved: their objects were removed before they were processed, see: list --status removed",
        ),
        (
            found.hidden_by_others,
            "hidden at the start: another retry is running, or was killed in the last 15 minutes",
        ),
        (found.undeleted, "moved but not deleted: the ledger ignores the second copy"),
    )
    if found.closed:
        parts.append(
            Text("not moved: their identity is rejected. Open one with retry --letter ID, or delete it with dismiss")
        )
        parts += [Text(escape(f"{one.id} {', '.join(one.keys)} {one.identity}"), style=DIM) for one in found.closed]
    parts += _not_moved(found.failed, overfull=found.overfull)
    return Group(*parts)


def _counts(*counts: tuple[int, str]) -> list[Text]:
    """Return a line for each number that is not zero."""
    return [
        Text(f"{many(number, text.split()[0])} {text.partition(' ')[2]}", style=DIM)
        for number, text in counts
        if number
    ]


def _not_moved(failed: Iterable[NotMoved], *, overfull: bool) -> Iterator[Text]:
    """Yield a line for each message that stays in its queue."""
    if overfull:
        yield Text("SQS allows no more messages in flight: run the command again for the rest", style=WARNING)
    for one in failed:
        yield Text(escape(f"not moved: {', '.join(one.keys) or one.id}: {one.why}"), style=BAD)


def reprocess_table(found: ReprocessResult) -> RenderableType:
    verb = "would be sent" if found.dry_run else "sent"
    parts: list[RenderableType] = [Text(f"{many(found.sent, 'requests')} {verb}", style=GOOD if found.sent else "")]
    if found.skipped:
        parts.append(Text(f"{many(found.skipped, 'keys')} skipped, outside of the pipeline's filters", style=DIM))
    if found.directory_markers:
        text = f"{many(found.directory_markers, 'directory markers')} skipped: name the key of one to process it"
        parts.append(Text(text, style=DIM))
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
