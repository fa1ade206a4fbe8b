"""Helpers for tests of a processor, of a stack's template, and of a deployment.

| to test | use | needs |
| --- | --- | --- |
| a processor of objects | `LocalPipeline`, `Fault` | `boto3` |
| a processor of messages, or of sets of files | `LocalMessages`, `LocalSets` | `boto3` |
| a function or a state machine | the same, with a `LocalRunner` | `boto3` |
| a function with your own messages | `events`, `LambdaContext` | |
| a stack | `stable_template`, `logical_ids` | |
| a deployment on this machine | `LocalAws` | `boto3`, `ministack`, the CDK CLI |
| a deployment on an account | `AccountAws` | `boto3` |

Synthesis imports nothing from here. Only the helpers for stacks start the CDK.
"""

from typing import TYPE_CHECKING

from cdk_intake_ledger._lazy import lazily
from intake_ledger_testing import events

if TYPE_CHECKING:
    from cdk_intake_ledger.testing.templates import logical_ids, stable_template
    from intake_ledger_testing.account_aws import AccountAws, AccountAwsError
    from intake_ledger_testing.context import LambdaContext
    from intake_ledger_testing.local_aws import LocalAws, LocalAwsError
    from intake_ledger_testing.local_messages import LocalMessages
    from intake_ledger_testing.local_options import (
        LocalBucketOptions,
        LocalCallOptions,
        LocalOptions,
        LocalPipelineOptions,
    )
    from intake_ledger_testing.local_pipeline import LocalPipeline
    from intake_ledger_testing.local_sets import LocalSets
    from intake_ledger_testing.local_settings import LocalClock
    from intake_ledger_testing.local_worker import Fault, Killed, LocalRunner, LocalWorker
    from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
    from intake_ledger_testing.memory_sqs import DeadLetter
    from intake_ledger_testing.memory_tables import MemoryTables

__all__ = [
    "AccountAws",
    "AccountAwsError",
    "DeadLetter",
    "Fault",
    "Killed",
    "LambdaContext",
    "LocalAws",
    "LocalAwsError",
    "LocalBucketOptions",
    "LocalCallOptions",
    "LocalClock",
    "LocalMessages",
    "LocalOptions",
    "LocalPipeline",
    "LocalPipelineOptions",
    "LocalRunner",
    "LocalSets",
    "LocalWorker",
    "MemoryDynamoDB",
    "MemoryTables",
    "events",
    "logical_ids",
    "stable_template",
]

# mypy would accept any name from a module that has a `__getattr__`.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "AccountAws": "intake_ledger_testing.account_aws",
            "AccountAwsError": "intake_ledger_testing.account_aws",
            "DeadLetter": "intake_ledger_testing.memory_sqs",
            "Fault": "intake_ledger_testing.local_worker",
            "Killed": "intake_ledger_testing.local_worker",
            "LambdaContext": "intake_ledger_testing.context",
            "LocalAws": "intake_ledger_testing.local_aws",
            "LocalAwsError": "intake_ledger_testing.local_aws",
            "LocalBucketOptions": "intake_ledger_testing.local_options",
            "LocalCallOptions": "intake_ledger_testing.local_options",
            "LocalClock": "intake_ledger_testing.local_settings",
            "LocalMessages": "intake_ledger_testing.local_messages",
            "LocalOptions": "intake_ledger_testing.local_options",
            "LocalPipeline": "intake_ledger_testing.local_pipeline",
            "LocalPipelineOptions": "intake_ledger_testing.local_options",
            "LocalRunner": "intake_ledger_testing.local_worker",
            "LocalSets": "intake_ledger_testing.local_sets",
            "LocalWorker": "intake_ledger_testing.local_worker",
            "MemoryDynamoDB": "intake_ledger_testing.memory_dynamodb",
            "MemoryTables": "intake_ledger_testing.memory_tables",
            "logical_ids": "cdk_intake_ledger.testing.templates",
            "stable_template": "cdk_intake_ledger.testing.templates",
        },
    )
