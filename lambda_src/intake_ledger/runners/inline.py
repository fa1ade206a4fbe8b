"""The processor is a function of this process."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.errors import ObjectGone
from intake_ledger.runners import AnswersAtOnce, Run

if TYPE_CHECKING:
    from intake_ledger.kinds import Work
    from intake_ledger.ledger.ledger import Claim


class Inline(AnswersAtOnce):
    """Calls the processor with what its kind gives: a change, a message or a set."""

    def __init__(self, processor: Callable[[Any], object]) -> None:
        self._processor = processor
        self.package = str(getattr(processor, "__module__", "")).partition(".")[0]

    def start(self, claim: "Claim", work: "Work", run: Run) -> object:  # noqa: ARG002 - the work has its claim
        """Call the processor; see `Runner`."""
        # The work is closed after the limit: an attempt that has succeeded cannot overrun any more.
        with work, run.limit:
            given = work.ready(run.remaining_seconds)
            run.begin()
            try:
                returned = self._call(given)
            except ObjectGone as gone:
                if (stands := work.gone(gone)) is gone:
                    raise
                raise stands from gone
            run.counts = work.returned()
            return returned

    def _call(self, given: Any) -> object:
        return self._processor(given)
