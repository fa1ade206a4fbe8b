"""The options of a template: those of the pipeline that fit on a command line."""

from dataclasses import dataclass

from cdk_intake_ledger.options import Ordering
from cdk_intake_ledger.validation.plan import LEDGER_RETENTION_DAYS


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
