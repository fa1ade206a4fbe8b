"""Decide about changes, without AWS: states, rows, leases, verdicts, settings, errors and reasons.

Other packages import from here.
"""

from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import row_changes
from intake_ledger.protocol.change import RESTORED, Change, EndedExecution, Origin
from intake_ledger.protocol.directory_markers import is_directory_marker, is_skipped_marker, may_be_directory_marker
from intake_ledger.protocol.errors import (
    MAX_RETRY_IN,
    CopyRefused,
    Fenced,
    InvalidEffectError,
    InvalidOutputError,
    InvalidOutputNameError,
    InvalidOutputTypeError,
    InvalidTransactionError,
    LateWriteFound,
    LibraryError,
    NoSpaceError,
    NotBegun,
    NotYet,
    ObjectGone,
    ObjectReadError,
    OutputConflict,
    OutputError,
    OutputReserved,
    OutputTaken,
    Overtaken,
    RemoteError,
    RemoteTimeoutError,
    SettingsError,
    TransactionRefused,
    Unprocessable,
    WrongReturnError,
)
from intake_ledger.protocol.handover import (
    Element,
    check_transact,
    invalid_effect_of,
    is_sequence,
    kept_result,
    remaining_seconds,
    shown,
    value_problems,
    wait_seconds,
)
from intake_ledger.protocol.lease import LEASE_ENDED, lease_is_live, lease_length
from intake_ledger.protocol.object_state import ABSENT, State, StateKind, bare_etag, identity_of, real_version
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode, code_of, matches_reason
from intake_ledger.protocol.row import FORMAT, STORED_STATUSES, Row, Settlement, Status, is_settled
from intake_ledger.protocol.row_changes import REMOVED_UNPROCESSED, Copied, Retention, after_copy, truncate
from intake_ledger.protocol.row_items import (
    REVIEW_INDEX,
    Ordering,
    RowKey,
    breaker_key,
    dismissed_partition,
    from_dynamodb,
    is_readable,
    pause_key,
    removed_partition,
    review_partition,
    review_partitions,
    row_attributes,
    row_difference,
    row_from_attributes,
    row_key,
    success_key,
    to_dynamodb,
    waiting_partition,
)
from intake_ledger.protocol.settings import (
    HOLD_SHARE,
    LAST_TRY_SHARE,
    PIPELINE_TAG,
    VERSION_BYTES,
    ConsumerSettings,
    KeyFilter,
    Reasons,
    Settings,
    consumer_settings,
    last_try_seconds,
    short_version,
)
from intake_ledger.protocol.ulids import RANDOM_BITS, is_ulid, made_at, ulid
from intake_ledger.protocol.verdict import ARCHIVED, Policy, Ruling, Verdict, judge_row, judge_state, keeps_copy

if TYPE_CHECKING:
    from intake_ledger.protocol.settings_audit import AuditSettings, Delivery, Reports, audit_settings
    from intake_ledger.protocol.settings_worker import WorkerSettings, worker_settings
else:

    def __getattr__(name: str) -> Any:
        """Import these at their first use. The consumer's cold start does not need them."""
        if name in ("AuditSettings", "Delivery", "Reports", "audit_settings"):
            from intake_ledger.protocol import settings_audit  # noqa: PLC0415

            return getattr(settings_audit, name)
        if name in ("WorkerSettings", "worker_settings"):
            from intake_ledger.protocol import settings_worker  # noqa: PLC0415

            return getattr(settings_worker, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ABSENT",
    "ARCHIVED",
    "FORMAT",
    "HOLD_SHARE",
    "LAST_TRY_SHARE",
    "LEASE_ENDED",
    "MAX_RETRY_IN",
    "PIPELINE_TAG",
    "RANDOM_BITS",
    "REMOVED_UNPROCESSED",
    "RESTORED",
    "REVIEW_INDEX",
    "STORED_STATUSES",
    "VERSION_BYTES",
    "AuditSettings",
    "Change",
    "ConsumerSettings",
    "Copied",
    "CopyRefused",
    "Delivery",
    "Element",
    "EndedExecution",
    "Fenced",
    "InvalidEffectError",
    "InvalidOutputError",
    "InvalidOutputNameError",
    "InvalidOutputTypeError",
    "InvalidTransactionError",
    "KeyFilter",
    "LateWriteFound",
    "LibraryError",
    "NoSpaceError",
    "NotBegun",
    "NotYet",
    "ObjectGone",
    "ObjectReadError",
    "Ordering",
    "Origin",
    "OutcomeKind",
    "OutputConflict",
    "OutputError",
    "OutputReserved",
    "OutputTaken",
    "Overtaken",
    "Policy",
    "Reason",
    "ReasonCode",
    "Reasons",
    "RemoteError",
    "RemoteTimeoutError",
    "Reports",
    "Retention",
    "Row",
    "RowKey",
    "Ruling",
    "Settings",
    "SettingsError",
    "Settlement",
    "State",
    "StateKind",
    "Status",
    "TransactionRefused",
    "Unprocessable",
    "Verdict",
    "WorkerSettings",
    "WrongReturnError",
    "after_copy",
    "audit_settings",
    "bare_etag",
    "breaker_key",
    "check_transact",
    "code_of",
    "consumer_settings",
    "dismissed_partition",
    "from_dynamodb",
    "identity_of",
    "invalid_effect_of",
    "is_directory_marker",
    "is_readable",
    "is_sequence",
    "is_settled",
    "is_skipped_marker",
    "is_ulid",
    "judge_row",
    "judge_state",
    "keeps_copy",
    "kept_result",
    "last_try_seconds",
    "lease_is_live",
    "lease_length",
    "made_at",
    "matches_reason",
    "may_be_directory_marker",
    "pause_key",
    "real_version",
    "remaining_seconds",
    "removed_partition",
    "review_partition",
    "review_partitions",
    "row_attributes",
    "row_changes",
    "row_difference",
    "row_from_attributes",
    "row_key",
    "short_version",
    "shown",
    "success_key",
    "to_dynamodb",
    "truncate",
    "ulid",
    "value_problems",
    "wait_seconds",
    "waiting_partition",
    "worker_settings",
]
