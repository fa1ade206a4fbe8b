"""The actions that each command needs. Tests compare them with its calls (tests/unit) and the grants (tests/synth).

`docs/operating.md` has the actions that find the pipeline, its alarms and its metrics, and that call the audit.
"""

GRANTS = {
    "dismiss": ("grant_operate",),
    "release": ("grant_operate",),
    "inspect": ("grant_read_ledger",),
    "export": ("grant_read_ledger",),
    "list": ("grant_read_ledger",),
    "wait": ("grant_read_ledger",),
    "audit --last": ("grant_read_ledger",),
    "retry": ("grant_operate",),
    "operations stop": ("grant_read_ledger", "grant_redrive"),
    "status": ("grant_read_ledger", "grant_redrive"),
}
"""The grants that are enough for a command."""

NEEDED = {
    "dismiss": {
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "logs:PutLogEvents",
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:ReceiveMessage",
    },
    "release": {
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "logs:PutLogEvents",
        "sqs:SendMessage",
    },
    "inspect": {"dynamodb:GetItem", "dynamodb:Query", "s3:ListBucketVersions"},
    "export": {"dynamodb:Scan"},
    "list": {"dynamodb:Query"},
    "wait": {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "s3:ListBucketVersions"},
    "audit --last": {"dynamodb:GetItem"},
    "retry": {
        "dynamodb:DeleteItem",
        "dynamodb:DescribeTable",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "logs:PutLogEvents",
        "s3:ListBucket",
        "s3:ListBucketVersions",
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        "sqs:SendMessage",
    },
    "operations stop": {
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "logs:PutLogEvents",
    },
    "status": {
        "dynamodb:BatchGetItem",
        "dynamodb:DescribeTable",
        "dynamodb:Query",
        "dynamodb:Scan",
        "sqs:GetQueueAttributes",
        "sqs:ListMessageMoveTasks",
    },
}
"""IAM's actions by command."""

_ACTIONS = {"ListObjectVersions": "ListBucketVersions", "ListObjectsV2": "ListBucket"}


def action_of(service: str, operation: str) -> str:
    """The action that an operation of a boto3 client needs: SQS's batches need that of the single one."""
    name = operation.removesuffix("Batch") if service == "sqs" else operation
    return f"{service}:{_ACTIONS.get(name, name)}"
