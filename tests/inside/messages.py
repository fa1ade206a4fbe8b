"""Parts of the consumer of messages."""

from intake_ledger.delivery_check.sources import SourceCheck
from intake_ledger.keyed import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.messages.reader import MessageReader
from intake_ledger.messages.row_check import STUCK_MS, TICK_MS, RowCheck, RowFindings, check_requests, is_due, tick
