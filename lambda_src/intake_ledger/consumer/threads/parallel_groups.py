"""Handle the groups of a batch in threads, and end the process if a processor overruns its limit."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import Batch, ids_of
from intake_ledger.consumer.services import Services
from intake_ledger.consumer.threads.group_by_key import group_by_key
from intake_ledger.consumer.threads.processor_threads import ProcessorThreads
from intake_ledger.events import Message
from intake_ledger.ledger import Claim


@dataclass(slots=True)
class ParallelGroups:
    """Handles messages of different keys at the same time, and messages of one key in turn."""

    services: Services
    threads: ProcessorThreads
    attempts: Attempts
    failures: Failures
    end_process: Callable[[], None]

    def run(self, batch: Batch, handle_in_turn: Callable[[Sequence[Message], Batch], None]) -> None:
        """Handle the batch. Ends the process if a processor still runs after its limit."""
        groups = group_by_key([message.keys for message in batch.messages])
        work = [partial(handle_in_turn, [batch.messages[place] for place in group], batch) for group in groups]
        overrun = self.threads.run(work, batch.stopping.set, batch.returns.flush)
        self._finish_rest(overrun, batch)
        if overrun:
            self._leave(overrun, batch)

    def _finish_rest(self, overrun: Sequence[Claim], batch: Batch) -> None:
        """Fail claims whose processor overran its limit. Return messages that no thread has started.

        Such messages may exist even if every processor that overran has ended meanwhile.
        """
        keys = {claim.change.key: claim for claim in overrun}
        for message in batch.messages:
            if message in batch.retry_after:
                continue
            # The processor ran for the first message of the group that is not finished.
            claim = next((keys.pop(key) for key in message.keys & keys.keys()), None)
            retry_after: float | None
            try:
                if claim is None:
                    retry_after = self.attempts.release(batch.answers.get(message), 0)
                else:
                    retry_after = self.attempts.overran(claim, message).retry_after
            except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
                self.services.telemetry.log_error("a message could not be failed or returned", message.id, error)
                retry_after = self.failures.backoff(message.receives)
            if retry_after is None and not message.only_change:
                # Other changes of the message were not handled.
                retry_after = 0
            batch.finish(message, retry_after)

    def _leave(self, overrun: Sequence[Claim], batch: Batch) -> None:
        """End the process, because nothing else ends a thread. Every message was finished or returned before.

        Lambda takes the invocation for failed then and deletes nothing, so finished messages are deleted here.
        """
        batch.returns.flush()
        done = [message.receipt for message in batch.messages if batch.retry_after[message] is None]
        try:
            self.services.queues.delete(done, in_time=batch.returns.take_request)
        except Exception as error:  # noqa: BLE001 - they come again, as duplicates
            self.services.telemetry.log_error("messages could not be deleted", ids_of(batch.messages), error)
        self.services.telemetry.process_ends([claim.change.key for claim in overrun])
        self.services.telemetry.flush()
        self.end_process()


def exit_now() -> None:
    """End the process without waiting for threads. Log lines are written before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
