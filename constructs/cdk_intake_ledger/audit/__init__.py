"""The audit: its function, its schedule, and the state machine and engines of an audit in parts."""

from cdk_intake_ledger.audit.deployed_settings import stack_selector
from cdk_intake_ledger.audit.intake_audit import TICK_MINUTES, IntakeAudit
from cdk_intake_ledger.audit.reports import report_problems
from cdk_intake_ledger.audit.schedule import schedule as make_schedule

__all__ = [
    "TICK_MINUTES",
    "IntakeAudit",
    "make_schedule",
    "report_problems",
    "stack_selector",
]
