"""Decides what `retry` does with a row or a dead letter. Pure. No choice takes a claim from its worker."""

from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.show.formatting import relative_time

JUST_DUE_MS = 10_000
"""A row that is due for less time gets no message: its own may be on its way, and a second call sends no copies."""


class Act(StrEnum):
    """The ways to repair."""

    REDRIVE = "redrive"
    """Its dead letter moves back to the queue."""
    NOW = "now"
    """Its next attempt is due now."""
    REOPEN = "reopen"
    """A new dead letter of its rejection is sent to the queue. The ledger accepts it once, and only for this one. Of a
    dismissed message, the row takes the same content from its source.
    """
    AGAIN = "again"
    """A request to process it again is sent, also if it is committed."""
    SKIP = "skip"
    """Nothing is to be done."""
    LEAVE = "leave"
    """A person has to do or to say something else."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to repair, and the reason."""

    act: Act
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request of the person, and facts besides the row. Times are in epoch milliseconds."""

    now: int
    again: bool = False
    """Effects that are committed may be repeated."""
    in_bucket: bool = True
    """S3 has the content. False for messages, which only their source and their dead letters have."""
    unread: str = ""
    """Why a dead letter may exist that was not read. Empty: the dead-letter queue was read whole."""
    restored_at: int | None = None
    """The time of the backup from which the table was restored. None: it was not."""


def choose(row: Row | None, *, has_letter: bool, asked: Asked) -> Choice:  # noqa: PLR0911 - a line for each case
    """Decide about one row, or about a dead letter or a key without a row."""
    if row is None:
        return _without_row(has_letter=has_letter, asked=asked)
    match row.status:
        case Status.LATER_FORMAT:
            return Choice(Act.LEAVE, "a later release wrote its row: use the command of that release")
        case Status.PROCESSING if row.is_live(asked.now):
            until = relative_time(row.lease_until or asked.now, asked.now)
            who = row.lease_owner or "a worker"
            return Choice(Act.LEAVE, f"{who} holds it, its lease ends {until}: if it is dead, see `release`")
        case Status.PROCESSING:
            return Choice(Act.NOW, "the lease of its last attempt has ended")
        case Status.FAILED if has_letter:
            return Choice(Act.REDRIVE, "its message is in the dead-letter queue")
        case Status.FAILED if asked.now - JUST_DUE_MS <= (row.retry_at or 0) <= asked.now:
            return Choice(Act.SKIP, "it became due a moment ago, and its own message may be on its way")
        case Status.FAILED:
            return Choice(Act.NOW, "it waits" if row.waits else "it failed")
        case Status.REJECTED:
            return _rejected(row, has_letter=has_letter, asked=asked)
        case _:
            return _processed(row, has_letter=has_letter, asked=asked)


def _without_row(*, has_letter: bool, asked: Asked) -> Choice:
    if has_letter:
        return Choice(Act.REDRIVE, "its dead letter is there")
    if not asked.in_bucket:
        return Choice(Act.LEAVE, "no row: its source must send it again")
    if asked.again:
        return Choice(Act.AGAIN, "no row")
    why = "no row: the consumer has never claimed it, or the row has expired. Its message returns at the end of its "
    return Choice(Act.LEAVE, f"{why}visibility timeout, see `inspect`. --again starts it without a message")


def _rejected(row: Row, *, has_letter: bool, asked: Asked) -> Choice:  # noqa: PLR0911 - as above
    if row.committed_state is not None and row.committed_state == row.identity and not asked.again:
        why = "an earlier attempt has committed this state: its effect may be repeated, add --again"
        return Choice(Act.LEAVE, why)
    if has_letter:
        return Choice(Act.REDRIVE, "its dead letter is there")
    if not asked.in_bucket and not row.dismissed:
        return Choice(Act.LEAVE, "its dead letter is gone: its source must send it again")
    if asked.again:
        return _opened(row, asked, Act.AGAIN)
    if asked.restored_at is not None and row.updated_at <= asked.restored_at:
        why = "the table was restored since its rejection, and its dead letter may have been served before: add --again"
        return Choice(Act.LEAVE, why)
    if asked.unread:
        return Choice(Act.LEAVE, f"no dead letter was found, but {asked.unread}: try again later, or add --again")
    return _opened(row, asked, Act.REOPEN)


def _opened(row: Row, asked: Asked, act: Act) -> Choice:
    if not asked.in_bucket:
        return Choice(Act.REOPEN, "it was dismissed: its source must send it again")
    return Choice(act, "it was dismissed" if row.dismissed else "its dead letter is gone")


def _processed(row: Row, *, has_letter: bool, asked: Asked) -> Choice:
    if asked.again and asked.in_bucket:
        return Choice(Act.AGAIN, "committed" if row.committed_state else "settled")
    if has_letter:
        return Choice(Act.REDRIVE, "its dead letter is of an earlier rejection: the ledger acknowledges it")
    if asked.again:
        return Choice(Act.LEAVE, "committed: its source must send it again, with an identity of its own")
    if row.removed_unprocessed:
        return Choice(Act.SKIP, "it was removed before it was processed: upload it again")
    return Choice(Act.SKIP, "it is committed: --again repeats its effect")
