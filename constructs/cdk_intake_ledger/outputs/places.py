"""Compares the places of all pipelines of the app: prefixes that they process, and prefixes of their outputs."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aws_cdk import Reference, Stack, Token, Tokenization
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.final_template import FinalTemplates, at_synthesis
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.output_rules import (
    OUTPUT_CALLS_ITSELF,
    OUTPUT_IN_OTHER_INTAKE,
    OUTPUTS_OVERLAP,
    REJECTS_IN_OUTPUTS,
)
from cdk_intake_ledger.delivery.bucket_notifications import owned_resource
from cdk_intake_ledger.delivery.key_filters import KeyPattern


class _Output(NamedTuple):
    bucket: s3.IBucket
    prefix: str
    rejects: bool
    """True for rejected rows, which the library writes."""


class Places:
    """The prefixes that a pipeline processes, and those of its outputs.

    Args:
        pipeline: the pipeline.
        bucket: its bucket.
        filters: its filters.

    """

    def __init__(self, pipeline: Construct, bucket: s3.IBucket, filters: Sequence[KeyPattern]) -> None:
        self.pipeline = pipeline
        self.outputs: list[_Output] = []
        self._bucket = bucket
        self._filters = filters

    def add(self, bucket: s3.IBucket, prefix: str, *, rejects: bool) -> int:
        """Add a prefix of outputs or of rejected rows, and let synthesis compare it with all places of the app.

        Returns:
            the number of prefixes; 0 if the pipeline had this one before.

        """
        place = prefix, bucket.node.path, rejects
        if any(place == (other.prefix, other.bucket.node.path, other.rejects) for other in self.outputs):
            return 0
        if not self.outputs:
            at_synthesis(self.pipeline, self._problems)
        self.outputs.append(_Output(bucket, prefix, rejects))
        return len(self.outputs)

    def intake_prefixes(self, bucket: str) -> Iterator[str]:
        """The prefixes in a bucket that the pipeline processes. A token cannot be compared."""
        if bucket_identity(self._bucket) == bucket:
            yield from (item.prefix for item in self._filters if item.is_known)

    def output_prefixes(self, bucket: str) -> Iterator[str]:
        """The prefixes of outputs in a bucket."""
        yield from (output.prefix for output in self.outputs if bucket_identity(output.bucket) == bucket)

    def _problems(self, templates: FinalTemplates) -> Iterator[Problem]:
        """Compare the outputs with all pipelines of the app, since some may be made later."""
        # jsii never frees an object of Python, so the tree has the same objects that the app made.
        pipelines = [construct._places for construct in templates.constructs(HasPlaces)]  # noqa: SLF001
        for output in self.outputs:
            if not Token.is_unresolved(output.prefix):
                for places in pipelines:
                    yield from self._overlaps(output, places)
                yield from self._mixes(output)

    def _mixes(self, output: _Output) -> Iterator[Problem]:
        """The overlap of an output of the processor with the rejected rows."""
        for other in () if output.rejects else self.outputs:
            same = bucket_identity(other.bucket) == bucket_identity(output.bucket)
            known = other.rejects and not Token.is_unresolved(other.prefix)
            if same and known and _overlap(other.prefix, output.prefix):
                values = {"bucket": output.bucket.node.path, "prefix": output.prefix}
                yield REJECTS_IN_OUTPUTS.problem(**values, rejects=other.prefix)

    def _overlaps(self, output: _Output, places: "Places") -> Iterator[Problem]:
        bucket, prefix, other = bucket_identity(output.bucket), output.prefix, places.pipeline.node.path
        values: dict[str, Any] = {"bucket": output.bucket.node.path, "prefix": prefix}
        for intake in places.intake_prefixes(bucket):
            if _overlap(intake, prefix) and places is self:
                yield OUTPUT_CALLS_ITSELF.problem(**values, intake=intake)
            elif _overlap(intake, prefix):
                yield OUTPUT_IN_OTHER_INTAKE.problem(**values, intake=intake, other=other)
        for theirs in () if places is self else places.output_prefixes(bucket):
            if _overlap(theirs, prefix):
                yield OUTPUTS_OVERLAP.problem(**values, theirs=theirs, other=other)


class HasPlaces(Construct):
    """A pipeline, as other pipelines of the app find it in the construct tree."""

    _places: Places


def bucket_identity(bucket: s3.IBucket) -> str:
    """A text that is the same for all references of the app to one bucket.

    It is the name if synthesis knows it. Names are unique in all accounts and regions. Otherwise it is the path of the
    bucket's resource, or the expression of a name that is known at deployment only.
    """
    resource = owned_resource(bucket)
    if resource is not None:
        return _resource_identity(resource)
    name = bucket.bucket_name
    if not Token.is_unresolved(name):
        return name
    tokens: list[Any] = Tokenization.reverse_string(name).tokens
    if len(tokens) == 1 and Reference.is_reference(tokens[0]) and isinstance(tokens[0].target, s3.CfnBucket):
        return _resource_identity(tokens[0].target)
    return f"{Stack.of(bucket).node.path}: {Stack.of(bucket).resolve(name)}"


def _resource_identity(resource: s3.CfnBucket) -> str:
    name = resource.bucket_name
    return name if name and not Token.is_unresolved(name) else str(resource.node.path)


def _overlap(one: str, other: str) -> bool:
    """True if some keys have both prefixes."""
    return one.startswith(other) or other.startswith(one)
