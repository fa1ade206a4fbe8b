"""The resources of a pipeline: what delivers to it, and the environment variables and permissions of its functions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aws_cdk import Duration, Stack, Tokenization
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from cdk_intake_ledger.delivery.key_filters import KeyPattern, read_patterns
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.extra import Extra
from cdk_intake_ledger.options.options import Delivery, Ordering
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.key_access import (
    BUCKET_READ_KEY_ACTIONS,
    QUEUE_KEY_ACTIONS,
    TABLE_KEY_ACTIONS,
    grant_key,
)
from intake_ledger.contract import METRICS_NAMESPACE
from intake_ledger.protocol.settings import Settings, environment_of


@dataclass(frozen=True, kw_only=True)
class PipelineResources:
    """The resources of one pipeline, and the settings that its functions share."""

    name: str
    """The pipeline's name, unique among pipelines that share a ledger."""
    bucket: s3.IBucket
    bucket_resource: s3.CfnBucket | None
    """The bucket's resource; None if the bucket is imported."""
    bucket_is_own: bool
    """True if the pipeline made the bucket."""
    bucket_owner: str | None
    """The account that owns the bucket; None if it is not known."""
    delivery: Delivery
    queue: IntakeQueue
    ledger: IntakeLedger
    retention: Duration
    """Retention of settled rows that expire."""
    ordering: Ordering
    deletes: bool
    directory_markers: bool
    extras: Sequence[Extra]
    """Options that bring settings and permissions of their own."""
    clock_skew: Duration
    filters: Sequence[KeyPattern]
    stack: Stack
    """The pipeline's stack."""
    existing: Mapping[str, IConstruct]
    """Resources that the pipeline did not make: `bucket`, `queue`, `dead`, `table` and `key`."""

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment variables of all functions."""
        filters = [dict(item.parts()) for item in self.filters]
        # The processor needs the row of a removed object, so rows live as long as their objects.
        keeps_rows = self.deletes or self.ledger.retention is None
        variables = environment_of(
            Settings,
            pipeline=self.name,
            bucket=self.bucket.bucket_name,
            bucket_owner=self.bucket_owner,
            table=self.table.table_name,
            queue_url=self.queue.queue.queue_url,
            ordering=self.ordering,
            deletes=self.deletes,
            retention_seconds=in_seconds(self.retention),
            keeps_rows=keeps_rows,
            # Objects that were in the bucket before the pipeline are not lost events. The pipeline's bucket was empty.
            skips_existing=not self.bucket_is_own,
            # An empty filter matches each key, so there is nothing to filter.
            filters=self.stack.to_json_string(filters if all(filters) else []),
            clock_skew_seconds=in_seconds(self.clock_skew),
            directory_markers=self.directory_markers or None,
            **{name: value for extra in self.extras for name, value in extra.settings().items()},
        )
        return variables | powertools_environment(self.name)

    @cached_property
    def dead_letter_arn(self) -> str:
        """The ARN of the dead-letter queue."""
        return self.queue.dead_letter_queue.queue_arn

    @cached_property
    def dead_letter_url(self) -> str:
        """The URL of the dead-letter queue."""
        return self.queue.dead_letter_queue.queue_url

    @property
    def table(self) -> dynamodb.ITable:
        """The ledger's table."""
        return self.ledger.table

    def allow_extras(self, role: iam.Role) -> None:
        """Grant a role what the options need on objects that pass the filters. Call `allow` first."""
        for extra in self.extras:
            if extra.actions:
                objects = [self.bucket.arn_for_objects(pattern) for pattern in read_patterns(self.filters)]
                statement = iam.PolicyStatement(sid=extra.sid, actions=list(extra.actions), resources=objects)
                role.add_to_policy(statement)

    def allow(self, role: iam.Role, *, bucket: Sequence[str], table: Sequence[str], queue: Sequence[str]) -> None:
        """Grant a role these actions, reading of objects that pass the filters, and use of the encryption keys.

        Args:
            role: the role of a function.
            bucket: actions on the bucket.
            table: actions on the ledger's table.
            queue: actions on the queue.

        """
        objects = [self.bucket.arn_for_objects(pattern) for pattern in read_patterns(self.filters)]
        _grant(role, bucket, self.bucket.bucket_arn)
        # The statement's name explains the asterisk to a reader of the template.
        role.add_to_policy(
            iam.PolicyStatement(
                sid="ObjectsThatTheFiltersLetThrough",
                actions=["s3:GetObject", "s3:GetObjectVersion"],
                resources=objects,
            )
        )
        _grant(role, table, self.table.table_arn)
        _grant(role, queue, self.queue.queue.queue_arn)
        keys = (
            (self.bucket.encryption_key, BUCKET_READ_KEY_ACTIONS),
            (self.queue.encryption_key, QUEUE_KEY_ACTIONS),
            (self.ledger.encryption_key, TABLE_KEY_ACTIONS),
        )
        grant_keys(role, keys)


def existing_resources(
    bucket: s3.IBucket | None, queue: IntakeQueue | None, ledger: IntakeLedger | None, key: kms.IKey | None
) -> dict[str, IConstruct]:
    """The resources that a pipeline did not make. The key is the queue's, or the pipeline's `encryption_key`."""
    resources = {
        "bucket": bucket,
        "queue": queue and queue.queue,
        "dead": queue and queue.dead_letter_queue,
        "table": ledger and ledger.table,
        "key": queue.encryption_key if queue else key,
    }
    return {name: resource for name, resource in resources.items() if resource is not None}


def _grant(role: iam.Role, actions: Sequence[str], resource: str) -> None:
    iam.Grant.add_to_principal(grantee=role, actions=list(actions), resource_arns=[resource])


def grant_keys(role: iam.Role, pairs: Iterable[tuple[kms.IKey | None, Iterable[str]]]) -> None:
    """Grant a role the use of keys, with one statement for each key: bucket, queue and table may have the same key."""
    merged: dict[str, tuple[kms.IKey, set[str]]] = {}
    for key, actions in pairs:
        if key is not None:
            merged.setdefault(key.node.path, (key, set()))[1].update(actions)
    for key, actions in merged.values():
        grant_key(key, role, *sorted(actions))


def powertools_environment(name: str) -> dict[str, str]:
    """The variables of Powertools, for the functions of a pipeline or an intake with this name."""
    return {
        "POWERTOOLS_SERVICE_NAME": name,
        "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }


def in_seconds(duration: Duration) -> str:
    """Seconds as an environment variable. A token stays a token."""
    return in_text(to_seconds(duration))


def in_text(number: float) -> str:
    """A number as an environment variable. A token stays a token."""
    # A token is a negative number, and no other number here is negative.
    return f"{number:.15g}" if number >= 0 else Tokenization.stringify_number(number)
