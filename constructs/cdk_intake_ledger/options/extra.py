"""What an option brings to a pipeline besides its own value. An option that is not set brings nothing."""

# ruff: noqa: ARG002 - options that override a method use its arguments

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem, Rule
from intake_ledger.contract import Need
from intake_ledger.protocol.settings import KeyFilter


class Extra:
    """An option that brings settings, permissions, alarms or rules. It overrides the methods that it needs."""

    need: ClassVar[Need | None] = None
    """The alarms that only pipelines with this option have."""
    is_of_parts: ClassVar[bool] = False
    """True if sets of files get the settings of the pipeline of their parts."""

    needs_versions: ClassVar[Rule | None] = None
    """The rule against a bucket without versioning; none is needed when omitted."""

    table_actions: ClassVar[Sequence[str]] = ()
    """More actions of the consumer on the ledger's table."""

    events: ClassVar[Mapping[s3.EventType, str]] = {}
    """More events that the queue needs, by CDK's type and by S3's name."""

    actions: ClassVar[Sequence[str]] = ()
    """Actions of the consumer on objects that pass the filters."""
    sid: ClassVar[str] = ""
    """The name of their statement."""

    def settings(self) -> dict[str, object]:
        """The fields of `Settings` that it gives to all functions."""
        return {}

    def change_bucket(self, bucket: s3.IBucket, filters: Sequence[KeyFilter]) -> None:
        """Change the bucket.

        Args:
            bucket: of the pipeline.
            filters: of the pipeline.

        """

    def problems(self, bucket: s3.IBucket | None, *, deletes: bool, plan: Plan) -> Iterator[Problem]:
        """Reasons why the option cannot work. `bucket` is that of the pipeline's arguments."""
        yield from ()

    def problems_of_parts(self, path: str) -> Iterator[Problem]:
        """Reasons why objects of a pipeline cannot be parts of sets.

        Args:
            path: of the pipeline of the parts.

        """
        yield from ()
