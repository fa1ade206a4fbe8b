"""Log lines and metrics.

Other packages take the `Telemetry` protocol. Only the function that builds a consumer imports
`intake_ledger.observability.powertools`, which writes the telemetry with Powertools.
"""

from intake_ledger.observability.error_text import describe, stack_of, text_of
from intake_ledger.observability.telemetry import OutcomeKind, Telemetry

__all__ = ["OutcomeKind", "Telemetry", "describe", "stack_of", "text_of"]
