"""Workers of a local pipeline, intake or sets: their connection to AWS in memory, and their deaths."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from intake_ledger.consumer.consumer import Consumer
    from intake_ledger.consumer.services import Services
    from intake_ledger.kinds import Kind
    from intake_ledger.worker.worker import Worker, WorkerHost

HOLD_SECONDS = 60
"""`INTAKE_WORKER_HOLD_SECONDS` of a worker outside of Lambda."""


class LocalRunner(StrEnum):
    """The place of the processor, as the construct's `Processor` has it."""

    PROCESS = "inline"
    """A function of the consumer's process, as `Processor.from_asset`. It takes a change, a message or a set."""
    FUNCTION = "remote"
    """Another Lambda function, as `Processor.from_function`. Its JSON is that of docs/processor.md."""
    STATE_MACHINE = "machine"
    """A state machine, as `Processor.from_state_machine`. It has the same JSON, and runs at the end of its time."""
    DURABLE_FUNCTION = "durable"
    """A durable function, as `Processor.from_durable_function`. The function that is given is called at the end."""

    @property
    def answers_later(self) -> bool:
        """True if the work is an execution, which outlives the worker that starts it."""
        return self in (LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION)


class Fault(StrEnum):
    """A fault in a call of the processor that the processor did not cause."""

    KILLED_BEFORE_EFFECT = "the worker dies before the processor has done anything"
    KILLED_AFTER_EFFECT = "the worker dies after the processor has done its work, before the commit"
    TIMED_OUT = "the processor has done its work and is interrupted by the timeout"
    CONNECTION_CUT = "the connection to S3 ends in the middle of the object that the processor reads"
    OVERTAKEN = "the worker pauses until other workers have done all work; then its effect lands, and its commit fails"
    OVERTAKEN_AND_KILLED = (
        "as OVERTAKEN, but the worker dies after its late effect, and nothing repairs it; never random"
    )


STANDSTILLS = frozenset({Fault.OVERTAKEN, Fault.OVERTAKEN_AND_KILLED})
"""Faults that pause a worker."""


class Killed(KeyboardInterrupt):
    """The process of a worker has ended. No code of the worker can catch it."""


class LocalConnection:
    """The requests of one worker. After its death, none arrives."""

    def __init__(self, dies: Callable[[str], bool]) -> None:
        """Make the connection. `dies` gets the name of an operation before it, and an empty text after it."""
        self._dies = dies
        self.dead = False

    def client(self, client: Any) -> Any:
        """The client, as the worker reaches it."""
        return _Client(client, self)

    def passes(self, operation: str = "") -> None:
        """Raise `Killed` if the worker is dead, or dies now."""
        self.dead = self.dead or self._dies(operation)
        if self.dead:
            raise Killed


class _Client:
    def __init__(self, client: Any, connection: LocalConnection) -> None:
        self._client = client
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        def request(*plain: Any, **arguments: Any) -> Any:
            self._connection.passes(name)
            try:
                return getattr(self._client, name)(*plain, **arguments)
            finally:
                self._connection.passes()

        return request


@dataclass(frozen=True, slots=True)
class LocalWorker:
    """A worker, or an execution environment of the function."""

    consumer: "Consumer"
    """It handles batches."""
    connection: LocalConnection
    """Its requests."""
    poller: "Worker | None"
    """The worker outside of Lambda."""

    @property
    def kind(self) -> "Kind":
        """The kind of its work."""
        return self.consumer._kind  # noqa: SLF001 - it has no door

    @property
    def services(self) -> "Services":
        """Its settings, ledger and queues."""
        return self.consumer._services  # noqa: SLF001 - as above

    @property
    def host(self) -> "WorkerHost | None":
        """The host of the worker outside of Lambda, with its heartbeat."""
        return cast("WorkerHost", self.services.host) if self.poller is not None else None

    def beat(self) -> None:
        """Extend the leases of a worker outside of Lambda, as its heartbeat does three times in `HOLD_SECONDS`."""
        if self.host is not None:
            self.host.heartbeat.beat()

    def die(self) -> None:
        """End the process. Not even its `finally` reaches AWS.

        Raises:
            Killed: Always.

        """
        self.connection.dead = True
        raise Killed
