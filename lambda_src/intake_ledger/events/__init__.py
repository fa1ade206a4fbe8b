"""Parse the messages of S3, EventBridge, SNS and this pipeline."""

from intake_ledger.events.fields import MalformedError
from intake_ledger.events.own_messages import OWN_MESSAGE, own_message
from intake_ledger.events.parser import (
    Message,
    Parsed,
    Unparseable,
    in_order,
    merge_unparseable,
    parse_message,
    read_batch,
)
from intake_ledger.events.s3_event import WAY_OUT, Ignored

__all__ = [
    "OWN_MESSAGE",
    "WAY_OUT",
    "Ignored",
    "MalformedError",
    "Message",
    "Parsed",
    "Unparseable",
    "in_order",
    "merge_unparseable",
    "own_message",
    "parse_message",
    "read_batch",
]
