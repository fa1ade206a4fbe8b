"""Workers outside of Lambda, as a service on ECS."""

from cdk_intake_ledger.workers.intake_workers import IntakeWorkers

__all__ = ["IntakeWorkers"]
