"""Lets the audit write its reports to the chosen bucket, or to the intake bucket outside of the pipeline's filters."""

from collections.abc import Iterator, Sequence

from aws_cdk import Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.audit_rules import REPORTS_ARE_PROCESSED
from cdk_intake_ledger.delivery.bucket_notifications import owned_resource, owner_of
from cdk_intake_ledger.delivery.key_filters import KeyPattern, key_text_problems, warn_about_key_text
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.options.options import AuditOptions
from cdk_intake_ledger.resources.key_access import grant_key
from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_audit import Reports

DEFAULT_PREFIX = "audit/"
_SUFFIX = ".json"


def report_problems(
    options: AuditOptions, bucket: s3.IBucket | None, filters: Sequence[KeyPattern]
) -> Iterator[Problem]:
    """Problems of the prefix, or if the pipeline would process its reports.

    `bucket` is None if the pipeline makes its bucket.
    """
    for name, prefix in (("report_prefix", options.report_prefix), ("the inventory's prefix", _inventory(options))):
        yield from key_text_problems(name, prefix or "")
    if not _wanted(options) or not _same(options.report_bucket, bucket):
        return
    reports = KeyPattern(_prefix(options), _SUFFIX)
    for key_filter in filters:
        if reports.is_known and key_filter.is_known and reports.overlaps(key_filter):
            yield REPORTS_ARE_PROCESSED.problem(prefix=reports.prefix, filter=key_filter)


def allow_reports(role: iam.Role, resources: PipelineResources, options: AuditOptions) -> dict[str, str]:
    """Let the audit write its reports only. Returns the environment variables of their place."""
    warn_about_key_text(role, "the inventory's prefix", _inventory(options))
    if not _wanted(options):
        return {}
    bucket = options.report_bucket or resources.bucket
    warn_about_key_text(role, "report_prefix", _prefix(options))
    objects = bucket.arn_for_objects(KeyPattern(f"{_prefix(options)}{resources.name}/").iam_pattern())
    role.add_to_policy(
        iam.PolicyStatement(sid="ReportsOfThisPipelineByDayAndRun", actions=["s3:PutObject"], resources=[objects])
    )
    if bucket.encryption_key is not None:
        grant_key(bucket.encryption_key, role, "kms:GenerateDataKey")
    owner = owner_of(bucket, owned_resource(bucket), role)
    return environment_of(Reports, bucket=bucket.bucket_name, prefix=_prefix(options), owner=owner)


def _inventory(options: AuditOptions) -> str:
    reports = options.scale.reports
    return reports.prefix if reports is not None else ""


def _wanted(options: AuditOptions) -> bool:
    return options.report_bucket is not None or options.report_prefix is not None


def _prefix(options: AuditOptions) -> str:
    return DEFAULT_PREFIX if options.report_prefix is None else options.report_prefix


def _same(reports: s3.IBucket | None, intake: s3.IBucket | None) -> bool:
    """True if both are known to be the same bucket. A bucket may be imported twice."""
    if reports is None or intake is None:
        return reports is None
    if reports.node.path == intake.node.path:
        return True
    names = reports.bucket_name, intake.bucket_name
    return not any(Token.is_unresolved(name) for name in names) and names[0] == names[1]
