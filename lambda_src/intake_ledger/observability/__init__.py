"""Log lines and metrics.

The consumer takes a `Telemetry`. Only the function that builds it imports `powertools`, which writes with Powertools.
The audit's modules stand apart, because each cold start of the consumer would import them.
"""
