"""Metrics, alarms and the dashboard of each kind of work."""

from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
from cdk_intake_ledger.monitoring.metrics import IntakeMetrics, MetricOptions

__all__ = ["IntakeMetrics", "IntakeMonitoring", "MetricOptions"]
