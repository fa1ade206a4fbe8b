"""Requests that all objects under a prefix, or of some commits, are processed again: in a stream, and resumable."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from intake_ledger.requests.record import BATCH_ENTRIES, Command
from intake_ledger_cli.act import operations, reprocess
from intake_ledger_cli.act import selection as positions
from intake_ledger_cli.act.rate_limit import RateLimit
from intake_ledger_cli.act.recording import RequestRecorder
from intake_ledger_cli.act.reprocess import ReprocessResult, Target
from intake_ledger_cli.act.selection import Selection
from intake_ledger_cli.act.stopping import StopWatch
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import unless_denied
from intake_ledger_cli.show.console import console, many

COUNTED = 10_000
"""The largest number of objects that are counted before the question."""


@dataclass(slots=True)
class AgainCall:
    """One call of `retry --again` with a selection."""

    aws: Aws
    deployed: DeployedPipeline
    selection: Selection
    result: ReprocessResult
    begun: bool = False
    """False before the person has agreed."""
    _stores: bool = True
    _stored: bool = False

    def run(self, rate: RateLimit, because: str, *, yes: bool) -> None:
        """Count the objects, or ask and send. The position is stored on the way, and deleted when all are sent.

        Raises:
            UsageError: The selection is not for this kind.
            ClientError: AWS refuses a request.

        """
        aws, deployed, selection, result = self.aws, self.deployed, self.selection, self.result
        own_id, self._stored = result.reprocess_id, bool(result.position)
        watch = StopWatch(aws, deployed, own_id)
        watch.check()
        targets = selection.targets(aws, deployed, result, after=result.position)
        if result.dry_run:
            result.sent = sum(1 for _ in targets)
            self.begun = True
            return
        counted = None
        if operations.may_ask(yes=yes):
            counted = selection.targets(aws, deployed, ReprocessResult(own_id), after=result.position)
        recorder = RequestRecorder(aws, deployed, own_id, Command.REPROCESS, most=BATCH_ENTRIES)
        with operations.acting(
            aws,
            deployed,
            f"retry --again {selection} --id {own_id}",
            does=self._announced(counted),
            yes=yes,
            because=because,
            request_id=own_id,
        ) as act:
            self.begun = True
            act.numbers = lambda: f"{many(result.sent, 'requests')} sent, {len(result.failed):,} failed"
            act.sent = lambda: operations.Sent(None if recorder.denied else result.sent)
            complete = False
            try:
                with console(stderr=True).status("sending requests"):
                    reprocess.send_requests(
                        aws.sqs,
                        deployed,
                        targets,
                        result,
                        rate,
                        recorder=recorder,
                        store=self._store,
                        check=watch.check,
                    )
                complete = not result.failed
            finally:
                self._end(complete=complete)

    def _announced(self, targets: Iterator[Target] | None) -> str:
        """The effect as a sentence. `targets` are counted, up to a limit. Without them no number is said."""
        noun = self.deployed.work.noun
        number = f"the {noun}"
        if targets is not None:
            found = sum(1 for _ in islice(targets, COUNTED + 1))
            number = f"more than {COUNTED:,} {noun}" if found > COUNTED else many(found, noun)
        return f"{self.deployed.name} will process {number} of `retry --again {self.selection}` again."

    def _end(self, *, complete: bool) -> None:
        result = self.result
        if complete:
            if self._stored:
                self._change(positions.forget, result.reprocess_id)
        elif result.position:
            self._store()
            if self._stores:
                again = f"intake-ledger retry --again --resume {result.reprocess_id}"
                console(stderr=True).print(f"to continue, run: {again}")

    def _store(self) -> None:
        self._stored = True
        self._change(positions.store, self.selection, self.result)

    def _change(self, change: Callable[..., None], *arguments: object) -> None:
        """Change the stored position. Without permission the call goes on, and cannot be resumed."""

        def denied(action: str) -> None:
            self._stores = False
            console(stderr=True).print(f"this call cannot be resumed: {action} is not allowed")

        if self._stores:
            with unless_denied(denied):
                change(self.aws, self.deployed, *arguments)
