"""What each command asks of AWS, held against what it calls (tests/unit) and against the grants (tests/synth).

Finding the pipeline, alarms, metrics and the audit's function are a person's own business: `docs/operating.md`.
"""

GRANTS = {
    "inspect": ("grant_read_ledger",),
    "list": ("grant_read_ledger",),
    "report": ("grant_read_ledger",),
    "redrive": ("grant_redrive",),
    "reprocess": ("grant_reprocess",),
    "status": ("grant_read_ledger", "grant_redrive"),
}
"""The grants that are enough for a command."""

NEEDED = {
    "inspect": {"dynamodb:GetItem", "dynamodb:Query", "s3:ListBucketVersions"},
    "list": {"dynamodb:Query"},
    "report": {"dynamodb:GetItem"},
    "redrive": {
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        "sqs:SendMessage",
    },
    "reprocess": {
        "dynamodb:PutItem",
        "s3:ListBucket",
        "s3:ListBucketVersions",
        "sqs:SendMessage",
    },
    "status": {
        "dynamodb:BatchGetItem",
        "dynamodb:DescribeTable",
        "dynamodb:Query",
        "dynamodb:Scan",
        "sqs:GetQueueAttributes",
    },
}
"""IAM's actions by command. `reprocess --rejected` reads the ledger's list besides."""

_ACTIONS = {"ListObjectVersions": "ListBucketVersions", "ListObjectsV2": "ListBucket"}


def action_of(service: str, operation: str) -> str:
    """The action that an operation of a boto3 client needs: SQS's batches need that of the single one."""
    name = operation.removesuffix("Batch") if service == "sqs" else operation
    return f"{service}:{_ACTIONS.get(name, name)}"
