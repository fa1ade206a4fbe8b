"""The option `ready_when`: the tag without which no version is processed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem, Rule
from cdk_intake_ledger.checks.rules.tag_rules import (
    LEAST_TAG_WAIT,
    READY_MAX_WAIT,
    READY_NEEDS_VERSIONS,
    READY_TEXTS,
)
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.options.extra import Extra
from intake_ledger.delivery_check.sent_events import TAGGED
from intake_ledger.protocol.awaited_tag import awaited_tag_problems


@check_arguments
@dataclass(frozen=True)
class ReadyTag(Extra):
    """The tag without which no version is processed, such as the result of a scan for malware."""

    key: str
    """1 to 128 characters: letters, digits, spaces and `+ - = . _ : / @`."""

    values: Sequence[str]
    """A version with one of these values is processed. Each has up to 256 characters, as those of the key."""

    refuse: Sequence[str] = ()
    """A version with one of these values is rejected; none is when omitted. With any other value it waits."""

    needs_versions: ClassVar[Rule | None] = READY_NEEDS_VERSIONS
    """A bucket without versioning is refused when omitted."""
    events: ClassVar[Mapping[s3.EventType, str]] = {s3.EventType.OBJECT_TAGGING_PUT: TAGGED}
    """The events of new tags are sent to the queue when omitted."""
    actions: ClassVar[Sequence[str]] = ("s3:GetObjectVersionTagging",)
    """The consumer reads tags when omitted."""
    sid: ClassVar[str] = "TagsOfAwaitedVersions"
    """The statement of these actions has this name when omitted."""

    def settings(self) -> dict[str, object]:
        """See `Extra`."""
        return {"ready_when": json.dumps([self.key, [*self.values], [*self.refuse]])}

    def problems(
        self,
        bucket: s3.IBucket | None,  # noqa: ARG002 - see `Extra`
        *,
        deletes: bool,  # noqa: ARG002 - see `Extra`
        plan: Plan,
    ) -> Iterator[Problem]:
        """Find reasons why no version could get the tag, or why the wait for it would be too short.

        Args:
            bucket: the option of the pipeline.
            deletes: whether the pipeline processes removals.
            plan: of the pipeline.

        """
        for problem in awaited_tag_problems(self.key, self.values, self.refuse):
            yield READY_TEXTS.problem(tag=f"ReadyTag({self.key!r}, {[*self.values]})", why=problem)
        if plan.max_wait < LEAST_TAG_WAIT:
            yield READY_MAX_WAIT.problem(value=span(plan.max_wait), least=span(LEAST_TAG_WAIT))
