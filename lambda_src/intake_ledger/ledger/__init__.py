"""Write the decisions into the DynamoDB table, each with its condition."""

from intake_ledger.ledger.claim import Claim, LedgerOptions
from intake_ledger.ledger.claim_writer import StateReader
from intake_ledger.ledger.completeness import Completeness, CompletenessRecord, Incomplete, complete_since, record_key
from intake_ledger.ledger.conditions import NO_ROW, Condition, ConditionFailed, lease_owned, row_unchanged
from intake_ledger.ledger.dynamodb_table import (
    AWS_ERRORS,
    BATCH_GET_KEYS,
    BATCH_STATEMENTS,
    LedgerTable,
    condition_failed,
)
from intake_ledger.ledger.execution_ledger import ExecutionLedger
from intake_ledger.ledger.ledger import Ledger
from intake_ledger.ledger.repeats import is_conflict, read_batch, send_write, write_batch

__all__ = [
    "AWS_ERRORS",
    "BATCH_GET_KEYS",
    "BATCH_STATEMENTS",
    "NO_ROW",
    "Claim",
    "Completeness",
    "CompletenessRecord",
    "Condition",
    "ConditionFailed",
    "ExecutionLedger",
    "Incomplete",
    "Ledger",
    "LedgerOptions",
    "LedgerTable",
    "StateReader",
    "complete_since",
    "condition_failed",
    "is_conflict",
    "lease_owned",
    "read_batch",
    "record_key",
    "row_unchanged",
    "send_write",
    "write_batch",
]
