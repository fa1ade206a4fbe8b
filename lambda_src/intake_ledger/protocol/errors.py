"""Every error of the runtime, in one place.

Exception
├── Unprocessable        raised by a processor: this change can never succeed
├── NotYet               raised by a processor: something that it needs is not there yet
├── ObjectGone           raised by `ObjectChange.open()`: S3 no longer holds the claimed version
├── Fenced               the ledger refused a write: the claim belongs to somebody else by now
├── OwnError             its text quotes no content and is always kept as a reason
│   ├── Overwritten          the ledger refused a commit: another state may have been written after its effect
│   ├── ObjectReadError      raised while an object is read: its content is incomplete or altered
│   ├── NoSpaceError         raised by `ObjectChange.download()`: the disk is full
│   ├── TransactionRefused   a commit was refused as a whole because of the team's writes in it
│   ├── NotBegun             a processor's function was throttled before it had begun
│   ├── WrongReturnError     a processor returned what is no commit
│   └── RemoteError          a processor's function failed (`intake_ledger.processor.lambda_processor`)
└── ValueError
    └── SettingsError    an environment variable of the function is missing or makes no sense
"""

import errno


class Unprocessable(Exception):  # noqa: N818 - a verdict on the input, named for how it reads in `raise`
    """Raise this from a processor to reject a change for good.

    The message goes to the dead-letter queue and the ledger row becomes REJECTED, both with the text given here.
    Nothing is retried: for a failure that may pass, raise any other exception.
    """


MAX_RETRY_IN = 11 * 3600
"""Seconds. SQS hides a message for twelve hours at most, and the function may have held it for a while."""


class NotYet(Exception):  # noqa: N818 - a fact about the input, named for how it reads in `raise`
    """Raise this from a processor when something that it needs is not there yet, such as another file.

    It spends no attempt. The change is tried again after `retry_in`, then less and less often, until the pipeline's
    `max_wait` is over. Then it is rejected with this reason. A newer version of the object does not wait for it.
    """

    def __init__(self, why: str = "", *, retry_in: float | None = None) -> None:
        """Say what is missing.

        Args:
            why: what is missing; kept in the ledger's row. A text that says nothing was said when omitted.
            retry_in: seconds until the next try, 1 to 39,600 (eleven hours); a minute when omitted.

        Raises:
            ValueError: `retry_in` is out of its range.

        """
        if retry_in is not None and not 1 <= retry_in <= MAX_RETRY_IN:
            raise ValueError(f"retry_in is {retry_in!r} seconds: it must be 1 to {MAX_RETRY_IN:,}")
        super().__init__(why)
        self.retry_in = retry_in
        """Seconds until the next try; None leaves that to the pipeline."""


class ObjectGone(Exception):  # noqa: N818 - a fact about S3, not a fault
    """S3 no longer holds the version that was claimed: it was deleted, or overwritten in a bucket without versions.

    Let it propagate out of the processor: the consumer asks S3 again and brings about what is there now.
    """


class Fenced(Exception):  # noqa: N818 - the protocol's own word
    """The row no longer belongs to this claim: its lease ran out and another attempt, or another state, took over."""


class OwnError(Exception):
    """An error whose text this library writes. `why` quotes nothing and is kept as a reason; `detail` may quote the
    content of objects or another program's words, and is kept with `Reasons.FULL` only.
    """

    def __init__(self, why: str, *, detail: str = "") -> None:
        """Make an error.

        Args:
            why: the reason, which quotes nothing.
            detail: a text that may quote; nothing when omitted.

        """
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why
        """The reason, which quotes nothing."""


class ObjectReadError(OwnError):
    """The content is incomplete or altered: the connection to S3 was cut, or the checksum is wrong.

    Let it propagate: the change is retried. It is retried too if the processor catches the error and returns, unless
    the processor has opened the object again and has read it completely.
    """


class Overwritten(OwnError):  # noqa: N818 - named as the others
    """The claim is still this attempt's, but an overtaken worker may have written another state after its effect."""


class NoSpaceError(OwnError, OSError):
    """The temporary directory has not enough free space for the object."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.errno = errno.ENOSPC


class TransactionRefused(OwnError):  # noqa: N818 - named as the others
    """Nothing of a commit was written, because of what the processor wanted to write with it.

    `passing`: nothing is wrong with those writes, only others were at the same items, or too many.
    """

    def __init__(self, why: str, *, passing: bool, detail: str = "") -> None:
        super().__init__(why, detail=detail)
        self.passing = passing


class NotBegun(OwnError):  # noqa: N818 - named as the others
    """The processor's function was not run, since Lambda throttles it: no attempt is spent."""


class WrongReturnError(OwnError, TypeError):
    """The processor returned something else than a commit. Its effect has happened: the change is rejected at once."""


class SettingsError(ValueError):
    """An environment variable is missing or malformed; the text names the variable, the value and what is allowed."""
