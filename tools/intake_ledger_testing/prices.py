"""AWS's prices in us-east-1, in dollars, on demand and without the free tier."""

AS_OF = "2026-11-21"
PAGES = {
    "DynamoDB": "https://aws.amazon.com/dynamodb/pricing/on-demand/",
    "S3": "https://aws.amazon.com/s3/pricing/",
    "SQS": "https://aws.amazon.com/sqs/pricing/",
    "Lambda": "https://aws.amazon.com/lambda/pricing/",
    "KMS": "https://aws.amazon.com/kms/pricing/",
    "CloudWatch": "https://aws.amazon.com/cloudwatch/pricing/",
}
OF_THE_AUDIT = {
    "Step Functions": "https://aws.amazon.com/step-functions/pricing/",
    "Athena": "https://aws.amazon.com/athena/pricing/",
}
"""Price pages that docs/scale.md links."""
MILLION = 1_000_000

WRITE_UNIT = 0.625 / MILLION
READ_UNIT = 0.125 / MILLION
STORAGE_GB_MONTH = 0.25
BACKUP_GB_MONTH = 0.20
"""Point-in-time recovery."""
S3_GET = 0.0004 / 1_000
"""HEAD costs as much as GET."""
S3_PUT = S3_LIST = 0.005 / 1_000
SQS_REQUEST = 0.40 / MILLION
"""The price of 64 KB."""
LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_SECOND = 0.0000133334
"""The price on Arm, the construct's default."""
KMS_REQUEST = 0.03 / 10_000
KMS_KEY_MONTH = 1.0
LOG_GB = 0.50
METRIC_MONTH = 0.30
ALARM_MONTH = 0.10
"""The price of each metric of an alarm."""
COMPOSITE_MONTH = 0.50
STATE_TRANSITION = 0.025 / 1_000
"""Standard workflows, as the children of the Distributed Maps are."""
DURABLE_OPERATION = 8.0 / MILLION
"""A step, a wait or a retry of a durable function. A callback is two."""
KINESIS_SHARD_HOUR = 0.015
EVENT = 1.0 / MILLION
"""An event of S3 on EventBridge's default bus."""
INVENTORY_OBJECT = 0.0025 / MILLION
ATHENA_TB = 5.0
"""The price of each TB that queries read."""

TABLE = {
    "DynamoDB, a million write request units": WRITE_UNIT * MILLION,
    "DynamoDB, a million read request units": READ_UNIT * MILLION,
    "DynamoDB, a GB stored for a month": STORAGE_GB_MONTH,
    "DynamoDB, point-in-time recovery of a GB for a month": BACKUP_GB_MONTH,
    "S3, a million GET or HEAD": S3_GET * MILLION,
    "S3, a thousand LIST": S3_LIST * 1_000,
    "SQS, a million requests": SQS_REQUEST * MILLION,
    "Lambda, a million requests": LAMBDA_REQUEST * MILLION,
    "Lambda on Arm, a million GB-seconds": LAMBDA_GB_SECOND * MILLION,
    "Lambda, a million durable operations": DURABLE_OPERATION * MILLION,
    "Step Functions, a thousand state transitions": STATE_TRANSITION * 1_000,
    "KMS, ten thousand requests": KMS_REQUEST * 10_000,
    "KMS, a key for a month": KMS_KEY_MONTH,
    "CloudWatch Logs, a GB taken in": LOG_GB,
    "CloudWatch, a custom metric for a month": METRIC_MONTH,
    "CloudWatch, an alarm for a month": ALARM_MONTH,
    "CloudWatch, a composite alarm for a month": COMPOSITE_MONTH,
}
