"""Write the decisions into the DynamoDB table, each with its condition."""

from typing import TYPE_CHECKING, Any

from intake_ledger.ledger.conditions import (
    NO_ROW,
    Condition,
    ConditionFailed,
    lease_owned,
    row_unchanged,
    same_claim,
)
from intake_ledger.ledger.dynamodb_table import (
    AWS_ERRORS,
    BATCH_GET_KEYS,
    BATCH_STATEMENTS,
    LedgerTable,
    condition_failed,
    is_conflict,
    read_batch,
    send_write,
    write_batch,
)
from intake_ledger.ledger.forgotten import (
    FORGOTTEN_AT,
    REMOVED,
    UNCHECKED_MS,
    Forgotten,
    ForgottenKeys,
    NothingForgotten,
)
from intake_ledger.ledger.ledger import (
    Claim,
    GroupGuard,
    Guard,
    Ledger,
    LedgerOptions,
    Look,
    StateReader,
    break_claim,
    end_work,
    object_states,
    present_state,
)
from intake_ledger.ledger.row_history import RowHistory, RowHistoryRecord, UnknownHistory, all_rows_since, record_key

if TYPE_CHECKING:
    from intake_ledger.ledger.starts import Starts
else:

    def __getattr__(name: str) -> Any:
        """Import it at its first use. Most pipelines have no rate."""
        if name == "Starts":
            from intake_ledger.ledger.starts import Starts  # noqa: PLC0415

            return Starts
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AWS_ERRORS",
    "BATCH_GET_KEYS",
    "BATCH_STATEMENTS",
    "FORGOTTEN_AT",
    "NO_ROW",
    "REMOVED",
    "UNCHECKED_MS",
    "Claim",
    "Condition",
    "ConditionFailed",
    "Forgotten",
    "ForgottenKeys",
    "GroupGuard",
    "Guard",
    "Ledger",
    "LedgerOptions",
    "LedgerTable",
    "Look",
    "NothingForgotten",
    "RowHistory",
    "RowHistoryRecord",
    "Starts",
    "StateReader",
    "UnknownHistory",
    "all_rows_since",
    "break_claim",
    "condition_failed",
    "end_work",
    "is_conflict",
    "lease_owned",
    "object_states",
    "present_state",
    "read_batch",
    "record_key",
    "row_unchanged",
    "same_claim",
    "send_write",
    "write_batch",
]
