"""S3 intake as one CDK construct: one commit for each state of each uploaded file.

    from cdk_intake_ledger import IntakePipeline, Processor

    invoices = IntakePipeline(self, "Invoices",
        processor=Processor.from_asset("processors/invoices", entrypoint="invoices:process"))
    invoices.grant_put(partner_role)

The names here are the public interface. All others are private. A processor imports the package `intake_ledger`, which
does not use the CDK. `cdk_intake_ledger.testing` has helpers for tests.
"""

from typing import TYPE_CHECKING

from cdk_intake_ledger._lazy import lazily

if TYPE_CHECKING:
    from cdk_intake_ledger.errors import IntakeConfigurationError
    from cdk_intake_ledger.functions import Processor
    from cdk_intake_ledger.intake import Intake
    from cdk_intake_ledger.messages import MessageIntake, MessageSource
    from cdk_intake_ledger.monitoring import IntakeMonitoring
    from cdk_intake_ledger.options import (
        AuditOptions,
        AuditScale,
        ConcurrencyOptions,
        Delivery,
        Engine,
        Existing,
        MonitoringOptions,
        NetworkOptions,
        Ordering,
        Reasons,
        RetryOptions,
        Tag,
    )
    from cdk_intake_ledger.outcome_events import OutcomeEvents
    from cdk_intake_ledger.pipeline import IntakePipeline
    from cdk_intake_ledger.resources import IntakeLedger, IntakeQueue
    from cdk_intake_ledger.sets import FileSets, ManifestFormat, SetForm
    from cdk_intake_ledger.workers import IntakeWorkers

__all__ = [
    "AuditOptions",
    "AuditScale",
    "ConcurrencyOptions",
    "Delivery",
    "Engine",
    "Existing",
    "FileSets",
    "Intake",
    "IntakeConfigurationError",
    "IntakeLedger",
    "IntakeMonitoring",
    "IntakePipeline",
    "IntakeQueue",
    "IntakeWorkers",
    "ManifestFormat",
    "MessageIntake",
    "MessageSource",
    "MonitoringOptions",
    "NetworkOptions",
    "Ordering",
    "OutcomeEvents",
    "Processor",
    "Reasons",
    "RetryOptions",
    "SetForm",
    "Tag",
]

# mypy would accept any name from a module that has a `__getattr__`.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "AuditOptions": "cdk_intake_ledger.options",
            "AuditScale": "cdk_intake_ledger.options",
            "ConcurrencyOptions": "cdk_intake_ledger.options",
            "Delivery": "cdk_intake_ledger.options",
            "Engine": "cdk_intake_ledger.options",
            "Existing": "cdk_intake_ledger.options",
            "FileSets": "cdk_intake_ledger.sets",
            "Intake": "cdk_intake_ledger.intake",
            "IntakeConfigurationError": "cdk_intake_ledger.errors",
            "IntakeLedger": "cdk_intake_ledger.resources",
            "IntakeMonitoring": "cdk_intake_ledger.monitoring",
            "IntakePipeline": "cdk_intake_ledger.pipeline",
            "IntakeQueue": "cdk_intake_ledger.resources",
            "IntakeWorkers": "cdk_intake_ledger.workers",
            "MessageIntake": "cdk_intake_ledger.messages",
            "MessageSource": "cdk_intake_ledger.messages",
            "ManifestFormat": "cdk_intake_ledger.sets",
            "MonitoringOptions": "cdk_intake_ledger.options",
            "NetworkOptions": "cdk_intake_ledger.options",
            "Ordering": "cdk_intake_ledger.options",
            "OutcomeEvents": "cdk_intake_ledger.outcome_events",
            "Processor": "cdk_intake_ledger.functions",
            "Reasons": "cdk_intake_ledger.options",
            "RetryOptions": "cdk_intake_ledger.options",
            "SetForm": "cdk_intake_ledger.sets",
            "Tag": "cdk_intake_ledger.options",
        },
    )
