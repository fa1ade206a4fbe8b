"""The options of a template: those of the pipeline that fit on a command line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cdk_intake_ledger.checks.plan import LEDGER_RETENTION_DAYS
from cdk_intake_ledger.options.options import Ordering

FUNCTION_ARN = r"arn:[a-z-]+:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9-_]+(:[A-Za-z0-9$_-]+)?"
"""Matches the ARN of a function, a version or an alias."""
_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]{0,63}")
_BUCKET = re.compile(r"(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9](?!.*\.\.)[a-z0-9.-]{1,61}[a-z0-9]")
_BUCKET_OF_URI = re.compile(r"(?:s3a?://|arn:[a-z-]+:s3:::)([^/]*).*")
_KEY_ARN = re.compile(r"arn:[a-z-]+:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")
TAKEN_NAMES = frozenset(
    (
        *("Ledger", "Key", "Processor", "Existing", "ProcessorMayRead", "IntakeLedgerRuntime"),
        *("CodeBucket", "RuntimeKey", "OwnRuntimeKey", "AlarmTopicArn", "HasAlarmTopic"),
        *("ProcessorArn", "ProcessorRoleName", "HasProcessorRole"),
        *("BucketName", "BucketArn", "QueueUrl", "DeadLetterQueueUrl", "LedgerTableName"),
        *("ConsumerFunctionName", "AuditFunctionName"),
    )
)
"""IDs of the template's other elements."""


class WrongTemplateOptions(ValueError):  # noqa: N818 - named as what is wrong
    """Options that CloudFormation would refuse. `texts` has a text for each, with its fix."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("; ".join(texts))
        self.texts = tuple(texts)


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """Options that are fixed in the template, because synthesis checks them and derives other values from them."""

    name: str = "Intake"
    """The pipeline's name in the ledger, logs and metrics, and the beginning of all logical IDs."""

    prefix: str = ""
    """The beginning of the keys that the pipeline processes; all keys when omitted."""

    suffix: str = ""
    """The end of the keys that the pipeline processes; all keys when omitted."""

    ordering: Ordering = Ordering.LATEST
    """As of `IntakePipeline`."""

    deletes: bool = False
    """Whether the processor is called for removed objects too."""

    processing_timeout: int = 60
    """The processor's time for one object, in seconds."""

    max_attempts: int = 12
    """Attempts before a change is rejected."""

    retention_days: int = LEDGER_RETENTION_DAYS
    """The time for which the ledger keeps a settled row, in days; 35 when omitted."""

    bucket_name: str | None = None
    """The physical name of the new bucket; CloudFormation chooses one when omitted."""

    existing_bucket: str | None = None
    """The name of an existing bucket of the same account and region; the template has a new bucket when omitted."""

    event_bridge: bool = False
    """Whether EventBridge delivers the events of the bucket; S3 notifications when omitted."""

    key_arn: str | None = None
    """The ARN of the KMS key of bucket, queues and table; the services' own keys when omitted."""

    processor_arn: str | None = None
    """The default of the parameter `ProcessorArn`; the parameter has no default when omitted."""

    def wrong_values(self) -> Iterator[str]:
        """What CloudFormation would refuse, or the CDK with an error that names no option. Each text has its fix."""
        if not _NAME.fullmatch(self.name):
            yield f"name is {self.name!r}: use 1 to 64 letters, digits, - and _, with a letter first"
        elif self.name in TAKEN_NAMES:
            yield f"name is {self.name!r}, which the template has for another element: use another name"
        if self.bucket_name is not None and self.existing_bucket is not None:
            yield "bucket_name is for a new bucket, and existing_bucket for an existing one: use one of them"
        for option, value in (("bucket_name", self.bucket_name), ("existing_bucket", self.existing_bucket)):
            if value is not None and not _BUCKET.fullmatch(value):
                inner = _BUCKET_OF_URI.fullmatch(value)
                named = inner is not None and _BUCKET.fullmatch(inner[1])
                fix = f"write {inner[1]!r}" if inner and named else "use 3 to 63 lower-case letters, digits, - and ."
                yield f"{option} is {value!r}, which is not the name of a bucket: {fix}"
        if self.key_arn is not None and not _KEY_ARN.fullmatch(self.key_arn):
            yield (
                f"key_arn is {self.key_arn!r}, which is not the ARN of a KMS key: use "
                "arn:aws:kms:REGION:ACCOUNT:key/ID, as `aws kms describe-key --key-id` shows it for an ID or an alias"
            )
        if self.processor_arn is not None and not re.fullmatch(FUNCTION_ARN, self.processor_arn, re.ASCII):
            yield (
                f"processor_arn is {self.processor_arn!r}, which is not the ARN of a Lambda function, version or "
                "alias: use arn:aws:lambda:REGION:ACCOUNT:function:NAME"
            )
        for option, number in (
            ("processing_timeout", self.processing_timeout),
            ("retention_days", self.retention_days),
        ):
            if number < 1:
                yield f"{option} is {number}: use a positive number"
