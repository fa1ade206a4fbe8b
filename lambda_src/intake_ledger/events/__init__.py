"""Parse the messages of S3, EventBridge, SNS and this pipeline."""

from intake_ledger.events.copies import ATTRIBUTE as WAITING
from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import (
    BODY_UNKNOWN,
    OWN_MESSAGE,
    WAY_OUT,
    Ignored,
    MalformedError,
    Message,
    Parsed,
    Unparseable,
    body_unknown,
    in_order,
    merge_unparseable,
    own_message,
    parse_message,
    read_batch,
)

__all__ = [
    "BODY_UNKNOWN",
    "OWN_MESSAGE",
    "REDRIVEN",
    "WAITING",
    "WAY_OUT",
    "Ignored",
    "MalformedError",
    "Message",
    "Parsed",
    "Unparseable",
    "body_unknown",
    "in_order",
    "merge_unparseable",
    "own_message",
    "parse_message",
    "read_batch",
]
