"""The option `same_content`: copies in place are not processed again."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem, Rule
from cdk_intake_ledger.checks.rules.content_rules import (
    SAME_CONTENT_NEEDS_VERSIONS,
    SAME_CONTENT_RULE,
)
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.extra import Extra
from intake_ledger.protocol.same_content import content_problem


@check_arguments
@dataclass(frozen=True, kw_only=True)
class SameContent(Extra):
    """How a copy in place is known: a version with the content of the committed version of its key."""

    hold: Duration
    """The time after which a content is processed again, at least a second. Copies do not extend it. A row that has
    expired knows no content."""

    metadata: str | None = None
    """The field of user metadata with which uploaders name the content, in lower case and without `x-amz-meta-`; S3's
    SHA-256 checksum of the whole object names it when omitted."""

    needs_versions: ClassVar[Rule | None] = SAME_CONTENT_NEEDS_VERSIONS
    """A bucket without versioning is refused when omitted."""
    table_actions: ClassVar[Sequence[str]] = ("dynamodb:DescribeTable",)
    """The consumer may ask whether the table was restored, and knows older contents, when omitted."""

    def settings(self) -> dict[str, object]:
        """See `Extra`."""
        return {"same_content": json.dumps([int(to_seconds(self.hold)), self.metadata])}

    def problems(
        self,
        bucket: s3.IBucket | None,  # noqa: ARG002 - see `Extra`
        *,
        deletes: bool,  # noqa: ARG002 - see `Extra`
        plan: Plan,  # noqa: ARG002 - see `Extra`
    ) -> Iterator[Problem]:
        """Find reasons why no copy could be known.

        Args:
            bucket: the option of the pipeline.
            deletes: whether the pipeline processes removals.
            plan: of the pipeline.

        """
        if problem := content_problem(int(to_seconds(self.hold)), self.metadata):
            yield SAME_CONTENT_RULE.problem(metadata=repr(self.metadata), why=problem)
