"""All checks, in the order in which they run. Those of the background begin first."""

from intake_ledger_cli.acceptance import durable_checks, fault_checks, pipeline_checks, service_checks, waiting_checks
from intake_ledger_cli.acceptance.metric_checks import METRICS, REQUESTS

CHECKS = (
    *waiting_checks.CHECKS,
    *service_checks.CHECKS,
    pipeline_checks.ATHENA,
    *pipeline_checks.CHECKS,
    *durable_checks.CHECKS,
    *fault_checks.CHECKS,
    METRICS,
    REQUESTS,
)
