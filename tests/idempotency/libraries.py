"""The compared consumers. Each one handles one message with one function."""

import json
import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, override

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from cdk_intake_ledger.testing import LambdaContext
from intake_ledger import Commit, KeyedMessage
from intake_ledger.once import Busy, Duplicate, OnceLedger, Rejected
from tests.idempotency.world import LEDGER, RECORDS, Killed, World
from tests.inside.objects import RESERVE_SECONDS
from tests.unit.messages_support import Intake, sqs

LIMIT_SECONDS = 60
"""The time that is left to each invocation, and the lease of `once`."""
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The values that a library gives to the function."""

    fence: int | None = None
    idempotency_key: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the function, and its writes to DynamoDB."""

    value: Any = "done"
    transact: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a library to a message."""

    settled: bool
    """The message is finished. Otherwise it is delivered again."""
    value: Any = None
    error: str = ""
    """The type of the exception that the caller gets."""
    retry_after: float | None = None
    """Seconds until the next delivery. None: the library does not say it."""
    reason: str = ""
    """The reason that is kept of a message that was given up."""


Function = Callable[[Attempt], Result]


class Library(ABC):
    """One worker with a library."""

    name: str
    can_transact = False
    """A DynamoDB write of the function can be one transaction with the record."""

    def __init__(self, world: World) -> None:
        """Start a worker."""
        self.world = world

    def deliver(self, message: Message, function: Function) -> Answer:
        """Handle a message. A killed worker settles nothing."""
        try:
            return self._deliver(message, function)
        except Killed:
            return Answer(settled=False, error="Killed")
        finally:
            self.world.revive()

    @abstractmethod
    def _deliver(self, message: Message, function: Function) -> Answer:
        """Handle a message."""


class PowertoolsPlain(Library):
    """Powertools without the registration of Lambda's context."""

    name = "Powertools, no context"
    local_cache = False
    validates = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.config = IdempotencyConfig(
            event_key_jmespath="event",
            use_local_cache=self.local_cache,
            payload_validation_jmespath="amount" if self.validates else "",
        )
        store = DynamoDBPersistenceLayer(table_name=RECORDS, boto3_client=world.client)

        # Powertools does not type its decorator exactly.
        @idempotent_function(  # type: ignore[untyped-decorator]
            data_keyword_argument="message", config=self.config, persistence_store=store
        )
        def process(message: Message, function: Function) -> Any:
            return function(Attempt()).value

        self._process = process

    @override
    def _deliver(self, message: Message, function: Function) -> Answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return Answer(settled=True, value=self._process(message=message, function=function))
            except Exception as error:  # noqa: BLE001 - the batch processor catches all of them, too
                return Answer(settled=False, error=type(error).__name__)


class Powertools(PowertoolsPlain):
    """Powertools as its documentation recommends it: with Lambda's context, so that records in progress expire."""

    name = "Powertools"

    @override
    def _deliver(self, message: Message, function: Function) -> Answer:
        context: Any = LambdaContext(LIMIT_SECONDS, clock=lambda: 0)
        self.config.register_lambda_context(context)
        return super()._deliver(message, function)


class PowertoolsCached(Powertools):
    """Powertools with its cache in memory."""

    name = "Powertools, local cache"
    local_cache = True


class PowertoolsValidating(Powertools):
    """Powertools with its validation of the payload."""

    validates = True


class Once(Library):
    """`intake_ledger.once`."""

    name = "`once`"
    can_transact = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ledger = OnceLedger("orders", LEDGER, client=world.client, clock=world.clock)

    @override
    def _deliver(self, message: Message, function: Function) -> Answer:
        try:
            with self._ledger.once(message.get("order"), message.get("event")) as claim:  # type: ignore[arg-type]
                result = function(Attempt(claim.fence, claim.idempotency_key, claim.attempt))
                claim.result, claim.transact = _text(result.value), result.transact
        except Duplicate as duplicate:
            return Answer(settled=True, value=duplicate.result)
        except Busy as busy:
            return Answer(settled=False, error="Busy", retry_after=busy.retry_after)
        except Rejected as rejected:
            return Answer(settled=True, error="Rejected", reason=rejected.reason)
        except Exception as error:  # noqa: BLE001 - Lambda delivers the message again
            return Answer(settled=False, error=type(error).__name__)
        return Answer(settled=True, value=claim.result)


class _Worker(Intake):
    """The consumer of `MessageIntake` with a DynamoDB client."""

    delay: float | None = None

    def _owner(self) -> str:
        return secrets.token_hex(8)

    def get_remaining_time_in_millis(self) -> int:
        return round((LIMIT_SECONDS + 2 * RESERVE_SECONDS) * 1000)

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        [entry] = request["Entries"]
        self.delay = entry["VisibilityTimeout"]
        return super().change_message_visibility_batch(**request)


class Messages(Library):
    """The consumer of `MessageIntake`, with a queue."""

    name = "`MessageIntake`"
    can_transact = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._worker = _Worker(table=world.client, clock=world.clock)

    @override
    def _deliver(self, message: Message, function: Function) -> Answer:
        def process(keyed: KeyedMessage) -> Commit:
            result = function(Attempt(keyed.fence, keyed.idempotency_key, keyed.attempt))
            return Commit(_text(result.value), transact=result.transact)

        worker = self._worker
        worker.process, worker.delay = process, None
        letters = len(worker.sqs.dead_letters)
        failed = worker.handle([sqs(**message)])
        if failed:
            return Answer(settled=False, retry_after=worker.delay)
        if len(worker.sqs.dead_letters) > letters:
            return Answer(settled=True, error="dead-lettered", reason=worker.sqs.dead_letters[-1].reason)
        return Answer(settled=True)


def _text(value: Any) -> str:
    """Our ledger keeps a text, so a function encodes a structure."""
    return value if isinstance(value, str) else json.dumps(value)


LIBRARIES: tuple[type[Library], ...] = (PowertoolsPlain, Powertools, Once, Messages)
