"""Parse the messages of S3, EventBridge, SNS and this pipeline."""

from intake_ledger.events.own_messages import OWN_MESSAGE, own_message
from intake_ledger.events.parser import Parsed, Unparseable, parse_message, together
from intake_ledger.events.s3_event import Ignored
from intake_ledger.events.sqs_batch import Message, read_batch

__all__ = [
    "OWN_MESSAGE",
    "Ignored",
    "Message",
    "Parsed",
    "Unparseable",
    "own_message",
    "parse_message",
    "read_batch",
    "together",
]
