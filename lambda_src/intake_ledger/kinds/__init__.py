"""The things that a consumer claims: objects, messages, or sets of files. Each kind is a module of this folder.

A kind never knows who does its work, or where its consumer runs. See `intake_ledger.runners` and `consumer.host`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from intake_ledger.consumer.batch import Batch
    from intake_ledger.events.parser import Message
    from intake_ledger.ledger.ledger import Claim, FencingGuard
    from intake_ledger.protocol.change import Change, State
    from intake_ledger.protocol.errors import ObjectGone
    from intake_ledger.protocol.row import Row, RowCounts

FORMAT = 1
"""The version of the request. It changes only if a field is removed or gets another meaning."""


class Work(Protocol):
    """The work of one claim. It is entered before the limit of the processor, so that it is closed after it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def ready(self, remaining_seconds: Callable[[], float], *, together: bool = False) -> Any:
        """The argument of a processor in this process. Errors of this method have no effect: nothing has begun.

        Args:
            remaining_seconds: gives the rest of the processor's time.
            together: it is one of several arguments of a call. Nothing is opened ahead, since a hundred connections
                would wait for their turn.

        Raises:
            ObjectGone: The claimed state is over. It is judged again.
            NotYet: Something is missing.
            Unprocessable: There will never be such work.
            ClientError: S3 refuses the object.

        """

    def returned(self) -> "RowCounts | None":
        """The processor in this process has returned. Write what belongs to the commit. None: it needs nothing.

        Raises:
            OutputError: It cannot be written. The attempt fails.

        """

    def request(self, *, repeated: bool = False) -> dict[str, Any]:
        """The same work in JSON, for a processor elsewhere. It follows from the row alone.

        Args:
            repeated: another worker may have sent the request of this fence. It is then made without a check.

        Raises:
            ObjectGone: As `ready`. Also the other errors of it. With `repeated` only if the request of this state was
                surely never sent.

        """

    def gone(self, error: "ObjectGone") -> Exception:
        """The error that stands for this one, if the processor raised it."""


class Order(Protocol):
    """The order of the messages of one delivery, and the way in which some of them return."""

    def wait_behind(self, message: "Message") -> float | None:
        """Seconds after which the message comes again because an earlier one has not finished. None: its turn came."""

    def returned(self, message: "Message", seconds: float, batch: "Batch") -> None:
        """The message is to be delivered again after these seconds."""

    def response(self, batch: "Batch") -> dict[str, list[dict[str, str]]]:
        """The answer to the event source. It names what must not be deleted."""


class ReceivedMessages(NamedTuple):
    """The messages of one event, in the order in which they are handled."""

    messages: "Sequence[Message]"
    order: Order


def fences_of(guards: "Sequence[FencingGuard]", claim: "Claim", *, in_json: bool = False) -> dict[str, Any]:
    """The fences of the claim's guards: fields of the processor's argument, or of its request.

    Raises:
        Fenced: The row does not hold a guard.

    """
    fences = [item for guard in guards for item in guard.fences(claim).items()]
    return {_camel_case(name) if in_json else name: fence for name, fence in fences}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Kind(Protocol):
    """The decisions of a consumer that depend on the kind of the claimed thing."""

    @property
    def guards(self) -> "Sequence[FencingGuard]":
        """Each claim must hold them besides its row."""

    def read(self, event: Mapping[str, Any]) -> ReceivedMessages:
        """Read an event. Raises ValueError if it has no records."""

    def look(self, change: "Change", row: "Row | None") -> "State | None":
        """The state that may be claimed now. None: it does not show the removal that the change reports."""

    def work(self, claim: "Claim") -> Work | None:
        """The work of a claim. It reads nothing yet. None: there is none, and the claim is committed."""

    def shortened(self, body: str) -> str | None:
        """A short body in place of a body that is too long for the dead-letter queue. None: there is no short body."""

    def before_acknowledging(self, batch: "Batch") -> None:
        """The messages of the batch have ended, and none is acknowledged yet."""
