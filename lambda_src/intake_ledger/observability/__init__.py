"""Log lines and metrics.

The consumer takes the protocol `Telemetry`, and the audit takes `audit_telemetry.AuditTelemetry`. Only the functions
that build them import `powertools` and `audit_powertools`, which write the telemetry with Powertools. The audit's
modules are not below, because each cold start of the consumer would import them.
"""

from intake_ledger.observability.error_text import describe, stack_of, text_of
from intake_ledger.observability.telemetry import Telemetry

__all__ = ["Telemetry", "describe", "stack_of", "text_of"]
