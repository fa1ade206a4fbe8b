"""Receives all messages of a dead-letter queue, each of them once.

A message that is not deleted stays hidden until the end. If it became visible earlier, it would be received again.
"""

from collections.abc import Iterator, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from intake_ledger_cli.aws.dead_letters import DeadLetterMessage, from_sqs
from intake_ledger_cli.aws.sending import MAX_BATCH_SIZE

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.aws.deployed import DeployedPipeline

HIDDEN_SECONDS = 900
"""Seconds until a message is visible again if this process dies. A message that comes back before the end is hidden
again."""
WAIT_SECONDS = 1  # a long poll asks all of SQS's servers: an empty answer means an empty queue


class Drain:
    """The messages of the dead-letter queue of one pipeline. At the end of a `with`, those that were not deleted become
    visible.
    """

    def __init__(self, client: "SQSClient", deployed: "DeployedPipeline") -> None:
        self._client = client
        self._url = deployed.dead_letter_url
        self._names_in = deployed.reader_of_names() or (lambda _: None)
        self._kept: dict[str, str] = {}
        self.overfull = False
        """True if SQS refuses more messages in flight, so that the remaining messages were not received."""

    def receive(self) -> Iterator[list[DeadLetterMessage]]:
        """Messages that were not received before, at most ten at a time, until there are no more.

        Raises:
            ClientError: SQS refuses.

        """
        while True:
            try:
                answer = self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=MAX_BATCH_SIZE,
                    MessageAttributeNames=["All"],
                    AttributeNames=["SentTimestamp", "MessageGroupId"],
                    VisibilityTimeout=HIDDEN_SECONDS,
                    WaitTimeSeconds=WAIT_SECONDS,
                )
            except ClientError as error:
                if not error.response["Error"].get("Code", "").endswith("OverLimit"):
                    raise
                self.overfull = True
                return
            messages = [from_sqs(message, self._names_in) for message in answer.get("Messages", ())]
            if not messages:
                return
            fresh = [message for message in messages if message.id not in self._kept]
            self._kept |= {message.id: message.receipt_handle for message in messages}
            yield fresh

    def delete(self, messages: Sequence[DeadLetterMessage]) -> int:
        """Delete at most ten messages; how many SQS did not delete."""
        entries: Any = [{"Id": str(place), "ReceiptHandle": one.receipt_handle} for place, one in enumerate(messages)]
        answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        for one in answer.get("Successful", ()):
            del self._kept[messages[int(one["Id"])].id]
        return len(answer.get("Failed", ()))

    def hidden(self) -> int:
        """The number of messages that are hidden now. Before the first one is received, others have hidden them.

        Raises:
            ClientError: SQS refuses.

        """
        name: Any = "ApproximateNumberOfMessagesNotVisible"
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for batch in batched(self._kept.values(), MAX_BATCH_SIZE):
            entries: Any = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                for place, handle in enumerate(batch)
            ]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
