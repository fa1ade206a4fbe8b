"""Decide about changes, without AWS: states, rows, leases, verdicts, settings, errors and reasons.

Other packages import from here.
"""

from intake_ledger.protocol import row_changes
from intake_ledger.protocol.change import RESTORED, Change, Origin
from intake_ledger.protocol.errors import (
    MAX_RETRY_IN,
    Fenced,
    NoSpaceError,
    NotBegun,
    NotYet,
    ObjectGone,
    ObjectReadError,
    Overwritten,
    OwnError,
    RemoteError,
    RemoteTimeoutError,
    SettingsError,
    TransactionRefused,
    Unprocessable,
    WrongReturnError,
)
from intake_ledger.protocol.lease import LEASE_ENDED, lease_is_live, lease_length
from intake_ledger.protocol.object_state import ABSENT, State, StateKind, bare_etag, identity_of, real_version
from intake_ledger.protocol.reasons import Reason, ReasonCode, code_of, matches_reason
from intake_ledger.protocol.retention import Retention
from intake_ledger.protocol.row import FORMAT, STORED_STATUSES, Row, Status, is_settled
from intake_ledger.protocol.row_changes import truncate
from intake_ledger.protocol.row_items import is_readable, row_attributes, row_difference, row_from_attributes
from intake_ledger.protocol.row_keys import (
    Ordering,
    RowKey,
    review_partition,
    review_partitions,
    row_key,
    waiting_partition,
)
from intake_ledger.protocol.settings import (
    PIPELINE_TAG,
    AuditSettings,
    ConsumerSettings,
    Delivery,
    KeyFilter,
    Reasons,
    Reports,
    Settings,
    audit_settings,
    consumer_settings,
)
from intake_ledger.protocol.ulids import RANDOM_BITS, is_ulid, made_at, ulid
from intake_ledger.protocol.verdict import ARCHIVED, Policy, Ruling, Verdict, judge_row, judge_state

__all__ = [
    "ABSENT",
    "ARCHIVED",
    "FORMAT",
    "LEASE_ENDED",
    "MAX_RETRY_IN",
    "PIPELINE_TAG",
    "RANDOM_BITS",
    "RESTORED",
    "STORED_STATUSES",
    "AuditSettings",
    "Change",
    "ConsumerSettings",
    "Delivery",
    "Fenced",
    "KeyFilter",
    "NoSpaceError",
    "NotBegun",
    "NotYet",
    "ObjectGone",
    "ObjectReadError",
    "Ordering",
    "Origin",
    "Overwritten",
    "OwnError",
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
    "State",
    "StateKind",
    "Status",
    "TransactionRefused",
    "Unprocessable",
    "Verdict",
    "WrongReturnError",
    "audit_settings",
    "bare_etag",
    "code_of",
    "consumer_settings",
    "identity_of",
    "is_readable",
    "is_settled",
    "is_ulid",
    "judge_row",
    "judge_state",
    "lease_is_live",
    "lease_length",
    "made_at",
    "matches_reason",
    "real_version",
    "review_partition",
    "review_partitions",
    "row_attributes",
    "row_changes",
    "row_difference",
    "row_from_attributes",
    "row_key",
    "truncate",
    "ulid",
    "waiting_partition",
]
