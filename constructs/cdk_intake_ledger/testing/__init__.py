"""Helpers for testing: a processor on its own, a stack's template, a deployment on this machine.

| to test | take | needs |
| --- | --- | --- |
| a processor | `LocalPipeline`, `Fault` | `boto3` |
| a function with messages made by hand | `events`, `LambdaContext` | |
| a stack | `stable_template`, `logical_ids` | |
| all of it | `LocalAws` | `boto3`, `ministack`, the CDK CLI |

Nothing in here is imported by a synthesis, and only what looks at a stack starts the CDK.
"""

from typing import TYPE_CHECKING

from cdk_intake_ledger._lazy import lazily
from intake_ledger_testing import events

if TYPE_CHECKING:
    from cdk_intake_ledger.testing.templates import logical_ids, stable_template
    from intake_ledger_testing.context import LambdaContext
    from intake_ledger_testing.faults import Fault
    from intake_ledger_testing.local_aws import LocalAws, LocalAwsError
    from intake_ledger_testing.local_pipeline import LocalPipeline
    from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
    from intake_ledger_testing.memory_sqs import DeadLetter

__all__ = [
    "DeadLetter",
    "Fault",
    "LambdaContext",
    "LocalAws",
    "LocalAwsError",
    "LocalPipeline",
    "MemoryDynamoDB",
    "events",
    "logical_ids",
    "stable_template",
]

# mypy would take a module with a `__getattr__` to have any name whatever.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "DeadLetter": "intake_ledger_testing.memory_sqs",
            "Fault": "intake_ledger_testing.faults",
            "LambdaContext": "intake_ledger_testing.context",
            "LocalAws": "intake_ledger_testing.local_aws",
            "LocalAwsError": "intake_ledger_testing.local_aws",
            "LocalPipeline": "intake_ledger_testing.local_pipeline",
            "MemoryDynamoDB": "intake_ledger_testing.memory_dynamodb",
            "logical_ids": "cdk_intake_ledger.testing.templates",
            "stable_template": "cdk_intake_ledger.testing.templates",
        },
    )
