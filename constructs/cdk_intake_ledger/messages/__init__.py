"""Intakes of keyed messages: their sources, consumer and alarms."""

from cdk_intake_ledger.messages.expressions import expression_problems, warn_about_identity
from cdk_intake_ledger.messages.message_intake import MessageIntake
from cdk_intake_ledger.messages.message_source import MessageSource

__all__ = ["MessageIntake", "MessageSource", "expression_problems", "warn_about_identity"]
