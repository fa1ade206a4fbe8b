"""The settings of the audit. The construct sets them as environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from intake_ledger.protocol.settings import Settings, SettingsReader, common_settings


class Delivery(StrEnum):
    """The way from the bucket's changes to the pipeline's queue."""

    S3 = "S3"
    """S3 notifications of the bucket."""
    EVENTBRIDGE = "EVENTBRIDGE"
    """The bucket sends all events to EventBridge, and a rule sends them to the queue."""
    EXISTING = "EXISTING"
    """Resources outside of the pipeline deliver them, for example bucket notifications in Terraform or SAM. The
    pipeline makes none of these resources. Its audit checks that they send all events of all keys."""


@dataclass(frozen=True, slots=True)
class Reports:
    """The place of the reports of the audit's runs."""

    bucket: str
    prefix: str
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(Settings):
    settle_seconds: int
    look_back_seconds: int
    budget: int
    delivery: Delivery = Delivery.S3
    reports: Reports | None = None
    other_pipelines: tuple[str, ...] = ()
    """The names of the app's other pipelines on the same bucket and the same table."""
    deployed: str = ""
    """Deployed settings of the path from bucket to ledger, in JSON, for `intake_ledger.delivery_check.deployed`."""
    files: str = ""
    """The bucket of the files of a run in parts; empty where the audit has one part."""
    resubmit_rate: int = 100
    """The number of messages that a run in parts sends in a second."""
    backfills: bool = False
    """True if a run in parts sends objects that are older than the pipeline."""
    backfill_rate: int = 3
    """The number of these objects that it sends in a second."""


def audit_settings(environment: Mapping[str, str]) -> AuditSettings:
    """Read the audit's settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    read = SettingsReader(environment)
    reports = read.text("INTAKE_REPORT_BUCKET", "")
    return AuditSettings(
        **common_settings(read),
        settle_seconds=read.whole("INTAKE_SETTLE_SECONDS", 0),
        look_back_seconds=read.whole("INTAKE_LOOK_BACK_SECONDS", 1),
        budget=read.whole("INTAKE_AUDIT_MAX_RESUBMISSIONS", 1),
        delivery=Delivery(read.choice("INTAKE_DELIVERY_MODE", tuple(Delivery), Delivery.S3)),
        reports=Reports(
            reports, read.text("INTAKE_REPORT_PREFIX", ""), read.text("INTAKE_REPORT_BUCKET_OWNER", "") or None
        )
        if reports
        else None,
        files=read.text("INTAKE_AUDIT_FILES", ""),
        resubmit_rate=read.whole("INTAKE_RESUBMIT_RATE", 1, "100"),
        backfills=read.choice("INTAKE_BACKFILL", ("true", "false"), "false") == "true",
        backfill_rate=read.whole("INTAKE_BACKFILL_RATE", 1, "3"),
        other_pipelines=tuple(name for name in read.text("INTAKE_OTHER_PIPELINES", "").split(",") if name),
        deployed=read.text("INTAKE_DEPLOYED", ""),
    )
