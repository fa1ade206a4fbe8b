"""The option `after_commit`: the tag of a version after its commit, and the lifecycle rules by it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.tag_rules import (
    TAG_EXPIRY_DAYS,
    TAG_EXPIRY_OF_PARTS,
    TAG_EXPIRY_WITH_DELETES,
    TAG_NEEDS_VERSIONS,
    TAG_RULES_OF_IMPORTED,
    TAG_TEXTS,
)
from cdk_intake_ledger.checks.spans import DAY, span
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.extra import Extra
from intake_ledger.contract import Need
from intake_ledger.delivery_check.lifecycle import ARCHIVES
from intake_ledger.protocol.commit_tag import tag_problem
from intake_ledger.protocol.settings import KeyFilter


@check_arguments
@dataclass(frozen=True)
class Tag(Extra):
    """The tag that S3 gives to a version after its commit, and lifecycle rules for versions with this tag."""

    key: str
    """1 to 128 characters: letters, digits, spaces and `+ - = . _ : / @`."""

    value: str
    """As the key, up to 256 characters."""

    expire_after: Duration | None = None
    """The age, in whole days since the upload, at which a lifecycle rule removes a tagged object; it stays when
    omitted. At least as long as a message may live in both queues."""

    transitions: Sequence[s3.Transition] | None = None
    """Storage classes for tagged objects, by their age; none when omitted."""

    needs_versions = TAG_NEEDS_VERSIONS
    """A bucket without versioning is refused when omitted."""
    need = Need.TAGS
    """The alarms about tags are made when omitted."""
    actions = ("s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging")
    """The consumer reads and writes tags when omitted."""
    sid = "TagsOfCommittedVersions"
    """The statement of these actions has this name when omitted."""

    def settings(self) -> dict[str, object]:
        """See `Extra`."""
        return {"after_commit": json.dumps([self.key, self.value])}

    def problems_of_parts(self, path: str) -> Iterator[Problem]:
        """The tag of a committed part may let it expire, or archive it.

        Args:
            path: of the pipeline of the parts.

        """
        if self.expire_after is not None:
            yield TAG_EXPIRY_OF_PARTS.problem(path=path, does="has expire_after")
        if self.archives:
            yield TAG_EXPIRY_OF_PARTS.problem(path=path, does="has transitions to an archive")

    def problems(self, bucket: s3.IBucket | None, *, deletes: bool, plan: Plan) -> Iterator[Problem]:
        """Find reasons why S3 would refuse the tag, or why a rule would lose data.

        Args:
            bucket: the option of the pipeline.
            deletes: whether the pipeline processes removals.
            plan: of the pipeline.

        """
        if problem := tag_problem(self.key, self.value):
            yield TAG_TEXTS.problem(tag=f"Tag({self.key!r}, {self.value!r})", why=problem)
        if self.has_rules and bucket is not None and not isinstance(bucket, s3.Bucket):
            yield TAG_RULES_OF_IMPORTED.problem(bucket=bucket.node.path)
        if self.expire_after is None:
            return
        seconds, message_life = to_seconds(self.expire_after), plan.queue_retention + plan.dead_letter_retention
        if seconds % DAY or seconds < message_life:
            yield TAG_EXPIRY_DAYS.problem(value=span(seconds), message_life=span(message_life))
        if deletes:
            yield TAG_EXPIRY_WITH_DELETES.problem()

    @property
    def archives(self) -> bool:
        """True if objects must be restored before they can be read."""
        return any(one.storage_class.value in ARCHIVES for one in self.transitions or ())

    @property
    def has_rules(self) -> bool:
        """True if it needs a lifecycle rule."""
        return self.expire_after is not None or bool(self.transitions)

    def change_bucket(self, bucket: s3.IBucket, filters: Sequence[KeyFilter]) -> None:
        """Add the lifecycle rules to a bucket of the app, if there are any; see `Extra`.

        Another pipeline of the bucket may have the same tag for its own prefix, without or with a later expiry.

        Args:
            bucket: of the objects.
            filters: of the pipeline. Without one, it processes each key.

        """
        if not isinstance(bucket, s3.Bucket):
            return
        prefixes = sorted({one.prefix for one in filters} or {""})
        # A rule covers the prefixes below its own.
        own = [one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)]
        for prefix in own if self.has_rules else ():
            bucket.add_lifecycle_rule(
                prefix=prefix or None,
                tag_filters={self.key: self.value},
                expiration=self.expire_after,
                transitions=list(self.transitions) if self.transitions else None,
            )
