"""Log lines and metrics.

Other packages take the protocols `Telemetry` and `AuditTelemetry`. Only the functions that build a consumer or an audit
import `powertools` and `audit_powertools`, which write the telemetry with Powertools.
"""

from intake_ledger.observability.error_text import describe, stack_of, text_of
from intake_ledger.observability.telemetry import AuditTelemetry, OutcomeKind, Telemetry

__all__ = ["AuditTelemetry", "OutcomeKind", "Telemetry", "describe", "stack_of", "text_of"]
