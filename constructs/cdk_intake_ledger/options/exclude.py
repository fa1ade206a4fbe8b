"""The option `exclude`: patterns of keys that a pipeline leaves out."""

# ruff: noqa: ARG002 - as `Extra`

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aws_cdk import Token
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.exclude_rules import EXCLUDE_PATTERNS, EXCLUDE_REMOVALS_OF_VERSIONS
from cdk_intake_ledger.options.extra import Extra
from cdk_intake_ledger.options.options import Ordering
from intake_ledger.protocol.exclude import patterns_problem


@dataclass(frozen=True)
class Exclude(Extra):
    """The patterns of a pipeline."""

    patterns: Sequence[str]
    ordering: Ordering

    is_of_parts = True

    def settings(self) -> dict[str, object]:
        """See `Extra`."""
        return {"exclude": json.dumps(list(self.patterns))}

    def problems(self, bucket: s3.IBucket | None, *, deletes: bool, plan: Plan) -> Iterator[Problem]:
        """See `Extra`. Find patterns that mean nothing, and a pipeline whose removals would be lost."""
        unknown = any(map(Token.is_unresolved, self.patterns))
        if why := "a pattern is not known at synthesis" if unknown else patterns_problem(self.patterns):
            yield EXCLUDE_PATTERNS.problem(patterns=list(self.patterns), why=why)
        if deletes and self.ordering is Ordering.EVERY_VERSION:
            yield EXCLUDE_REMOVALS_OF_VERSIONS.problem()
