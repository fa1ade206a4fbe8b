"""Requests of people: the messages of a reprocess or a redrive, recorded until they are served.

The command writes a record before it sends the messages of a batch. The audit looks at the rows, and sends the
outstanding requests again. See docs/protocol.md, "Requests of people".
"""

from intake_ledger.requests.check import RequestCheck, RequestFindings
from intake_ledger.requests.record import (
    BATCH_BYTES,
    BATCH_ENTRIES,
    BATCHES,
    Command,
    Entry,
    RequestBatch,
    batch_from_item,
    batch_item,
    batch_key,
    entries_size,
    queried_batches,
    rows_of,
)
from intake_ledger.requests.redriven import Redriven, packed, redriven
from intake_ledger.requests.standing import AfterStop, Standing, after_stop, standing_of
from intake_ledger.requests.stop import STOPS, Stop, read_stop, read_stops

__all__ = [
    "BATCHES",
    "BATCH_BYTES",
    "BATCH_ENTRIES",
    "STOPS",
    "AfterStop",
    "Command",
    "Entry",
    "Redriven",
    "RequestBatch",
    "RequestCheck",
    "RequestFindings",
    "Standing",
    "Stop",
    "after_stop",
    "batch_from_item",
    "batch_item",
    "batch_key",
    "entries_size",
    "packed",
    "queried_batches",
    "read_stop",
    "read_stops",
    "redriven",
    "rows_of",
    "standing_of",
]
