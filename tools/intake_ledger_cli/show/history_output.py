"""Shows the history of a key's attempts."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger_cli.read.history import Attempt, History
from intake_ledger_cli.show import formatting
from intake_ledger_cli.show.console import BAD, DIM, GOOD, WARNING, escape, many

SHOWN_REPEATS = 10
_STYLES = {OutcomeKind.COMMITTED.value: GOOD, OutcomeKind.STARTED.value: GOOD, OutcomeKind.REJECTED.value: BAD}


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
