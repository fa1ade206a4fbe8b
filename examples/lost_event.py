"""A lost event, for the examples that compare, and the audit that finds it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cdk_intake_ledger.testing import LocalAws


@contextmanager
def events_are_lost(s3: Any, bucket: str) -> Iterator[None]:
    """Let the bucket send no event meanwhile, as if a notification got lost. `s3` is a client."""
    found = s3.get_bucket_notification_configuration(Bucket=bucket)
    configuration = {name: value for name, value in found.items() if name != "ResponseMetadata"}
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    try:
        yield
    finally:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)


def audit_finds_it(aws: LocalAws, audit_function: str) -> None:
    """Run the audit until it has sent one lost event again.

    Raises:
        TimeoutError: the audit finds nothing.

    """

    def sent_again() -> bool:
        answer = aws.client("lambda").invoke(FunctionName=audit_function, Payload=b"{}")
        return bool(json.load(answer["Payload"]).get("resubmitted"))

    aws.wait_until(sent_again, "the audit has sent the lost event again", timeout=60)
