"""The queues of an intake. FIFO queues need a group and a deduplication ID for each message."""

import secrets
from typing import TYPE_CHECKING, Any, override

from intake_ledger.aws import Queues
from intake_ledger.messages.reader import pointer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_sqs import SQSClient


class MessageQueues(Queues):
    """The intake's queue and its dead-letter queue, which is FIFO if the queue is."""

    def __init__(self, make_client: "Callable[[], SQSClient]", queue_url: str, dlq_url: str) -> None:
        super().__init__(make_client, queue_url, dlq_url)
        self._fifo = dlq_url.endswith(".fifo")
        self.group_id = ""
        """The message group of the message that is handled now."""

    @override
    def _pointer_of(self, body: str) -> str | None:
        """A record of a stream that is too long stays in its stream. The copy says where."""
        return pointer_of(body)

    @override
    def _send_dead_letter(self, **message: Any) -> None:
        if self._fifo:
            # Not of the content: SQS would drop the copy of a second rejection within five minutes.
            message |= {"MessageGroupId": self.group_id, "MessageDeduplicationId": secrets.token_hex(16)}
        super()._send_dead_letter(**message)
