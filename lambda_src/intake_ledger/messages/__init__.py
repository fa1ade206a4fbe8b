"""Process messages that are not events of S3, each once, and the messages of one key one after the other.

The messages come from SQS (standard or FIFO), Kinesis, the stream of a DynamoDB table, or EventBridge. Each message has
a row of the ledger, and each key a lock. `handler` is Lambda's entry point.
"""

from intake_ledger.keyed import KeyedClaim, KeyedLedger
from intake_ledger.messages.composition import handler
from intake_ledger.messages.consumer import MessageConsumer
from intake_ledger.messages.keyed_message import KeyedMessage, MessageProcessor
from intake_ledger.messages.queues import MessageQueues
from intake_ledger.messages.settings import MessageSettings, MessageSource, message_settings

__all__ = [
    "KeyedClaim",
    "KeyedLedger",
    "KeyedMessage",
    "MessageConsumer",
    "MessageProcessor",
    "MessageQueues",
    "MessageSettings",
    "MessageSource",
    "handler",
    "message_settings",
]
