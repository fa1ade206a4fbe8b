"""Every error of the runtime, in one place.

Exception
├── Unprocessable        raised by a processor: this change can never succeed
├── ObjectGone           raised by `ObjectChange.open()`: S3 no longer holds the claimed version
├── Fenced               the ledger refused a write: the claim belongs to somebody else by now
├── TransactionRefused   a commit was refused as a whole because of the team's writes in it
├── NotBegun             a processor's function was throttled before it had begun
└── ValueError
    └── SettingsError    an environment variable of the function is missing or makes no sense
"""


class Unprocessable(Exception):  # noqa: N818 - a verdict on the input, named for how it reads in `raise`
    """Raise this from a processor to reject a change for good.

    The message goes to the dead-letter queue and the ledger row becomes REJECTED, both with the text given here.
    Nothing is retried: for a failure that may pass, raise any other exception.
    """


class ObjectGone(Exception):  # noqa: N818 - a fact about S3, not a fault
    """S3 no longer holds the version that was claimed: it was deleted, or overwritten in a bucket without versions.

    Let it propagate out of the processor: the consumer asks S3 again and brings about what is there now.
    """


class Fenced(Exception):  # noqa: N818 - the protocol's own word
    """The row no longer belongs to this claim: its lease ran out and another attempt, or another state, took over."""


class TransactionRefused(Exception):  # noqa: N818 - named as the others
    """Nothing of a commit was written, because of what the processor wanted to write with it.

    `passing`: nothing is wrong with those writes, only others were at the same items, or too many.
    """

    def __init__(self, why: str, *, passing: bool) -> None:
        super().__init__(why)
        self.passing = passing


class NotBegun(Exception):  # noqa: N818 - named as the others
    """The processor's function was not run, since Lambda throttles it: no attempt is spent."""


class SettingsError(ValueError):
    """An environment variable is missing or malformed; the text names the variable, the value and what is allowed."""
