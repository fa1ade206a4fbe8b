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

if TYPE_CHECKING:
    from cdk_intake_ledger.testing.context import LambdaContext
    from cdk_intake_ledger.testing.local_aws import LocalAws, LocalAwsError
    from cdk_intake_ledger.testing.local_pipeline import Fault, LocalPipeline
    from cdk_intake_ledger.testing.memory_dynamodb import MemoryDynamoDB
    from cdk_intake_ledger.testing.memory_sqs import DeadLetter
    from cdk_intake_ledger.testing.templates import logical_ids, stable_template

__all__ = [
    "DeadLetter",
    "Fault",
    "LambdaContext",
    "LocalAws",
    "LocalAwsError",
    "LocalPipeline",
    "MemoryDynamoDB",
    "logical_ids",
    "stable_template",
]

# mypy would take a module with a `__getattr__` to have any name whatever.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "DeadLetter": "cdk_intake_ledger.testing.memory_sqs",
            "Fault": "cdk_intake_ledger.testing.local_pipeline",
            "LambdaContext": "cdk_intake_ledger.testing.context",
            "LocalAws": "cdk_intake_ledger.testing.local_aws",
            "LocalAwsError": "cdk_intake_ledger.testing.local_aws",
            "LocalPipeline": "cdk_intake_ledger.testing.local_pipeline",
            "MemoryDynamoDB": "cdk_intake_ledger.testing.memory_dynamodb",
            "logical_ids": "cdk_intake_ledger.testing.templates",
            "stable_template": "cdk_intake_ledger.testing.templates",
        },
    )
