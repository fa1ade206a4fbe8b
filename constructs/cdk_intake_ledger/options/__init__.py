"""Groups of options of the constructs."""

from cdk_intake_ledger.options.after_commit import Tag
from cdk_intake_ledger.options.audit_scale import AuditScale, Engine
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.extra import Extra
from cdk_intake_ledger.options.options import (
    AlarmAction,
    AuditOptions,
    ConcurrencyOptions,
    Delivery,
    Existing,
    MonitoringOptions,
    NetworkOptions,
    Ordering,
    Reasons,
    RetryOptions,
)

__all__ = [
    "AlarmAction",
    "AuditOptions",
    "AuditScale",
    "ConcurrencyOptions",
    "Delivery",
    "Engine",
    "Existing",
    "Extra",
    "MonitoringOptions",
    "NetworkOptions",
    "Ordering",
    "Reasons",
    "RetryOptions",
    "Tag",
    "to_seconds",
]
