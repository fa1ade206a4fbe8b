"""The audit: its function, its schedule, and the state machine and engines of an audit in parts."""

from cdk_intake_ledger.audit.intake_audit import IntakeAudit
from cdk_intake_ledger.audit.reports import report_problems
from cdk_intake_ledger.audit.schedule import schedule as make_schedule

__all__ = [
    "IntakeAudit",
    "make_schedule",
    "report_problems",
]
