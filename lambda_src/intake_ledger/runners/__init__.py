"""Who does the work of a claim: a function of this process, another function, or work elsewhere that answers later.

A runner never knows the kind of the work, or where its consumer runs. See `intake_ledger.kinds`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from intake_ledger.kinds import Work
    from intake_ledger.ledger.ledger import Claim
    from intake_ledger.protocol.change import Change
    from intake_ledger.protocol.row import RowCounts
    from intake_ledger.protocol.verdict import Ruling


@dataclass(slots=True)
class Run:
    """The frame of one attempt."""

    limit: AbstractContextManager[None]
    """Limits a processor in this process to its time."""
    remaining_seconds: Callable[[], float]
    before_start: Callable[[int], None] | None = None
    """Asks the options about the change at this place of the call. It raises to end its attempt. None: no option is
    asked."""
    begun: bool = False
    """True once the work has started. It may have written something then."""
    judge_again: bool = False
    """Judge the change again after this attempt: the work that has ended may be that of an earlier state."""
    unless_committed: bool = False
    """Not if the attempt commits."""
    counts: "RowCounts | None" = None
    """The rejected rows of the file, for the commit. None: the attempt neither wrote nor removed an output with them.
    """

    def begin(self) -> None:
        """Ask the options, just before the work starts. They may end the attempt by an error."""
        if self.before_start is not None:
            self.before_start(0)
        self.begun = True


class Started(NamedTuple):
    """The work goes on elsewhere, and the claim stays."""

    retry_after: float
    """Seconds until the message of the claim asks how the work stands."""


class StartRefused(Exception):  # noqa: N818 - an answer, not an error
    """The work could not be started, and the same start is tried again later. The claim stays."""

    def __init__(self, error: Exception, *, healthy: bool | None) -> None:
        """Make it. `healthy` is as in `Outcome`."""
        super().__init__("the work could not be started")
        self.error = error
        self.healthy = healthy


class Runner(Protocol):
    """Does the work of claims, or has it done elsewhere."""

    package: str
    """The top-level package of the processor, for the positions in reasons. Empty if it is not in this process."""
    writes: bool
    """True if `start` itself writes downstream. A late one may then overwrite a later effect."""

    def start(self, claim: "Claim", work: "Work", run: Run) -> object:
        """Do the work. The errors of the processor pass.

        Returns:
            The processor's answer, or `Started`.

        Raises:
            StartRefused: The work was not started.

        """

    def concerns(self, change: "Change") -> bool:
        """True if the change reports the end of work that this runner has started, and that is to be judged."""

    def resolve(self, change: "Change", ruling: "Ruling", lease_ms: int) -> "Claim | Ruling":
        """Decide about a row that cannot be claimed now, because its work may go on elsewhere."""


@dataclass(slots=True)
class Ended:
    """How a call with several changes has ended for one of them."""

    returned: object = None
    """Its result."""
    error: BaseException | None = None
    """Its own error, or that of a call that died."""
    begun: bool = False
    """True if the call had it."""
    counts: "RowCounts | None" = None
    """As in `Run`."""
    died: int = 0
    """The number of changes in a call that died, if it had several. The error names none of them."""


class SharedRunner(Runner, Protocol):
    """A runner whose processor takes several changes in one call."""

    def start_together(self, works: "Sequence[Work]", run: Run) -> list[Ended]:
        """Call the processor once for all of this work. Each change fails or succeeds by its own result."""


class AnswersAtOnce:
    """The part of a runner whose work has ended when `start` returns. A live lease is all that is to be known of it."""

    writes = True

    def concerns(self, change: "Change") -> bool:  # noqa: ARG002 - see `Runner`
        """See `Runner`. Nothing was started elsewhere."""
        return False

    def resolve(self, change: "Change", ruling: "Ruling", lease_ms: int) -> "Claim | Ruling":  # noqa: ARG002 - see `Runner`
        """See `Runner`."""
        return ruling
