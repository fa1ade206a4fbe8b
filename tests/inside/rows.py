"""Parts of the ledger and of the protocol."""

from intake_ledger.ledger import dynamodb_table
from intake_ledger.ledger.conditions import late_write_may_harm, no_late_writes, no_other_late_writes
from intake_ledger.ledger.dynamodb_table import execute_batch
from intake_ledger.ledger.transactions import refusal
from intake_ledger.protocol import reasons
from intake_ledger.protocol.row import exhausted, failed, rejected
