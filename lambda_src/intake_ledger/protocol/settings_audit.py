"""The settings of the audit. The construct sets them as environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from intake_ledger.protocol.settings import Settings, Variable, settings_from, variable_of


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

    bucket: Annotated[str, Variable("INTAKE_REPORT_BUCKET")]
    prefix: Annotated[str, Variable("INTAKE_REPORT_PREFIX")] = ""
    owner: Annotated[str | None, Variable("INTAKE_REPORT_BUCKET_OWNER")] = None


def _names(_: str, text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


FILES = Variable("INTAKE_AUDIT_FILES")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSettings:
    """The settings of the function that joins what the parts of a run have read."""

    files: Annotated[str, FILES]
    """The bucket of the files of a run in parts."""
    database: Annotated[str, Variable("INTAKE_AUDIT_DATABASE")] = ""
    """Athena's database; empty where the function joins itself."""
    work_group: Annotated[str, Variable("INTAKE_AUDIT_WORK_GROUP")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(Settings):
    settle_seconds: Annotated[int, Variable("INTAKE_SETTLE_SECONDS")]
    look_back_seconds: Annotated[int, Variable("INTAKE_LOOK_BACK_SECONDS", 1)]
    budget: Annotated[int, Variable("INTAKE_AUDIT_MAX_RESUBMISSIONS", 1)]
    delivery: Annotated[Delivery, Variable("INTAKE_DELIVERY_MODE")] = Delivery.S3
    reports: Reports | None = None
    other_pipelines: Annotated[tuple[str, ...], Variable("INTAKE_OTHER_PIPELINES", parse=_names)] = ()
    """The names of the app's other pipelines on the same bucket and the same table."""
    deployed: Annotated[str, Variable("INTAKE_DEPLOYED")] = ""
    """Deployed settings of the path from bucket to ledger, in JSON, for `intake_ledger.delivery_check.deployed`."""
    files: Annotated[str, FILES] = ""
    """The bucket of the files of a run in parts; empty where the audit has one part."""
    resubmit_rate: Annotated[int, Variable("INTAKE_RESUBMIT_RATE", 1)] = 100
    """The number of messages that a run in parts sends in a second."""
    backfills: Annotated[bool, Variable("INTAKE_BACKFILL")] = False
    """True if a run in parts sends objects that are older than the pipeline."""
    backfill_rate: Annotated[int, Variable("INTAKE_BACKFILL_RATE", 1)] = 3
    """The number of these objects that it sends in a second."""


def audit_settings(environment: Mapping[str, str]) -> AuditSettings:
    """Read the audit's settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    reports = settings_from(Reports, environment) if environment.get(variable_of(Reports, "bucket")) else None
    return settings_from(AuditSettings, environment, reports=reports)
