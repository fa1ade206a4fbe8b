"""The processor is another Lambda function, which answers the call."""

from typing import TYPE_CHECKING, Any

from intake_ledger.runners import AnswersAtOnce, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from intake_ledger.kinds import Work
    from intake_ledger.ledger.ledger import Claim
    from intake_ledger.processor.object_change import Commit


class Remote(AnswersAtOnce):
    """Sends the work in JSON, and reads the answer."""

    package = ""

    def __init__(self, call: "Callable[[Mapping[str, Any]], Commit]") -> None:
        """Make the runner. `call` sends a request to the function; see `remote_function`."""
        self._call = call

    def start(self, claim: "Claim", work: "Work", run: Run) -> object:
        """Call the function; see `Runner`."""
        change = claim.change
        with work, run.limit:
            request = work.request() | {"eventName": change.event_name, "eventTime": change.event_time}
            run.begin()
            return self._call(request)
