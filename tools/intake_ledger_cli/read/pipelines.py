"""Lists the pipelines of an account and region, by the tag that each of their resources has."""

from collections import defaultdict
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from intake_ledger.protocol.settings import PIPELINE_TAG
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.show.console import WARNING
from intake_ledger_cli.show.render import table

_STACK_TAG = "aws:cloudformation:stack-name"


@dataclass(frozen=True, slots=True)
class FoundPipeline:
    """A pipeline, and the resources that have its tag."""

    name: str
    stacks: list[str]
    """Stacks of its resources. Resources that a stack has kept after its deletion still have the stack's tag."""
    deployed: bool
    """False if only kept resources remain: no function has the pipeline's tag."""
    resources: list[str]
    """ARNs."""


@dataclass(frozen=True, slots=True)
class FoundPipelines:
    """The document of `status` without a stack: pipelines by name."""

    region: str
    pipelines: list[FoundPipeline]


def list_pipelines(aws: Aws) -> FoundPipelines:
    """List pipelines by name. A pipeline whose tags were removed is missing.

    Raises:
        ClientError: The caller lacks `tag:GetResources`.

    """
    resources, stacks = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    pages = aws.tagging.get_paginator("get_resources").paginate(TagFilters=[{"Key": PIPELINE_TAG}])
    for one in (one for page in pages for one in page["ResourceTagMappingList"]):
        tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        name = tags[PIPELINE_TAG]
        resources[name].append(one["ResourceARN"])
        stacks[name] |= {tags[_STACK_TAG]} if _STACK_TAG in tags else set()
    return FoundPipelines(
        aws.region,
        [
            FoundPipeline(name, sorted(stacks[name]), any(arn.split(":")[2] == "lambda" for arn in arns), sorted(arns))
            for name, arns in sorted(resources.items())
        ],
    )


def pipelines_table(found: FoundPipelines) -> RenderableType:
    if not found.pipelines:
        return Text(f"no resource in {found.region} has the tag {PIPELINE_TAG}", style=WARNING)
    states = {True: "deployed", False: "only kept resources: deploy with this name="}
    rows = [(one.name, ", ".join(one.stacks) or "unknown", states[one.deployed]) for one in found.pipelines]
    return table(("pipeline", "stack", "state"), rows)
