"""The events of outcomes, in the runtime."""

from intake_ledger import outcome_events

__all__ = ["outcome_events"]
