"""Requests to S3 and SQS, and the clients that make them.

The audit also imports `page_parsing`. It is not below, because each cold start of the consumer would import it.
"""

from intake_ledger.aws.bucket import Bucket, is_own_read, s3_refusal
from intake_ledger.aws.clients import POOL, bucket_client, ledger_client, make_client
from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.aws.queues import NotDone, Queues, body_digest, taken_text

__all__ = [
    "POOL",
    "Bucket",
    "InvocationContext",
    "NotDone",
    "Queues",
    "body_digest",
    "bucket_client",
    "is_own_read",
    "ledger_client",
    "make_client",
    "s3_refusal",
    "taken_text",
]
