"""The option `max_rate`: each attempt takes a start at a limited rate, or its message waits for a place in the line.

`ledger/starts.py` has the item that all workers share, and `protocol/rate.py` its numbers; `once` has them too.
"""

from dataclasses import dataclass

from intake_ledger.consumer.attempt import Failures
from intake_ledger.consumer.ending import NotNow
from intake_ledger.consumer.hooks import Option
from intake_ledger.events.parser import Message
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.ledger.ledger import Claim
from intake_ledger.ledger.starts import Starts
from intake_ledger.protocol.rate import Rate
from intake_ledger.protocol.reasons import ReasonCode


@dataclass(slots=True, eq=False)
class MaxRate(Option):
    """Takes a start for each attempt."""

    failures: Failures
    starts: Starts

    def before_start(self, claim: Claim, message: Message) -> None:
        """Take a start; see `Option`.

        Raises:
            NotNow: There is none now, or DynamoDB did not answer. A start may be lost then.

        """
        services = self.failures.services
        try:
            at = self.starts.take(in_line=claim.continued or (claim.seen is not None and claim.seen.in_line))
        except AWS_ERRORS as error:
            services.telemetry.log_error("no start could be taken", message.id, error)
            at = services.clock() + round(self.failures.backoff(1) * 1000)
        if at is not None:
            raise NotNow(at, ReasonCode.MAX_RATE, "max_rate had no start for it")


def make(failures: Failures) -> MaxRate:
    """The option of a pipeline with `max_rate`."""
    services, settings = failures.services, failures.services.settings
    assert settings.max_rate is not None, "the setting is set"
    rate = Rate(settings.max_rate, settings.max_burst)
    table = services.ledger.table
    return MaxRate(failures, Starts(table, settings.pipeline, rate, clock=services.clock, jitter=services.jitter))
