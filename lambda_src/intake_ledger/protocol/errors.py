"""All errors of the runtime.

Exception
├── Unprocessable        a processor raises it: this change can never succeed
│   ├── SchemaDrift          a file lacks an expected column, or has a new one
│   ├── TooManyRejects       more rows of a file are bad than its processor allows
│   ├── EndedByPerson        a person has ended the work of the row for good
│   └── RefusedByTag         the tag of the version refuses it (`ready_when`)
├── NotYet               a processor raises it: something that it needs is missing
│   └── GroupHeld            another key of the group is in work (`exclusive_by`)
├── ObjectGone           `ObjectChange.open()` raises it: S3 no longer holds the claimed version
├── Fenced               the ledger refused a write, because another attempt has the row
├── LibraryError         its text quotes no content and is always kept as a reason
│   ├── LateWriteFound       the ledger refused a commit: another state may have been written after its effect
│   ├── ObjectReadError      raised while an object is read: its content is incomplete or altered
│   ├── NoSpaceError         `ObjectChange.download()` raises it: the disk is full
│   ├── TransactionRefused   a commit was refused because of the processor's own writes in it
│   ├── Overtaken            `Output.put()` and `lock_object()` raise it: a worker with a later claim has written
│   ├── OutputError          `Output.put()` raises it: the output cannot be written
│   │   ├── OutputConflict       the output belongs to another object
│   │   └── OutputReserved       another object has just removed the output
│   ├── InvalidEffectError   the effect is malformed, and no attempt can succeed
│   │   ├── WrongReturnError         a processor returned a value that is not a commit
│   │   ├── InvalidTransactionError  the writes of a commit are malformed; also a TransactionRefused
│   │   └── InvalidOutputError       the output is malformed; also an OutputError
│   │       ├── InvalidOutputNameError   its bucket or key; also a ValueError
│   │       ├── InvalidOutputTypeError   its body or another argument; also a TypeError
│   │       └── OutputTaken              it shows another object for good; also an OutputConflict
│   ├── MissingResultError   a call with several changes gave no result for this one
│   ├── TagRefused           the committed version could not get its tag
│   │   └── TagsFull             it has as many tags as S3 takes
│   ├── NotBegun             Lambda throttled the processor's function before it started
│   └── RemoteError          a processor's Lambda function failed
│       └── RemoteTimeoutError   it reached its own timeout
└── ValueError
    └── SettingsError    an environment variable of the function is missing or malformed
"""

import errno
from typing import ClassVar


class Unprocessable(Exception):  # noqa: N818 - a verdict on the input, named for how it reads in `raise`
    """Raise this from a processor to reject a change for good.

    The message goes to the dead-letter queue and the ledger row becomes REJECTED, both with the text given here.
    Nothing is retried. If the failure may pass, raise any other exception.
    """


class SchemaDrift(Unprocessable):
    """A file lacks an expected column, or has a new one. `ObjectChange.csv_rows` raises it before the first row."""


class TooManyRejects(Unprocessable):
    """More rows of a file are bad than `Rejects.max_share` allows. It is raised before the first row.

    With `commits_at_end`, it is raised after the last one.
    """


class EndedByPerson(Unprocessable):
    """A person has ended the work of the row for good, and its execution gave no commit. No processor raises it."""


class RefusedByTag(Unprocessable):
    """The tag of the version says that it must not be processed (`ready_when`). No processor raises it."""


MAX_RETRY_IN = 11 * 3600
"""Seconds. SQS hides a message for at most twelve hours, and the function may have held it for some minutes."""


class NotYet(Exception):  # noqa: N818 - a fact about the input, named for how it reads in `raise`
    """Raise this from a processor when something that it needs is missing, such as another file.

    It counts no attempt. The change is tried again after `retry_in`, then less and less often, until the pipeline's
    `max_wait` is over. Then it is rejected with this reason. A newer version of the object does not wait for it.
    """

    retry_in: float | None = None
    """Seconds until the next try; None leaves that to the pipeline."""

    def __init__(self, why: str = "", *, retry_in: float | None = None) -> None:
        """Name the missing thing.

        Args:
            why: the missing thing; kept in the ledger's row. If omitted, the reason says that none was given.
            retry_in: seconds until the next try, 1 to 39,600 (eleven hours); a minute when omitted.

        Raises:
            ValueError: `retry_in` is out of its range.

        """
        if retry_in is not None and not 1 <= retry_in <= MAX_RETRY_IN:
            raise ValueError(f"retry_in is {retry_in!r} seconds: it must be 1 to {MAX_RETRY_IN:,}")
        super().__init__(why)
        self.retry_in = retry_in


class GroupHeld(NotYet):
    """Another key of the group is in work, so this one waits as after a `NotYet`. No processor raises it."""


class ObjectGone(Exception):  # noqa: N818 - a fact about S3, not a fault
    """S3 no longer holds the claimed version: it was deleted, or overwritten in a bucket without versioning.

    Let it propagate out of the processor. The consumer asks S3 again, and processes the state that it shows now.
    """


class Fenced(Exception):  # noqa: N818 - the protocol's own word
    """The row belongs to another claim: the lease ended, and another attempt or another state took over."""


class LibraryError(Exception):
    """An error whose text this library writes.

    `why` quotes nothing and is kept as a reason. `detail` may quote an object or another program, and is kept with
    `Reasons.FULL` only.
    """

    metric: ClassVar[str] = ""
    """Counts the errors of this type that are logged. Empty: nothing does."""

    def __init__(self, why: str, *, detail: str = "") -> None:
        """Make an error.

        Args:
            why: the reason, which quotes nothing.
            detail: a text that may quote; nothing when omitted.

        """
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why
        """The reason, which quotes nothing."""


class ObjectReadError(LibraryError):
    """The content is incomplete or altered: the connection to S3 was cut, or the checksum is wrong.

    Let it propagate: the change is retried. It is also retried if the processor catches the error and returns, unless
    the processor has opened the object again and has read it completely.
    """


class LateWriteFound(LibraryError):  # noqa: N818 - named as the others
    """The lease is still owned, but an overtaken worker may have written another state after this attempt's effect."""


class NoSpaceError(LibraryError, OSError):
    """The temporary directory has not enough free space for the object."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.errno = errno.ENOSPC


class TransactionRefused(LibraryError):  # noqa: N818 - named as the others
    """Nothing of a commit was written, because of the processor's own writes in it.

    `passing`: the writes are valid. Other writes used the same items at that time, or there were too many.
    """

    def __init__(self, why: str, *, passing: bool, detail: str = "") -> None:
        super().__init__(why, detail=detail)
        self.passing = passing


class Overtaken(LibraryError):  # noqa: N818 - named as the others
    """A worker with a later claim on the object has written the output. This attempt has changed nothing in it.

    Let it propagate out of the processor. The ledger refuses the outcome of this attempt, too.
    """


class OutputError(LibraryError):
    """The output cannot be written, and nothing of it has become visible. The text names the output and the fix.

    Let it propagate: the change is retried.
    """


class InvalidEffectError(LibraryError):
    """The effect that the code hands over is malformed: a return value, `transact` or an output.

    Each attempt of the same code would end in the same way. So the change is rejected at the first attempt, and nothing
    retries it by itself. Fix the code and redrive the dead-letter message. For `once`, call `OnceLedger.reopen`.
    """


class WrongReturnError(InvalidEffectError, TypeError):
    """The processor returned a value that is not a commit. Its effect has happened, so the change is rejected."""


class InvalidTransactionError(InvalidEffectError, TransactionRefused):
    """`transact` is malformed. Nothing of the commit was written, and the change is rejected."""

    def __init__(self, why: str, *, detail: str = "") -> None:
        TransactionRefused.__init__(self, why, passing=False, detail=detail)


class InvalidOutputError(InvalidEffectError, OutputError):
    """The output is malformed, such as content without the fence. Nothing of it has become visible.

    Let it propagate: the change is rejected.
    """


class InvalidOutputNameError(InvalidOutputError, ValueError):
    """The bucket or the key of the output cannot be used."""


class InvalidOutputTypeError(InvalidOutputError, TypeError):
    """An argument of `Output.put()` has the wrong type."""


class OutputConflict(OutputError):  # noqa: N818 - named as the others
    """The output was written for another object, and shows it. Derive the output's key from the key of one object.

    Let it propagate: the change is retried, because the other object may just have been renamed.
    """


class OutputTaken(InvalidOutputError, OutputConflict):  # noqa: N818 - named as the others
    """The output shows another object, and no removal of it will come, because `deletes` is off.

    Let it propagate: the change is rejected.
    """


class OutputReserved(OutputError):  # noqa: N818 - named as the others
    """Another object has removed the output, with a higher fence than this claim has.

    Let it propagate: the next attempt has a later claim and writes the output. This counts no attempt.
    """


class MissingResultError(LibraryError):
    """A call with several changes has returned no result for this one. It is not committed, and the attempt counts."""

    def __init__(self, hint: str) -> None:
        super().__init__(f"the processor returned no result for this change: {hint}")


class NotBegun(LibraryError):  # noqa: N818 - named as the others
    """The processor's function did not run, because Lambda throttles it. This counts no attempt."""


class CopyRefused(LibraryError):  # noqa: N818 - named as TransactionRefused
    """The dead-letter queue has not taken the copy of a rejected message. The message is not acknowledged."""

    metric = "CopiesRefused"


class TagRefused(LibraryError):  # noqa: N818 - named as TransactionRefused
    """S3 has not taken the tag of a committed version. It is tried again."""

    metric = "TagsRefused"


class TagsFull(TagRefused):
    """The version has as many tags as S3 takes. Nothing was changed. It is tried again."""


class RemoteError(LibraryError):
    """The processor's Lambda function failed. The change is tried again."""


class ExecutionStopped(LibraryError):  # noqa: N818 - named as TransactionRefused
    """The consumer has stopped the execution, since a newer state of its key came. This counts no attempt."""


class RemoteTimeoutError(RemoteError):
    """The processor's Lambda function reached its own timeout."""


class SettingsError(ValueError):
    """An environment variable is missing or malformed. The text has the variable, the value and the allowed values."""
