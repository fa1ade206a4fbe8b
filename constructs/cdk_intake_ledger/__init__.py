"""S3 intake as one CDK construct: every uploaded file takes effect exactly as often as it should.

    from cdk_intake_ledger import IntakePipeline, Processor

    invoices = IntakePipeline(self, "Invoices",
        processor=Processor.from_asset("processors/invoices", entrypoint="invoices:process"))
    invoices.grant_put(partner_role)

What is named here is what this library promises to keep; everything else is its own business. The processor's side is
the package `intake_ledger`, which knows nothing of the CDK. `cdk_intake_ledger.testing` helps to test both.
"""

from typing import TYPE_CHECKING

from cdk_intake_ledger._lazy import lazily

if TYPE_CHECKING:
    from cdk_intake_ledger.audit_scale import AuditScale, Engine
    from cdk_intake_ledger.errors import IntakeConfigurationError
    from cdk_intake_ledger.ledger import IntakeLedger
    from cdk_intake_ledger.monitoring import IntakeMonitoring
    from cdk_intake_ledger.options import AuditOptions, Delivery, Existing, Ordering, Reasons, RetryOptions
    from cdk_intake_ledger.pipeline import IntakePipeline
    from cdk_intake_ledger.processor import Processor
    from cdk_intake_ledger.queue import IntakeQueue

__all__ = [
    "AuditOptions",
    "AuditScale",
    "Delivery",
    "Engine",
    "Existing",
    "IntakeConfigurationError",
    "IntakeLedger",
    "IntakeMonitoring",
    "IntakePipeline",
    "IntakeQueue",
    "Ordering",
    "Processor",
    "Reasons",
    "RetryOptions",
]

# mypy would take a module with a `__getattr__` to have any name whatever.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "AuditOptions": "cdk_intake_ledger.options",
            "AuditScale": "cdk_intake_ledger.audit_scale",
            "Delivery": "cdk_intake_ledger.options",
            "Engine": "cdk_intake_ledger.audit_scale",
            "Existing": "cdk_intake_ledger.options",
            "IntakeConfigurationError": "cdk_intake_ledger.errors",
            "IntakeLedger": "cdk_intake_ledger.ledger",
            "IntakeMonitoring": "cdk_intake_ledger.monitoring",
            "IntakePipeline": "cdk_intake_ledger.pipeline",
            "IntakeQueue": "cdk_intake_ledger.queue",
            "Ordering": "cdk_intake_ledger.options",
            "Processor": "cdk_intake_ledger.processor",
            "Reasons": "cdk_intake_ledger.options",
            "RetryOptions": "cdk_intake_ledger.options",
        },
    )
