"""Log lines and metrics.

The consumer takes the protocol `Telemetry`, and the audit takes `audit_telemetry.AuditTelemetry`. Only the functions
that build them import `powertools` and `audit_powertools`, which write the telemetry with Powertools. The audit's
modules stand apart, because each cold start of the consumer would import them.
"""
