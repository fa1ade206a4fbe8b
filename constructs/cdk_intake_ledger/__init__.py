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
    from cdk_intake_ledger.additions.intake_workers import IntakeWorkers
    from cdk_intake_ledger.additions.outcome_events import OutcomeEvents
    from cdk_intake_ledger.checks.errors import IntakeConfigurationError
    from cdk_intake_ledger.functions.processor import Processor
    from cdk_intake_ledger.kinds.intake import Intake
    from cdk_intake_ledger.kinds.messages.message_intake import MessageIntake
    from cdk_intake_ledger.kinds.messages.message_source import MessageSource
    from cdk_intake_ledger.kinds.sets.file_sets import FileSets
    from cdk_intake_ledger.kinds.sets.set_form import ManifestFormat, SetForm
    from cdk_intake_ledger.ledger_table import IntakeLedger
    from cdk_intake_ledger.monitoring.intake_monitoring import IntakeMonitoring
    from cdk_intake_ledger.options.after_commit import Tag
    from cdk_intake_ledger.options.audit_scale import AuditScale, Engine
    from cdk_intake_ledger.options.options import (
        AuditOptions,
        ConcurrencyOptions,
        Delivery,
        Existing,
        MonitoringOptions,
        NetworkOptions,
        Ordering,
        Reasons,
        RetryOptions,
    )
    from cdk_intake_ledger.options.ready_when import ReadyTag
    from cdk_intake_ledger.options.same_content import SameContent
    from cdk_intake_ledger.pipeline import IntakePipeline
    from cdk_intake_ledger.queue import IntakeQueue

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
    "ReadyTag",
    "Reasons",
    "RetryOptions",
    "SameContent",
    "SetForm",
    "Tag",
]

# mypy would accept any name from a module that has a `__getattr__`.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "AuditOptions": "cdk_intake_ledger.options.options",
            "AuditScale": "cdk_intake_ledger.options.audit_scale",
            "ConcurrencyOptions": "cdk_intake_ledger.options.options",
            "Delivery": "cdk_intake_ledger.options.options",
            "Engine": "cdk_intake_ledger.options.audit_scale",
            "Existing": "cdk_intake_ledger.options.options",
            "FileSets": "cdk_intake_ledger.kinds.sets.file_sets",
            "Intake": "cdk_intake_ledger.kinds.intake",
            "IntakeConfigurationError": "cdk_intake_ledger.checks.errors",
            "IntakeLedger": "cdk_intake_ledger.ledger_table",
            "IntakeMonitoring": "cdk_intake_ledger.monitoring.intake_monitoring",
            "IntakePipeline": "cdk_intake_ledger.pipeline",
            "IntakeQueue": "cdk_intake_ledger.queue",
            "IntakeWorkers": "cdk_intake_ledger.additions.intake_workers",
            "MessageIntake": "cdk_intake_ledger.kinds.messages.message_intake",
            "MessageSource": "cdk_intake_ledger.kinds.messages.message_source",
            "ManifestFormat": "cdk_intake_ledger.kinds.sets.set_form",
            "MonitoringOptions": "cdk_intake_ledger.options.options",
            "NetworkOptions": "cdk_intake_ledger.options.options",
            "Ordering": "cdk_intake_ledger.options.options",
            "OutcomeEvents": "cdk_intake_ledger.additions.outcome_events",
            "Processor": "cdk_intake_ledger.functions.processor",
            "Reasons": "cdk_intake_ledger.options.options",
            "ReadyTag": "cdk_intake_ledger.options.ready_when",
            "RetryOptions": "cdk_intake_ledger.options.options",
            "SameContent": "cdk_intake_ledger.options.same_content",
            "SetForm": "cdk_intake_ledger.kinds.sets.set_form",
            "Tag": "cdk_intake_ledger.options.after_commit",
        },
    )
