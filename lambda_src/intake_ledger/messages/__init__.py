"""Messages that are not events of S3: how they are read, and their settings. See also `kinds.messages`.

The messages come from SQS (standard or FIFO), Kinesis, the stream of a DynamoDB table, or EventBridge. Each message has
a row of the ledger, and each key a lock.
"""

from intake_ledger.messages.keyed_message import KeyedMessage, MessageChange, MessageProcessor
from intake_ledger.messages.settings import MessageSettings, MessageSourceType, message_settings

__all__ = [
    "KeyedMessage",
    "MessageChange",
    "MessageProcessor",
    "MessageSettings",
    "MessageSourceType",
    "message_settings",
]
