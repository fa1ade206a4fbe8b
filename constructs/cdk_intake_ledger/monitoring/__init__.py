"""Metrics, alarms and the dashboard of a pipeline."""

from cdk_intake_ledger.monitoring.consumer_monitoring import ConsumerMonitoring, graph
from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
from cdk_intake_ledger.monitoring.message_monitoring import MessageMonitoring
from cdk_intake_ledger.monitoring.metrics import METRIC_NAMES, METRICS_NAMESPACE, IntakeMetrics, MetricOptions

__all__ = [
    "METRICS_NAMESPACE",
    "METRIC_NAMES",
    "ConsumerMonitoring",
    "IntakeMetrics",
    "IntakeMonitoring",
    "MessageMonitoring",
    "MetricOptions",
    "graph",
]
