"""Metrics, alarms and the dashboard of a pipeline."""

from cdk_intake_ledger.monitoring.alarm_choice import AlarmChoice
from cdk_intake_ledger.monitoring.consumer_monitoring import COPIES_REFUSED, status_widgets
from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
from cdk_intake_ledger.monitoring.message_monitoring import MessageMonitoring
from cdk_intake_ledger.monitoring.metrics import FIVE_MINUTES, METRICS_NAMESPACE, IntakeMetrics, MetricOptions
from cdk_intake_ledger.monitoring.runbooks import alarm_description

__all__ = [
    "COPIES_REFUSED",
    "FIVE_MINUTES",
    "METRICS_NAMESPACE",
    "AlarmChoice",
    "IntakeMetrics",
    "IntakeMonitoring",
    "MessageMonitoring",
    "MetricOptions",
    "alarm_description",
    "status_widgets",
]
